//! What is wrong with one document or with the index that readers see holds up nothing else.

use rstest::rstest;
use serde_json::{Value, json};
use vitrina_testbed::{FaultProxy, SearchServer};

use crate::shelf::Shelf;

#[rstest]
#[case::of_a_load("full")]
#[case::of_an_increment("incremental")]
#[tokio::test]
async fn a_document_that_breaks_its_connection_is_a_reject_and_the_others_are_written(#[case] mode: &str) {
    for server in SearchServer::both().await {
        let proxy = FaultProxy::before(&server).await;
        let shelf = Shelf::new(&server, 60).await.at(proxy.url());
        let id = shelf
            .pipeline(json!({"mode": mode, "reject_limit": 1, "incremental_key": "modified",
                "incremental_id_key": "id"}))
            .await;
        shelf.succeed(id).await;
        proxy.break_on("<script>");
        shelf
            .stage
            .db
            .execute(
                "update content.film set title = 'new', modified = now();
            update content.film set title = '<script>' where id = 42",
            )
            .await;
        let run = shelf.succeed(id).await;
        assert_eq!((run.rows_written, run.rows_rejected), (59, 1));
        assert_eq!(shelf.stage.rejects().await, [("row.connection".to_owned(), "[\"42\"]".to_owned())]);
        let found = shelf.documents().await;
        assert_eq!(found.len(), 60, "it keeps the document it had");
        assert_eq!(found.values().filter(|film| film["title"] == "new").count(), 59);
    }
}

#[rstest]
#[case::closed(false)]
#[case::red(true)]
#[tokio::test]
async fn a_live_index_that_cannot_be_read_does_not_hold_up_the_load_that_replaces_it(#[case] red: bool) {
    for server in SearchServer::both().await {
        let shelf = Shelf::new(&server, 5).await;
        let id = shelf.full(10).await;
        shelf.succeed(id).await;
        let index = shelf.behind().await.remove(0);
        let call = async |method: &str, path: &str, body: Value| {
            let (status, answer) = shelf.server().call(method, &format!("{index}/{path}"), body).await;
            assert_eq!(status, 200, "{answer}");
        };
        call("POST", "_close", Value::Null).await;
        if red {
            call("PUT", "_settings", json!({"index.routing.allocation.require._name": "nowhere"})).await;
            call("POST", "_open?wait_for_active_shards=0", Value::Null).await;
        }
        shelf.succeed(id).await;
        assert_ne!(shelf.behind().await, std::slice::from_ref(&index));
        shelf.assert_true().await;
    }
}
