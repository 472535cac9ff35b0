//! Who sees values of rows (R-API-4): one right, on every route.

use std::collections::BTreeMap;
use std::time::Duration;

use reqwest::Method;
use serde_json::{Value, json};
use vitrina_core::values::value;
use vitrina_core::{
    Cells, Checkpoint, Difference, DifferenceKind, Entry, Ledger, Level, Outcome, Position, Reject,
};
use vitrina_store::{LogLine, NewToken, Role};

use crate::app::{App, runner};
use crate::events::Listener;
use crate::reconciles::found;

const ADMIN: &str = "correct-horse-battery-staple";
/// The value of a row.
pub(crate) const SECRET: &str = "ann@example.com";

/// By name, the tokens of this test: a viewer sees rows only with the right to, an operator unless it was taken.
const CALLERS: [(&str, Role, bool); 4] = [
    ("looks", Role::Viewer, false),
    ("analyst", Role::Viewer, true),
    ("robot", Role::Operator, false),
    ("doer", Role::Operator, true),
];

/// A row's value wherever one can get to: every kind of error, log, reject, difference and position.
struct Planted {
    app: App,
    run: String,
    reconcile: String,
}

impl Planted {
    async fn new() -> Self {
        let app = App::start_with(Some(ADMIN)).await;
        for (name, role, sees_rows) in CALLERS {
            app.store.put_token(&NewToken { sees_rows, ..NewToken::of(name, role, name) }).await.unwrap();
        }
        app.store.announce(&runner(), 4).await.unwrap();
        app.create_pipeline("films").await;
        app.create_pipeline("waits").await;
        let reconcile = app.compare("films", Level::Rows, &differing()).await;
        app.fail_reconcile("films").await;
        let run = app.run("films").await;
        app.fail_with_rejects().await;
        app.run("waits").await;
        let claim = app.claim().await;
        app.store.release(&claim.lease, "source.locked", &error(), Duration::from_secs(600)).await.unwrap();
        Self { app, run, reconcile }
    }

    /// All GET routes that the document has, with what is there in place of their names.
    async fn paths(&self) -> Vec<String> {
        let document = self.app.get("/openapi.json").await.assert(200).body;
        let paths = document["paths"].as_object().unwrap().iter();
        let paths = paths.filter(|(path, item)| item["get"].is_object() && !path.ends_with("/events"));
        paths.flat_map(|(path, _)| self.spelled(path)).collect()
    }

    fn spelled(&self, path: &str) -> Vec<String> {
        let id = if path.contains("/runs/") { &self.run } else { &self.reconcile };
        let path = path.replace("{id}", id).replace("{t}", "analytics.film_dim").replace("{c}", "source");
        let query = if path.ends_with("/row") { "?key=1" } else { "" };
        let of = |pipeline: &str| format!("{}{query}", path.replace("{p}", pipeline));
        let mut spelled = vec![of("films"), of("waits"), of("films").replace("/api/v1", "")];
        if path.ends_with("/differences") {
            spelled.extend(["ndjson", "csv"].map(|format| format!("{path}?format={format}")));
        }
        spelled.sort();
        spelled.dedup();
        spelled
    }

    async fn text(&self, path: &str, token: &str) -> (u16, String) {
        let call = self.app.anonymous(Method::GET, path).bearer_auth(token);
        // Nobody answers for a row here: what is known of it is told all the same.
        let response = call.send().await.unwrap();
        (response.status().as_u16(), response.text().await.unwrap())
    }
}

impl App {
    pub(crate) async fn fail_reconcile(&self, pipeline: &str) {
        self.post_json(&format!("/pipelines/{pipeline}/reconcile"), &json!({"level": "hash"}))
            .await
            .assert(202);
        let taken = self.store.take_reconcile(&runner(), Duration::from_secs(60)).await.unwrap().unwrap();
        self.store.fail_reconcile(&taken, "source.refused", error()).await.unwrap();
    }

    /// A run with a retry, a log, a checkpoint, a reject and an error.
    pub(crate) async fn fail_with_rejects(&self) {
        let claim = self.claim().await;
        let (lease, key) = (&claim.lease, json!([SECRET]));
        self.store.retry(lease, "r1", claim.run, "python.retry", &error()).await.unwrap();
        let position =
            Position { done: json!({"bound": ["2026-01-02 03:04:05+00", SECRET]}), ..Position::default() };
        let checkpoint = Checkpoint { position, ..Checkpoint::default() };
        let reject = Reject {
            key,
            code: "python.bad".to_owned(),
            message: error(),
            row: json!({"mail": SECRET, "n": 7}),
        };
        let outcome = Outcome { rejects: vec![reject], reject_limit: 10, ..Outcome::default() };
        let entry = Entry { lease, from_version: 0, checkpoint: &checkpoint, outcome: &outcome };
        self.store.commit(&entry).await.unwrap();
        let line = LogLine {
            run_id: claim.run,
            pipeline_id: lease.pipeline,
            at: jiff::Timestamp::now(),
            level: "info",
            message: format!("python: {}", value(SECRET)),
            fields: serde_json::Map::from_iter([("error".to_owned(), json!(error()))]),
        };
        self.store.add_logs(&[line]).await.unwrap();
        self.store.fail(lease, "python.exception", &error(), false).await.unwrap();
    }
}

/// As a runner writes it.
fn error() -> String {
    format!("the source \"s\" answers 42P01: relation \"{}\" does not exist", value(SECRET))
}

