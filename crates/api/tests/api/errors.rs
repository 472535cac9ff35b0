//! Bad input is the caller's error, said in one shape, and never a 500 (INTERFACES, Errors).

use reqwest::Method;
use rstest::rstest;
use serde_json::{Value, json};
use vitrina_testbed::Database;

use crate::app::{App, QUERY, send};

#[tokio::test]
async fn a_problem_has_all_its_parts() {
    let app = App::start().await;
    let call = app.request(Method::GET, "/pipelines/nowhere").header("x-request-id", "abc-1");
    let answer = send(call).await.assert_problem(404, "pipeline.not_found");
    let expected = json!({
        "type": "urn:vitrina:problem:pipeline.not_found", "title": "Not Found", "status": 404,
        "code": "pipeline.not_found", "detail": "there is no pipeline nowhere", "errors": [], "request_id": "abc-1",
    });
    assert_eq!(answer.body, expected);
}

#[tokio::test]
async fn an_unknown_field_is_an_error() {
    let app = App::start().await;
    let body = json!({"name": "x", "target_table": "analytics.x", "source_query": QUERY, "batchsize": 5});
    let answer = app.post_json("/pipelines", &body).await.assert_problem(422, "request.invalid");
    assert_eq!(answer.faults(), [("/batchsize", "body.field")]);
    assert!(answer.body["errors"][0]["detail"].as_str().unwrap().contains("unknown field `batchsize`"));
    app.create_pipeline("films").await;
    let body = json!({"modus": "full"});
    app.post_json("/pipelines/films/run", &body).await.assert_problem(422, "request.invalid");
}

#[rstest]
#[case::null_name(json!({"name": null}), "/name")]
#[case::unknown_mode(json!({"mode": "fast"}), "/mode")]
#[case::unknown_way_of_reading(json!({"read": "offset"}), "/read")]
#[case::unknown_first_load(json!({"first_load": "truncate"}), "/first_load")]
#[case::fraction_of_a_row(json!({"reject_limit": 0.5}), "/reject_limit")]
#[case::huge_batch_size(json!({"batch_size": 1e12}), "/batch_size")]
#[case::text_for_a_list(json!({"tags": "a"}), "/tags")]
#[case::task_without_order(json!({"tasks": [{"task_type": "SQL"}]}), "/tasks/0")]
#[case::no_object(json!([]), "")]
#[tokio::test]
async fn a_value_of_the_wrong_kind_is_pointed_at(#[case] body: Value, #[case] pointer: &str) {
    let app = App::start().await;
    let answer = app.post_json("/pipelines", &body).await.assert_problem(422, "request.invalid");
    assert_eq!(answer.faults(), [(pointer, "body.field")], "{}", answer.body);
}

#[rstest]
#[case::array(json!([]))]
#[case::array_of_values(json!(["full", "join"]))]
#[case::null(json!(null))]
#[case::number(json!(5))]
#[case::text(json!("full"))]
#[tokio::test]
async fn a_body_that_is_no_object_is_told_so(#[case] body: Value) {
    let app = App::start().await;
    app.create_pipeline("films").await;
    for path in ["/pipelines", "/pipelines/films/run", "/pipelines/films/pause", "/pipelines/films/cancel"] {
        let answer = app.post_json(path, &body).await.assert_problem(422, "request.invalid");
        assert_eq!(answer.body["errors"][0]["detail"], "the body must be a JSON object", "{path}");
    }
    assert_eq!(app.status("films").await, "IDLE");
}

#[rstest]
#[case(json!({"tasks": [5]}), "invalid type: integer `5`, expected an object")]
#[case(json!({"tasks": [[]]}), "invalid length 0, expected an object")]
#[case(json!({"mode": 5}), "expected value")]
#[case(json!({"capture": ["cursor"]}), "expected value")]
#[tokio::test]
async fn no_message_names_a_type_of_the_code(#[case] body: Value, #[case] detail: &str) {
    let app = App::start().await;
    let answer = app.post_json("/pipelines", &body).await.assert_problem(422, "request.invalid");
    assert_eq!(answer.body["errors"][0]["detail"], detail, "{}", answer.body);
}

