use serde_json::json;

use crate::stage::Stage;

#[tokio::test]
async fn a_full_load_fills_the_mart_batch_by_batch() {
    let stage = Stage::with_films(100).await;
    let id = stage.full(7).await;
    let run = stage.succeed(id).await;
    assert_eq!((run.rows_read, run.rows_written, run.batches), (100, 100, 15));
    assert!(run.bytes > 0 && run.started_at.is_some() && run.finished_at.is_some());
    assert_eq!(stage.differences().await, 0);
    assert_eq!(stage.count("etl.etl_batches").await, 15);
}

#[tokio::test]
async fn a_batch_size_that_divides_the_rows_loses_nothing_at_the_end() {
    let stage = Stage::with_films(20).await;
    stage.db.execute("insert into analytics.film (id, title) values (21, 'vanished')").await;
    let id = stage.pipeline(json!({"batch_size": 10, "delete_limit": 1})).await;
    let run = stage.succeed(id).await;
    assert_eq!((run.rows_read, run.rows_deleted), (20, 1));
    assert_eq!(stage.differences().await, 0);
}

#[tokio::test]
async fn a_second_load_rewrites_only_what_differs_and_deletes_what_vanished() {
    let stage = Stage::with_films(50).await;
    let id = stage.full(8).await;
    stage.succeed(id).await;
    let touched: String = stage.db.value("select max(updated_at)::text from analytics.film").await;
    stage.db.execute("update content.film set title = 'New' where id = 9; delete from content.film where id in (1, 25, 50)").await;
    let run = stage.succeed(id).await;
    assert_eq!((run.rows_read, run.rows_written, run.rows_unchanged, run.rows_deleted), (47, 1, 46, 3));
    assert_eq!(stage.differences().await, 0);
    let moved: i64 =
        stage.db.value(&format!("select count(*) from analytics.film where updated_at > '{touched}'")).await;
    assert_eq!(moved, 1, "the touch column moves only on rows that changed");
}

#[tokio::test]
async fn a_numeric_that_differs_only_in_its_scale_is_rewritten() {
    let stage = Stage::with_films(1).await;
    stage.db.execute("alter table content.film alter rating type numeric; alter table analytics.film alter rating type numeric").await;
    let id = stage.full(10).await;
    stage.db.execute("update content.film set rating = 1.0").await;
    stage.succeed(id).await;
    stage.db.execute("update content.film set rating = 1.00").await;
    assert_eq!(stage.succeed(id).await.rows_written, 1);
    assert_eq!(stage.db.value::<String>("select rating::text from analytics.film").await, "1.00");
}

#[tokio::test]
async fn a_source_without_any_rows_never_empties_the_mart() {
    let stage = Stage::with_films(10).await;
    let id = stage.full(100).await;
    stage.succeed(id).await;
    stage.db.execute("delete from content.film; update etl.etl_pipelines set delete_limit = 1").await;
    let (code, message) = stage.fail(id).await;
    assert_eq!(code, "sink.source_empty");
    assert!(message.contains("hint: nothing was deleted"), "{message}");
    assert_eq!(stage.count("analytics.film").await, 10);
}

#[tokio::test]
async fn an_empty_source_into_an_empty_mart_is_a_success() {
    let stage = Stage::with_films(0).await;
    let id = stage.full(100).await;
    assert_eq!(stage.succeed(id).await.rows_read, 0);
}

#[tokio::test]
async fn the_delete_limit_holds_over_all_batches_of_a_pass() {
    let stage = Stage::with_films(100).await;
    let id = stage.full(10).await;
    stage.succeed(id).await;
    stage.db.execute("delete from content.film where id % 4 = 0").await;
    let (code, message) = stage.fail(id).await;
    assert_eq!(code, "sink.delete_limit");
    assert!(message.contains("over the limit of 20 %"), "{message}");
    let left = stage.count("analytics.film").await;
    assert!(left >= 80, "{left} of 100 rows are left");
    stage.db.execute("update etl.etl_pipelines set delete_limit = 0.5").await;
    stage.succeed(id).await;
    assert_eq!(stage.differences().await, 0);
}

