use rstest::rstest;
use serde_json::json;
use vitrina_core::Mode;

use crate::stage::{FILTERED, QUERY, Stage};

#[rstest]
#[tokio::test]
async fn the_first_pass_reads_everything_and_the_next_only_what_changed(
    #[values(QUERY, FILTERED)] query: &str,
) {
    let stage = Stage::with_films(100).await;
    let id = stage.incremental_of(query, 30).await;
    let first = stage.succeed(id).await;
    assert_eq!((first.rows_read, first.rows_written), (100, 100));
    stage.db.execute("update content.film set title = 'Changed', modified = now() where id in (3, 99)").await;
    stage.add_films(101, 101).await;
    stage.db.execute("update content.film set modified = now() where id = 101").await;
    let second = stage.succeed(id).await;
    assert_eq!((second.rows_read, second.rows_written), (3, 3));
    assert_eq!(stage.differences().await, 0);
}

#[tokio::test]
async fn the_checkpoint_can_be_read_in_sql() {
    let stage = Stage::with_films(5).await;
    let id = stage.incremental(2).await;
    stage.succeed(id).await;
    let row = stage.db.texts("select last_processed_key::timestamptz = '2024-01-01 00:05+00', last_processed_id from etl.etl_state").await;
    assert_eq!(row, [[Some("t".to_owned()), Some("5".to_owned())]]);
}

#[rstest]
#[tokio::test]
async fn equal_timestamps_across_a_page_boundary_are_all_read(#[values(QUERY, FILTERED)] query: &str) {
    let stage = Stage::with_films(50).await;
    stage.db.execute("update content.film set modified = '2024-06-01 00:00:00.123456+00'").await;
    let id = stage.incremental_of(query, 7).await;
    let run = stage.succeed(id).await;
    assert_eq!((run.rows_read, run.batches), (50, 8));
    assert_eq!(stage.differences().await, 0);
}

#[rstest]
#[tokio::test]
async fn a_row_committed_late_with_an_older_stamp_is_not_lost(#[values(QUERY, FILTERED)] query: &str) {
    let stage = Stage::with_films(10).await;
    let id = stage.incremental_of(query, 100).await;
    let writer = stage.db.client().await;
    writer
        .batch_execute("begin; insert into content.film (id, title, modified) values (11, 'Late', now())")
        .await
        .unwrap();
    stage.db.execute("insert into content.film (id, title, modified) values (12, 'Early', now())").await;
    stage.succeed(id).await;
    writer.batch_execute("commit").await.unwrap();
    stage.succeed(id).await;
    assert_eq!(stage.differences().await, 0);
}

#[rstest]
#[tokio::test]
async fn a_row_dated_a_year_ahead_does_not_blind_the_pipeline(#[values(QUERY, FILTERED)] query: &str) {
    let stage = Stage::with_films(10).await;
    stage.db.execute("update content.film set modified = now() + interval '1 year' where id = 10").await;
    let id = stage.incremental_of(query, 100).await;
    stage.succeed(id).await;
    stage.db.execute("insert into content.film (id, title, modified) values (11, 'Now', now())").await;
    stage.succeed(id).await;
    assert_eq!(stage.differences().await, 0);
}

#[tokio::test]
async fn a_number_as_cursor_goes_back_to_the_pass_before_the_window() {
    let stage = Stage::with_films(10).await;
    let id = stage
        .pipeline(json!({
            "mode": "incremental", "incremental_key": "n", "incremental_id_key": "id", "late_window_seconds": 600, "batch_size": 4,
            "source_query": "select id, title, rating, modified, id + 0 as n from content.film",
        }))
        .await;
    stage.db.execute("alter table analytics.film add n int").await;
    assert_eq!(stage.succeed(id).await.rows_read, 10);
    stage.add_films(12, 12).await;
    assert_eq!(stage.succeed(id).await.rows_read, 11, "no pass is old enough: from the beginning");
    stage.add_films(11, 11).await;
    assert_eq!(stage.succeed(id).await.rows_read, 12);
    assert_eq!(stage.differences().await, 0);
}

#[tokio::test]
async fn with_no_late_window_a_number_as_cursor_reads_on_from_the_pass_before() {
    let stage = Stage::with_films(100).await;
    let id = stage
        .pipeline(json!({"mode": "incremental", "incremental_key": "id", "late_window_seconds": 0}))
        .await;
    stage.succeed(id).await;
    stage.add_films(101, 110).await;
    stage.succeed(id).await;
    stage.add_films(111, 120).await;
    let run = stage.succeed(id).await;
    assert!(run.rows_read <= 21, "{}", run.rows_read);
    assert_eq!(stage.differences().await, 0);
}

