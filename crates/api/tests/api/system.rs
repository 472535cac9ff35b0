//! Health, runners, version (R-API-6): asked, never assumed.

use std::collections::BTreeMap;

use serde_json::json;
use vitrina_store::RunnerAbilities;
use vitrina_testbed::Database;

use crate::app::App;

#[tokio::test]
async fn health_asks_the_meta_store_and_names_the_runners() {
    let app = App::start().await;
    assert_eq!(app.get("/health").await.assert(200).body["status"], "degraded", "nobody works");
    let runner = RunnerAbilities { name: "r1".to_owned(), ..Default::default() };
    app.store.announce(&runner, 4).await.unwrap();
    let health = BTreeMap::from([("search".to_owned(), Some("unreachable")), ("marts".to_owned(), None)]);
    app.store.note_health("r1", &health).await.unwrap();
    let answer = app.get("/health").await.assert(200);
    let expected = json!({"status": "ok", "meta_store": "ok", "sources": [{"connection": "source", "problem": null}],
                          "runners": [{"name": "r1", "alive": true, "problems": {"search": "unreachable"}}]});
    assert_eq!(answer.body, expected);
    app.store.farewell("r1").await.unwrap();
    let answer = app.get("/health/").await.body;
    assert_eq!((&answer["runners"][0]["alive"], &answer["status"]), (&json!(false), &json!("degraded")));
    let answer = app.get("/runners").await.assert(200);
    assert_eq!(
        (&answer.body["items"][0]["name"], &answer.body["items"][0]["status"]),
        (&json!("r1"), &json!("STOPPED"))
    );
}

#[tokio::test]
async fn a_runner_is_asked_to_drain_and_one_that_is_gone_cannot_be() {
    let app = App::start().await;
    let runner = RunnerAbilities { name: "r1".to_owned(), ..Default::default() };
    app.store.announce(&runner, 4).await.unwrap();
    for unknown in ["r2", "%FF", "%00"] {
        app.post(&format!("/runners/{unknown}/drain")).await.assert_problem(404, "runner.not_found");
    }
    let answer = app.post("/api/v1/runners/r1/drain").await.assert(202);
    assert_eq!((&answer.body["name"], &answer.body["status"]), (&json!("r1"), &json!("DRAINING")));
    assert_eq!(app.store.still_here("r1", 0, 0).await.unwrap(), Some(true));
    app.store.farewell("r1").await.unwrap();
    app.post("/runners/r1/drain").await.assert_problem(409, "runner.gone");
    let audited: String =
        app.database.value("select string_agg(action || ' ' || subject, ',') from etl.etl_audit").await;
    assert_eq!(audited, "runner.drain runner r1");
}

#[tokio::test]
async fn health_says_no_when_the_database_is_gone() {
    let app = App::start().await;
    app.get("/health").await.assert(200);
    let name = app.database.name();
    let elsewhere = Database::fresh().await;
    elsewhere.execute(&format!("alter database {name} allow_connections false")).await;
    let sessions = format!("datname = '{name}' and application_name = 'vitrina-api'");
    elsewhere
        .execute(&format!("select pg_terminate_backend(pid, 5000) from pg_stat_activity where {sessions}"))
        .await;
    let answer = app.get("/health").await.assert(503);
    let expected =
        json!({"status": "unavailable", "meta_store": "unavailable", "sources": [], "runners": []});
    assert_eq!(answer.body, expected);
    app.get("/health/ready").await.assert(503);
    app.get("/health/live").await.assert(200);
    elsewhere.execute(&format!("alter database {name} allow_connections true")).await;
    app.get("/health").await.assert(200);
}

#[tokio::test]
async fn the_version_is_this_release() {
    let app = App::start().await;
    let answer = app.get("/api/v1/version").await.assert(200);
    assert_eq!(answer.body, json!({"name": "vitrina", "version": env!("CARGO_PKG_VERSION")}));
}
