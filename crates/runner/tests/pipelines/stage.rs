//! A source table, a mart and a meta-store in one fresh database, with the verbs that tests speak in.

use std::collections::BTreeMap;
use std::time::Duration;

use serde_json::{Value, json};
use tokio::task::JoinSet;
use tokio_postgres::Client;
use tokio_util::sync::CancellationToken;
use uuid::Uuid;
use vitrina_connectors::{Connection, Connections, sinks, sources};
use vitrina_core::{
    AllowedTargets, CursorRange, Event, Mode, OnActive, PipelineId, RunId, RunStatus, Status,
};
use vitrina_runner::{Runner, RunnerSettings};
use vitrina_store::{Actor, Change, PipelineRef, RunRecord, RunRequest, Store};
use vitrina_testbed::Database;

pub(crate) struct Stage {
    pub(crate) db: Database,
    pub(crate) store: Store,
}

pub(crate) const FILMS: &str = "
    create schema content; create schema analytics;
    create table content.film (id int primary key, title text, rating numeric(3,1), modified timestamptz not null default now());
    create index on content.film (modified, id);
    create table analytics.film (id int primary key, title text, rating numeric(3,1), modified timestamptz, updated_at timestamptz);
    insert into etl.etl_targets (name, key, touch_column) values ('analytics.film', '{id}', 'updated_at')";

pub(crate) const QUERY: &str = "select id, title, rating, modified from content.film";
/// The same rows. But a query with a condition is read by the keys of its table, as rows may leave it.
pub(crate) const FILTERED: &str = "select id, title, rating, modified from content.film where id > 0";

/// Copies of one meta-store are installations of their own.
const NEW_INSTALLATION: &str = "update etl.etl_installation set id = gen_random_uuid()";

async fn migrate(url: &str) {
    let store = Store::connect(url, "vitrina-test", 2).await.unwrap();
    store.migrate().await.unwrap();
}

impl Stage {
    /// Films 1 to `films`, an empty mart, and no pipeline yet.
    pub(crate) async fn with_films(films: i32) -> Self {
        let stage = Self::empty().await;
        stage.db.execute(FILMS).await;
        stage.add_films(1, films).await;
        stage
    }

    pub(crate) async fn empty() -> Self {
        let db = Database::prepared(async |url| migrate(url).await).await;
        db.execute(NEW_INSTALLATION).await;
        Self::on(db).await
    }

    /// On a server that may crash without taking other tests with it.
    pub(crate) async fn on_a_server_of_its_own(films: i32) -> Self {
        let db = Database::on_a_server_of_its_own().await;
        migrate(db.url()).await;
        let stage = Self::on(db).await;
        stage.db.execute(FILMS).await;
        stage.add_films(1, films).await;
        stage
    }

    /// The server is shut down at once and started again.
    pub(crate) async fn crash(self) -> Self {
        Self { db: self.db.crash().await, store: self.store }
    }

    /// A copy of all of it, as somebody makes one for tests. Both know the same installation.
    pub(crate) async fn copy(&mut self) -> Self {
        let copy = Self::on(self.db.copy().await).await;
        self.store = Store::connect(self.db.url(), "vitrina-test", 8).await.unwrap();
        copy
    }

    async fn on(db: Database) -> Self {
        let store = Store::connect(db.url(), "vitrina-test", 8).await.unwrap();
        Self { db, store }
    }

    pub(crate) async fn add_films(&self, from: i32, to: i32) {
        self.db
            .execute(&format!(
                "insert into content.film (id, title, rating, modified)
                 select n, 'Film ' || n, (n % 100) / 10.0, '2024-01-01'::timestamptz + n * interval '1 minute'
                   from generate_series({from}, {to}) n"
            ))
            .await;
    }

    pub(crate) async fn pipeline(&self, changes: Value) -> PipelineId {
        let mut config = json!({
            "id": Uuid::new_v4(), "name": "film", "type": "SQL", "source_type": "postgres", "source_connection": "content",
            "source_table": null, "source_query": QUERY, "target_table": "analytics.film", "mode": "full", "batch_size": 1000,
            "enabled": true, "schedule_interval": null, "incremental_key": null, "incremental_id_key": null,
            "capture": "cursor", "late_window_seconds": 600, "delete_limit": 0.2, "python_task": null,
        });
        for (field, value) in changes.as_object().unwrap() {
            config[field] = value.clone();
        }
        self.store.create_pipeline(&serde_json::from_value(config).unwrap()).await.unwrap().config.id
    }

    pub(crate) async fn full(&self, batch_size: i32) -> PipelineId {
        self.pipeline(json!({"batch_size": batch_size})).await
    }

    pub(crate) async fn incremental(&self, batch_size: i32) -> PipelineId {
        self.incremental_of(QUERY, batch_size).await
    }

