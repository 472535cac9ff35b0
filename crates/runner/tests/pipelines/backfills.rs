//! Backfills over a range of the cursor. Those by keys are beside the rejects, which they heal.

use rstest::rstest;
use serde_json::json;
use vitrina_core::{Event, PipelineId, RunStatus, Status};
use vitrina_store::RunRecord;

use crate::stage::{FILTERED, QUERY, Stage};

/// Films 1 to `films`, stamped one minute after the other, in a mart that has them all.
async fn in_minutes(films: i32, changes: serde_json::Value) -> (Stage, PipelineId) {
    let stage = Stage::with_films(films).await;
    stage
        .db
        .execute(
            "update content.film set modified = '2026-01-01 00:00Z'::timestamptz + id * interval '1 minute'",
        )
        .await;
    let mut pipeline = json!({
        "mode": "incremental", "incremental_key": "modified", "incremental_id_key": "id", "batch_size": 10, "source_query": QUERY,
    });
    pipeline.as_object_mut().unwrap().extend(changes.as_object().unwrap().clone());
    let id = stage.pipeline(pipeline).await;
    stage.succeed(id).await;
    (stage, id)
}

async fn backfill(stage: &Stage, id: PipelineId, from: Option<&str>, to: Option<&str>) -> RunRecord {
    let run = stage.request_range(id, from, to).await;
    stage.runner().work_off().await.unwrap();
    stage.run_record(run).await
}

/// Which films the mart has anew, as numbers.
async fn renewed(stage: &Stage) -> String {
    stage.db.value("select coalesce(string_agg(id::text, ' ' order by id), '') from analytics.film where title = 'New'").await
}

#[tokio::test]
async fn a_backfill_over_a_range_reads_from_its_beginning_up_to_before_its_end() {
    let (stage, id) = in_minutes(50, json!({})).await;
    let checkpoint = stage.checkpoint().await;
    stage.db.execute("update content.film set title = 'New'; delete from content.film where id = 13").await;
    let run = backfill(&stage, id, Some("2026-01-01 00:12Z"), Some("2026-01-01 00:15Z")).await;
    assert_eq!((run.status, run.rows_read, run.rows_deleted), (RunStatus::Success, 2, 0), "{:?}", run.error);
    assert_eq!(renewed(&stage).await, "12 14");
    assert_eq!(stage.checkpoint().await, checkpoint);
    backfill(&stage, id, None, Some("2026-01-01 00:03Z")).await;
    backfill(&stage, id, Some("2026-01-01 00:49Z"), None).await;
    assert_eq!(renewed(&stage).await, "1 2 12 14 49 50");
    assert_eq!(stage.checkpoint().await, checkpoint);
}

#[tokio::test]
async fn rows_that_left_the_query_are_deleted_by_a_backfill_over_their_range() {
    let (stage, id) =
        in_minutes(50, json!({"source_query": format!("{QUERY} where title <> 'Hidden'")})).await;
    stage.db.execute("update content.film set title = 'Hidden' where id in (7, 8, 30)").await;
    let run = backfill(&stage, id, None, Some("2026-01-01 00:20Z")).await;
    assert_eq!((run.rows_read, run.rows_deleted), (17, 2));
}

#[tokio::test]
async fn a_backfill_over_a_range_works_where_the_rows_stand_for_no_single_table() {
    let query = "select id, title, rating, modified + interval '0' as modified from content.film";
    let (stage, id) = in_minutes(50, json!({"source_query": query})).await;
    stage.db.execute("update content.film set title = 'New'").await;
    let run = backfill(&stage, id, Some("2026-01-01 00:20Z"), Some("2026-01-01 00:32Z")).await;
    assert_eq!((run.status, run.rows_read, run.batches), (RunStatus::Success, 12, 2), "{:?}", run.error);
    assert_eq!(renewed(&stage).await, "20 21 22 23 24 25 26 27 28 29 30 31");
}

