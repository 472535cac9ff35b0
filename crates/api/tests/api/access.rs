//! Who may call (INTERFACES, Access).

use reqwest::Method;
use serde_json::json;
use vitrina_store::{NewToken, Role};

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
    app.store.put_token(&NewToken::of("looker", Role::Viewer, "v")).await.unwrap();
    app.store.put_token(&NewToken::of("doer", Role::Operator, "o")).await.unwrap();
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
    let actors: Vec<&str> = actors.iter().filter_map(|row| row[0].as_deref()).collect();
    assert_eq!(actors, ["VITRINA_ADMIN_TOKEN", "admin", "doer"]);
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
    app.store.put_token(&NewToken::of("someone", Role::Viewer, "secret")).await.unwrap();
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

/// What a call says of itself: `GET /api/v1/pipelines` and the role it needs, if any.
async fn documented(app: &App) -> Vec<(Method, String, Option<Role>)> {
    let document = app.get("/openapi.json").await.assert(200).body;
    let mut calls = Vec::new();
    for (path, item) in document["paths"].as_object().unwrap() {
        for (method, call) in item.as_object().unwrap() {
            let description = call["description"].as_str().unwrap_or_default();
            let role = [Role::Viewer, Role::Operator, Role::Admin]
                .into_iter()
                .find(|role| description.contains(&format!("Needs the role {}.", role.as_str())));
            assert_eq!(role.is_some(), call["security"].is_array(), "{method} {path}");
            let method = Method::from_bytes(method.to_uppercase().as_bytes()).unwrap();
            calls.push((method, path.clone(), role));
        }
    }
    calls
}

#[tokio::test]
async fn every_documented_call_is_refused_without_a_token_and_to_lesser_roles() {
    let app = App::start_with(Some(ADMIN)).await;
    app.store.put_token(&NewToken::of("looker", Role::Viewer, "v")).await.unwrap();
    app.store.put_token(&NewToken::of("doer", Role::Operator, "o")).await.unwrap();
    let calls = documented(&app).await;
    let open: Vec<&str> = calls.iter().filter(|call| call.2.is_none()).map(|call| call.1.as_str()).collect();
    assert_eq!(open, ["/api/v1/health", "/api/v1/health/live", "/api/v1/health/ready", "/api/v1/version"]);
    assert!(calls.len() > 40, "{}", calls.len());
    for (method, path, needed) in calls {
        let Some(needed) = needed else { continue };
        let some = "00000000-0000-0000-0000-000000000000";
        let path =
            ["{p}", "{id}", "{t}", "{c}", "{name}"].iter().fold(path, |path, name| path.replace(name, some));
        // An event stream would never end.
        let refused_only = path.ends_with("/events");
        for spelled in [path.clone(), path.replace("/api/v1", "")] {
            let call = || app.anonymous(method.clone(), &spelled).json(&json!({}));
            send(call()).await.assert_problem(401, "access.unauthorized");
            for (role, token) in [(Role::Viewer, "v"), (Role::Operator, "o")] {
                if role < needed {
                    send(call().bearer_auth(token)).await.assert_problem(403, "access.forbidden");
                } else if !refused_only {
                    let status = send_any(call().bearer_auth(token)).await;
                    // Of rows, who only looks sees none.
                    let refused = spelled.ends_with("/differences") && role == Role::Viewer;
                    assert_eq!(status == 403, refused, "{method} {spelled} by {token}");
                    assert!(![401, 500].contains(&status), "{method} {spelled} by {token}: {status}");
                }
            }
        }
    }
    send(app.anonymous(Method::GET, "/docs")).await.assert_problem(401, "access.unauthorized");
}

/// Not every answer is JSON.
async fn send_any(request: reqwest::RequestBuilder) -> u16 {
    request.send().await.unwrap().status().as_u16()
}

#[tokio::test]
async fn a_token_ends_when_it_is_revoked_and_when_its_time_is_over() {
    let app = App::start_with(Some(ADMIN)).await;
    let call = || app.anonymous(Method::GET, "/pipelines").bearer_auth("v");
    let expires_at = Some(jiff::Timestamp::now() + jiff::SignedDuration::from_hours(1));
    let token = NewToken { expires_at, ..NewToken::of("looker", Role::Viewer, "v") };
    app.store.put_token(&token).await.unwrap();
    send(call()).await.assert(200);
    app.database
        .execute("update etl.etl_tokens set expires_at = now() - interval '1 second' where name = 'looker'")
        .await;
    send(call()).await.assert_problem(401, "access.unauthorized");
    app.store.put_token(&NewToken::of("looker", Role::Viewer, "v")).await.unwrap();
    send(call()).await.assert(200);
    let used: bool =
        app.database.value("select last_used_at is not null from etl.etl_tokens where name = 'looker'").await;
    assert!(used);
    app.store.revoke_token("looker").await.unwrap();
    send(call()).await.assert_problem(401, "access.unauthorized");
}

