//! The demo's own steps on the product's real schema `etl`: initial data, the document's queries, both marts.
#![expect(clippy::unwrap_used, reason = "verbs of tests may fail as loudly as tests")]

use std::path::Path;

use vitrina_cinema::{DEMO_PIPELINES, Error, MartCheck, init_demo_data, migrate, seed, verify};
use vitrina_testbed::Database;

/// Sections 5 to 7 of the demo document, word for word, in its order. Only 6.2 leaves its query open: the one on
/// `film_rating_agg` stands for it.
const DOCUMENT: [&str; 9] = [
    "SET search_path TO content;

SELECT id, title, rating
FROM film_work
ORDER BY title
LIMIT 5;",
    "SET search_path TO ugc;

SELECT film_id, rating
FROM ratings
ORDER BY film_id
LIMIT 5;",
    "SET search_path TO public;

SELECT
    fw.title,
    r.rating
FROM ugc.ratings r
JOIN content.film_work fw ON fw.id = r.film_id
ORDER BY fw.title
LIMIT 5;",
    "SET search_path TO analytics;

SELECT film_id, title, rating
FROM film_dim
ORDER BY title
LIMIT 5;",
    "INSERT INTO film_dim (film_id, title, rating, updated_at)
SELECT
    fw.id,
    fw.title,
    fw.rating,
    NOW()
FROM content.film_work fw
ON CONFLICT (film_id) DO UPDATE
SET
    title      = EXCLUDED.title,
    rating     = EXCLUDED.rating,
    updated_at = NOW();",
    "SELECT film_id, title, rating
FROM film_dim
ORDER BY title
LIMIT 5;",
    "SELECT film_id, avg_rating, rating_count
FROM film_rating_agg
ORDER BY film_id
LIMIT 5;",
    "SET search_path TO etl;

SELECT id, name, status
FROM etl_pipelines;",
    "SELECT id, name, source_query, target_table, mode, batch_size, enabled, status
FROM etl_pipelines;",
];

/// A cinema with the product's schema beside it, as `make migrate-db` leaves them.
async fn migrated() -> Database {
    let database = Database::fresh().await;
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../crates/store/migrations");
    let mut files: Vec<_> = folder.read_dir().unwrap().map(|entry| entry.unwrap().path()).collect();
    files.sort();
    database.execute("create schema etl").await;
    for file in files {
        database.execute(&std::fs::read_to_string(file).unwrap()).await;
    }
    migrate(database.url()).await.unwrap();
    database
}

async fn small_demo() -> Database {
    let database = migrated().await;
    seed(database.url(), 300, 2000).await.unwrap();
    init_demo_data(database.url()).await.unwrap();
    database
}

/// Fills both marts with what their pipelines' queries return.
async fn fill_marts(database: &Database) {
    for row in database.texts("select target_table, source_query from etl.etl_pipelines").await {
        let (target, query) = (row[0].as_deref().unwrap(), row[1].as_deref().unwrap());
        let columns = match target {
            "analytics.film_dim" => {
                "film_id, title, description, rating, type, genres, directors, actors, writers"
            }
            _ => "film_id, avg_rating, rating_count",
        };
        database.execute(&format!("insert into {target} ({columns}) {query}")).await;
    }
}

#[tokio::test]
async fn the_demo_starts_with_its_size_and_exactly_two_idle_pipelines() {
    let database = migrated().await;
    init_demo_data(database.url()).await.unwrap();
    init_demo_data(database.url()).await.unwrap();
    let pipelines = database.texts("select id, name, status from etl.etl_pipelines order by id").await;
    let expected = [
        ["11111111-1111-1111-1111-111111111111", "film_dim_full", "IDLE"],
        ["22222222-2222-2222-2222-222222222222", "film_rating_agg_full", "IDLE"],
    ];
    assert_eq!(pipelines, expected.map(|row| row.map(|cell| Some(cell.to_owned())).to_vec()));
    assert_eq!(expected.map(|row| row[1]), DEMO_PIPELINES);
    assert_eq!(database.value::<i64>("select count(*) from content.film_work").await, 5000);
    assert_eq!(database.value::<i64>("select count(*) from ugc.ratings").await, 50_000);
}

#[tokio::test]
async fn a_cinema_with_films_keeps_its_size() {
    let database = small_demo().await;
    assert_eq!(database.value::<i64>("select count(*) from content.film_work").await, 300);
}

#[tokio::test]
async fn every_query_of_the_demo_document_runs_unchanged() {
    let database = small_demo().await;
    for statement in DOCUMENT {
        database.execute(statement).await;
    }
    let first = database.texts(DOCUMENT[0]).await;
    assert!(first.iter().all(|film| film[1].as_deref().unwrap().starts_with("Star ")), "{first:?}");
    database.execute("reset search_path").await;
}

#[tokio::test]
async fn marts_equal_to_their_source_are_called_equal() {
    let database = small_demo().await;
    fill_marts(&database).await;
    let checks = verify(database.url()).await.unwrap();
    assert_eq!(
        checks.iter().map(|check| check.mart.as_str()).collect::<Vec<_>>(),
        ["analytics.film_dim", "analytics.film_rating_agg"]
    );
    assert!(checks.iter().all(|check| check.is_equal() && check.rows > 0), "{checks:?}");
}

#[tokio::test]
async fn missing_extra_and_different_rows_are_told_apart() {
    let database = small_demo().await;
    fill_marts(&database).await;
    let first = "(select film_id from analytics.film_dim order by 1 limit 1)";
    let last = "(select film_id from analytics.film_dim order by 1 desc limit 1)";
    database.execute(&format!("delete from analytics.film_dim where film_id = {first}")).await;
    database
        .execute("insert into analytics.film_dim (film_id) values ('00000000-0000-0000-0000-000000000000')")
        .await;
    database.execute(&format!("update content.film_work set description = 'x' where id = {last}")).await;
    let film_dim = &verify(database.url()).await.unwrap()[0];
    let mart = "analytics.film_dim".to_owned();
    assert_eq!(*film_dim, MartCheck { mart, rows: 300, missing: 1, extra: 1, different: 1 });
}

#[tokio::test]
async fn an_average_of_ten_fits() {
    let database = small_demo().await;
    fill_marts(&database).await;
    let highest = "select max(avg_rating)::text from analytics.film_rating_agg";
    assert_eq!(database.value::<String>(highest).await, "10.00");
}

#[tokio::test]
async fn verify_names_a_pipeline_that_is_not_installed() {
    let database = migrated().await;
    let error = verify(database.url()).await.unwrap_err();
    assert!(matches!(error, Error::NotInstalled { name: "film_dim_full" }), "{error:?}");
}

#[tokio::test]
async fn schemas_of_another_release_are_told_with_the_way_out() {
    let database = small_demo().await;
    database.execute("update cinema.migrations set checksum = '\\x00' where version = 5").await;
    let error = migrate(database.url()).await.unwrap_err().to_string();
    assert!(error.contains("another release") && error.contains("vitrina demo --clean"), "{error}");
}
