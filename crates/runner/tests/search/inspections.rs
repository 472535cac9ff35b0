//! What speaks against writing to an index, told before a run.

use std::time::Duration;

use rstest::rstest;
use serde_json::{Value, json};
use vitrina_core::PipelineId;
use vitrina_store::{PipelineRef, Request, RequestRecord};
use vitrina_testbed::SearchServer;

use crate::shelf::Shelf;

/// What a runner answers about the target of a pipeline. A server that others keep busy is asked again, as its answer says.
async fn asked(shelf: &Shelf, kind: &'static str, id: PipelineId) -> Value {
    for _ in 0..5 {
        let found = asked_once(shelf, kind, id).await;
        let busy = ["request.too_long", "sink.busy", "sink.contended"];
        match found.error_code.as_deref() {
            Some(code) if busy.contains(&code) => {}
            _ => return found.answer.unwrap_or_else(|| panic!("{:?} {:?}", found.status, found.error)),
        }
    }
    panic!("the server stays busy");
}

async fn asked_once(shelf: &Shelf, kind: &'static str, id: PipelineId) -> RequestRecord {
    let store = &shelf.stage.store;
    let pipeline = store.pipeline(&PipelineRef::Id(id)).await.unwrap().config;
    let target = store.target(&shelf.target().parse().unwrap()).await.unwrap();
    let request = Request {
        kind,
        pipeline: None,
        payload: json!({"pipeline": pipeline, "target": target}),
        connections: vec!["content".to_owned(), "search".to_owned()],
        python_tasks: Vec::new(),
        expires_in: Duration::from_secs(60),
        requested_by: "tester".to_owned(),
    };
    let (_runner, _stop) = shelf.stage.start(shelf.settings("looker"));
    let mut wakeups = store.wakeups().await.unwrap();
    let asked = store.ask(&request).await.unwrap();
    loop {
        match store.request_of(asked).await.unwrap().unwrap() {
            found if found.is_open() => drop(wakeups.next().await),
            found => return found,
        }
    }
}

/// Severity and code of what a runner finds about the target.
async fn inspected(shelf: &Shelf, id: PipelineId) -> Vec<(String, String)> {
    let answer = asked(shelf, "inspect", id).await;
    let text = |check: &Value, field: &str| check[field].as_str().unwrap().to_owned();
    let checks =
        answer["checks"].as_array().unwrap().iter().filter(|check| check["field"] == "/target_table");
    checks.map(|check| (text(check, "severity"), text(check, "code"))).collect()
}

#[rstest]
#[case::an_index_to_be(json!({}), "ok", "target.takes")]
#[case::the_key_of_its_query(json!({"key": []}), "ok", "target.takes")]
#[case::a_key_that_is_not_read(json!({"key": ["film_id"]}), "error", "sink.key_missing")]
#[case::a_field_too_few(json!({"mapping": {"properties": {"id": {"type": "long"}}}}), "error", "sink.unmapped")]
#[tokio::test]
async fn a_target_is_looked_at_before_the_first_run(
    #[case] definition: Value,
    #[case] severity: &str,
    #[case] code: &str,
) {
    let server = SearchServer::elasticsearch().await;
    let shelf = Shelf::bare(&server, 3).await;
    shelf.describe(definition).await;
    let id = shelf.full(10).await;
    assert_eq!(inspected(&shelf, id).await, [(severity.to_owned(), code.to_owned())]);
    assert_eq!(shelf.indexes.list().await, Vec::<String>::new(), "looking changes nothing");
}

#[tokio::test]
async fn a_name_that_is_taken_is_told_before_the_first_run() {
    for server in SearchServer::both().await {
        let shelf = Shelf::new(&server, 3).await;
        shelf.server().call("PUT", &shelf.index, Value::Null).await;
        let id = shelf.full(10).await;
        assert_eq!(inspected(&shelf, id).await, [("error".to_owned(), "sink.name_taken".to_owned())]);
        shelf.describe(json!({"document": {"take_over": true}})).await;
        assert_eq!(inspected(&shelf, id).await, [("ok".to_owned(), "target.takes".to_owned())]);
    }
}

#[tokio::test]
async fn how_an_index_stands_is_told_with_the_one_before_and_its_mapping_beside_the_declared_one() {
    for server in SearchServer::both().await {
        let shelf = Shelf::new(&server, 3).await;
        let id = shelf.full(10).await;
        let none = asked(&shelf, "standing", id).await;
        assert_eq!(
            (&none["exists"], &none["index"], &none["problem"]),
            (&json!(false), &Value::Null, &Value::Null)
        );
        shelf.succeed(id).await;
        let first = shelf.behind().await.remove(0);
        shelf.succeed(id).await;
        let standing = asked(&shelf, "standing", id).await;
        assert_eq!(
            (&standing["index"], &standing["previous"]),
            (&json!(shelf.behind().await[0]), &json!(first))
        );
        assert_eq!(standing["rows"], 3);
        let parted = |standing: &Value| {
            let fields = standing["fields"].as_array().unwrap().iter();
            fields.filter(|field| field["differs"] == true).cloned().collect::<Vec<_>>()
        };
        assert_eq!(parted(&standing), Vec::<Value>::new());
        let mapping = json!({"properties": {"id": {"type": "long"}, "title": {"type": "keyword"}, "rating": {"type": "double"}, "modified": {"type": "date"}}});
        shelf.describe(json!({"mapping": mapping})).await;
        let parted = parted(&asked(&shelf, "standing", id).await);
        let title = parted.iter().find(|field| field["name"] == "title").unwrap();
        assert_eq!(title["declared"], r#"{"type":"keyword"}"#);
        assert!(title["live"].as_str().unwrap().contains("text"), "{title}");
    }
}

#[tokio::test]
async fn a_mapping_that_somebody_else_has_changed_differs_and_one_that_says_the_same_otherwise_does_not() {
    for server in SearchServer::both().await {
        let shelf = Shelf::bare(&server, 3).await;
        let mapping = json!({"dynamic": "strict", "properties": {
            "id": {"type": "long", "index": true}, "title": {"type": "keyword", "ignore_above": "256"},
            "rating": {"type": "double"},
            "modified": {"type": "date", "format": "strict_date_optional_time||epoch_millis"},
            "cast": {"type": "nested", "properties": {"name": {"type": "keyword"}}}}});
        shelf.describe(json!({"mapping": mapping})).await;
        let id = shelf.full(10).await;
        shelf.succeed(id).await;
        let parted = async || {
            let standing = asked(&shelf, "standing", id).await;
            let fields =
                standing["fields"].as_array().unwrap().iter().filter(|field| field["differs"] == true);
            fields.map(|field| field["name"].as_str().unwrap().to_owned()).collect::<Vec<_>>()
        };
        assert_eq!(parted().await, Vec::<String>::new());
        let theirs = json!({"dynamic": true, "properties": {"cast": {"type": "nested", "properties": {"age": {"type": "long"}}},
                                                            "note": {"type": "text"}}});
        assert_eq!(server.call("PUT", &format!("{}/_mapping", shelf.index), theirs).await.0, 200);
        assert_eq!(parted().await, ["*", "cast.age", "note"]);
    }
}
