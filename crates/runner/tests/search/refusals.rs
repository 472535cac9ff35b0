//! What servers, networks and proxies answer, each judged by what it is.

use rstest::rstest;
use serde_json::{Value, json};
use vitrina_core::values::masked;
use vitrina_core::{Decision, Level, OnActive, RunStatus, Status, Verdict};
use vitrina_store::RunRequest;
use vitrina_testbed::{Distribution, Fault, FaultProxy, Gate, SearchServer};

use crate::shelf::Shelf;
use crate::stage::QUERY;

async fn shelf_behind_a_proxy(server: &SearchServer, films: i32) -> (Shelf, FaultProxy) {
    let proxy = FaultProxy::before(server).await;
    let shelf = Shelf::new(server, films).await.at(proxy.url());
    (shelf, proxy)
}

#[tokio::test]
async fn a_document_that_does_not_fit_is_a_reject_and_the_others_are_written() {
    for server in SearchServer::both().await {
        let shelf = Shelf::bare(&server, 10).await;
        shelf
            .describe(
                json!({"mapping": {"properties": {"id": {"type": "integer"}, "title": {"type": "integer"},
            "rating": {"type": "float"}, "modified": {"type": "date"}}}}),
            )
            .await;
        shelf.stage.db.execute("update content.film set title = id::text; update content.film set title = 'seven' where id = 7").await;
        let id = shelf.pipeline(json!({"reject_limit": 3})).await;
        let run = shelf.succeed(id).await;
        assert_eq!((run.rows_written, run.rows_rejected), (9, 1));
        assert_eq!(shelf.stage.rejects().await, [("row.mapping".to_owned(), "[\"7\"]".to_owned())]);
        let message: String = shelf.stage.db.value("select message from etl.etl_rejects").await;
        assert!(message.contains("[title]") && !masked(&message).contains("seven"), "{message}");
        assert_eq!(shelf.documents().await.len(), 9);
    }
}

#[tokio::test]
async fn too_many_rejects_stop_the_run_before_readers_see_anything_of_it() {
    let server = SearchServer::opensearch().await;
    let shelf = Shelf::new(&server, 10).await;
    let id = shelf.full(100).await;
    shelf.succeed(id).await;
    shelf.stage.db.execute("alter table content.film alter rating type float8; update content.film set rating = 'NaN' where id <= 3; update content.film set title = 'x'").await;
    let (code, message) = shelf.fail(id).await;
    assert_eq!(code, "rejects.limit");
    assert!(message.contains("3 rows"), "{message}");
    let documents = shelf.documents().await;
    assert_eq!((documents.len(), &documents["5"]["title"]), (10, &json!("Film 5")));
}

#[tokio::test]
async fn a_field_that_a_strict_mapping_does_not_know_is_a_reject_of_its_row() {
    let server = SearchServer::elasticsearch().await;
    let shelf = Shelf::bare(&server, 3).await;
    shelf.describe(json!({"mapping": {"properties": {"id": {"type": "integer"}, "facts": {"properties": {"a": {"type": "long"}}}}}})).await;
    let query = "select id, case id when 2 then '{\"b\": 1}'::jsonb else '{\"a\": 1}'::jsonb end as facts from content.film";
    let id = shelf.pipeline(json!({"source_query": query, "reject_limit": 1})).await;
    shelf.succeed(id).await;
    assert_eq!(shelf.stage.rejects().await, [("row.unmapped".to_owned(), "[\"2\"]".to_owned())]);
}

#[rstest]
#[case(429, json!({"error": {"type": "es_rejected_execution_exception", "reason": "queue is full"}, "status": 429}))]
#[case(503, json!({"error": {"type": "unavailable_shards_exception", "reason": "primary shard is not active"}, "status": 503}))]
#[case(502, json!("<html>bad gateway</html>"))]
#[tokio::test]
async fn a_server_that_is_busy_gets_the_same_again(#[case] status: u16, #[case] body: Value) {
    let server = SearchServer::elasticsearch().await;
    let (shelf, proxy) = shelf_behind_a_proxy(&server, 20).await;
    let id = shelf.full(10).await;
    proxy.play(3, "_bulk", Fault::Answer(status, body));
    shelf.succeed(id).await;
    shelf.assert_true().await;
}

