//! Run, pause, cancel, enable, disable in every status that matters (R-API-2, DESIGN §5).

use reqwest::Method;
use serde_json::{Value, json};

use crate::app::{Answer, App, QUERY, send};

async fn run_with(app: &App, body: &Value) -> Answer {
    app.post_json("/pipelines/films/run", body).await
}

async fn started() -> App {
    let app = App::start().await;
    app.create_pipeline("films").await;
    app
}

/// A pipeline that runs in either mode.
async fn started_with_key() -> App {
    let app = App::start().await;
    let body = json!({"name": "films", "target_table": "analytics.film_dim", "source_query": QUERY,
                      "incremental_key": "modified"});
    app.post_json("/pipelines", &body).await.assert(201);
    app
}

async fn run_keyed(app: &App, key: &str, body: &Value) -> Answer {
    let call = app.request(Method::POST, "/pipelines/films/run").header("idempotency-key", key);
    send(call.json(body)).await
}

#[tokio::test]
async fn a_requested_run_can_be_followed_from_the_first_moment() {
    let app = started().await;
    let answer = app.post("/pipelines/films/run").await.assert(202);
    assert_eq!((&answer.body["status"], &answer.body["pending"]), (&json!("REQUESTED"), &json!(false)));
    let location = answer.header("location").to_owned();
    assert_eq!(location, format!("/api/v1/runs/{}", answer.body["run_id"].as_str().unwrap()));
    let run = app.get(&location).await.assert(200);
    assert_eq!((&run.body["status"], &run.body["trigger"]), (&json!("REQUESTED"), &json!("api")));
}

#[tokio::test]
async fn run_on_a_failed_pipeline_starts_it_again() {
    let app = started().await;
    app.fail("films").await;
    assert_eq!(app.status("films").await, "FAILED");
    app.run("films").await;
    assert_eq!(app.status("films").await, "RUN_REQUESTED");
    app.claim().await;
    assert_eq!(app.status("films").await, "RUNNING");
}

#[tokio::test]
async fn run_on_a_disabled_pipeline_is_refused() {
    let app = started().await;
    app.post("/pipelines/films/disable").await.assert(200);
    let answer = app.post("/pipelines/films/run").await.assert_problem(409, "pipeline.disabled");
    assert_eq!(answer.body["hint"], "enable the pipeline first");
    app.post("/pipelines/films/enable").await.assert(200);
    assert_eq!(app.status("films").await, "IDLE", "the refused request does not fire later");
}

#[tokio::test]
async fn an_empty_or_equal_request_joins_the_active_run() {
    let app = started().await;
    let run = app.run("films").await;
    app.claim().await;
    assert_eq!(app.run("films").await, run);
    let joined = run_with(&app, &json!({"mode": "full"})).await.assert(202);
    assert_eq!((&joined.body["run_id"], &joined.body["status"]), (&json!(run), &json!("RUNNING")));
}

#[tokio::test]
async fn a_request_of_another_mode_is_not_lost_in_the_active_run() {
    let app = started_with_key().await;
    app.run("films").await;
    run_with(&app, &json!({"mode": "incremental"})).await.assert_problem(409, "pipeline.active");
}

#[tokio::test]
async fn on_active_reject_refuses_while_a_run_is_active() {
    let app = started().await;
    run_with(&app, &json!({"on_active": "reject"})).await.assert(202);
    run_with(&app, &json!({"on_active": "reject"})).await.assert_problem(409, "pipeline.active");
}

#[tokio::test]
async fn on_active_after_runs_once_more_when_the_run_has_ended() {
    let app = started().await;
    let first = app.run("films").await;
    let claim = app.claim().await;
    let after = run_with(&app, &json!({"on_active": "after"})).await.assert(202);
    assert_eq!((&after.body["run_id"], &after.body["pending"]), (&json!(first), &json!(true)));
    app.store.finish(&claim.lease).await.unwrap();
    let status = app.get("/pipelines/films/status").await.body;
    assert_eq!((&status["status"], &status["pending"]), (&json!("RUN_REQUESTED"), &json!(false)));
    assert_ne!(status["active_run"]["id"], first);
}

