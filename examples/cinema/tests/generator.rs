//! The generator: exact sizes, the same rows everywhere, nothing changed by a second call.
#![expect(clippy::unwrap_used, reason = "verbs of tests may fail as loudly as tests")]

use vitrina_cinema::{migrate, seed};
use vitrina_testbed::Database;

async fn seeded(films: u32, ratings: u32) -> Database {
    let database = Database::fresh().await;
    migrate(database.url()).await.unwrap();
    seed(database.url(), films, ratings).await.unwrap();
    database
}

/// Rows and a checksum of every table that the generator fills.
async fn contents(database: &Database) -> Vec<Vec<Option<String>>> {
    let tables = "content.film_work content.genre content.person content.genre_film_work content.person_film_work \
                  ugc.ratings ugc.likes ugc.reviews ugc.views auth.users";
    let checksums: Vec<_> = tables
        .split(' ')
        .map(|table| {
            format!("select '{table}', count(*), md5(string_agg(t::text, '|' order by id)) from {table} t")
        })
        .collect();
    database.texts(&checksums.join(" union all ")).await
}

async fn count(database: &Database, rows: &str) -> i64 {
    database.value(&format!("select count(*) from {rows}")).await
}

#[tokio::test]
async fn migrations_apply_twice() {
    let database = Database::fresh().await;
    migrate(database.url()).await.unwrap();
    migrate(database.url()).await.unwrap();
    let schemas = "pg_namespace where nspname in ('content', 'ugc', 'auth', 'analytics')";
    assert_eq!(count(&database, schemas).await, 4);
    assert_eq!(
        database.value::<Option<String>>("select to_regclass('public._sqlx_migrations')::text").await,
        None
    );
}

#[tokio::test]
async fn two_databases_seeded_alike_are_equal() {
    let (one, other) = (seeded(600, 4000).await, seeded(600, 4000).await);
    assert_eq!(contents(&one).await, contents(&other).await);
}

#[tokio::test]
async fn seeding_twice_changes_nothing() {
    let database = seeded(600, 4000).await;
    let before = contents(&database).await;
    seed(database.url(), 600, 4000).await.unwrap();
    assert_eq!(contents(&database).await, before);
}

#[tokio::test]
async fn a_larger_seed_extends_a_smaller_one_to_the_same_rows() {
    let grown = seeded(10, 30).await;
    seed(grown.url(), 100, 500).await.unwrap();
    seed(grown.url(), 600, 4000).await.unwrap();
    assert_eq!(contents(&grown).await, contents(&seeded(600, 4000).await).await);
}

#[tokio::test]
async fn sizes_are_exact_down_to_nothing() {
    for (films, ratings) in [(5000, 50_000), (1, 3), (7, 0), (0, 0)] {
        let database = seeded(films, ratings).await;
        assert_eq!(count(&database, "content.film_work").await, i64::from(films));
        assert_eq!(count(&database, "ugc.ratings").await, i64::from(ratings));
    }
}

#[tokio::test]
async fn seeding_leaves_every_key_and_index_in_place() {
    let definitions = "select pg_get_indexdef(indexrelid) from pg_index
                        where indrelid::regclass::text ~ '^(content|ugc)' order by 1";
    let constraints = "select conrelid::regclass, conname, pg_get_constraintdef(oid) from pg_constraint
                        where conrelid::regclass::text ~ '^(content|ugc)' order by 1, 2";
    let (empty, full) = (Database::fresh().await, seeded(100, 500).await);
    migrate(empty.url()).await.unwrap();
    assert_eq!(empty.texts(definitions).await, full.texts(definitions).await);
    assert_eq!(empty.texts(constraints).await, full.texts(constraints).await);
}

#[tokio::test]
async fn the_data_is_as_uneven_as_real_data() {
    let database = seeded(2000, 10_000).await;
    for rows in [
        "content.film_work where description is null",
        "content.film_work where rating is null",
        "content.film_work where title ~ '[а-я]'",
        "content.film_work f where not exists (select from ugc.ratings r where r.film_id = f.id)",
        "content.genre_film_work",
        "ugc.likes where not liked",
        "ugc.reviews",
        "ugc.views",
        "auth.users",
    ] {
        assert!(count(&database, rows).await > 0, "no row in {rows}");
    }
    let strays = "ugc.ratings r where not exists (select from content.film_work f where f.id = r.film_id)
                  or not exists (select from auth.users u where u.id = r.user_id)";
    assert_eq!(count(&database, strays).await, 0);
    let genres = "(select count(*) n from content.genre_film_work group by film_work_id) g where n not between 1 and 3";
    assert_eq!(count(&database, genres).await, 0);
}

#[tokio::test]
async fn an_update_stamps_its_row_unless_it_brings_a_stamp() {
    let database = seeded(2, 0).await;
    database.execute("update content.film_work set title = title || '!'").await;
    assert_eq!(count(&database, "content.film_work where modified > '2026-01-01'").await, 2);
    database.execute("update content.film_work set modified = '2020-02-02'").await;
    assert_eq!(count(&database, "content.film_work where modified = '2020-02-02'").await, 2);
}
