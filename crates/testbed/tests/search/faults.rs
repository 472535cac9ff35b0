//! What the proxy does to requests, seen from both of its sides.

use rstest::rstest;
use serde_json::{Value, json};
use vitrina_testbed::{Distribution, Distribution::*, Fault, FaultProxy, Indexes, SearchServer, Storm};

use crate::servers::send_compressed;

async fn before_elasticsearch() -> (SearchServer, Indexes, FaultProxy) {
    let server = SearchServer::elasticsearch().await;
    let proxy = FaultProxy::before(&server).await;
    (server.clone(), server.indexes(), proxy)
}

#[tokio::test]
async fn what_passes_is_answered_by_the_server_and_written_down() {
    let (server, indexes, proxy) = before_elasticsearch().await;
    assert_eq!(proxy.server().get("/").await, server.get("/").await);
    let path = format!("/{}/_doc/1?refresh=true", indexes.name("films"));
    assert_eq!(proxy.server().call("PUT", &path, json!({"title": "one"})).await.0, 201);
    assert_eq!(proxy.server().call("HEAD", &path, Value::Null).await.0, 200);
    assert_eq!(proxy.passed(), ["GET /".to_owned(), format!("PUT {path}"), format!("HEAD {path}")]);
}

#[tokio::test]
async fn a_request_whose_reply_is_dropped_was_executed() {
    let (server, indexes, proxy) = before_elasticsearch().await;
    let films = indexes.name("films");
    proxy.play(1, "PUT", Fault::DropReply);
    let path = format!("{films}/_doc/1");
    assert!(proxy.server().try_call("PUT", &path, json!({})).await.is_err());
    assert_eq!(server.document(&films, "1").await.unwrap()["_version"], 1);
    assert_eq!(proxy.server().call("PUT", &path, json!({})).await.1["_version"], 2);
}

#[tokio::test]
async fn a_request_that_is_dropped_was_not_executed() {
    let (server, indexes, proxy) = before_elasticsearch().await;
    let films = indexes.name("films");
    server.call("PUT", &films, Value::Null).await;
    proxy.play(1, "_doc", Fault::DropRequest);
    assert!(proxy.server().try_call("PUT", &format!("{films}/_doc/1"), json!({})).await.is_err());
    assert!(server.document(&films, "1").await.is_none());
    assert_eq!(proxy.count_passed("_doc"), 0);
}

#[tokio::test]
async fn a_duplicate_is_executed_twice_and_answered_once() {
    let (server, indexes, proxy) = before_elasticsearch().await;
    let films = indexes.name("films");
    proxy.play(1, "_doc", Fault::Duplicate);
    let (status, answer) = proxy.server().call("PUT", &format!("{films}/_doc/1"), json!({})).await;
    assert_eq!((status, &answer["_version"]), (201, &json!(1)));
    assert_eq!(server.document(&films, "1").await.unwrap()["_version"], 2);
    assert_eq!(proxy.count_passed("_doc/1"), 2);
}

#[tokio::test]
async fn rules_act_in_their_order_and_as_often_as_told() {
    let (_, _, proxy) = before_elasticsearch().await;
    proxy.play(1, "GET", Fault::Pass);
    proxy.play(2, "GET", Fault::Answer(503, json!({"error": "busy"})));
    proxy.play(1, "GET /_cat", Fault::Answer(404, json!({})));
    let server = proxy.server();
    let mut statuses = Vec::new();
    for path in ["/", "/", "/_cat/health", "/_cat/health", "/_cat/health"] {
        statuses.push(server.call("GET", path, Value::Null).await.0);
    }
    assert_eq!(statuses, [200, 503, 503, 404, 200]);
    assert_eq!(proxy.passed(), ["GET /", "GET /_cat/health"]);
}

#[rstest]
#[case::elasticsearch(Elasticsearch, "es_rejected_execution_exception")]
#[case::opensearch(OpenSearch, "rejected_execution_exception")]
#[tokio::test]
async fn items_that_are_refused_were_not_indexed(#[case] distribution: Distribution, #[case] refusal: &str) {
    let server = SearchServer::of(distribution).await;
    let (indexes, proxy) = (server.indexes(), FaultProxy::before(&server).await);
    let films = indexes.name("films");
    server.call("PUT", &format!("{films}/_doc/5"), json!({})).await;
    let mut lines: Vec<Value> = Vec::new();
    for id in 1..=4 {
        lines.extend([json!({"index": {"_index": films, "_id": id.to_string()}}), json!({"n": id})]);
    }
    lines.push(json!({"delete": {"_index": films, "_id": "5"}}));
    lines.extend([json!({"update": {"_index": films, "_id": "1"}}), json!({"doc": {"n": 10}})]);
    proxy.play(1, "_bulk", Fault::RejectItems(0.5));
    let answer = send_compressed(proxy.url(), "_bulk?filter_path=errors", &lines).await;
    assert_eq!(answer["errors"], true);
    let items = answer["items"].as_array().unwrap();
    let status = |item: usize, action: &str| items[item][action]["status"].as_u64().unwrap();
    let seen = [0, 1, 2, 3].map(|item| status(item, "index"));
    assert_eq!((seen, status(4, "delete"), status(5, "update")), ([201, 429, 201, 429], 200, 429));
    assert_eq!(items[1]["index"]["error"]["type"], refusal);
    server.refresh(&films).await;
    assert_eq!(server.count(&films).await, 2);
    assert_eq!(server.document(&films, "1").await.unwrap()["_source"], json!({"n": 1}));
}

/// Writes until the server has taken it; what is older than what is there was written already.
async fn insist(server: &SearchServer, films: &str, id: u64, version: u64) {
    let about =
        json!({"_index": films, "_id": id.to_string(), "version": version, "version_type": "external"});
    let lines = [json!({"index": about}), json!({"n": version})];
    for _ in 0..100 {
        let answer = server.try_bulk("_bulk", &lines).await.map_or(Value::Null, |(_, answer)| answer);
        if [200, 201, 409].map(Value::from).contains(&answer["items"][0]["index"]["status"]) {
            return;
        }
    }
    panic!("a hundred tries were not enough");
}

#[tokio::test]
async fn whoever_tries_again_with_versions_gets_through_a_storm() {
    let (server, indexes, proxy) = before_elasticsearch().await;
    let films = indexes.name("films");
    let caller = proxy.server();
    proxy.storm(Storm::new(11).on("_bulk"));
    for version in 1..=10 {
        for id in 1..=5 {
            insist(&caller, &films, id, version).await;
        }
    }
    proxy.calm().await;
    for id in 1..=5 {
        let document = server.document(&films, &id.to_string()).await.unwrap();
        assert_eq!((&document["_version"], &document["_source"]["n"]), (&json!(10), &json!(10)));
    }
    assert!(proxy.count_passed("_bulk") > 50, "nothing was doubled");
}