    pub(crate) async fn incremental_of(&self, query: &str, batch_size: i32) -> PipelineId {
        self.pipeline(json!({
            "mode": "incremental", "batch_size": batch_size, "incremental_key": "modified", "incremental_id_key": "id",
            "source_query": query,
        }))
        .await
    }

    pub(crate) fn settings(&self, name: &str) -> RunnerSettings {
        let connection = |name: &str| {
            let schemas = vec!["content".to_owned(), "ugc".to_owned()];
            (name.to_owned(), Connection::new(name, self.db.url().into(), schemas))
        };
        RunnerSettings {
            python: None,
            name: name.to_owned(),
            max_concurrent: 4,
            // Long enough that a test which passes was woken, not polled.
            poll_interval: Duration::from_secs(3600),
            lease: Duration::from_secs(30),
            shutdown_timeout: Duration::from_secs(10),
            pause_timeout: Duration::from_secs(30),
            max_batch_bytes: 16 << 20,
            source_patience: Duration::from_secs(60),
            changelog_max_age: Duration::from_secs(3600),
            load_max_age: Duration::from_secs(3600),
            keep_history: Duration::from_secs(86_400),
            allowed_targets: AllowedTargets::default(),
            connections: Connections(BTreeMap::from([connection("content"), connection("marts")])),
            sources: sources::Kinds::default(),
            sinks: sinks::Kinds::default(),
        }
    }

    pub(crate) async fn work_off(&self, settings: RunnerSettings) {
        Runner::new(settings, self.store.clone()).work_off().await.unwrap();
    }

    pub(crate) async fn request_keys(&self, id: PipelineId, keys: Value) -> RunId {
        let keys = Some(keys.as_array().unwrap().clone());
        let request = RunRequest { keys, ..RunRequest::default() };
        self.store.request_run(id, OnActive::Reject, &request).await.unwrap().run.unwrap()
    }

    pub(crate) async fn request_range(&self, id: PipelineId, from: Option<&str>, to: Option<&str>) -> RunId {
        let range = CursorRange { from: from.map(Into::into), to: to.map(Into::into), at: None };
        let request = RunRequest { range: Some(range), ..RunRequest::default() };
        self.store.request_run(id, OnActive::Reject, &request).await.unwrap().run.unwrap()
    }

    /// Code and key of every reject, in the order of their keys.
    pub(crate) async fn rejects(&self) -> Vec<(String, String)> {
        let rows = self.db.texts("select code, key::text from etl.etl_rejects order by key::text").await;
        let text = |cell: &Option<String>| cell.clone().unwrap();
        rows.iter().map(|row| (text(&row[0]), text(&row[1]))).collect()
    }

    pub(crate) async fn checkpoint(&self) -> Value {
        let text: String = self.db.value("select checkpoint::text from etl.etl_state").await;
        serde_json::from_str(&text).unwrap()
    }

    pub(crate) fn runner(&self) -> Runner {
        Runner::new(self.settings("tester"), self.store.clone())
    }

    /// A runner at work in the background, and the token that stops it.
    pub(crate) fn start_runner(&self, name: &str) -> (JoinSet<()>, CancellationToken) {
        self.start(self.settings(name))
    }

    pub(crate) fn start(&self, settings: RunnerSettings) -> (JoinSet<()>, CancellationToken) {
        let shutdown = CancellationToken::new();
        let runner = Runner::new(settings, self.store.clone());
        let mut tasks = JoinSet::new();
        let token = shutdown.clone();
        tasks.spawn(async move { runner.run(token).await.unwrap() });
        (tasks, shutdown)
    }

    pub(crate) async fn request(&self, id: PipelineId) -> RunId {
        self.outlasts_others().await;
        self.store.request_run(id, OnActive::Join, &RunRequest::default()).await.unwrap().run.unwrap()
    }

    /// Continues what the last run left when it failed.
    pub(crate) async fn request_resume(&self, id: PipelineId) -> RunId {
        let request = RunRequest { resume: true, ..RunRequest::default() };
        self.outlasts_others().await;
        self.store.request_run(id, OnActive::Reject, &request).await.unwrap().run.unwrap()
    }

    pub(crate) async fn request_mode(&self, id: PipelineId, mode: Mode) -> RunId {
        let request = RunRequest { mode: Some(mode), ..RunRequest::default() };
        self.outlasts_others().await;
        self.store.request_run(id, OnActive::Join, &request).await.unwrap().run.unwrap()
    }

    pub(crate) async fn change(&self, id: PipelineId, event: Event) {
        self.store.request_change(id, event).await.unwrap();
    }

    pub(crate) async fn delete(&self, id: PipelineId) {
        let actor = Actor { name: "tester".to_owned(), request_id: "1".to_owned() };
        self.store.configure(&[Change::DeletePipeline { id, version: None }], &actor).await.unwrap();
    }