#[tokio::test]
async fn a_lost_answer_is_asked_for_again_with_the_same_versions() {
    for server in SearchServer::both().await {
        let (shelf, proxy) = shelf_behind_a_proxy(&server, 20).await;
        let id = shelf.full(10).await;
        proxy.play(1, "_bulk", Fault::DropReply);
        proxy.play(1, "_bulk", Fault::Duplicate);
        shelf.succeed(id).await;
        shelf.assert_true().await;
        let query = json!({"size": 100, "seq_no_primary_term": true});
        let found = shelf.server().search(&shelf.index, query).await;
        let numbers =
            found["hits"]["hits"].as_array().unwrap().iter().map(|hit| hit["_seq_no"].as_i64().unwrap());
        assert_eq!(numbers.max(), Some(19), "each document was written once");
    }
}

/// One the servers themselves would refuse row by row.
#[tokio::test]
async fn a_bulk_that_is_refused_as_a_whole_is_halved_until_its_culprit_is_found() {
    for server in SearchServer::both().await {
        let (shelf, proxy) = shelf_behind_a_proxy(&server, 20).await;
        let id = shelf.pipeline(json!({"reject_limit": 1})).await;
        let whole =
            json!({"error": {"type": "illegal_argument_exception", "reason": "malformed"}, "status": 400});
        // The whole, its first half, the first half of that, and so on down to a single row.
        proxy.play(5, "_bulk", Fault::Answer(400, whole));
        let run = shelf.succeed(id).await;
        assert_eq!((run.rows_written, run.rows_rejected), (19, 1), "{:?}", shelf.stage.rejects().await);
        assert_eq!(shelf.documents().await.len(), 19);
    }
}

#[tokio::test]
async fn a_server_that_stays_busy_gives_the_pipeline_back_whatever_it_was_asked() {
    for server in SearchServer::both().await {
        let (shelf, proxy) = shelf_behind_a_proxy(&server, 5).await;
        let id = shelf.incremental(10).await;
        shelf.succeed(id).await;
        let full =
            json!({"error": {"type": "circuit_breaking_exception", "reason": "too much"}, "status": 429});
        proxy.play(5, "GET /vitrina-control", Fault::Answer(429, full));
        let (code, message) = shelf.given_back(id).await;
        assert_eq!(code, "sink.unavailable", "{message}");
        shelf.hurry().await;
        shelf.work_off("again").await;
        assert_eq!(shelf.stage.status(id).await, Status::Idle);
    }
}

/// Of a row that gets no id at all nothing tells whose document it is but its key.
#[tokio::test]
async fn a_row_that_is_refused_in_a_first_pass_keeps_the_document_it_had() {
    for server in SearchServer::both().await {
        let shelf = Shelf::new(&server, 5).await;
        shelf.stage.db.execute("alter table content.film add shape int[] not null default '{1,2}'").await;
        let query = "select id, title, shape, modified from content.film where title <> 'hidden'";
        let id = shelf
            .pipeline(json!({"source_query": query, "mode": "incremental", "incremental_key": "modified",
                "incremental_id_key": "id", "reject_limit": 1}))
            .await;
        shelf.succeed(id).await;
        shelf.stage.db.execute("update content.film set shape = '{{1,2},{3,4}}', title = 'New', modified = now() where id = 3").await;
        let anew = RunRequest { checkpoint: Some(Decision::Reset), ..RunRequest::default() };
        let run = shelf.stage.store.request_run(id, OnActive::Reject, &anew).await.unwrap().run.unwrap();
        shelf.work_off("tester").await;
        let run = shelf.stage.run_record(run).await;
        assert_eq!((run.status, run.rows_rejected), (RunStatus::Success, 1), "{:?}", run.error);
        let documents = shelf.documents().await;
        assert_eq!((documents.len(), &documents["3"]["title"]), (5, &json!("Film 3")));
    }
}

#[tokio::test]
async fn a_bulk_that_is_too_large_is_halved_until_it_fits() {
    let server = SearchServer::opensearch().await;
    let (shelf, proxy) = shelf_behind_a_proxy(&server, 64).await;
    let id = shelf.full(100).await;
    proxy.play(5, "_bulk", Fault::Answer(413, json!("too large")));
    shelf.succeed(id).await;
    shelf.assert_true().await;
    assert!(proxy.count_passed("_bulk") >= 3, "{:?}", proxy.passed());
}

