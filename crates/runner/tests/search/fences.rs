//! Owners that were taken over: whatever they still send or wake up to do changes nothing.

use serde_json::{Value, json};
use vitrina_core::{Ledger, Pipeline, PipelineId, Status};
use vitrina_store::{Actor, Change, PipelineRef};
use vitrina_testbed::{Fault, FaultProxy, Gate, SearchServer};

use crate::shelf::Shelf;
use crate::zombie::Zombie;

#[tokio::test]
async fn an_owner_that_was_taken_over_writes_no_more() {
    for server in SearchServer::both().await {
        let proxy = FaultProxy::before(&server).await;
        let shelf = Shelf::new(&server, 20).await.at(proxy.url());
        let id = shelf.incremental(100).await;
        shelf.succeed(id).await;
        shelf
            .stage
            .db
            .execute(
                "update content.film set title = 'old', modified = date_trunc('second', now()) where id <= 5",
            )
            .await;
        let zombie = Zombie::before(&shelf, &proxy, "_bulk", id).await;
        shelf
            .stage
            .db
            .execute(
                "update content.film set title = 'new', modified = date_trunc('second', now()) where id <= 3",
            )
            .await;
        shelf.work_off("heir").await;
        shelf.stage.reaches(id, Status::Idle).await;
        shelf.assert_true().await;
        zombie.wake().await;
        shelf.assert_true().await;
    }
}

#[tokio::test]
async fn partial_documents_of_an_owner_that_was_taken_over_do_not_come_through() {
    for server in SearchServer::both().await {
        let proxy = FaultProxy::before(&server).await;
        let shelf = Shelf::bare(&server, 5).await.at(proxy.url());
        shelf.describe(json!({"document": {"partial": true}})).await;
        let id = shelf.incremental(100).await;
        shelf.succeed(id).await;
        shelf
            .stage
            .db
            .execute(
                "update content.film set title = 'old', modified = date_trunc('second', now()) where id = 1",
            )
            .await;
        let zombie = Zombie::before(&shelf, &proxy, "_bulk", id).await;
        shelf
            .stage
            .db
            .execute(
                "update content.film set title = 'new', modified = date_trunc('second', now()) where id = 1",
            )
            .await;
        shelf.work_off("heir").await;
        shelf.stage.reaches(id, Status::Idle).await;
        zombie.wake().await;
        shelf.assert_true().await;
    }
}

#[tokio::test]
async fn an_owner_that_wakes_between_its_last_check_and_its_swap_swaps_nothing() {
    for server in SearchServer::both().await {
        let proxy = FaultProxy::before(&server).await;
        let shelf = Shelf::new(&server, 20).await.at(proxy.url());
        let id = shelf.full(100).await;
        shelf.succeed(id).await;
        let zombie = Zombie::before(&shelf, &proxy, "POST /_aliases", id).await;
        shelf.stage.db.execute("update content.film set title = 'new' where id = 1").await;
        shelf.work_off("heir").await;
        shelf.stage.reaches(id, Status::Idle).await;
        shelf.assert_true().await;
        let behind = shelf.behind().await;
        zombie.wake().await;
        assert_eq!(shelf.behind().await, behind);
        shelf.assert_true().await;
    }
}

#[tokio::test]
async fn an_owner_that_wakes_to_tidy_up_removes_nothing_that_readers_see() {
    for server in SearchServer::both().await {
        let proxy = FaultProxy::before(&server).await;
        let shelf = Shelf::new(&server, 20).await.at(proxy.url());
        let id = shelf.full(100).await;
        shelf.succeed(id).await;
        shelf.succeed(id).await;
        // It is about to look which indexes of older loads are left.
        let zombie = Zombie::before(&shelf, &proxy, "*/_alias", id).await;
        shelf.work_off("heir").await;
        shelf.stage.reaches(id, Status::Idle).await;
        zombie.wake().await;
        shelf.assert_true().await;
    }
}

