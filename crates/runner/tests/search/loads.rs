//! Full loads: an index of their own, and readers who never see fewer documents.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use serde_json::{Value, json};
use vitrina_core::{Event, Status};
use vitrina_testbed::{Fault, FaultProxy, Gate, SearchServer};

use crate::shelf::Shelf;

#[tokio::test]
async fn a_full_load_makes_the_index_and_a_second_one_exchanges_it() {
    for server in SearchServer::both().await {
        let shelf = Shelf::new(&server, 100).await;
        let id = shelf.full(30).await;
        let run = shelf.succeed(id).await;
        assert_eq!((run.rows_read, run.rows_written, run.batches), (100, 100, 4));
        shelf.assert_true().await;
        let first = shelf.behind().await;
        shelf.stage.db.execute("delete from content.film where id <= 10; update content.film set title = 'New' where id = 50").await;
        let run = shelf.succeed(id).await;
        assert_eq!(run.rows_deleted, 10);
        shelf.assert_true().await;
        let second = shelf.behind().await;
        assert_ne!(first, second);
        let kept = shelf.indexes.list().await;
        assert!(kept.contains(&first[0]), "the index before stays to go back to: {kept:?}");
        shelf.succeed(id).await;
        let kept = shelf.indexes.list().await;
        assert!(!kept.contains(&first[0]) && kept.contains(&second[0]), "{kept:?}");
        assert!(!kept.iter().any(|name| name.contains("marker")), "{kept:?}");
    }
}

#[tokio::test]
async fn readers_never_see_fewer_documents_while_an_index_is_loaded_anew() {
    for server in SearchServer::both().await {
        let shelf = Arc::new(Shelf::new(&server, 500).await);
        let id = shelf.full(50).await;
        shelf.succeed(id).await;
        shelf.server().refresh(&shelf.index).await;
        let done = Arc::new(AtomicBool::new(false));
        let (searching, ended) = (Arc::clone(&shelf), Arc::clone(&done));
        let search = async move {
            let mut fewest = u64::MAX;
            let mut searches = 0;
            while !ended.load(Ordering::SeqCst) {
                fewest = fewest.min(searching.server().count(&searching.index).await);
                searches += 1;
            }
            (fewest, searches)
        };
        let load = async {
            for _ in 0..2 {
                shelf.succeed(id).await;
            }
            done.store(true, Ordering::SeqCst);
        };
        let ((fewest, searches), ()) = tokio::join!(search, load);
        assert_eq!(fewest, 500);
        assert!(searches > 20, "{searches}");
    }
}

#[tokio::test]
async fn a_load_that_is_paused_goes_on_in_its_index_under_another_runner() {
    for server in SearchServer::both().await {
        let proxy = FaultProxy::before(&server).await;
        let shelf = Shelf::new(&server, 60).await.at(proxy.url());
        let id = shelf.full(10).await;
        let gate = Gate::new();
        proxy.play(2, "_bulk", Fault::Pass);
        proxy.play(1, "_bulk", Fault::Hold(gate.clone()));
        let (mut runner, _stop) = shelf.stage.start(shelf.settings("first"));
        shelf.stage.request(id).await;
        gate.arrived().await;
        shelf.stage.change(id, Event::Pause).await;
        gate.open();
        shelf.stage.reaches(id, Status::Paused).await;
        runner.abort_all();
        assert_eq!(shelf.behind().await, Vec::<String>::new(), "nobody sees it before it is whole");
        let load = shelf.stage.checkpoint().await["load"].clone();
        assert_eq!(load["rows"], 30);
        let resumed = shelf.succeed(id).await;
        assert_eq!((resumed.rows_read, resumed.batches), (30, 3), "it goes on where it was");
        shelf.assert_true().await;
    }
}

#[tokio::test]
async fn a_load_whose_index_was_deleted_starts_anew() {
    let server = SearchServer::elasticsearch().await;
    let proxy = FaultProxy::before(&server).await;
    let shelf = Shelf::new(&server, 40).await.at(proxy.url());
    let id = shelf.full(10).await;
    let gate = Gate::new();
    proxy.play(1, "_bulk", Fault::Pass);
    proxy.play(1, "_bulk", Fault::Hold(gate.clone()));
    let (mut runner, _stop) = shelf.stage.start(shelf.settings("first"));
    shelf.stage.request(id).await;
    gate.arrived().await;
    shelf.stage.change(id, Event::Pause).await;
    gate.open();
    shelf.stage.reaches(id, Status::Paused).await;
    runner.abort_all();
    for index in shelf.indexes.list().await {
        shelf.server().call("DELETE", &index, Value::Null).await;
    }
    shelf.succeed(id).await;
    shelf.assert_true().await;
}