#[tokio::test]
async fn bad_json_is_400_with_its_place() {
    let app = App::start().await;
    for text in ["{", "{\"name\": \n nope}", "{} {}", "", "\u{1}"] {
        let call = app.request(Method::POST, "/pipelines").header("content-type", "application/json");
        let answer = send(call.body(text)).await.assert_problem(400, "request.json");
        assert_eq!(answer.faults(), [("", "body.syntax")], "{text}");
    }
}

#[tokio::test]
async fn a_body_of_another_type_is_415() {
    let app = App::start().await;
    app.create_pipeline("films").await;
    for path in ["/pipelines", "/pipelines/films/run"] {
        let call = app.request(Method::POST, path).body("{}");
        send(call).await.assert_problem(415, "request.media_type");
        let call = app.request(Method::POST, path).header("content-type", "text/plain").body("{}");
        send(call).await.assert_problem(415, "request.media_type");
    }
}

#[tokio::test]
async fn a_body_over_the_limit_is_413() {
    let app = App::start().await;
    let body = json!({"name": "x".repeat(1024 * 1024)});
    app.post_json("/pipelines", &body).await.assert_problem(413, "request.too_large");
}

#[tokio::test]
async fn an_unknown_method_is_405_and_lists_the_known_ones() {
    let app = App::start().await;
    for path in ["/pipelines", "/api/v1/pipelines/"] {
        let answer = send(app.request(Method::PUT, path)).await.assert_problem(405, "method.not_allowed");
        let allow = answer.header("allow");
        assert!(allow.contains("GET") && allow.contains("POST"), "{allow}");
    }
    app.get("/pipelines/films/run").await.assert_problem(405, "method.not_allowed");
}

#[tokio::test]
async fn an_unknown_path_is_404_and_never_a_redirect() {
    let app = App::start().await;
    for path in
        ["/documents", "/nothing", "/api/v1", "/api/v2/pipelines", "/pipelines/x/figures", "/pipelines/x/y/z"]
    {
        app.get(path).await.assert_problem(404, "path.not_found");
    }
}

#[tokio::test]
async fn the_character_nul_is_the_callers_error() {
    let app = App::start().await;
    let body =
        json!({"name": "x", "target_table": "analytics.x", "source_query": QUERY, "description": "a\0b"});
    let answer = app.post_json("/pipelines", &body).await.assert_problem(422, "request.invalid");
    assert_eq!(answer.faults(), [("/description", "body.nul")]);
    let deep =
        json!({"pipelines": [{"name": "x"}, {"name": "y", "tasks": [{"order_index": 1, "body": "a\0"}]}]});
    let answer = app.post_json("/plan", &deep).await.assert_problem(422, "request.invalid");
    assert_eq!(answer.faults(), [("/pipelines/1/tasks/0/body", "body.nul")]);
    app.get("/pipelines/a%00b").await.assert_problem(404, "pipeline.not_found");
    app.get("/pipelines/%ff").await.assert_problem(404, "pipeline.not_found");
    let body = json!({"name": "x", "target_table": "analytics.x", "source_query": QUERY, "description": r"a\u0000b"});
    app.post_json("/pipelines", &body).await.assert(201);
}

#[rstest]
#[case("/pipelines?colour=red", "colour")]
#[case("/pipelines?status=BUSY", "status")]
#[case("/pipelines?limit=0", "limit")]
#[case("/pipelines?limit=501", "limit")]
#[case("/pipelines/films/status?wait=61", "wait")]
#[case("/pipelines/films/status?wait=-1", "wait")]
#[case("/pipelines/films/runs?limit=0", "limit")]
#[case("/pipelines/films/runs?limit=many", "limit")]
#[tokio::test]
async fn a_parameter_that_cannot_be_honoured_is_an_error(#[case] path: &str, #[case] name: &str) {
    let app = App::start().await;
    app.create_pipeline("films").await;
    let answer = app.get(path).await.assert_problem(422, "request.invalid");
    assert_eq!(answer.faults(), [(name, "query.parameter")], "{}", answer.body);
}