pub(crate) fn differing() -> vitrina_core::Findings {
    let cells = Cells { source: Some(SECRET.to_owned()), target: None };
    let columns = BTreeMap::from([("mail".to_owned(), cells)]);
    let mut findings =
        found(vec![Difference { kind: DifferenceKind::Different, key: json!([SECRET]), columns }]);
    findings.figures.source.max.insert("mail".to_owned(), Some(SECRET.to_owned()));
    findings
}

#[tokio::test]
async fn who_may_not_see_rows_sees_a_value_on_no_route_and_who_may_sees_it_wherever_it_is() {
    let planted = Planted::new().await;
    let mut seen: BTreeMap<&str, Vec<String>> = BTreeMap::new();
    for path in planted.paths().await {
        for (name, role, sees_rows) in CALLERS {
            if path.contains("/row?") && role == Role::Operator && sees_rows {
                continue;
            }
            let (status, text) = planted.text(&path, name).await;
            assert!(status < 500 || status == 503, "{path} by {name}: {status} {text}");
            assert!(!text.contains(['\u{fdd0}', '\u{fdd1}']), "{path} by {name}: {text}");
            assert!(sees_rows || !text.contains(SECRET), "{path} by {name}: {text}");
            if text.contains(SECRET) {
                let path = path.replace(&planted.run, "R").replace(&planted.reconcile, "C");
                seen.entry(name).or_default().push(path);
            }
        }
    }
    assert_eq!(seen.keys().copied().collect::<Vec<_>>(), ["analyst", "doer"]);
    assert_eq!(seen["analyst"], seen["doer"]);
    for told in [
        "/api/v1/pipelines",
        "/api/v1/pipelines/films",
        "/api/v1/pipelines/films/metrics",
        "/api/v1/pipelines/films/reconcile",
        "/api/v1/pipelines/films/reconciles",
        "/api/v1/pipelines/films/rejects",
        "/api/v1/pipelines/films/runs",
        "/api/v1/pipelines/films/state",
        "/api/v1/pipelines/films/status",
        "/api/v1/pipelines/waits/status",
        "/api/v1/reconciles",
        "/api/v1/reconciles/C",
        "/api/v1/reconciles/C/differences",
        "/api/v1/reconciles/C/differences?format=csv",
        "/api/v1/reconciles/C/differences?format=ndjson",
        "/api/v1/runs",
        "/api/v1/runs/R",
        "/api/v1/runs/R/logs",
        "/runs/R",
    ] {
        assert!(seen["doer"].iter().any(|path| path == told), "{told} is not among {:#?}", seen["doer"]);
    }
}

#[tokio::test]
async fn who_may_not_see_rows_is_told_what_went_wrong_and_where() {
    let planted = Planted::new().await;
    let of =
        async |path: &str| -> Value { serde_json::from_str(&planted.text(path, "looks").await.1).unwrap() };
    let run = of(&format!("/runs/{}", planted.run)).await;
    assert_eq!(run["error"], "the source \"s\" answers 42P01: relation \"…\" does not exist");
    assert_eq!(run["error_code"], "python.exception");
    let reject = of("/pipelines/films/rejects").await["items"][0].clone();
    assert_eq!(reject["id"], "…", "a hash of its key");
    assert_eq!((&reject["key"], &reject["row"]), (&json!(["…"]), &json!({"mail": "…", "n": "…"})));
    let state = of("/pipelines/films/state").await;
    assert_eq!(state["checkpoint"]["position"]["done"]["bound"], json!(["2026-01-02 03:04:05+00", "…"]));
    assert_eq!(of("/whoami").await["sees_rows"], false);
}

#[tokio::test]
async fn what_is_nothing_without_rows_is_refused_to_who_may_not_see_them() {
    let planted = Planted::new().await;
    let differences = format!("/reconciles/{}/differences", planted.reconcile);
    for (method, path) in [
        (Method::GET, differences.as_str()),
        (Method::GET, "/pipelines/films/row?key=1"),
        (Method::POST, "/pipelines/films/preview"),
        (Method::POST, "/preview"),
    ] {
        let call = planted.app.anonymous(method, path).bearer_auth("robot");
        let answer = crate::app::send(call).await.assert_problem(403, "access.rows");
        assert!(answer.body["hint"].as_str().unwrap().contains("--rows"), "{}", answer.body);
    }
}

#[tokio::test]
async fn the_stream_of_events_shows_values_only_to_who_may_see_rows() {
    let planted = Planted::new().await;
    let mut hidden = Listener::of(&planted.app, "looks").await;
    let mut shown = Listener::of(&planted.app, "doer").await;
    planted.app.run("films").await;
    let claim = planted.app.claim().await;
    planted.app.store.fail(&claim.lease, "source.refused", &error(), false).await.unwrap();
    for topic in ["run.status", "reconcile.status"] {
        if topic == "reconcile.status" {
            planted.app.fail_reconcile("films").await;
        }
        let failed = hidden.hears_failure(topic).await;
        assert!(failed.contains("relation \\\"…\\\"") && !failed.contains(SECRET), "{failed}");
        let failed = shown.hears_failure(topic).await;
        assert!(failed.contains(SECRET), "{failed}");
    }
}

#[tokio::test]
async fn a_right_that_is_taken_is_gone_with_the_next_answer() {
    let planted = Planted::new().await;
    let path = format!("/runs/{}", planted.run);
    assert!(planted.text(&path, "doer").await.1.contains(SECRET));
    let token = NewToken { sees_rows: false, ..NewToken::of("doer", Role::Operator, "doer") };
    planted.app.store.put_token(&token).await.unwrap();
    for _ in 0..2 {
        let (_, text) = planted.text(&path, "doer").await;
        assert!(!text.contains(SECRET), "{text}");
    }
}
