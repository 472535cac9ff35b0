//! A mart has one writer: a full load of a second pipeline would delete and revert what the first has written.

use serde_json::json;
use vitrina_core::{Pipeline, PipelineId, RunStatus};
use vitrina_store::{Actor, Change, PipelineRef};
use vitrina_testbed::Database;

use crate::stage::{Stage, until};

const OTHER_INSTALLATION: &str = "11111111-1111-4111-8111-111111111111";

/// A second pipeline on `analytics.film`, as somebody writes it past the API or an older release let it be. It reads the
/// films up to 10 alone.
pub(super) async fn second_pipeline(stage: &Stage) -> PipelineId {
    let query = "select id, title, rating, modified from content.film where id <= 10";
    let id = stage
        .pipeline(json!({"name": "nightly", "source_query": query, "target_table": "analytics.nightly", "delete_limit": 1}))
        .await;
    stage
        .db
        .execute("update etl.etl_pipelines set target_table = 'analytics.film' where name = 'nightly'")
        .await;
    id
}

/// The names of the pipelines that have acquired a mart.
async fn owners(db: &Database) -> Option<String> {
    db.value("select string_agg(mart || ' ' || pipeline_name, ', ' order by mart, pipeline_name) from vitrina.marts")
        .await
}

/// And not by the next writer alone, which may be another installation's.
async fn is_released_by_a_runner(stage: &Stage) {
    let (runner, stop) = stage.start_runner("tester");
    until(async || owners(&stage.db).await.is_none()).await;
    stop.cancel();
    runner.join_all().await;
}

async fn send_elsewhere(stage: &Stage, id: PipelineId, target: &str) {
    let record = stage.store.pipeline(&PipelineRef::Id(id)).await.unwrap();
    let after = Pipeline { target_table: target.to_owned(), ..record.config };
    let actor = Actor { name: "tester".to_owned(), request_id: "1".to_owned() };
    let change = Change::EditPipeline { after, version: record.version };
    stage.store.configure(&[change], &actor).await.unwrap();
}

#[tokio::test]
async fn a_full_load_of_a_second_pipeline_is_refused_and_deletes_nothing() {
    let stage = Stage::with_films(30).await;
    let first = stage.incremental(10).await;
    stage.succeed(first).await;
    let second = second_pipeline(&stage).await;
    let (code, message) = stage.fail(second).await;
    assert_eq!(code, "sink.owned");
    assert!(message.contains("pipeline \u{fdd2}film\u{fdd3}"), "named for who sees all pipelines: {message}");
    let message = vitrina_core::values::shown(&message);
    assert!(message.contains("mart analytics.film is written by pipeline film"), "{message}");
    assert!(message.contains("full_schedule"), "{message}");
    assert_eq!(stage.count("analytics.film").await, 30);
    stage.add_films(31, 35).await;
    stage.succeed(first).await;
    assert_eq!(stage.differences().await, 0);
}

#[tokio::test]
async fn a_backfill_of_a_second_pipeline_is_refused_too() {
    let stage = Stage::with_films(30).await;
    let first = stage.full(10).await;
    stage.succeed(first).await;
    let second = second_pipeline(&stage).await;
    let run = stage.request_keys(second, json!([["20"]])).await;
    stage.runner().work_off().await.unwrap();
    assert_eq!(stage.run_record(run).await.error_code.as_deref(), Some("sink.owned"));
    assert_eq!(stage.count("analytics.film").await, 30);
}

#[tokio::test]
async fn of_two_pipelines_that_come_for_a_mart_at_once_one_gets_it() {
    let stage = Stage::with_films(30).await;
    let (first, second) = (stage.full(10).await, second_pipeline(&stage).await);
    let runs = [stage.request(first).await, stage.request(second).await];
    stage.runner().work_off().await.unwrap();
    let mut ended = Vec::new();
    for run in runs {
        let run = stage.run_record(run).await;
        ended.push((run.status == RunStatus::Success, run.error_code));
    }
    ended.sort();
    assert_eq!(ended, [(false, Some("sink.owned".to_owned())), (true, None)]);
}

#[tokio::test]
async fn a_mart_is_free_when_its_pipeline_is_deleted_or_writes_elsewhere() {
    let stage = Stage::with_films(30).await;
    let first = stage.full(10).await;
    stage.succeed(first).await;
    let second = second_pipeline(&stage).await;
    stage.fail(second).await;
    // Past the API: nobody has asked a runner to release it.
    stage
        .db
        .execute("update etl.etl_pipelines set target_table = 'analytics.elsewhere' where name = 'film'")
        .await;
    stage.succeed(second).await;
    assert_eq!(owners(&stage.db).await.as_deref(), Some("analytics.film nightly"));
    stage.delete(second).await;
    stage
        .db
        .execute("update etl.etl_pipelines set target_table = 'analytics.film', delete_limit = 1 where name = 'film'")
        .await;
    stage.succeed(first).await;
    assert_eq!(stage.differences().await, 0);
}

#[tokio::test]
async fn a_pipeline_that_is_sent_elsewhere_or_deleted_releases_its_mart() {
    let stage = Stage::with_films(30).await;
    stage.db.execute("create table analytics.other (like analytics.film including all)").await;
    let id = stage.full(10).await;
    stage.succeed(id).await;
    stage.db.execute("update etl.etl_pipelines set name = 'renamed'").await;
    stage.succeed(id).await;
    assert_eq!(owners(&stage.db).await.as_deref(), Some("analytics.film renamed"));
    send_elsewhere(&stage, id, "analytics.other").await;
    is_released_by_a_runner(&stage).await;
    stage.succeed(id).await;
    assert_eq!(owners(&stage.db).await.as_deref(), Some("analytics.other renamed"));
    stage.delete(id).await;
    is_released_by_a_runner(&stage).await;
}

#[tokio::test]
async fn a_mart_of_another_installation_is_refused_until_it_is_released() {
    let stage = Stage::with_films(30).await;
    let id = stage.full(10).await;
    stage.succeed(id).await;
    let theirs = format!(
        "update vitrina.marts set installation = '{OTHER_INSTALLATION}', pipeline = gen_random_uuid(), pipeline_name = 'theirs'"
    );
    stage.db.execute(&theirs).await;
    let (code, message) = stage.fail(id).await;
    assert_eq!(code, "sink.owned");
    let message = vitrina_core::values::shown(&message);
    assert!(message.contains(&format!("pipeline theirs of installation {OTHER_INSTALLATION}")), "{message}");
    let release = message.rsplit_once(": delete").expect("a statement").1;
    stage.db.execute(&format!("delete{release}")).await;
    stage.succeed(id).await;
    assert_eq!(owners(&stage.db).await.as_deref(), Some("analytics.film film"));
}
