//! Plans in a few figures, by the planner of a real source.

use tokio_postgres::Client;
use vitrina_guard::{Pass, summary};
use vitrina_testbed::Database;

async fn cinema() -> (Database, Client) {
    let database = Database::fresh().await;
    database
        .execute(
            "create schema content;
             create table content.film (id int primary key, title text, \"order\" int, modified timestamptz not null default now());
             insert into content.film select n, 'Film ' || n, n from generate_series(1, 120000) n;
             create table content.genre (id int primary key, name text);
             analyze",
        )
        .await;
    let client = database.client().await;
    (database, client)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_plan_tells_rows_cost_and_the_large_tables_that_are_read_whole() {
    let (_database, client) = cinema().await;
    let whole = summary(&client, "select id, title from content.film; -- all", None).await.unwrap().unwrap();
    assert!(whole.rows > 100_000 && whole.cost > 1000.0, "{whole:?}");
    let [scan] = &whole.scans[..] else { panic!("{whole:?}") };
    assert_eq!(
        (scan.table.as_str(), scan.way.as_str(), scan.is_costly()),
        ("content.film", "Seq Scan", true)
    );
    let one = summary(&client, "select title from content.film where id = 7", None).await.unwrap().unwrap();
    assert_eq!((one.scans[0].index.as_deref(), one.scans[0].is_costly()), (Some("film_pkey"), false));
    let small = summary(&client, "select * from content.genre g join content.film f using (id)", None).await;
    let small = small.unwrap().unwrap();
    let genre = small.scans.iter().find(|scan| scan.table == "content.genre").unwrap();
    assert!(!genre.is_costly(), "an empty table is no matter");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_plan_of_a_pass_tells_whether_the_index_of_its_cursor_serves_it() {
    let (database, client) = cinema().await;
    let sql = "select id, title, modified, \"order\" from content.film";
    let pass = Pass { table: Some("content.film"), cursor: &["modified", "id"] };
    let before = summary(&client, sql, Some(&pass)).await.unwrap().unwrap();
    assert!(before.scans[0].is_costly(), "{before:?}");
    database.execute("create index film_modified on content.film (modified, id)").await;
    let after = summary(&client, sql, Some(&pass)).await.unwrap().unwrap();
    assert_eq!(after.scans[0].index.as_deref(), Some("film_modified"), "{after:?}");
    let named = Pass { table: None, cursor: &["order"] };
    assert!(
        summary(&client, sql, Some(&named)).await.unwrap().unwrap().rows > 0,
        "whatever a column is called"
    );
}
