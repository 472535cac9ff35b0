//! What marts in a search server rely on is there on every server that tests use.

use std::io::Write;

use flate2::{Compression, write::GzEncoder};
use rstest::rstest;
use serde_json::{Value, json};
use tokio::task::JoinSet;
use vitrina_testbed::{Distribution, Distribution::*, SearchServer, eventually, http_client};

/// Lines of a bulk, as most clients send them.
pub(crate) fn compressed(lines: &[Value]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
    for line in lines {
        writeln!(encoder, "{line}").unwrap();
    }
    encoder.finish().unwrap()
}

pub(crate) async fn send_compressed(url: &str, path: &str, lines: &[Value]) -> Value {
    let request = http_client().post(format!("{url}/{path}")).body(compressed(lines));
    let request = request.header("content-type", "application/x-ndjson").header("content-encoding", "gzip");
    request.send().await.unwrap().json().await.unwrap()
}

fn statuses(answer: &Value) -> Vec<u64> {
    let items = answer["items"].as_array().unwrap().iter();
    items.map(|item| item.as_object().unwrap().values().next().unwrap()["status"].as_u64().unwrap()).collect()
}

#[rstest]
#[case::elasticsearch(Elasticsearch)]
#[case::opensearch(OpenSearch)]
#[tokio::test]
async fn a_server_is_of_its_distribution_and_shared(#[case] distribution: Distribution) {
    let (server, again) = (SearchServer::of(distribution).await, SearchServer::of(distribution).await);
    let version = &server.get("/").await["version"];
    assert_eq!(version["distribution"] == "opensearch", distribution.is_opensearch(), "{version}");
    assert_eq!(server.url(), again.url());
}

#[tokio::test]
async fn opensearch_3_answers_where_it_was_fetched() {
    if !OpenSearch3.is_there() {
        eprintln!("NOT TRIED: OpenSearch 3 was not started, because it or Java 21 is missing");
        eprintln!("hint: scripts/search install opensearch3");
        return;
    }
    let server = SearchServer::of(OpenSearch3).await;
    assert!(server.get("/").await["version"]["number"].as_str().unwrap().starts_with("3."));
    let indexes = server.indexes();
    let films = indexes.name("films");
    assert_eq!(server.call("PUT", &films, json!({"mappings": {"dynamic": "strict"}})).await.0, 200);
}

#[rstest]
#[case::elasticsearch(Elasticsearch)]
#[case::opensearch(OpenSearch)]
#[tokio::test]
async fn a_strict_mapping_refuses_fields_it_does_not_know(#[case] distribution: Distribution) {
    let server = SearchServer::of(distribution).await;
    let indexes = server.indexes();
    let films = indexes.name("films");
    let mapping = json!({"dynamic": "strict", "properties": {"title": {"type": "text"}}});
    assert_eq!(server.call("PUT", &films, json!({"mappings": mapping})).await.0, 200);
    let lines = [
        json!({"index": {"_id": "1"}}),
        json!({"title": "known"}),
        json!({"index": {"_id": "2"}}),
        json!({"titel": "unknown"}),
    ];
    let answer = server.bulk(&format!("{films}/_bulk"), &lines).await;
    assert_eq!((&answer["errors"], statuses(&answer)), (&json!(true), vec![201, 400]));
    assert_eq!(answer["items"][1]["index"]["error"]["type"], "strict_dynamic_mapping_exception");
    server.refresh(&films).await;
    assert_eq!(server.count(&films).await, 1);
}

#[rstest]
#[case::elasticsearch(Elasticsearch)]
#[case::opensearch(OpenSearch)]
#[tokio::test]
async fn the_russian_analyzer_finds_other_forms_of_a_word(#[case] distribution: Distribution) {
    let server = SearchServer::of(distribution).await;
    let indexes = server.indexes();
    let films = indexes.name("films");
    let mapping = json!({"properties": {"title": {"type": "text", "analyzer": "russian"}}});
    server.call("PUT", &films, json!({"mappings": mapping})).await;
    let lines = [json!({"index": {"_id": "1"}}), json!({"title": "Звёздные войны"})];
    server.bulk(&format!("{films}/_bulk?refresh=true"), &lines).await;
    let found = server.search(&films, json!({"query": {"match": {"title": "война"}}})).await;
    assert_eq!(found["hits"]["hits"][0]["_id"], "1", "{found}");
}

