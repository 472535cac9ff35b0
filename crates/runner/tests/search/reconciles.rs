//! Indexes compared with their sources.

use serde_json::{Value, json};
use vitrina_core::{DifferenceKind, Level, PipelineId, Verdict};
use vitrina_testbed::SearchServer;

use crate::compared::Compared;
use crate::shelf::Shelf;

impl Shelf {
    async fn reconcile(&self, id: PipelineId, level: Level) -> Compared {
        self.stage.reconcile_with(self.settings("tester"), id, level).await
    }

    /// Changes documents past the pipeline.
    async fn damage(&self, method: &str, document: &str, body: Value) {
        let path = format!("{}/{document}", self.index);
        let (status, answer) = self.server().call(method, &path, body).await;
        assert!((200..300).contains(&status), "{status} {answer}");
    }
}

#[tokio::test]
async fn an_index_is_equal_to_its_source_until_a_document_is_lost_added_or_changed() {
    for server in SearchServer::both().await {
        let shelf = Shelf::new(&server, 300).await;
        let id = shelf.full(100).await;
        shelf.succeed(id).await;
        for level in [Level::Count, Level::Hash, Level::Rows] {
            let compared = shelf.reconcile(id, level).await;
            assert_eq!(compared.verdict(), Verdict::Equal, "{level} {:?}", compared.figures());
            assert_eq!((compared.figures().source.rows, compared.figures().target.rows), (300, 300));
        }
        shelf.damage("DELETE", "_doc/7", Value::Null).await;
        shelf.damage("PUT", "_doc/9000", json!({"id": 9000, "title": "Nobody's"})).await;
        shelf.damage("POST", "_update/20", json!({"doc": {"title": "Another", "rating": null}})).await;
        shelf.damage("POST", "_update/21", json!({"doc": {"rating": 2.1}})).await;
        let compared = shelf.reconcile(id, Level::Rows).await;
        assert_eq!((compared.verdict(), compared.counts()), (Verdict::Differs, (1, 1, 1)));
        assert_eq!(compared.keys(DifferenceKind::Missing), ["7"]);
        assert_eq!(compared.keys(DifferenceKind::Extra), ["9000"]);
        let different = compared.differences.iter().find(|found| found.key == json!(["20"])).unwrap();
        let title = &different.columns["title"];
        assert_eq!((title.source.as_deref(), title.target.as_deref()), (Some("Film 20"), Some("Another")));
        assert_eq!(different.columns["rating"].target, None);
        shelf.damage("DELETE", "_doc/8", Value::Null).await;
        assert_eq!(shelf.reconcile(id, Level::Count).await.verdict(), Verdict::Differs);
    }
}

#[tokio::test]
async fn an_index_that_is_not_there_lacks_every_row() {
    for server in SearchServer::both().await {
        let shelf = Shelf::new(&server, 12).await;
        let id = shelf.full(10).await;
        assert_eq!(shelf.reconcile(id, Level::Rows).await.counts(), (12, 0, 0));
        assert_eq!(shelf.reconcile(id, Level::Count).await.verdict(), Verdict::Differs);
    }
}

#[tokio::test]
async fn documents_that_the_next_run_will_write_are_in_flight() {
    for server in SearchServer::both().await {
        let shelf = Shelf::new(&server, 30).await;
        let id = shelf.incremental(10).await;
        shelf.succeed(id).await;
        shelf.stage.add_films(31, 32).await;
        shelf.stage.db.execute("update content.film set title = 'New', modified = now() where id = 5").await;
        shelf.damage("POST", "_update/6", json!({"doc": {"title": "Damaged"}})).await;
        let compared = shelf.reconcile(id, Level::Rows).await;
        assert_eq!((compared.counts(), compared.figures().in_flight), ((0, 0, 1), 3));
        shelf.succeed(id).await;
        let repaired = shelf.stage.request_keys(id, json!([["6"]])).await;
        let proof = shelf.stage.store.request_proof(&compared.record, repaired, None).await.unwrap();
        shelf.work_off("tester").await;
        assert_eq!(shelf.stage.compared(proof).await.verdict(), Verdict::Equal);
        assert_eq!(shelf.reconcile(id, Level::Rows).await.verdict(), Verdict::Equal);
    }
}