#[tokio::test]
async fn a_document_that_is_too_large_for_the_server_is_a_reject() {
    let server = SearchServer::own(Distribution::Elasticsearch, &[("http.max_content_length", "1mb")]).await;
    let shelf = Shelf::new(&server, 10).await;
    shelf.stage.db.execute("update content.film set title = repeat('x', 2000000) where id = 4").await;
    let id = shelf.pipeline(json!({"reject_limit": 1})).await;
    let run = shelf.succeed(id).await;
    assert_eq!((run.rows_written, run.rows_rejected), (9, 1));
    assert_eq!(shelf.stage.rejects().await, [("row.too_large".to_owned(), "[\"4\"]".to_owned())]);
}

#[rstest]
#[case::for_writing("index.blocks.write")]
#[case::for_all_but_reading("index.blocks.read_only")]
#[tokio::test]
async fn a_blocked_index_stops_the_run_and_rejects_nothing(#[case] setting: &str) {
    for server in SearchServer::both().await {
        let shelf = Shelf::new(&server, 5).await;
        let id = shelf.incremental(10).await;
        shelf.succeed(id).await;
        let block = |on: Value| json!({setting: on});
        shelf.server().call("PUT", &format!("{}/_settings", shelf.index), block(json!(true))).await;
        shelf
            .stage
            .db
            .execute(
                "update content.film set title = 'New', modified = date_trunc('second', now()) where id = 1",
            )
            .await;
        let (code, message) = shelf.fail(id).await;
        assert_eq!(code, "sink.blocked");
        assert!(message.contains("index.blocks"), "{message}");
        assert_eq!(shelf.stage.rejects().await, []);
        shelf.server().call("PUT", &format!("{}/_settings", shelf.index), block(Value::Null)).await;
        shelf.succeed(id).await;
        shelf.assert_true().await;
    }
}

#[tokio::test]
async fn a_full_disk_gives_the_pipeline_back_until_there_is_room() {
    for server in SearchServer::both().await {
        let shelf = Shelf::new(&server, 5).await;
        let id = shelf.incremental(10).await;
        shelf.succeed(id).await;
        let block = |on: Value| json!({"index.blocks.read_only_allow_delete": on});
        shelf.server().call("PUT", &format!("{}/_settings", shelf.index), block(json!(true))).await;
        shelf
            .stage
            .db
            .execute(
                "update content.film set title = 'New', modified = date_trunc('second', now()) where id = 1",
            )
            .await;
        let run = shelf.run(id).await;
        assert_eq!((run.status, shelf.stage.status(id).await), (RunStatus::Running, Status::RunRequested));
        assert_eq!(shelf.stage.rejects().await, []);
        shelf.server().call("PUT", &format!("{}/_settings", shelf.index), block(Value::Null)).await;
        shelf.stage.db.execute("update etl.etl_pipelines set retry_at = null").await;
        shelf.work_off("tester").await;
        shelf.assert_true().await;
    }
}

#[tokio::test]
async fn what_is_wrong_with_the_index_is_no_reject_of_a_row() {
    for server in SearchServer::both().await {
        let shelf = Shelf::new(&server, 5).await;
        let id = shelf.incremental(10).await;
        shelf.succeed(id).await;
        shelf.stage.db.execute("update etl.etl_pipelines set reject_limit = 100").await;
        shelf
            .stage
            .db
            .execute(
                "update content.film set title = 'New', modified = date_trunc('second', now()) where id = 3",
            )
            .await;
        let index = shelf.behind().await.remove(0);
        let path = format!("{index}/_settings");
        shelf.server().call("PUT", &path, json!({"index": {"default_pipeline": "nowhere"}})).await;
        let (code, message) = shelf.fail(id).await;
        assert!(code == "sink.refused" && message.contains("pipeline"), "{code} {message}");
        assert_eq!(shelf.stage.rejects().await, []);
        shelf.server().call("PUT", &path, json!({"index": {"default_pipeline": null}})).await;
        shelf.succeed(id).await;
        shelf.assert_true().await;
    }
}

