//! Targets that somebody describes (R-CFG-1).

use reqwest::Method;
use serde_json::json;

use crate::app::{App, QUERY, runner, send};

const FILMS: &str = "/api/v1/targets/analytics.film_dim";

#[tokio::test]
async fn a_target_is_described_shown_changed_and_forgotten() {
    let app = App::start().await;
    app.get(FILMS).await.assert_problem(404, "target.not_found");
    let answer =
        app.put_json(FILMS, &json!({"key": ["film_id"], "touch_column": "updated_at"})).await.assert(201);
    assert_eq!((answer.header("etag"), &answer.body["connection"]), ("\"1\"", &json!("marts")));
    let answer = app.put_json(FILMS, &json!({"key": ["film_id", "lang"]})).await.assert(200);
    assert_eq!((answer.header("etag"), &answer.body["touch_column"]), ("\"2\"", &json!(null)));
    let stale = app.request(Method::PUT, FILMS).header("if-match", "\"1\"").json(&json!({}));
    let answer = send(stale).await.assert_problem(412, "config.version_moved");
    assert_eq!(answer.body["current_version"], 2);
    let listed = app.get("/targets").await.assert(200).body;
    assert_eq!(
        (&listed["items"][0]["name"], &listed["items"][0]["key"]),
        (&json!("analytics.film_dim"), &json!(["film_id", "lang"]))
    );
    app.delete(FILMS).await.assert(204);
    app.delete(FILMS).await.assert_problem(404, "target.not_found");
    let audited: String = app
        .database
        .value("select string_agg(action || ' ' || subject, ',' order by id) from etl.etl_audit")
        .await;
    let film_dim = "target analytics.film_dim";
    assert_eq!(audited, format!("target.put {film_dim},target.put {film_dim},target.delete {film_dim}"));
}

/// RFC 9110, 13.1.1: without the header the call would create it, so the header is what fails.
#[tokio::test]
async fn an_if_match_never_creates_a_target() {
    let app = App::start().await;
    let put = |version: &str| app.request(Method::PUT, FILMS).header("if-match", version).json(&json!({}));
    for version in ["*", "\"1\""] {
        let answer = send(put(version)).await.assert_problem(412, "target.missing");
        assert!(answer.body["hint"].as_str().unwrap().contains("leave if-match out"), "{}", answer.body);
    }
    app.get(FILMS).await.assert_problem(404, "target.not_found");
    app.put_json(FILMS, &json!({})).await.assert(201);
    send(put("*")).await.assert(200);
    let delete = app.request(Method::DELETE, "/targets/analytics.nothing").header("if-match", "*");
    send(delete).await.assert_problem(404, "target.not_found");
}

#[tokio::test]
async fn only_allowed_targets_are_described_and_all_faults_are_told_at_once() {
    let app = App::start().await;
    let answer = app.put_json("/targets/auth.users", &json!({})).await.assert_problem(422, "target.invalid");
    assert_eq!(answer.faults(), [("/name", "target.not_allowed")]);
    let body = json!({"key": ["a", "a", " "], "mapping": {}, "connection": ""});
    let answer = app.put_json(FILMS, &body).await.assert_problem(422, "target.invalid");
    let pointers: Vec<&str> = answer.faults().iter().map(|fault| fault.0).collect();
    assert_eq!(pointers, ["/connection", "/key", "/key", "/mapping"]);
    let answer = app.put_json("/targets/es:films", &json!({"mapping": {"dynamic": "strict"}})).await;
    assert_eq!(answer.assert_problem(422, "target.invalid").faults(), [("/key", "target.field")]);
    let index =
        json!({"key": ["id"], "mapping": {"dynamic": "strict"}, "document": {"rename": {"title": "name"}}});
    let answer = app.put_json("/targets/es:films", &index).await.assert(201);
    assert_eq!(answer.body["connection"], "search");
    assert_eq!(answer.body["document"], json!({"rename": {"title": "name"}}));
    let twice = json!({"key": ["id"], "document": {"rename": {"a": "x", "b": "x"}, "omit": ["a"]}});
    let answer = app.put_json("/targets/es:films", &twice).await.assert_problem(422, "target.invalid");
    let pointers: Vec<&str> = answer.faults().iter().map(|fault| fault.0).collect();
    assert_eq!(pointers, ["/document/rename", "/document/omit"]);
    app.put_json(FILMS, &json!({"keys": []})).await.assert_problem(422, "request.invalid");
}

