//! A server of its own may be killed, frozen and started again.

use std::time::Duration;

use serde_json::{Value, json};
use tokio::time::timeout;
use vitrina_testbed::{Distribution, FaultProxy, SearchServer};

#[tokio::test]
async fn a_server_that_was_killed_keeps_what_it_had_acknowledged() {
    let mut server = SearchServer::own_elasticsearch().await;
    let proxy = FaultProxy::before(&server).await;
    let url = server.url().to_owned();
    assert_eq!(server.call("PUT", "films/_doc/1", json!({"title": "kept"})).await.0, 201);
    server.kill();
    assert!(server.try_call("GET", "/", Value::Null).await.is_err());
    assert!(
        proxy.server().try_call("GET", "/", Value::Null).await.is_err(),
        "a proxy is no better than its server"
    );
    server.start().await;
    server.settled().await;
    assert_eq!(server.url(), url);
    assert_eq!(proxy.server().document("films", "1").await.unwrap()["_source"]["title"], "kept");
}

#[tokio::test]
async fn a_frozen_server_answers_when_it_has_thawed_and_settings_reach_it() {
    let server = SearchServer::own(Distribution::OpenSearch, &[("http.max_content_length", "1kb")]).await;
    server.freeze();
    let asked = server.call("GET", "/", Value::Null);
    tokio::pin!(asked);
    assert!(timeout(Duration::from_millis(200), &mut asked).await.is_err());
    server.thaw();
    assert_eq!(asked.await.0, 200);
    let too_long = json!({"title": "x".repeat(2000)});
    assert_eq!(server.call("PUT", "films/_doc/1", too_long).await.0, 413);
}
