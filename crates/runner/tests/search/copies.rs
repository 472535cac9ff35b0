//! Copied and restored meta-stores: only one of several that know the same installation writes to an index.

use serde_json::{Value, json};
use vitrina_core::{Ledger, Mode, PipelineId, RunStatus, Status};
use vitrina_store::Actor;
use vitrina_testbed::{Fault, FaultProxy, Gate, SearchServer};

use crate::shelf::Shelf;
use crate::stage::until;

fn actor() -> Actor {
    Actor { name: "tester".to_owned(), request_id: "1".to_owned() }
}

impl Shelf {
    /// A copy of the meta-store, whose runners write to the same index.
    async fn copy(&mut self) -> Self {
        let stage = self.stage.copy().await;
        let indexes = self.server().indexes();
        Self { stage, indexes, index: self.index.clone(), url: self.url.clone(), api_key: None, ca: None }
    }

    async fn name_films(&self, title: &str) {
        let sql = format!("update content.film set title = '{title}', modified = clock_timestamp()");
        self.stage.db.execute(&sql).await;
    }

    /// Stopped for good, by an error that names the two commands which decide.
    async fn stops(&self, id: PipelineId) {
        let (code, message) = self.fail(id).await;
        assert_eq!(code, "installation.copied", "{message}");
        assert_eq!(self.stage.status(id).await, Status::Failed);
        let named = ["vitrina installation adopt", "vitrina installation new", self.index.as_str()];
        assert!(named.iter().all(|word| message.contains(word)), "{message}");
    }

    async fn titles(&self) -> Vec<String> {
        let documents = self.documents().await;
        let mut titles: Vec<_> =
            documents.values().map(|film| film["title"].as_str().unwrap().to_owned()).collect();
        titles.dedup();
        titles
    }

    /// Everything that Vitrina keeps at the server for this index.
    async fn everything(&self, id: PipelineId) -> Value {
        let get = async |path: String| self.server().call("GET", &path, Value::Null).await.1;
        let mut found = vec![
            get(format!("vitrina-control/_doc/{}", self.index)).await,
            get(format!("vitrina-control/_doc/{}~{id}", self.index)).await,
            get(format!("*{}*/_alias?expand_wildcards=all", self.index)).await,
        ];
        // Closed aliases of other tests are on the same index.
        for index in found[2].as_object_mut().unwrap().values_mut() {
            index["aliases"].as_object_mut().unwrap().retain(|alias, _| alias.contains(&self.index));
        }
        json!(found)
    }
}

#[tokio::test]
async fn a_copied_meta_store_does_not_overwrite_the_index_of_the_original() {
    for server in SearchServer::both().await {
        let mut original = Shelf::new(&server, 10).await;
        let id = original.incremental(100).await;
        original.succeed(id).await;
        let copy = original.copy().await;
        original.name_films("of the original").await;
        original.succeed(id).await;
        let before = original.everything(id).await;
        copy.stops(id).await;
        copy.name_films("of the copy").await;
        copy.stops(id).await;
        assert_eq!(original.everything(id).await, before, "nothing is changed at the server");
        assert_eq!(original.titles().await, ["of the original"]);
        original.succeed(id).await;
        original.assert_true().await;
    }
}

#[tokio::test]
async fn a_copied_meta_store_does_not_write_its_fields_into_an_index_that_others_share() {
    for server in SearchServer::both().await {
        let mut original = Shelf::bare(&server, 10).await;
        original.describe(json!({"document": {"partial": true}})).await;
        let id = original.incremental(100).await;
        original.succeed(id).await;
        let copy = original.copy().await;
        original.name_films("of the original").await;
        original.succeed(id).await;
        copy.name_films("of the copy").await;
        let before = original.everything(id).await;
        copy.stops(id).await;
        // Nor does it as the only writer of the index.
        copy.describe(json!({})).await;
        let run = copy.stage.request_mode(id, Mode::Full).await;
        copy.work_off("tester").await;
        let stopped = copy.stage.run_record(run).await;
        assert_eq!(stopped.error_code.as_deref(), Some("installation.copied"), "{:?}", stopped.error);
        assert_eq!(original.everything(id).await, before, "nothing is changed at the server");
        assert_eq!(original.titles().await, ["of the original"]);
    }
}