/// Checksums are made before it.
#[tokio::test]
async fn where_an_index_has_an_ingest_pipeline_checksums_prove_nothing() {
    for server in SearchServer::both().await {
        let shelf = Shelf::new(&server, 5).await;
        let id = shelf.incremental(10).await;
        shelf.succeed(id).await;
        let (index, name) = (shelf.behind().await.remove(0), format!("ingest-{}", shelf.stage.db.name()));
        let path = format!("{index}/_update/3?refresh=true");
        shelf.server().call("POST", &path, json!({"doc": {"title": "Another"}})).await;
        let compared = shelf.reconcile(id, Level::Hash).await;
        assert_eq!(compared.verdict(), Verdict::Equal, "as it was written");
        shelf.server().call("PUT", &format!("_ingest/pipeline/{name}"), json!({"processors": []})).await;
        shelf
            .server()
            .call("PUT", &format!("{index}/_settings"), json!({"index": {"final_pipeline": name}}))
            .await;
        let compared = shelf.reconcile(id, Level::Hash).await;
        assert_eq!((compared.verdict(), compared.counts()), (Verdict::Differs, (0, 0, 1)));
    }
}

/// Somebody has it lead to two indexes in the moment before a batch is sent, and to neither for writing.
#[tokio::test]
async fn a_write_alias_that_somebody_has_disabled_is_no_reject_of_a_row() {
    for server in SearchServer::both().await {
        let proxy = FaultProxy::before(&server).await;
        let shelf = Shelf::new(&server, 5).await.at(proxy.url());
        let id = shelf.incremental(10).await;
        shelf.succeed(id).await;
        shelf.stage.db.execute("update etl.etl_pipelines set reject_limit = 100").await;
        shelf
            .stage
            .db
            .execute(
                "update content.film set title = 'New', modified = date_trunc('second', now()) where id = 3",
            )
            .await;
        let gate = Gate::new();
        proxy.play(1, "_bulk", Fault::Hold(gate.clone()));
        let (mut runner, _stop) = shelf.stage.start(shelf.settings("runner"));
        shelf.stage.request(id).await;
        gate.arrived().await;
        let index = shelf.behind().await.remove(0);
        let aliases = shelf.server().get(&format!("{index}/_alias")).await;
        let alias = aliases[&index]["aliases"].as_object().unwrap().keys().find(|alias| alias.contains('~'));
        let other = shelf.indexes.name("other");
        shelf.server().call("PUT", &other, json!({})).await;
        let ambiguous =
            json!({"actions": [{"add": {"index": other, "alias": alias.unwrap(), "is_hidden": true}}]});
        assert_eq!(shelf.server().call("POST", "_aliases", ambiguous).await.0, 200);
        gate.open();
        shelf.stage.reaches(id, Status::Idle).await;
        assert_eq!(shelf.stage.rejects().await, []);
        shelf.assert_true().await;
        runner.abort_all();
    }
}

#[tokio::test]
async fn a_closed_index_stops_the_run() {
    for server in SearchServer::both().await {
        let shelf = Shelf::new(&server, 5).await;
        let id = shelf.incremental(10).await;
        shelf.succeed(id).await;
        let index = shelf.behind().await.remove(0);
        shelf.server().call("POST", &format!("{index}/_close"), Value::Null).await;
        shelf
            .stage
            .db
            .execute(
                "update content.film set title = 'New', modified = date_trunc('second', now()) where id = 1",
            )
            .await;
        let (code, _) = shelf.fail(id).await;
        assert_eq!(code, "sink.index_closed");
        assert_eq!(shelf.stage.rejects().await, []);
        shelf.server().call("POST", &format!("{index}/_open"), Value::Null).await;
        shelf.server().settled().await;
        shelf.succeed(id).await;
        shelf.assert_true().await;
    }
}

#[tokio::test]
async fn an_id_that_no_server_takes_is_a_reject_before_it_is_sent() {
    let server = SearchServer::elasticsearch().await;
    let shelf = Shelf::bare(&server, 5).await;
    shelf.describe(json!({"key": ["title"]})).await;
    shelf.stage.db.execute("update content.film set title = repeat('x', 600) where id = 2; update content.film set title = '' where id = 3").await;
    let id = shelf.pipeline(json!({"reject_limit": 5})).await;
    let run = shelf.succeed(id).await;
    assert_eq!((run.rows_written, run.rows_rejected), (3, 2));
    assert!(shelf.stage.rejects().await.iter().all(|(code, _)| code == "row.document_id"));
}

