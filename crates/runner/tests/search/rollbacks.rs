//! Back to the index that readers saw before the last load.

use serde_json::json;
use vitrina_core::{Event, Mode, OnActive, PipelineId, RunStatus, Status};
use vitrina_store::{RunRecord, RunRequest};
use vitrina_testbed::{Fault, FaultProxy, Gate, SearchServer};

use crate::shelf::Shelf;

async fn roll_back(shelf: &Shelf, id: PipelineId) -> RunRecord {
    let request = RunRequest { rollback: true, ..RunRequest::default() };
    let run = shelf.stage.store.request_run(id, OnActive::Reject, &request).await.unwrap().run.unwrap();
    shelf.work_off("tester").await;
    shelf.stage.run_record(run).await
}

#[tokio::test]
async fn readers_get_back_what_they_saw_before_the_last_load_and_forth_again() {
    for server in SearchServer::both().await {
        let shelf = Shelf::new(&server, 10).await;
        let id = shelf.full(4).await;
        shelf.succeed(id).await;
        let first = shelf.behind().await;
        shelf.stage.db.execute("update content.film set title = 'New'").await;
        shelf.succeed(id).await;
        let second = shelf.behind().await;
        let run = roll_back(&shelf, id).await;
        assert_eq!(
            (run.status, run.rollback, run.rows_read),
            (RunStatus::Success, true, 0),
            "{:?}",
            run.error
        );
        assert_eq!(shelf.behind().await, first);
        assert_eq!(shelf.documents().await["1"]["title"], json!("Film 1"));
        assert_eq!(roll_back(&shelf, id).await.status, RunStatus::Success);
        assert_eq!(shelf.behind().await, second);
        shelf.succeed(id).await;
        shelf.assert_true().await;
    }
}

#[tokio::test]
async fn an_incremental_pipeline_goes_on_from_where_the_older_index_had_come() {
    for server in SearchServer::both().await {
        let shelf = Shelf::new(&server, 10).await;
        let id = shelf.incremental(100).await;
        shelf.succeed(id).await;
        let first = shelf.behind().await;
        shelf.stage.request_mode(id, Mode::Full).await;
        shelf.work_off("tester").await;
        shelf
            .stage
            .db
            .execute(
                "update content.film set title = 'New', modified = date_trunc('second', now()) where id = 3",
            )
            .await;
        shelf.succeed(id).await;
        let run = roll_back(&shelf, id).await;
        assert_eq!(run.status, RunStatus::Success, "{:?}", run.error);
        assert_eq!(shelf.behind().await, first);
        assert_eq!(shelf.documents().await["3"]["title"], json!("Film 3"), "as it was then");
        shelf.succeed(id).await;
        shelf.assert_true().await;
        assert_eq!(shelf.behind().await, first, "it goes on in the older index");
    }
}

/// Whose readers have gone back, and whose runner has ended before it could say so.
async fn interrupted(proxy: &FaultProxy, shelf: &Shelf) -> (PipelineId, Vec<String>) {
    let id = shelf.incremental(100).await;
    shelf.succeed(id).await;
    let first = shelf.behind().await;
    shelf.stage.request_mode(id, Mode::Full).await;
    shelf.work_off("tester").await;
    let change = "update content.film set title = 'New', modified = date_trunc('second', now()) where id = 3";
    shelf.stage.db.execute(change).await;
    shelf.succeed(id).await;
    let gate = Gate::new();
    proxy.play(1, "POST /_aliases", Fault::HoldReply(gate.clone()));
    let (mut runner, _stop) = shelf.stage.start(shelf.settings("first"));
    let request = RunRequest { rollback: true, ..RunRequest::default() };
    shelf.stage.store.request_run(id, OnActive::Reject, &request).await.unwrap();
    gate.arrived().await;
    runner.shutdown().await;
    assert_eq!(shelf.behind().await, first);
    (id, first)
}

