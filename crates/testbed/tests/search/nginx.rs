//! nginx before a search server, as it answers those whom it lets in and those whom it does not.

use reqwest::{Certificate, Client};
use vitrina_testbed::{Nginx, SearchServer, http_client};

async fn status(client: &Client, url: &str, key: Option<&str>) -> u16 {
    let request = client.get(url);
    let request = key.into_iter().fold(request, |request, key| request.header("authorization", key));
    request.send().await.unwrap().status().as_u16()
}

#[tokio::test]
async fn a_front_speaks_https_below_its_prefix_to_those_who_know_the_password() {
    let server = SearchServer::elasticsearch().await;
    let nginx = Nginx::before(&server).tls().basic("anna", "p@ss").prefix("search").start().await;
    http_client().get(nginx.url()).send().await.expect_err("nobody knows its authority");
    let ca = Certificate::from_pem(&std::fs::read(nginx.ca()).unwrap()).unwrap();
    let client = Client::builder().no_proxy().tls_certs_only([ca]).build().unwrap();
    let inside = format!("{}/_cluster/health", nginx.url());
    assert_eq!(status(&client, &inside, None).await, 401);
    let inside = format!("{}/_cluster/health", nginx.url_as("anna", "p@ss"));
    assert_eq!(status(&client, &inside, None).await, 200);
    let outside = inside.replace("/search/", "/");
    assert_eq!(status(&client, &outside, None).await, 404);
    assert_eq!((nginx.answered(401), nginx.answered(200)), (1, 1));
}

#[tokio::test]
async fn a_front_takes_its_key_and_bodies_that_are_small_enough() {
    let server = SearchServer::opensearch().await;
    let nginx = Nginx::before(&server).api_key("c2VjcmV0").largest_body(1000).start().await;
    let client = http_client();
    assert_eq!(status(&client, nginx.url(), Some("ApiKey wrong")).await, 401);
    assert_eq!(status(&client, nginx.url(), Some("ApiKey c2VjcmV0")).await, 200);
    let large = client.post(format!("{}/_bulk", nginx.url())).header("authorization", "ApiKey c2VjcmV0");
    assert_eq!(large.body("x".repeat(1001)).send().await.unwrap().status(), 413);
}

#[tokio::test]
async fn a_front_without_a_server_behind_it_answers_502() {
    let mut server = SearchServer::own_opensearch().await;
    let nginx = Nginx::before(&server).start().await;
    assert_eq!(status(&http_client(), nginx.url(), None).await, 200);
    server.kill();
    assert_eq!(status(&http_client(), nginx.url(), None).await, 502);
}
