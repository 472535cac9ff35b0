//! A target that lacks rows of its source is not equal, whoever refused them and whoever has discarded the reject.

use rstest::rstest;
use serde_json::json;
use vitrina_core::{Level, PipelineId, Verdict};
use vitrina_store::RejectChoice;

use crate::stage::Stage;

const LEVELS: [Level; 3] = [Level::Count, Level::Hash, Level::Rows];

async fn things(stage: &Stage, key_type: &str, rows: &str) -> PipelineId {
    stage
        .db
        .execute(&format!(
            "create schema content; create schema analytics;
             create table content.thing (key {key_type} primary key, value int); insert into content.thing values {rows};
             create table analytics.thing (key {key_type} primary key, value int not null)"
        ))
        .await;
    stage
        .pipeline(json!({"source_query": "select key, value from content.thing", "target_table": "analytics.thing", "reject_limit": 10}))
        .await
}

async fn require_differs(stage: &Stage, id: PipelineId, rejected: u64) {
    for level in LEVELS {
        let compared = stage.reconcile(id, level).await;
        assert_eq!(
            (compared.verdict(), compared.figures().rejected),
            (Verdict::Differs, rejected),
            "{level}"
        );
    }
}

#[rstest]
#[case::exact("numeric(10,2)", "(1.50, null), (2, 2)")]
#[case::any_number("numeric", "(1.50, null), (2, 2)")]
#[case::zero("float8", "('-0', null), (2, 2)")]
#[case::a_document("jsonb", r#"('{"a": 1.0}', null), ('2', 2)"#)]
#[case::an_array("numeric[]", "('{1.0}', null), ('{2}', 2)")]
#[case::a_duration("interval", "('24:00:00', null), ('2 s', 2)")]
#[tokio::test]
async fn a_row_that_was_refused_is_lacking_however_its_key_is_written(
    #[case] key_type: &str,
    #[case] rows: &str,
) {
    let stage = Stage::empty().await;
    let id = things(&stage, key_type, rows).await;
    assert_eq!(stage.succeed(id).await.rows_rejected, 1);
    require_differs(&stage, id, 1).await;
}

#[tokio::test]
async fn rows_without_a_key_are_lacking_also_when_their_rejects_are_discarded() {
    let stage = Stage::empty().await;
    let id = things(&stage, "int", "(1, 1), (2, 2), (3, 3)").await;
    stage.delete(id).await;
    let query = "select nullif(key, 2) as key, value from content.thing";
    let id = stage
        .pipeline(json!({"name": "keyless", "source_query": query, "target_table": "analytics.thing", "reject_limit": 10}))
        .await;
    stage.succeed(id).await;
    require_differs(&stage, id, 1).await;
    assert_eq!(stage.store.discard_rejects(id, &RejectChoice::default()).await.unwrap(), 1);
    require_differs(&stage, id, 1).await;
}

#[tokio::test]
async fn a_repair_of_other_rows_does_not_make_a_target_equal_that_lacks_refused_ones() {
    let stage = Stage::empty().await;
    let id = things(&stage, "int", "(1, null), (2, 2), (3, 3)").await;
    stage.succeed(id).await;
    stage.db.execute("insert into analytics.thing values (99, 99)").await;
    let found = stage.reconcile(id, Level::Rows).await;
    assert_eq!(found.counts(), (0, 1, 0));
    let run = stage.request_keys(id, json!([["99"]])).await;
    let proof = stage.store.request_proof(&found.record, run, None).await.unwrap();
    stage.work_off(stage.settings("tester")).await;
    assert_eq!(stage.compared(proof).await.verdict(), Verdict::Differs);
}
