//! The stream of all that happens to runs.

use futures_util::StreamExt;
use futures_util::stream::BoxStream;
use reqwest::Method;
use serde_json::{Value, json};
use vitrina_core::{Checkpoint, Counts, Entry, Ledger, Outcome, ReconcileProgress, ReconcileStage};
use vitrina_store::{NewToken, Role};

use crate::app::{App, runner};
use crate::reconciles::found;

pub(crate) struct Listener {
    bytes: BoxStream<'static, String>,
    read: String,
}

#[derive(Debug, PartialEq)]
pub(crate) struct Heard {
    pub(crate) topic: String,
    pub(crate) id: String,
    pub(crate) data: Value,
}

impl Listener {
    /// With a token of one's own.
    pub(crate) async fn of(app: &App, token: &str) -> Self {
        Self::by(app.anonymous(Method::GET, "/events").bearer_auth(token)).await
    }

    /// The end of a run or of a reconcile, as text.
    pub(crate) async fn hears_failure(&mut self, topic: &str) -> String {
        loop {
            let heard = self.hears(topic).await;
            if heard.data["status"] == "FAILED" {
                return heard.data.to_string();
            }
        }
    }

    /// What is left of it has been read.
    pub(crate) async fn ends(&mut self) {
        while self.next().await.is_some() {}
    }

    async fn at(app: &App, path: &str, last: Option<&str>) -> Self {
        let request = app.request(Method::GET, path);
        let request = last.into_iter().fold(request, |request, last| request.header("last-event-id", last));
        Self::by(request).await
    }

    pub(crate) async fn by(request: reqwest::RequestBuilder) -> Self {
        let response = request.send().await.unwrap();
        assert_eq!(response.status(), 200);
        assert_eq!(response.headers()["content-type"], "text/event-stream");
        let text = |chunk: reqwest::Result<_>| {
            let chunk: axum::body::Bytes = chunk.unwrap_or_default();
            String::from_utf8_lossy(&chunk).into_owned()
        };
        Self { bytes: response.bytes_stream().map(text).boxed(), read: String::new() }
    }

    /// `None` when the stream has ended.
    pub(crate) async fn next(&mut self) -> Option<Heard> {
        loop {
            if let Some((event, rest)) = self.read.clone().split_once("\n\n") {
                self.read = rest.to_owned();
                let field = |name: &str| {
                    event
                        .lines()
                        .find_map(|line| line.strip_prefix(name))
                        .unwrap_or_default()
                        .trim()
                        .to_owned()
                };
                if !field("event:").is_empty() {
                    let data = serde_json::from_str(&field("data:")).unwrap();
                    return Some(Heard { topic: field("event:"), id: field("id:"), data });
                }
                continue;
            }
            self.read += &self.bytes.next().await?;
        }
    }

    pub(crate) async fn hears(&mut self, topic: &str) -> Heard {
        loop {
            let heard = self.next().await.expect("the stream goes on");
            if heard.topic == topic {
                return heard;
            }
        }
    }
}

impl App {
    async fn commit_batch(&self, claim: &vitrina_store::Claim) {
        let counts = Counts { read: 3, ..Counts::default() };
        let outcome = Outcome { counts, ..Outcome::default() };
        let entry = Entry {
            lease: &claim.lease,
            from_version: 0,
            checkpoint: &Checkpoint::default(),
            outcome: &outcome,
        };
        self.store.commit(&entry).await.unwrap();
    }
}

#[tokio::test]
async fn a_listener_hears_a_run_from_its_request_to_its_end() {
    let app = App::start().await;
    app.create_pipeline("films").await;
    let mut listener = Listener::at(&app, "/api/v1/events", None).await;
    let run = app.run("films").await;
    let heard = listener.hears("run.status").await;
    assert_eq!((&heard.data["id"], &heard.data["status"]), (&json!(run), &json!("REQUESTED")));
    let claim = app.claim().await;
    assert_eq!(listener.hears("run.status").await.data["status"], "RUNNING");
    app.commit_batch(&claim).await;
    let batch = listener.hears("batch.done").await;
    assert_eq!((&batch.data["run_id"], &batch.data["batch"]["rows_read"]), (&json!(run), &json!(3)));
    assert_eq!(listener.hears("run.progress").await.data["rows_read"], 3);
    app.store.finish(&claim.lease).await.unwrap();
    assert_eq!(listener.hears("run.status").await.data["status"], "SUCCESS");
    let fresh = listener.hears("pipeline.freshness").await;
    assert_eq!(fresh.data["pipeline"], "films");
}

