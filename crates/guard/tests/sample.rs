//! Samples of queries, bounded whatever the query is like.

use std::time::{Duration, Instant};

use tokio_postgres::Client;
use vitrina_core::values::masked;
use vitrina_guard::{DescribeError, Sample, SampleLimits, check_plan, sample};
use vitrina_testbed::Database;

async fn cinema() -> (Database, Client) {
    let database = Database::fresh().await;
    database
        .execute(
            "create schema content; create sequence content.visits;
             create table content.film (id int, title text, tags text[], at timestamptz);
             insert into content.film select n, case when n % 2 = 0 then 'Film ' || n end, array['a', 'b'], '2024-01-01 03:00+03'
               from generate_series(1, 250) n",
        )
        .await;
    let client = database.client().await;
    (database, client)
}

async fn sampled(client: &Client, sql: &str) -> Sample {
    sample(client, sql, &SampleLimits::default()).await.expect("a sample")
}

#[tokio::test(flavor = "multi_thread")]
async fn a_sample_shows_texts_nulls_and_types() {
    let (_database, client) = cinema().await;
    let sql =
        "select id, title, tags, at, '\\x01ff'::bytea as b from content.film order by id limit 2 -- two";
    let Sample { columns, rows, has_more, is_cut } = sampled(&client, sql).await;
    let types: Vec<&str> = columns.iter().map(|column| column.type_name.as_str()).collect();
    assert_eq!(types, ["int4", "text", "_text", "timestamptz", "bytea"]);
    let row = |id: &str, title: Option<&str>| {
        [Some(id), title, Some("{a,b}"), Some("2024-01-01 00:00:00+00"), Some("\\x01ff")]
            .map(|text| text.map(str::to_owned))
            .to_vec()
    };
    assert_eq!(rows, [row("1", None), row("2", Some("Film 2"))]);
    assert!(!has_more && !is_cut);
    assert_eq!(
        sampled(&client, "select from content.film").await.rows.len(),
        100,
        "no columns are no trouble"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_sample_ends_at_its_limits_of_rows_bytes_and_characters() {
    let (_database, client) = cinema().await;
    let films = sampled(&client, "select id from content.film").await;
    assert_eq!((films.rows.len(), films.has_more, films.is_cut), (100, true, false));
    let wide = sampled(&client, "select repeat('ж', 5000) as x from content.film").await;
    assert_eq!((wide.rows[0][0].as_ref().unwrap().chars().count(), wide.is_cut), (4097, true));
    let many: Vec<String> = (0..1600).map(|n| format!("repeat('x', 5000) as c{n}")).collect();
    let many = sampled(&client, &format!("select {}", many.join(", "))).await;
    let bytes: usize = many.rows.iter().flatten().flatten().map(String::len).sum();
    assert!(many.rows.len() == 1 && bytes <= 1024 * 1024, "{bytes}");
    let tall = sampled(
        &client,
        "select repeat('x', 4000) as a, repeat('y', 4000) as b, repeat('z', 4000) as c from content.film",
    )
    .await;
    let bytes: usize = tall.rows.iter().flatten().flatten().map(String::len).sum();
    assert!(tall.has_more && bytes <= 1024 * 1024 && bytes > 1000 * 1024, "{bytes}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_huge_value_stays_at_the_source() {
    let (_database, client) = cinema().await;
    let huge = sampled(&client, "select repeat('x', 300000000) as x").await;
    assert_eq!((huge.rows[0][0].as_ref().unwrap().len(), huge.is_cut), (4096 + '…'.len_utf8(), true));
    let refused = sample(&client, "select repeat('x', 2000000000) as x", &SampleLimits::default()).await;
    let Err(DescribeError::Sql(findings)) = refused else { panic!("{refused:?}") };
    assert_eq!(findings[0].code, "sql.refused_by_source");
    let planned =
        check_plan(&client, "select repeat('x', 300000000) as x", &["content".to_owned()], None).await;
    assert_eq!(planned.unwrap()[0].code, "sql.unchecked", "nor does a plan bring it");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_query_without_end_is_a_finding_and_not_an_error() {
    let (_database, client) = cinema().await;
    let limits = SampleLimits { timeout: Duration::from_millis(300), ..SampleLimits::default() };
    for bomb in [
        "with recursive n as (select 1 as i union all select (i + 1) % 1000 from n) select count(*) as x from n",
        "select count(*) as x from generate_series(1, 10000000000) n",
        "select count(*) as x from content.film a, content.film b, content.film c, content.film d",
        "select max(repeat('x', 100000000)) as x from generate_series(1, 1000) n group by n % 1000",
    ] {
        let started = Instant::now();
        let refused = sample(&client, bomb, &limits).await;
        let Err(DescribeError::Sql(findings)) = refused else { panic!("{bomb}: {refused:?}") };
        assert_eq!(findings[0].code, "sql.too_slow", "{bomb}");
        assert!(started.elapsed() < Duration::from_secs(5), "{bomb}: {:?}", started.elapsed());
    }
    assert_eq!(sampled(&client, "select 1 as one").await.rows.len(), 1, "the session goes on");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_sample_of_an_endless_query_is_its_first_rows() {
    let (_database, client) = cinema().await;
    let endless = "with recursive n as (select 1 as i union all select i + 1 from n) select i from n";
    assert_eq!(sampled(&client, endless).await.rows.len(), 100);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_sample_changes_nothing_even_where_nobody_has_checked_the_query() {
    let (database, client) = cinema().await;
    for attack in [
        "select nextval('content.visits') as x",
        "select set_config('statement_timeout', '0', false) as x",
        "select 1 as x) q; delete from content.film; select * from (select 1 as x",
        "select 1 as x; delete from content.film",
    ] {
        drop(sample(&client, attack, &SampleLimits::default()).await);
    }
    assert_eq!(database.value::<i64>("select count(*) from content.film").await, 250);
    assert!(!database.value::<bool>("select is_called from content.visits").await);
    let timeout: String = client.query_one("show statement_timeout", &[]).await.unwrap().get(0);
    assert_eq!(timeout, "0");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_row_raises_is_told_without_its_values() {
    let (database, client) = cinema().await;
    database.execute("update content.film set title = '4111-1111' where id = 7").await;
    let refused =
        sample(&client, "select title::int as x from content.film where id = 7", &SampleLimits::default())
            .await;
    let Err(DescribeError::Sql(findings)) = refused else { panic!("{refused:?}") };
    let told = masked(&findings[0].message);
    assert_eq!(told, "invalid input syntax for type integer: \"…\"");
}