#[tokio::test]
async fn a_server_that_dies_in_the_middle_of_a_bulk_and_comes_back_loses_nothing() {
    for distribution in [Distribution::Elasticsearch, Distribution::OpenSearch] {
        let mut server = SearchServer::own(distribution, &[]).await;
        let (shelf, proxy) = shelf_behind_a_proxy(&server, 200).await;
        let id = shelf.full(20).await;
        let gate = vitrina_testbed::Gate::new();
        proxy.play(4, "_bulk", Fault::Pass);
        proxy.play(1, "_bulk", Fault::HoldReply(gate.clone()));
        let (mut runner, _stop) = shelf.stage.start(shelf.patient());
        shelf.stage.request(id).await;
        gate.arrived().await;
        server.kill();
        gate.open();
        server.start().await;
        shelf.stage.reaches(id, Status::Idle).await;
        shelf.assert_true().await;
        runner.abort_all();
    }
}

#[tokio::test]
async fn a_server_that_cannot_be_reached_gives_the_pipeline_back() {
    let server = SearchServer::elasticsearch().await;
    let shelf = Shelf::new(&server, 5).await;
    let nobody = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let shelf = shelf.at(&format!("http://{nobody}"));
    let id = shelf.full(10).await;
    let run = shelf.run(id).await;
    assert_eq!((run.status, shelf.stage.status(id).await), (RunStatus::Running, Status::RunRequested));
    let error: String =
        shelf.stage.db.value("select error from etl.etl_attempts order by id desc limit 1").await;
    assert!(error.contains("\"search\" is lost") && !error.contains("127.0.0.1"), "{error}");
}

/// What the rest of an index would have told is not missing: nothing is deleted for it, and no load counts as whole.
#[rstest]
#[case::a_count(1, "_count", json!({"count": 1}))]
#[case::a_search(4, "_search?scroll", json!({"_scroll_id": "1", "hits": {"hits": []}}))]
#[tokio::test]
async fn shards_that_do_not_answer_give_the_pipeline_back(
    #[case] times: usize,
    #[case] call: &str,
    #[case] part: Value,
) {
    let server = SearchServer::opensearch().await;
    let (shelf, proxy) = shelf_behind_a_proxy(&server, 10).await;
    // By a part of their key documents are searched for.
    shelf.describe(json!({"key": ["id", "title"]})).await;
    let id = shelf
        .pipeline(json!({"mode": "incremental", "incremental_key": "modified", "incremental_id_key": "id",
            "source_table": "content.film", "source_query": QUERY, "change_key": ["id"], "delete_limit": 1.0}))
        .await;
    shelf.succeed(id).await;
    shelf.stage.db.execute("update content.film set title = 'New', modified = now() where id = 3").await;
    let mut answer = part;
    answer["_shards"] = json!({"total": 2, "successful": 1, "failed": 0});
    proxy.play(times, call, Fault::Answer(200, answer));
    let run = shelf.run(id).await;
    assert_eq!((run.status, shelf.stage.status(id).await), (RunStatus::Running, Status::RunRequested));
    let error: String =
        shelf.stage.db.value("select error from etl.etl_attempts order by id desc limit 1").await;
    assert!(error.contains("1 of 2 shards"), "{error}");
    shelf.stage.db.execute("update etl.etl_pipelines set retry_at = null").await;
    shelf.work_off("tester").await;
    let documents = shelf.documents().await;
    assert_eq!((documents.len(), documents.contains_key("3:New")), (10, true));
}

#[tokio::test]
async fn a_node_behind_which_nobody_is_is_passed_over_in_the_middle_of_a_run() {
    let server = SearchServer::opensearch().await;
    let (shelf, proxy) = shelf_behind_a_proxy(&server, 40).await;
    let shelf = shelf.at(&format!("{},{}", proxy.url(), server.url()));
    let id = shelf.full(10).await;
    proxy.play(1, "_bulk", Fault::Pass);
    proxy.play(10, "_bulk", Fault::Answer(502, json!("<html>bad gateway</html>")));
    shelf.succeed(id).await;
    shelf.assert_true().await;
    let passed = proxy.count_passed("_bulk");
    assert_eq!(passed, 1, "the others went to the other node: {:?}", proxy.passed());
}

#[tokio::test]
async fn a_node_that_is_down_is_passed_over() {
    let server = SearchServer::opensearch().await;
    let shelf = Shelf::new(&server, 5).await;
    let nobody = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let url = format!("http://{nobody},{}", server.url());
    let shelf = shelf.at(&url);
    let id = shelf.full(10).await;
    shelf.succeed(id).await;
    shelf.assert_true().await;
}
