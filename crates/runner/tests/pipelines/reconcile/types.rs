//! Values of every type beside every other value of it: distinct ones differ, all others are equal.

use std::collections::BTreeSet;

use serde_json::json;
use vitrina_core::{DifferenceKind, Level, Verdict};

use crate::stage::Stage;

/// A type and values of it, which NULL is added to. Among them are values that the type's own hash function does not tell apart.
const TYPES: &[(&str, &[&str])] = &[
    ("boolean", &["true", "false"]),
    ("smallint", &["0", "1", "-1", "-32768"]),
    ("integer", &["0", "1", "-1", "2147483647", "-2147483648"]),
    (
        "bigint",
        &[
            "0",
            "1",
            "-1",
            "4294967296",
            "-4294967297",
            "9007199254740992",
            "9007199254740993",
            "9223372036854775807",
        ],
    ),
    ("real", &["0", "-0", "NaN", "Infinity", "-Infinity", "1", "-1"]),
    ("double precision", &["0", "-0", "NaN", "Infinity", "-Infinity", "1", "-1", "5e-324"]),
    (
        "numeric",
        &[
            "0",
            "0.00",
            "NaN",
            "Infinity",
            "-Infinity",
            "1",
            "1.0",
            "-1",
            "10000",
            "0.0001",
            "1e400",
            "-1e-400",
        ],
    ),
    ("text", &["", " ", "a", "a ", "A", "\u{1e}", "-", "é", "e\u{301}"]),
    ("varchar(10)", &["", "a", "a "]),
    ("char(5)", &["", "a", "a  ", "b"]),
    ("name", &["", "a"]),
    ("uuid", &["00000000-0000-0000-0000-000000000000", "00000000-0000-0000-0000-000000000001"]),
    ("date", &["2000-01-01", "1970-01-01", "infinity", "-infinity", "4713-01-01 BC", "5874897-12-31"]),
    (
        "timestamp",
        &[
            "2000-01-01",
            "2000-01-01 00:00:00.000001",
            "2000-01-01 01:11:34.967296",
            "1970-01-01",
            "infinity",
            "-infinity",
            "4713-01-01 BC",
            "294276-12-31 23:59:59.999999",
            "294276-12-31 23:59:59.999998",
        ],
    ),
    (
        "timestamptz",
        &[
            "2000-01-01 00:00+00",
            "2000-01-01 02:00+02",
            "2000-01-01 00:00:00.000001+00",
            "2000-01-01 01:11:34.967296+00",
            "infinity",
            "-infinity",
            "4713-01-01 BC",
        ],
    ),
    ("time", &["00:00", "00:00:00.000001", "01:11:34.967296", "23:59:59.999999", "24:00"]),
    ("timetz", &["12:00+00", "14:00+02", "12:00+02"]),
    (
        "interval",
        &["0", "24:00", "1 day", "30 days", "1 mon", "12 mons", "1 year", "-1 day", "1 day -1 hours"],
    ),
    ("bytea", &["", "\\x00", "\\x0000"]),
    ("bit varying", &["", "0", "00", "1"]),
    ("bit(2)", &["00", "01"]),
    ("inet", &["10.0.0.1", "10.0.0.1/32", "10.0.0.1/8", "::1"]),
    ("cidr", &["10.0.0.0/8", "10.0.0.0/16"]),
    ("json", &[r#"{"a":1}"#, r#"{"a": 1}"#, r#"{"a":1,"a":2}"#, "null", "1", "1.0", r#""1""#, "[]"]),
    (
        "jsonb",
        &[
            "{}",
            "[]",
            "[[]]",
            "null",
            "0",
            r#""0""#,
            "1",
            "1.0",
            "-1",
            r#""1.0""#,
            "[1, 0]",
            "[0, 1]",
            r#"{"a": 1.50, "b": "1.50"}"#,
            r#"{"b": "1.50", "a": 1.5}"#,
            r#"{"a": 1.5, "b": "1.5"}"#,
        ],
    ),
    ("xml", &["<a/>", "<a></a>", ""]),
    ("point", &["(0,0)", "(-0,0)", "(1,2)"]),
    ("integer[]", &["{}", "{NULL}", "{0}", "{{0}}", "{0,0}", "[0:0]={0}", "{1,NULL}", "{NULL,1}"]),
    ("numeric[]", &["{}", "{1}", "{1.0}", "{10}", "{-1}", "{NaN,1.50}", "{NaN,1.5}", "{1.50,NaN}"]),
    ("double precision[]", &["{0}", "{-0}", "{0,-0}", "{NaN}"]),
    ("text[]", &["{}", "{\"\"}", "{NULL}", "{\"NULL\"}", "{\"a,b\"}", "{a,b}"]),
    ("char(3)[]", &["{a}", "{\"a \"}", "{b}"]),
    ("int4range", &["empty", "[1,3)", "[1,2]", "(,)"]),
    ("analytics.mood", &["good", "bad"]),
    ("analytics.price", &["0", "0.0", "1"]),
];

/// Two columns a type, and a row for every two values: one in the place of the other, and the two exchanged.
fn planted() -> String {
    let mut sql = "create schema content; create schema analytics; create type analytics.mood as enum ('good', 'bad');
                   create domain analytics.price as numeric; create table content.pairs (id int primary key);"
        .to_owned();
    for (place, (name, _)) in TYPES.iter().enumerate() {
        sql += &format!("alter table content.pairs add c{place} {name}, add d{place} {name};");
    }
    sql += "create table analytics.pairs (like content.pairs including all);";
    for (place, (name, values)) in TYPES.iter().enumerate() {
        let value = |(n, value): (usize, &&str)| format!(", ({n}, '{value}'::{name})");
        let values: String = values.iter().enumerate().map(value).collect();
        sql += &format!(
            "with v (n, x) as (values (-1, null::{name}){values}),
                  pairs as (select 1000 * {place} + 2 * row_number() over (order by a.n, b.n) as id, a.x, b.x as y from v a, v b),
                  source as (insert into content.pairs (id, c{place}, d{place})
                             select id, x, null from pairs union all select id + 1, x, y from pairs)
             insert into analytics.pairs (id, c{place}, d{place})
             select id, y, null from pairs union all select id + 1, y, x from pairs;"
        );
    }
    sql + "analyze analytics.pairs"
}

/// Rows that Postgres itself calls distinct; types that have no `=` by their text.
fn distinct() -> String {
    let differs = |(place, (name, _)): (usize, &(&str, &[&str]))| {
        let text = if matches!(*name, "json" | "xml" | "point") { "::text" } else { "" };
        ["c", "d"]
            .map(|side| format!("s.{side}{place}{text} is distinct from t.{side}{place}{text}"))
            .join(" or ")
    };
    let differs = TYPES.iter().enumerate().map(differs).collect::<Vec<_>>().join(" or ");
    format!(
        "select string_agg(id::text, ' ') from content.pairs s join analytics.pairs t using (id) where {differs}"
    )
}

#[tokio::test]
async fn of_every_type_distinct_values_differ_and_all_others_are_equal() {
    let stage = Stage::empty().await;
    stage.db.execute(&planted()).await;
    let distinct: String = stage.db.value(&distinct()).await;
    let distinct: BTreeSet<i32> = distinct.split(' ').map(|id| id.parse().unwrap()).collect();
    let id = stage
        .pipeline(json!({"name": "pairs", "source_query": "select * from content.pairs", "target_table": "analytics.pairs"}))
        .await;
    let rows = stage.reconcile(id, Level::Rows).await;
    let found: BTreeSet<i32> =
        rows.keys(DifferenceKind::Different).iter().map(|key| key.parse().unwrap()).collect();
    let of = |ids: Vec<&i32>| -> Vec<String> {
        ids.iter().map(|id| format!("{id} {}", TYPES[**id as usize / 1000].0)).collect()
    };
    assert_eq!(of(distinct.difference(&found).collect()), [""; 0], "called equal");
    assert_eq!(of(found.difference(&distinct).collect()), [""; 0], "called different");
    assert_eq!(rows.counts(), (0, 0, distinct.len() as u64));
    assert_eq!(stage.reconcile(id, Level::Hash).await.counts(), rows.counts());
}

#[tokio::test]
async fn a_value_that_the_mart_has_rounded_or_padded_otherwise_differs() {
    let stage = Stage::empty().await;
    stage
        .db
        .execute(
            "create schema content; create schema analytics; create domain analytics.price as numeric(6, 2);
             create domain analytics.fee as analytics.price;
             create table content.thing (id int primary key, n numeric, d numeric, at timestamp, o time, b bit varying, c text);
             create table analytics.thing (id int primary key, n numeric(6, 2), d analytics.fee, at timestamp(0), o time(0),
                                           b bit varying(4), c char(5));
             insert into content.thing values
                (1, 1.5, 1.500, '2024-01-01 12:00', '12:00', '01', 'ab'), (2, 1.005, null, null, null, null, null),
                (3, null, 1.005, null, null, null, null), (4, null, null, '2024-12-31 23:59:59.6', null, null, null),
                (5, null, null, null, '12:00:00.4', null, null), (6, null, null, null, null, '1111', null);
             insert into analytics.thing select id, n, d, at, o, b, c from content.thing;
             update analytics.thing set b = '111' where id = 6",
        )
        .await;
    let id = stage
        .pipeline(json!({"name": "thing", "source_query": "select * from content.thing", "target_table": "analytics.thing"}))
        .await;
    for level in [Level::Hash, Level::Rows] {
        assert_eq!(stage.reconcile(id, level).await.counts(), (0, 0, 5), "{level}");
    }
}

#[tokio::test]
async fn a_value_that_the_marts_type_cannot_hold_ends_no_comparison_and_its_row_differs() {
    let stage = Stage::empty().await;
    stage
        .db
        .execute(
            "create schema content; create schema analytics;
             create table content.thing (id bigint primary key, n bigint, day date);
             create table analytics.thing (id int primary key, n smallint, day date);
             insert into content.thing values (1, 1, '2024-01-01'), (2, 5000000000, null), (3, 3, '5874897-12-31'), (5000000000, 4, null);
             insert into analytics.thing values (1, 1, '2024-01-01'), (2, 2, null), (3, 3, '5874897-12-31')",
        )
        .await;
    let id = stage
        .pipeline(json!({"name": "thing", "source_query": "select * from content.thing", "target_table": "analytics.thing"}))
        .await;
    let compared = stage.reconcile(id, Level::Rows).await;
    assert_eq!(compared.counts(), (1, 0, 1), "{:?}", compared.differences);
    assert_eq!(compared.keys(DifferenceKind::Missing), ["5000000000"]);
    let different =
        &compared.differences.iter().find(|found| found.kind == DifferenceKind::Different).unwrap();
    assert_eq!(different.columns["n"].source.as_deref(), Some("5000000000"));
}

#[tokio::test]
async fn a_value_that_cannot_be_cast_costs_its_own_row_alone() {
    let stage = Stage::empty().await;
    stage
        .db
        .execute(
            "create schema content; create schema analytics;
             create table content.thing (id int primary key, n text, doc json);
             create table analytics.thing (id int primary key, n int, doc jsonb);
             insert into content.thing select n, n::text, '{}' from generate_series(1, 5000) n;
             insert into analytics.thing select id, n::int, doc::jsonb from content.thing; analyze analytics.thing;
             update content.thing set n = 'seven' where id = 7;
             update content.thing set doc = '{\"a\": \"\\u0000\"}' where id = 4000;
             update analytics.thing set n = 0 where id = 3000",
        )
        .await;
    let id = stage
        .pipeline(json!({"name": "thing", "source_query": "select * from content.thing", "target_table": "analytics.thing"}))
        .await;
    let compared = stage.reconcile(id, Level::Rows).await;
    assert_eq!(compared.counts(), (0, 0, 3), "{:?}", compared.figures());
    let seven = compared.differences.iter().find(|found| found.key == json!(["7"])).unwrap();
    assert_eq!(seven.columns["n"].source.as_deref(), Some("seven"));
}

#[tokio::test]
async fn a_row_whose_key_the_source_cannot_read_or_writes_otherwise_is_extra_and_a_repair_deletes_it() {
    let stage = Stage::empty().await;
    stage
        .db
        .execute(
            "create schema content; create schema analytics;
             create table content.thing (id int primary key, n int);
             create table analytics.thing (id text primary key, n int);
             insert into content.thing select n, n from generate_series(1, 20) n;
             insert into analytics.thing select id::text, n from content.thing;
             insert into analytics.thing values ('x5', 5), ('05', 5), ('99999999999', 1)",
        )
        .await;
    let id = stage
        .pipeline(json!({"name": "thing", "source_query": "select * from content.thing", "target_table": "analytics.thing",
                         "delete_limit": 1.0}))
        .await;
    let compared = stage.reconcile(id, Level::Rows).await;
    assert_eq!(compared.counts(), (0, 3, 0), "{:?}", compared.differences);
    let keys: Vec<_> = compared.differences.iter().map(|found| found.key.clone()).collect();
    let run = stage.request_keys(id, json!(keys)).await;
    let proof = stage.store.request_proof(&compared.record, run, None).await.unwrap();
    stage.work_off(stage.settings("tester")).await;
    assert_eq!(stage.run_record(run).await.error, None);
    assert_eq!(stage.compared(proof).await.verdict(), Verdict::Equal);
    assert_eq!(stage.reconcile(id, Level::Rows).await.verdict(), Verdict::Equal);
}