#[tokio::test]
async fn what_an_older_owner_leaves_in_place_of_its_alias_is_swept() {
    for server in SearchServer::both().await {
        let proxy = FaultProxy::before(&server).await;
        let shelf = Shelf::new(&server, 5).await.at(proxy.url());
        let query = "select id, title, rating, modified from content.film where title <> 'hidden'";
        let id = shelf
            .pipeline(
                json!({"mode": "incremental", "incremental_key": "modified", "incremental_id_key": "id",
                "source_query": query, "delete_limit": 1}),
            )
            .await;
        shelf.succeed(id).await;
        shelf
            .stage
            .db
            .execute("update content.film set title = 'hidden', modified = now() where id = 1")
            .await;
        let zombie = Zombie::before(&shelf, &proxy, "_bulk", id).await;
        shelf.work_off("heir").await;
        shelf.stage.reaches(id, Status::Idle).await;
        zombie.wake().await;
        let strays = async || {
            let listed = shelf.indexes.list().await;
            listed.into_iter().filter(|name| name.contains('~')).count()
        };
        assert_eq!(strays().await, 0, "a delete through an alias that is closed is refused");
        // One through an alias that was forgotten since creates an index of its name.
        let closed = shelf.server().get(&format!("_alias/{}~*?expand_wildcards=all", shelf.index)).await;
        let closed = closed["vitrina-closed"]["aliases"].as_object().unwrap().keys().next().unwrap().clone();
        let (family, _) = closed.rsplit_once('~').unwrap();
        shelf.server().call("PUT", &format!("{family}~00000001"), json!({})).await;
        assert_eq!(strays().await, 1);
        let zombie = Zombie::before(&shelf, &proxy, "GET /_alias", id).await;
        shelf.work_off("heir").await;
        shelf.stage.reaches(id, Status::Idle).await;
        assert_eq!(strays().await, 0);
        zombie.wake().await;
    }
}

#[tokio::test]
async fn a_run_that_finds_nothing_changes_nothing_at_the_server() {
    let server = SearchServer::elasticsearch().await;
    let proxy = FaultProxy::before(&server).await;
    let shelf = Shelf::new(&server, 5).await.at(proxy.url());
    let id = shelf.incremental(100).await;
    shelf.succeed(id).await;
    let before = proxy.passed().len();
    shelf.succeed(id).await;
    let calls = proxy.passed().split_off(before);
    assert!(calls.iter().all(|call| call.starts_with("GET")) && calls.len() <= 3, "{calls:?}");
}

#[tokio::test]
async fn a_document_with_a_version_of_somebody_else_stops_the_run() {
    for server in SearchServer::both().await {
        let shelf = Shelf::new(&server, 5).await;
        let id = shelf.incremental(100).await;
        shelf.succeed(id).await;
        let index = shelf.behind().await.remove(0);
        let path = format!("{index}/_doc/2?version={}&version_type=external", i64::MAX / 2);
        shelf.server().call("PUT", &path, json!({"id": 2, "title": "mine"})).await;
        shelf.stage.db.execute("update content.film set modified = now() where id = 2").await;
        let (code, message) = shelf.fail(id).await;
        assert_eq!(code, "sink.foreign_writer", "{message}");
        shelf.stage.request_mode(id, vitrina_core::Mode::Full).await;
        shelf.work_off("tester").await;
        shelf.assert_true().await;
    }
}

#[tokio::test]
async fn a_control_document_that_somebody_deletes_in_the_middle_of_a_run_is_told() {
    for server in SearchServer::both().await {
        let proxy = FaultProxy::before(&server).await;
        let shelf = Shelf::new(&server, 5).await.at(proxy.url());
        let id = shelf.full(2).await;
        let gate = Gate::new();
        proxy.play(1, "_bulk", Fault::HoldReply(gate.clone()));
        let (_runner, _stop) = shelf.stage.start(shelf.settings("first"));
        let run = shelf.stage.request(id).await;
        gate.arrived().await;
        shelf.server().call("DELETE", &format!("vitrina-control/_doc/{}", shelf.index), Value::Null).await;
        gate.open();
        shelf.stage.reaches(id, Status::Failed).await;
        let run = shelf.stage.run_record(run).await;
        assert_eq!(run.error_code.as_deref(), Some("sink.control_lost"), "{:?}", run.error);
    }
}

/// What follows when a pipeline is deleted.
async fn forget(shelf: &Shelf, id: PipelineId) {
    let settings = shelf.settings("tester");
    let name = shelf.target().parse().unwrap();
    let target = shelf.stage.store.target(&name).await.unwrap();
    let left = vitrina_connectors::sinks::Left {
        pipeline: id,
        deleted: true,
        target: &target,
        installation: shelf.stage.store.installation().await.unwrap(),
        request: (uuid::Uuid::nil(), vitrina_core::Owner::draw()),
        issued: &shelf.stage.store.issued(&[id]).await.unwrap(),
        ledger: &shelf.stage.store,
        connections: &settings.connections,
    };
    settings.sinks.of(&name).unwrap().forget(&left).await.unwrap();
}

