//! What is told within a scope, for as long as it is.

use reqwest::Method;
use serde_json::{Value, json};
use vitrina_core::values::other_pipeline;
use vitrina_store::{NewToken, Role, Scope};

use super::{ADMIN, OTHERS, OWNER, Planted, THEIR_TARGET, THEIRS, team};
use crate::app::{App, QUERY, send};
use crate::events::Listener;

#[tokio::test]
async fn lists_within_a_scope_have_its_pipelines_only_on_every_page_and_in_every_order() {
    let app = App::of_teams().await;
    for (name, tags) in [
        ("a", &["x"][..]),
        ("b", &["films"]),
        ("c", &[]),
        ("d", &["search", "x"]),
        ("e", &["x", "y"]),
        ("f", &["Films"]),
    ] {
        app.tagged(name, &format!("analytics.mart_{name}"), tags).await;
        app.run(name).await;
    }
    for sort in ["name", "status", "updated_at", "last_run_at", "-name", "-last_run_at"] {
        let (mut names, mut cursor) = (Vec::new(), String::new());
        loop {
            let path = format!("/pipelines?limit=1&sort={sort}{cursor}");
            let page = app.seen("viewer", &path).await.assert(200).body;
            names.push(page["items"][0]["name"].as_str().unwrap_or("nothing").to_owned());
            let Some(next) = page["next_cursor"].as_str() else { break };
            cursor = format!("&cursor={}", next.replace(' ', "%20").replace(':', "%3A").replace('+', "%2B"));
        }
        names.sort();
        assert_eq!(names, ["b", "d"], "by {sort}");
    }
    for (query, expected) in [
        ("?q=a", vec![]),
        ("?tag=x", vec!["d"]),
        ("?tag=y", vec![]),
        ("?target=analytics.mart_a", vec![]),
        ("?target=analytics.mart_b", vec!["b"]),
        ("?cursor=a~a", vec!["b", "d"]),
        ("?status=RUN_REQUESTED", vec!["b", "d"]),
    ] {
        assert_eq!(app.names("viewer", &format!("/pipelines{query}"), "name").await, expected, "{query}");
    }
    assert_eq!(app.names("viewer", "/runs", "pipeline").await, ["d", "b"]);
    let first = app.seen("viewer", "/runs?limit=1").await.assert(200).body;
    let next = first["next_cursor"].as_str().unwrap();
    let second = app.seen("viewer", &format!("/runs?limit=1&cursor={next}")).await.assert(200).body;
    assert_eq!((&second["items"][0]["pipeline"], &second["next_cursor"]), (&json!("b"), &Value::Null));
    assert_eq!(
        app.names(ADMIN, "/pipelines", "name").await.len(),
        6,
        "nobody shares a page with another scope"
    );
}

#[tokio::test]
async fn a_change_of_tags_counts_at_once() {
    let app = App::of_teams().await;
    app.tagged("films", "analytics.film_dim", &["films"]).await;
    let run = app.run("films").await;
    let paths = [
        "/pipelines/films",
        "/pipelines/films/status",
        &format!("/runs/{run}"),
        &format!("/runs/{run}/logs"),
    ];
    for (tags, status) in [(&["films"][..], 200), (&["payroll"], 404), (&["search"], 200), (&[], 404)] {
        app.retag("films", tags).await;
        for path in paths {
            app.seen("viewer", path).await.assert(status);
        }
        assert_eq!(app.names("viewer", "/pipelines", "name").await.len(), usize::from(status == 200));
    }
    let wider = NewToken { scope: Scope::EVERYTHING, ..team("viewer", Role::Viewer) };
    for (token, status) in [(wider, 200), (team("viewer", Role::Viewer), 404)] {
        app.store.put_token(&token).await.unwrap();
        // What was begun for the token as it was is not answered.
        let first = app.seen("viewer", "/pipelines/films").await;
        assert!(first.status == 503 || first.status == status, "{}", first.body);
        app.seen("viewer", "/pipelines/films").await.assert(status);
    }
}