#[tokio::test]
async fn a_request_that_differs_from_the_waiting_one_is_not_lost_behind_it() {
    let app = started_with_key().await;
    app.run("films").await;
    app.claim().await;
    run_with(&app, &json!({"on_active": "after", "mode": "incremental"})).await.assert(202);
    run_with(&app, &json!({"on_active": "after", "mode": "incremental"})).await.assert(202);
    run_with(&app, &json!({"on_active": "after", "mode": "full"}))
        .await
        .assert_problem(409, "pipeline.pending");
}

#[tokio::test]
async fn the_same_idempotency_key_is_answered_with_the_same_run() {
    let app = started().await;
    let keyed = || app.request(Method::POST, "/pipelines/films/run").header("idempotency-key", "daily-1");
    let first = send(keyed()).await.assert(202);
    let claim = app.claim().await;
    app.store.finish(&claim.lease).await.unwrap();
    let again = send(keyed()).await.assert(202);
    assert_eq!(again.body["run_id"], first.body["run_id"]);
    assert_eq!(again.body["status"], "SUCCESS");
    assert_eq!(app.status("films").await, "IDLE");
}

#[tokio::test]
async fn an_idempotency_key_of_another_request_is_refused() {
    let app = started_with_key().await;
    let (full, incremental) = (json!({"mode": "full"}), json!({"mode": "incremental"}));
    let first = run_keyed(&app, "k", &full).await.assert(202);
    let answer = run_keyed(&app, "k", &incremental).await.assert_problem(409, "idempotency_key.reused");
    assert!(answer.body["hint"].as_str().unwrap().contains("new key"), "{}", answer.body);
    let claim = app.claim().await;
    app.store.finish(&claim.lease).await.unwrap();
    run_keyed(&app, "k", &incremental).await.assert_problem(409, "idempotency_key.reused");
    assert_eq!(app.status("films").await, "IDLE");
    assert_eq!(run_keyed(&app, "k", &full).await.assert(202).body["run_id"], first.body["run_id"]);
}

#[tokio::test]
async fn an_idempotency_key_also_stands_for_the_request_that_waits() {
    let app = started_with_key().await;
    let first = run_keyed(&app, "k1", &json!({"mode": "full"})).await.assert(202);
    app.claim().await;
    let waiting = json!({"mode": "incremental", "on_active": "after"});
    run_keyed(&app, "k2", &waiting).await.assert(202);
    run_keyed(&app, "k2", &waiting).await.assert(202);
    let other = json!({"mode": "full", "on_active": "after"});
    run_keyed(&app, "k2", &other).await.assert_problem(409, "idempotency_key.reused");
    let again = run_keyed(&app, "k1", &json!({"mode": "full"})).await.assert(202);
    assert_eq!((&again.body["run_id"], &again.body["pending"]), (&first.body["run_id"], &json!(false)));
}

/// What is paused is older than the request, and may lack what that was made for.
#[tokio::test]
async fn a_keyed_request_that_waits_outlives_a_pause_and_gets_a_run_of_its_own() {
    let app = started_with_key().await;
    let first = run_keyed(&app, "k1", &json!({})).await.assert(202);
    let paused = app.claim().await;
    let after = json!({"on_active": "after"});
    run_keyed(&app, "k2", &after).await.assert(202);
    app.post("/pipelines/films/pause").await.assert(202);
    app.store.interrupt(&paused.lease).await.unwrap();

    let resumed = run_keyed(&app, "k2", &after).await.assert(202);
    assert_eq!(resumed.body["pending"], json!(true), "{}", resumed.body);
    let claim = app.claim().await;
    assert_eq!(resumed.body["run_id"], json!(claim.run.0));
    app.store.finish(&claim.lease).await.unwrap();
    let own = run_keyed(&app, "k2", &after).await.assert(202);
    assert_eq!(own.body["pending"], json!(false));
    for other in [&first, &resumed] {
        assert_ne!(own.body["run_id"], other.body["run_id"]);
    }
}

