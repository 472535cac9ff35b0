//! Documents that no row makes, or that lie where no row's document is looked for: told of, and deleted by a repair.

use serde_json::{Value, json};
use vitrina_core::{DifferenceKind, Level, PipelineId, RunStatus, Verdict};
use vitrina_store::{PipelineRef, RunRecord};
use vitrina_testbed::SearchServer;

use crate::compared::Compared;
use crate::shelf::Shelf;

pub(crate) const LEVELS: [Level; 3] = [Level::Count, Level::Hash, Level::Rows];

impl Shelf {
    /// An index of several shards with these many films in it.
    pub(crate) async fn sharded(server: &SearchServer, films: i32) -> (Self, PipelineId) {
        let shelf = Self::bare(server, films).await;
        shelf.describe(json!({"settings": {"number_of_shards": 3}})).await;
        let id = shelf.pipeline(json!({"delete_limit": 1.0})).await;
        shelf.succeed(id).await;
        (shelf, id)
    }

    /// Stores a document on another shard than its id says. Nothing else is under the id.
    async fn misplace(&self, id: &str, document: &Value) {
        for routing in ["a", "b", "c", "d", "e", "f", "g", "h"] {
            let at = format!("{}/_doc/{id}?refresh=true&routing={routing}", self.index);
            assert_eq!(self.server().call("PUT", &at, document.clone()).await.0, 201);
            if self.server().document(&self.index, id).await.is_none() {
                return;
            }
            self.server().call("DELETE", &at, Value::Null).await;
        }
        panic!("every routing leads to one shard");
    }

    async fn add_documents(&self, ids: &[&str]) {
        let lines = |id: &&str| [json!({"index": {"_id": id}}), json!({"title": "Nobody's"})];
        let lines: Vec<Value> = ids.iter().flat_map(lines).collect();
        let answer = self.server().bulk(&format!("{}/_bulk?refresh=true", self.index), &lines).await;
        assert_eq!(answer["errors"], false, "{answer}");
    }

    pub(crate) async fn repair(&self, id: PipelineId, compared: &Compared) -> (RunRecord, Compared) {
        let keys: Vec<Value> = compared.differences.iter().map(|found| found.key.clone()).collect();
        let run = self.stage.request_keys(id, json!(keys)).await;
        let proof = self.stage.store.request_proof(&compared.record, run, None).await.unwrap();
        self.work_off("tester").await;
        (self.stage.run_record(run).await, self.stage.compared(proof).await)
    }

    /// Repairs what differs; all levels find nothing then.
    pub(crate) async fn repair_all(&self, id: PipelineId, compared: &Compared) {
        let (run, proof) = self.repair(id, compared).await;
        assert_eq!(run.status, RunStatus::Success, "{:?} {:?}", run.error_code, run.error);
        assert_eq!(proof.verdict(), Verdict::Equal, "{:?}", proof.differences);
        for level in LEVELS {
            let compared = self.reconcile(id, level).await;
            assert_eq!(compared.verdict(), Verdict::Equal, "{level} {:?}", compared.figures());
        }
    }

    async fn shown_verdict(&self, id: PipelineId) -> (Level, Verdict) {
        let record = self.stage.store.pipeline(&PipelineRef::Id(id)).await.unwrap();
        let last = record.last_verdict.unwrap();
        (last.level, last.verdict)
    }
}

#[tokio::test]
async fn a_document_of_no_row_under_another_routing_differs_and_a_repair_deletes_it() {
    for server in SearchServer::both().await {
        let (shelf, id) = Shelf::sharded(&server, 30).await;
        shelf.misplace("8888", &json!({"id": 8888, "title": "Nobody's"})).await;
        for level in LEVELS {
            let compared = shelf.reconcile(id, level).await;
            assert_eq!(compared.verdict(), Verdict::Differs, "{level} {:?}", compared.figures());
            assert_eq!((compared.figures().source.rows, compared.figures().target.rows), (30, 31));
        }
        let compared = shelf.reconcile(id, Level::Rows).await;
        assert_eq!(
            (compared.counts(), compared.keys(DifferenceKind::Extra)),
            ((0, 1, 0), vec!["8888".to_owned()])
        );
        shelf.repair_all(id, &compared).await;
        shelf.assert_true().await;
    }
}

