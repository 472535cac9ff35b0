//! Films in a database, and an index of a search server that a pipeline keeps true to them.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use serde_json::{Value, json};
use uuid::Uuid;
use vitrina_connectors::{Connection, Secret};
use vitrina_core::{PipelineId, RunStatus, Status, TargetPart};
use vitrina_runner::{Runner, RunnerSettings};
use vitrina_store::RunRecord;
use vitrina_testbed::{Indexes, SearchServer};

use crate::stage::Stage;

pub(crate) struct Shelf {
    pub(crate) stage: Stage,
    pub(crate) indexes: Indexes,
    /// What readers search.
    pub(crate) index: String,
    /// Where the runner finds the server.
    pub(crate) url: String,
    /// What it shows there instead of a password.
    pub(crate) api_key: Option<Secret>,
    /// Whom it trusts there.
    pub(crate) ca: Option<PathBuf>,
}

impl Shelf {
    /// Films 1 to `films`, a described target, no index yet.
    pub(crate) async fn new(server: &SearchServer, films: i32) -> Self {
        let shelf = Self::bare(server, films).await;
        shelf.describe(json!({})).await;
        shelf
    }

    /// Without a described target.
    pub(crate) async fn bare(server: &SearchServer, films: i32) -> Self {
        let stage = Stage::with_films(films).await;
        let indexes = server.indexes();
        let index = indexes.name("films");
        let url = indexes.server().url().to_owned();
        Self { stage, url, indexes, index, api_key: None, ca: None }
    }

    /// Through a proxy, say.
    pub(crate) fn at(self, url: &str) -> Self {
        Self { url: url.to_owned(), ..self }
    }

    pub(crate) fn server(&self) -> &SearchServer {
        self.indexes.server()
    }

    pub(crate) fn target(&self) -> String {
        format!("es:{}", self.index)
    }

    /// The target's definition: key id, and what is given.
    pub(crate) async fn describe(&self, definition: Value) {
        let mut row = json!({"name": self.target(), "connection": "search", "key": ["id"], "document": {},
            "create_if_missing": false});
        for (field, value) in definition.as_object().unwrap() {
            row[field] = value.clone();
        }
        self.stage
            .db
            .execute(&format!(
                "delete from etl.etl_targets where name = '{}';
                 insert into etl.etl_targets (name, connection, key, create_if_missing, mapping, settings, document)
                 select name, connection, key, create_if_missing, mapping, settings, document
                   from jsonb_populate_record(null::etl.etl_targets, $json${row}$json$)",
                self.target()
            ))
            .await;
    }

    pub(crate) async fn pipeline(&self, changes: Value) -> PipelineId {
        let mut config = json!({"target_table": self.target()});
        for (field, value) in changes.as_object().unwrap() {
            config[field] = value.clone();
        }
        // The meta-store refuses a second writer. What an older release let be, and what is written past the API, the sink has to.
        let target = config["target_table"].as_str().unwrap().to_owned();
        let part = TargetPart { target: target.clone(), shared_value: None };
        let writers = self.stage.store.writers(&part).await.unwrap();
        if writers.shared || writers.names.is_empty() {
            return self.stage.pipeline(config).await;
        }
        config["target_table"] = json!(format!("es:{}", Uuid::new_v4()));
        let id = self.stage.pipeline(config).await;
        let sql = format!("update etl.etl_pipelines set target_table = '{target}' where id = '{id}'");
        self.stage.db.execute(&sql).await;
        id
    }

    pub(crate) async fn full(&self, batch_size: i32) -> PipelineId {
        self.pipeline(json!({"batch_size": batch_size})).await
    }

    pub(crate) async fn incremental(&self, batch_size: i32) -> PipelineId {
        let cursor = json!({"mode": "incremental", "batch_size": batch_size, "incremental_key": "modified",
            "incremental_id_key": "id"});
        self.pipeline(cursor).await
    }

    pub(crate) fn settings(&self, name: &str) -> RunnerSettings {
        let mut settings = self.stage.settings(name);
        let search = Connection::new("search", self.url.as_str().into(), Vec::new());
        let search = search.trusting(self.api_key.clone(), self.ca.clone());
        settings.connections.0.insert("search".to_owned(), search);
        settings
    }

