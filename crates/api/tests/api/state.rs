//! Checkpoints that people look at and change.

use reqwest::Method;
use serde_json::{Value, json};
use vitrina_core::{Checkpoint, Entry, Ledger, Outcome, Position};

use crate::app::{Answer, App, send};

const PATH: &str = "/pipelines/films/state";

/// A thousand films, and a pipeline that has read them in two passes; its state has version 2.
async fn read() -> App {
    let app = App::start().await;
    app.database
        .execute(
            "insert into content.film_work (id, n) select n, n from generate_series(1, 1000) n; analyze content.film_work",
        )
        .await;
    let body = json!({"name": "films", "target_table": "analytics.film_dim", "mode": "incremental",
                      "source_query": "select id, n from content.film_work", "incremental_key": "n"});
    app.post_json("/pipelines", &body).await.assert(201);
    app.run("films").await;
    let claim = app.claim().await;
    for (from_version, bound) in [(0, "600"), (1, "1000")] {
        let position = Position { done: done(bound), ..Position::default() };
        let checkpoint = Checkpoint { position, ..Checkpoint::default() };
        let (lease, outcome) = (&claim.lease, &Outcome::default());
        app.store.commit(&Entry { lease, from_version, checkpoint: &checkpoint, outcome }).await.unwrap();
    }
    app.store.finish(&claim.lease).await.unwrap();
    app
}

fn done(bound: &str) -> Value {
    json!({"opened_at": "2024-01-01T00:00:00Z", "bound": [bound], "server": {"xmin": 7}})
}

async fn change(app: &App, method: Method, path: &str, etag: Option<&str>, body: &Value) -> Answer {
    let request = app.request(method, path);
    let request = match etag {
        Some(etag) => request.header("if-match", etag),
        None => request,
    };
    send(if body.is_null() { request } else { request.json(body) }).await
}

async fn edit(app: &App, etag: &str, body: &Value) -> Answer {
    change(app, Method::PATCH, PATH, Some(etag), body).await
}

async fn reset(app: &App, etag: &str) -> Answer {
    change(app, Method::POST, &format!("{PATH}/reset"), Some(etag), &Value::Null).await
}

#[tokio::test]
async fn the_history_of_a_checkpoint_is_listed_newest_first() {
    let app = read().await;
    let listed = app.get(&format!("{PATH}/history?limit=1")).await.assert(200);
    let newest = &listed.body["items"][0];
    assert_eq!((&newest["version"], &newest["reason"]), (&json!(2), &json!("pass")));
    assert_eq!(newest["checkpoint"]["position"]["done"]["bound"], json!(["1000"]));
    assert_eq!(app.get(&format!("{PATH}/history")).await.body["items"].as_array().unwrap().len(), 2);
}

#[tokio::test]
async fn a_checkpoint_is_restored_edited_and_reset_under_the_version_that_was_seen() {
    let app = read().await;
    assert_eq!(app.get(PATH).await.assert(200).header("etag"), "\"2\"");
    let restored = edit(&app, "\"2\"", &json!({"restore": 1})).await.assert(200);
    assert_eq!(restored.header("etag"), "\"3\"");
    assert_eq!(restored.body["last_processed_key"], "600");
    edit(&app, "\"2\"", &json!({"restore": 2})).await.assert_problem(412, "state.version_moved");
    reset(&app, "\"2\"").await.assert_problem(412, "state.version_moved");
    let edited = edit(&app, "\"3\"", &json!({"position": {"done": {"bound": ["42"]}}})).await.assert(200);
    assert_eq!(edited.body["last_processed_key"], "42");
    let anew = reset(&app, "\"4\"").await.assert(200);
    assert_eq!((&anew.body["version"], &anew.body["last_processed_key"]), (&json!(5), &Value::Null));
    let told = app.database.texts("select reason from etl.etl_checkpoints order by version").await;
    let told: Vec<_> = told.into_iter().map(|row| row[0].clone().unwrap()).collect();
    assert_eq!(told, ["pass", "pass", "restore", "edit", "reset"]);
    let audited = "select action, before ->> 'version', after ->> 'version' from etl.etl_audit where action like 'state.%' order by id";
    let audited = app.database.texts(audited).await;
    let row = |action: &str, before: &str, after: &str| {
        [action, before, after].map(|cell| Some(cell.to_owned())).to_vec()
    };
    assert_eq!(
        audited,
        [row("state.restore", "2", "3"), row("state.edit", "3", "4"), row("state.reset", "4", "5")]
    );
}

