//! Whose an index is: pipelines that write whole documents and those that share an index by fields see each other, also from
//! another installation, and nothing is deleted that was not created here.

use serde_json::{Value, json};
use vitrina_core::{Ledger, PipelineId};
use vitrina_testbed::SearchServer;

use crate::shelf::Shelf;

impl Shelf {
    /// Another installation that writes to the same index.
    async fn of_another_installation(&self, films: i32, document: Value) -> Self {
        let mut other = Self::bare(self.server(), films).await;
        other.index.clone_from(&self.index);
        other.describe(json!({"document": document})).await;
        other
    }

    async fn is_owned(&self, id: PipelineId) {
        let (code, message) = self.fail(id).await;
        assert!(code == "sink.owned" && message.contains("installation"), "{code} {message}");
    }

    async fn forget(&self, id: PipelineId) {
        let settings = self.settings("tester");
        let name = self.target().parse().unwrap();
        let target = self.stage.store.target(&name).await.unwrap();
        let left = vitrina_connectors::sinks::Left {
            pipeline: id,
            target: &target,
            installation: self.stage.store.installation().await.unwrap(),
            request: (uuid::Uuid::nil(), vitrina_core::Owner::draw()),
            issued: &self.stage.store.issued(&[id]).await.unwrap(),
            ledger: &self.stage.store,
            connections: &settings.connections,
            deleted: true,
        };
        settings.sinks.of(&name).unwrap().forget(&left).await.unwrap();
    }

    /// Without the document that an older release did not write.
    async fn as_an_older_release_left_it(&self) {
        let path = format!("vitrina-control/_doc/{}", self.index);
        assert_eq!(self.server().call("DELETE", &path, Value::Null).await.0, 200);
    }
}

#[tokio::test]
async fn an_index_that_others_share_by_fields_is_refused_to_a_writer_of_whole_documents() {
    for server in SearchServer::both().await {
        let shelf = Shelf::bare(&server, 5).await;
        shelf.describe(json!({"document": {"partial": true}})).await;
        let share = shelf.incremental(100).await;
        shelf.succeed(share).await;
        let other = shelf.of_another_installation(5, json!({})).await;
        let whole = other.full(10).await;
        other.is_owned(whole).await;
        shelf.as_an_older_release_left_it().await;
        other.is_owned(whole).await;
        shelf.assert_true().await;
        assert_eq!(shelf.succeed(share).await.rows_read, 0, "it goes on");
        shelf.forget(share).await;
        other.succeed(whole).await;
        other.assert_true().await;
    }
}

#[tokio::test]
async fn an_index_with_a_writer_of_whole_documents_is_refused_to_those_who_would_share_it() {
    for server in SearchServer::both().await {
        let shelf = Shelf::new(&server, 5).await;
        let whole = shelf.full(10).await;
        shelf.succeed(whole).await;
        let other = shelf.of_another_installation(3, json!({"partial": true})).await;
        let share = other.incremental(100).await;
        other.is_owned(share).await;
        shelf.assert_true().await;
        shelf.forget(whole).await;
        other.succeed(share).await;
    }
}

#[tokio::test]
async fn a_pipeline_that_shares_an_index_with_nobody_may_write_whole_documents_and_back() {
    for server in SearchServer::both().await {
        let shelf = Shelf::bare(&server, 5).await;
        shelf.describe(json!({"document": {"partial": true}})).await;
        let id = shelf.full(10).await;
        shelf.succeed(id).await;
        shelf.describe(json!({})).await;
        shelf.succeed(id).await;
        shelf.assert_true().await;
        let share = format!("{}~{id}", shelf.index);
        assert_eq!(shelf.server().document("vitrina-control", &share).await, None);
        shelf.describe(json!({"document": {"partial": true}})).await;
        shelf.succeed(id).await;
        shelf.assert_true().await;
    }
}

#[tokio::test]
async fn loads_delete_no_index_that_this_installation_has_not_created() {
    for server in SearchServer::both().await {
        let shelf = Shelf::new(&server, 5).await;
        let first = shelf.full(10).await;
        shelf.succeed(first).await;
        let of_others = shelf.behind().await.remove(0);
        shelf.forget(first).await;
        let strange = format!("vitrina-{}-{}-{}", shelf.index, "0a1b2c3d", "0123456789ab");
        shelf.server().call("PUT", &format!("{strange}/_doc/1?refresh=true"), json!({"mine": true})).await;
        let other = shelf.of_another_installation(5, json!({})).await;
        let second = other.full(10).await;
        for _ in 0..3 {
            other.succeed(second).await;
        }
        let kept = shelf.indexes.list().await;
        assert!(kept.contains(&of_others) && kept.contains(&strange), "{kept:?}");
        assert_eq!(kept.len(), 4, "and its own, the one that readers see and the one before: {kept:?}");
        other.forget(second).await;
        let kept = shelf.indexes.list().await;
        assert!(kept.contains(&of_others) && kept.contains(&strange), "{kept:?}");
        assert_eq!(kept.len(), 3, "{kept:?}");
        other.assert_true().await;
    }
}

/// An older release has noted in the control document alone what it has created.
#[tokio::test]
async fn an_index_that_an_older_release_has_created_is_deleted_when_nobody_can_go_back_to_it() {
    let server = SearchServer::opensearch().await;
    let shelf = Shelf::new(&server, 5).await;
    let id = shelf.full(10).await;
    shelf.succeed(id).await;
    let old = shelf.behind().await.remove(0);
    let unmarked = json!({"_meta": {"vitrina": {"checksum": 1}}});
    assert_eq!(shelf.server().call("PUT", &format!("{old}/_mapping"), unmarked).await.0, 200);
    shelf.succeed(id).await;
    assert!(shelf.indexes.list().await.contains(&old), "to go back to");
    shelf.succeed(id).await;
    let kept = shelf.indexes.list().await;
    assert!(!kept.contains(&old) && kept.len() == 2, "{kept:?}");
}
