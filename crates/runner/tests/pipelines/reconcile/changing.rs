//! Sides that change while they are compared: what is on its way is no difference.

use rstest::rstest;
use std::time::Duration;

use serde_json::json;
use tokio::task::JoinSet;
use vitrina_connectors::sources::changelog::Desk;
use vitrina_core::{Level, ReconcileStatus, Verdict};

use crate::stage::{FILTERED, QUERY, Stage, until};

#[rstest]
#[tokio::test]
async fn what_the_next_run_will_write_is_in_flight_and_nothing_else_is(
    #[values(QUERY, FILTERED)] query: &str,
) {
    let stage = Stage::with_films(100).await;
    let id = stage.incremental_of(query, 10).await;
    stage.succeed(id).await;
    stage.add_films(101, 103).await;
    stage
        .db
        .execute(
            "update content.film set title = 'New', modified = now() where id = 5;
             update content.film set title = 'Unstamped' where id = 6;
             update analytics.film set title = 'Damaged' where id = 7",
        )
        .await;
    let compared = stage.reconcile(id, Level::Rows).await;
    assert_eq!((compared.verdict(), compared.counts()), (Verdict::Differs, (0, 0, 2)));
    assert_eq!(compared.figures().in_flight, 4);
    stage.db.execute("update content.film set title = 'Film 6' where id = 6; update analytics.film set title = 'Film 7' where id = 7").await;
    let compared = stage.reconcile(id, Level::Rows).await;
    assert_eq!((compared.verdict(), compared.figures().in_flight), (Verdict::Stale, 4));
    assert_eq!(stage.reconcile(id, Level::Count).await.verdict(), Verdict::Stale);
    stage.succeed(id).await;
    assert_eq!(stage.reconcile(id, Level::Rows).await.verdict(), Verdict::Equal);
}

#[tokio::test]
async fn rows_on_their_way_are_known_by_change_keys_that_the_mart_writes_otherwise() {
    let stage = Stage::with_films(100).await;
    let mart = "create table analytics.titles (title text primary key, film_id numeric(12, 2), rating numeric(3, 1))";
    stage.db.execute(mart).await;
    let id = stage
        .pipeline(json!({
            "mode": "incremental", "incremental_key": "modified", "incremental_id_key": "film_id", "change_key": ["film_id"],
            "target_table": "analytics.titles", "source_table": "content.film",
            "source_query": "select id as film_id, title, rating from content.film",
        }))
        .await;
    stage.succeed(id).await;
    let change = "update content.film set rating = 9, modified = now() where id in (5, 10, 100);
                  update analytics.titles set rating = 8 where film_id = 7";
    stage.db.execute(change).await;
    let compared = stage.reconcile(id, Level::Rows).await;
    assert_eq!((compared.counts(), compared.figures().in_flight), ((0, 0, 1), 3));
}

#[rstest]
#[tokio::test]
async fn before_its_first_run_all_of_a_target_is_in_flight(#[values(QUERY, FILTERED)] query: &str) {
    let stage = Stage::with_films(10).await;
    let id = stage.incremental_of(query, 10).await;
    let compared = stage.reconcile(id, Level::Rows).await;
    assert_eq!((compared.verdict(), compared.figures().in_flight), (Verdict::Stale, 10));
}

#[tokio::test]
async fn a_change_log_is_looked_at_and_not_consumed() {
    let stage = Stage::with_films(50).await;
    let desk = Desk::open(stage.settings("desk").connections.get("content").unwrap()).await.unwrap();
    let logged = desk.logged("content.film", &["id".to_owned()]).await.unwrap();
    desk.apply(&desk.install(&logged, "postgres").await.unwrap()).await.unwrap();
    let id = stage.pipeline(json!({"mode": "incremental", "capture": "changelog", "batch_size": 10})).await;
    stage.succeed(id).await;
    stage
        .db
        .execute("delete from content.film where id = 3; update content.film set title = 'x' where id = 4")
        .await;
    let consumers = "select string_agg(c::text, ' ') from vitrina_log.change_consumers c";
    let before: String = stage.db.value(consumers).await;
    let compared = stage.reconcile(id, Level::Rows).await;
    assert_eq!((compared.verdict(), compared.figures().in_flight), (Verdict::Stale, 2));
    assert_eq!(stage.db.value::<String>(consumers).await, before);
    stage.succeed(id).await;
    assert_eq!(
        (stage.reconcile(id, Level::Rows).await.verdict(), stage.differences().await),
        (Verdict::Equal, 0)
    );
}

#[tokio::test]
async fn under_writers_and_runs_exactly_that_differs_which_no_run_would_write() {
    let stage = Stage::with_films(20_000).await;
    let id = stage
        .pipeline(json!({"mode": "incremental", "incremental_key": "modified", "incremental_id_key": "id",
        "batch_size": 500, "schedule_interval": "1s"}))
        .await;
    stage.succeed(id).await;
    stage
        .db
        .execute(
            "update analytics.film set title = 'Damaged' where id = 19900; delete from analytics.film where id = 19901;
             insert into analytics.film (id) values (19901000)",
        )
        .await;
    let (_running, shutdown) = stage.start_runner("runner");
    let writer = stage.db.client().await;
    let mut writing = JoinSet::new();
    writing.spawn(async move {
        for n in 0.. {
            let sql = format!(
                "update content.film set title = 'Title {n}', modified = clock_timestamp() where id between {0} and {0} + 400;
                 insert into content.film (id, title, modified) values (1000000 + {n}, 'New', clock_timestamp())",
                (n * 311) % 19_000
            );
            if writer.batch_execute(&sql).await.is_err() {
                break;
            }
        }
    });
    for _ in 0..8 {
        let reconcile = stage.request_reconcile(id, Level::Rows).await;
        until(async || !stage.store.reconcile(reconcile).await.unwrap().unwrap().is_open()).await;
        let compared = stage.compared(reconcile).await;
        let keys: Vec<String> =
            compared.differences.iter().map(|difference| difference.key.to_string()).collect();
        assert_eq!(keys, [r#"["19900"]"#, r#"["19901"]"#, r#"["19901000"]"#]);
    }
    shutdown.cancel();
}

#[tokio::test]
async fn a_comparison_can_be_cancelled_and_outlives_its_runner() {
    let stage = Stage::with_films(100).await;
    let id = stage.full(10).await;
    let blocker = stage.db.client().await;
    blocker.batch_execute("begin; lock table analytics.film in access exclusive mode").await.unwrap();
    let (mut running, shutdown) = stage.start_runner("first");
    let reconcile = stage.request_reconcile(id, Level::Hash).await;
    let status = async || stage.store.reconcile(reconcile).await.unwrap().unwrap().status;
    until(async || status().await == ReconcileStatus::Running).await;
    shutdown.cancel();
    while running.join_next().await.is_some() {}
    assert_eq!(status().await, ReconcileStatus::Requested);
    let (_running, shutdown) = stage.start_runner("second");
    until(async || status().await == ReconcileStatus::Running).await;
    stage.store.cancel_reconcile(reconcile).await.unwrap();
    tokio::time::timeout(
        Duration::from_secs(30),
        until(async || status().await == ReconcileStatus::Cancelled),
    )
    .await
    .unwrap();
    shutdown.cancel();
}
