//! Parameters and headers are what the document says of them, and nothing besides is silently ignored.

use reqwest::Method;
use rstest::rstest;
use serde_json::json;

use crate::app::{App, send};

#[rstest]
#[case::a_dry_run_that_there_is_not(Method::DELETE, "/pipelines/films?dry_run=true", "dry_run")]
#[case::a_mode_outside_the_body(Method::POST, "/pipelines/films/run?mode=full", "mode")]
#[case::a_reason_outside_the_body(Method::POST, "/pipelines/films/pause?reason=late", "reason")]
#[case::a_filter_that_there_is_not(Method::GET, "/targets?name=analytics.film_dim", "name")]
#[case::a_page_that_there_is_not(Method::GET, "/runners?limit=5", "limit")]
#[case::at_the_versioned_path(Method::POST, "/api/v1/pipelines/films/enable?force", "force")]
#[tokio::test]
async fn a_parameter_that_a_call_does_not_take_is_an_error(
    #[case] method: Method,
    #[case] path: &str,
    #[case] name: &str,
) {
    let app = App::start().await;
    app.create_pipeline("films").await;
    let answer = send(app.request(method, path)).await.assert_problem(422, "request.invalid");
    assert!(answer.body["errors"][0]["detail"].as_str().unwrap().contains(name), "{}", answer.body);
    assert_eq!(app.status("films").await, "IDLE", "nothing was done");
}

#[tokio::test]
async fn who_may_not_call_is_told_that_and_not_which_parameters_there_are() {
    let app = App::start_with(Some("admin-token-0123456789")).await;
    send(app.anonymous(Method::GET, "/targets?x=1")).await.assert_problem(401, "access.unauthorized");
}

#[tokio::test]
async fn a_text_that_is_searched_for_has_at_most_200_characters() {
    let app = App::start().await;
    app.get(&format!("/pipelines?q={}", "%C3%A4".repeat(200))).await.assert(200);
    let answer = app.get(&format!("/pipelines?q={}", "a".repeat(201))).await;
    assert_eq!(answer.assert_problem(422, "request.invalid").faults(), [("q", "query.parameter")]);
}

#[rstest]
#[case("/audit?cursor=-1", "cursor")]
#[case("/audit?cursor=%2B1", "cursor")]
#[case("/audit?cursor=", "cursor")]
#[case("/audit?cursor=9999999999999999999", "cursor")]
#[case("/pipelines/films/metrics?window=%2B5h", "window")]
#[case("/pipelines/films/metrics?window=05h", "window")]
#[case("/pipelines/films/metrics?window=0h", "window")]
#[case("/pipelines/films/metrics?window=-1d", "window")]
#[tokio::test]
async fn a_number_in_a_parameter_is_digits_alone(#[case] path: &str, #[case] name: &str) {
    let app = App::start().await;
    app.create_pipeline("films").await;
    let answer = app.get(path).await.assert_problem(422, "request.invalid");
    assert_eq!(answer.faults(), [(name, "query.parameter")]);
}

#[tokio::test]
async fn a_version_in_a_header_is_digits_alone() {
    let app = App::start().await;
    app.create_pipeline("films").await;
    for version in ["+1", "-1", "\"+1\"", "\"1", "\"\"", "9999999999999999999", "1, 2"] {
        let answer = app.patch("/pipelines/films", version, &json!({"batch_size": 5})).await;
        answer.assert_problem(400, "request.header");
    }
    app.patch("/pipelines/films", "1", &json!({"batch_size": 5})).await.assert(200);
}

#[tokio::test]
async fn an_idempotency_key_is_of_visible_characters_and_spaces() {
    let app = App::start().await;
    app.create_pipeline("films").await;
    let run = |key: &str| app.request(Method::POST, "/pipelines/films/run").header("idempotency-key", key);
    send(run("a\tb")).await.assert_problem(400, "request.header");
    send(run("load of 1 May")).await.assert(202);
}
