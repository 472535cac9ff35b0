//! Where did this row go? What a runner sees, beside what is known of its key here.

use std::time::Duration;

use serde_json::{Value, json};
use vitrina_core::Level;

use crate::app::{Answer, App, runner};
use crate::reconciles::three;

const LEASE: Duration = Duration::from_secs(60);

impl App {
    /// Asks for a row, and plays the runner that answers this.
    async fn row(&self, query: &str, answer: Result<Value, (&str, String)>) -> Answer {
        let path = format!("/pipelines/films/row?key={query}");
        let playing = async {
            let mut wakeups = self.store.wakeups().await.unwrap();
            loop {
                if let Some(taken) = self.store.take_request(&runner(), LEASE).await.unwrap() {
                    self.store.answer(&taken, answer).await.unwrap();
                    return taken.payload;
                }
                wakeups.next().await;
            }
        };
        tokio::join!(self.get(&path), playing).0
    }
}

async fn started() -> App {
    let app = App::start().await;
    app.create_pipeline("films").await;
    app.store.announce(&runner(), 4).await.unwrap();
    app
}

/// What a runner sees of film 2.
fn seen(more: &Value) -> Value {
    let mut answer = json!({
        "runner": "r1", "key": ["2"], "key_columns": ["id"], "in_source": true, "in_target": true, "fits": true, "in_flight": false,
        "columns": [{"name": "id", "source": "2", "target": "2", "differs": false},
                    {"name": "title", "source": "Nebula", "target": null, "differs": true}],
        "touched_at": null, "by_meta_store": null, "token": null,
    });
    answer.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    answer
}

#[tokio::test]
async fn a_row_is_told_with_what_differs_its_reject_and_its_difference() {
    let app = started().await;
    app.run("films").await;
    let run = app.claim().await.run.0;
    app.database
        .execute(&format!(
            "insert into etl.etl_rejects (pipeline_id, key, run_id, code, message, row)
             select id, '[\"2\"]', '{run}', 'row.check', 'too long', '{{\"id\": 2}}' from etl.etl_pipelines"
        ))
        .await;
    app.compare("films", Level::Rows, &three()).await;
    let row = app.row("02", Ok(seen(&json!({})))).await.assert(200).body;
    assert_eq!(
        (&row["key"], &row["look"]["state"], &row["problem"]),
        (&json!(["2"]), &json!("different"), &Value::Null)
    );
    assert_eq!(row["look"]["columns"][1]["source"], "Nebula");
    assert_eq!((&row["reject"]["code"], &row["reject"]["run_id"]), (&json!("row.check"), &json!(run)));
    assert_eq!(
        (&row["reconcile"]["listed"], &row["reconcile"]["difference"]["kind"]),
        (&json!(true), &json!("different"))
    );
    assert_eq!(row["last_write"]["unknown"], "no_mark");
    assert_eq!(row["backfill"], Value::Null);

    let missing = seen(&json!({"key": ["9"], "in_target": false, "columns": []}));
    let row = app.row("9", Ok(missing)).await.assert(200).body;
    assert_eq!((&row["look"]["state"], &row["reject"]), (&json!("missing"), &Value::Null));
    assert_eq!(
        (&row["reconcile"]["listed"], &row["last_write"]["unknown"]),
        (&json!(false), &json!("not_there"))
    );
}

#[tokio::test]
async fn the_run_and_batch_that_were_writing_when_it_was_touched_are_its_last_write_and_nothing_is_guessed() {
    let app = started().await;
    app.run("films").await;
    let claim = app.claim().await;
    let touched = async || {
        let sql = "select to_char(clock_timestamp() at time zone 'UTC', 'YYYY-MM-DD\"T\"HH24:MI:SS.US\"Z\"')";
        app.database.value::<String>(sql).await
    };
    let before = touched().await;
    app.database
        .execute(&format!(
            "insert into etl.etl_batches (run_id, pipeline_id, token, rows_read, rows_inserted, rows_updated, rows_unchanged,
                                          rows_deleted, rows_rejected, bytes, read_ms, transform_ms, write_ms)
             select '{}', id, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0 from etl.etl_pipelines",
            claim.run.0
        ))
        .await;
    let last = async |more: Value| app.row("2", Ok(seen(&more))).await.assert(200).body["last_write"].clone();
    let written = last(json!({"touched_at": before, "by_meta_store": true})).await;
    assert_eq!((&written["by"], &written["run_id"]), (&json!("touch_column"), &json!(claim.run.0)));
    assert_eq!((&written["pipeline"], &written["batch_id"]), (&json!("films"), &json!(1)));
    let elsewhere = last(json!({"touched_at": before, "by_meta_store": false})).await;
    assert_eq!((&elsewhere["run_id"], &elsewhere["unknown"]), (&Value::Null, &json!("other_clock")));
    let later = last(json!({"touched_at": touched().await, "by_meta_store": true})).await;
    assert_eq!((&later["run_id"], &later["unknown"]), (&Value::Null, &json!("no_run")));
    let earlier = last(json!({"touched_at": "2001-01-01T00:00:00Z", "by_meta_store": true})).await;
    assert_eq!(earlier["unknown"], "no_run");
    let document = last(json!({"token": claim.lease.token.0})).await;
    assert_eq!((&document["by"], &document["run_id"]), (&json!("document_version"), &json!(claim.run.0)));
    assert!(document["since"].is_string() && document["at"].is_null(), "{document}");
    assert_eq!(last(json!({"token": 777})).await["unknown"], "no_run");
}

