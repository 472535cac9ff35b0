//! Keys that the mart cannot tell apart, or that the source spells otherwise: the row of one key is never taken for the row of
//! another, and an equal one is found however it is spelled.

use rstest::rstest;
use serde_json::json;
use vitrina_core::{Level, PipelineId, RunStatus, Verdict};

use crate::changelog::install;
use crate::stage::Stage;

/// Things `key` and value, followed by cursor or change log.
async fn things(key_type: &str, key: &str, capture: &str, watched: &str) -> (Stage, PipelineId) {
    let stage = Stage::empty().await;
    stage
        .db
        .execute(&format!(
            "create extension if not exists citext schema public; create extension if not exists ltree schema public;
             create schema content; create schema analytics;
             create table content.thing (key {key_type} primary key, value text, modified timestamptz default now());
             create table analytics.thing (key {key_type} primary key, value text, modified timestamptz);
             create table content.note (id int primary key, key {watched}, modified timestamptz default now());
             insert into content.thing values ('{key}', 'old')"
        ))
        .await;
    if capture == "changelog" {
        install(&stage, "content.thing", &["key"]).await;
        install(&stage, "content.note", &["key"]).await;
    }
    let id = stage
        .pipeline(json!({"target_table": "analytics.thing", "source_query": "select key, value, modified from content.thing",
            "mode": "incremental", "incremental_key": "modified", "incremental_id_key": "key", "capture": capture, "delete_limit": 1.0,
            "watch": [{"table": "content.note", "key": ["key"]}]}))
        .await;
    stage.succeed(id).await;
    (stage, id)
}

async fn is_equal(stage: &Stage, id: PipelineId) {
    let texts = async |table: &str| stage.db.texts(&format!("select key::text, value from {table}")).await;
    assert_eq!(texts("analytics.thing").await, texts("content.thing").await);
    assert_eq!(stage.reconcile(id, Level::Rows).await.verdict(), Verdict::Equal);
}

#[rstest]
#[case::a_number("numeric(6,2)", "7.00", "7.001")]
#[case::a_text("varchar(5)", "seven", "seventy")]
#[case::a_moment("timestamp(0)", "2026-01-01 00:00:00", "2026-01-01 00:00:00.3")]
#[case::a_duration("interval minute", "00:07:00", "00:07:00.001")]
#[tokio::test]
async fn a_backfill_of_a_key_that_the_mart_would_round_or_cut_deletes_no_other_row(
    #[case] key_type: &str,
    #[case] key: &str,
    #[case] finer: &str,
) {
    let (stage, id) = things(key_type, key, "cursor", key_type).await;
    let run = stage.request_keys(id, json!([[finer]])).await;
    stage.runner().work_off().await.unwrap();
    let run = stage.run_record(run).await;
    assert_eq!(run.rows_deleted, 0, "{:?}", run.error);
    is_equal(&stage, id).await;
    stage.db.execute("update content.thing set value = 'new'").await;
    let run = stage.request_keys(id, json!([[key]])).await;
    stage.runner().work_off().await.unwrap();
    assert_eq!(stage.run_record(run).await.status, RunStatus::Success);
    is_equal(&stage, id).await;
}

#[rstest]
#[case::a_number("numeric(6,2)", "7.00", "numeric", "7.001")]
#[case::a_text("varchar(5)", "seven", "text", "seventy")]
#[case::a_moment("timestamp(0)", "2026-01-01 00:00:00", "timestamp", "2026-01-01 00:00:00.3")]
#[tokio::test]
async fn a_watched_row_whose_key_the_mart_would_round_or_cut_deletes_no_other_row(
    #[case] key_type: &str,
    #[case] key: &str,
    #[case] watched: &str,
    #[case] finer: &str,
    #[values("cursor", "changelog")] capture: &str,
) {
    let (stage, id) = things(key_type, key, capture, watched).await;
    stage.db.execute(&format!("insert into content.note (id, key) values (1, '{finer}')")).await;
    assert_eq!(stage.succeed(id).await.rows_deleted, 0);
    is_equal(&stage, id).await;
}

/// The equality of such a type is its extension's.
#[rstest]
#[case::by_a_cursor("cursor")]
#[case::by_a_change_log("changelog")]
#[tokio::test]
async fn a_key_of_any_case_is_found_however_it_is_spelled(#[case] capture: &str) {
    let (stage, id) = things("public.citext", "Ann", capture, "text").await;
    stage.db.execute("update content.thing set value = 'new'").await;
    let run = stage.request_keys(id, json!([["ANN"]])).await;
    stage.runner().work_off().await.unwrap();
    let run = stage.run_record(run).await;
    assert_eq!(
        (run.status, run.rows_written, run.rows_deleted),
        (RunStatus::Success, 1, 0),
        "{:?}",
        run.error
    );
    is_equal(&stage, id).await;
    stage.db.execute("update content.thing set value = 'newer', modified = now()").await;
    stage.db.execute("insert into content.note (id, key) values (1, 'aNN')").await;
    assert_eq!(stage.succeed(id).await.rows_deleted, 0);
    is_equal(&stage, id).await;
}
