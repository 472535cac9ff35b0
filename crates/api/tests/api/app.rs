//! One test's own installation, and verbs to use it with.

use std::collections::BTreeMap;
use std::time::Duration;

use reqwest::{Method, RequestBuilder, StatusCode};
use serde_json::{Value, json};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;
use vitrina_api::{ApiSettings, Server, SourceConnection};
use vitrina_core::Backfill;
use vitrina_store::{Claim, RunnerAbilities, Store};
use vitrina_testbed::Database;

pub(crate) const QUERY: &str = "select id, title, modified from content.film_work";

/// What the queries of the tests read.
pub(crate) const SOURCE: &str = "create schema content; create schema ugc; create schema auth;
    create table content.film_work (id bigint primary key, title text, n bigint, modified timestamptz not null default now());
    create table auth.users (id bigint primary key, secret text)";

pub(crate) struct App {
    /// Before the database, so that the server is gone when it is dropped.
    _server: JoinSet<()>,
    pub(crate) shutdown: CancellationToken,
    pub(crate) base: String,
    pub(crate) store: Store,
    /// The server's own sessions.
    pub(crate) server_store: Store,
    pub(crate) database: Database,
    client: reqwest::Client,
    token: Option<String>,
}

/// An answer, read to its end.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: StatusCode,
    pub(crate) headers: reqwest::header::HeaderMap,
    pub(crate) body: Value,
}

impl Answer {
    pub(crate) fn header(&self, name: &str) -> &str {
        self.headers.get(name).map_or("", |value| value.to_str().unwrap())
    }

    #[track_caller]
    pub(crate) fn assert(self, status: u16) -> Self {
        assert_eq!(self.status, status, "{}", self.body);
        self
    }

    /// Asserts that the answer is a problem of this code.
    #[track_caller]
    pub(crate) fn assert_problem(self, status: u16, code: &str) -> Self {
        let answer = self.assert(status);
        assert_eq!(answer.header("content-type"), "application/problem+json");
        assert_eq!(answer.body["code"], code, "{}", answer.body);
        assert_eq!(answer.body["status"], status);
        assert_eq!(answer.body["request_id"], answer.header("x-request-id"));
        answer
    }

    /// `(pointer, code)` of all errors of a problem.
    pub(crate) fn faults(&self) -> Vec<(&str, &str)> {
        let errors = self.body["errors"].as_array().unwrap().iter();
        errors.map(|error| (error["pointer"].as_str().unwrap(), error["code"].as_str().unwrap())).collect()
    }
}

pub(crate) fn settings(listen: &str, admin_token: Option<&str>) -> ApiSettings {
    let schemas = vec!["content".to_owned(), "ugc".to_owned()];
    let cinema = SourceConnection::new("postgres://reader@localhost/cinema".into(), schemas);
    ApiSettings {
        listen: listen.parse().unwrap(),
        allowed_targets: Default::default(),
        admin_token: admin_token.map(Into::into),
        rate_limit: 0,
        max_connections: 1024,
        patience: Duration::from_secs(60),
        tls: None,
        source_connections: BTreeMap::from([("source".to_owned(), cinema)]),
    }
}

/// A database with a meta-store, and its store.
pub(crate) async fn migrated() -> (Database, Store) {
    let migrate = async |url: &str| {
        let store = Store::connect(url, "test", 2).await.unwrap();
        store.migrate().await.unwrap();
    };
    let database = Database::prepared(migrate).await;
    let store = Store::connect(database.url(), "test", 5).await.unwrap();
    (database, store)
}

impl App {
    pub(crate) async fn start() -> Self {
        Self::start_with(None).await
    }

    /// With a source that nobody answers for.
    pub(crate) async fn start_away() -> Self {
        let away = |settings: &mut ApiSettings| {
            settings.source_connections.get_mut("source").unwrap().url =
                "postgres://reader@127.0.0.1:1/cinema".into();
        };
        Self::start_as(None, away).await
    }

    pub(crate) async fn start_with(admin_token: Option<&str>) -> Self {
        Self::start_as(admin_token, |_| {}).await
    }

    pub(crate) async fn start_as(admin_token: Option<&str>, change: impl FnOnce(&mut ApiSettings)) -> Self {
        let (database, store) = migrated().await;
        database.execute(SOURCE).await;
        let server_store = Store::connect(database.url(), "vitrina-api", 10).await.unwrap();
        let mut settings = settings("127.0.0.1:0", admin_token);
        settings.source_connections.get_mut("source").unwrap().url = database.url().into();
        change(&mut settings);
        let server = Server::bind(settings, server_store.clone()).await.unwrap();
        let base = format!("http://{}", server.local_addr());
        let shutdown = CancellationToken::new();
        let mut tasks = JoinSet::new();
        let stop = shutdown.clone();
        tasks.spawn(async move { server.serve(stop).await.unwrap() });
        let token = admin_token.map(str::to_owned);
        let client = vitrina_testbed::http_client();
        Self { _server: tasks, shutdown, base, store, server_store, database, client, token }
    }

