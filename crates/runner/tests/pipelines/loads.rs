//! Full loads: directly into an empty mart, else through staging and all at once.

use rstest::rstest;
use serde_json::json;
use vitrina_core::{Event, RunStatus, Status};

use crate::stage::{QUERY, Stage, until};

/// Pauses a load behind its first batch: the runner waits for a row of the first batch, and is told meanwhile.
pub(crate) async fn pause_behind_the_first_batch(stage: &Stage, id: vitrina_core::PipelineId) {
    let (mut runner, shutdown) = stage.start_runner("pausing");
    let gate = stage.db.client().await;
    gate.batch_execute("begin; lock table content.film in access exclusive mode").await.unwrap();
    stage.request(id).await;
    stage.someone_waits_for("content.film").await;
    stage.pause_unheard(id).await;
    gate.batch_execute("commit").await.unwrap();
    stage.reaches(id, Status::Paused).await;
    shutdown.cancel();
    runner.join_next().await.unwrap().unwrap();
}

#[tokio::test]
async fn an_empty_mart_is_filled_directly_and_resumed_as_it_was_begun() {
    let stage = Stage::with_films(30).await;
    let id = stage.full(10).await;
    pause_behind_the_first_batch(&stage, id).await;
    assert_eq!(stage.checkpoint().await["load"]["path"], "direct");
    assert_eq!(stage.count("analytics.film").await, 10, "readers see it grow");
    let resumed = stage.succeed(id).await;
    assert_eq!((resumed.rows_read, resumed.rows_written), (20, 20));
    assert_eq!(stage.differences().await, 0);
    assert_eq!(stage.count("vitrina.loads").await, 0);
    let touched: bool = stage.db.value("select bool_and(updated_at is not null) from analytics.film").await;
    assert!(touched, "new rows have the time of their writing");
}

#[tokio::test]
async fn a_first_load_that_is_staged_shows_nothing_until_it_is_whole() {
    let stage = Stage::with_films(30).await;
    let id = stage.pipeline(json!({"batch_size": 10, "first_load": "staged"})).await;
    pause_behind_the_first_batch(&stage, id).await;
    assert_eq!(stage.checkpoint().await["load"]["path"], "staged");
    assert_eq!(stage.count("analytics.film").await, 0);
    assert_eq!(stage.succeed(id).await.rows_written, 30);
    assert_eq!(stage.differences().await, 0);
}

#[tokio::test]
async fn a_staged_load_survives_a_pause_and_a_new_runner_and_appears_all_at_once() {
    let stage = Stage::with_films(100).await;
    let id = stage.full(10).await;
    stage.succeed(id).await;
    stage
        .db
        .execute("update content.film set title = 'New ' || id; delete from content.film where id = 50")
        .await;
    pause_behind_the_first_batch(&stage, id).await;
    let changed = "select count(*) from analytics.film where title like 'New %'";
    assert_eq!(stage.db.value::<i64>(changed).await, 0, "what is staged is not seen");
    assert_eq!(stage.db.value::<i64>("select rows from vitrina.loads").await, 10);
    let resumed = stage.succeed(id).await;
    assert_eq!((resumed.rows_read, resumed.rows_written, resumed.rows_deleted), (89, 99, 1));
    assert_eq!(stage.differences().await, 0);
    let left = "select count(*) from pg_class where relname like 'load\\_%'";
    assert_eq!(
        (stage.db.value::<i64>(left).await, stage.count("vitrina.loads").await),
        (0, 0),
        "nothing is left behind"
    );
}

#[tokio::test]
async fn readers_see_all_old_or_all_new_while_a_load_is_merged() {
    let stage = Stage::with_films(2000).await;
    let id = stage.full(100).await;
    stage.succeed(id).await;
    stage.db.execute("update content.film set title = 'New'").await;
    let (_runner, _shutdown) = stage.start_runner("merging");
    let run = stage.request(id).await;
    let mut seen = std::collections::BTreeSet::new();
    while stage.run_record(run).await.status != RunStatus::Success {
        let row = stage
            .db
            .texts("select count(*), count(*) filter (where title = 'New') from analytics.film")
            .await;
        seen.insert((row[0][0].clone().unwrap(), row[0][1].clone().unwrap()));
    }
    let allowed = [("2000".to_owned(), "0".to_owned()), ("2000".to_owned(), "2000".to_owned())];
    assert!(seen.iter().all(|seen| allowed.contains(seen)), "{seen:?}");
    assert_eq!(stage.differences().await, 0);
}

