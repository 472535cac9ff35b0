//! Nothing empties a mart in steps: neither attempts that fail one after the other, nor passes that complete.

use serde_json::json;
use vitrina_core::{Decision, Event, OnActive, PipelineId, RunStatus};
use vitrina_store::RunRequest;

use crate::stage::Stage;

/// A hundred films in the mart, of which a pass deletes those that are hidden by then, ten keys a batch.
async fn a_hundred() -> (Stage, PipelineId) {
    let stage = Stage::with_films(100).await;
    let id = stage
        .pipeline(json!({
            "mode": "incremental", "batch_size": 10, "incremental_key": "modified", "incremental_id_key": "id",
            "source_query": "select id, title, rating, modified from content.film where title <> 'Hidden'",
        }))
        .await;
    stage.succeed(id).await;
    assert_eq!(stage.count("analytics.film").await, 100);
    (stage, id)
}

async fn hide(stage: &Stage, from: i32, to: i32) {
    let hide = "update content.film set title = 'Hidden', modified = now()";
    stage.db.execute(&format!("{hide} where id between {from} and {to}")).await;
}

#[tokio::test]
async fn ten_attempts_delete_no_more_than_the_one_limit() {
    let (stage, id) = a_hundred().await;
    hide(&stage, 1, 90).await;
    for attempt in 0..10 {
        let (code, message) = stage.fail(id).await;
        assert_eq!(code, "sink.delete_limit", "{attempt}: {message}");
        assert_eq!(stage.count("analytics.film").await, 80, "{attempt}");
    }
    stage.db.execute("update etl.etl_pipelines set delete_limit = 1").await;
    stage.succeed(id).await;
    assert_eq!(stage.count("analytics.film").await, 10);
}

#[tokio::test]
async fn what_a_run_deleted_before_it_failed_for_another_reason_counts_for_the_next() {
    let (stage, id) = a_hundred().await;
    stage.db.execute("alter table analytics.film add check (title <> 'refused')").await;
    hide(&stage, 1, 15).await;
    stage
        .db
        .execute("update content.film set title = 'refused', modified = now() + interval '1 s' where id = 99")
        .await;
    stage.db.execute("update etl.etl_pipelines set reject_limit = 0").await;
    assert_eq!(stage.fail(id).await.0, "rejects.limit");
    let deleted = 100 - stage.count("analytics.film").await;
    assert!((10..=15).contains(&deleted), "{deleted} by batches before");
    stage.db.execute("update content.film set title = 'fine' where id = 99").await;
    // What was read is dropped, what was deleted is not forgotten.
    stage.change(id, Event::Cancel).await;
    hide(&stage, 30, 44).await;
    let (code, message) = stage.fail(id).await;
    assert!(code == "sink.delete_limit" && message.contains("attempts since the last success"), "{message}");
    assert!(stage.count("analytics.film").await >= 80);
}

#[tokio::test]
async fn a_run_that_is_told_to_reset_the_checkpoint_may_delete_again_and_one_that_keeps_it_may_not() {
    let (stage, id) = a_hundred().await;
    hide(&stage, 1, 35).await;
    assert_eq!(stage.fail(id).await.0, "sink.delete_limit");
    assert_eq!(stage.count("analytics.film").await, 80);
    let run = async |checkpoint| {
        let request = RunRequest { checkpoint: Some(checkpoint), ..RunRequest::default() };
        let run = stage.store.request_run(id, OnActive::Reject, &request).await.unwrap().run.unwrap();
        stage.runner().work_off().await.unwrap();
        stage.run_record(run).await
    };
    assert_eq!(run(Decision::Keep).await.error_code.as_deref(), Some("sink.delete_limit"));
    assert_eq!(stage.count("analytics.film").await, 80);
    let reset = run(Decision::Reset).await;
    assert_eq!(reset.status, RunStatus::Success, "{:?}", reset.error);
    assert_eq!(stage.count("analytics.film").await, 65, "15 of 80 rows");
}

#[tokio::test]
async fn small_passes_that_all_complete_do_not_empty_a_mart_within_an_hour() {
    let (stage, id) = a_hundred().await;
    for pass in 0..4 {
        hide(&stage, pass * 5 + 1, pass * 5 + 5).await;
        assert_eq!(stage.succeed(id).await.rows_deleted, 5);
    }
    hide(&stage, 21, 21).await;
    let (code, message) = stage.fail(id).await;
    assert!(code == "sink.delete_limit" && message.contains("21 of 100 rows"), "{message}");
    assert_eq!(stage.count("analytics.film").await, 80);
    // An hour later.
    stage
        .db
        .execute(
            "update etl.etl_state set checkpoint = jsonb_set(checkpoint, '{recent_deletes}', (
                select jsonb_agg(jsonb_set(slot, '{0}', to_jsonb((slot ->> 0)::bigint - 13)))
                  from jsonb_array_elements(checkpoint -> 'recent_deletes') slot))",
        )
        .await;
    assert_eq!(stage.succeed(id).await.rows_deleted, 1);
}

#[tokio::test]
async fn rows_that_come_and_go_may_do_so_at_any_rate() {
    let (stage, id) = a_hundred().await;
    for pass in 0..8 {
        hide(&stage, pass * 15 + 1, pass * 15 + 15).await;
        stage.add_films(101 + pass * 15, 115 + pass * 15).await;
        stage.db.execute("update content.film set modified = now() where id > 100 and modified < '2025-01-01' and title <> 'Hidden'").await;
        assert_eq!(stage.succeed(id).await.rows_deleted, 15, "{pass}");
        assert_eq!(stage.count("analytics.film").await, 100);
    }
}

#[tokio::test]
async fn full_loads_count_by_the_hour_as_passes_do() {
    let stage = Stage::with_films(100).await;
    let id = stage.full(1000).await;
    stage.succeed(id).await;
    for load in [1, 2] {
        stage.db.execute(&format!("delete from content.film where id <= {}", load * 10)).await;
        assert_eq!(stage.succeed(id).await.rows_deleted, 10);
    }
    stage.db.execute("delete from content.film where id <= 30").await;
    assert_eq!(stage.fail(id).await.0, "sink.delete_limit");
    assert_eq!(stage.count("analytics.film").await, 80);
}

#[tokio::test]
async fn attempts_of_one_backfill_share_its_limit() {
    let (stage, id) = a_hundred().await;
    stage.db.execute("delete from content.film where id <= 40").await;
    let keys: Vec<_> = (1..=40).map(|id| json!([id])).collect();
    let run = stage.request_keys(id, json!(keys)).await;
    // As if attempts before had deleted as much as they may.
    stage.db.execute("update etl.etl_runs set rows_deleted = 20 where status = 'REQUESTED'").await;
    stage.runner().work_off().await.unwrap();
    assert_eq!(stage.run_record(run).await.error_code.as_deref(), Some("sink.delete_limit"));
    assert_eq!(stage.count("analytics.film").await, 100);
}
