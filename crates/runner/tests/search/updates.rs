//! Incremental runs: documents by their versions, deletes, change keys, partial documents.

use serde_json::{Value, json};
use vitrina_core::{Decision, Mode, OnActive, PipelineId};
use vitrina_store::{Error as StoreError, RunRequest};
use vitrina_testbed::SearchServer;

use crate::shelf::Shelf;

#[tokio::test]
async fn an_incremental_run_writes_what_has_changed_and_deletes_what_has_left_the_query() {
    for server in SearchServer::both().await {
        let shelf = Shelf::new(&server, 50).await;
        let query = "select id, title, rating, modified from content.film where title <> 'hidden'";
        let id = shelf
            .pipeline(json!({"mode": "incremental", "batch_size": 20, "incremental_key": "modified",
                "incremental_id_key": "id", "source_query": query}))
            .await;
        shelf.succeed(id).await;
        shelf.assert_true().await;
        let before = shelf.behind().await;
        shelf
            .stage
            .db
            .execute(
                "update content.film set title = 'hidden', modified = now() where id in (3, 4);
            update content.film set title = 'New', modified = date_trunc('second', now()) where id = 7;
            insert into content.film values (51, 'Later', 5.5, date_trunc('second', now()))",
            )
            .await;
        let run = shelf.succeed(id).await;
        assert_eq!((run.rows_written, run.rows_deleted), (2, 2));
        shelf.stage.db.execute("delete from content.film where title = 'hidden'").await;
        shelf.assert_true().await;
        assert_eq!(shelf.behind().await, before, "the same index");
        shelf.succeed(id).await;
        shelf.assert_true().await;
    }
}

#[tokio::test]
async fn an_index_that_somebody_deleted_is_read_again_from_the_start() {
    for server in SearchServer::both().await {
        let shelf = Shelf::new(&server, 30).await;
        let id = shelf.incremental(10).await;
        shelf.succeed(id).await;
        for index in shelf.behind().await {
            shelf.server().call("DELETE", &index, Value::Null).await;
        }
        shelf.succeed(id).await;
        shelf.assert_true().await;
    }
}

#[tokio::test]
async fn a_deleted_document_is_not_brought_back_by_an_older_write() {
    for server in SearchServer::both().await {
        let shelf = Shelf::new(&server, 5).await;
        let id = shelf.incremental(10).await;
        shelf.succeed(id).await;
        let index = shelf.behind().await.remove(0);
        let old = shelf.server().get(&format!("{index}/_doc/3")).await["_version"].as_i64().unwrap();
        shelf.stage.db.execute("delete from content.film where id = 3").await;
        let run = shelf.stage.request_keys(id, json!([["3"]])).await;
        shelf.work_off("tester").await;
        assert_eq!(shelf.stage.run_record(run).await.rows_deleted, 1);
        let path = format!("{index}/_doc/3?version={old}&version_type=external");
        let (status, _) = shelf.server().call("PUT", &path, json!({"id": 3})).await;
        assert_eq!(status, 409);
        shelf.assert_true().await;
    }
}

#[tokio::test]
async fn deletes_of_a_pass_are_held_against_the_limit() {
    let server = SearchServer::opensearch().await;
    let shelf = Shelf::new(&server, 20).await;
    let query = "select id, title, rating, modified from content.film where title <> 'hidden'";
    let id = shelf
        .pipeline(json!({"mode": "incremental", "batch_size": 100, "incremental_key": "modified",
            "incremental_id_key": "id", "source_query": query}))
        .await;
    shelf.succeed(id).await;
    shelf.stage.db.execute("update content.film set title = 'hidden', modified = now() where id <= 5").await;
    let (code, message) = shelf.fail(id).await;
    assert_eq!(code, "sink.delete_limit");
    assert!(message.contains("5 of 20"), "{message}");
    assert_eq!(shelf.documents().await.len(), 20);
    shelf.stage.db.execute("update etl.etl_pipelines set delete_limit = 0.5").await;
    assert_eq!(shelf.succeed(id).await.rows_deleted, 5);
}