#[tokio::test]
async fn a_rows_only_document_under_another_routing_differs_and_a_repair_puts_it_in_its_place() {
    for server in SearchServer::both().await {
        let (shelf, id) = Shelf::sharded(&server, 30).await;
        for row in ["9", "12"] {
            let document = shelf.server().document(&shelf.index, row).await.unwrap()["_source"].clone();
            if row == "9" {
                let path = format!("{}/_doc/9?refresh=true", shelf.index);
                shelf.server().call("DELETE", &path, Value::Null).await;
                shelf.misplace(row, &document).await;
            } else {
                // A second one beside the row's own.
                let mut status = 409;
                for routing in ["a", "b", "c", "d", "e", "f", "g", "h"] {
                    if status == 409 {
                        let path = format!("{}/_create/12?refresh=true&routing={routing}", shelf.index);
                        status = shelf.server().call("PUT", &path, document.clone()).await.0;
                    }
                }
                assert_eq!(status, 201);
            }
        }
        let compared = shelf.reconcile(id, Level::Hash).await;
        assert_eq!((compared.verdict(), compared.counts()), (Verdict::Differs, (0, 0, 2)));
        let compared = shelf.reconcile(id, Level::Rows).await;
        assert_eq!((compared.verdict(), compared.counts()), (Verdict::Differs, (0, 0, 2)));
        let told = |key: &str| {
            let found = compared.differences.iter().find(|found| found.key == json!([key])).unwrap();
            found.columns["_source"].target.clone().unwrap()
        };
        assert!(told("9").starts_with("lies under the routing"), "{}", told("9"));
        assert!(told("12").starts_with("2 documents have this id"), "{}", told("12"));
        shelf.repair_all(id, &compared).await;
        shelf.assert_true().await;
    }
}

#[tokio::test]
async fn where_others_write_too_only_own_fields_of_a_misplaced_document_go() {
    let server = SearchServer::opensearch().await;
    let shelf = Shelf::bare(&server, 10).await;
    let properties =
        json!({"id": {"type": "integer"}, "title": {"type": "text"}, "likes": {"type": "integer"}});
    shelf
        .describe(json!({"document": {"partial": true}, "settings": {"number_of_shards": 3},
                         "mapping": {"properties": properties}}))
        .await;
    let query = "select id, title from content.film";
    let id = shelf.pipeline(json!({"source_query": query, "delete_limit": 1.0})).await;
    shelf.succeed(id).await;
    shelf.misplace("77", &json!({"id": 77, "title": "Nobody's", "likes": 3})).await;
    let compared = shelf.reconcile(id, Level::Rows).await;
    assert_eq!((compared.counts(), compared.keys(DifferenceKind::Extra)), ((0, 1, 0), vec!["77".to_owned()]));
    let (run, proof) = shelf.repair(id, &compared).await;
    assert_eq!((run.error, proof.verdict()), (None, Verdict::Equal));
    let left = &shelf.documents().await["77"];
    assert_eq!((&left["title"], &left["likes"]), (&Value::Null, &json!(3)), "what is another's stays");
}

/// A key of each type, and ids that no value of it makes or that it would be written otherwise.
#[tokio::test]
async fn documents_whose_ids_are_no_values_of_the_keys_type_are_extra_and_a_repair_deletes_exactly_them() {
    const TYPES: &[(&str, &[&str])] = &[
        ("id", &["x5", "5.0", "99999999999", "null", "05", " 5", "+5", "{5}"]),
        ("id::bigint", &["x5", "99999999999999999999", "05"]),
        (
            "(lpad(id::text, 8, '0') || '-0000-0000-0000-000000000000')::uuid",
            &[
                "x5",
                "0000000a-0000-0000-0000-00000000000",
                "{00000005-0000-0000-0000-000000000000}",
                "00000005000000000000000000000000",
            ],
        ),
        ("date '2020-01-01' + id", &["x5", "2020-02-31", "2020-1-6", "infinity "]),
        (
            "timestamptz '2020-01-01 00:00+00' + id * interval '1 hour'",
            &["x5", "2020-01-01 05:00+00", "null"],
        ),
        ("(id + 0.5)::numeric", &["x5", "5.50", "05.5", "1e400000"]),
        ("id::text", &["05", "null"]),
        ("(array['a', 'b', 'c', 'd', 'e', 'f'])[id]::content.letter", &["x5", "A", "null"]),
        ("id > 1", &["x5", "yes", "null"]),
        ("array[id]", &["x5", "{05}", "5"]),
        ("make_interval(hours => id)", &["x5", "5 hours"]),
    ];
    let server = SearchServer::opensearch().await;
    for (expression, strange) in TYPES {
        // There are two values of a boolean.
        let films = if *expression == "id > 1" { 2 } else { 6 };
        let shelf = Shelf::bare(&server, films).await;
        shelf.describe(json!({"key": ["k"]})).await;
        let types = "create type content.letter as enum ('a', 'b', 'c', 'd', 'e', 'f')";
        shelf.stage.db.execute(types).await;
        let query = format!("select {expression} as k, title from content.film");
        let id = shelf.pipeline(json!({"source_query": query, "delete_limit": 1.0})).await;
        shelf.succeed(id).await;
        let before = shelf.documents().await;
        shelf.add_documents(strange).await;
        let hash = shelf.reconcile(id, Level::Hash).await;
        let found = strange.len() as u64;
        assert_eq!((hash.verdict(), hash.counts()), (Verdict::Differs, (0, found, 0)), "{expression}");
        let compared = shelf.reconcile(id, Level::Rows).await;
        let mut told = compared.keys(DifferenceKind::Extra);
        told.sort_unstable();
        let mut expected: Vec<String> = strange.iter().map(|id| (*id).to_owned()).collect();
        expected.sort_unstable();
        assert_eq!((compared.counts(), told), ((0, found, 0), expected), "{expression}");
        shelf.repair_all(id, &compared).await;
        assert_eq!(shelf.documents().await, before, "{expression}");
    }
}