#[rstest]
#[tokio::test]
async fn a_paused_backfill_over_a_range_goes_on_where_it_was(#[values(QUERY, FILTERED)] query: &str) {
    let (stage, id) = in_minutes(100, json!({"source_query": query})).await;
    stage.db.execute("update content.film set title = 'New'").await;
    let blocked = stage.db.client().await;
    blocked.batch_execute("begin; select from analytics.film where id = 45 for update").await.unwrap();
    let first = stage.request_range(id, None, None).await;
    let (_runner, stop) = stage.start_runner("r1");
    stage.someone_waits_for_a_row().await;
    stage.change(id, Event::Pause).await;
    drop(blocked);
    stage.reaches(id, Status::Paused).await;
    let paused = stage.run_record(first).await;
    assert_eq!((paused.status, paused.rows_read), (RunStatus::Paused, 50));
    assert_eq!(paused.backfill_range.unwrap().at.unwrap()[1], "50");
    let second = stage.request(id).await;
    stage.reaches(id, Status::Idle).await;
    stop.cancel();
    assert_eq!(stage.run_record(second).await.rows_read, 50, "what was written is not read again");
    assert_eq!(stage.count("analytics.film where title = 'New'").await, 100);
}

#[tokio::test]
async fn a_range_that_holds_no_rows_is_done_at_once() {
    let (stage, id) = in_minutes(5, json!({})).await;
    let run = backfill(&stage, id, Some("2030-01-01"), None).await;
    assert_eq!((run.status, run.rows_read, run.batches), (RunStatus::Success, 0, 0));
    let run = backfill(&stage, id, Some("2026-01-01 00:04Z"), Some("2026-01-01 00:02Z")).await;
    assert_eq!((run.status, run.rows_read), (RunStatus::Success, 0));
}

#[tokio::test]
async fn an_end_that_is_no_value_of_the_cursor_is_told() {
    let (stage, id) = in_minutes(5, json!({})).await;
    for (from, to) in [(Some("next week"), None), (None, Some("7"))] {
        let run = backfill(&stage, id, from, to).await;
        assert_eq!((run.status, run.error_code.as_deref()), (RunStatus::Failed, Some("backfill.range")));
        let error = run.error.unwrap();
        assert!(error.contains("timestamp with time zone") && error.contains("hint: "), "{error}");
    }
    assert_eq!(stage.succeed(id).await.rows_read, 0, "and the pipeline goes on");
}

#[rstest]
#[case::numbers("int", json!([["1"], ["2"], ["01"], [" 2"], ["6"], [2]]))]
#[case::exact_numbers("numeric", json!([["1"], ["2"], ["1.0"], ["2.00"], ["6"], ["2"]]))]
#[tokio::test]
async fn a_key_that_is_named_twice_is_read_once_and_not_deleted(
    #[case] key_type: &str,
    #[case] keys: serde_json::Value,
) {
    let stage = Stage::with_films(6).await;
    stage
        .db
        .execute(&format!(
            "alter table content.film alter id type {key_type}; alter table analytics.film alter id type {key_type}"
        ))
        .await;
    let id = stage.pipeline(json!({"batch_size": 2, "delete_limit": 1.0})).await;
    stage.succeed(id).await;
    stage.db.execute("update content.film set title = 'New'; delete from content.film where id = 6").await;
    let run = stage.request_keys(id, keys).await;
    stage.runner().work_off().await.unwrap();
    let run = stage.run_record(run).await;
    assert_eq!((run.status, run.rows_deleted), (RunStatus::Success, 1), "{:?}", run.error);
    assert_eq!(stage.count("analytics.film where title = 'New'").await, 2);
    assert_eq!(stage.count("analytics.film").await, 5);
}

#[tokio::test]
async fn a_backfill_is_refused_where_the_key_of_the_mart_has_changed() {
    let (stage, id) = in_minutes(5, json!({})).await;
    stage
        .db
        .execute(
            "alter table analytics.film drop constraint film_pkey, add primary key (id, title);
             update etl.etl_targets set key = '{id,title}'",
        )
        .await;
    let run = backfill(&stage, id, None, Some("2026-01-01 00:03Z")).await;
    assert_eq!(run.error_code.as_deref(), Some("checkpoint.key_changed"), "{:?}", run.error);
    assert_eq!(run.rows_written, 0);
}