#[rstest]
#[case::elasticsearch(Elasticsearch)]
#[case::opensearch(OpenSearch)]
#[tokio::test]
async fn nested_objects_are_searched_one_by_one(#[case] distribution: Distribution) {
    let server = SearchServer::of(distribution).await;
    let indexes = server.indexes();
    let films = indexes.name("films");
    let person =
        json!({"type": "nested", "properties": {"name": {"type": "keyword"}, "role": {"type": "keyword"}}});
    server.call("PUT", &films, json!({"mappings": {"properties": {"persons": person}}})).await;
    let persons = json!([{"name": "Ann", "role": "actor"}, {"name": "Bob", "role": "writer"}]);
    let lines = [json!({"index": {"_id": "1"}}), json!({"persons": persons})];
    server.bulk(&format!("{films}/_bulk?refresh=true"), &lines).await;
    for (role, count) in [("actor", 1), ("writer", 0)] {
        let terms = json!([{"term": {"persons.name": "Ann"}}, {"term": {"persons.role": role}}]);
        let nested = json!({"nested": {"path": "persons", "query": {"bool": {"must": terms}}}});
        let found = server.search(&films, json!({"query": nested})).await;
        assert_eq!(found["hits"]["total"]["value"], count, "{role}: {found}");
    }
}

#[rstest]
#[case::elasticsearch(Elasticsearch)]
#[case::opensearch(OpenSearch)]
#[tokio::test]
async fn a_compressed_bulk_leaves_the_highest_external_version(#[case] distribution: Distribution) {
    let server = SearchServer::of(distribution).await;
    let indexes = server.indexes();
    let films = indexes.name("films");
    let write = async |version: u64, title: &str| {
        let about = json!({"_index": films, "_id": "1", "version": version, "version_type": "external"});
        let lines = [json!({"index": about}), json!({"title": title})];
        statuses(&send_compressed(server.url(), "_bulk", &lines).await)
    };
    assert_eq!(write(7, "new").await, [201]);
    assert_eq!(write(6, "old").await, [409]);
    assert_eq!(write(7, "again").await, [409]);
    let document = server.document(&films, "1").await.unwrap();
    assert_eq!((&document["_version"], &document["_source"]["title"]), (&json!(7), &json!("new")));
    let gone = json!({"delete": {"_index": films, "_id": "1", "version": 8, "version_type": "external"}});
    assert_eq!(statuses(&send_compressed(server.url(), "_bulk", &[gone]).await), [200]);
    assert_eq!(write(7, "late").await, [409]);
    assert!(server.document(&films, "1").await.is_none());
}

#[tokio::test]
async fn indexes_go_when_their_test_is_over_hidden_and_closed_ones_too() {
    for server in SearchServer::both().await {
        let (indexes, others) = (server.indexes(), server.indexes());
        for (name, settings) in
            [("plain", json!({})), ("hidden", json!({"index.hidden": true})), ("closed", json!({}))]
        {
            let body = json!({"settings": settings, "aliases": {indexes.name(&format!("{name}-alias")): {}}});
            assert_eq!(server.call("PUT", &indexes.name(name), body).await.0, 200);
        }
        server.call("POST", &format!("{}/_close", indexes.name("closed")), Value::Null).await;
        server.call("PUT", &others.name("films"), Value::Null).await;
        assert_eq!(indexes.list().await.len(), 3);
        let alias = format!("_alias/{}", indexes.name("plain-alias"));
        assert_eq!(server.call("GET", &alias, Value::Null).await.0, 200);
        let prefix = indexes.prefix().to_owned();
        drop(indexes);
        let left = server.get(&format!("_cat/indices/{prefix}*?expand_wildcards=all&format=json")).await;
        assert_eq!(left, json!([]));
        assert_eq!(server.call("GET", &alias, Value::Null).await.0, 404);
        assert_eq!(others.list().await, [others.name("films")]);
    }
}

#[tokio::test]
async fn indexes_stay_when_their_test_panics() {
    let server = SearchServer::opensearch().await;
    let indexes = server.indexes();
    let films = indexes.name("films");
    server.call("PUT", &films, Value::Null).await;
    let mut tests = JoinSet::new();
    tests.spawn(async move {
        let _indexes = indexes;
        panic!("as a failed assertion does");
    });
    assert!(tests.join_next().await.unwrap().is_err());
    assert_eq!(server.count(&films).await, 0);
    server.call("DELETE", &films, Value::Null).await;
}

#[tokio::test]
async fn a_count_sees_what_was_refreshed() {
    let server = SearchServer::elasticsearch().await;
    let indexes = server.indexes();
    let films = indexes.name("films");
    server.call("PUT", &format!("{films}/_doc/a%2Fb"), json!({})).await;
    assert!(server.document(&films, "a/b").await.is_some());
    server.refresh(&films).await;
    assert_eq!(eventually("a count", async || Some(server.count(&films).await)).await, 1);
}