#[tokio::test]
async fn the_first_pass_of_an_incremental_pipeline_leaves_no_documents_of_the_one_before_it() {
    for server in SearchServer::both().await {
        let shelf = Shelf::new(&server, 10).await;
        let first = shelf.full(10).await;
        shelf.succeed(first).await;
        forget(&shelf, first).await;
        shelf.stage.db.execute("delete from content.film where id = 3").await;
        let second = shelf
            .pipeline(json!({"name": "second", "mode": "incremental", "incremental_key": "modified",
                "incremental_id_key": "id"}))
            .await;
        shelf.succeed(second).await;
        shelf.assert_true().await;
        assert_eq!(shelf.documents().await.len(), 9);
    }
}

#[tokio::test]
async fn a_pipeline_that_is_sent_elsewhere_leaves_its_index_to_others() {
    let server = SearchServer::opensearch().await;
    let shelf = Shelf::new(&server, 5).await;
    let first = shelf.full(10).await;
    shelf.succeed(first).await;
    let record = shelf.stage.store.pipeline(&PipelineRef::Id(first)).await.unwrap();
    let after = Pipeline { target_table: "analytics.film".to_owned(), ..record.config };
    let actor = Actor { name: "tester".to_owned(), request_id: "1".to_owned() };
    let change = Change::EditPipeline { after, version: record.version };
    shelf.stage.store.configure(&[change], &actor).await.unwrap();
    let mut wakeups = shelf.stage.store.wakeups().await.unwrap();
    let (_runner, _stop) = shelf.stage.start(shelf.settings("tester"));
    let status = "select status from etl.etl_requests where kind = 'forget'";
    while shelf.stage.db.value::<String>(status).await != "DONE" {
        wakeups.next().await;
    }
    let second = shelf.pipeline(json!({"name": "second"})).await;
    shelf.stage.request(second).await;
    shelf.stage.reaches(second, Status::Idle).await;
    shelf.assert_true().await;
}

#[tokio::test]
async fn an_index_of_another_installation_is_refused() {
    let server = SearchServer::opensearch().await;
    let shelf = Shelf::new(&server, 5).await;
    let id = shelf.full(10).await;
    shelf.succeed(id).await;
    shelf.stage.db.execute("update etl.etl_installation set id = gen_random_uuid()").await;
    let (code, message) = shelf.fail(id).await;
    assert!(code == "sink.owned" && message.contains("installation"), "{code} {message}");
    shelf.assert_true().await;
}

#[tokio::test]
async fn of_two_that_come_for_an_index_without_an_owner_one_gets_it_and_the_other_is_told() {
    let server = SearchServer::elasticsearch().await;
    let proxy = FaultProxy::before(&server).await;
    let shelf = Shelf::new(&server, 5).await.at(proxy.url());
    let first = shelf.full(10).await;
    shelf.succeed(first).await;
    forget(&shelf, first).await;
    shelf.stage.db.execute(&format!("delete from etl.etl_pipelines where id = '{first}'")).await;
    let slow = shelf.pipeline(json!({"name": "slow"})).await;
    let gate = Gate::new();
    proxy.play(1, "PUT /vitrina-control", Fault::Hold(gate.clone()));
    let (_runner, _stop) = shelf.stage.start(shelf.settings("slow"));
    let run = shelf.stage.request(slow).await;
    gate.arrived().await;
    let fast = shelf.pipeline(json!({"name": "fast"})).await;
    shelf.stage.request(fast).await;
    shelf.stage.reaches(fast, Status::Idle).await;
    gate.open();
    shelf.stage.reaches(slow, Status::Failed).await;
    let run = shelf.stage.run_record(run).await;
    assert_eq!(run.error_code.as_deref(), Some("sink.owned"), "{:?}", run.error);
    let attempts = format!("select count(*) from etl.etl_attempts where pipeline_id = '{slow}'");
    assert_eq!(shelf.stage.db.value::<i64>(&attempts).await, 1, "at once, not when its lease has run out");
    shelf.assert_true().await;
}

#[tokio::test]
async fn a_deleted_pipeline_leaves_its_index_and_a_new_one_may_write_to_it() {
    let server = SearchServer::opensearch().await;
    let shelf = Shelf::new(&server, 5).await;
    let first = shelf.full(10).await;
    shelf.succeed(first).await;
    forget(&shelf, first).await;
    assert_eq!(shelf.documents().await.len(), 5);
    assert!(shelf.indexes.list().await.iter().all(|name| !name.contains("marker")));
    let second = shelf.pipeline(json!({"name": "second"})).await;
    shelf.succeed(second).await;
    shelf.assert_true().await;
    assert_eq!(shelf.behind().await.len(), 1);
    shelf.succeed(second).await;
    shelf.succeed(second).await;
    let kept = shelf.indexes.list().await;
    assert_eq!(kept.len(), 2, "what readers see and what they saw before, whoever made it: {kept:?}");
}
