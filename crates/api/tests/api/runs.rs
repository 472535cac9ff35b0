//! Following runs and statuses, with and without waiting (R-API-4).

use std::time::Duration;

use reqwest::Method;
use serde_json::{Value, json};
use uuid::Uuid;

use crate::app::{App, send};

#[tokio::test]
async fn runs_are_listed_newest_first_with_rows_error_and_duration() {
    let app = App::start().await;
    app.create_pipeline("films").await;
    app.fail("films").await;
    let second = app.run("films").await;
    let answer = app.get("/pipelines/films/runs").await.assert(200);
    let [newest, failed] = answer.body["items"].as_array().unwrap().as_slice() else { panic!("two runs") };
    assert_eq!((&newest["id"], &newest["duration_ms"]), (&json!(second), &Value::Null));
    assert_eq!((&failed["status"], &failed["error_code"]), (&json!("FAILED"), &json!("source.sql")));
    assert_eq!((&failed["error"], &failed["rows_read"]), (&json!("column x does not exist"), &json!(0)));
    assert!(failed["duration_ms"].is_u64());
    let limited = app.get("/pipelines/films/runs?limit=1").await.assert(200);
    assert_eq!(limited.body["items"].as_array().unwrap().len(), 1);
}

#[tokio::test]
async fn a_run_is_shown_with_its_attempts() {
    let app = App::start().await;
    app.create_pipeline("films").await;
    let run = app.run("films").await;
    let claim = app.claim().await;
    app.store.retry(&claim.lease, "r1", claim.run, "source.busy", "try again").await.unwrap();
    let answer = app.get(&format!("/runs/{run}")).await.assert(200);
    let [first, second] = answer.body["attempts"].as_array().unwrap().as_slice() else {
        panic!("two attempts")
    };
    assert_eq!((&first["runner"], &first["error_code"]), (&json!("r1"), &json!("source.busy")));
    assert_eq!(second["ended_at"], Value::Null);
}

#[tokio::test]
async fn a_waiting_caller_hears_when_the_run_is_closed() {
    let app = App::start().await;
    app.create_pipeline("films").await;
    let run = app.run("films").await;
    let claim = app.claim().await;
    let path = format!("/runs/{run}?wait=60");
    let (answer, finished) = tokio::join!(app.get(&path), app.store.finish(&claim.lease));
    finished.unwrap();
    assert_eq!(answer.assert(200).body["status"], "SUCCESS");
}

#[tokio::test]
async fn an_open_run_is_answered_when_the_time_is_over() {
    let app = App::start().await;
    app.create_pipeline("films").await;
    let run = app.run("films").await;
    let answer = app.get(&format!("/runs/{run}?wait=1")).await.assert(200);
    assert_eq!(answer.body["status"], "REQUESTED");
}

#[tokio::test]
async fn a_waiting_poller_hears_of_a_change_of_status() {
    let app = App::start().await;
    app.create_pipeline("films").await;
    let known = app.get("/pipelines/films/status").await.header("etag").to_owned();
    let waiting = app.request(Method::GET, "/pipelines/films/status?wait=60").header("if-none-match", known);
    let (answer, run) = tokio::join!(send(waiting), app.run("films"));
    let answer = answer.assert(200);
    assert_eq!(
        (&answer.body["status"], &answer.body["active_run"]["id"]),
        (&json!("RUN_REQUESTED"), &json!(run))
    );
}

#[tokio::test]
async fn a_status_that_is_known_already_is_not_repeated() {
    let app = App::start().await;
    app.create_pipeline("films").await;
    let first = app.get("/pipelines/films/status").await.assert(200);
    let known =
        app.request(Method::GET, "/pipelines/films/status").header("if-none-match", first.header("etag"));
    assert_eq!(send(known).await.assert(304).body, Value::Null);
    let waited = app.get("/pipelines/films/status?wait=1").await.assert(200);
    assert_eq!(waited.body, first.body);
}

