//! Several pipelines that write to one index, each its own fields of the documents.

use serde_json::{Value, json};
use vitrina_core::{PipelineId, Status};
use vitrina_testbed::{Fault, FaultProxy, Gate, SearchServer};

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
        // One that has seen the index as it was.
        let (_runner, _stop) = shelf.stage.start(shelf.settings("one"));
        let run = async |id: PipelineId| {
            let run = shelf.stage.request(id).await;
            shelf.stage.reaches(id, Status::Idle).await;
            shelf.stage.run_record(run).await.rows_read
        };
        assert_eq!((run(titles).await, run(ratings).await), (0, 0));
        shelf
            .stage
            .db
            .execute("update content.film set modified = date_trunc('second', now()) where id = 1")
            .await;
        assert_eq!((run(titles).await, run(ratings).await), (1, 1));
        let index = shelf.behind().await.remove(0);
        shelf.server().call("DELETE", &index, Value::Null).await;
        assert_eq!(run(ratings).await, 5);
        assert_eq!(run(titles).await, 5, "though the index is there again");
        shelf.assert_true().await;
        assert_eq!((run(titles).await, run(ratings).await), (0, 0));
    }
}

/// Its door is open by then, as that of one who has written.
#[tokio::test]
async fn a_pipeline_that_is_interrupted_while_it_fills_a_new_index_again_goes_on_with_that() {
    for server in SearchServer::both().await {
        let proxy = FaultProxy::before(&server).await;
        let shelf = Shelf::bare(&server, 5).await.at(proxy.url());
        let (titles, ratings) = of_two(&shelf, 100).await;
        shelf.succeed(titles).await;
        shelf.succeed(ratings).await;
        let index = shelf.behind().await.remove(0);
        shelf.server().call("DELETE", &index, Value::Null).await;
        shelf.succeed(ratings).await;
        let gate = Gate::new();
        proxy.play(1, "_bulk", Fault::Hold(gate.clone()));
        let (mut runner, _stop) = shelf.stage.start(shelf.settings("first"));
        shelf.stage.request(titles).await;
        gate.arrived().await;
        runner.shutdown().await;
        gate.open();
        shelf.stage.expire_leases().await;
        shelf.work_off("second").await;
        assert_eq!(shelf.stage.status(titles).await, Status::Idle);
        shelf.assert_true().await;
    }
}

#[tokio::test]
async fn an_index_of_somebody_else_under_the_same_name_costs_no_checkpoint() {
    for server in SearchServer::both().await {
        let shelf = Shelf::bare(&server, 5).await;
        let (titles, _) = of_two(&shelf, 100).await;
        shelf.succeed(titles).await;
        let stored = format!("select checkpoint::text from etl.etl_state where pipeline_id = '{titles}'");
        let checkpoint: String = shelf.stage.db.value(&stored).await;
        let stray = shelf.indexes.name("stray");
        let alias = json!({"aliases": {&shelf.index: {}}});
        shelf.server().call("PUT", &stray, alias).await;
        assert_eq!(shelf.fail(titles).await.0, "sink.name_taken");
        assert_eq!(shelf.stage.db.value::<String>(&stored).await, checkpoint);
        shelf.server().call("DELETE", &stray, Value::Null).await;
        assert_eq!(shelf.succeed(titles).await.rows_read, 0);
    }
}

#[tokio::test]
async fn rows_that_a_pipeline_has_never_written_are_no_deletes_of_it() {
    for server in SearchServer::both().await {
        let shelf = Shelf::bare(&server, 100).await;
        let (titles, ratings) = of_two(&shelf, 10).await;
        // Else it would be a field of both.
        shelf.describe(json!({"document": {"partial": true, "omit": ["modified"]}})).await;
        shelf.succeed(ratings).await;
        shelf.stage.db.execute("update content.film set title = 'hidden' where id % 2 = 0").await;
        let run = shelf.succeed(titles).await;
        assert_eq!((run.rows_written, run.rows_deleted), (50, 0));
        let documents = shelf.documents().await;
        let titled = documents.values().filter(|document| !document["title"].is_null()).count();
        assert_eq!((documents.len(), titled), (100, 50));
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
