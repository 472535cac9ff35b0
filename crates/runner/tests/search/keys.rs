//! Keys that are numbers of any scale, and keys that change.

use serde_json::json;
use vitrina_core::Decision;
use vitrina_store::RunRequest;
use vitrina_testbed::SearchServer;

use crate::shelf::Shelf;

#[tokio::test]
async fn a_numeric_key_is_one_document_whatever_its_scale() {
    for server in SearchServer::both().await {
        let shelf = Shelf::bare(&server, 2).await;
        shelf.describe(json!({"key": ["n"]})).await;
        shelf.stage.db.execute("create table content.prices (n numeric, title text, modified timestamptz);
            insert into content.prices values (1, 'a', now() - interval '1 hour'), (2.50, 'b', now() - interval '1 hour');
            grant select on content.prices to public").await;
        let id = shelf
            .pipeline(
                json!({"source_query": "select n, title, modified from content.prices", "mode": "incremental",
                "incremental_key": "modified", "incremental_id_key": "n"}),
            )
            .await;
        shelf.succeed(id).await;
        shelf
            .stage
            .db
            .execute("update content.prices set n = n * 1.00, title = title || '!', modified = now()")
            .await;
        shelf.succeed(id).await;
        let found: Vec<(String, String)> = shelf
            .documents()
            .await
            .into_iter()
            .map(|(id, document)| (id, document["title"].as_str().unwrap().to_owned()))
            .collect();
        assert_eq!(found, [("1".to_owned(), "a!".to_owned()), ("2.5".to_owned(), "b!".to_owned())]);
    }
}

#[tokio::test]
async fn a_checkpoint_is_not_kept_where_the_key_of_the_target_has_changed() {
    let server = SearchServer::opensearch().await;
    let shelf = Shelf::new(&server, 3).await;
    let id = shelf.incremental(10).await;
    shelf.succeed(id).await;
    shelf.describe(json!({"key": ["title"]})).await;
    let run = async |decision| {
        let request = RunRequest { checkpoint: Some(decision), ..RunRequest::default() };
        let run = shelf.stage.store.request_run(id, vitrina_core::OnActive::Reject, &request).await.unwrap();
        shelf.work_off("tester").await;
        shelf.stage.run_record(run.run.unwrap()).await
    };
    let refused = run(Decision::Keep).await;
    assert_eq!(refused.error_code.as_deref(), Some("checkpoint.key_changed"), "{:?}", refused.error);
    assert!(refused.error.unwrap().contains("reset"));
    assert_eq!(run(Decision::Reset).await.error_code, None);
    assert_eq!(shelf.documents().await.len(), 3);
}

#[tokio::test]
async fn a_backfill_is_refused_where_the_key_of_the_index_has_changed() {
    let server = SearchServer::opensearch().await;
    for is_full in [false, true] {
        let shelf = Shelf::new(&server, 3).await;
        let id = if is_full { shelf.full(10).await } else { shelf.incremental(10).await };
        shelf.succeed(id).await;
        shelf.describe(json!({"key": ["title"]})).await;
        let run = shelf.stage.request_keys(id, json!([["Film 1"]])).await;
        shelf.work_off("tester").await;
        let refused = shelf.stage.run_record(run).await;
        assert_eq!(refused.error_code.as_deref(), Some("checkpoint.key_changed"), "{:?}", refused.error);
        assert_eq!(shelf.documents().await.len(), 3);
    }
}
