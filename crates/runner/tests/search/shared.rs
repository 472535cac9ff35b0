//! Several pipelines that write to one index, each its own fields of the documents.

use serde_json::{Value, json};
use vitrina_core::PipelineId;
use vitrina_testbed::SearchServer;

use crate::shelf::Shelf;

/// One for the titles, one for the ratings; nobody has said which fields the index has.
async fn of_two(shelf: &Shelf, batch_size: i32) -> (PipelineId, PipelineId) {
    shelf.describe(json!({"document": {"partial": true}})).await;
    let part = |name: &str, query: &str| {
        json!({"name": name, "mode": "incremental", "incremental_key": "modified", "incremental_id_key": "id",
            "source_query": query, "batch_size": batch_size})
    };
    let titles = "select id, title, modified from content.film where title <> 'hidden'";
    let titles = shelf.pipeline(part("titles", titles)).await;
    let ratings = shelf.pipeline(part("ratings", "select id, rating, modified from content.film")).await;
    (titles, ratings)
}

#[tokio::test]
async fn an_index_is_given_the_fields_of_a_pipeline_that_comes_later() {
    for server in SearchServer::both().await {
        let shelf = Shelf::bare(&server, 5).await;
        let (titles, ratings) = of_two(&shelf, 100).await;
        shelf.succeed(titles).await;
        shelf.succeed(ratings).await;
        shelf.assert_true().await;
        let index = shelf.behind().await.remove(0);
        let mapping = shelf.server().get(&format!("{index}/_mapping")).await;
        let mapping = &mapping[&index]["mappings"];
        assert_eq!(
            (&mapping["dynamic"], &mapping["properties"]["rating"]["type"]),
            (&json!("strict"), &json!("double"))
        );
    }
}

#[tokio::test]
async fn an_index_that_was_deleted_is_filled_again_by_each_of_its_pipelines() {
    for server in SearchServer::both().await {
        let shelf = Shelf::bare(&server, 5).await;
        let (titles, ratings) = of_two(&shelf, 100).await;
        shelf.succeed(titles).await;
        shelf.succeed(ratings).await;
        let index = shelf.behind().await.remove(0);
        shelf.server().call("DELETE", &index, Value::Null).await;
        assert_eq!(shelf.succeed(ratings).await.rows_read, 5);
        assert_eq!(shelf.succeed(titles).await.rows_read, 5, "though the index is there again");
        shelf.assert_true().await;
        assert_eq!(shelf.succeed(titles).await.rows_read, 0);
        assert_eq!(shelf.succeed(ratings).await.rows_read, 0);
    }
}

#[tokio::test]
async fn the_delete_limit_holds_over_all_batches_of_a_pass() {
    for server in SearchServer::both().await {
        let shelf = Shelf::bare(&server, 100).await;
        let (titles, ratings) = of_two(&shelf, 10).await;
        shelf.succeed(titles).await;
        shelf.succeed(ratings).await;
        shelf.stage.db.execute("update content.film set title = 'hidden', modified = now()").await;
        let (code, message) = shelf.fail(titles).await;
        assert_eq!(code, "sink.delete_limit", "{message}");
        let documents = shelf.documents().await;
        let titled = documents.values().filter(|document| !document["title"].is_null()).count();
        assert!(titled >= 80, "{titled}");
        assert!(documents.values().all(|document| !document["rating"].is_null()));
    }
}
