//! The newest OpenSearch, where it was fetched.

use vitrina_testbed::{Distribution::OpenSearch3, SearchServer};

use crate::shelf::Shelf;

#[tokio::test]
async fn opensearch_3_is_loaded_updated_and_loaded_anew() {
    if !OpenSearch3.is_there() {
        eprintln!("NOT TRIED: nothing was written to OpenSearch 3, because it or Java 21 is missing");
        eprintln!("hint: scripts/search install opensearch3");
        return;
    }
    let server = SearchServer::of(OpenSearch3).await;
    let shelf = Shelf::new(&server, 200).await;
    let tested = shelf.settings("tester").connections.get("search").unwrap().test(&[], false).await.unwrap();
    assert!(tested.server.starts_with("OpenSearch 3.") && tested.missing_grants.is_empty(), "{tested:?}");
    let id = shelf.incremental(50).await;
    shelf.succeed(id).await;
    shelf.assert_true().await;
    let before = shelf.behind().await;
    shelf
        .stage
        .db
        .execute(
            "update content.film set title = 'New', modified = date_trunc('second', now()) where id <= 20",
        )
        .await;
    let run = shelf.succeed(id).await;
    assert_eq!(run.rows_written, 20);
    shelf.stage.db.execute("delete from content.film where id > 190").await;
    shelf.stage.request_mode(id, vitrina_core::Mode::Full).await;
    shelf.work_off("tester").await;
    shelf.assert_true().await;
    assert_ne!(shelf.behind().await, before);
}
