//! Why a pipeline waits: told wherever it is shown, and before it is saved.

use reqwest::Method;
use serde_json::{Value, json};
use vitrina_api::ApiSettings;
use vitrina_store::RunnerAbilities;

use crate::app::{App, QUERY, runner};

impl App {
    async fn announce(&self, connections: &[&str], functions: &[&str]) {
        let owned = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
        let runner = RunnerAbilities {
            name: "r1".to_owned(),
            connections: owned(connections),
            python_tasks: owned(functions),
            ..RunnerAbilities::default()
        };
        self.store.announce(&runner, 1).await.unwrap();
    }

    /// The reason as the list, the pipeline itself and its status tell it.
    async fn waiting(&self, name: &str) -> Value {
        let list = self.get("/pipelines").await.assert(200).body;
        let listed = list["items"].as_array().unwrap().iter().find(|item| item["name"] == name).unwrap();
        let shown = self.get(&format!("/pipelines/{name}")).await.assert(200).body;
        let status = self.get(&format!("/pipelines/{name}/status")).await.assert(200).body;
        assert_eq!((&shown["waiting"], &shown["waiting"]), (&listed["waiting"], &status["waiting"]));
        shown["waiting"].clone()
    }
}

/// The only source has a name of its own.
fn renamed(settings: &mut ApiSettings) {
    let source = settings.source_connections.remove("source").unwrap();
    settings.source_connections.insert("cinema".to_owned(), source);
}

fn codes(checks: &Value) -> Vec<(&str, &str)> {
    let checks = checks.as_array().unwrap().iter();
    checks.map(|check| (check["code"].as_str().unwrap(), check["field"].as_str().unwrap())).collect()
}

#[tokio::test]
async fn why_a_pipeline_waits_stands_in_the_list_its_page_its_status_and_the_metrics() {
    let app = App::start().await;
    app.create_pipeline("films").await;
    assert_eq!(app.waiting("films").await, Value::Null);
    app.run("films").await;
    let waiting = app.waiting("films").await;
    assert_eq!(waiting["code"], "runner.none");
    assert_eq!(waiting["message"], "no runner is alive\nhint: start one with `vitrina runner`");
    assert_eq!((&waiting["until"], &waiting["releases"]), (&Value::Null, &json!(0)));
    let page = app.request(Method::GET, "/metrics").send().await.unwrap().text().await.unwrap();
    let line = r#"vitrina_pipeline_waiting{pipeline="films",reason="runner.none"} 1"#;
    assert!(page.lines().any(|shown| shown == line), "{page}");

    let etag = app.get("/pipelines/films/status").await.header("etag").to_owned();
    app.announce(&["marts"], &[]).await;
    let known = app.request(Method::GET, "/pipelines/films/status").header("if-none-match", &etag);
    let changed = crate::app::send(known).await.assert(200);
    assert_eq!(changed.body["waiting"]["code"], "runner.no_connection");
    app.announce(&["marts", "source"], &[]).await;
    assert_eq!(app.waiting("films").await, Value::Null);
    app.claim().await;
    let page = app.request(Method::GET, "/metrics").send().await.unwrap().text().await.unwrap();
    assert!(!page.contains("vitrina_pipeline_waiting{"), "{page}");
}

#[tokio::test]
async fn whoever_saves_a_pipeline_is_warned_of_what_no_living_runner_has() {
    let app = App::start().await;
    app.store.announce(&RunnerAbilities { connections: vec!["marts".into()], ..runner() }, 1).await.unwrap();
    let created = app.create_pipeline("films").await.body;
    assert_eq!(codes(&created["warnings"]), [("runner.no_connection", "")], "{created}");
    let warning = &created["warnings"][0];
    assert_eq!(warning["severity"], "warning");
    assert_eq!(warning["detail"], r#"its runs would wait: no live runner has connection "source""#);
    assert_eq!(warning["hint"], "start one with VITRINA_CONNECTIONS_SOURCE_URL");

    app.announce(&["source", "marts"], &[]).await;
    let tasks = json!([{"order_index": 1, "task_type": "SQL", "body": QUERY}, {"order_index": 2, "task_type": "PYTHON", "body": "clean"}]);
    let edit = json!({"source_query": null, "tasks": tasks});
    let edited = app.patch("/pipelines/films", "*", &edit).await.assert(200).body;
    assert_eq!(codes(&edited["warnings"]), [("runner.no_function", "")], "{edited}");
    app.announce(&["source", "marts"], &["clean"]).await;
    let edited = app.patch("/pipelines/films", "*", &json!({"description": "x"})).await.assert(200).body;
    assert_eq!(edited["warnings"], json!([]));
    app.store.farewell("r1").await.unwrap();
    let disabled = app.patch("/pipelines/films", "*", &json!({"enabled": false})).await.assert(200).body;
    assert_eq!(disabled["warnings"], json!([]), "it does not run");
}

#[tokio::test]
async fn a_plan_warns_of_pipelines_that_no_living_runner_could_execute() {
    let app = App::start().await;
    let tasks = json!([{"order_index": 1, "task_type": "SQL", "body": QUERY}, {"order_index": 2, "task_type": "PYTHON", "body": "clean"}]);
    let files = json!({"pipelines": [
        {"name": "films", "target_table": "analytics.film_dim", "source_query": QUERY},
        {"name": "cleaned", "target_table": "analytics.cleaned", "tasks": tasks},
    ]});
    let plan = async || app.post_json("/plan", &files).await.assert(200).body;
    let planned = plan().await;
    assert_eq!(planned["ok"], true);
    assert_eq!(codes(&planned["checks"]), [("runner.none", "")], "said once: {planned}");
    app.announce(&["source", "marts"], &[]).await;
    assert_eq!(codes(&plan().await["checks"]), [("runner.no_function", "/pipelines/1")]);
    app.announce(&["source", "marts"], &["clean"]).await;
    assert_eq!(plan().await["checks"], json!([]));
}

#[tokio::test]
async fn a_pipeline_that_names_no_source_reads_the_only_one_there_is() {
    let app = App::start_as(None, renamed).await;
    let body = json!({"name": "films", "target_table": "analytics.film_dim", "source_query": QUERY});
    let created = app.post_json("/pipelines", &body).await.assert(201).body;
    assert_eq!(created["source_connection"], "cinema");
    let plan = app.post_json("/plan", &json!({"pipelines": [body]})).await.assert(200).body;
    assert_eq!(plan["changes"], json!([]), "a file that names none means the same");
    let edited = app.patch("/pipelines/films", "*", &json!({"source_connection": null})).await.assert(200);
    assert_eq!(edited.body["source_connection"], "cinema");
    let sample = app.post_json("/preview", &json!({"pipeline": body})).await;
    sample.assert(200);
}

#[tokio::test]
async fn of_several_sources_a_pipeline_names_one() {
    let app = App::start_as(None, |settings| {
        renamed(settings);
        let second = settings.source_connections["cinema"].clone();
        settings.source_connections.insert("ugc".to_owned(), second);
    })
    .await;
    let body = json!({"name": "films", "target_table": "analytics.film_dim", "source_query": QUERY});
    let refused = app.post_json("/pipelines", &body).await.assert_problem(422, "pipeline.invalid");
    assert_eq!(refused.faults(), [("/source_connection", "pipeline.source_connection")]);
    assert!(refused.body["errors"][0]["detail"].as_str().unwrap().contains("one of cinema, ugc"));
}