#[tokio::test]
async fn an_unchanged_reload_writes_nothing_and_locks_nothing() {
    let stage = Stage::with_films(100).await;
    let id = stage.full(30).await;
    stage.succeed(id).await;
    let image =
        "select md5(string_agg(row(ctid, xmin, xmax, f)::text, ';' order by id)) from analytics.film f";
    let before: String = stage.db.value(image).await;
    let again = stage.succeed(id).await;
    assert_eq!((again.rows_unchanged, again.rows_written, again.rows_deleted), (100, 0, 0));
    assert_eq!(stage.db.value::<String>(image).await, before);
}

#[tokio::test]
async fn views_grants_foreign_keys_and_triggers_of_the_mart_are_left_alone() {
    let stage = Stage::with_films(30).await;
    stage
        .db
        .execute(
            "create view analytics.titles as select title from analytics.film;
             create table analytics.pick (film int references analytics.film on delete cascade);
             create table analytics.seen (id int);
             create function analytics.note() returns trigger language plpgsql as $$ begin insert into analytics.seen values (new.id); return null; end $$;
             create trigger note after update on analytics.film for each row execute function analytics.note()",
        )
        .await;
    let id = stage.full(10).await;
    stage.succeed(id).await;
    stage
        .db
        .execute(
            "insert into analytics.pick values (7), (9); update content.film set title = 'New' where id = 9",
        )
        .await;
    let oid: String = stage.db.value("select 'analytics.film'::regclass::oid::text").await;
    stage.succeed(id).await;
    assert_eq!(stage.db.value::<String>("select 'analytics.film'::regclass::oid::text").await, oid);
    assert_eq!(stage.count("analytics.titles").await, 30);
    assert_eq!((stage.count("analytics.pick").await, stage.count("analytics.seen").await), (2, 1));
}

#[tokio::test]
async fn a_cancelled_load_leaves_no_staging_behind() {
    let stage = Stage::with_films(30).await;
    let id = stage.full(10).await;
    stage.succeed(id).await;
    let (_runner, _shutdown) = stage.start_runner("cancelling");
    let blocker = stage.block_mart().await;
    let run = stage.request(id).await;
    stage.someone_waits_for_the_mart().await;
    stage.change(id, Event::Cancel).await;
    blocker.batch_execute("commit").await.unwrap();
    stage.reaches(id, Status::Idle).await;
    assert_eq!(stage.run_record(run).await.status, RunStatus::Cancelled);
    let left = "select count(*) from pg_class where relname like 'load\\_%'";
    until(async || stage.db.value::<i64>(left).await == 0).await;
}

#[tokio::test]
async fn a_merge_refuses_staging_that_does_not_hold_what_was_recorded_and_the_next_run_starts_anew() {
    let stage = Stage::with_films(30).await;
    let id = stage.full(10).await;
    stage.succeed(id).await;
    pause_behind_the_first_batch(&stage, id).await;
    let table: String =
        stage.db.value("select relname::text from pg_class where relname like 'load\\_%'").await;
    stage.db.execute(&format!("delete from vitrina.{table} where id = 3")).await;
    assert_eq!(stage.fail(id).await.0, "sink.staging_lost");
    assert_eq!(stage.differences().await, 0, "nothing was merged");
    assert_eq!(stage.succeed(id).await.rows_read, 30);
}

