//! Keys that are equal and written otherwise: a row whose key is respelled is the same row, whichever batches name the
//! two forms of it; a mart that would take different keys for equal ones is refused.

use rstest::rstest;
use serde_json::json;
use vitrina_core::{Level, PipelineId, Verdict};

use crate::changelog::install;
use crate::stage::Stage;

const COLLATION: &str =
    "create collation public.folded (provider = icu, locale = 'und-u-ks-level2', deterministic = false);
    create extension citext schema public;";

/// Things under keys of this type, followed by their change log in batches of one.
async fn things(key_type: &str, mart_type: &str, keys: &[&str]) -> (Stage, PipelineId) {
    let stage = Stage::empty().await;
    let values = keys.iter().map(|key| format!("('{key}', 'old')")).collect::<Vec<_>>().join(", ");
    stage
        .db
        .execute(&format!(
            "{COLLATION} create schema content; create schema analytics;
             create table content.thing (key {key_type} primary key, value text);
             create table analytics.thing (key {mart_type} primary key, value text);
             insert into content.thing values {values}"
        ))
        .await;
    install(&stage, "content.thing", &["key"]).await;
    let id = stage
        .pipeline(
            json!({"target_table": "analytics.thing", "source_query": "select key, value from content.thing",
            "mode": "incremental", "capture": "changelog", "batch_size": 1, "delete_limit": 1.0}),
        )
        .await;
    (stage, id)
}

#[rstest]
#[case::a_number("numeric", ["1.0", "5"], "1.00")]
#[case::zero("float8", ["-0", "5"], "0")]
#[case::zero_below("float8", ["0", "5"], "-0")]
#[case::a_duration("interval", ["1 mon", "5 s"], "30 days")]
#[case::a_text_of_any_case("public.citext", ["A", "b"], "a")]
#[case::a_text_of_any_case_and_back("public.citext", ["a", "b"], "A")]
#[case::a_text_of_a_folding_collation("text collate public.folded", ["A", "b"], "a")]
#[case::a_document("jsonb", [r#"{"a": 1.0}"#, "2"], r#"{"a": 1}"#)]
#[case::an_array("numeric[]", ["{1.0}", "{5}"], "{1.00}")]
#[case::a_range("numrange", ["[1.0,2)", "[5,6)"], "[1,2)")]
#[case::durations("interval[]", ["{24:00:00}", "{5 s}"], "{1 day}")]
#[tokio::test]
async fn a_row_whose_key_is_respelled_stays_and_is_written_as_the_source_writes_it(
    #[case] key_type: &str,
    #[case] keys: [&str; 2],
    #[case] respelled: &str,
) {
    let (stage, id) = things(key_type, key_type, &keys).await;
    stage.succeed(id).await;
    stage
        .db
        .execute(&format!("update content.thing set key = '{respelled}' where key = '{}'", keys[0]))
        .await;
    stage.succeed(id).await;
    let texts =
        async |table: &str| stage.db.texts(&format!("select key::text, value from {table} order by 1")).await;
    assert_eq!(texts("analytics.thing").await, texts("content.thing").await);
    assert_eq!(stage.reconcile(id, Level::Rows).await.verdict(), Verdict::Equal);
    assert_eq!(stage.succeed(id).await.rows_written, 0);
}

#[rstest]
#[case::any_case("text", "public.citext", "sink.key_type")]
#[case::a_folding_collation("text", "text collate public.folded", "sink.key_type")]
#[case::a_uuid("text", "uuid", "sink.key_type")]
#[case::a_number("text", "int", "sink.key_type")]
#[case::padded("text", "char(40)", "sink.key_type")]
#[case::a_time("text", "timestamptz", "sink.type_mismatch")]
#[tokio::test]
async fn a_mart_that_would_take_different_keys_for_equal_ones_is_refused(
    #[case] key_type: &str,
    #[case] mart_type: &str,
    #[case] refusal: &str,
) {
    let (stage, id) = things(key_type, mart_type, &["{}"]).await;
    let (code, message) = stage.fail(id).await;
    assert_eq!(code, refusal, "{message}");
    assert!(message.contains("hint: cast the column in the query"), "{message}");
}