#[tokio::test]
async fn a_run_that_has_read_the_key_again_is_named() {
    let app = started().await;
    app.post_json("/pipelines/films/run", &json!({"keys": ["1", "2"]})).await.assert(202);
    let claim = app.claim().await;
    app.store.finish(&claim.lease).await.unwrap();
    let row = app.row("2", Ok(seen(&json!({})))).await.assert(200).body;
    assert_eq!(
        (&row["backfill"]["run_id"], &row["backfill"]["status"]),
        (&json!(claim.run.0), &json!("SUCCESS"))
    );
    let other = app.row("3", Ok(seen(&json!({"key": ["3"]})))).await.assert(200).body;
    assert_eq!((&other["backfill"], &other["reconcile"]), (&Value::Null, &Value::Null));
}

#[tokio::test]
async fn where_nobody_can_look_the_rest_is_told_and_why() {
    let app = App::start().await;
    app.create_pipeline("films").await;
    app.compare("films", Level::Rows, &three()).await;
    let row = app.get("/pipelines/films/row?key=2").await.assert(200).body;
    assert_eq!((&row["look"], &row["problem"]["code"]), (&Value::Null, &json!("runner.none")));
    assert_eq!(
        (&row["reconcile"]["listed"], &row["last_write"]["unknown"]),
        (&json!(true), &json!("not_seen"))
    );
    app.store.announce(&runner(), 4).await.unwrap();
    let failed = app.row("2", Err(("sink.no_table", "analytics.film_dim does not exist".to_owned()))).await;
    assert_eq!(failed.assert(200).body["problem"]["code"], "sink.no_table");
}

#[tokio::test]
async fn a_key_is_a_text_or_a_list_of_texts_and_one_that_no_row_can_have_is_refused() {
    let app = started().await;
    for wrong in ["", "?key=[", "?key=[null]", "?key=[1.5]", "?key=%00", "?key=2&more=1"] {
        app.get(&format!("/pipelines/films/row{wrong}")).await.assert_problem(422, "request.invalid");
    }
    app.get("/pipelines/nothing/row?key=2").await.assert_problem(404, "pipeline.not_found");
    let refused = app.row("seven", Err(("row.key", "no row can have this key".to_owned()))).await;
    let refused = refused.assert_problem(422, "request.invalid");
    assert_eq!(refused.faults(), [("key", "row.key")]);
    let composite = app.row("[2,%22en%22]", Ok(seen(&json!({"key": ["2", "en"]})))).await.assert(200).body;
    assert_eq!(composite["key"], json!(["2", "en"]));
}

/// A lock at a mart is waited for longer than an answer is.
#[tokio::test]
async fn a_runner_that_has_the_question_and_waits_itself_is_told_apart_from_none() {
    let app = started().await;
    let takes = async {
        let mut wakeups = app.store.wakeups().await.unwrap();
        while app.store.take_request(&runner(), LEASE).await.unwrap().is_none() {
            wakeups.next().await;
        }
    };
    let (row, ()) = tokio::join!(app.get("/pipelines/films/row?key=2"), takes);
    let problem = &row.assert(200).body["problem"];
    assert_eq!(problem["code"], "runner.waits", "{problem}");
    let detail = problem["detail"].as_str().unwrap();
    assert!(
        detail.starts_with(
            "runner r1 has taken the question and waits for an answer of source or marts for 20 s"
        ),
        "{detail}"
    );
    assert!(detail.contains("pg_locks"), "{detail}");
}