    pub(crate) fn request(&self, method: Method, path: &str) -> RequestBuilder {
        let request = self.client.request(method, format!("{}{path}", self.base));
        match &self.token {
            Some(token) => request.bearer_auth(token),
            None => request,
        }
    }

    /// Without the token that the other verbs send.
    pub(crate) fn anonymous(&self, method: Method, path: &str) -> RequestBuilder {
        self.client.request(method, format!("{}{path}", self.base))
    }

    pub(crate) async fn get(&self, path: &str) -> Answer {
        send(self.request(Method::GET, path)).await
    }

    pub(crate) async fn post(&self, path: &str) -> Answer {
        send(self.request(Method::POST, path)).await
    }

    pub(crate) async fn post_json(&self, path: &str, body: &Value) -> Answer {
        send(self.request(Method::POST, path).json(body)).await
    }

    pub(crate) async fn delete(&self, path: &str) -> Answer {
        send(self.request(Method::DELETE, path)).await
    }

    pub(crate) async fn put_json(&self, path: &str, body: &Value) -> Answer {
        send(self.request(Method::PUT, path).json(body)).await
    }

    /// `version` is that of the header `if-match`.
    pub(crate) async fn patch(&self, path: &str, version: &str, body: &Value) -> Answer {
        send(self.request(Method::PATCH, path).header("if-match", version).json(body)).await
    }

    pub(crate) async fn create_pipeline(&self, name: &str) -> Answer {
        let body = json!({"name": name, "target_table": mart_of(name), "source_query": QUERY});
        self.post_json("/api/v1/pipelines", &body).await.assert(201)
    }

    /// Asks for a run and answers with its id.
    pub(crate) async fn run(&self, name: &str) -> String {
        let answer = self.post(&format!("/api/v1/pipelines/{name}/run")).await.assert(202);
        answer.body["run_id"].as_str().unwrap().to_owned()
    }

    /// What a runner does first.
    pub(crate) async fn claim(&self) -> Claim {
        let terms = vitrina_store::Terms::idle(Duration::from_secs(60));
        self.store.claim(&runner(), &terms).await.unwrap().expect("something to claim")
    }

    /// Claims a backfill by keys.
    pub(crate) async fn claimed_keys(&self) -> Vec<Value> {
        match self.claim().await.backfill {
            Some(Backfill::Keys(keys)) => keys,
            other => panic!("{other:?} is no list of keys"),
        }
    }

    pub(crate) async fn status(&self, name: &str) -> String {
        let answer = self.get(&format!("/pipelines/{name}/status")).await.assert(200);
        answer.body["status"].as_str().unwrap().to_owned()
    }

    /// Brings a pipeline with a run into FAILED.
    pub(crate) async fn fail(&self, name: &str) {
        self.run(name).await;
        let claim = self.claim().await;
        self.store.fail(&claim.lease, "source.sql", "column x does not exist", false).await.unwrap();
    }
}

/// What was saved, as it is shown later.
pub(crate) fn without_warnings(mut saved: Value) -> Value {
    assert!(saved["warnings"].is_array(), "{saved}");
    saved.as_object_mut().unwrap().remove("warnings");
    saved
}

/// A mart has one writer: each pipeline has its own.
fn mart_of(name: &str) -> String {
    let plain = |c: char| if c.is_ascii_alphanumeric() { c.to_ascii_lowercase() } else { '_' };
    match name {
        "films" => "analytics.film_dim".to_owned(),
        name => format!("analytics.mart_{}", name.chars().map(plain).collect::<String>()),
    }
}

pub(crate) fn runner() -> RunnerAbilities {
    let connections = vec!["source".to_owned(), "marts".to_owned()];
    RunnerAbilities { name: "r1".to_owned(), connections, ..RunnerAbilities::default() }
}

pub(crate) async fn send(request: RequestBuilder) -> Answer {
    let response = request.send().await.unwrap();
    let (status, headers) = (response.status(), response.headers().clone());
    let text = response.text().await.unwrap();
    let body = if text.is_empty() { Value::Null } else { serde_json::from_str(&text).unwrap() };
    Answer { status, headers, body }
}