/// Eight rows of four films, found by their film.
async fn genres(shelf: &Shelf) -> PipelineId {
    let tables = "create table content.film_genre (film_id int, genre text, primary key (film_id, genre));
        insert into content.film_genre select id, g from content.film, unnest(array['drama', 'war']) g";
    shelf.stage.db.execute(tables).await;
    let query = "select f.id as film_id, g.genre, f.title, f.modified from content.film f join content.film_genre g on g.film_id = f.id";
    let cursor = json!({"mode": "incremental", "incremental_key": "modified", "incremental_id_key": "film_id",
        "source_query": query, "source_table": "content.film", "change_key": ["film_id"], "delete_limit": 0.5});
    shelf.pipeline(cursor).await
}

#[tokio::test]
async fn documents_are_found_by_a_change_key_that_is_not_their_key() {
    for server in SearchServer::both().await {
        let shelf = Shelf::bare(&server, 4).await;
        shelf.describe(json!({"key": ["film_id", "genre"]})).await;
        let id = genres(&shelf).await;
        shelf.succeed(id).await;
        assert_eq!(shelf.documents().await.len(), 8);
        shelf
            .stage
            .db
            .execute(
                "delete from content.film_genre where film_id = 2 and genre = 'war';
            update content.film set modified = now() where id = 2",
            )
            .await;
        let run = shelf.succeed(id).await;
        assert_eq!(run.rows_deleted, 1);
        let ids: Vec<String> = shelf.documents().await.into_keys().collect();
        assert!(ids.contains(&"2:drama".to_owned()) && !ids.contains(&"2:war".to_owned()), "{ids:?}");
        assert_eq!(ids.len(), 7);
    }
}

#[tokio::test]
async fn documents_are_not_looked_for_in_an_index_that_was_made_with_another_mapping() {
    let server = SearchServer::elasticsearch().await;
    let shelf = Shelf::bare(&server, 4).await;
    let described = |film: Value| {
        json!({"key": ["film_id", "genre"], "mapping": {"properties": {"film_id": film, "genre": {"type": "keyword"},
            "title": {"type": "text"}, "modified": {"type": "date"}}}})
    };
    shelf.describe(described(json!({"type": "integer", "null_value": 2}))).await;
    let id = genres(&shelf).await;
    shelf.stage.request_mode(id, Mode::Full).await;
    shelf.work_off("tester").await;
    assert_eq!(shelf.documents().await.len(), 8);
    shelf.stage.db.execute("update content.film set modified = now() where id = 2").await;
    assert_eq!(shelf.fail(id).await.0, "sink.change_key");
    shelf.describe(described(json!({"type": "integer"}))).await;
    let keep = RunRequest { checkpoint: Some(Decision::Keep), ..RunRequest::default() };
    let run = shelf.stage.store.request_run(id, OnActive::Reject, &keep).await.unwrap().run.unwrap();
    shelf.work_off("tester").await;
    let run = shelf.stage.run_record(run).await;
    assert_eq!(run.error_code.as_deref(), Some("sink.index_outdated"), "{:?}", run.error);
    assert_eq!(shelf.documents().await.len(), 8);
}

#[tokio::test]
async fn a_changed_mapping_asks_and_a_full_run_rebuilds_the_index() {
    let server = SearchServer::elasticsearch().await;
    let shelf = Shelf::new(&server, 10).await;
    let id = shelf.incremental(10).await;
    shelf.succeed(id).await;
    let before = shelf.behind().await;
    shelf.describe(json!({"mapping": {"dynamic": true, "properties": {"id": {"type": "long"}, "title": {"type": "keyword"}}}})).await;
    let asked = shelf.stage.store.request_run(id, OnActive::Join, &RunRequest::default()).await;
    assert!(matches!(asked, Err(StoreError::ConfigChanged)), "{asked:?}");
    shelf.stage.request_mode(id, Mode::Full).await;
    shelf.work_off("tester").await;
    shelf.assert_true().await;
    let after = shelf.behind().await;
    assert_ne!(before, after);
    let mapping = shelf.server().get(&format!("{}/_mapping", after[0])).await;
    assert_eq!(mapping[&after[0]]["mappings"]["properties"]["title"]["type"], "keyword");
    shelf
        .stage
        .db
        .execute("update content.film set title = 'New', modified = date_trunc('second', now()) where id = 1")
        .await;
    shelf.succeed(id).await;
    shelf.assert_true().await;
}

