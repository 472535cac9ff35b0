//! Owners that come after one who did not end well, however long after, and whatever happened in between.

use serde_json::json;
use vitrina_core::{Event, Mode, OnActive, RunStatus, Status};
use vitrina_store::RunRequest;
use vitrina_testbed::{Fault, FaultProxy, Gate, SearchServer};

use crate::shelf::Shelf;
use crate::zombie::Zombie;

const NEWER: &str =
    "update content.film set title = 'newer', modified = date_trunc('second', now()) where id = 1";

#[tokio::test]
async fn an_owner_that_nobody_has_shut_out_at_once_is_shut_out_by_whoever_writes_next() {
    for server in SearchServer::both().await {
        let proxy = FaultProxy::before(&server).await;
        let shelf = Shelf::new(&server, 10).await.at(proxy.url());
        let id = shelf.incremental(100).await;
        shelf.succeed(id).await;
        let gate = Gate::new();
        proxy.play(1, "POST /_aliases", Fault::Hold(gate.clone()));
        let (runner, stop) = shelf.stage.start(shelf.settings("zombie"));
        shelf.stage.request_mode(id, Mode::Full).await;
        gate.arrived().await;
        // Its heir finds a pause asked for and seals nothing; then the load is cancelled, and life goes on.
        shelf.stage.change(id, Event::Pause).await;
        // The owner hears of the pause, and renews its lease once more.
        for _ in 0..20 {
            if shelf.stage.status(id).await != Status::PauseRequested {
                break;
            }
            shelf.stage.expire_leases().await;
            shelf.work_off("first heir").await;
        }
        assert_eq!(shelf.stage.status(id).await, Status::Paused);
        shelf.stage.change(id, Event::Cancel).await;
        shelf.stage.db.execute(NEWER).await;
        shelf.succeed(id).await;
        shelf.assert_true().await;
        Zombie { gate, runner, stop }.wake().await;
        shelf.assert_true().await;
    }
}

#[tokio::test]
async fn a_marker_whose_creation_was_delayed_lets_no_swap_through() {
    for server in SearchServer::both().await {
        let proxy = FaultProxy::before(&server).await;
        let shelf = Shelf::new(&server, 10).await.at(proxy.url());
        let id = shelf.full(100).await;
        shelf.succeed(id).await;
        let late = Gate::new();
        proxy.play(1, "PUT /vitrina%2Dmarker", Fault::Hold(late.clone()));
        let (runner, stop) = shelf.stage.start(shelf.settings("zombie"));
        shelf.stage.request(id).await;
        late.arrived().await;
        shelf.stage.expire_leases().await;
        shelf.stage.db.execute("update content.film set title = 'newer' where id = 1").await;
        shelf.work_off("heir").await;
        shelf.assert_true().await;
        let behind = shelf.behind().await;
        Zombie { gate: late, runner, stop }.wake().await;
        assert_eq!(shelf.behind().await, behind);
        shelf.assert_true().await;
        shelf.succeed(id).await;
        let left = shelf.indexes.list().await;
        assert!(
            !left.iter().any(|name| name.starts_with("vitrina-marker-")),
            "the next load tidies up: {left:?}"
        );
    }
}

#[tokio::test]
async fn going_back_that_was_taken_over_goes_back_once() {
    for server in SearchServer::both().await {
        let proxy = FaultProxy::before(&server).await;
        let shelf = Shelf::new(&server, 5).await.at(proxy.url());
        let id = shelf.full(10).await;
        shelf.succeed(id).await;
        let first = shelf.behind().await;
        shelf.succeed(id).await;
        let gate = Gate::new();
        // The answer to the exchange: it has happened, and nobody has noted it.
        proxy.play(1, "POST /_aliases", Fault::HoldReply(gate.clone()));
        let (mut runner, _stop) = shelf.stage.start(shelf.settings("first"));
        let request = RunRequest { rollback: true, ..RunRequest::default() };
        let run = shelf.stage.store.request_run(id, OnActive::Reject, &request).await.unwrap().run.unwrap();
        gate.arrived().await;
        runner.abort_all();
        while runner.join_next().await.is_some() {}
        shelf.stage.expire_leases().await;
        shelf.work_off("heir").await;
        gate.open();
        assert_eq!(shelf.stage.run_record(run).await.status, RunStatus::Success);
        assert_eq!(shelf.behind().await, first);
    }
}

