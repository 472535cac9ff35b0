//! Indexes compared with their sources.

use serde_json::{Value, json};
use vitrina_core::{DifferenceKind, Level, PipelineId, Verdict};
use vitrina_testbed::SearchServer;

use crate::compared::Compared;
use crate::shelf::Shelf;

impl Shelf {
    pub(crate) async fn reconcile(&self, id: PipelineId, level: Level) -> Compared {
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
async fn rows_that_the_index_has_refused_are_counted_apart_and_an_index_without_them_is_not_equal() {
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
            assert_eq!((compared.verdict(), compared.counts()), (Verdict::Differs, (0, 0, 0)), "{level}");
            assert_eq!(compared.figures().rejected, 1);
        }
        shelf.damage("DELETE", "_doc/5", Value::Null).await;
        let compared = shelf.reconcile(id, Level::Rows).await;
        assert_eq!((compared.verdict(), compared.figures().rejected), (Verdict::Differs, 1));
        assert_eq!(compared.keys(DifferenceKind::Missing), ["5"]);
    }
}

#[tokio::test]
async fn a_second_copy_of_a_document_under_another_routing_differs() {
    for server in SearchServer::both().await {
        let shelf = Shelf::bare(&server, 30).await;
        shelf.describe(json!({"settings": {"number_of_shards": 3}})).await;
        let id = shelf.full(100).await;
        shelf.succeed(id).await;
        let document = shelf.server().document(&shelf.index, "7").await.unwrap()["_source"].clone();
        let mut status = 409;
        for routing in ["a", "b", "c", "d", "e", "f", "g", "h"] {
            if status == 409 {
                let path = format!("{}/_create/7?refresh=true&routing={routing}", shelf.index);
                status = shelf.server().call("PUT", &path, document.clone()).await.0;
            }
        }
        assert_eq!(status, 201);
        for level in [Level::Count, Level::Hash, Level::Rows] {
            let compared = shelf.reconcile(id, level).await;
            assert_eq!(compared.verdict(), Verdict::Differs, "{level}");
        }
        let compared = shelf.reconcile(id, Level::Rows).await;
        assert_eq!(
            (compared.counts(), compared.keys(DifferenceKind::Different)),
            ((0, 0, 1), vec!["7".to_owned()])
        );
        let told = compared.differences[0].columns["_source"].target.as_deref().unwrap();
        assert!(told.starts_with("2 documents have this id"), "{told}");
    }
}

#[tokio::test]
async fn a_value_of_another_json_type_differs_though_it_reads_the_same() {
    for server in SearchServer::both().await {
        let shelf = Shelf::new(&server, 30).await;
        let id = shelf.full(100).await;
        shelf.succeed(id).await;
        shelf.damage("POST", "_update/21", json!({"doc": {"rating": "2.1"}})).await;
        let compared = shelf.reconcile(id, Level::Rows).await;
        assert_eq!(compared.counts(), (0, 0, 1));
        let rating = &compared.differences[0].columns["rating"];
        assert_eq!((rating.source.as_deref(), rating.target.as_deref()), (Some("2.1"), Some("\"2.1\"")));
    }
}