    /// Of a runner that looks often, for pipelines that are given back.
    pub(crate) fn patient(&self) -> RunnerSettings {
        RunnerSettings { poll_interval: Duration::from_millis(200), ..self.settings("patient") }
    }

    pub(crate) async fn run(&self, id: PipelineId) -> RunRecord {
        let run = self.stage.request(id).await;
        self.work_off("tester").await;
        self.stage.run_record(run).await
    }

    pub(crate) async fn work_off(&self, name: &str) {
        Runner::new(self.settings(name), self.stage.store.clone()).work_off().await.unwrap();
    }

    pub(crate) async fn succeed(&self, id: PipelineId) -> RunRecord {
        let run = self.run(id).await;
        assert_eq!(run.status, RunStatus::Success, "{:?} {:?}", run.error_code, run.error);
        assert_eq!(self.stage.status(id).await, Status::Idle);
        run
    }

    pub(crate) async fn fail(&self, id: PipelineId) -> (String, String) {
        let run = self.run(id).await;
        assert_eq!(run.status, RunStatus::Failed);
        (run.error_code.unwrap(), run.error.unwrap())
    }

    /// The run is given back, for now; answers why.
    pub(crate) async fn given_back(&self, id: PipelineId) -> (String, String) {
        let run = self.run(id).await;
        let stands = (run.status, self.stage.status(id).await);
        assert_eq!(
            stands,
            (RunStatus::Running, Status::RunRequested),
            "{:?} {:?}",
            run.error_code,
            run.error
        );
        let told = "select error_code || ' ' || error from etl.etl_attempts order by id desc limit 1";
        let told: String = self.stage.db.value(told).await;
        let (code, message) = told.split_once(' ').unwrap();
        (code.to_owned(), message.to_owned())
    }

    /// Whoever waits for a better time does so no longer.
    pub(crate) async fn hurry(&self) {
        self.stage.db.execute("update etl.etl_pipelines set retry_at = null").await;
    }

    /// What readers find, by id.
    pub(crate) async fn documents(&self) -> BTreeMap<String, Value> {
        self.server().refresh(&self.index).await;
        let found = self.server().search(&self.index, json!({"size": 10_000})).await;
        let hits = found["hits"]["hits"].as_array().unwrap().iter();
        hits.map(|hit| (hit["_id"].as_str().unwrap().to_owned(), without_checksum(&hit["_source"]))).collect()
    }

    /// What readers should find: the films as JSON.
    pub(crate) async fn films(&self) -> BTreeMap<String, Value> {
        let sql = "select id::text, jsonb_build_object('id', id, 'title', title, 'rating', rating,
                     'modified', to_char(modified at time zone 'UTC', 'YYYY-MM-DD\"T\"HH24:MI:SS\"Z\"'))::text
                     from content.film";
        let rows = self.stage.db.texts(sql).await;
        let film = |row: &Vec<Option<String>>| {
            (row[0].clone().unwrap(), serde_json::from_str(row[1].as_ref().unwrap()).unwrap())
        };
        rows.iter().map(film).collect()
    }

    /// The index holds the films, all of them and no others.
    pub(crate) async fn assert_true(&self) {
        let (found, expected) = (self.documents().await, self.films().await);
        let ids = |map: &BTreeMap<String, Value>| map.keys().cloned().collect::<Vec<_>>();
        assert_eq!(ids(&found), ids(&expected));
        for (id, film) in expected {
            assert_eq!(without_fraction(&found[&id]), film, "{id}");
        }
    }

    /// The physical indexes behind the name, and beside it.
    pub(crate) async fn behind(&self) -> Vec<String> {
        let (status, found) = self.server().call("GET", &format!("_alias/{}", self.index), Value::Null).await;
        if status == 404 { Vec::new() } else { found.as_object().unwrap().keys().cloned().collect() }
    }
}

/// The columns of a document.
fn without_checksum(document: &Value) -> Value {
    let mut document = document.clone();
    document.as_object_mut().unwrap().remove("_vitrina");
    document
}

/// Times of films have no fraction, unless a test gives them one.
fn without_fraction(document: &Value) -> Value {
    let mut document = document.clone();
    if let Some((whole, _)) = document["modified"].as_str().and_then(|time| time.split_once('.')) {
        document["modified"] = format!("{whole}Z").into();
    }
    document
}
