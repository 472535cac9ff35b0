//! One form of values on both sides, whatever the types.

use serde_json::json;
use vitrina_core::{DifferenceKind, Level, PipelineId, Verdict};

use crate::stage::Stage;

/// The same values in types that differ: what writing them makes of them is what they are compared by.
const TYPES: &str = "
    create schema content; create schema analytics;
    create type content.mood as enum ('good', 'bad'); create type analytics.mood as enum ('good', 'bad');
    create domain analytics.price as numeric(10, 2);
    create table content.thing (
        id int primary key, small smallint, number int, big bigint, real4 real, real8 double precision, price numeric(10, 2),
        scaled numeric(6, 3), title text, code varchar(20), padded text, flag boolean, day date, moment timestamp, at timestamptz,
        clock time, span interval, tags text[], numbers int[], doc jsonb, raw json, bytes bytea, mood content.mood, ref uuid);
    create table analytics.thing (
        id bigint primary key, small int, number bigint, big bigint, real4 real, real8 double precision, price analytics.price,
        scaled numeric(6, 3), title varchar(100), code text, padded char(10), flag boolean, day date, moment timestamp, at timestamptz,
        clock time, span interval, tags text[], numbers int[], doc jsonb, raw json, bytes bytea, mood analytics.mood, ref uuid);
    insert into content.thing values
        (1, 1, 2, 4294967296, 0.1, 0.1, 1.5, 1.5, 'Ünï', 'abc', 'ab', true, '2024-02-29', '2024-02-29 12:00', '2024-02-29 12:00+05',
         '12:00', '1 mon 2 days', '{a,\"b c\",NULL}', '{1,2}', '{\"b\": 1, \"a\": [1.50, null]}', '{\"b\" : 1}', '\\x00ff', 'good',
         '6a2f41a3-c54c-fce8-32d2-0324e1c32e22'),
        (3, -1, -2, -4294967297, '-0', 'NaN', 0, 100, '', '', '', false, 'infinity', '-infinity', 'infinity',
         '23:59:59.999999', '-1 day', '{}', '{}', 'null', 'null', '', 'bad', '00000000-0000-0000-0000-000000000000');
    insert into content.thing (id) values (2);
    insert into etl.etl_targets (name, key) values ('analytics.thing', '{id}')";

async fn things(changes: serde_json::Value) -> (Stage, PipelineId) {
    let stage = Stage::empty().await;
    stage.db.execute(TYPES).await;
    let mut config = json!({"name": "thing", "source_query": "select * from content.thing", "target_table": "analytics.thing"});
    for (field, value) in changes.as_object().unwrap() {
        config[field] = value.clone();
    }
    let id = stage.pipeline(config).await;
    stage.succeed(id).await;
    (stage, id)
}

#[tokio::test]
async fn values_that_were_written_are_equal_in_every_type() {
    let (stage, id) = things(json!({})).await;
    for level in [Level::Count, Level::Rows] {
        let compared = stage.reconcile(id, level).await;
        assert_eq!(compared.verdict(), Verdict::Equal, "{:?} {:?}", compared.figures(), compared.differences);
    }
    assert_eq!(
        stage.reconcile(id, Level::Rows).await.figures().rows_read,
        0,
        "hashes differ, and rows do not"
    );
}