#[tokio::test]
async fn a_stopping_server_keeps_no_one_waiting() {
    let app = App::start().await;
    app.create_pipeline("films").await;
    let run = app.run("films").await;
    let path = format!("/runs/{run}?wait=60");
    let lock = app.database.client().await;
    lock.batch_execute("begin; lock table etl.etl_runs").await.unwrap();
    let stop = async {
        // A look that waits for the lock shows that the call was accepted.
        while !app.database.value::<bool>("select exists (select from pg_locks where not granted)").await {}
        app.shutdown.cancel();
        lock.batch_execute("rollback").await.unwrap();
    };
    let waiting = tokio::time::timeout(Duration::from_secs(30), app.get(&path));
    let (answer, ()) = tokio::join!(waiting, stop);
    assert_eq!(answer.expect("an answer at once").assert(200).body["status"], "REQUESTED");
}

#[tokio::test]
async fn a_run_that_is_not_there_is_404() {
    let app = App::start().await;
    app.get(&format!("/runs/{}", Uuid::new_v4())).await.assert_problem(404, "run.not_found");
    app.get("/runs/first").await.assert_problem(404, "run.not_found");
}

#[tokio::test]
async fn the_log_of_a_run_is_followed_to_its_end() {
    let app = App::start().await;
    app.create_pipeline("films").await;
    let run = app.run("films").await;
    let claim = app.claim().await;
    let path = format!("/runs/{run}/logs");
    let empty = app.get(&path).await.assert(200).body;
    assert_eq!((&empty["items"], &empty["next_cursor"]), (&json!([]), &json!("0")), "more may come");
    let write = async |message: &str| {
        let line = vitrina_store::LogLine {
            run_id: claim.run,
            pipeline_id: claim.lease.pipeline,
            at: jiff::Timestamp::now(),
            level: "info",
            message: message.to_owned(),
            fields: serde_json::Map::from_iter([("batch".to_owned(), json!(1))]),
        };
        app.store.add_logs(&[line]).await.unwrap();
    };
    let waiting = format!("/runs/{run}/logs?wait=30");
    let waits = app.get(&waiting);
    let (first, ()) = tokio::join!(waits, write("batch committed"));
    let first = first.assert(200).body;
    assert_eq!(
        (&first["items"][0]["message"], &first["items"][0]["fields"]["batch"]),
        (&json!("batch committed"), &json!(1))
    );
    write("run ended").await;
    app.store.finish(&claim.lease).await.unwrap();
    app.database.execute("update etl.etl_runs set finished_at = finished_at - interval '1 minute'").await;
    let cursor = first["next_cursor"].as_str().unwrap();
    let last = app.get(&format!("/runs/{run}/logs?cursor={cursor}&wait=30")).await.assert(200).body;
    assert_eq!((&last["items"][0]["message"], &last["next_cursor"]), (&json!("run ended"), &json!(null)));
    app.get("/runs/00000000-0000-0000-0000-000000000000/logs").await.assert_problem(404, "run.not_found");
}

#[tokio::test]
async fn a_pipeline_tells_how_far_its_target_is_behind_and_whether_that_is_too_far() {
    let app = App::start().await;
    app.create_pipeline("films").await;
    let unknown = app.get("/pipelines/films/status").await.body["freshness"].clone();
    assert_eq!(unknown, json!({"as_of": null, "lag_seconds": null, "limit_seconds": null, "late": null}));
    app.patch("/pipelines/films", "*", &json!({"freshness_limit_seconds": 60})).await.assert(200);
    app.database.execute("update etl.etl_state set as_of = clock_timestamp() - interval '30 seconds'").await;
    let fresh = app.get("/pipelines/films").await.body["freshness"].clone();
    let lag = fresh["lag_seconds"].as_f64().unwrap();
    assert!((30.0..60.0).contains(&lag) && fresh["late"] == false, "{fresh}");
    app.database.execute("update etl.etl_state set as_of = clock_timestamp() - interval '90 seconds'").await;
    let listed = app.get("/pipelines").await.body["items"][0]["freshness"].clone();
    assert_eq!((&listed["late"], &listed["limit_seconds"]), (&json!(true), &json!(60)));
}
