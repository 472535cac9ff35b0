//! Who may call (INTERFACES, Access).

use reqwest::Method;
use serde_json::json;
use vitrina_store::Role;

use crate::app::{App, send};

const ADMIN: &str = "correct-horse-battery-staple";

#[tokio::test]
async fn missing_and_invalid_tokens_are_answered_alike() {
    let app = App::start_with(Some(ADMIN)).await;
    let call = || app.anonymous(Method::GET, "/api/v1/pipelines").header("x-request-id", "same");
    let missing = send(call()).await.assert_problem(401, "access.unauthorized");
    assert_eq!(missing.header("www-authenticate"), "Bearer");
    for header in ["Bearer wrong", "Bearer", "Bearer ", "Basic YTpi", "", ADMIN] {
        let invalid =
            send(call().header("authorization", header)).await.assert_problem(401, "access.unauthorized");
        assert_eq!(invalid.body, missing.body, "{header}");
    }
    send(call().bearer_auth(ADMIN)).await.assert(200);
}

#[tokio::test]
async fn a_role_may_do_what_it_is_for_and_no_more() {
    let app = App::start_with(Some(ADMIN)).await;
    app.create_pipeline("films").await;
    app.store.put_token("looker", Role::Viewer, "v", None).await.unwrap();
    app.store.put_token("doer", Role::Operator, "o", None).await.unwrap();
    let calls = [
        (Method::GET, "/pipelines/films", 0),
        (Method::GET, "/pipelines/films/state", 0),
        (Method::GET, "/pipelines/films/rejects", 0),
        (Method::GET, "/runners", 0),
        (Method::GET, "/openapi.json", 0),
        (Method::POST, "/pipelines/films/disable", 1),
        (Method::POST, "/pipelines/films/enable", 1),
        (Method::POST, "/pipelines/films/run", 1),
        (Method::POST, "/pipelines/films/pause", 1),
        (Method::POST, "/pipelines/films/cancel", 1),
        (Method::POST, "/pipelines/films/rejects/acknowledge", 1),
        (Method::POST, "/pipelines/films/rejects/discard", 1),
        (Method::POST, "/pipelines/films/rejects/retry", 1),
        (Method::POST, "/pipelines", 2),
        (Method::DELETE, "/pipelines/films", 2),
    ];
    for (method, path, needed) in calls {
        for (role, token) in ["v", "o"].into_iter().enumerate() {
            let answer = send(app.anonymous(method.clone(), path).bearer_auth(token)).await;
            assert_eq!(answer.status == 403, role < needed, "{method} {path} by {token}: {}", answer.body);
        }
        send(app.anonymous(method, path)).await.assert_problem(401, "access.unauthorized");
    }
    app.delete("/pipelines/films").await.assert(204);
    let actors = app.database.texts("select distinct actor from etl.etl_audit order by 1").await;
    assert_eq!(actors, [[Some("admin".to_owned())], [Some("doer".to_owned())]]);
}

#[tokio::test]
async fn probes_need_no_token_and_nothing_else_is_exempt() {
    let app = App::start_with(Some(ADMIN)).await;
    for path in ["/health", "/health/live", "/health/ready", "/version", "/api/v1/health"] {
        send(app.anonymous(Method::GET, path)).await.assert(200);
    }
    for path in ["/pipelines/health", "/pipelines/version", "/pipelines/x/status", "/runs/health"] {
        send(app.anonymous(Method::GET, path)).await.assert_problem(401, "access.unauthorized");
    }
}

#[tokio::test]
async fn a_browser_is_shown_where_to_go_without_a_token() {
    let app = App::start_with(Some(ADMIN)).await;
    let page = app.anonymous(Method::GET, "/").send().await.unwrap();
    assert_eq!(
        (page.status().as_u16(), &page.headers()["content-type"]),
        (200, &"text/html; charset=utf-8".parse().unwrap())
    );
    let text = page.text().await.unwrap();
    for link in ["/api/v1/openapi.json", "/health", "/pipelines"] {
        assert!(text.contains(&format!("href=\"{link}\"")), "{link}");
        app.get(link).await.assert(200);
    }
}

#[tokio::test]
async fn a_token_for_an_open_server_is_not_taken_for_known() {
    let app = App::start().await;
    for header in ["Bearer mine", "Basic YTpi"] {
        let call = app.anonymous(Method::GET, "/pipelines").header("authorization", header);
        let answer = send(call).await.assert_problem(401, "access.unauthorized");
        assert!(answer.body["detail"].as_str().unwrap().contains("has no tokens"), "{}", answer.body);
        assert!(answer.body["hint"].as_str().unwrap().contains("unset VITRINA_API_TOKEN"), "{}", answer.body);
    }
    let call =
        app.anonymous(Method::GET, "/pipelines").bearer_auth("mine").header("origin", "https://example.com");
    send(call).await.assert_problem(403, "access.origin");
}

#[tokio::test]
async fn an_open_server_keeps_foreign_pages_out() {
    let app = App::start().await;
    let run = || app.anonymous(Method::POST, "/pipelines/films/run");
    send(run().header("host", "rebound.example.com")).await.assert_problem(403, "access.host");
    send(run().header("origin", "https://example.com")).await.assert_problem(403, "access.origin");
    send(run().header("origin", &app.base)).await.assert_problem(404, "pipeline.not_found");
}

#[tokio::test]
async fn the_first_token_closes_an_open_server_at_once() {
    let app = App::start().await;
    app.get("/pipelines").await.assert(200);
    app.store.put_token("someone", Role::Viewer, "secret", None).await.unwrap();
    app.get("/pipelines").await.assert_problem(401, "access.unauthorized");
}

#[tokio::test]
async fn no_answer_shows_a_secret() {
    let app = App::start_with(Some(ADMIN)).await;
    app.create_pipeline("films").await;
    let stored = app.database.texts("select t::text from etl.etl_tokens t").await;
    assert!(!stored[0][0].as_deref().unwrap().contains(ADMIN));
    for path in ["/pipelines", "/pipelines/films", "/pipelines/films/status", "/health", "/runners"] {
        let answer = app.get(path).await.assert(200);
        let text = json!(answer.body).to_string();
        assert!(!text.contains(ADMIN) && !text.contains("postgres://"), "{path}: {text}");
    }
}