#[tokio::test]
async fn a_parameter_that_does_not_exist_keeps_a_call_from_doing_anything() {
    let app = App::start().await;
    let body = json!({"name": "x", "target_table": "analytics.x", "source_query": QUERY});
    app.post_json("/pipelines?dryrun=true", &body).await.assert_problem(422, "request.invalid");
    app.get("/pipelines/x").await.assert(404);
}

#[tokio::test]
async fn an_unusable_idempotency_key_is_an_error() {
    let app = App::start().await;
    app.create_pipeline("films").await;
    for key in [String::new(), "x".repeat(256)] {
        let call = app.request(Method::POST, "/pipelines/films/run").header("idempotency-key", key);
        send(call).await.assert_problem(400, "request.header");
    }
}

#[tokio::test]
async fn a_lost_meta_store_is_503_without_its_words() {
    let app = App::start().await;
    app.server_store.close().await;
    let answer = app.get("/pipelines").await.assert_problem(503, "meta_store.unavailable");
    assert_eq!(answer.header("retry-after"), "5");
}

#[tokio::test]
async fn a_database_that_takes_no_connections_or_is_gone_is_503() {
    let app = App::start().await;
    let (name, elsewhere) = (app.database.name(), Database::fresh().await);
    elsewhere.execute(&format!("alter database {name} allow_connections false")).await;
    let sessions =
        format!("select pg_terminate_backend(pid, 5000) from pg_stat_activity where datname = '{name}'");
    elsewhere.execute(&sessions).await;
    let answer = app.get("/pipelines").await.assert_problem(503, "meta_store.unavailable");
    assert_eq!(answer.header("retry-after"), "5");
    elsewhere.execute(&format!("alter database {name} rename to {name}_away")).await;
    let answer = app.get("/pipelines").await.assert_problem(503, "meta_store.unavailable");
    assert_eq!(answer.header("retry-after"), "5");
    elsewhere.execute(&format!("alter database {name}_away rename to {name}")).await;
}

#[tokio::test]
async fn a_pipeline_that_stays_locked_is_503() {
    let app = App::start().await;
    app.create_pipeline("films").await;
    let lock = app.database.client().await;
    lock.batch_execute("begin; select from etl.etl_pipelines for update").await.unwrap();
    let answer = app.post("/pipelines/films/run").await.assert_problem(503, "pipeline.busy");
    assert_eq!(answer.header("retry-after"), "5");
}

#[tokio::test]
async fn what_the_database_says_does_not_reach_the_client() {
    let app = App::start().await;
    app.database.execute("alter table etl.etl_pipelines rename to hidden").await;
    let answer = app.get("/pipelines").await.assert_problem(500, "internal");
    let text = answer.body.to_string();
    assert!(!text.contains("etl_pipelines") && !text.contains("relation"), "{text}");
}

#[tokio::test]
async fn every_answer_has_an_id_and_the_security_headers() {
    let app = App::start().await;
    for path in ["/version", "/pipelines", "/nothing"] {
        let answer = app.get(path).await;
        assert_eq!(answer.header("x-request-id").len(), 36);
        assert_eq!(answer.header("x-content-type-options"), "nosniff");
        assert_eq!(answer.header("x-frame-options"), "DENY");
        assert_eq!(answer.header("cache-control"), "no-store");
    }
    let own = send(app.request(Method::GET, "/version").header("x-request-id", "mine")).await;
    assert_eq!(own.header("x-request-id"), "mine");
    let unusable = send(app.request(Method::GET, "/version").header("x-request-id", "a b")).await;
    assert_eq!(unusable.header("x-request-id").len(), 36);
}
