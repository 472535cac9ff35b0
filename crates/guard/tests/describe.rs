//! Describing queries at a real source.

use tokio_postgres::Client;
use vitrina_guard::{DescribeError, DescribedColumn, Finding, From, describe, estimate};
use vitrina_testbed::Database;

async fn cinema() -> (Database, Client) {
    let database = Database::fresh().await;
    database
        .execute(
            "create schema content;
             create table content.film_work (id uuid primary key, title text, rating numeric(3, 1));
             create sequence content.visits;",
        )
        .await;
    let client = database.client().await;
    (database, client)
}

async fn refusals(client: &Client, sql: &str) -> Vec<Finding> {
    match describe(client, sql).await {
        Err(DescribeError::Sql(findings)) => findings,
        other => panic!("{sql}: {other:?}"),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_described_query_tells_its_columns() {
    let (_database, client) = cinema().await;
    let columns =
        describe(&client, "select id, title, rating * 2 as double from content.film_work; -- all").await;
    let columns = columns.unwrap();
    let told = |column: &DescribedColumn| (column.name.clone(), column.type_oid, column.type_name.clone());
    let column = |name: &str, oid: u32, kind: &str| (name.to_owned(), oid, kind.to_owned());
    assert_eq!(
        columns.iter().map(told).collect::<Vec<_>>(),
        [column("id", 2950, "uuid"), column("title", 25, "text"), column("double", 1700, "numeric")]
    );
    let plain: Vec<bool> = columns.iter().map(|column| column.origin.is_some()).collect();
    assert_eq!(plain, [true, true, false], "which of them are columns of a table");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_described_query_is_not_run_and_leaves_no_transaction() {
    let (database, client) = cinema().await;
    describe(&client, "select pg_catalog.nextval('content.visits') as visit, 1 / 0 as never").await.unwrap();
    assert!(!database.value::<bool>("select is_called from content.visits").await);
    client.batch_execute("create table content.after (id int)").await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_refusal_of_the_source_points_into_the_query() {
    let (_database, client) = cinema().await;
    let findings = refusals(&client, "select 'жанр' as genre,\n  titel from content.film_work").await;
    let [finding] = findings.as_slice() else { panic!("{findings:?}") };
    assert_eq!((finding.code, finding.line, finding.column), ("sql.refused_by_source", 2, 3));
    assert!(finding.message.contains("titel"), "{finding}");
    assert!(describe(&client, "select 1 as one").await.is_ok(), "the session goes on");
}

#[tokio::test(flavor = "multi_thread")]
async fn every_duplicate_column_is_reported_once() {
    let (_database, client) = cinema().await;
    let findings = refusals(&client, "select 1 as a, 2 as b, 3 as a, 4 as a, 5 as c, 6 as b").await;
    let messages: Vec<_> = findings.iter().map(|finding| (finding.code, finding.message.as_str())).collect();
    assert_eq!(
        messages,
        [
            ("sql.duplicate_column", "two columns are called a"),
            ("sql.duplicate_column", "two columns are called b")
        ]
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn unqualified_names_are_not_found_through_the_role_s_search_path() {
    let (_database, client) = cinema().await;
    client.batch_execute("set search_path = content").await.unwrap();
    let findings = refusals(&client, "select * from film_work").await;
    assert_eq!(findings[0].code, "sql.refused_by_source");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_locked_table_is_not_the_query_s_fault() {
    let (database, client) = cinema().await;
    let migration = database.client().await;
    migration.batch_execute("begin; lock table content.film_work in access exclusive mode").await.unwrap();
    let described = describe(&client, "select * from content.film_work").await;
    assert!(matches!(described, Err(DescribeError::Source(_))), "{described:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_planner_is_asked_for_rows_and_nothing_is_run() {
    let (database, client) = cinema().await;
    database
        .execute(
            "insert into content.film_work select gen_random_uuid(), 'Film', n % 100 / 10.0 from generate_series(1, 1000) n;
             analyze content.film_work",
        )
        .await;
    let sql = "select id, rating as \"Rating\" from content.film_work;";
    assert_eq!(estimate(&client, sql, None).await.unwrap(), Some(1000));
    let from = From { column: "Rating", value: "5.0" };
    let rows = estimate(&client, sql, Some(from)).await.unwrap().unwrap();
    assert!((400..600).contains(&rows), "{rows}");
    let from = From { column: "Rating", value: "1' or true --" };
    assert!(estimate(&client, sql, Some(from)).await.is_err());
}
