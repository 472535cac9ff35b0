//! How a source is treated, and commits whose answer is lost.

use std::time::Duration;

use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;
use vitrina_core::RunStatus;

use crate::stage::{QUERY, Stage};

#[tokio::test]
async fn a_query_needs_no_order_and_may_aggregate_and_join() {
    let stage = Stage::with_films(40).await;
    let query = "with late as (select * from content.film where id > 10)
                 select f.id, min(f.title) as title, max(l.rating)::numeric(3,1) as rating, max(f.modified) as modified
                   from content.film f join late l on l.id >= f.id group by f.id -- no order";
    let id = stage.pipeline(json!({"source_query": query, "batch_size": 7})).await;
    assert_eq!(stage.succeed(id).await.rows_written, 40);
    assert_eq!(stage.succeed(id).await.rows_unchanged, 40);
}

#[tokio::test]
async fn a_query_above_the_ceiling_of_cost_fails_at_once_and_names_the_setting() {
    let stage = Stage::with_films(40).await;
    let query = "select a.id, a.title, a.rating, a.modified from content.film a
                  where (select count(*) from content.film b, content.film c) > 0";
    let id = stage.pipeline(json!({"source_query": query})).await;
    let mut settings = stage.settings("tester");
    settings.connections.0.get_mut("content").unwrap().max_query_cost = Some(20.0);
    let run = stage.request(id).await;
    stage.work_off(settings.clone()).await;
    let run = stage.run_record(run).await;
    assert_eq!(run.error_code.as_deref(), Some("sql.too_costly"));
    let error = run.error.unwrap();
    assert!(error.contains("and 20 is allowed") && error.contains("runner.max_query_cost"), "{error}");
    stage.db.execute(&format!("update etl.etl_pipelines set source_query = '{QUERY} where id = 1'")).await;
    let cheap = stage.request(id).await;
    stage.work_off(settings).await;
    assert_eq!(stage.run_record(cheap).await.status, RunStatus::Success);
}

/// A query that leads from changed keys to rows is one that people write, too.
#[tokio::test]
async fn a_watch_query_above_the_ceiling_of_cost_is_refused() {
    let stage = Stage::with_films(40).await;
    stage.db.execute("create table content.rating (film_id int, person int, modified timestamptz not null default now(), primary key (film_id, person)); create index on content.rating (modified)").await;
    let keys = "select a.id from content.film a, content.film b, content.film c where a.id = any($1)";
    let id = stage
        .pipeline(json!({
            "mode": "incremental", "incremental_key": "modified", "incremental_id_key": "id",
            "watch": [{"table": "content.rating", "key": ["film_id"], "keys": keys}],
        }))
        .await;
    let mut settings = stage.settings("tester");
    settings.connections.0.get_mut("content").unwrap().max_query_cost = Some(60.0);
    let run = stage.request(id).await;
    stage.work_off(settings).await;
    let run = stage.run_record(run).await;
    assert_eq!(run.error_code.as_deref(), Some("sql.too_costly"), "{:?}", run.error);
}

#[tokio::test]
async fn a_source_is_read_in_read_only_transactions_and_with_a_timeout() {
    let stage = Stage::with_films(5).await;
    stage
        .db
        .execute(
            "create function content.settings(int) returns text stable language plpgsql
                 as 'begin return concat_ws('','', current_setting(''transaction_read_only''), current_setting(''statement_timeout''), current_setting(''row_security'')); end';
             create view content.film_seen as select id, content.settings(id) as title, rating, modified from content.film",
        )
        .await;
    let query = "select id, content.settings(id) as title, rating, modified from content.film";
    let id = stage.pipeline(json!({"source_query": query})).await;
    let (code, message) = stage.fail(id).await;
    assert_eq!(code, "sql.function_not_allowed", "{message}");
    stage.db.execute("update etl.etl_pipelines set source_query = 'select * from content.film_seen'").await;
    let (code, message) = stage.fail(id).await;
    assert_eq!(code, "sql.function_not_allowed", "{message}");
    assert!(message.contains("view content.film_seen calls content.settings"), "{message}");
    // What the guard refuses, a superuser may pass off as built in.
    stage.db.execute("alter function content.settings(int) rename to md5; alter function content.md5(int) set schema pg_catalog").await;
    stage.db.execute("update etl.etl_pipelines set source_query = 'select id, md5(id) as title, rating, modified from content.film'").await;
    stage.succeed(id).await;
    let title: String = stage.db.value("select title from analytics.film limit 1").await;
    assert_eq!(title, "on,1h,off");
}