#[tokio::test]
async fn a_listener_hears_a_reconcile_from_its_request_to_its_verdict() {
    let app = App::start().await;
    app.create_pipeline("films").await;
    let path = "/events?topics=reconcile.status,reconcile.progress";
    let mut listener = Listener::at(&app, path, None).await;
    let asked = app.post("/pipelines/films/reconcile").await.assert(202).body["id"].clone();
    let heard = listener.hears("reconcile.status").await.data;
    assert_eq!((&heard["id"], &heard["status"]), (&asked, &json!("REQUESTED")));
    let lease = std::time::Duration::from_secs(60);
    let taken = app.store.take_reconcile(&runner(), lease).await.unwrap().unwrap();
    assert_eq!(listener.hears("reconcile.status").await.data["status"], "RUNNING");
    let progress = ReconcileProgress { stage: ReconcileStage::Ranges, done: 1, total: 2 };
    app.store.keep_reconcile(&taken, lease, Some(&progress)).await.unwrap();
    assert_eq!(listener.hears("reconcile.progress").await.data["progress"]["done"], 1);
    app.store.finish_reconcile(&taken, &found(vec![])).await.unwrap();
    let heard = listener.hears("reconcile.status").await.data;
    assert_eq!((&heard["status"], &heard["verdict"]), (&json!("DONE"), &json!("equal")));
}

#[tokio::test]
async fn a_listener_that_was_cut_off_goes_on_where_it_was() {
    let app = App::start().await;
    app.create_pipeline("films").await;
    let mut stays = Listener::at(&app, "/events", None).await;
    let mut cut = Listener::at(&app, "/events?topics=run.status", None).await;
    app.run("films").await;
    let last = cut.hears("run.status").await.id;
    drop(cut);
    app.claim().await;
    stays.hears("run.status").await;
    let missed = stays.hears("run.status").await;
    let mut back = Listener::at(&app, "/events?topics=run.status", Some(&last)).await;
    assert_eq!(back.next().await, Some(missed));
}

#[tokio::test]
async fn who_comes_back_too_late_is_told_to_look_again() {
    let app = App::start().await;
    let mut listener = Listener::at(&app, "/events", Some("long-ago-7")).await;
    assert_eq!(listener.next().await.map(|heard| heard.topic), Some("reset".to_owned()));
}

#[tokio::test]
async fn only_topics_that_were_asked_for_are_told_and_unknown_ones_are_refused() {
    let app = App::start().await;
    app.create_pipeline("films").await;
    let mut listener = Listener::at(&app, "/events?topics=run.progress", None).await;
    app.run("films").await;
    let claim = app.claim().await;
    app.commit_batch(&claim).await;
    assert_eq!(listener.next().await.map(|heard| heard.topic), Some("run.progress".to_owned()));
    app.get("/events?topics=run.status,weather").await.assert_problem(422, "request.invalid");
}

#[tokio::test]
async fn a_stopping_server_ends_the_stream() {
    let app = App::start().await;
    let mut listener = Listener::at(&app, "/events", None).await;
    app.shutdown.cancel();
    assert_eq!(listener.next().await, None);
}

#[tokio::test]
async fn who_begins_to_listen_during_a_run_hears_what_is_new_and_nothing_older() {
    let app = App::start().await;
    app.create_pipeline("films").await;
    app.run("films").await;
    let claim = app.claim().await;
    app.commit_batch(&claim).await;
    let old: i64 = app.database.value("select max(id) from etl.etl_batches").await;
    let mut listener = Listener::at(&app, "/events?topics=batch.done", None).await;
    app.database
        .execute("insert into etl.etl_batches (run_id, pipeline_id, token, rows_read, rows_inserted, rows_updated, rows_unchanged, rows_deleted, rows_rejected, bytes, read_ms, transform_ms, write_ms)
                  select run_id, pipeline_id, token, 9, 0, 0, 0, 0, 0, 0, 0, 0, 0 from etl.etl_batches; update etl.etl_runs set batches = batches + 1")
        .await;
    let heard = listener.next().await.unwrap();
    assert!(heard.data["batch"]["id"].as_i64().unwrap() > old, "{heard:?}");
    assert_eq!(heard.data["batch"]["rows_read"], 9);
}

#[tokio::test]
async fn one_caller_cannot_take_the_places_of_all_others() {
    let app = App::start_with(Some(ADMIN)).await;
    app.store.put_token(&NewToken::of("watcher", Role::Viewer, WATCHER)).await.unwrap();
    let client = vitrina_testbed::http_client();
    let listen = async |token: &str| {
        let request = client.get(format!("{}/api/v1/events", app.base)).bearer_auth(token);
        request.send().await.unwrap()
    };
    let mut streams = Vec::new();
    let refused = loop {
        let response = listen(WATCHER).await;
        match response.status().as_u16() {
            200 => streams.push(response),
            _ => break response,
        }
        assert!(streams.len() < 256, "one caller has all places");
    };
    assert_eq!((refused.status().as_u16(), streams.len()), (503, 64));
    assert!(refused.text().await.unwrap().contains("events.full"));
    assert_eq!(listen(ADMIN).await.status(), 200, "another caller finds a place");
    drop(streams);
    vitrina_testbed::eventually("places are free again", async || {
        (listen(WATCHER).await.status() == 200).then_some(())
    })
    .await;
}

const ADMIN: &str = "the-admin-of-these-events-tests";
const WATCHER: &str = "the-watcher-of-these-events-tests";
