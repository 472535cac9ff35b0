//! Keys that are arrays: loads, increments, backfills, comparisons and repairs find their rows as by any other key.

use rstest::rstest;
use serde_json::{Value, json};
use vitrina_core::{Level, Mode, PipelineId, RunStatus, Verdict};
use vitrina_store::RunRecord;

use crate::changelog::install;
use crate::stage::Stage;

/// Things under keys of this type, of which those with a value are in the mart.
async fn things(key_type: &str, keys: &[&str]) -> (Stage, PipelineId) {
    let stage = Stage::empty().await;
    stage
        .db
        .execute(&format!(
            "create schema content; create schema analytics;
             create table content.thing (key {key_type} primary key, value text, modified timestamptz default now());
             create table analytics.thing (key {key_type} primary key, value text, modified timestamptz)"
        ))
        .await;
    for key in keys {
        let literal = key.replace('\'', "''");
        stage
            .db
            .execute(&format!("insert into content.thing (key, value) values ('{literal}', 'old')"))
            .await;
    }
    let query = "select key, value, modified from content.thing where value <> 'hidden'";
    let id = stage
        .pipeline(json!({"target_table": "analytics.thing", "source_query": query, "mode": "incremental", "batch_size": 2,
            "incremental_key": "modified", "incremental_id_key": "key", "delete_limit": 1.0}))
        .await;
    (stage, id)
}

async fn require_equal(stage: &Stage, run: &RunRecord) {
    assert_eq!(run.status, RunStatus::Success, "{:?}", run.error);
    let difference = "select count(*) from (select key, value from content.thing where value <> 'hidden') s
                        full join analytics.thing t using (key) where s.value is distinct from t.value";
    assert_eq!(stage.db.value::<i64>(difference).await, 0);
}

#[rstest]
#[case::of_numbers("int[]", &["{1,2}", "{3}", "{}", "{NULL,1}", "{{1,2},{3,4}}"], json!([["{3}"], ["{}"], ["{9}"]]))]
#[case::of_texts("text[]", &["{a,b}", "{\"a,b\"}", "{}", "{NULL}", "{\"NULL\"}", r#"{"it's \"quoted\" \\ {}"}"#], json!([["{NULL}"], [r#"{"a,b"}"#]]))]
#[case::of_exact_numbers("numeric(9,2)[]", &["{1.00}", "{1.50,2.50}", "{NaN}", "{0.10}", "{7.00}"], json!([["{1}"], ["{1.5,2.5}"]]))]
#[tokio::test]
async fn a_key_may_be_an_array(#[case] key_type: &str, #[case] keys: &[&str], #[case] some: Value) {
    let (stage, id) = things(key_type, keys).await;
    let play = async |run| {
        stage.runner().work_off().await.unwrap();
        let run = stage.run_record(run).await;
        require_equal(&stage, &run).await;
        run
    };
    let load = play(stage.request_mode(id, Mode::Full).await).await;
    assert_eq!(load.rows_written, u64::try_from(keys.len()).unwrap());
    assert_eq!(play(stage.request_mode(id, Mode::Full).await).await.rows_written, 0);

    stage.db.execute("update content.thing set value = 'new', modified = now()").await;
    play(stage.request_mode(id, Mode::Incremental).await).await;
    stage.db.execute("update content.thing set value = 'hidden', modified = now() where key = (select min(key) from content.thing)").await;
    assert_eq!(play(stage.request_mode(id, Mode::Incremental).await).await.rows_deleted, 1);

    stage.db.execute("update content.thing set value = 'backfilled'").await;
    play(stage.request_range(id, None, None).await).await;
    let equal = async |level| stage.reconcile(id, level).await.verdict();
    assert_eq!(equal(Level::Hash).await, Verdict::Equal);
    stage.db.execute("update analytics.thing set value = 'damaged'; update content.thing set value = 'hidden' where key = (select max(key) from content.thing)").await;
    assert_ne!(equal(Level::Rows).await, Verdict::Equal);
    let all: String =
        stage.db.value("select jsonb_agg(jsonb_build_array(key::text))::text from content.thing").await;
    let all: Value = serde_json::from_str(&all).unwrap();
    let keys: Vec<Value> = all.as_array().unwrap().iter().chain(some.as_array().unwrap()).cloned().collect();
    play(stage.request_keys(id, json!(keys)).await).await;
    assert_eq!(equal(Level::Rows).await, Verdict::Equal);
}

#[tokio::test]
async fn a_logged_key_may_be_an_array() {
    let (stage, id) = things("text[]", &["{a}", r#"{"b,c"}"#, "{}"]).await;
    stage.delete(id).await;
    install(&stage, "content.thing", &["key"]).await;
    let query = "select key, value, modified from content.thing where value <> 'hidden'";
    let id = stage
        .pipeline(json!({"target_table": "analytics.thing", "source_query": query, "mode": "incremental", "capture": "changelog",
            "batch_size": 1, "delete_limit": 1.0}))
        .await;
    require_equal(&stage, &stage.succeed(id).await).await;
    stage
        .db
        .execute(
            r#"update content.thing set value = 'new' where key = '{"b,c"}'; delete from content.thing where key = '{}';
               update content.thing set key = '{NULL}' where key = '{a}'"#,
        )
        .await;
    let run = stage.succeed(id).await;
    require_equal(&stage, &run).await;
    assert_eq!((run.rows_written, run.rows_deleted), (2, 2));
}