/// Passes bytes on both ways until the client sends `word`; then passes that on as well, waits for the answer, and cuts the
/// line without handing it over. Later connections pass undisturbed.
async fn cut_once_after(word: &'static str, server: String) -> (String, JoinSet<()>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let mut tasks = JoinSet::new();
    tasks.spawn(async move {
        let mut cut = false;
        let mut lines = JoinSet::new();
        loop {
            let (client, _) = listener.accept().await.unwrap();
            let upstream = TcpStream::connect(&server).await.unwrap();
            if cut {
                lines.spawn(pass(client, upstream, None));
            } else {
                cut = pass(client, upstream, Some(word)).await;
            }
        }
    });
    (address, tasks)
}

/// True when the line was cut.
async fn pass(mut client: TcpStream, mut server: TcpStream, word: Option<&str>) -> bool {
    let (mut up, mut down) = (vec![0; 65536], vec![0; 65536]);
    let mut sent = false;
    loop {
        tokio::select! {
            read = client.read(&mut up) => {
                let count = read.unwrap_or(0);
                if count == 0 { return false; }
                sent |= word.is_some_and(|word| up[..count].windows(word.len()).any(|part| part == word.as_bytes()));
                server.write_all(&up[..count]).await.unwrap();
            }
            read = server.read(&mut down) => {
                let count = read.unwrap_or(0);
                if sent { return true; }
                if count == 0 { return false; }
                client.write_all(&down[..count]).await.unwrap();
            }
        }
    }
}

#[tokio::test]
async fn a_commit_whose_answer_is_lost_is_neither_repeated_nor_forgotten() {
    let stage = Stage::with_films(30).await;
    let id = stage.full(10).await;
    let url: url::Url = stage.db.url().parse().unwrap();
    let server = format!("{}:{}", url.host_str().unwrap(), url.port().unwrap());
    let (address, _proxy) = cut_once_after("etl.commit_batch", server).await;
    let mut settings = stage.settings("cut off");
    let mut through = url.clone();
    through.set_port(Some(address.rsplit(':').next().unwrap().parse().unwrap())).unwrap();
    settings.connections.0.get_mut("marts").unwrap().url = through.to_string().into();
    let run = stage.request(id).await;
    stage.work_off(settings.clone()).await;
    let attempts = stage.store.attempts(run).await.unwrap();
    assert_eq!(attempts[0].error_code.as_deref(), Some("sink.connection_lost"));
    assert_eq!(stage.count("analytics.film").await, 10, "the batch is there");
    stage.db.execute("update etl.etl_pipelines set retry_at = now()").await;
    stage.work_off(settings).await;
    let run = stage.run_record(run).await;
    assert_eq!((run.status, run.rows_read, run.batches), (RunStatus::Success, 30, 3), "{:?}", run.error);
    assert_eq!(stage.differences().await, 0);
}

#[tokio::test]
async fn a_pause_does_not_wait_for_ever_for_the_batch_under_way() {
    let stage = Stage::with_films(30).await;
    let id = stage.full(10).await;
    let mut settings = stage.settings("impatient");
    settings.pause_timeout = Duration::from_millis(1);
    settings.lease = Duration::from_millis(300);
    let shutdown = tokio_util::sync::CancellationToken::new();
    let runner = vitrina_runner::Runner::new(settings, stage.store.clone());
    let mut tasks = JoinSet::new();
    let token = shutdown.clone();
    tasks.spawn(async move { runner.run(token).await.unwrap() });
    let blocker = stage.block_film(5).await;
    stage.request(id).await;
    stage.someone_waits_for_a_row().await;
    stage.change(id, vitrina_core::Event::Pause).await;
    stage.reaches(id, vitrina_core::Status::Paused).await;
    blocker.batch_execute("rollback").await.unwrap();
    assert_eq!(stage.count("analytics.film").await, 0, "its transaction is rolled back");
    shutdown.cancel();
    tasks.join_next().await.unwrap().unwrap();
    assert_eq!(stage.succeed(id).await.rows_read, 30);
    assert_eq!(stage.differences().await, 0);
}