#[tokio::test]
async fn ids_that_no_key_of_several_columns_makes_are_extra_and_a_repair_deletes_them() {
    for server in SearchServer::both().await {
        let shelf = Shelf::bare(&server, 10).await;
        shelf.describe(json!({"key": ["id", "lang"]})).await;
        let query = "select id, 'en' as lang, title from content.film";
        let id = shelf.pipeline(json!({"source_query": query, "delete_limit": 1.0})).await;
        shelf.succeed(id).await;
        let before = shelf.documents().await;
        shelf.add_documents(&["5", "x5:en", "05:en", "5:en:x", "\\5:en", "5:de"]).await;
        let compared = shelf.reconcile(id, Level::Rows).await;
        assert_eq!(compared.counts(), (0, 6, 0));
        let keys: Vec<&Value> = compared.differences.iter().map(|found| &found.key).collect();
        for key in [json!(["5"]), json!(["x5", "en"]), json!(["5:en:x"]), json!(["\\5:en"])] {
            assert!(keys.contains(&&key), "{key} of {keys:?}");
        }
        shelf.repair_all(id, &compared).await;
        assert_eq!(shelf.documents().await, before);
    }
}

#[tokio::test]
async fn documents_whose_checksums_are_in_no_bucket_are_extra_by_their_checksums_too() {
    for server in SearchServer::both().await {
        let shelf = Shelf::new(&server, 10).await;
        let id = shelf.full(10).await;
        shelf.succeed(id).await;
        for (document, bucket) in [(9001, 5000), (9002, -5)] {
            let checksum = json!({"bucket": bucket, "low": 1, "high": 1});
            let path = format!("{}/_doc/{document}?refresh=true", shelf.index);
            let body = json!({"id": document, "_vitrina": checksum});
            assert_eq!(shelf.server().call("PUT", &path, body).await.0, 201);
        }
        for level in [Level::Hash, Level::Rows] {
            let compared = shelf.reconcile(id, level).await;
            assert_eq!((compared.verdict(), compared.counts()), (Verdict::Differs, (0, 2, 0)), "{level}");
            assert_eq!((compared.figures().source.rows, compared.figures().target.rows), (10, 12), "{level}");
        }
    }
}

/// The meta-store has no text with a NUL in it.
#[tokio::test]
async fn a_document_whose_id_cannot_be_kept_differs_and_no_proof_speaks_for_it() {
    let server = SearchServer::opensearch().await;
    for query in ["select id, title from content.film", "select id::text, title from content.film"] {
        let shelf = Shelf::new(&server, 10).await;
        let id = shelf.pipeline(json!({"source_query": query, "delete_limit": 1.0})).await;
        shelf.succeed(id).await;
        shelf.add_documents(&["a\0b", "05"]).await;
        for level in [Level::Hash, Level::Rows] {
            let compared = shelf.reconcile(id, level).await;
            assert_eq!((compared.verdict(), compared.counts()), (Verdict::Differs, (0, 2, 0)), "{level}");
        }
        let compared = shelf.reconcile(id, Level::Rows).await;
        assert_eq!(
            (compared.keys(DifferenceKind::Extra), compared.figures().capped),
            (vec!["05".to_owned()], true)
        );
        let (_, proof) = shelf.repair(id, &compared).await;
        assert_eq!((proof.verdict(), proof.record.whole), (Verdict::Equal, false));
        assert_eq!(shelf.reconcile(id, Level::Rows).await.counts(), (0, 1, 0));
    }
}

