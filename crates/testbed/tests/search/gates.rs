//! Requests that wait for the test.

use std::time::Duration;

use serde_json::{Value, json};
use tokio::time::timeout;
use vitrina_testbed::{Fault, FaultProxy, Gate, SearchServer};

#[tokio::test]
async fn a_late_duplicate_undoes_what_came_between_unless_versions_forbid_it() {
    for (query, kept) in
        [(["", ""], "old"), (["?version=1&version_type=external", "?version=2&version_type=external"], "new")]
    {
        let server = SearchServer::opensearch().await;
        let (indexes, proxy, gate) = (server.indexes(), FaultProxy::before(&server).await, Gate::new());
        let films = indexes.name("films");
        proxy.play(1, "_doc/1", Fault::DuplicateLater(gate.clone()));
        for (query, title) in query.iter().zip(["old", "new"]) {
            let path = format!("{films}/_doc/1{query}");
            let (status, answer) = proxy.server().call("PUT", &path, json!({"title": title})).await;
            assert!(status < 300, "{answer}");
        }
        gate.arrived().await;
        assert_eq!(server.document(&films, "1").await.unwrap()["_source"]["title"], "new");
        gate.open();
        gate.passed().await;
        assert_eq!(server.document(&films, "1").await.unwrap()["_source"]["title"], kept);
    }
}

#[tokio::test]
async fn a_request_waits_at_its_gate_also_when_its_caller_has_gone() {
    let server = SearchServer::opensearch().await;
    let (indexes, proxy, gate) = (server.indexes(), FaultProxy::before(&server).await, Gate::new());
    let films = indexes.name("films");
    server.call("PUT", &films, Value::Null).await;
    proxy.play(1, "_doc/1", Fault::Hold(gate.clone()));
    let caller = proxy.server();
    let path = format!("{films}/_doc/1");
    tokio::select! {
        _ = caller.call("PUT", &path, json!({})) => panic!("answered before the gate was opened"),
        () = gate.arrived() => {}
    }
    assert!(server.document(&films, "1").await.is_none());
    gate.open();
    gate.passed().await;
    assert!(server.document(&films, "1").await.is_some());
}

#[tokio::test]
async fn a_held_reply_belongs_to_a_request_that_was_executed() {
    let server = SearchServer::opensearch().await;
    let (indexes, proxy, gate) = (server.indexes(), FaultProxy::before(&server).await, Gate::new());
    let films = indexes.name("films");
    proxy.play(1, "_doc/1", Fault::HoldReply(gate.clone()));
    let (caller, path) = (proxy.server(), format!("{films}/_doc/1"));
    let asked = caller.call("PUT", &path, json!({}));
    let opened = async {
        gate.arrived().await;
        assert!(server.document(&films, "1").await.is_some());
        gate.open();
    };
    assert_eq!(tokio::join!(asked, opened).0.0, 201);
}

#[tokio::test]
async fn a_delayed_request_lets_others_go_before() {
    let server = SearchServer::opensearch().await;
    let proxy = FaultProxy::before(&server).await;
    proxy.play(1, "_cat", Fault::Delay(Duration::from_secs(600)));
    let caller = proxy.server();
    let delayed = timeout(Duration::from_millis(100), caller.call("GET", "_cat/health", Value::Null));
    let (delayed, other) = tokio::join!(delayed, caller.call("GET", "/", Value::Null));
    assert!(delayed.is_err() && other.0 == 200);
    assert_eq!(proxy.passed(), ["GET /"]);
}
