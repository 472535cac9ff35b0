//! A search connection under test: what answers there, and what its login may not do.

use serde_json::{Value, json};
use vitrina_testbed::{Fault, FaultProxy, Nginx, SearchServer};

use crate::shelf::Shelf;

impl Shelf {
    async fn tested(&self) -> vitrina_core::Result<vitrina_connectors::Tested> {
        self.settings("tester").connections.get("search").unwrap().test(&["films*".to_owned()], false).await
    }

    /// What a test has left behind.
    async fn trials(&self) -> Vec<String> {
        let found = self.server().get("vitrina-trial-*/_alias?expand_wildcards=all").await;
        found.as_object().unwrap().keys().cloned().collect()
    }
}

fn forbidden() -> Fault {
    let error = json!({"type": "security_exception", "reason": "action is unauthorized for user [anna]"});
    Fault::Answer(403, json!({"error": error, "status": 403}))
}

#[tokio::test]
async fn a_server_is_told_with_its_version_and_its_rights_are_tried_without_a_trace() {
    for server in SearchServer::both().await {
        let shelf = Shelf::bare(&server, 1).await;
        let tested = shelf.tested().await.unwrap();
        let number = server.get("/").await["version"]["number"].as_str().unwrap().to_owned();
        let name = if server.distribution().is_opensearch() { "OpenSearch" } else { "Elasticsearch" };
        assert_eq!(tested.server, format!("{name} {number}"));
        assert_eq!(tested.missing_grants, Vec::<String>::new());
        let tried = tested.tried.unwrap();
        assert!(tried.ends_with("create_index, manage, index, read, delete, delete_index"), "{tried}");
        let index = tried.split_whitespace().find(|word| word.starts_with("vitrina-trial-")).unwrap();
        assert!(!shelf.trials().await.iter().any(|left| index.starts_with(left)), "{tried}");
    }
}

#[tokio::test]
async fn what_is_refused_while_rights_are_tried_is_told_and_the_rest_goes_on() {
    let server = SearchServer::opensearch().await;
    let proxy = FaultProxy::before(&server).await;
    let shelf = Shelf::bare(&server, 1).await.at(proxy.url());
    proxy.play(1, "POST /_aliases", forbidden());
    proxy.play(1, "_mget", forbidden());
    let tested = shelf.tested().await.unwrap();
    assert_eq!(tested.missing_grants, ["manage on vitrina-*", "read on vitrina-*"]);
    proxy.play(1, "PUT /vitrina-trial", forbidden());
    let tested = shelf.tested().await.unwrap();
    assert_eq!(tested.missing_grants, ["create_index on vitrina-*"]);
    assert!(tested.tried.unwrap().ends_with(": create_index"), "nothing more can be tried");
}

#[tokio::test]
async fn a_server_that_tells_rights_is_asked_and_nothing_is_tried() {
    let server = SearchServer::elasticsearch().await;
    let proxy = FaultProxy::before(&server).await;
    let shelf = Shelf::bare(&server, 1).await.at(proxy.url());
    let all = |right: bool| json!({"create_index": right, "index": true, "delete": true, "read": true, "manage": right, "delete_index": true});
    let told = json!({"username": "anna", "has_all_requested": false, "cluster": {}, "application": {},
        "index": {"films*": all(true), "vitrina-*": all(false)}});
    proxy.play(1, "POST /_security/user/_has_privileges", Fault::Answer(200, told));
    let tested = shelf.tested().await.unwrap();
    assert_eq!(tested.missing_grants, ["create_index, manage on vitrina-*"]);
    assert_eq!((tested.tried, proxy.passed()), (None, vec!["GET /".to_owned()]));
}

#[tokio::test]
async fn a_server_that_is_away_or_refuses_is_found_by_runners_and_by_tests() {
    let server = SearchServer::elasticsearch().await;
    let nginx = Nginx::before(&server).basic("anna", "p@ss").start().await;
    let nobody = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let cases = [
        (format!("http://{nobody}"), Some("sink.connection_lost")),
        (nginx.url_as("anna", "wrong"), Some("sink.login_refused")),
        (nginx.url_as("anna", "p@ss"), None),
    ];
    for (url, expected) in cases {
        let shelf = Shelf::bare(&server, 1).await.at(&url);
        let probed = shelf.settings("tester").connections.probe().await;
        assert_eq!(probed["search"].as_ref().map(|error| error.code), expected);
        assert_eq!(shelf.tested().await.err().map(|error| error.code), expected);
    }
}

#[tokio::test]
async fn a_runner_answers_what_it_finds_at_a_search_connection() {
    let server = SearchServer::opensearch().await;
    let shelf = Shelf::bare(&server, 1).await;
    let (_runner, _stop) = shelf.stage.start(shelf.settings("r1"));
    let request = vitrina_store::Request {
        kind: "test_connection",
        pipeline: None,
        payload: json!({"connection": "search"}),
        connections: vec!["search".to_owned()],
        python_tasks: Vec::new(),
        expires_in: std::time::Duration::from_secs(60),
        requested_by: "tester".to_owned(),
    };
    let mut wakeups = shelf.stage.store.wakeups().await.unwrap();
    let id = shelf.stage.store.ask(&request).await.unwrap();
    let answer: Value = loop {
        let found = shelf.stage.store.request_of(id).await.unwrap().unwrap();
        match found.answer {
            Some(answer) => break answer,
            None => drop(wakeups.next().await),
        }
    };
    assert_eq!((&answer["ok"], &answer["problem"]), (&json!(true), &Value::Null));
    assert!(answer["server"].as_str().unwrap().starts_with("OpenSearch 2."), "{answer}");
    let health: String = shelf.stage.db.value("select health::text from etl.etl_runners").await;
    assert!(health.contains("\"search\": null"), "{health}");
}