#[tokio::test]
async fn values_of_every_type_are_equal_when_they_were_written_and_renamed_or_omitted_columns_stay_so() {
    let query = "select id, title, id as lang, rating, modified, id::bigint * 10000000000 as big, (id / 3.0)::numeric as share,
                        array[title, null] as tags, array[]::int[] as none, jsonb_build_object('b', 1.50, 'a', null) as doc,
                        now()::date - 10000 + id as day, id % 2 = 0 as flag, title as secret
                   from content.film";
    for server in SearchServer::both().await {
        let shelf = Shelf::bare(&server, 25).await;
        shelf
            .describe(
                json!({"key": ["id", "lang"], "document": {"rename": {"title": "name"}, "omit": ["secret"]}}),
            )
            .await;
        let id = shelf.pipeline(json!({"source_query": query})).await;
        shelf.succeed(id).await;
        let compared = shelf.reconcile(id, Level::Rows).await;
        assert_eq!(compared.verdict(), Verdict::Equal, "{:?}", compared.differences);
        shelf.damage("DELETE", "_doc/4:4", Value::Null).await;
        let compared = shelf.reconcile(id, Level::Rows).await;
        assert_eq!(compared.differences[0].key, json!(["4", "4"]));
    }
}

#[tokio::test]
async fn of_shared_documents_only_the_pipelines_own_fields_are_compared() {
    for server in SearchServer::both().await {
        let shelf = Shelf::bare(&server, 10).await;
        shelf
            .describe(
                json!({"document": {"partial": true}, "mapping": {"properties": {"id": {"type": "integer"},
                "title": {"type": "text"}, "likes": {"type": "integer"}}}}),
            )
            .await;
        let titles = shelf
            .pipeline(
                json!({"name": "titles", "source_query": "select id, title from content.film where id < 9"}),
            )
            .await;
        let likes = shelf.pipeline(json!({"name": "likes", "source_query": "select id, id * 2 as likes from content.film where id > 3"})).await;
        shelf.succeed(titles).await;
        shelf.succeed(likes).await;
        for id in [titles, likes] {
            let compared = shelf.reconcile(id, Level::Rows).await;
            assert_eq!(compared.verdict(), Verdict::Equal, "{:?}", compared.differences);
        }
        shelf.damage("POST", "_update/5", json!({"doc": {"likes": 1}})).await;
        shelf.damage("POST", "_update/10", json!({"doc": {"title": "Whose?"}})).await;
        assert_eq!(shelf.reconcile(likes, Level::Rows).await.counts(), (0, 0, 1));
        assert_eq!(shelf.reconcile(titles, Level::Rows).await.counts(), (0, 1, 0));
    }
}

#[tokio::test]
async fn among_thousands_of_documents_exactly_the_planted_differences_are_found() {
    let server = SearchServer::opensearch().await;
    let shelf = Shelf::new(&server, 20_000).await;
    let id = shelf.full(5000).await;
    shelf.succeed(id).await;
    let mut planted = 0;
    for n in [1, 99, 2900] {
        let damage = |n: u64| {
            [
                json!({"delete": {"_id": (n * 5).to_string()}}),
                json!({"update": {"_id": (n * 5 + 1).to_string()}}),
                json!({"doc": {"rating": 9.95}}),
            ]
        };
        let lines: Vec<Value> = (planted + 1..=planted + n).flat_map(damage).collect();
        shelf.server().bulk(&format!("{}/_bulk", shelf.index), &lines).await;
        planted += n;
        shelf
            .stage
            .db
            .execute(&format!(
                "delete from content.film where id in (select n * 5 + 2 from generate_series(1, {planted}) n)"
            ))
            .await;
        let compared = shelf.reconcile(id, Level::Rows).await;
        for (kind, offset) in
            [(DifferenceKind::Missing, 0), (DifferenceKind::Different, 1), (DifferenceKind::Extra, 2)]
        {
            let mut found: Vec<u64> = compared.keys(kind).iter().map(|key| key.parse().unwrap()).collect();
            found.sort_unstable();
            assert_eq!(found, (1..=planted).map(|n| n * 5 + offset).collect::<Vec<u64>>(), "{kind}");
        }
    }
}