#[rstest]
#[case::padded("char(3)", "'DE', 'A'")]
#[case::rounded("numeric(10,2)", "1.23, 0, 'NaN'")]
#[case::floating("real", "0.1, '-Infinity', 'NaN'")]
#[case::an_array("text[]", "'{b}', '{}', '{a,NULL}'")]
#[case::a_time("time", "'10:00', '24:00'")]
#[case::an_address("inet", "'10.0.0.1', '::1'")]
#[tokio::test]
async fn a_key_may_have_any_type_that_has_a_unique_index(#[case] kind: &str, #[case] values: &str) {
    let stage = Stage::empty().await;
    let rows = values.split(", ").map(|value| format!("({value})")).collect::<Vec<_>>().join(", ");
    stage
        .db
        .execute(&format!(
            "create schema content; create schema analytics;
             create table content.odd (k {kind} primary key); insert into content.odd values {rows};
             create table analytics.odd (k {kind} primary key)"
        ))
        .await;
    let id = stage
        .pipeline(
            json!({"source_query": null, "source_table": "content.odd", "target_table": "analytics.odd",
                         "batch_size": 1, "delete_limit": 1}),
        )
        .await;
    let count = stage.count("content.odd").await;
    assert_eq!(stage.succeed(id).await.rows_written, u64::try_from(count).unwrap());
    assert_eq!(stage.succeed(id).await.rows_written, 0);
    stage.db.execute("delete from content.odd where ctid = (select min(ctid) from content.odd)").await;
    stage.succeed(id).await;
    let same = "select array(select k::text from content.odd order by 1) = array(select k::text from analytics.odd order by 1)";
    assert!(stage.db.value::<bool>(same).await);
}

#[tokio::test]
async fn keys_of_another_type_are_cast_to_the_marts() {
    let stage = Stage::with_films(20).await;
    let id = stage
        .pipeline(json!({"source_query": "select id::numeric::int8 as id, title from content.film", "batch_size": 7}))
        .await;
    assert_eq!(stage.succeed(id).await.rows_written, 20);
    stage.db.execute("delete from content.film where id = 2").await;
    assert_eq!(stage.succeed(id).await.rows_deleted, 1);
}

#[rstest]
#[case::by_pages("keyset")]
#[case::in_a_stream("stream")]
#[case::by_estimate("auto")]
#[tokio::test]
async fn both_ways_of_reading_bring_every_row(#[case] read: &str) {
    let stage = Stage::with_films(105).await;
    stage.db.execute("analyze content.film").await;
    let id = stage.pipeline(json!({"read": read, "batch_size": 10})).await;
    let run = stage.succeed(id).await;
    assert_eq!((run.rows_read, run.batches), (105, 11));
    assert_eq!(stage.differences().await, 0);
    stage.db.execute("delete from content.film where id > 100").await;
    assert_eq!(
        stage.succeed(id).await.rows_read,
        100,
        "a page that is full to the last row is not the last one"
    );
    assert_eq!(stage.differences().await, 0);
}

#[tokio::test]
async fn rows_of_a_megabyte_and_of_a_few_bytes_travel_in_one_table() {
    let stage = Stage::with_films(200).await;
    stage.db.execute("update content.film set title = repeat('x', 1000000) where id % 50 = 0").await;
    for read in ["keyset", "stream"] {
        let id = stage.pipeline(json!({"name": read, "read": read, "batch_size": 100_000})).await;
        let mut settings = stage.settings("small");
        settings.max_batch_bytes = 1_500_000;
        let run = stage.request(id).await;
        stage.work_off(settings).await;
        let run = stage.run_record(run).await;
        assert_eq!((run.status, run.rows_read), (RunStatus::Success, 200), "{:?}", run.error);
        assert!((3..=5).contains(&run.batches), "{} batches", run.batches);
        assert_eq!(stage.differences().await, 0);
        stage.delete(id).await;
    }
}

#[tokio::test]
async fn a_batch_may_hold_one_row() {
    let stage = Stage::with_films(7).await;
    let id = stage.full(1).await;
    stage.succeed(id).await;
    stage.db.execute("update content.film set title = 'New'").await;
    let run = stage.succeed(id).await;
    assert_eq!(run.rows_written, 7);
    assert_eq!(stage.differences().await, 0);
}