#[tokio::test]
async fn a_swap_whose_answer_is_lost_has_happened_once() {
    for server in SearchServer::both().await {
        for fault in [Fault::DropReply, Fault::DropRequest, Fault::Duplicate] {
            let proxy = FaultProxy::before(&server).await;
            let shelf = Shelf::new(&server, 20).await.at(proxy.url());
            let id = shelf.full(10).await;
            shelf.succeed(id).await;
            let before = shelf.behind().await;
            proxy.play(1, "POST /_aliases", fault.clone());
            let run = shelf.run(id).await;
            if run.status != vitrina_core::RunStatus::Success {
                shelf.stage.db.execute("update etl.etl_pipelines set retry_at = null").await;
                shelf.work_off("again").await;
            }
            shelf.stage.reaches(id, Status::Idle).await;
            shelf.assert_true().await;
            assert_ne!(shelf.behind().await, before, "{fault:?}");
        }
    }
}

#[tokio::test]
async fn an_index_that_has_the_name_already_is_replaced_with_consent_only() {
    for server in SearchServer::both().await {
        let shelf = Shelf::new(&server, 10).await;
        shelf.server().call("PUT", &format!("{}/_doc/mine", shelf.index), json!({"mine": true})).await;
        let id = shelf.full(10).await;
        let (code, message) = shelf.fail(id).await;
        assert_eq!(code, "sink.name_taken");
        assert!(message.contains("take_over"), "{message}");
        assert!(shelf.server().document(&shelf.index, "mine").await.is_some());
        shelf.describe(json!({"document": {"take_over": true}})).await;
        shelf.succeed(id).await;
        shelf.assert_true().await;
        assert_eq!(shelf.behind().await.len(), 1);
    }
}

#[tokio::test]
async fn an_index_that_comes_to_be_while_a_load_goes_on_is_not_replaced_without_consent() {
    for server in SearchServer::both().await {
        let proxy = FaultProxy::before(&server).await;
        let shelf = Shelf::new(&server, 10).await.at(proxy.url());
        let id = shelf.full(10).await;
        let gate = Gate::new();
        proxy.play(1, "_bulk", Fault::HoldReply(gate.clone()));
        let (_runner, _stop) = shelf.stage.start(shelf.settings("first"));
        let run = shelf.stage.request(id).await;
        gate.arrived().await;
        shelf.server().call("PUT", &format!("{}/_doc/mine", shelf.index), json!({"mine": true})).await;
        gate.open();
        shelf.stage.reaches(id, Status::Failed).await;
        let run = shelf.stage.run_record(run).await;
        assert_eq!(run.error_code.as_deref(), Some("sink.name_taken"), "{:?}", run.error);
        assert!(shelf.server().document(&shelf.index, "mine").await.is_some());
        shelf.server().call("DELETE", &shelf.index, Value::Null).await;
        shelf.stage.request(id).await;
        shelf.stage.reaches(id, Status::Idle).await;
        shelf.assert_true().await;
    }
}

/// What a disk has lost, say.
#[tokio::test]
async fn a_load_that_lacks_what_was_sent_is_not_shown_to_readers() {
    for server in SearchServer::both().await {
        let proxy = FaultProxy::before(&server).await;
        let shelf = Shelf::new(&server, 20).await.at(proxy.url());
        let id = shelf.full(10).await;
        let gate = Gate::new();
        proxy.play(1, "_bulk", Fault::Pass);
        proxy.play(1, "_bulk", Fault::HoldReply(gate.clone()));
        let (_runner, _stop) = shelf.stage.start(shelf.settings("first"));
        let run = shelf.stage.request(id).await;
        gate.arrived().await;
        let load = shelf.indexes.list().await.remove(0);
        shelf.server().call("DELETE", &format!("{load}/_doc/3"), Value::Null).await;
        gate.open();
        shelf.stage.reaches(id, Status::Failed).await;
        let run = shelf.stage.run_record(run).await;
        assert_eq!(run.error_code.as_deref(), Some("sink.staging_lost"), "{:?}", run.error);
        assert_eq!(shelf.behind().await, Vec::<String>::new());
        shelf.stage.request(id).await;
        shelf.stage.reaches(id, Status::Idle).await;
        shelf.assert_true().await;
    }
}

#[tokio::test]
async fn deleted_documents_are_remembered_for_a_day() {
    let server = SearchServer::opensearch().await;
    let shelf = Shelf::new(&server, 5).await;
    let id = shelf.full(10).await;
    shelf.succeed(id).await;
    let index = shelf.behind().await.remove(0);
    let settings = shelf.server().get(&format!("{index}/_settings")).await;
    assert_eq!(settings[&index]["settings"]["index"]["gc_deletes"], "24h", "{settings}");
}