#[tokio::test]
async fn what_a_mart_is_shared_by_is_checked_and_shown() {
    let app = App::start().await;
    for (name, body, pointer) in [
        ("analytics.film_dim", json!({"key": ["id"], "shared": {"by": "rows"}}), "/shared/column"),
        (
            "analytics.film_dim",
            json!({"key": ["id"], "shared": {"by": "rows", "column": "tenant"}}),
            "/shared/column",
        ),
        (
            "analytics.film_dim",
            json!({"key": ["id"], "shared": {"by": "columns", "column": "id"}}),
            "/shared/column",
        ),
        ("es:films", json!({"key": ["id"], "shared": {"by": "columns"}}), "/shared"),
    ] {
        let answer =
            app.put_json(&format!("/targets/{name}"), &body).await.assert_problem(422, "target.invalid");
        assert_eq!(answer.faults(), [(pointer, "target.field")], "{body}");
    }
    let shared = json!({"key": ["tenant", "id"], "shared": {"by": "rows", "column": "tenant"}});
    let saved = app.put_json(FILMS, &shared).await.assert(201).body;
    assert_eq!(saved["shared"], shared["shared"]);
    let changed = app.put_json(FILMS, &json!({"key": ["id"], "shared": {"by": "columns"}})).await.assert(200);
    assert_eq!((changed.header("etag"), &changed.body["shared"]), ("\"2\"", &json!({"by": "columns"})));
    assert_eq!(app.put_json(FILMS, &json!({})).await.assert(200).body["shared"], json!(null));
}

#[tokio::test]
async fn a_target_that_a_pipeline_writes_to_is_not_forgotten() {
    let app = App::start().await;
    app.put_json(FILMS, &json!({"key": ["id"]})).await.assert(201);
    app.create_pipeline("films").await;
    let tasks =
        json!([{"order_index": 1, "task_type": "SQL", "body": QUERY, "target_table": "analytics.another"}]);
    let body = json!({"name": "planned", "target_table": "analytics.other", "tasks": tasks});
    app.post_json("/pipelines", &body).await.assert(201);
    // As a release left it that let two pipelines write to one mart.
    app.database.execute("update etl.etl_pipeline_tasks set target_table = 'analytics.film_dim'").await;
    assert_eq!(app.get(FILMS).await.body["pipelines"], json!(["films", "planned"]));
    let answer = app.delete(FILMS).await.assert_problem(409, "target.used");
    assert!(answer.body["detail"].as_str().unwrap().contains("films, planned"), "{}", answer.body);
}

#[tokio::test]
async fn how_a_target_stands_is_asked_of_a_runner_beside_the_rows_of_a_pipeline_that_writes_to_it() {
    let app = App::start().await;
    app.get("/targets/analytics.film_dim/standing").await.assert_problem(404, "target.not_found");
    app.put_json(FILMS, &json!({"key": ["id"]})).await.assert(201);
    app.create_pipeline("films").await;
    app.get("/targets/analytics.film_dim/standing").await.assert_problem(503, "runner.none");
    app.store.announce(&runner(), 4).await.unwrap();
    let wrong = app.get("/targets/analytics.film_dim/standing?pipeline=nobody").await;
    assert_eq!(wrong.assert_problem(422, "request.invalid").faults(), [("pipeline", "query.parameter")]);
    let seen = json!({"runner": "r1", "exists": true, "rows": 7, "index": null, "previous": null, "compared": true,
        "fields": [{"name": "id", "declared": "bigint", "live": "bigint", "differs": false}], "lacks": [], "problem": null});
    let looking = async {
        let mut wakeups = app.store.wakeups().await.unwrap();
        loop {
            if let Some(taken) =
                app.store.take_request(&runner(), std::time::Duration::from_secs(60)).await.unwrap()
            {
                app.store.answer(&taken, Ok(seen.clone())).await.unwrap();
                return taken;
            }
            wakeups.next().await;
        }
    };
    let (told, taken) = tokio::join!(app.get("/targets/analytics.film_dim/standing"), looking);
    let told = told.assert(200).body;
    assert_eq!((taken.kind.as_str(), &taken.payload["pipeline"]["name"]), ("standing", &json!("films")));
    assert_eq!((&told["pipeline"], &told["rows"]), (&json!("films"), &json!(7)));
    assert_eq!(told["fields"], seen["fields"]);
}