#[tokio::test]
async fn strange_documents_beyond_the_delete_limit_stay() {
    let server = SearchServer::opensearch().await;
    let shelf = Shelf::new(&server, 20).await;
    let id = shelf.pipeline(json!({"delete_limit": 0.1})).await;
    shelf.succeed(id).await;
    shelf.add_documents(&["x1", "x2", "x3"]).await;
    let compared = shelf.reconcile(id, Level::Rows).await;
    assert_eq!(compared.counts(), (0, 3, 0));
    let (run, proof) = shelf.repair(id, &compared).await;
    assert_eq!(run.error_code.as_deref(), Some("sink.delete_limit"), "{:?}", run.error);
    assert_eq!((proof.verdict(), proof.counts()), (Verdict::Differs, (0, 3, 0)));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_document_whose_id_is_no_value_of_the_keys_type_is_looked_for_like_any_other() {
    let server = SearchServer::opensearch().await;
    let shelf = Shelf::new(&server, 10).await;
    let id = shelf.full(10).await;
    shelf.succeed(id).await;
    shelf.add_documents(&["x5"]).await;
    let (_runner, _stop) = shelf.stage.start(shelf.settings("r1"));
    let extra = shelf.row(id, "x5").await;
    assert_eq!((&extra["in_source"], &extra["in_target"]), (&json!(false), &json!(true)), "{extra}");
    assert_eq!(shelf.row(id, "x6").await, "row.key");
}

#[tokio::test]
async fn a_filter_on_the_name_of_an_index_hides_nothing_from_a_comparison() {
    for server in SearchServer::both().await {
        let shelf = Shelf::new(&server, 30).await;
        let id = shelf.full(100).await;
        shelf.succeed(id).await;
        let physical = shelf.behind().await.remove(0);
        let filter = json!({"range": {"id": {"lte": 10}}});
        let add = json!({"add": {"index": physical, "alias": shelf.index, "filter": filter}});
        assert_eq!(shelf.server().call("POST", "_aliases", json!({"actions": [add]})).await.0, 200);
        for level in LEVELS {
            let compared = shelf.reconcile(id, level).await;
            assert_eq!(compared.verdict(), Verdict::Equal, "{level}");
            let figures = compared.figures();
            assert_eq!((figures.source.rows, figures.target.rows, figures.rows_read), (30, 30, 0), "{level}");
        }
        let path = format!("{physical}/_doc/20?refresh=true");
        shelf.server().call("DELETE", &path, Value::Null).await;
        assert_eq!(shelf.reconcile(id, Level::Rows).await.keys(DifferenceKind::Missing), ["20"]);
    }
}

#[tokio::test]
async fn checksums_that_agree_do_not_hide_documents_that_a_closer_look_has_found_to_differ() {
    let server = SearchServer::opensearch().await;
    let shelf = Shelf::new(&server, 30).await;
    let id = shelf.full(100).await;
    shelf.succeed(id).await;
    let path = format!("{}/_update/5?refresh=true", shelf.index);
    shelf.server().call("POST", &path, json!({"doc": {"title": "Changed by hand"}})).await;
    assert_eq!(shelf.reconcile(id, Level::Rows).await.counts(), (0, 0, 1));
    assert_eq!(shelf.reconcile(id, Level::Hash).await.verdict(), Verdict::Equal, "by what was written");
    assert_eq!(shelf.shown_verdict(id).await, (Level::Rows, Verdict::Differs));
    shelf.succeed(id).await;
    assert_eq!(shelf.reconcile(id, Level::Hash).await.verdict(), Verdict::Equal);
    assert_eq!(shelf.shown_verdict(id).await, (Level::Hash, Verdict::Equal), "all was loaded anew");
}

#[tokio::test]
async fn a_proof_does_not_call_an_index_equal_while_rows_that_it_has_not_compared_are_on_their_way() {
    let server = SearchServer::opensearch().await;
    let shelf = Shelf::new(&server, 30).await;
    let id = shelf.incremental(100).await;
    shelf.succeed(id).await;
    let path = format!("{}/_doc/3?refresh=true", shelf.index);
    shelf.server().call("DELETE", &path, Value::Null).await;
    shelf.stage.db.execute("update content.film set title = 'New', modified = now() where id = 5").await;
    let compared = shelf.reconcile(id, Level::Rows).await;
    assert_eq!((compared.counts(), compared.figures().in_flight), ((1, 0, 0), 1));
    let (run, proof) = shelf.repair(id, &compared).await;
    assert_eq!((run.error, proof.verdict()), (None, Verdict::Stale));
    assert_eq!(shelf.shown_verdict(id).await, (Level::Rows, Verdict::Stale));
    shelf.succeed(id).await;
    assert_eq!(shelf.reconcile(id, Level::Rows).await.verdict(), Verdict::Equal);
    assert_eq!(shelf.shown_verdict(id).await, (Level::Rows, Verdict::Equal));
}
