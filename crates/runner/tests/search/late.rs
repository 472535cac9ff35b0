//! Requests of which a network has kept a copy: what arrives after the end of its run changes nothing.

use serde_json::{Value, json};
use vitrina_core::PipelineId;
use vitrina_testbed::{Fault, FaultProxy, Gate, SearchServer};

use crate::shelf::Shelf;

const OLDER: &str =
    "update content.film set title = 'old', modified = date_trunc('second', now()) where id = 1";
const HIDDEN: &str = "update content.film set title = 'hidden', modified = now() where id = 1";

impl Shelf {
    /// Films that are not hidden.
    async fn shown(&self) -> PipelineId {
        let query = "select id, title, rating, modified from content.film where title <> 'hidden'";
        self.pipeline(
            json!({"mode": "incremental", "incremental_key": "modified", "incremental_id_key": "id",
            "source_query": query, "delete_limit": 1}),
        )
        .await
    }

    /// Its shards know nothing of deleted documents afterwards.
    async fn reopen(&self) {
        let index = self.behind().await.remove(0);
        for call in ["_close", "_open?wait_for_active_shards=1"] {
            assert_eq!(self.server().call("POST", &format!("{index}/{call}"), Value::Null).await.0, 200);
        }
    }

    async fn shows_all_but_the_hidden(&self) {
        self.stage.db.execute("delete from content.film where title = 'hidden'").await;
        self.assert_true().await;
    }
}

#[tokio::test]
async fn a_copy_of_a_bulk_that_arrives_after_the_end_of_its_run_brings_no_deleted_document_back() {
    for server in SearchServer::both().await {
        let proxy = FaultProxy::before(&server).await;
        let shelf = Shelf::new(&server, 5).await.at(proxy.url());
        let id = shelf.shown().await;
        shelf.succeed(id).await;
        shelf.stage.db.execute(OLDER).await;
        let late = Gate::new();
        proxy.play(1, "_bulk", Fault::DuplicateLater(late.clone()));
        shelf.succeed(id).await;
        shelf.stage.db.execute(HIDDEN).await;
        shelf.succeed(id).await;
        shelf.reopen().await;
        late.open();
        late.passed().await;
        shelf.shows_all_but_the_hidden().await;
    }
}

#[tokio::test]
async fn a_copy_of_the_call_that_opened_a_write_alias_does_not_open_it_again() {
    for server in SearchServer::both().await {
        let proxy = FaultProxy::before(&server).await;
        let shelf = Shelf::new(&server, 5).await.at(proxy.url());
        let id = shelf.shown().await;
        shelf.succeed(id).await;
        shelf.stage.db.execute(OLDER).await;
        let (opening, late) = (Gate::new(), Gate::new());
        proxy.play(1, "POST /_aliases", Fault::DuplicateLater(opening.clone()));
        proxy.play(1, "_bulk", Fault::DuplicateLater(late.clone()));
        shelf.succeed(id).await;
        opening.arrived().await;
        shelf.stage.db.execute(HIDDEN).await;
        shelf.succeed(id).await;
        shelf.reopen().await;
        for gate in [opening, late] {
            gate.open();
            gate.passed().await;
        }
        shelf.shows_all_but_the_hidden().await;
        shelf.succeed(id).await;
    }
}

#[tokio::test]
async fn no_write_alias_is_open_after_the_clean_end_of_a_run_and_few_closed_ones_are_kept() {
    for server in SearchServer::both().await {
        let shelf = Shelf::new(&server, 5).await;
        let id = shelf.incremental(100).await;
        shelf.succeed(id).await;
        for _ in 0..10 {
            shelf.stage.db.execute(OLDER).await;
            shelf.succeed(id).await;
        }
        let path = format!("_alias/{}~*?expand_wildcards=all", shelf.index);
        let found = shelf.server().get(&path).await;
        let indexes: Vec<&String> = found.as_object().unwrap().keys().collect();
        assert_eq!(indexes, ["vitrina-closed"], "{found}");
        let closed = found["vitrina-closed"]["aliases"].as_object().unwrap();
        assert!((1..=9).contains(&closed.len()), "{closed:?}");
        assert!(closed.values().all(|alias| alias["is_write_index"] == false), "{closed:?}");
        shelf.assert_true().await;
    }
}
