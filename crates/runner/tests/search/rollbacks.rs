//! Back to the index that readers saw before the last load.

use serde_json::json;
use vitrina_core::{Mode, OnActive, PipelineId, RunStatus};
use vitrina_store::{RunRecord, RunRequest};
use vitrina_testbed::{Fault, FaultProxy, SearchServer};

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