#[tokio::test]
async fn a_change_of_any_column_to_another_value_or_to_null_is_found() {
    let (stage, id) = things(json!({})).await;
    let other = [
        ("small", "2"),
        ("number", "3"),
        ("big", "1"),
        ("real4", "0.2"),
        ("real8", "0.2"),
        ("price", "1.51"),
        ("scaled", "1.501"),
        ("title", "'Uni'"),
        ("code", "'ABC'"),
        ("padded", "'abc'"),
        ("flag", "false"),
        ("day", "'2024-03-01'"),
        ("moment", "'2024-02-29 12:00:00.000001'"),
        ("at", "'2024-02-29 12:00+00'"),
        ("clock", "'12:01'"),
        ("span", "'2 days'"),
        ("tags", "'{a,b c}'"),
        ("numbers", "'{2,1}'"),
        ("doc", "'{\"a\": [1.51, null], \"b\": 1}'"),
        ("raw", "'{}'"),
        ("bytes", "'\\x00fe'"),
        ("mood", "'bad'"),
        ("ref", "'6a2f41a3-c54c-fce8-32d2-0324e1c32e23'"),
    ];
    for (column, value) in other {
        for value in [value, "null"] {
            stage.db.execute(&format!("begin; create table if not exists kept as table analytics.thing; update analytics.thing set {column} = {value} where id = 1; commit")).await;
            let compared = stage.reconcile(id, Level::Rows).await;
            assert_eq!(compared.counts(), (0, 0, 1), "{column} = {value}");
            let columns: Vec<_> = compared.differences[0].columns.keys().cloned().collect();
            assert_eq!(columns, [column], "{column} = {value}");
            stage.db.execute("truncate analytics.thing; insert into analytics.thing table kept").await;
        }
    }
}

#[tokio::test]
async fn a_value_in_the_place_of_a_null_is_found_even_where_it_stands_for_null_in_hashes() {
    let (stage, id) = things(json!({})).await;
    let stands = [
        ("small", "-2147483648"),
        ("big", "-9223372036854775808"),
        ("real8", "'NaN'"),
        ("scaled", "'NaN'"),
        ("title", "E'\\x1e'"),
        ("ref", "'00000000-0000-0000-0000-000000000000'"),
        ("moment", "'-infinity'"),
        ("clock", "'00:00'"),
        ("doc", "'null'"),
    ];
    for (column, value) in stands {
        stage.db.execute(&format!("update analytics.thing set {column} = {value} where id = 2")).await;
        let compared = stage.reconcile(id, Level::Rows).await;
        assert_eq!(compared.counts(), (0, 0, 1), "{column}");
        stage.db.execute(&format!("update analytics.thing set {column} = null where id = 2")).await;
    }
}

#[tokio::test]
async fn keys_without_ranges_and_keys_of_several_columns_are_compared_too() {
    let stage = Stage::empty().await;
    stage
        .db
        .execute(
            "create schema content; create schema analytics;
             create table content.word (word text, lang text, n int, primary key (word, lang));
             create table analytics.word (word text, lang text, n int, primary key (word, lang));
             insert into content.word select 'слово ' || n, l, n from generate_series(1, 2000) n, unnest('{en,ru}'::text[]) l;
             create table content.vote (film int, person int, n int, primary key (film, person));
             create table analytics.vote (film int, person int, n int, primary key (film, person));
             insert into content.vote select 1 + n / 900, n, n from generate_series(1, 3000) n",
        )
        .await;
    for (name, key) in [("word", "'слово 77'"), ("vote", "1")] {
        let target = format!("analytics.{name}");
        let query = format!("select * from content.{name}");
        let id = stage.pipeline(json!({"name": name, "source_query": query, "target_table": target})).await;
        stage.succeed(id).await;
        assert_eq!(stage.reconcile(id, Level::Hash).await.verdict(), Verdict::Equal);
        let column = if name == "word" { "word" } else { "film" };
        let one =
            format!("{column} = {key} and ctid = (select min(ctid) from {target} where {column} = {key})");
        stage.db.execute(&format!("update {target} set n = -1 where {one}")).await;
        let compared = stage.reconcile(id, Level::Rows).await;
        assert_eq!(compared.counts(), (0, 0, 1));
        assert_eq!(compared.keys(DifferenceKind::Different), [key.trim_matches('\'')]);
        assert_eq!(compared.differences[0].key.as_array().unwrap().len(), 2);
    }
}

