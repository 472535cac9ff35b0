//! Indexes of both search servers.

use std::collections::BTreeMap;

use async_trait::async_trait;
use serde_json::{Value, json};
use vitrina_connectors::Connection;
use vitrina_runner::RunnerSettings;
use vitrina_testbed::{Fault, FaultProxy, Indexes, SearchServer};

use super::{Abilities, Target};
use crate::stage::Stage;

/// Of OpenSearch, or of Elasticsearch.
pub(crate) struct Index<const OPEN: bool> {
    indexes: Indexes,
    proxy: FaultProxy,
}

pub(crate) type Elasticsearch = Index<false>;
pub(crate) type Opensearch = Index<true>;

impl<const OPEN: bool> Index<OPEN> {
    async fn describe(&self, stage: &Stage, index: &str, mapping: &Value) {
        let describe = format!(
            "insert into etl.etl_targets (name, connection, key, create_if_missing, mapping, document)
             values ('es:{index}', 'search', '{{id}}', false, {}, '{{}}')",
            if mapping.is_null() { "null".to_owned() } else { format!("$json${mapping}$json$") }
        );
        stage.db.execute(&describe).await;
    }

    fn films(&self) -> String {
        self.indexes.name("films")
    }

    fn typed(&self) -> String {
        self.indexes.name("typed")
    }

    fn server(&self) -> &SearchServer {
        self.indexes.server()
    }

    async fn call(&self, method: &str, path: &str, body: Value) -> Value {
        let (status, answer) = self.server().call(method, path, body).await;
        assert!((200..300).contains(&status) || status == 404, "{method} {path}: {status} {answer}");
        answer
    }
}

#[async_trait(?Send)]
impl<const OPEN: bool> Target for Index<OPEN> {
    const ABILITIES: Abilities = Abilities {
        refusal: "row.mapping",
        // A search answers no more than 10,000 documents.
        batch_sizes: &[7, 1000],
        // A run costs a second; the two servers are played at different requests.
        every: if OPEN { 8 } else { 11 },
        compares: Ok(()),
        hashes_content: Err("the checksum that a document carries since it was written"),
        writes_differences: Err(
            "a load fills a new index, and what an index has is not read before it is written",
        ),
        exact_figures: Err("a bulk that is sent again finds its own documents"),
    };

    async fn create(stage: &Stage) -> Self {
        let server =
            if OPEN { SearchServer::opensearch().await } else { SearchServer::elasticsearch().await };
        let proxy = FaultProxy::before(&server).await;
        let index = Self { indexes: server.indexes(), proxy };
        let properties = json!({"id": {"type": "integer"}, "title": {"type": "keyword"}, "note": {"type": "integer"},
            "modified": {"type": "date"}});
        index.describe(stage, &index.films(), &json!({ "properties": properties })).await;
        index
    }

    fn name(&self) -> String {
        format!("es:{}", self.films())
    }

    fn connect(&self, settings: &mut RunnerSettings) {
        let search = Connection::new("search", self.proxy.url().into(), Vec::new());
        settings.connections.0.insert("search".to_owned(), search);
    }

    async fn titles(&self, _: &Stage) -> BTreeMap<String, String> {
        self.call("POST", &format!("{}/_refresh", self.films()), Value::Null).await;
        let search = json!({"size": 10_000, "_source": ["title"]});
        let found = self.call("POST", &format!("{}/_search", self.films()), search).await;
        let hits = found["hits"]["hits"].as_array().cloned().unwrap_or_default();
        let text = |value: &Value| value.as_str().unwrap().to_owned();
        hits.iter().map(|hit| (text(&hit["_id"]), text(&hit["_source"]["title"]))).collect()
    }

    async fn put(&self, _: &Stage, id: i32, title: &str) {
        let body = json!({"doc": {"title": title}, "upsert": {"id": id, "title": title}});
        self.call("POST", &format!("{}/_update/{id}", self.films()), body).await;
    }

    async fn remove(&self, _: &Stage, id: i32) {
        self.call("DELETE", &format!("{}/_doc/{id}", self.films()), Value::Null).await;
    }

    async fn empty(&self, _: &Stage) {
        let behind = self.call("GET", &format!("_alias/{}", self.films()), Value::Null).await;
        for index in behind.as_object().unwrap().keys().filter(|key| *key != "error" && *key != "status") {
            self.call("DELETE", index, Value::Null).await;
        }
    }

    async fn create_typed(&self, stage: &Stage, _: &[(String, String)]) -> String {
        self.describe(stage, &self.typed(), &Value::Null).await;
        format!("es:{}", self.typed())
    }

    async fn copy_value(&self, _: &Stage, column: &str) {
        let source = self.server().document(&self.typed(), "2").await.unwrap()["_source"].clone();
        let body = json!({"doc": {column: source[column]}});
        self.call("POST", &format!("{}/_update/1", self.typed()), body).await;
    }

    fn play_at(&self, nth: usize, fault: Fault) {
        self.proxy.play_at(nth, fault);
    }

    fn requests(&self) -> usize {
        self.proxy.requests()
    }
}