#[tokio::test]
async fn an_incremental_run_needs_an_incremental_key() {
    let app = started().await;
    let answer =
        run_with(&app, &json!({"mode": "incremental"})).await.assert_problem(422, "pipeline.incremental_key");
    assert_eq!(answer.faults(), [("/mode", "pipeline.incremental_key")]);
    let status = app.get("/pipelines/films/status").await.body;
    assert_eq!((&status["status"], &status["last_run"]), (&json!("IDLE"), &Value::Null));
}

#[tokio::test]
async fn pause_answers_as_the_status_says() {
    let app = started().await;
    app.run("films").await;
    let claim = app.claim().await;
    for _ in 0..2 {
        let answer = app.post("/pipelines/films/pause").await.assert(202);
        assert_eq!(answer.body["status"], "PAUSE_REQUESTED");
    }
    app.post("/pipelines/films/run").await.assert_problem(409, "pipeline.pausing");
    app.store.interrupt(&claim.lease).await.unwrap();
    let answer = app.post("/pipelines/films/pause").await.assert(200);
    assert_eq!(
        (&answer.body["status"], &answer.body["last_run"]["status"]),
        (&json!("PAUSED"), &json!("PAUSED"))
    );
}

#[tokio::test]
async fn a_failed_pipeline_cannot_be_paused() {
    let app = started().await;
    app.fail("films").await;
    app.post("/pipelines/films/pause").await.assert_problem(409, "pipeline.failed");
}

#[tokio::test]
async fn cancel_ends_a_requested_run_at_once_and_an_active_one_by_its_runner() {
    let app = started().await;
    app.post("/pipelines/films/cancel").await.assert_problem(409, "pipeline.idle");
    app.run("films").await;
    let answer = app.post("/pipelines/films/cancel").await.assert(202);
    assert_eq!(
        (&answer.body["status"], &answer.body["last_run"]["status"]),
        (&json!("IDLE"), &json!("CANCELLED"))
    );
    app.run("films").await;
    let claim = app.claim().await;
    let answer = app.post("/pipelines/films/cancel").await.assert(202);
    assert_eq!((&answer.body["status"], &answer.body["cancel_requested"]), (&json!("RUNNING"), &json!(true)));
    app.store.interrupt(&claim.lease).await.unwrap();
    assert_eq!(app.status("films").await, "IDLE");
}

#[tokio::test]
async fn cancel_sets_a_failed_pipeline_back_to_idle() {
    let app = started().await;
    app.fail("films").await;
    app.post("/pipelines/films/cancel").await.assert(202);
    assert_eq!(app.status("films").await, "IDLE");
}

#[tokio::test]
async fn enable_resumes_what_disable_has_paused() {
    let app = started().await;
    app.run("films").await;
    let claim = app.claim().await;
    let answer = app.post("/pipelines/films/disable").await.assert(200);
    assert_eq!((&answer.body["status"], &answer.body["enabled"]), (&json!("PAUSE_REQUESTED"), &json!(false)));
    app.store.interrupt(&claim.lease).await.unwrap();
    let answer = app.post("/pipelines/films/enable").await.assert(200);
    assert_eq!(answer.body["status"], "RUN_REQUESTED");
    assert_eq!(answer.body["active_run"]["trigger"], "resume");
}

#[tokio::test]
async fn a_request_to_a_pipeline_that_is_not_there_is_404() {
    let app = App::start().await;
    for call in ["enable", "disable", "run", "pause", "cancel"] {
        app.post(&format!("/pipelines/nowhere/{call}")).await.assert_problem(404, "pipeline.not_found");
    }
}