#[tokio::test]
async fn an_adopted_meta_store_reads_an_index_again_that_another_copy_has_written_to() {
    for server in SearchServer::both().await {
        let mut original = Shelf::new(&server, 10).await;
        let id = original.incremental(100).await;
        original.succeed(id).await;
        let copy = original.copy().await;
        // What the copy has written is older than what the original has: its films are.
        original.name_films("of the original").await;
        original.succeed(id).await;
        copy.stops(id).await;
        copy.stage.store.adopt_targets(&actor()).await.unwrap();
        copy.succeed(id).await;
        copy.assert_true().await;
        original.stops(id).await;
        copy.assert_true().await;
        original.stage.store.adopt_targets(&actor()).await.unwrap();
        original.succeed(id).await;
        original.assert_true().await;
        let adopts: bool = original.stage.db.value("select adopts from etl.etl_lease_owners").await;
        assert!(!adopts, "once is enough");
    }
}

#[tokio::test]
async fn a_copy_with_an_installation_of_its_own_is_refused_the_index_of_the_original() {
    for server in SearchServer::both().await {
        let mut original = Shelf::new(&server, 10).await;
        let id = original.incremental(100).await;
        original.succeed(id).await;
        let copy = original.copy().await;
        copy.stage.store.renew_installation(&actor()).await.unwrap();
        copy.name_films("of the copy").await;
        let (code, message) = copy.fail(id).await;
        assert_eq!(code, "sink.owned", "{message}");
        original.assert_true().await;
        original.succeed(id).await;
        original.assert_true().await;
    }
}

#[tokio::test]
async fn a_pipeline_that_is_deleted_in_a_copy_leaves_the_index_of_the_original() {
    for server in SearchServer::both().await {
        let mut original = Shelf::new(&server, 10).await;
        let id = original.incremental(100).await;
        original.succeed(id).await;
        let copy = original.copy().await;
        original.name_films("of the original").await;
        original.succeed(id).await;
        let before = original.everything(id).await;
        let settings = copy.settings("tester");
        let name = copy.target().parse().unwrap();
        let target = copy.stage.store.target(&name).await.unwrap();
        let kind = settings.sinks.of(&name).unwrap();
        let issued = copy.stage.store.issued(&[id]).await.unwrap();
        let mut left = vitrina_connectors::sinks::Left {
            pipeline: id,
            deleted: true,
            target: &target,
            installation: copy.stage.store.installation().await.unwrap(),
            request: (uuid::Uuid::nil(), vitrina_core::Owner::draw()),
            issued: &issued,
            ledger: &copy.stage.store,
            connections: &settings.connections,
        };
        let refused = kind.forget(&left).await.unwrap_err();
        assert_eq!(refused.code, "installation.copied");
        left.installation = copy.stage.store.renew_installation(&actor()).await.unwrap().after;
        kind.forget(&left).await.unwrap();
        assert_eq!(original.everything(id).await, before);
    }
}

#[tokio::test]
async fn an_index_that_an_older_release_has_written_to_continues() {
    for server in SearchServer::both().await {
        let shelf = Shelf::new(&server, 10).await;
        let id = shelf.incremental(100).await;
        shelf.succeed(id).await;
        let path = format!("vitrina-control/_doc/{}", shelf.index);
        let (_, mut control) = shelf.server().call("GET", &path, Value::Null).await;
        let control = &mut control["_source"];
        assert!(control.as_object_mut().unwrap().remove("owner").is_some());
        shelf.server().call("PUT", &path, control.clone()).await;
        shelf.stage.db.execute("delete from etl.etl_lease_owners").await;
        shelf.succeed(id).await;
        shelf.name_films("new").await;
        shelf.succeed(id).await;
        shelf.assert_true().await;
        shelf.succeed(id).await;
    }
}

#[tokio::test]
async fn an_index_of_a_pipeline_that_was_created_after_the_backup_is_taken_back_once_that_is_decided() {
    for server in SearchServer::both().await {
        let mut before = Shelf::new(&server, 10).await;
        let restored = before.copy().await;
        let id = before.incremental(100).await;
        before.succeed(id).await;
        before.name_films("of the other").await;
        before.succeed(id).await;
        // The same files are applied again: the same name, and another id.
        let again = restored.incremental(100).await;
        let kept = before.everything(id).await;
        restored.stops(again).await;
        restored.stops(again).await;
        assert_eq!(before.everything(id).await, kept, "never without the decision");
        restored.stage.store.adopt_targets(&actor()).await.unwrap();
        restored.succeed(again).await;
        restored.assert_true().await;
        let kept = before.everything(again).await;
        before.stops(id).await;
        assert_eq!(before.everything(again).await, kept);
        restored.name_films("restored").await;
        restored.succeed(again).await;
        restored.assert_true().await;
    }
}