#[tokio::test]
async fn a_full_load_of_an_incremental_pipeline_leaves_the_cursor_where_it_opened() {
    let stage = Stage::with_films(100).await;
    let id = stage.incremental(30).await;
    stage.request_mode(id, Mode::Full).await;
    stage.runner().work_off().await.unwrap();
    assert_eq!(stage.differences().await, 0);
    stage.db.execute("update content.film set title = 'Changed', modified = now() where id = 4").await;
    let run = stage.succeed(id).await;
    assert!(run.rows_read < 20, "the cursor goes on from the load: {}", run.rows_read);
    assert_eq!(stage.differences().await, 0);
}

#[tokio::test]
async fn a_row_without_a_cursor_is_a_reject_until_it_has_one() {
    let stage = Stage::with_films(3).await;
    stage.db.execute("alter table content.film alter modified drop not null; update content.film set modified = null where id = 2").await;
    for query in [
        "select id, title, rating, modified from content.film",
        "select id, title, rating, modified + interval '0' as modified from content.film",
    ] {
        stage.db.execute("truncate analytics.film; delete from etl.etl_pipelines").await;
        let id = stage.pipeline(json!({
            "mode": "incremental", "incremental_key": "modified", "incremental_id_key": "id", "source_query": query,
        })).await;
        assert_eq!(stage.fail(id).await.0, "rejects.limit");
        assert_eq!(stage.rejects().await, [("row.null_cursor".to_owned(), "[\"2\"]".to_owned())]);
        stage.db.execute("update etl.etl_rejects set acknowledged_at = now()").await;
        assert_eq!(stage.succeed(id).await.rows_rejected, 1);
        assert_eq!(stage.count("analytics.film").await, 2);
        stage.db.execute("update content.film set modified = now() where id = 2").await;
        stage.succeed(id).await;
        assert_eq!((stage.differences().await, stage.rejects().await.len()), (0, 0));
        stage.db.execute("update content.film set modified = null where id = 2").await;
    }
}

#[tokio::test]
async fn free_text_is_refused_as_a_cursor() {
    let stage = Stage::with_films(3).await;
    let id = stage
        .pipeline(json!({"mode": "incremental", "incremental_key": "title", "incremental_id_key": "id"}))
        .await;
    assert_eq!(stage.fail(id).await.0, "pipeline.cursor_type");
}

#[tokio::test]
async fn rows_that_share_their_cursor_and_its_id_are_all_read() {
    for query in [
        "select id, title, rating, modified from content.film",
        "select id, title, rating, modified + interval '0' as modified from content.film",
    ] {
        let stage = Stage::with_films(101).await;
        stage.db.execute("update content.film set modified = '2024-06-01', rating = 5 where id <= 100").await;
        let id = stage.pipeline(json!({
            "mode": "incremental", "incremental_key": "modified", "incremental_id_key": "rating", "batch_size": 10, "source_query": query,
        })).await;
        assert_eq!(stage.succeed(id).await.rows_read, 101);
        assert_eq!(stage.differences().await, 0);
    }
}

/// Twice in the query: nobody can tell which of the two a row comes from.
const TWICE: &str = "select id, title, rating, modified from content.film where id < 3
    union all select id, title, rating, modified from content.film where id >= 3";

#[tokio::test]
async fn a_cursor_without_an_id_must_be_unique() {
    let stage = Stage::with_films(3).await;
    let id = stage
        .pipeline(json!({"mode": "incremental", "incremental_key": "modified", "source_query": TWICE}))
        .await;
    let (code, message) = stage.fail(id).await;
    assert_eq!(code, "pipeline.incremental_id_key");
    assert!(message.contains("add `incremental_id_key: id`"), "{message}");
    stage.delete(id).await;
    stage.db.execute("create unique index on content.film (modified)").await;
    let id = stage.pipeline(json!({"mode": "incremental", "incremental_key": "modified"})).await;
    stage.succeed(id).await;
    assert_eq!(stage.checkpoint().await["position"]["done"]["bound"].as_array().unwrap().len(), 1);
    assert_eq!(stage.differences().await, 0);
}

#[rstest]
#[case::of_its_table("select id, title, rating, modified from content.film")]
#[case::of_a_condition("select id, title, rating, modified from content.film where id > 0")]
#[case::of_a_cursor_that_is_computed(
    "select id, title, rating, modified + interval '0' as modified from content.film"
)]
#[case::of_groups(
    "select id, max(title) as title, max(rating)::numeric(3,1) as rating, max(modified) as modified from content.film group by id"
)]
#[tokio::test]
async fn rows_with_an_equal_cursor_are_told_apart_by_the_key_that_is_proved(#[case] query: &str) {
    let stage = Stage::with_films(50).await;
    stage.db.execute("update content.film set modified = '2024-06-01' where id <= 40").await;
    let config =
        json!({"mode": "incremental", "incremental_key": "modified", "batch_size": 7, "source_query": query});
    let id = stage.pipeline(config).await;
    assert_eq!(stage.succeed(id).await.rows_read, 50);
    assert_eq!(stage.checkpoint().await["position"]["done"]["bound"].as_array().unwrap().len(), 2);
    stage.db.execute("update content.film set title = 'New', modified = now() where id in (3, 9, 27)").await;
    assert_eq!(stage.succeed(id).await.rows_written, 3);
    assert_eq!(stage.differences().await, 0);
}