#[tokio::test]
async fn a_source_without_any_rows_never_empties_the_index() {
    let server = SearchServer::opensearch().await;
    let shelf = Shelf::new(&server, 10).await;
    let id = shelf.full(100).await;
    shelf.succeed(id).await;
    shelf.stage.db.execute("delete from content.film; update etl.etl_pipelines set delete_limit = 1").await;
    let (code, _) = shelf.fail(id).await;
    assert_eq!(code, "sink.source_empty");
    assert_eq!(shelf.documents().await.len(), 10);
}

#[tokio::test]
async fn a_load_that_would_drop_more_than_the_limit_is_refused_even_if_as_many_come() {
    for server in SearchServer::both().await {
        let shelf = Shelf::new(&server, 100).await;
        let id = shelf.full(50).await;
        shelf.succeed(id).await;
        shelf.stage.db.execute("update content.film set id = id + 1000 where id <= 30").await;
        let (code, message) = shelf.fail(id).await;
        assert_eq!(code, "sink.delete_limit");
        assert!(message.contains("30 of 100"), "{message}");
        shelf.stage.db.execute("update etl.etl_pipelines set delete_limit = 0.5").await;
        shelf.succeed(id).await;
        shelf.assert_true().await;
    }
}

#[tokio::test]
async fn a_mapping_and_settings_are_as_the_target_says() {
    for server in SearchServer::both().await {
        let shelf = Shelf::bare(&server, 3).await;
        shelf
            .describe(json!({
                "mapping": {"properties": {
                    "id": {"type": "keyword"}, "name": {"type": "text", "analyzer": "spoken"},
                    "rating": {"type": "scaled_float", "scaling_factor": 10}}},
                "settings": {"number_of_shards": 1, "refresh_interval": "7s",
                    "analysis": {"analyzer": {"spoken": {"tokenizer": "standard", "filter": ["lowercase", "russian"]}},
                                 "filter": {"russian": {"type": "stemmer", "language": "russian"}}}},
                "document": {"rename": {"title": "name"}, "omit": ["modified"]},
            }))
            .await;
        shelf.stage.db.execute("update content.film set title = 'Весёлые ребята' where id = 2").await;
        let id = shelf.full(10).await;
        shelf.succeed(id).await;
        let documents = shelf.documents().await;
        assert_eq!(documents["2"], json!({"id": "2", "name": "Весёлые ребята", "rating": 0.2}));
        let found =
            shelf.server().search(&shelf.index, json!({"query": {"match": {"name": "весёлый"}}})).await;
        assert_eq!(found["hits"]["hits"][0]["_id"], "2");
        let settings = shelf.server().get(&format!("{}/_settings?flat_settings=true", shelf.index)).await;
        let settings = settings.as_object().unwrap().values().next().unwrap()["settings"].clone();
        assert_eq!(
            (&settings["index.refresh_interval"], &settings["index.number_of_replicas"]),
            (&json!("7s"), &json!("1"))
        );
    }
}

#[tokio::test]
async fn a_column_without_a_field_is_told_before_anything_is_written() {
    let server = SearchServer::elasticsearch().await;
    let shelf = Shelf::bare(&server, 3).await;
    shelf
        .describe(json!({"mapping": {"properties": {"id": {"type": "long"}, "title": {"type": "text"}}}}))
        .await;
    let id = shelf.full(10).await;
    let (code, message) = shelf.fail(id).await;
    assert_eq!(code, "sink.unmapped");
    assert!(message.contains("rating, modified"), "{message}");
    assert_eq!(shelf.indexes.list().await, Vec::<String>::new());
}

#[tokio::test]
async fn an_index_without_a_key_is_refused_with_what_to_write() {
    let server = SearchServer::elasticsearch().await;
    let shelf = Shelf::bare(&server, 3).await;
    let id = shelf.full(10).await;
    let twice =
        "update etl.etl_pipelines set source_query = 'select a.id from content.film a, content.film b'";
    shelf.stage.db.execute(twice).await;
    let (code, message) = shelf.fail(id).await;
    assert_eq!(code, "sink.no_key");
    assert!(message.contains("key: [id]"), "{message}");
}

#[tokio::test]
async fn an_index_that_nobody_described_takes_the_key_that_its_query_proves() {
    let server = SearchServer::elasticsearch().await;
    let shelf = Shelf::bare(&server, 3).await;
    let id = shelf.full(10).await;
    assert_eq!(shelf.succeed(id).await.rows_written, 3);
    let key = "select key from etl.etl_targets where name like 'es:%'";
    assert_eq!(shelf.stage.db.value::<Vec<String>>(key).await, ["id"]);
    let again = shelf.succeed(id).await;
    assert_eq!(again.rows_read, 3, "the described target is the same configuration");
}