#[tokio::test]
async fn a_rollback_that_is_cancelled_halfway_loses_no_change() {
    for server in SearchServer::both().await {
        let proxy = FaultProxy::before(&server).await;
        let shelf = Shelf::new(&server, 10).await.at(proxy.url());
        let (id, first) = interrupted(&proxy, &shelf).await;
        shelf.stage.change(id, Event::Cancel).await;
        shelf.stage.expire_leases().await;
        shelf.work_off("second").await;
        shelf.succeed(id).await;
        assert_eq!(shelf.behind().await, first);
        shelf.assert_true().await;
    }
}

#[tokio::test]
async fn a_rollback_that_is_paused_and_resumed_goes_back_once() {
    for server in SearchServer::both().await {
        let proxy = FaultProxy::before(&server).await;
        let shelf = Shelf::new(&server, 10).await.at(proxy.url());
        let (id, first) = interrupted(&proxy, &shelf).await;
        shelf.stage.change(id, Event::Pause).await;
        shelf.stage.expire_leases().await;
        shelf.work_off("second").await;
        assert_eq!(shelf.stage.status(id).await, Status::Paused);
        let run = shelf.succeed(id).await;
        assert!(run.rollback, "it goes on with what it was");
        assert_eq!(shelf.behind().await, first);
        shelf.succeed(id).await;
        shelf.assert_true().await;
        let run = roll_back(&shelf, id).await;
        assert_eq!(run.status, RunStatus::Success, "{:?}", run.error);
        assert_ne!(shelf.behind().await, first, "and forth again, when somebody asks for it");
    }
}

#[tokio::test]
async fn a_load_whose_runner_dies_right_after_its_swap_has_happened_and_can_be_taken_back() {
    for server in SearchServer::both().await {
        let proxy = FaultProxy::before(&server).await;
        let shelf = Shelf::new(&server, 10).await.at(proxy.url());
        let id = shelf.incremental(4).await;
        shelf.succeed(id).await;
        let first = shelf.behind().await;
        let gate = Gate::new();
        proxy.play(1, "POST /_aliases", Fault::HoldReply(gate.clone()));
        let (mut runner, _stop) = shelf.stage.start(shelf.settings("first"));
        shelf.stage.request_mode(id, Mode::Full).await;
        gate.arrived().await;
        runner.shutdown().await;
        let second = shelf.behind().await;
        assert_ne!(second, first);
        shelf.stage.expire_leases().await;
        shelf.work_off("second").await;
        assert_eq!(shelf.stage.status(id).await, Status::Idle);
        assert_eq!(shelf.behind().await, second);
        shelf.assert_true().await;
        assert_eq!(roll_back(&shelf, id).await.status, RunStatus::Success);
        assert_eq!(shelf.behind().await, first);
        assert_eq!(shelf.succeed(id).await.rows_read, 10, "nobody knows how far that one had come");
        shelf.assert_true().await;
    }
}

#[tokio::test]
async fn there_is_nothing_to_go_back_to_before_the_second_load() {
    let server = SearchServer::opensearch().await;
    let shelf = Shelf::new(&server, 5).await;
    let id = shelf.full(10).await;
    shelf.succeed(id).await;
    let run = roll_back(&shelf, id).await;
    assert_eq!(run.error_code.as_deref(), Some("sink.nothing_before"));
    shelf.assert_true().await;
}

#[tokio::test]
async fn going_back_survives_a_lost_answer() {
    let server = SearchServer::elasticsearch().await;
    let proxy = FaultProxy::before(&server).await;
    let shelf = Shelf::new(&server, 5).await.at(proxy.url());
    let id = shelf.full(10).await;
    shelf.succeed(id).await;
    let first = shelf.behind().await;
    shelf.succeed(id).await;
    proxy.play(1, "POST /_aliases", Fault::DropReply);
    assert_eq!(roll_back(&shelf, id).await.status, RunStatus::Success);
    assert_eq!(shelf.behind().await, first);
}
