//! Servers that start, freeze, refuse a share of everything, or run out of disk.

use std::time::Duration;

use serde_json::{Value, json};
use vitrina_core::Status;
use vitrina_runner::RunnerSettings;
use vitrina_testbed::{Distribution, Fault, FaultProxy, Gate, SearchServer, eventually};

use crate::shelf::Shelf;

const TOUCH: &str =
    "update content.film set title = 'New', modified = date_trunc('second', now()) where id = 1";

#[tokio::test]
async fn a_server_that_has_not_opened_its_indexes_yet_gives_the_pipeline_back() {
    for distribution in [Distribution::Elasticsearch, Distribution::OpenSearch] {
        let mut server = SearchServer::own(distribution, &[]).await;
        let shelf = Shelf::new(&server, 20).await;
        let id = shelf.incremental(10).await;
        shelf.succeed(id).await;
        // What a large cluster takes minutes for takes as long as the test wants.
        opens(&server, json!(0)).await;
        server.kill();
        server.start().await;
        shelf.stage.db.execute(TOUCH).await;
        let (code, message) = shelf.given_back(id).await;
        assert_eq!(code, "sink.unavailable", "{message}");
        assert!(message.contains("503"), "{message}");
        opens(&server, Value::Null).await;
        server.settled().await;
        shelf.hurry().await;
        shelf.work_off("tester").await;
        shelf.assert_true().await;
        assert_eq!(shelf.stage.status(id).await, Status::Idle);
    }
}

#[tokio::test]
async fn a_node_that_freezes_in_the_middle_of_a_bulk_is_waited_for_and_no_lease_is_lost() {
    let server = SearchServer::own_elasticsearch().await;
    let proxy = FaultProxy::before(&server).await;
    let shelf = Shelf::new(&server, 100).await.at(proxy.url());
    let id = shelf.full(20).await;
    let gate = Gate::new();
    proxy.play(2, "_bulk", Fault::Pass);
    proxy.play(1, "_bulk", Fault::Hold(gate.clone()));
    let lease = Duration::from_secs(2);
    let (mut runner, _stop) = shelf.stage.start(RunnerSettings { lease, ..shelf.patient() });
    let run = shelf.stage.request(id).await;
    gate.arrived().await;
    server.freeze();
    gate.open();
    let frozen_at: String = shelf.stage.db.value("select now()::text").await;
    let outlived =
        format!("select lease_until > '{frozen_at}'::timestamptz + interval '6 s' from etl.etl_pipelines");
    eventually("the lease is renewed thrice", async || {
        shelf.stage.db.value::<bool>(&outlived).await.then_some(())
    })
    .await;
    server.thaw();
    shelf.stage.reaches(id, Status::Idle).await;
    runner.abort_all();
    shelf.assert_true().await;
    let run = shelf.stage.run_record(run).await;
    assert_eq!((run.rows_read, run.rows_written), (100, 100));
    let attempts: i64 = shelf.stage.db.value("select count(*) from etl.etl_attempts").await;
    assert_eq!(attempts, 1);
}

#[tokio::test]
async fn one_refused_item_in_ten_is_sent_again_until_all_are_written_exactly_once() {
    for server in SearchServer::both().await {
        let proxy = FaultProxy::before(&server).await;
        let shelf = Shelf::new(&server, 1000).await.at(proxy.url());
        let load = shelf.full(200).await;
        proxy.play(usize::MAX, "_bulk", Fault::RejectItems(0.1));
        let run = shelf.succeed(load).await;
        assert_eq!((run.rows_read, run.rows_written, run.rows_rejected), (1000, 1000, 0));
        shelf.assert_true().await;
        shelf.stage.db.execute("update etl.etl_pipelines set mode = 'incremental', incremental_key = 'modified', incremental_id_key = 'id', delete_limit = 1,
            source_query = source_query || ' where title <> ''hidden'''").await;
        shelf.stage.request_mode(load, vitrina_core::Mode::Full).await;
        shelf.work_off("tester").await;
        shelf.stage.db.execute("update content.film set modified = date_trunc('second', now()), title = case when id % 4 = 0 then 'hidden' else 'New' end where id <= 400").await;
        let run = shelf.succeed(load).await;
        assert_eq!((run.rows_written, run.rows_deleted, run.rows_rejected), (300, 100, 0));
        shelf.stage.db.execute("delete from content.film where title = 'hidden'").await;
        shelf.assert_true().await;
    }
}

#[tokio::test]
async fn a_disk_past_its_flood_stage_gives_the_pipeline_back_until_the_server_lifts_its_block() {
    let often = [("cluster.info.update.interval", "10s")];
    let server = SearchServer::own(Distribution::OpenSearch, &often).await;
    let shelf = Shelf::new(&server, 20).await;
    let id = shelf.incremental(10).await;
    shelf.succeed(id).await;
    flood(&server, true).await;
    let index = shelf.behind().await.remove(0);
    blocked(&server, &index, true).await;
    shelf.stage.db.execute(TOUCH).await;
    let (code, message) = shelf.given_back(id).await;
    assert_eq!(code, "sink.unavailable", "{message}");
    assert!(message.contains("disk"), "{message}");
    assert_eq!(shelf.stage.rejects().await, []);
    flood(&server, false).await;
    blocked(&server, &index, false).await;
    shelf.hurry().await;
    shelf.work_off("tester").await;
    shelf.assert_true().await;
}

/// How many indexes at a time, once it is started again.
async fn opens(server: &SearchServer, indexes: Value) {
    let setting =
        json!({"persistent": {"cluster.routing.allocation.node_initial_primaries_recoveries": indexes}});
    let (status, answer) = server.call("PUT", "_cluster/settings", setting).await;
    assert_eq!(status, 200, "{answer}");
    server.call("POST", "_cluster/reroute", Value::Null).await;
}

/// Asks for more room than any disk has, or for less.
async fn flood(server: &SearchServer, on: bool) {
    let [low, high, flood_stage] = if on { ["3000pb", "2000pb", "1000pb"] } else { ["3kb", "2kb", "1kb"] };
    let watermark = json!({"low": low, "high": high, "flood_stage": flood_stage});
    let disk = json!({"threshold_enabled": true, "watermark": watermark});
    let settings = json!({"persistent": {"cluster.routing.allocation.disk": disk}});
    let (status, answer) = server.call("PUT", "_cluster/settings", settings).await;
    assert_eq!(status, 200, "{answer}");
}

async fn blocked(server: &SearchServer, index: &str, expected: bool) {
    eventually("the server looks at its disk", async || {
        let settings = server.get(&format!("{index}/_settings?flat_settings=true")).await;
        let block = &settings[index]["settings"]["index.blocks.read_only_allow_delete"];
        ((block == "true") == expected).then_some(())
    })
    .await;
}