/// A column of each type beside every other value of it, the one in the index and the other at the source.
#[tokio::test]
async fn of_every_type_in_documents_distinct_values_differ_and_all_others_are_equal() {
    const TYPES: &[(&str, &[&str])] = &[
        ("boolean", &["true", "false"]),
        ("integer", &["0", "1", "-1"]),
        ("bigint", &["0", "9007199254740992", "9007199254740993", "-9223372036854775808"]),
        ("double precision", &["0", "-0", "1", "1.5"]),
        ("numeric", &["0", "0.00", "1", "1.0", "-1", "10000"]),
        ("text", &["", "a", "a ", "A", "1", "true", "null", "é", "e\u{301}"]),
        ("char(3)", &["a", "a ", "b"]),
        ("date", &["2000-01-01", "1970-01-01"]),
        ("timestamptz", &["2000-01-01 00:00+00", "2000-01-01 02:00+02", "2000-01-01 00:00:00.000001+00"]),
        ("interval", &["1 day", "1 mon"]),
        ("uuid", &["00000000-0000-0000-0000-000000000000", "00000000-0000-0000-0000-000000000001"]),
        ("bytea", &["", "\\x00"]),
        ("integer[]", &["{}", "{NULL}", "{0}", "{0,0}"]),
        ("text[]", &["{}", "{\"\"}", "{NULL}", "{\"NULL\"}"]),
        (
            "jsonb",
            &[
                "{}",
                "[]",
                "0",
                "\"0\"",
                "1",
                "1.0",
                "{\"a\": null}",
                "{\"a\": 0, \"b\": 1.50}",
                "{\"b\": 1.5, \"a\": 0}",
            ],
        ),
    ];
    let mut sql = "create table content.pairs (id int primary key); ".to_owned();
    for (place, (name, _)) in TYPES.iter().enumerate() {
        sql += &format!("alter table content.pairs add c{place} {name}, add d{place} {name};");
    }
    sql += "create table content.after (like content.pairs including all);";
    for (place, (name, values)) in TYPES.iter().enumerate() {
        let value = |(n, value): (usize, &&str)| format!(", ({n}, '{value}'::{name})");
        let values: String = values.iter().enumerate().map(value).collect();
        sql += &format!(
            "with v (n, x) as (values (-1, null::{name}){values}),
                  pairs as (select 1000 * {place} + row_number() over (order by a.n, b.n) as id, a.x, b.x as y from v a, v b),
                  source as (insert into content.pairs (id, c{place}, d{place}) select id, x, y from pairs)
             insert into content.after (id, c{place}, d{place}) select id, y, x from pairs;"
        );
    }
    let differs = |place: usize| format!("s.c{place} is distinct from t.c{place}");
    let differs: Vec<String> = (0..TYPES.len()).map(differs).collect();
    let distinct = format!(
        "select string_agg(id::text, ' ' order by id) from content.pairs s join content.after t using (id) where {}",
        differs.join(" or ")
    );
    for server in SearchServer::both().await {
        let shelf = Shelf::new(&server, 0).await;
        shelf.stage.db.execute(&sql).await;
        let distinct: String = shelf.stage.db.value(&distinct).await;
        let id = shelf.pipeline(json!({"source_query": "select * from content.pairs"})).await;
        shelf.succeed(id).await;
        shelf.stage.db.execute("truncate content.pairs; insert into content.pairs table content.after").await;
        let compared = shelf.reconcile(id, Level::Rows).await;
        let mut found: Vec<u32> =
            compared.keys(DifferenceKind::Different).iter().map(|key| key.parse().unwrap()).collect();
        found.sort_unstable();
        let found = found.iter().map(u32::to_string).collect::<Vec<_>>().join(" ");
        assert_eq!(found, distinct);
        assert_eq!(shelf.reconcile(id, Level::Hash).await.counts(), compared.counts());
    }
}

#[tokio::test]
async fn values_beyond_any_number_or_tree_and_large_documents_end_no_comparison() {
    let query = "select id, ('1e' || 400 + id)::numeric as big, case when id > 5 then repeat(md5(id::text), 9000) end as text,
                        ('{\"deep\": ' || repeat('[', 150) || '1e400' || repeat(']', 150) || '}')::json as doc
                   from content.film";
    let properties = json!({"id": {"type": "integer"}, "big": {"type": "keyword", "ignore_above": 100},
        "text": {"type": "text", "index": false}, "doc": {"type": "object", "enabled": false}});
    for server in SearchServer::both().await {
        let shelf = Shelf::bare(&server, 40).await;
        shelf.describe(json!({"mapping": {"properties": properties}})).await;
        let id = shelf.pipeline(json!({"source_query": query})).await;
        shelf.succeed(id).await;
        for level in [Level::Count, Level::Hash, Level::Rows] {
            let compared = shelf.reconcile(id, level).await;
            assert_eq!(compared.verdict(), Verdict::Equal, "{level} {:?}", compared.differences);
        }
        shelf.damage("PUT", "_doc/3", json!({"id": 3, "doc": {"deep": 1}})).await;
        shelf.damage("DELETE", "_doc/30", Value::Null).await;
        assert_eq!(shelf.reconcile(id, Level::Rows).await.counts(), (1, 0, 1));
    }
}
