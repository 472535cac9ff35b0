//! Documents under routings of their own: one that leads to the shard of the id is the row's own document, another is not.

use serde_json::{Value, json};
use vitrina_core::{Level, PipelineId, RunStatus, Verdict};
use vitrina_store::RunRecord;
use vitrina_testbed::{Fault, FaultProxy, SearchServer};

use crate::shelf::Shelf;
use crate::strangers::LEVELS;

impl Shelf {
    /// A routing that leads to the shard of the id, or to another one.
    async fn routing(&self, id: &str, leads_to_own_shard: bool) -> String {
        let shard = async |routing: &str| {
            let found = self.server().get(&format!("{}/_search_shards?routing={routing}", self.index)).await;
            found["shards"][0][0]["shard"].clone()
        };
        let own = shard(id).await;
        for routing in ["a", "b", "c", "d", "e", "f", "g", "h", "i", "j", "k", "l", "m", "n"] {
            if (shard(routing).await == own) == leads_to_own_shard {
                return routing.to_owned();
            }
        }
        panic!("no such routing for {id}")
    }

    /// Stores a document under a routing, in the place of the row's own one if it leads there.
    async fn store_routed(&self, id: &str, leads_to_own_shard: bool, document: Value) {
        let routing = self.routing(id, leads_to_own_shard).await;
        let path = format!("{}/_doc/{id}?refresh=true&routing={routing}", self.index);
        let (status, answer) = self.server().call("PUT", &path, document).await;
        assert!(matches!(status, 200 | 201), "{answer}");
    }

    async fn source_of(&self, id: &str) -> Value {
        self.server().document(&self.index, id).await.unwrap()["_source"].clone()
    }

    async fn read_again(&self, id: PipelineId, keys: &[&str]) -> RunRecord {
        let keys: Vec<[&str; 1]> = keys.iter().map(|key| [*key]).collect();
        let run = self.stage.request_keys(id, json!(keys)).await;
        self.work_off("tester").await;
        let run = self.stage.run_record(run).await;
        assert_eq!(run.status, RunStatus::Success, "{:?} {:?}", run.error_code, run.error);
        run
    }

    async fn assert_equal(&self, id: PipelineId, levels: &[Level]) {
        for level in levels {
            let compared = self.reconcile(id, *level).await;
            assert_eq!(compared.verdict(), Verdict::Equal, "{level} {:?}", compared.differences);
        }
    }
}

#[tokio::test]
async fn a_document_under_a_routing_that_leads_to_its_own_shard_is_the_rows_and_stays() {
    for server in SearchServer::both().await {
        let (shelf, id) = Shelf::sharded(&server, 30).await;
        shelf.store_routed("12", true, shelf.source_of("12").await).await;
        shelf.assert_equal(id, &LEVELS).await;
        let run = shelf.read_again(id, &["12"]).await;
        assert_eq!((run.rows_written, run.rows_deleted), (1, 0));
        shelf.assert_true().await;
        shelf.assert_equal(id, &LEVELS).await;
    }
}

#[tokio::test]
async fn a_repair_writes_the_document_of_a_row_wherever_its_routings_lead() {
    for server in SearchServer::both().await {
        let (shelf, id) = Shelf::sharded(&server, 30).await;
        let tampered = json!({"id": 9, "title": "tampered"});
        shelf.store_routed("9", true, tampered.clone()).await;
        shelf.store_routed("15", false, tampered.clone()).await;
        for leads_to_own_shard in [true, false] {
            shelf.store_routed("18", leads_to_own_shard, tampered.clone()).await;
            let id = if leads_to_own_shard { "8888" } else { "9999" };
            shelf.store_routed(id, leads_to_own_shard, tampered.clone()).await;
        }
        let compared = shelf.reconcile(id, Level::Rows).await;
        assert_eq!(compared.counts(), (0, 2, 3), "{:?}", compared.differences);
        shelf.repair_all(id, &compared).await;
        shelf.assert_true().await;
    }
}

#[tokio::test]
async fn where_others_write_too_a_document_under_a_routing_of_its_own_shard_keeps_its_fields() {
    for server in SearchServer::both().await {
        let shelf = Shelf::bare(&server, 10).await;
        let properties =
            json!({"id": {"type": "integer"}, "title": {"type": "text"}, "likes": {"type": "integer"}});
        shelf
            .describe(json!({"document": {"partial": true}, "settings": {"number_of_shards": 3},
                             "mapping": {"properties": properties}}))
            .await;
        let query = "select id, title from content.film";
        let id = shelf.pipeline(json!({"source_query": query, "delete_limit": 1.0})).await;
        shelf.succeed(id).await;
        for (document, leads_to_own_shard) in [("4", true), ("5", false), ("77", true), ("78", false)] {
            let tampered = json!({"id": 4, "title": "tampered", "likes": 3});
            shelf.store_routed(document, leads_to_own_shard, tampered).await;
        }
        let titles =
            shelf.stage.db.texts("select title from content.film where id in (4, 5) order by id").await;
        let compared = shelf.reconcile(id, Level::Rows).await;
        assert_eq!(compared.counts(), (0, 2, 2), "{:?}", compared.differences);
        let (run, proof) = shelf.repair(id, &compared).await;
        assert_eq!((run.error, proof.verdict()), (None, Verdict::Equal), "{:?}", proof.differences);
        let found = [shelf.source_of("4").await, shelf.source_of("5").await, shelf.source_of("77").await];
        assert_eq!((&found[0]["title"], &found[0]["likes"]), (&json!(titles[0][0]), &json!(3)));
        assert_eq!(found[1]["title"], json!(titles[1][0]));
        assert_eq!((&found[2]["title"], &found[2]["likes"]), (&Value::Null, &json!(3)));
        // Documents in which nothing of the pipeline's is left are counted.
        shelf.assert_equal(id, &LEVELS[1..]).await;
    }
}

/// The first bulk writes the row, the second deletes what lies elsewhere.
#[tokio::test]
async fn a_delete_by_a_routing_whose_answer_is_lost_or_that_comes_twice_is_done_once() {
    for server in SearchServer::both().await {
        for fault in [Fault::DropReply, Fault::DropRequest, Fault::Duplicate] {
            let proxy = FaultProxy::before(&server).await;
            let (shelf, id) = Shelf::sharded(&server, 10).await;
            let shelf = shelf.at(proxy.url());
            shelf.store_routed("7", false, shelf.source_of("7").await).await;
            proxy.play(1, "_bulk", Fault::Pass);
            proxy.play(1, "_bulk", fault.clone());
            shelf.read_again(id, &["7"]).await;
            shelf.assert_true().await;
            shelf.assert_equal(id, &LEVELS).await;
        }
    }
}