#[tokio::test]
async fn a_pipeline_of_the_other_copy_writes_nothing_to_an_index_that_was_taken_back() {
    for server in SearchServer::both().await {
        let proxy = FaultProxy::before(&server).await;
        let mut before = Shelf::new(&server, 10).await;
        let restored = before.copy().await;
        let id = before.incremental(100).await;
        before.succeed(id).await;
        before.name_films("too late").await;
        let before = before.at(proxy.url());
        let gate = Gate::new();
        proxy.play(1, "_bulk", Fault::Hold(gate.clone()));
        let late = before.stage.request(id).await;
        let (mut other, _) = before.stage.start(before.settings("other"));
        gate.arrived().await;
        let again = restored.incremental(100).await;
        restored.stops(again).await;
        restored.stage.store.adopt_targets(&actor()).await.unwrap();
        restored.succeed(again).await;
        gate.open();
        until(async || before.stage.run_record(late).await.error_code.is_some()).await;
        assert_ne!(before.stage.run_record(late).await.status, RunStatus::Success);
        restored.assert_true().await;
        other.abort_all();
    }
}

#[tokio::test]
async fn fields_of_a_pipeline_that_was_created_after_the_backup_are_taken_back_once_that_is_decided() {
    for server in SearchServer::both().await {
        let mut before = Shelf::bare(&server, 10).await;
        before.describe(json!({"document": {"partial": true}})).await;
        let restored = before.copy().await;
        let id = before.incremental(100).await;
        before.succeed(id).await;
        let again = restored.incremental(100).await;
        let kept = before.everything(id).await;
        restored.stops(again).await;
        assert_eq!(before.everything(id).await, kept, "never without the decision");
        restored.stage.store.adopt_targets(&actor()).await.unwrap();
        restored.name_films("restored").await;
        restored.succeed(again).await;
        restored.assert_true().await;
        let control = before.server().document("vitrina-control", &before.index).await.unwrap();
        let writers = control["_source"]["writers"].as_object().unwrap();
        assert_eq!(writers.keys().collect::<Vec<_>>(), [&again.to_string()]);
        before.stops(id).await;
    }
}

/// The target is described otherwise in the files that are applied after the restore.
#[tokio::test]
async fn an_index_is_taken_back_whether_whole_documents_or_fields_were_written_to_it() {
    for server in SearchServer::both().await {
        for (then, now) in [(json!({"partial": true}), json!({})), (json!({}), json!({"partial": true}))] {
            let mut before = Shelf::bare(&server, 10).await;
            before.describe(json!({"document": then})).await;
            let restored = before.copy().await;
            restored.describe(json!({"document": now})).await;
            let id = before.incremental(100).await;
            before.succeed(id).await;
            let again = restored.incremental(100).await;
            restored.stops(again).await;
            restored.stage.store.adopt_targets(&actor()).await.unwrap();
            restored.name_films("restored").await;
            restored.succeed(again).await;
            restored.assert_true().await;
            before.stops(id).await;
            restored.succeed(again).await;
        }
    }
}

#[tokio::test]
async fn a_copy_with_an_installation_of_its_own_is_refused_the_fields_of_the_original() {
    for server in SearchServer::both().await {
        let mut original = Shelf::bare(&server, 10).await;
        original.describe(json!({"document": {"partial": true}})).await;
        let id = original.incremental(100).await;
        original.succeed(id).await;
        let copy = original.copy().await;
        let renewed = copy.stage.store.renew_installation(&actor()).await.unwrap();
        copy.name_films("of the copy").await;
        let before = original.everything(id).await;
        let refused = async || {
            let (code, message) = copy.fail(id).await;
            assert_eq!(code, "sink.owned", "{message}");
            assert!(message.contains(&renewed.before.to_string()), "{message}");
            assert_eq!(original.everything(id).await, before, "nothing is changed at the server");
        };
        refused().await;
        // Nobody takes what is another installation's.
        copy.stage.store.adopt_targets(&actor()).await.unwrap();
        refused().await;
        copy.describe(json!({})).await;
        copy.stage.db.execute("update etl.etl_pipelines set mode = 'full'").await;
        refused().await;
        original.succeed(id).await;
        original.assert_true().await;
    }
}