#[tokio::test]
async fn who_waits_for_a_pipeline_that_leaves_the_scope_hears_no_more_of_it() {
    let app = App::of_teams().await;
    app.tagged("films", "analytics.film_dim", &["films"]).await;
    let run = app.run("films").await;
    for path in [
        "/pipelines/films/status?wait=60",
        &format!("/runs/{run}?wait=60"),
        &format!("/runs/{run}/logs?wait=60"),
    ] {
        app.retag("films", &["films"]).await;
        let moving = async {
            // It waits already, or will find the pipeline gone: nothing else may come of it.
            app.retag("films", &["payroll"]).await;
        };
        let (answer, ()) = tokio::join!(app.seen("viewer", path), moving);
        answer.assert(404);
    }
    app.retag("films", &["films"]).await;
    let waiter = NewToken { name: "waiter", secret: "waiter", ..team("viewer", Role::Viewer) };
    app.store.put_token(&waiter).await.unwrap();
    let narrowing = async {
        vitrina_testbed::eventually("the token is used", async || {
            let used = "select last_used_at is not null from etl.etl_tokens where name = 'waiter'";
            app.database.value::<bool>(used).await.then_some(())
        })
        .await;
        app.store.put_token(&NewToken { scope: Scope::of(["other"]), ..waiter.clone() }).await.unwrap();
    };
    let waiting = app.seen("waiter", "/pipelines/films/status?wait=2");
    let (answer, ()) = tokio::join!(waiting, narrowing);
    answer.assert_problem(503, "access.changed");
}

#[tokio::test]
async fn a_look_that_takes_long_is_for_the_token_as_it_is_by_its_end() {
    let app = App::of_teams().await;
    app.tagged("films", "analytics.film_dim", &["films"]).await;
    let body =
        json!({"name": "new", "target_table": "analytics.new", "source_query": QUERY, "tags": ["films"]});
    let one = json!({"pipeline": body});
    let files = json!({"pipelines": [body]});
    let nothing = json!({});
    let gate = app.database.client().await;
    for (place, (path, body)) in [
        ("/preview", &one),
        ("/pipelines/films/preview", &nothing),
        ("/explain", &one),
        ("/pipelines/films/explain", &nothing),
        ("/validate", &one),
        ("/plan", &files),
    ]
    .into_iter()
    .enumerate()
    {
        let (name, secret) = (format!("looker{place}"), format!("secret{place}"));
        let token =
            NewToken { name: &name, secret: &secret, sees_rows: true, ..team("looker", Role::Operator) };
        app.store.put_token(&token).await.unwrap();
        gate.batch_execute("begin; lock table content.film_work in access exclusive mode").await.unwrap();
        let narrowing = async {
            vitrina_testbed::eventually("the source was waited for more than a second", async || {
                let waits = "select exists (select from pg_stat_activity where datname = current_database()
                    and wait_event_type = 'Lock' and clock_timestamp() - query_start > interval '1.1 seconds')";
                app.database.value::<bool>(waits).await.then_some(())
            })
            .await;
            app.store.put_token(&NewToken { scope: Scope::of(["other"]), ..token.clone() }).await.unwrap();
            gate.batch_execute("rollback").await.unwrap();
        };
        let looking = send(app.by(&secret, &Method::POST, path).json(body));
        let (answer, ()) = tokio::join!(looking, narrowing);
        answer.assert_problem(503, "access.changed");
    }
}

#[tokio::test]
async fn a_listener_within_a_scope_hears_its_pipelines_only_as_they_are_by_then() {
    let app = App::of_teams().await;
    app.tagged("films", "analytics.film_dim", &["films"]).await;
    app.tagged(THEIRS, THEIR_TARGET, &["payroll"]).await;
    let mut all = Listener::of(&app, ADMIN).await;
    let mut own = Listener::of(&app, "viewer").await;
    let run = app.run(THEIRS).await;
    let first = all.hears("run.status").await;
    assert_eq!(first.data["id"], json!(run));
    app.post(&format!("/pipelines/{THEIRS}/reconcile")).await.assert(202);
    all.hears("reconcile.status").await;
    let mine = app.run("films").await;
    let heard = own.next().await.unwrap();
    assert_eq!(heard.data["id"], json!(mine), "nothing else before: {heard:?}");
    // Whoever comes back hears what happened since, and nothing that it may not see by now.
    let back = app.by("viewer", &Method::GET, "/events").header("last-event-id", &first.id);
    let mut back = Listener::by(back).await;
    assert_eq!(back.next().await.unwrap().data["id"], json!(mine));
    app.retag("films", &["payroll"]).await;
    let late = app.by("viewer", &Method::GET, "/events").header("last-event-id", &first.id);
    let mut late = Listener::by(late).await;
    app.retag(THEIRS, &["search"]).await;
    app.post("/pipelines/films/cancel").await.assert(202);
    assert_eq!(all.hears_end().await, "films");
    app.post(&format!("/pipelines/{THEIRS}/cancel")).await.assert(202);
    for listener in [&mut own, &mut back] {
        assert_eq!(listener.hears_end().await, THEIRS, "it is of the team by now, and films is not");
    }
    let heard = late.hears("run.status").await;
    assert_eq!(heard.data["pipeline"], json!(THEIRS), "what films did before is not told any more");
    app.store
        .put_token(&NewToken { scope: Scope::of(["other"]), ..team("viewer", Role::Viewer) })
        .await
        .unwrap();
    own.ends().await;
}

