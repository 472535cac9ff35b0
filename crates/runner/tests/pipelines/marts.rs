//! What a mart may look like, and what is refused before the first row is read.

use rstest::rstest;
use serde_json::json;
use vitrina_testbed::eventually;

use crate::stage::Stage;

#[tokio::test]
async fn generated_and_identity_columns_and_defaults_are_the_databases() {
    let stage = Stage::with_films(10).await;
    stage
        .db
        .execute(
            "alter table analytics.film add n bigint generated always as identity, add loud text generated always as (upper(title)) stored,
                 add colour text not null default 'blue'",
        )
        .await;
    let id = stage.full(4).await;
    stage.succeed(id).await;
    stage.db.execute("update analytics.film set colour = 'red' where id = 3; update content.film set title = 'New' where id = 3").await;
    stage.succeed(id).await;
    let of = async |film: i32| -> String {
        stage.db.value(&format!("select loud || ' ' || colour from analytics.film where id = {film}")).await
    };
    assert_eq!(of(3).await, "NEW red", "what the query does not return is kept");
    assert_eq!(of(4).await, "FILM 4 blue");
}

#[rstest]
#[case::a_column_that_must_be_filled(
    "alter table analytics.film add owner text not null",
    "sink.missing_column",
    "owner"
)]
#[case::a_table_that_others_inherit_from(
    "create table analytics.film_of_others () inherits (analytics.film)",
    "sink.inherited",
    "no inherit"
)]
#[case::a_column_the_database_computes(
    "alter table analytics.film drop title, add title text generated always as ('x') stored",
    "sink.computed_column",
    "leave it out"
)]
#[case::no_unique_index(
    "alter table analytics.film drop constraint film_pkey",
    "sink.no_unique_key",
    "create unique index"
)]
#[case::a_partial_unique_index(
    "alter table analytics.film drop constraint film_pkey; create unique index on analytics.film (id) where id > 0",
    "sink.no_unique_key",
    "create unique index"
)]
#[tokio::test]
async fn a_mart_that_cannot_take_the_rows_is_refused_before_the_first_one(
    #[case] change: &str,
    #[case] code: &str,
    #[case] says: &str,
) {
    let stage = Stage::with_films(10).await;
    stage.db.execute(change).await;
    let id = stage.full(4).await;
    let (given, message) = stage.fail(id).await;
    assert_eq!(given, code, "{message}");
    assert!(message.contains(says), "{message}");
    assert_eq!(stage.count("etl.etl_batches").await, 0);
}

#[tokio::test]
async fn a_new_column_of_the_query_is_reported_with_the_statement_that_adds_it() {
    let stage = Stage::with_films(3).await;
    let id = stage
        .pipeline(json!({"source_query": "select id, title, 1.5::numeric(4,2) as score from content.film"}))
        .await;
    let (code, message) = stage.fail(id).await;
    assert_eq!(code, "sink.extra_column");
    assert!(message.contains("alter table analytics.film add column \"score\" numeric(4,2)"), "{message}");
    let columns: i64 = stage.db.value("select count(*) from information_schema.columns where table_name = 'film' and column_name = 'score'").await;
    assert_eq!(columns, 0, "nothing is altered in silence");
}

#[tokio::test]
async fn a_mart_that_does_not_exist_is_created_from_the_query_where_its_target_says_so() {
    let stage = Stage::with_films(10).await;
    stage
        .db
        .execute(
            "create type content.mood as enum ('sad', 'glad');
             insert into etl.etl_targets (name, key, touch_column, create_if_missing) values ('analytics.made', '{id}', 'written_at', true)",
        )
        .await;
    let query = "select id, title, rating, modified, array['a', title] as tags, 'glad'::content.mood as mood, '{}'::jsonb as data from content.film";
    let id = stage.pipeline(json!({"source_query": query, "target_table": "analytics.made"})).await;
    assert_eq!(stage.succeed(id).await.rows_written, 10);
    let columns: String = stage
        .db
        .value(
            "select string_agg(attname || ' ' || format_type(atttypid, atttypmod), ', ' order by attnum) from pg_attribute
              where attrelid = 'analytics.made'::regclass and attnum > 0",
        )
        .await;
    assert_eq!(
        columns,
        "id integer, title text, rating numeric(3,1), modified timestamp with time zone, tags text[], mood text, data jsonb, \
         written_at timestamp with time zone"
    );
    assert_eq!(stage.succeed(id).await.rows_unchanged, 10);
}

#[tokio::test]
async fn the_first_mart_of_a_schema_brings_it_along_though_another_makes_it_at_the_same_time() {
    let stage = Stage::with_films(10).await;
    let targets = "drop schema analytics cascade;
                   insert into etl.etl_targets (name, key, create_if_missing) values ('analytics.one', '{id}', true)";
    stage.db.execute(targets).await;
    let other = stage.db.client().await;
    other.batch_execute("begin; create schema analytics").await.unwrap();
    let id = stage.pipeline(json!({"target_table": "analytics.one"})).await;
    let waiting = "select count(*) from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock'";
    let commit = async {
        eventually("the run waits", async || (stage.db.value::<i64>(waiting).await > 0).then_some(())).await;
        other.batch_execute("commit").await.unwrap();
    };
    let (run, ()) = tokio::join!(stage.succeed(id), commit);
    assert_eq!(run.rows_written, 10);
}

