//! Several pipelines that write to one index, each its own fields of the documents.

use serde_json::{Value, json};
use vitrina_core::{Level, Mode, PipelineId, Status, Verdict};
use vitrina_testbed::{Distribution, Fault, FaultProxy, Gate, SearchServer};

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

/// A film has facts, an object that loses keys; somebody else has likes.
async fn of_facts(shelf: &Shelf) -> PipelineId {
    let facts = r#"alter table content.film add facts jsonb;
        update content.film set facts = '{"a": 1, "b": {"c": 2, "d": 3}}'"#;
    shelf.stage.db.execute(facts).await;
    let properties = json!({"id": {"type": "integer"}, "title": {"type": "keyword"}, "likes": {"type": "integer"},
        "facts": {"type": "object", "enabled": false}, "modified": {"type": "date"}});
    shelf
        .describe(json!({"document": {"partial": true, "omit": ["modified"]}, "mapping": {"properties": properties}}))
        .await;
    shelf
        .pipeline(json!({"mode": "incremental", "incremental_key": "modified", "incremental_id_key": "id",
            "source_query": "select id, title, facts, modified from content.film"}))
        .await
}

impl Shelf {
    async fn set_facts(&self, film: i32, facts: &str) {
        let sql = format!(
            "update content.film set facts = '{facts}', modified = clock_timestamp() where id = {film}"
        );
        self.stage.db.execute(&sql).await;
    }
}

#[tokio::test]
async fn a_key_that_leaves_a_json_object_leaves_the_document_too() {
    for server in SearchServer::both().await {
        let shelf = Shelf::bare(&server, 5).await;
        let id = of_facts(&shelf).await;
        shelf.succeed(id).await;
        for film in 1..=5 {
            let path = format!("{}/_update/{film}", shelf.index);
            shelf.server().call("POST", &path, json!({"doc": {"likes": film}})).await;
        }
        shelf.set_facts(1, r#"{"b": {"c": 2}}"#).await;
        shelf.set_facts(2, "{}").await;
        shelf.set_facts(3, r#"[{"a": 1}]"#).await;
        shelf.set_facts(4, "null").await;
        shelf
            .stage
            .db
            .execute(
                r#"insert into content.film (id, title, facts, modified)
            values (6, 'New', '{"a": 1.50}', clock_timestamp())"#,
            )
            .await;
        let run = shelf.succeed(id).await;
        assert_eq!((run.rows_written, run.rows_rejected), (5, 0));
        let found = shelf.documents().await;
        let facts = |film: &str| found[film]["facts"].clone();
        assert_eq!(facts("1"), json!({"b": {"c": 2}}));
        assert_eq!((facts("2"), facts("3"), facts("4")), (json!({}), json!([{"a": 1}]), Value::Null));
        assert_eq!((facts("5"), facts("6")), (json!({"a": 1, "b": {"c": 2, "d": 3}}), json!({"a": 1.5})));
        assert_eq!((&found["1"]["likes"], &found["5"]["likes"]), (&json!(1), &json!(5)), "another's stays");
        assert_eq!(shelf.reconcile(id, Level::Rows).await.verdict(), Verdict::Equal);
    }
}

#[tokio::test]
async fn a_full_load_and_a_repair_remove_keys_of_a_json_object_that_the_source_does_not_have() {
    for server in SearchServer::both().await {
        let shelf = Shelf::bare(&server, 5).await;
        let id = of_facts(&shelf).await;
        shelf.succeed(id).await;
        let add_key = async || {
            let path = format!("{}/_update/2?refresh=true", shelf.index);
            let (status, _) = shelf.server().call("POST", &path, json!({"doc": {"facts": {"x": 1}}})).await;
            assert_eq!(status, 200);
        };
        add_key().await;
        let compared = shelf.reconcile(id, Level::Rows).await;
        assert_eq!(compared.counts(), (0, 0, 1));
        shelf.repair_all(id, &compared).await;
        add_key().await;
        shelf.stage.request_mode(id, Mode::Full).await;
        shelf.work_off("tester").await;
        assert_eq!(shelf.reconcile(id, Level::Rows).await.verdict(), Verdict::Equal);
    }
}

#[tokio::test]
async fn a_json_object_that_the_index_refuses_leaves_the_document_as_it_was() {
    for server in SearchServer::both().await {
        let shelf = Shelf::bare(&server, 3).await;
        let id = of_facts(&shelf).await;
        shelf.stage.db.execute("update etl.etl_pipelines set reject_limit = 1").await;
        let properties = json!({"id": {"type": "integer"}, "title": {"type": "keyword"},
            "facts": {"properties": {"a": {"type": "integer"}, "b": {"type": "object", "enabled": false}}}});
        shelf
            .describe(json!({"document": {"partial": true, "omit": ["modified"]}, "mapping": {"properties": properties}}))
            .await;
        shelf.succeed(id).await;
        let before = shelf.documents().await;
        shelf.set_facts(2, r#"{"a": "no number"}"#).await;
        let run = shelf.succeed(id).await;
        assert_eq!((run.rows_written, run.rows_rejected), (0, 1));
        assert_eq!(shelf.stage.rejects().await, [("row.mapping".to_owned(), "[\"2\"]".to_owned())]);
        assert_eq!(shelf.documents().await, before);
    }
}

#[tokio::test]
async fn a_server_that_runs_no_scripts_refuses_json_objects_of_shared_documents_and_no_row_is_blamed() {
    let server = SearchServer::own(Distribution::OpenSearch, &[("script.allowed_types", "none")]).await;
    let shelf = Shelf::bare(&server, 5).await;
    let id = of_facts(&shelf).await;
    shelf.succeed(id).await;
    shelf.set_facts(2, r#"{"a": 1}"#).await;
    let (code, message) = shelf.fail(id).await;
    assert_eq!((code.as_str(), shelf.stage.rejects().await), ("sink.scripts", Vec::new()), "{message}");
    shelf.set_facts(2, "null").await;
    shelf.succeed(id).await;
    assert_eq!(shelf.reconcile(id, Level::Rows).await.verdict(), Verdict::Equal);
}