#[tokio::test]
async fn an_error_names_a_pipeline_of_others_only_to_who_sees_all_of_them() {
    let app = App::of_teams().await;
    app.tagged("films", "analytics.film_dim", &["films"]).await;
    let run = app.run("films").await;
    let claim = app.claim().await;
    let error = format!("mart analytics.film_dim is written by pipeline {}", other_pipeline(THEIRS));
    app.store.fail(&claim.lease, "sink.owned", &error, false).await.unwrap();
    for path in [format!("/runs/{run}"), "/runs".to_owned(), "/pipelines/films/metrics".to_owned()] {
        let [told, all] = [app.seen("operator", &path).await, app.seen(ADMIN, &path).await];
        let (told, all) = (told.assert(200).body.to_string(), all.assert(200).body.to_string());
        assert!(told.contains("is written by pipeline …") && !told.contains(OTHERS), "{told}");
        assert!(all.contains(&format!("is written by pipeline {THEIRS}")), "{all}");
    }
}

#[tokio::test]
async fn a_scope_is_told_by_who_asks_and_closes_what_is_about_the_installation() {
    let app = App::of_teams().await;
    assert_eq!(app.seen(OWNER, "/whoami").await.assert(200).body["tags"], json!(["films", "search"]));
    assert_eq!(app.seen(ADMIN, "/whoami").await.assert(200).body["tags"], Value::Null);
    app.store.announce(&crate::app::runner(), 1).await.unwrap();
    let refused =
        app.tried(Method::POST, "/runners/r1/drain", &json!({})).await.assert_problem(403, "access.scope");
    assert!(refused.body["hint"].as_str().unwrap().contains("--tag"), "{}", refused.body);
    app.post("/runners/r1/drain").await.assert(202);
}

#[tokio::test]
async fn the_audit_within_a_scope_is_that_of_its_pipelines_also_of_those_that_are_deleted() {
    let planted = Planted::new().await;
    let app = &planted.app;
    app.tagged("gone", "analytics.gone", &["films"]).await;
    app.delete("/pipelines/gone").await.assert(204);
    app.delete(&format!("/targets/{THEIR_TARGET}")).await.assert(409);
    let actions = app.names(OWNER, "/audit", "action").await;
    let expected = ["pipeline.delete", "pipeline.run", "reconcile.request", "target.put", "pipeline.create"];
    assert_eq!(actions, expected);
    let page = app.seen(OWNER, "/audit?limit=1").await.assert(200).body;
    let next = page["next_cursor"].as_str().unwrap();
    let page = app.seen(OWNER, &format!("/audit?limit=50&cursor={next}")).await.assert(200).body;
    assert_eq!(
        (page["items"].as_array().unwrap().len(), &page["next_cursor"]),
        (expected.len() - 1, &Value::Null)
    );
}

#[tokio::test]
async fn who_wrote_a_row_is_told_within_the_scope_only() {
    let planted = Planted::new().await;
    let at: String = planted
        .app
        .database
        .value("select (committed_at - interval '1 microsecond')::text from etl.etl_batches")
        .await;
    let at = at.replace(' ', "T").parse().unwrap_or_else(|error| panic!("{at}: {error}"));
    for (scope, expected) in [(Scope::EVERYTHING, Some(THEIRS)), (Scope::of(["films"]), None)] {
        let writing = planted.app.store.within(scope).writing_at(THEIR_TARGET, at).await.unwrap();
        let [writing] = writing.as_slice() else { panic!("{writing:?}") };
        assert_eq!(writing.as_ref().map(|writing| writing.pipeline.as_str()), expected);
    }
}