#[tokio::test]
async fn a_delete_through_a_door_that_is_gone_is_not_taken_for_done() {
    for server in SearchServer::both().await {
        let shelf = Shelf::new(&server, 5).await;
        let query = "select id, title, rating, modified from content.film where title <> 'hidden'";
        let id = shelf
            .pipeline(
                json!({"mode": "incremental", "incremental_key": "modified", "incremental_id_key": "id",
                "source_query": query, "delete_limit": 1}),
            )
            .await;
        shelf.succeed(id).await;
        // Somebody removes the door in the moment before the batch is sent.
        let proxy = FaultProxy::before(&server).await;
        let shelf = shelf.at(proxy.url());
        let gate = Gate::new();
        proxy.play(1, "_bulk", Fault::Hold(gate.clone()));
        shelf
            .stage
            .db
            .execute("update content.film set title = 'hidden', modified = now() where id = 1")
            .await;
        let (mut runner, _stop) = shelf.stage.start(shelf.settings("runner"));
        shelf.stage.request(id).await;
        gate.arrived().await;
        let index = shelf.behind().await.remove(0);
        let aliases = shelf.server().get(&format!("{index}/_alias")).await;
        for door in aliases[&index]["aliases"].as_object().unwrap().keys().filter(|alias| alias.contains('~'))
        {
            let action = json!({"actions": [{"remove": {"index": index, "alias": door}}]});
            shelf.server().call("POST", "_aliases", action).await;
        }
        gate.open();
        shelf.stage.reaches(id, Status::Idle).await;
        shelf.stage.db.execute("delete from content.film where title = 'hidden'").await;
        shelf.assert_true().await;
        assert!(shelf.indexes.list().await.iter().all(|name| !name.contains('~')));
        runner.abort_all();
    }
}

#[tokio::test]
async fn a_full_load_into_a_shared_index_goes_on_after_a_pause() {
    let server = SearchServer::elasticsearch().await;
    let proxy = FaultProxy::before(&server).await;
    let shelf = Shelf::bare(&server, 60).await.at(proxy.url());
    shelf.describe(json!({"document": {"partial": true}})).await;
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
    assert_eq!(shelf.succeed(id).await.rows_read, 30);
    shelf.assert_true().await;
}

#[tokio::test]
async fn pipelines_that_write_the_same_documents_at_the_same_time_both_succeed() {
    for server in SearchServer::both().await {
        let shelf = Shelf::bare(&server, 400).await;
        shelf
            .describe(
                json!({"document": {"partial": true}, "mapping": {"properties": {"id": {"type": "integer"},
                "title": {"type": "text"}, "rating": {"type": "float"}, "modified": {"type": "date"}}}}),
            )
            .await;
        let part = |name: &str, columns: &str| json!({"name": name, "batch_size": 100, "source_query": format!("select id, {columns}, modified from content.film")});
        let titles = shelf.pipeline(part("titles", "title")).await;
        let ratings = shelf.pipeline(part("ratings", "rating")).await;
        for _ in 0..3 {
            let runs = [shelf.stage.request(titles).await, shelf.stage.request(ratings).await];
            shelf.work_off("both").await;
            for run in runs {
                let run = shelf.stage.run_record(run).await;
                assert_eq!(run.status, RunStatus::Success, "{:?}", run.error);
            }
        }
        shelf.assert_true().await;
    }
}

#[tokio::test]
async fn consent_to_replace_an_index_is_no_consent_to_empty_it() {
    let server = SearchServer::elasticsearch().await;
    let shelf = Shelf::bare(&server, 0).await;
    shelf.describe(json!({"document": {"take_over": true}})).await;
    shelf
        .server()
        .call("PUT", &format!("{}/_doc/mine?refresh=true", shelf.index), json!({"mine": true}))
        .await;
    let id = shelf.full(10).await;
    let (code, _) = shelf.fail(id).await;
    assert_eq!(code, "sink.source_empty");
    let mine = shelf.server().document(&shelf.index, "mine").await.unwrap();
    assert_eq!(mine["_source"], json!({"mine": true}));
}