#[tokio::test]
async fn a_column_that_the_index_was_not_made_for_is_told_before_anything_is_written() {
    for server in SearchServer::both().await {
        let shelf = Shelf::new(&server, 5).await;
        let id = shelf.incremental(10).await;
        shelf.succeed(id).await;
        shelf.stage.db.execute("alter table content.film add year int; update content.film set year = 1977, modified = now() where id = 2").await;
        shelf.stage.db.execute("update etl.etl_pipelines set source_query = 'select id, title, rating, year, modified from content.film'").await;
        let keep = RunRequest { checkpoint: Some(Decision::Keep), ..RunRequest::default() };
        let run = shelf.stage.store.request_run(id, OnActive::Reject, &keep).await.unwrap().run.unwrap();
        shelf.work_off("tester").await;
        let run = shelf.stage.run_record(run).await;
        assert_eq!(run.error_code.as_deref(), Some("sink.index_outdated"), "{:?}", run.error);
        assert!(run.error.unwrap().contains("no field for: year"));
        assert_eq!(shelf.stage.rejects().await, []);
        shelf.stage.request_mode(id, Mode::Full).await;
        shelf.work_off("tester").await;
        assert_eq!(shelf.documents().await["2"]["year"], json!(1977));
    }
}

#[tokio::test]
async fn single_rows_are_not_shown_to_readers_as_an_index() {
    for server in SearchServer::both().await {
        let shelf = Shelf::new(&server, 5).await;
        let id = shelf.incremental(10).await;
        let run = shelf.stage.request_keys(id, json!([["2"]])).await;
        shelf.work_off("tester").await;
        let run = shelf.stage.run_record(run).await;
        assert_eq!(run.error_code.as_deref(), Some("sink.no_index"), "{:?}", run.error);
        assert_eq!(shelf.behind().await, Vec::<String>::new());
        shelf.succeed(id).await;
        shelf.assert_true().await;
    }
}

#[tokio::test]
async fn several_pipelines_write_their_own_fields_of_one_index() {
    for server in SearchServer::both().await {
        let shelf = Shelf::bare(&server, 5).await;
        shelf
            .describe(
                json!({"document": {"partial": true}, "mapping": {"properties": {"id": {"type": "integer"},
                "title": {"type": "text"}, "rating": {"type": "float"}, "modified": {"type": "date"}}}}),
            )
            .await;
        let part = |name: &str, query: &str| {
            json!({"name": name, "mode": "incremental", "incremental_key": "modified", "incremental_id_key": "id",
                "source_query": query})
        };
        let titles = shelf
            .pipeline(part("titles", "select id, title, modified from content.film where title <> 'hidden'"))
            .await;
        let ratings = shelf.pipeline(part("ratings", "select id, rating, modified from content.film")).await;
        shelf.succeed(titles).await;
        shelf.succeed(ratings).await;
        shelf.assert_true().await;
        shelf
            .stage
            .db
            .execute("update content.film set title = 'hidden', modified = now() where id = 2")
            .await;
        shelf.succeed(titles).await;
        let document = shelf.documents().await["2"].clone();
        assert_eq!(
            (&document["title"], &document["rating"], &document["id"]),
            (&Value::Null, &json!(0.2), &json!(2))
        );
        assert_eq!(shelf.behind().await.len(), 1);
    }
}

#[tokio::test]
async fn two_pipelines_cannot_both_own_an_index() {
    let server = SearchServer::elasticsearch().await;
    let shelf = Shelf::new(&server, 5).await;
    let first = shelf.full(10).await;
    shelf.succeed(first).await;
    let second = shelf.pipeline(json!({"name": "second"})).await;
    let (code, message) = shelf.fail(second).await;
    assert_eq!(code, "sink.owned");
    assert!(message.contains("partial"), "{message}");
}