#[tokio::test]
async fn a_row_that_is_refused_keeps_the_document_it_had() {
    for server in SearchServer::both().await {
        let shelf = Shelf::new(&server, 10).await;
        let id = shelf.pipeline(json!({"batch_size": 4, "reject_limit": 5})).await;
        shelf.succeed(id).await;
        shelf.stage.db.execute("alter table content.film alter rating type float8; update content.film set rating = 'NaN' where id = 3; update content.film set title = 'New' where id = 4").await;
        let run = shelf.succeed(id).await;
        assert_eq!(run.rows_rejected, 1);
        let documents = shelf.documents().await;
        assert_eq!(documents.len(), 10);
        assert_eq!((&documents["3"]["rating"], &documents["4"]["title"]), (&json!(0.3), &json!("New")));
        assert_eq!(shelf.stage.rejects().await, [("row.unwritable".to_owned(), "[\"3\"]".to_owned())]);
        shelf.stage.db.execute("update content.film set rating = 5 where id = 3").await;
        shelf.succeed(id).await;
        assert_eq!(shelf.documents().await["3"]["rating"], json!(5.0));
        assert_eq!(shelf.stage.rejects().await, []);
    }
}

#[tokio::test]
async fn a_document_that_was_kept_and_does_not_fit_a_new_mapping_holds_up_no_load() {
    for server in SearchServer::both().await {
        let shelf = Shelf::new(&server, 10).await;
        let id = shelf.pipeline(json!({"batch_size": 4, "reject_limit": 5})).await;
        shelf.succeed(id).await;
        shelf.stage.db.execute("alter table content.film alter rating type float8; update content.film set rating = 'NaN' where id = 3; update content.film set title = id::text where id <> 3").await;
        let properties = json!({"id": {"type": "integer"}, "title": {"type": "integer"}, "rating": {"type": "float"}, "modified": {"type": "date"}});
        shelf.describe(json!({"mapping": {"properties": properties}})).await;
        let run = shelf.succeed(id).await;
        assert_eq!(run.rows_rejected, 1);
        assert!(!shelf.documents().await.contains_key("3"), "its old title is no number");
        assert_eq!(shelf.documents().await.len(), 9);
    }
}

#[tokio::test]
async fn a_row_that_is_mended_while_its_load_goes_on_is_no_reject_any_more() {
    for server in SearchServer::both().await {
        let proxy = FaultProxy::before(&server).await;
        let shelf = Shelf::new(&server, 9_000).await.at(proxy.url());
        shelf.stage.db.execute("alter table content.film alter rating type float8; update content.film set rating = 'NaN' where id = 1").await;
        let id = shelf
            .pipeline(json!({"mode": "incremental", "batch_size": 200, "incremental_key": "modified",
            "incremental_id_key": "id", "reject_limit": 3}))
            .await;
        let gate = Gate::new();
        proxy.play(1, "_bulk", Fault::Pass);
        proxy.play(1, "_bulk", Fault::HoldReply(gate.clone()));
        let (_runner, _stop) = shelf.stage.start(shelf.settings("first"));
        let run = shelf.stage.request(id).await;
        gate.arrived().await;
        assert_eq!(shelf.stage.rejects().await.len(), 1);
        shelf.stage.db.execute("update content.film set rating = 5.5, modified = (select max(modified) from content.film) where id = 1").await;
        gate.open();
        shelf.stage.reaches(id, Status::Idle).await;
        assert_eq!(shelf.stage.run_record(run).await.rows_read, 9_001, "in one pass");
        assert_eq!(shelf.stage.rejects().await, []);
        let documents = shelf.documents().await;
        assert_eq!((documents.len(), &documents["1"]["rating"]), (9_000, &json!(5.5)));
    }
}

#[tokio::test]
async fn a_row_that_vanishes_while_its_batch_is_sent_again_is_not_in_the_index() {
    for server in SearchServer::both().await {
        let proxy = FaultProxy::before(&server).await;
        let shelf = Shelf::new(&server, 40).await.at(proxy.url());
        let id = shelf.full(10).await;
        let gate = Gate::new();
        proxy.play(1, "_bulk", Fault::Pass);
        proxy.play(1, "_bulk", Fault::HoldReply(gate.clone()));
        let (mut runner, _stop) = shelf.stage.start(shelf.settings("first"));
        shelf.stage.request(id).await;
        gate.arrived().await;
        // The documents of the second batch are there, and its checkpoint is not.
        runner.abort_all();
        while runner.join_next().await.is_some() {}
        shelf.stage.db.execute("delete from content.film where id = 15").await;
        shelf.stage.expire_leases().await;
        shelf.work_off("heir").await;
        gate.open();
        shelf.stage.reaches(id, Status::Idle).await;
        shelf.assert_true().await;
    }
}