#[tokio::test]
async fn a_token_that_is_given_a_lesser_role_has_no_more_from_then_on() {
    let app = App::start_with(Some(ADMIN)).await;
    let call = || app.anonymous(Method::GET, "/audit").bearer_auth("v");
    app.store.put_token(&NewToken::of("looker", Role::Admin, "v")).await.unwrap();
    send(call()).await.assert(200);
    app.store.put_token(&NewToken::of("looker", Role::Viewer, "v")).await.unwrap();
    send(call()).await.assert_problem(403, "access.forbidden");
}

#[tokio::test]
async fn a_caller_that_asks_too_often_waits_and_others_do_not() {
    let app = App::start_as(Some(ADMIN), |settings| settings.rate_limit = 20).await;
    app.store.put_token(&NewToken::of("looker", Role::Viewer, "v")).await.unwrap();
    let mut limited = None;
    for _ in 0..2000 {
        let answer = app.get("/runners").await;
        if answer.status == 429 {
            limited = Some(answer);
            break;
        }
    }
    let limited = limited.expect("a limit").assert_problem(429, "rate.limited");
    assert_eq!(limited.header("retry-after"), "1");
    send(app.anonymous(Method::GET, "/runners").bearer_auth("v")).await.assert(200);
    send(app.anonymous(Method::GET, "/health/live")).await.assert(200);
}

#[tokio::test]
async fn every_answer_carries_the_headers_that_keep_browsers_in_check() {
    let app = App::start_with(Some(ADMIN)).await;
    for path in ["/pipelines", "/nothing", "/health/live", "/"] {
        let answer = app.request(Method::GET, path).send().await.unwrap();
        let header = |name: &str| answer.headers().get(name).map(|value| value.to_str().unwrap().to_owned());
        assert_eq!(
            header("content-security-policy").as_deref(),
            Some("default-src 'none'; frame-ancestors 'none'"),
            "{path}"
        );
        assert_eq!(header("x-content-type-options").as_deref(), Some("nosniff"), "{path}");
        assert_eq!(header("referrer-policy").as_deref(), Some("no-referrer"), "{path}");
        assert_eq!(header("cache-control").as_deref(), Some("no-store"), "{path}");
        assert!(header("x-request-id").is_some() && header("strict-transport-security").is_none(), "{path}");
    }
}

#[tokio::test]
async fn the_documentation_is_a_page_of_its_own_without_scripts() {
    let app = App::start_with(Some(ADMIN)).await;
    let answer = app.request(Method::GET, "/docs").send().await.unwrap();
    assert_eq!(answer.headers()["content-type"], "text/html; charset=utf-8");
    assert!(answer.headers()["content-security-policy"].to_str().unwrap().starts_with("default-src 'none'"));
    let page = answer.text().await.unwrap();
    for (method, path, _) in documented(&app).await {
        assert!(
            page.contains(&format!("<b class=\"{method}\">{method}</b> <code>{path}</code>")),
            "{method} {path}"
        );
    }
    assert!(!page.contains("<script") && !page.contains("http://") && !page.contains("https://"));
}

#[tokio::test]
async fn a_closed_server_stays_closed_when_its_last_token_is_revoked() {
    let app = App::start_with(Some(ADMIN)).await;
    app.get("/pipelines").await.assert(200);
    app.store.revoke_token("admin").await.unwrap();
    send(app.anonymous(Method::GET, "/pipelines")).await.assert_problem(401, "access.unauthorized");
    app.get("/pipelines").await.assert_problem(401, "access.unauthorized");
}

#[tokio::test]
async fn who_tries_tokens_that_nobody_knows_is_logged_counted_and_slowed() {
    let app = App::start_with(Some(ADMIN)).await;
    app.store.put_token(&NewToken::of("looker", Role::Viewer, "v")).await.unwrap();
    let tried = |token: &str| send(app.anonymous(Method::GET, "/pipelines").bearer_auth(token.to_owned()));
    tried("v").await.assert(200);
    let mut slowed = None;
    for number in 0..30 {
        let answer = tried(&format!("wrong-{number}")).await;
        if answer.status == 429 {
            slowed = Some(answer);
            break;
        }
        answer.assert_problem(401, "access.unauthorized");
    }
    let slowed = slowed.expect("a limit").assert_problem(429, "access.slowed");
    assert_eq!(slowed.header("retry-after"), "1");
    tried("v").await.assert(200);
    let metrics =
        app.anonymous(Method::GET, "/metrics").bearer_auth("v").send().await.unwrap().text().await.unwrap();
    assert!(metrics.contains("vitrina_api_failed_logins_total 10"), "{metrics}");
}

