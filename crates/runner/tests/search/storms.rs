//! Many updates through a bad line: nothing is lost, nothing is stale.

use serde_json::json;
use vitrina_core::Status;
use vitrina_testbed::{FaultProxy, SearchServer, Storm};

use crate::shelf::Shelf;

const FILMS: i32 = 2000;
const ROUNDS: i32 = 10;

#[tokio::test]
async fn no_document_is_lost_or_stale_after_20_000_updates_through_a_bad_line() {
    for (seed, server) in SearchServer::both().await.into_iter().enumerate() {
        let proxy = FaultProxy::before(&server).await;
        // As if it were on another machine: what is sent there is compressed.
        let shelf = Shelf::new(&server, FILMS).await.at(&proxy.url().replace("127.0.0.1", "0.0.0.0"));
        let query = "select id, title, rating, modified from content.film where title <> 'hidden'";
        let id = shelf
            .pipeline(json!({"mode": "incremental", "batch_size": 400, "incremental_key": "modified",
                "incremental_id_key": "id", "source_query": query, "delete_limit": 1}))
            .await;
        shelf.succeed(id).await;
        proxy.storm(Storm::new(seed as u64).share(0.4).busy(0.1));
        for round in 0..ROUNDS {
            let change = format!(
                "update content.film set modified = date_trunc('second', now()),
                        title = case when id % 10 = {round} then 'hidden' else 'round {round} of ' || id end"
            );
            shelf.stage.db.execute(&change).await;
            work_off(&shelf, id).await;
        }
        proxy.calm().await;
        work_off(&shelf, id).await;
        shelf.stage.db.execute("delete from content.film where title = 'hidden'").await;
        shelf.assert_true().await;
    }
}

/// Until the run has ended, however often it is given back.
async fn work_off(shelf: &Shelf, id: vitrina_core::PipelineId) {
    shelf.stage.request(id).await;
    for _ in 0..50 {
        shelf.work_off("steadfast").await;
        match shelf.stage.status(id).await {
            Status::Idle => return,
            Status::Failed => panic!("bad weather is no mistake"),
            _ => shelf.stage.db.execute("update etl.etl_pipelines set retry_at = null").await,
        }
    }
    panic!("the run does not end");
}