#[tokio::test]
async fn checksums_prove_what_was_written_and_documents_what_is_there() {
    for server in SearchServer::both().await {
        let shelf = Shelf::new(&server, 300).await;
        let id = shelf.incremental(100).await;
        shelf.succeed(id).await;
        shelf.stage.db.execute("update content.film set title = 'New', modified = now() where id < 20").await;
        shelf.succeed(id).await;
        let document = shelf.server().document(&shelf.index, "7").await.unwrap();
        assert!(document["_source"]["_vitrina"]["bucket"].is_u64(), "{document}");
        let equal = shelf.reconcile(id, Level::Hash).await;
        assert_eq!(
            (equal.verdict(), equal.figures().rows_read),
            (Verdict::Equal, 0),
            "{:?}",
            equal.figures()
        );
        assert_eq!((equal.figures().source.rows, equal.figures().target.rows), (300, 300));

        shelf.damage("POST", "_update/50", json!({"doc": {"title": "Written by another"}})).await;
        assert_eq!(
            shelf.reconcile(id, Level::Hash).await.verdict(),
            Verdict::Equal,
            "its checksum is what was written"
        );
        assert_eq!(shelf.reconcile(id, Level::Rows).await.counts(), (0, 0, 1));

        shelf.damage("DELETE", "_doc/70", Value::Null).await;
        shelf.damage("PUT", "_doc/9000", json!({"id": 9000, "title": "Nobody's"})).await;
        let found = shelf.reconcile(id, Level::Hash).await;
        assert_eq!((found.verdict(), found.counts()), (Verdict::Differs, (1, 1, 0)));
        assert!(found.figures().rows_read < 30, "{:?}", found.figures());
        shelf.damage("DELETE", "_doc/9000", Value::Null).await;
        shelf.succeed(id).await;
    }
}

#[tokio::test]
async fn an_index_without_checksums_goes_on_without_and_is_compared_by_its_documents() {
    for server in SearchServer::both().await {
        let shelf = Shelf::bare(&server, 30).await;
        shelf.describe(json!({"document": {"no_checksum": true}})).await;
        let id = shelf.incremental(10).await;
        shelf.succeed(id).await;
        shelf.describe(json!({})).await;
        shelf.stage.db.execute("update content.film set title = 'New', modified = now() where id = 3").await;
        shelf.succeed(id).await;
        let document = shelf.server().document(&shelf.index, "3").await.unwrap();
        assert_eq!(
            (&document["_source"]["title"], &document["_source"]["_vitrina"]),
            (&json!("New"), &Value::Null)
        );
        shelf.damage("POST", "_update/5", json!({"doc": {"title": "Another"}})).await;
        assert_eq!(shelf.reconcile(id, Level::Hash).await.counts(), (0, 0, 1));
    }
}

#[tokio::test]
async fn rows_that_the_index_has_refused_are_told_apart_from_those_that_differ() {
    for server in SearchServer::both().await {
        let shelf = Shelf::bare(&server, 10).await;
        let properties = json!({"id": {"type": "integer"}, "title": {"type": "integer"},
                                "rating": {"type": "float"}, "modified": {"type": "date"}});
        shelf.describe(json!({"mapping": {"properties": properties}})).await;
        shelf
            .stage
            .db
            .execute("update content.film set title = case id when 7 then 'seven' else id::text end")
            .await;
        let id = shelf.pipeline(json!({"reject_limit": 3})).await;
        assert_eq!(shelf.succeed(id).await.rows_rejected, 1);
        for level in [Level::Hash, Level::Rows] {
            let compared = shelf.reconcile(id, level).await;
            assert_eq!((compared.verdict(), compared.figures().rejected), (Verdict::Equal, 1), "{level}");
        }
        shelf.damage("DELETE", "_doc/5", Value::Null).await;
        let compared = shelf.reconcile(id, Level::Rows).await;
        assert_eq!((compared.verdict(), compared.figures().rejected), (Verdict::Differs, 1));
        assert_eq!(compared.keys(DifferenceKind::Missing), ["5"]);
    }
}