#[tokio::test]
async fn a_stream_of_events_ends_at_once_when_its_token_is_revoked_or_changed() {
    let app = App::start_with(Some(ADMIN)).await;
    for change in ["revoked", "expired", "lesser"] {
        app.store.put_token(&NewToken::of("looker", Role::Operator, "v")).await.unwrap();
        let mut listener = crate::events::Listener::of(&app, "v").await;
        let ended = listener.ends();
        let changed = async {
            match change {
                "revoked" => _ = app.store.revoke_token("looker").await.unwrap(),
                "expired" => {
                    app.database
                        .execute("update etl.etl_tokens set expires_at = now() where name = 'looker'")
                        .await;
                }
                _ => app.store.put_token(&NewToken::of("looker", Role::Viewer, "v")).await.unwrap(),
            }
        };
        let both = async { tokio::join!(ended, changed) };
        tokio::time::timeout(std::time::Duration::from_secs(10), both).await.expect(change);
    }
}

/// Of an expiry nobody is notified.
#[tokio::test]
async fn streams_and_calls_that_wait_end_when_the_time_of_their_token_is_over() {
    let app = App::start_with(Some(ADMIN)).await;
    app.create_pipeline("films").await;
    let run = app.run("films").await;
    let expires_at = Some(jiff::Timestamp::now() + jiff::SignedDuration::from_secs(4));
    let token = NewToken { expires_at, ..NewToken::of("looker", Role::Operator, "v") };
    app.store.put_token(&token).await.unwrap();
    let mut listener = crate::events::Listener::of(&app, "v").await;
    let waits = app.anonymous(Method::GET, &format!("/runs/{run}?wait=60")).bearer_auth("v");
    let began = std::time::Instant::now();
    let (answer, ()) = tokio::join!(send(waits), listener.ends());
    answer.assert_problem(401, "access.unauthorized");
    let took = began.elapsed();
    assert!((3..8).contains(&took.as_secs()), "{took:?}");
}

#[tokio::test]
async fn a_token_whose_time_is_made_longer_loses_nothing() {
    let app = App::start_with(Some(ADMIN)).await;
    let run = {
        app.create_pipeline("films").await;
        app.run("films").await
    };
    let expires_at = Some(jiff::Timestamp::now() + jiff::SignedDuration::from_secs(3));
    let token = NewToken { expires_at, ..NewToken::of("looker", Role::Operator, "v") };
    app.store.put_token(&token).await.unwrap();
    let waits = app.anonymous(Method::GET, &format!("/runs/{run}?wait=5")).bearer_auth("v");
    let prolonged = app.database.execute("update etl.etl_tokens set expires_at = null where name = 'looker'");
    let (answer, ()) = tokio::join!(send(waits), prolonged);
    answer.assert(200);
}

#[tokio::test]
async fn the_audit_only_grows_and_what_is_younger_than_90_days_stays() {
    let app = App::start().await;
    app.create_pipeline("films").await;
    let db = &app.database;
    let role = format!("service_{}", std::process::id());
    db.execute(&format!(
        "drop role if exists {role}; create role {role}; grant usage on schema etl to {role};
         grant select, insert, update, delete, truncate on all tables in schema etl to {role};
         grant execute on all functions in schema etl to {role};
         create function refused(statement text) returns text language plpgsql as $$
            begin execute statement; return 'done'; exception when insufficient_privilege then return sqlerrm; end $$;
         grant execute on function refused(text) to {role}"
    ))
    .await;
    for who in ["none", &role] {
        for statement in [
            "update etl.etl_audit set actor = ''nobody''",
            "delete from etl.etl_audit",
            "truncate etl.etl_audit",
        ] {
            let said: String = db.value(&format!(
                "with w as (select set_config('role', '{who}', false)) select refused('{statement}') from w"
            )).await;
            assert_eq!(said, "the audit is append-only", "{statement} by {who}");
        }
    }
    db.execute("reset role; alter table etl.etl_audit disable trigger keep_audit;
        insert into etl.etl_audit (at, actor, action, subject) values (now() - interval '100 days', 'old', 'a', 's');
        alter table etl.etl_audit enable trigger keep_audit").await;
    let before: i64 = db.value("select count(*) from etl.etl_audit").await;
    let forgotten: i64 = db.value("select etl.forget_audit('1 second')").await;
    assert_eq!((forgotten, before - 1), (1, db.value("select count(*) from etl.etl_audit").await));
    db.execute("insert into etl.etl_audit (at, actor, action, subject) values ('2001-01-01', 'x', 'a', 's')")
        .await;
    assert!(db.value::<bool>("select min(at) > now() - interval '1 hour' from etl.etl_audit").await);
    db.execute(&format!("drop owned by {role}; drop role {role}")).await;
}