    /// A pause whose notification is lost: the runner learns of it when it commits its batch.
    pub(crate) async fn pause_unheard(&self, id: PipelineId) {
        self.db.execute("alter table etl.etl_pipelines disable trigger tell_status").await;
        self.change(id, Event::Pause).await;
        self.db.execute("alter table etl.etl_pipelines enable trigger tell_status").await;
    }

    /// Requests a run and executes it to its end.
    pub(crate) async fn run(&self, id: PipelineId) -> RunRecord {
        let run = self.request(id).await;
        self.runner().work_off().await.unwrap();
        self.run_record(run).await
    }

    pub(crate) async fn succeed(&self, id: PipelineId) -> RunRecord {
        let run = self.run(id).await;
        assert_eq!(run.status, RunStatus::Success, "{:?}", run.error);
        assert_eq!(self.status(id).await, Status::Idle);
        run
    }

    /// Returns when no transaction is open that is older than what was written until now: other tests share the server,
    /// and a fence behind one of theirs rightly has rows read again. A test that holds a transaction open itself means
    /// it, and waits for nobody; two that do so in several databases do not wait for each other for ever.
    pub(crate) async fn outlasts_others(&self) {
        let written: String = self.db.value("select pg_current_xact_id()::text").await;
        let alone = format!(
            "select pg_snapshot_xmin(pg_current_snapshot()) > '{written}'::xid8
                 or exists (select from pg_stat_activity where datname = current_database() and state like 'idle in transaction%')
                 or exists (select from pg_prepared_xacts where database = current_database())"
        );
        let asked = poll(|| self.db.value::<bool>(&alone));
        let _ = tokio::time::timeout(Duration::from_secs(20), asked).await;
    }

    /// Runs a pipeline that must fail; answers code and message.
    pub(crate) async fn fail(&self, id: PipelineId) -> (String, String) {
        let run = self.run(id).await;
        assert_eq!((run.status, self.status(id).await), (RunStatus::Failed, Status::Failed));
        (run.error_code.unwrap(), run.error.unwrap())
    }

    pub(crate) async fn run_record(&self, run: RunId) -> RunRecord {
        self.store.run(run).await.unwrap().unwrap()
    }

    pub(crate) async fn status(&self, id: PipelineId) -> Status {
        self.store.pipeline(&PipelineRef::Id(id)).await.unwrap().status
    }

    /// Rows that are in the query's result or in the mart and not in both, as they are written.
    pub(crate) async fn differences(&self) -> i64 {
        self.db
            .value(&format!(
                "with mart as (select id, title, rating, modified from analytics.film), source as ({QUERY})
                 select (select count(*) from (table mart except all table source) a) + (select count(*) from (table source except all table mart) b)"
            ))
            .await
    }

    pub(crate) async fn count(&self, table: &str) -> i64 {
        self.db.value(&format!("select count(*) from {table}")).await
    }

    /// Locks the mart against writers; the lock is held until the client is dropped or commits.
    pub(crate) async fn block_mart(&self) -> Client {
        let blocker = self.db.client().await;
        blocker.batch_execute("begin; lock table analytics.film in share mode").await.unwrap();
        blocker
    }

    /// Holds a row of the mart that is not there for others: whoever writes that key waits.
    pub(crate) async fn block_film(&self, id: i32) -> Client {
        let blocker = self.db.client().await;
        blocker
            .batch_execute(&format!("begin; insert into analytics.film (id) values ({id})"))
            .await
            .unwrap();
        blocker
    }

    /// Returns when some session waits for a transaction to end.
    pub(crate) async fn someone_waits_for_a_row(&self) {
        let waiting = "select exists (select from pg_locks l join pg_stat_activity a using (pid)
                                       where not l.granted and l.locktype = 'transactionid' and a.datname = current_database())";
        until(|| self.db.value::<bool>(waiting)).await;
    }

    /// Returns when some session waits for a lock on the mart.
    pub(crate) async fn someone_waits_for_the_mart(&self) {
        self.someone_waits_for("analytics.film").await;
    }

    pub(crate) async fn someone_waits_for(&self, table: &str) {
        let waiting = format!(
            "select exists (select from pg_locks where relation = '{table}'::regclass and not granted)"
        );
        until(|| self.db.value::<bool>(&waiting)).await;
    }

    pub(crate) async fn reaches(&self, id: PipelineId, status: Status) {
        until(async || self.status(id).await == status).await;
    }

    pub(crate) async fn expire_leases(&self) {
        self.db.execute("update etl.etl_pipelines set lease_until = now() - interval '1 second' where lease_until is not null").await;
    }
}

/// Asks until the answer is yes; the bound is for a test that would hang.
pub(crate) async fn until<F: Future<Output = bool>>(question: impl FnMut() -> F) {
    tokio::time::timeout(Duration::from_secs(90), poll(question)).await.expect("it never came true");
}

/// With a breath in between, which those who are waited for need on a machine with two cores.
async fn poll<F: Future<Output = bool>>(mut question: impl FnMut() -> F) {
    while !question().await {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}