#[tokio::test]
async fn a_slow_sink_keeps_no_transaction_open_at_the_source() {
    let stage = Stage::with_films(50).await;
    let id = stage.pipeline(json!({"read": "stream", "batch_size": 10})).await;
    let mut settings = stage.settings("patient");
    settings.source_patience = std::time::Duration::from_millis(1);
    let run = stage.request(id).await;
    let blocker = stage.block_film(5).await;
    let mut tasks = tokio::task::JoinSet::new();
    let runner = vitrina_runner::Runner::new(settings, stage.store.clone());
    tasks.spawn(async move { runner.work_off().await.unwrap() });
    stage.someone_waits_for_a_row().await;
    let open = "select count(*) from pg_stat_activity where datname = current_database() and application_name like 'vitrina/%'
                 and xact_start is not null and query like 'copy (select%'";
    until(async || stage.db.value::<i64>(open).await == 0).await;
    blocker.batch_execute("rollback").await.unwrap();
    tasks.join_next().await.unwrap().unwrap();
    assert_eq!(stage.run_record(run).await.rows_read, 50);
    assert_eq!(stage.differences().await, 0);
}

#[tokio::test]
async fn a_crash_of_the_server_that_empties_the_staging_starts_the_load_from_zero() {
    let stage = Stage::on_a_server_of_its_own(100).await;
    let id = stage.full(10).await;
    stage.succeed(id).await;
    stage.db.execute("update content.film set title = 'New ' || id").await;
    pause_behind_the_first_batch(&stage, id).await;
    let stage = stage.crash().await;
    assert_eq!(stage.count("vitrina.loads").await, 0, "the crash took what was staged");
    let run = stage.succeed(id).await;
    assert_eq!((run.rows_read, run.rows_written, run.rows_deleted), (100, 100, 0));
    let same = format!(
        "select count(*) from (({QUERY}) except select id, title, rating, modified from analytics.film) d"
    );
    assert_eq!(stage.db.value::<i64>(&same).await, 0);
}

#[tokio::test]
async fn a_key_that_ignores_case_is_compared_as_the_mart_compares_it() {
    let stage = Stage::empty().await;
    stage
        .db
        .execute(
            "create extension citext; create schema content; create schema analytics;
             create table content.person (name public.citext primary key); insert into content.person values ('ann'), ('Bob');
             create table analytics.person (name public.citext primary key, seen int default 1)",
        )
        .await;
    let id = stage
        .pipeline(json!({"source_query": "select name from content.person", "target_table": "analytics.person", "delete_limit": 1}))
        .await;
    stage.succeed(id).await;
    stage.db.execute("update content.person set name = 'Ann' where name = 'ann'").await;
    let run = stage.succeed(id).await;
    assert_eq!((run.rows_deleted, run.rows_rejected), (0, 0));
    assert_eq!(stage.count("analytics.person").await, 2);
}

#[tokio::test]
async fn a_direct_load_of_a_partitioned_mart_notices_a_key_that_comes_again() {
    let stage = Stage::with_films(10).await;
    stage
        .db
        .execute(
            "drop table analytics.film; create table analytics.film (id int primary key, title text) partition by range (id);
             create table analytics.film_all partition of analytics.film default; update etl.etl_targets set touch_column = null",
        )
        .await;
    let query = "select id, title from content.film union all select 4, 'again'";
    let id = stage.pipeline(json!({"source_query": query, "reject_limit": 1, "batch_size": 3})).await;
    stage.succeed(id).await;
    assert_eq!(stage.rejects().await, [("row.duplicate_key".to_owned(), "[\"4\"]".to_owned())]);
}

#[tokio::test]
async fn a_load_that_was_begun_without_staging_starts_anew_instead_of_deleting_what_it_wrote() {
    let stage = Stage::with_films(30).await;
    let id = stage.full(10).await;
    stage.succeed(id).await;
    pause_behind_the_first_batch(&stage, id).await;
    stage.db.execute("update etl.etl_state set checkpoint = checkpoint - 'load'").await;
    assert_eq!(stage.fail(id).await.0, "sink.staging_lost");
    assert_eq!(stage.succeed(id).await.rows_read, 30);
    assert_eq!(stage.differences().await, 0);
}
