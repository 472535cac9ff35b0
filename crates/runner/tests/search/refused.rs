//! Rows that make no document are lacking in the index, whether a run has met them or not.

use serde_json::json;
use vitrina_core::{Level, Verdict};
use vitrina_store::RejectChoice;
use vitrina_testbed::SearchServer;

use crate::shelf::Shelf;

#[tokio::test]
async fn an_index_that_lacks_rows_that_make_no_document_is_not_equal() {
    for server in SearchServer::both().await {
        let shelf = Shelf::bare(&server, 10).await;
        shelf.describe(json!({"key": ["id"]})).await;
        let query = "select id, title, case when id = 4 then 'infinity'::date else '2020-01-01' end as day from content.film";
        let id = shelf.pipeline(json!({"source_query": query, "reject_limit": 5})).await;
        let differs = async |rejected: u64| {
            for level in [Level::Count, Level::Hash, Level::Rows] {
                let compared = shelf.stage.reconcile_with(shelf.settings("tester"), id, level).await;
                let told = (compared.verdict(), compared.figures().rejected);
                assert_eq!(told, (Verdict::Differs, rejected), "{level}");
            }
        };
        assert_eq!(shelf.succeed(id).await.rows_rejected, 1);
        differs(1).await;
        shelf.stage.store.discard_rejects(id, &RejectChoice::default()).await.unwrap();
        differs(1).await;
    }
}