#[tokio::test]
async fn a_mart_is_not_created_without_a_key_or_against_its_description() {
    let stage = Stage::with_films(10).await;
    let described = "insert into etl.etl_targets (name, create_if_missing) values ('analytics.made', false)";
    stage.db.execute(described).await;
    let id = stage.pipeline(json!({"target_table": "analytics.made"})).await;
    let (code, message) = stage.fail(id).await;
    assert_eq!(code, "sink.no_table");
    assert!(message.contains("create_if_missing"), "{message}");
    let twice = "select a.id, a.title from content.film a, content.film b";
    let id = stage
        .pipeline(json!({"name": "twice", "target_table": "analytics.twice", "source_query": twice}))
        .await;
    let (code, message) = stage.fail(id).await;
    assert_eq!(code, "sink.create_key");
    assert!(message.contains("key: [id]") && message.contains("PUT /targets/analytics.twice"), "{message}");
    assert!(stage.db.value::<bool>("select to_regclass('analytics.twice') is null").await);
}

#[rstest]
#[case::a_primary_key("select title, id as film_id from content.film where id > 0", "full", &["film_id"])]
#[case::groups("select r.rating, count(*) as films from content.film r group by rating", "full", &["rating"])]
#[case::groups_by_place("select length(title) as letters, count(*) as films from content.film group by 1", "full", &["letters"])]
#[case::a_cursor("select id, title, modified from content.film", "incremental", &["id"])]
#[tokio::test]
async fn a_mart_that_nobody_described_is_created_with_the_key_that_its_query_proves(
    #[case] query: &str,
    #[case] mode: &str,
    #[case] key: &[&str],
) {
    let stage = Stage::with_films(10).await;
    let by = json!({"target_table": "analytics.made", "source_query": query, "mode": mode});
    let mut by = by.as_object().unwrap().clone();
    if mode == "incremental" {
        by.extend([
            ("incremental_key".to_owned(), json!("modified")),
            ("incremental_id_key".to_owned(), json!("id")),
        ]);
    }
    let id = stage.pipeline(json!(by)).await;
    assert!(stage.succeed(id).await.rows_written > 0);
    let made = "select array(select a.attname::text from pg_index i, unnest(i.indkey) k, pg_attribute a
                  where i.indrelid = 'analytics.made'::regclass and i.indisprimary and a.attrelid = i.indrelid and a.attnum = k)";
    assert_eq!(stage.db.value::<Vec<String>>(made).await, key);
    let again = stage.succeed(id).await;
    assert_eq!(
        (again.rows_written, again.rows_deleted),
        (0, 0),
        "the second run finds its mart as it left it"
    );
}

#[tokio::test]
async fn a_name_that_a_view_has_is_told_as_that() {
    let stage = Stage::with_films(3).await;
    stage.db.execute("create view analytics.made as select 1 as id").await;
    let id = stage.pipeline(json!({"target_table": "analytics.made"})).await;
    let (code, message) = stage.fail(id).await;
    assert!(code == "sink.not_a_table" && message.contains("is a view"), "{code} {message}");
}

#[tokio::test]
async fn a_mart_that_nobody_described_is_loaded_anew_where_it_was_dropped() {
    let stage = Stage::with_films(10).await;
    let by = json!({"target_table": "analytics.made", "mode": "incremental", "incremental_key": "modified", "incremental_id_key": "id"});
    let id = stage.pipeline(by).await;
    assert_eq!(stage.succeed(id).await.rows_written, 10);
    stage.db.execute("drop table analytics.made").await;
    assert_eq!(stage.succeed(id).await.rows_written, 10, "the checkpoint says nothing of a mart that is new");
    assert_eq!(stage.count("analytics.made").await, 10);
}

#[tokio::test]
async fn a_partitioned_mart_is_written_like_any_other() {
    let stage = Stage::empty().await;
    stage
        .db
        .execute(
            "create schema content; create schema analytics;
             create table content.film (id int primary key, title text); insert into content.film select n, 'Film ' || n from generate_series(1, 40) n;
             create table analytics.film (id int primary key, title text) partition by range (id);
             create table analytics.film_low partition of analytics.film for values from (0) to (20);
             create table analytics.film_high partition of analytics.film default",
        )
        .await;
    let id =
        stage.pipeline(json!({"source_query": "select id, title from content.film", "batch_size": 15})).await;
    assert_eq!(stage.succeed(id).await.rows_written, 40);
    stage.db.execute("update content.film set title = 'New' where id in (3, 33); delete from content.film where id = 25").await;
    let run = stage.succeed(id).await;
    assert_eq!((run.rows_written, run.rows_deleted), (2, 1));
}

#[tokio::test]
async fn a_mart_that_was_dropped_and_is_made_again_gets_every_row() {
    let stage = Stage::with_films(30).await;
    stage.db.execute("update etl.etl_targets set create_if_missing = true, touch_column = null; drop table analytics.film").await;
    let id = stage.incremental(10).await;
    stage.succeed(id).await;
    stage
        .db
        .execute(
            "drop table analytics.film; update content.film set title = 'New', modified = now() where id = 3",
        )
        .await;
    stage.succeed(id).await;
    assert_eq!((stage.count("analytics.film").await, stage.differences().await), (30, 0));
    stage.add_films(31, 32).await;
    assert!(stage.succeed(id).await.rows_read < 30);
}