#[tokio::test]
async fn an_edited_bound_forgets_what_belonged_to_the_old_one() {
    let app = read().await;
    let position = app.get(PATH).await.body["checkpoint"]["position"].clone();
    assert_eq!(position["done"]["server"], json!({"xmin": 7}));
    let edited = edit(&app, "\"2\"", &json!({"position": position})).await.assert(200);
    let done = &edited.body["checkpoint"]["position"]["done"];
    assert_eq!((&done["server"], &done["opened_at"]), (&Value::Null, &json!("2024-01-01T00:00:00Z")));
    assert_eq!(done["earlier"], json!([{"bound": ["1000"], "opened_at": "1970-01-01T00:00:00Z"}]));
}

#[tokio::test]
async fn a_dry_run_changes_nothing_and_tells_how_many_rows_are_read_again() {
    let app = read().await;
    let dry = async |method, path: &str, body: Value| {
        change(&app, method, &format!("{path}?dry_run=true"), None, &body).await.assert(200).body
    };
    let rows = |forecast: &Value| forecast["rows"].as_u64().unwrap();
    let everything = dry(Method::POST, &format!("{PATH}/reset"), Value::Null).await;
    assert_eq!((rows(&everything), &everything["version"]), (1000, &json!(2)));
    let restored = dry(Method::PATCH, PATH, json!({"restore": 1})).await;
    assert!((300..500).contains(&rows(&restored)), "{restored}");
    assert_eq!(restored["checkpoint"]["position"]["done"]["bound"], json!(["600"]));
    let odd = dry(Method::PATCH, PATH, json!({"position": {"done": {"bound": ["x' or true --"]}}})).await;
    assert_eq!(odd["rows"], Value::Null);
    assert_eq!(odd["reason"], "the source refuses to plan the query (SQLSTATE 22P02)");
    app.database.execute("drop table content.film_work").await;
    let gone = dry(Method::POST, &format!("{PATH}/reset"), Value::Null).await;
    assert!(gone["reason"].as_str().unwrap().contains("42P01"), "{gone}");
    assert_eq!(app.get(PATH).await.body["version"], 2);
    let stale =
        change(&app, Method::POST, &format!("{PATH}/reset?dry_run=true"), Some("\"1\""), &Value::Null).await;
    stale.assert_problem(412, "state.version_moved");
}

#[tokio::test]
async fn a_checkpoint_is_not_changed_under_a_run() {
    let app = read().await;
    app.run("films").await;
    for step in ["RUN_REQUESTED", "RUNNING", "PAUSE_REQUESTED"] {
        assert_eq!(app.status("films").await, step);
        edit(&app, "\"2\"", &json!({"restore": 1})).await.assert_problem(409, "pipeline.active");
        reset(&app, "\"2\"").await.assert_problem(409, "pipeline.active");
        let dry = change(&app, Method::POST, &format!("{PATH}/reset?dry_run=true"), None, &Value::Null).await;
        dry.assert_problem(409, "pipeline.active");
        match step {
            "RUN_REQUESTED" => drop(app.claim().await),
            _ => drop(app.post("/pipelines/films/pause").await),
        }
    }
}

#[tokio::test]
async fn a_change_of_a_checkpoint_that_cannot_be_meant_is_refused() {
    let app = read().await;
    let unnamed = change(&app, Method::PATCH, PATH, None, &json!({"restore": 1})).await;
    unnamed.assert_problem(428, "request.if_match");
    edit(&app, "W/x", &json!({"restore": 1})).await.assert_problem(400, "request.header");
    edit(&app, "\"2\"", &json!({"restore": 77})).await.assert_problem(422, "state.no_such_version");
    for (body, pointer, code) in [
        (json!({}), "", "state.edit"),
        (json!({"restore": 1, "position": {"done": {}}}), "", "state.edit"),
        (json!({"position": {"done": {}}}), "/position/done/bound", "state.bound"),
        (json!({"position": {"done": {"bound": [7]}}}), "/position/done/bound", "state.bound"),
        (json!({"position": {"done": {"bound": ["7"]}, "pass": {}}}), "/position/pass", "body.field"),
    ] {
        let answer = edit(&app, "\"2\"", &body).await.assert_problem(422, "request.invalid");
        assert_eq!(answer.faults(), [(pointer, code)], "{body}");
    }
    assert_eq!(app.get(PATH).await.body["version"], 2);
}