#[tokio::test]
async fn of_several_rows_of_a_key_the_newest_is_compared() {
    let stage = Stage::with_films(3).await;
    let query = "select id, title, rating, modified from content.film union all select 2, 'Newer', 1::numeric(3, 1), '2030-01-01'";
    let id = stage
        .pipeline(json!({"source_query": query, "incremental_key": "modified", "incremental_id_key": "id"}))
        .await;
    stage.succeed(id).await;
    let compared = stage.reconcile(id, Level::Rows).await;
    assert_eq!(compared.verdict(), Verdict::Equal, "{:?}", compared.differences);
}

#[tokio::test]
async fn a_null_and_what_stands_for_it_are_not_taken_for_each_other_in_two_columns() {
    let (stage, id) = things(json!({})).await;
    stage
        .db
        .execute(
            "update content.thing set ref = null, clock = '00:00', moment = null where id = 2;
             update analytics.thing set ref = '00000000-0000-0000-0000-000000000000', clock = null, moment = null where id = 2",
        )
        .await;
    assert_eq!(stage.reconcile(id, Level::Rows).await.counts(), (0, 0, 1));
}

#[tokio::test]
async fn a_row_that_the_marts_types_cannot_hold_is_a_reject_and_fails_no_comparison() {
    let stage = Stage::empty().await;
    stage
        .db
        .execute(
            "create schema content; create schema analytics;
             create table content.thing (id int primary key, n bigint);
             create table analytics.thing (id int primary key, n int);
             insert into content.thing values (1, 1), (2, 5000000000), (3, 3)",
        )
        .await;
    let id = stage
        .pipeline(json!({"name": "thing", "source_query": "select * from content.thing", "target_table": "analytics.thing", "reject_limit": 5}))
        .await;
    stage.succeed(id).await;
    for level in [Level::Count, Level::Hash, Level::Rows] {
        let compared = stage.reconcile(id, level).await;
        assert_eq!((compared.verdict(), compared.figures().rejected), (Verdict::Differs, 1), "{level}");
    }
}

#[tokio::test]
async fn rows_that_share_most_of_their_key_are_compared_in_buckets() {
    let stage = Stage::empty().await;
    stage
        .db
        .execute(
            "create schema content; create schema analytics;
             create table content.vote (tenant int, id int, n int, primary key (tenant, id));
             create table analytics.vote (tenant int, id int, n int, primary key (tenant, id));
             insert into content.vote select 1 + (n > 60000)::int, n, n from generate_series(1, 61000) n;
             insert into analytics.vote table content.vote; analyze analytics.vote;
             delete from analytics.vote where id = 500; update analytics.vote set n = 0 where id = 60500",
        )
        .await;
    let id = stage
        .pipeline(json!({"name": "vote", "source_query": "select * from content.vote", "target_table": "analytics.vote"}))
        .await;
    let compared = stage.reconcile(id, Level::Rows).await;
    assert_eq!(compared.counts(), (1, 0, 1));
    assert!(compared.figures().rows_read < 10_000, "{:?}", compared.figures());
}

#[tokio::test]
async fn a_key_that_the_mart_rounds_is_compared_by_checksums_alone() {
    let stage = Stage::empty().await;
    stage
        .db
        .execute(
            "create schema content; create schema analytics;
             create table content.thing (id numeric primary key, n int);
             create table analytics.thing (id numeric primary key, n int);
             insert into content.thing values (1.001, 1), (2.25, 2)",
        )
        .await;
    let id = stage
        .pipeline(json!({"name": "thing", "source_query": "select * from content.thing", "target_table": "analytics.thing"}))
        .await;
    stage.succeed(id).await;
    // No run would write to such a key: it has been altered since.
    stage.db.execute("alter table analytics.thing alter id type numeric(10, 2)").await;
    assert_eq!(stage.reconcile(id, Level::Hash).await.verdict(), Verdict::Differs, "1.001 is not there");
    let reconcile = stage.request_reconcile(id, Level::Rows).await;
    stage.work_off(stage.settings("tester")).await;
    let record = stage.store.reconcile(reconcile).await.unwrap().unwrap();
    assert_eq!(record.error_code.as_deref(), Some("reconcile.rounded_key"));
}