/// Indexes and tables of which not everything says that a key comes once.
#[rstest]
#[case::by_another_collation(
    "create collation content.ci (provider = icu, locale = 'und-u-ks-level2', deterministic = false);
     create table content.word (id text collate content.ci not null, title text, rating numeric(3,1), modified timestamptz);
     create unique index on content.word (id collate \"C\")"
)]
#[case::by_operators_of_another_type(
    "create extension citext schema public;
     create table content.word (id public.citext not null, title text, rating numeric(3,1), modified timestamptz);
     create unique index on content.word (id text_ops)"
)]
#[case::not_of_its_heirs(
    "create table content.word (id text primary key, title text, rating numeric(3,1), modified timestamptz);
     create table content.heir () inherits (content.word)"
)]
#[tokio::test]
async fn an_index_that_tells_more_values_apart_than_its_column_proves_nothing(#[case] table: &str) {
    let stage = Stage::with_films(1).await;
    stage.db.execute(table).await;
    let mart = "drop table analytics.film; delete from etl.etl_targets;
                create table analytics.film (like content.word); alter table analytics.film add primary key (id)";
    stage.db.execute(mart).await;
    let query = "select id, title, rating, modified from content.word";
    let config = json!({"mode": "incremental", "incremental_key": "modified", "source_query": query});
    let id = stage.pipeline(config).await;
    let (code, _) = stage.fail(id).await;
    assert_eq!(code, "pipeline.incremental_id_key");
}

#[tokio::test]
async fn a_mart_that_nobody_has_made_is_filled_and_followed_by_a_cursor_alone() {
    let stage = Stage::with_films(20).await;
    stage.db.execute("drop table analytics.film; delete from etl.etl_targets").await;
    let id = stage.pipeline(json!({"mode": "incremental", "incremental_key": "modified"})).await;
    assert_eq!(stage.succeed(id).await.rows_written, 20);
    stage.db.execute("update content.film set title = 'New', modified = now() where id = 7").await;
    assert_eq!(stage.succeed(id).await.rows_written, 1);
    assert_eq!(stage.differences().await, 0);
}

#[tokio::test]
async fn a_cursor_that_becomes_unique_or_is_so_no_longer_reads_everything_once_more() {
    let stage = Stage::with_films(20).await;
    let id = stage.pipeline(json!({"mode": "incremental", "incremental_key": "modified"})).await;
    for (change, columns) in [
        ("create unique index only_one on content.film (modified)", 1),
        ("drop index content.only_one; update content.film set modified = '2024-06-01' where id < 5", 2),
    ] {
        stage.succeed(id).await;
        stage.db.execute(change).await;
        stage.db.execute("update content.film set title = title || '!', modified = modified + interval '1 year' where id = 9").await;
        assert_eq!(stage.succeed(id).await.rows_read, 20, "{change}");
        let bound = stage.checkpoint().await["position"]["done"]["bound"].clone();
        assert_eq!(bound.as_array().unwrap().len(), columns, "{change}");
        assert_eq!(stage.differences().await, 0, "{change}");
    }
}

#[tokio::test]
async fn a_cursor_in_local_time_allows_for_any_zone_of_its_writer() {
    let stage = Stage::with_films(5).await;
    stage
        .db
        .execute(
            "alter table content.film alter modified type timestamp using modified at time zone 'UTC';
             alter table analytics.film alter modified type timestamp;
             update content.film set modified = now() at time zone 'UTC' - interval '4 hours'",
        )
        .await;
    let id = stage.incremental(10).await;
    stage.succeed(id).await;
    // The writer's clock is five hours behind UTC, and the row above was stamped one hour ahead of it.
    stage
        .db
        .execute("insert into content.film (id, title, modified) values (6, 'New', now() at time zone 'UTC' - interval '5 hours')")
        .await;
    stage.succeed(id).await;
    assert_eq!(stage.differences().await, 0);
}

#[tokio::test]
async fn a_pass_of_single_rows_comes_to_its_end() {
    let stage = Stage::with_films(35).await;
    stage.db.execute("update content.film set modified = '2024-05-05' where id between 8 and 25").await;
    let id = stage.incremental(1).await;
    let run = stage.succeed(id).await;
    assert!(run.rows_read >= 35 && run.batches >= 35, "{run:?}");
    assert_eq!(stage.differences().await, 0);
}
