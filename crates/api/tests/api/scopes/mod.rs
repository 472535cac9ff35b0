//! Tokens of teams (R-SEC-4): one with tags meets only the pipelines that have one of them, on every route.

mod changes;
mod looks;
mod routes;

use reqwest::{Method, RequestBuilder};
use serde_json::{Value, json};
use vitrina_core::Level;
use vitrina_store::{NewToken, Role, Scope};

use crate::app::{Answer, App, QUERY, send};
use crate::events::Listener;
use crate::reconciles::three;
use crate::sight::{SECRET, differing};

const ADMIN: &str = "correct-horse-battery-staple";
/// The token of an admin of films.
const OWNER: &str = "owner";
/// In whatever may be written of the pipeline of others.
const OTHERS: &str = "topsecret";
const THEIRS: &str = "topsecret_payroll";
const THEIR_TARGET: &str = "analytics.payroll_mart";

fn team(name: &str, role: Role) -> NewToken<'_> {
    NewToken { scope: Scope::of(["films", "search"]), ..NewToken::of(name, role, name) }
}

impl App {
    /// With tokens that are for films.
    async fn of_teams() -> Self {
        let app = Self::start_with(Some(ADMIN)).await;
        for (name, role) in [("viewer", Role::Viewer), ("operator", Role::Operator), (OWNER, Role::Admin)] {
            app.store.put_token(&team(name, role)).await.unwrap();
        }
        app
    }

    fn by(&self, token: &str, method: &Method, path: &str) -> RequestBuilder {
        self.anonymous(method.clone(), path).bearer_auth(token)
    }

    async fn seen(&self, token: &str, path: &str) -> Answer {
        send(self.by(token, &Method::GET, path)).await
    }

    /// By the admin of films.
    async fn tried(&self, method: Method, path: &str, body: &Value) -> Answer {
        send(self.by(OWNER, &method, path).json(body)).await
    }

    async fn tagged(&self, name: &str, target: &str, tags: &[&str]) -> Value {
        let body = json!({"name": name, "target_table": target, "source_query": QUERY, "tags": tags});
        self.post_json("/pipelines", &body).await.assert(201).body
    }

    async fn names(&self, token: &str, path: &str, field: &str) -> Vec<String> {
        let page = self.seen(token, path).await.assert(200).body;
        let items = page["items"].as_array().unwrap().iter();
        items.map(|item| item[field].as_str().unwrap().to_owned()).collect()
    }

    async fn retag(&self, pipeline: &str, tags: &[&str]) {
        self.patch(&format!("/pipelines/{pipeline}"), "*", &json!({"tags": tags})).await.assert(200);
    }
}

impl Listener {
    /// Whose run is cancelled next.
    async fn hears_end(&mut self) -> String {
        loop {
            let heard = self.hears("run.status").await;
            if heard.data["status"] == "CANCELLED" {
                return heard.data["pipeline"].as_str().unwrap().to_owned();
            }
        }
    }
}

/// A pipeline of others, with all that can be there of one, and one of films.
struct Planted {
    app: App,
    id: String,
    run: String,
    reconcile: String,
}

impl Planted {
    async fn new() -> Self {
        let app = App::of_teams().await;
        let theirs = json!({
            "name": THEIRS, "description": format!("{OTHERS} salaries"), "target_table": THEIR_TARGET, "tags": ["payroll"],
            "source_query": format!("select id, title as {OTHERS}, modified from content.film_work"),
        });
        let created = app.post_json("/pipelines", &theirs).await.assert(201);
        let id = created.body["id"].as_str().unwrap().to_owned();
        app.put_json(&format!("/targets/{THEIR_TARGET}"), &json!({"key": [OTHERS]})).await.assert(201);
        let reconcile = app.compare(THEIRS, Level::Rows, &differing()).await;
        app.fail_reconcile(THEIRS).await;
        let run = app.run(THEIRS).await;
        app.fail_with_rejects().await;
        app.patch(&format!("/pipelines/{THEIRS}"), "*", &json!({"description": format!("{OTHERS} wages")}))
            .await
            .assert(200);
        app.tagged("films", "analytics.film_dim", &["films", "core"]).await;
        app.put_json("/targets/analytics.film_dim", &json!({"key": ["id"]})).await.assert(201);
        app.compare("films", Level::Rows, &three()).await;
        app.run("films").await;
        Self { app, id, run, reconcile }
    }

    /// What a text may not have in it.
    fn traces(&self) -> [&str; 6] {
        [OTHERS, SECRET, "payroll", &self.id, &self.run, &self.reconcile]
    }

    #[track_caller]
    fn assert_no_trace(&self, route: &str, text: &str) {
        for trace in self.traces() {
            assert!(!text.contains(trace), "{route} tells {trace}: {text}");
        }
    }
}