#[tokio::test]
async fn text_keys_of_any_alphabet_load_in_order_and_vanish_exactly() {
    let stage = Stage::empty().await;
    stage
        .db
        .execute(
            "create schema content; create schema analytics;
             create table content.word (word text collate \"en-x-icu\" primary key, length int);
             create table analytics.word (word varchar(200) primary key, length int);
             insert into content.word select w, length(w) from unnest(array['a', 'A', 'b', 'B', 'Ёж', 'ёж', 'ж', 'z', '', ' ', '10', '9',
                 'it''s', 'back\\slash', '\"quoted\"', E'tab\\t', '日本', 'ß', 'ss']) w",
        )
        .await;
    let id = stage
        .pipeline(
            json!({"source_query": "select word, length from content.word", "target_table": "analytics.word",
                         "batch_size": 2, "delete_limit": 1}),
        )
        .await;
    assert_eq!(stage.succeed(id).await.rows_written, 19);
    stage.db.execute("delete from content.word where word in ('A', 'ёж', '9', 'back\\slash')").await;
    assert_eq!(stage.succeed(id).await.rows_deleted, 4);
    let same: bool = stage.db.value("select array(select word from content.word order by word collate \"C\") = array(select word::text from analytics.word order by word::text collate \"C\")").await;
    assert!(same);
}

#[tokio::test]
async fn composite_keys_load_and_vanish_row_by_row() {
    let stage = Stage::empty().await;
    stage
        .db
        .execute(
            "create schema content; create schema analytics;
             create table content.film_genre (film uuid, genre text, weight int, primary key (film, genre));
             create table analytics.film_genre (film uuid, genre text, weight int, primary key (film, genre));
             insert into content.film_genre select md5(f::text)::uuid, 'g' || g, f * g from generate_series(1, 20) f, generate_series(1, 3) g",
        )
        .await;
    let id = stage
        .pipeline(json!({"source_query": null, "source_table": "content.film_genre", "target_table": "analytics.film_genre", "batch_size": 7}))
        .await;
    assert_eq!(stage.succeed(id).await.rows_written, 60);
    stage.db.execute("delete from content.film_genre where genre = 'g2' and weight > 30").await;
    assert_eq!(stage.succeed(id).await.rows_deleted, 5, "films keep their other genres");
}

#[tokio::test]
async fn every_type_arrives_as_it_was() {
    let stage = Stage::empty().await;
    let columns = "id int, b boolean, i2 smallint, i8 bigint, f4 real, f8 double precision, n numeric, n2 numeric(12,4), t text, v varchar(20),
        c char(5), by bytea, d date, ts timestamp, tz timestamptz, ti time, iv interval, u uuid, j json, jb jsonb, ta text[], ia int[], ip inet, r int4range";
    stage
        .db
        .execute(&format!(
            "create schema content; create schema analytics; create type content.mood as enum ('sad', 'glad');
             create table content.every ({columns}, m content.mood, primary key (id));
             create table analytics.every ({columns}, m content.mood, primary key (id));
             insert into content.every values
             (1, true, 1, 9223372036854775807, 1.5, 'NaN', 'NaN', 12345678.1234, 'плёнка ''\"\\', 'v', 'c', '\\x00ff', 'infinity', '-infinity',
              '2024-02-29 12:34:56.123456+03', '23:59:59.999999', '1 mon -2 days 03:00', md5('x')::uuid, '{{\"a\" : 1}}', '{{\"a\": 1.10}}',
              array['x', null, 'y,\"z'], '{{}}', '10.0.0.0/8', '[1,5)', 'glad'),
             (2, null, null, null, null, null, null, null, null, null, null, null, null, null, null, null, null, null, null, null, null, null, null, null, null),
             (3, false, -1, -1, '-Infinity', 1e300, 1e-20, 0, '', '', '', '', '0044-03-15 BC', '1999-12-31 23:59:59.999999', 'infinity', '00:00', '0',
              null, '[]', 'null', '{{}}', array[1, null], '::1', 'empty', 'sad')"
        ))
        .await;
    let id = stage
        .pipeline(json!({"source_query": null, "source_table": "content.every", "target_table": "analytics.every", "batch_size": 2}))
        .await;
    stage.succeed(id).await;
    let different = "select count(*) from content.every s full join analytics.every t using (id)
                      where row(s.*)::text is distinct from row(t.*)::text";
    assert_eq!(stage.db.value::<i64>(different).await, 0);
    let again = stage.succeed(id).await;
    assert_eq!(
        (again.rows_unchanged, again.rows_written),
        (3, 0),
        "what was written compares equal to what is read"
    );
}

#[tokio::test]
async fn a_query_may_hold_a_limit_a_trailing_comment_and_a_colon_in_a_literal() {
    let stage = Stage::with_films(10).await;
    let query = "with best as (select * from content.film order by id limit 5) select id, 'a :b' || title as title, rating, modified from best -- the end";
    let id = stage.pipeline(json!({"source_query": query})).await;
    assert_eq!(stage.succeed(id).await.rows_written, 5);
}

#[tokio::test]
async fn a_load_that_ran_into_the_delete_limit_is_read_again_from_its_beginning() {
    let stage = Stage::with_films(100).await;
    let id = stage.full(10).await;
    stage.succeed(id).await;
    stage.db.execute("create table content.hidden as select * from content.film where id <= 50; delete from content.film where id <= 50").await;
    assert_eq!(stage.fail(id).await.0, "sink.delete_limit");
    stage.db.execute("insert into content.film select * from content.hidden").await;
    assert_eq!(stage.succeed(id).await.rows_read, 100);
    assert_eq!(stage.differences().await, 0);
}

#[tokio::test]
async fn rows_that_a_load_brings_in_make_no_room_for_deletes() {
    let stage = Stage::with_films(100).await;
    let id = stage.full(1000).await;
    stage.succeed(id).await;
    stage.db.execute("update content.film set id = id + 1000").await;
    stage.add_films(2000, 3000).await;
    assert_eq!(stage.fail(id).await.0, "sink.delete_limit");
    assert_eq!(stage.count("analytics.film").await, 100);
}