/// A pipeline whose checkpoint was made under another configuration than it has now.
async fn changed() -> App {
    let app = started_with_key().await;
    app.database
        .execute("update etl.etl_state set checkpoint = '{\"position\": {\"done\": {\"bound\": [\"5\"]}}, \"config_hash\": \"c0ffee\"}'")
        .await;
    app
}

#[tokio::test]
async fn a_changed_pipeline_asks_what_becomes_of_its_checkpoint() {
    let app = changed().await;
    let incremental = json!({"mode": "incremental"});
    let answer = run_with(&app, &incremental).await.assert_problem(409, "pipeline.config_changed");
    let hint = answer.body["hint"].as_str().unwrap();
    assert!(["keep", "reset", "full"].iter().all(|choice| hint.contains(choice)), "{hint}");
    assert_eq!(app.status("films").await, "IDLE");
    let decided = json!({"mode": "incremental", "checkpoint": "keep"});
    let run = run_with(&app, &decided).await.assert(202);
    let run = app.get(&format!("/runs/{}", run.body["run_id"].as_str().unwrap())).await.assert(200);
    assert_eq!(run.body["checkpoint"], "keep");
    run_with(&app, &decided).await.assert(202);
    let other = json!({"checkpoint": "reset"});
    run_with(&app, &other).await.assert_problem(409, "pipeline.active");
}

#[tokio::test]
async fn changed_code_of_its_functions_asks_the_same_unless_a_runner_still_has_the_older() {
    let app = started_with_key().await;
    app.database
        .execute(
            "insert into etl.etl_pipeline_tasks (pipeline_id, order_index, task_type, body)
             select id, place, kind, body from etl.etl_pipelines,
                    (values (1, 'SQL', 'select 1 as id'), (2, 'PYTHON', 'slug')) task (place, kind, body);
             update etl.etl_state set checkpoint = '{\"position\": {\"done\": {\"bound\": [\"5\"]}}, \"code\": {\"slug\": \"old\"}}'",
        )
        .await;
    let connections: Vec<String> =
        app.database.value("select array[source_connection, 'marts'] from etl.etl_pipelines").await;
    let published = async |runner: &str, version: &str| {
        let abilities = vitrina_store::RunnerAbilities {
            name: runner.to_owned(),
            connections: connections.clone(),
            python_tasks: vec!["slug".to_owned()],
            ..Default::default()
        };
        app.store.announce(&abilities, 1).await.unwrap();
        let (name, version_hash) = ("slug".to_owned(), version.to_owned());
        let task = vitrina_store::PublishedTask { name, version_hash, kind: "transform", doc: String::new() };
        app.store.publish_tasks(runner, &[task]).await.unwrap();
    };
    let incremental = json!({"mode": "incremental"});
    published("new", "new").await;
    let answer = run_with(&app, &incremental).await.assert_problem(409, "pipeline.code_changed");
    assert!(answer.body["detail"].as_str().unwrap().contains("slug"), "{:?}", answer.body);
    published("old", "old").await;
    run_with(&app, &incremental).await.assert(202);
    app.post("/pipelines/films/cancel").await.assert(202);
    app.database.execute("update etl.etl_runners set status = 'DRAINING' where name = 'old'").await;
    run_with(&app, &incremental).await.assert_problem(409, "pipeline.code_changed");
    run_with(&app, &json!({"mode": "incremental", "checkpoint": "keep"})).await.assert(202);
}

#[tokio::test]
async fn a_full_run_and_a_backfill_of_a_changed_pipeline_ask_nothing() {
    let app = changed().await;
    run_with(&app, &json!({"mode": "full"})).await.assert(202);
    app.post("/pipelines/films/cancel").await.assert(202);
    run_with(&app, &json!({"keys": ["7"]})).await.assert(202);
    app.post("/pipelines/films/cancel").await.assert(202);
    let both = run_with(&app, &json!({"keys": ["7"], "checkpoint": "keep"})).await;
    assert_eq!(
        both.assert_problem(422, "request.invalid").faults(),
        [("/checkpoint", "backfill.checkpoint")]
    );
}
