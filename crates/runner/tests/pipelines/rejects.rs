//! Rows fail, not runs: what the mart refuses is found, kept for people, and read again when they ask.

use rstest::rstest;
use serde_json::json;
use vitrina_core::RunStatus;
use vitrina_store::RejectChoice;

use crate::stage::Stage;

const NO_LONG_TITLES: &str = "alter table analytics.film add check (length(title) < 20)";

async fn with_a_bad_film(films: i32) -> Stage {
    let stage = Stage::with_films(films).await;
    stage.db.execute(NO_LONG_TITLES).await;
    stage.db.execute("update content.film set title = 'a title that is far too long' where id = 7").await;
    stage
}

#[rstest]
#[case::directly(json!({"batch_size": 10}), false)]
#[case::in_one_batch(json!({"batch_size": 1000}), true)]
#[case::through_staging(json!({"batch_size": 10}), true)]
#[case::through_a_staged_first_load(json!({"batch_size": 10, "first_load": "staged"}), false)]
#[case::incrementally(json!({"mode": "incremental", "batch_size": 10, "incremental_key": "modified", "incremental_id_key": "id"}), false)]
#[tokio::test]
async fn a_row_that_the_mart_refuses_is_rejected_alone(
    #[case] changes: serde_json::Value,
    #[case] filled: bool,
) {
    let stage = with_a_bad_film(35).await;
    let mut changes = changes;
    changes["reject_limit"] = json!(1);
    if filled {
        stage.db.execute("insert into analytics.film (id, title) values (7, 'old'), (8, 'old')").await;
    }
    let id = stage.pipeline(changes).await;
    let run = stage.succeed(id).await;
    assert_eq!((run.rows_read, run.rows_rejected, run.rows_written), (35, 1, 34));
    assert_eq!(stage.rejects().await, [("row.check".to_owned(), "[\"7\"]".to_owned())]);
    assert_eq!(stage.count("analytics.film where id <> 7").await, 34);
    assert_eq!(stage.count("analytics.film where id = 7").await, i64::from(filled), "an old row stays");
    let kept: String = stage.db.value("select row ->> 'title' from etl.etl_rejects").await;
    assert_eq!(kept, "a title that is far too long");
    let message: String = stage.db.value("select message from etl.etl_rejects").await;
    assert!(message.contains("23514") && !message.contains("far too long"), "{message}");
}

#[tokio::test]
async fn over_its_limit_a_run_fails_and_its_rejects_can_be_acknowledged() {
    let stage = with_a_bad_film(10).await;
    let id = stage.full(100).await;
    let (code, message) = stage.fail(id).await;
    assert_eq!(code, "rejects.limit");
    assert!(message.contains("row.check") && message.contains("acknowledge"), "{message}");
    assert_eq!((stage.count("analytics.film").await, stage.rejects().await.len()), (0, 1));
    assert_eq!(stage.fail(id).await.0, "rejects.limit", "it does not pass by being tried again");
    assert_eq!(stage.store.acknowledge_rejects(id, &RejectChoice::default()).await.unwrap(), 1);
    assert_eq!(stage.succeed(id).await.rows_written, 9);
    assert_eq!(stage.rejects().await.len(), 1, "it stays until its key succeeds");
}

#[rstest]
#[case::a_load(json!({"reject_limit": 5}))]
#[case::an_incremental_pass(json!({"reject_limit": 5, "mode": "incremental", "incremental_key": "modified", "incremental_id_key": "id"}))]
#[tokio::test]
async fn a_reject_closes_when_its_key_next_succeeds(#[case] changes: serde_json::Value) {
    let stage = with_a_bad_film(10).await;
    let id = stage.pipeline(changes).await;
    stage.succeed(id).await;
    assert_eq!(stage.rejects().await.len(), 1);
    stage.db.execute("update content.film set title = 'short', modified = now() where id = 7").await;
    stage.succeed(id).await;
    assert_eq!(stage.rejects().await, []);
    assert_eq!(stage.differences().await, 0);
}

#[tokio::test]
async fn a_reject_closes_when_its_row_has_left_the_source_and_only_then_is_its_key_deleted() {
    let stage = with_a_bad_film(20).await;
    stage.db.execute("insert into analytics.film (id, title) values (7, 'old')").await;
    let id = stage.pipeline(json!({"reject_limit": 1, "delete_limit": 1})).await;
    assert_eq!(stage.succeed(id).await.rows_deleted, 0, "a key with an open reject is never deleted");
    stage.db.execute("delete from content.film where id = 7").await;
    assert_eq!(stage.succeed(id).await.rows_deleted, 1);
    assert_eq!(stage.rejects().await, []);
}

#[rstest]
#[case::by_a_foreign_key(
    "alter table analytics.film add foreign key (id) references analytics.known",
    "row.foreign_key"
)]
#[case::by_another_unique_index(
    "insert into analytics.film (id, title) values (99, 'Film 7'); create unique index on analytics.film (title)",
    "row.unique"
)]
#[case::by_a_trigger("create function analytics.refuse() returns trigger language plpgsql as $$ begin if new.id = 7 then raise 'no'; end if; return new; end $$;
                      create trigger refuse before insert on analytics.film for each row execute function analytics.refuse()", "row.raised")]
#[tokio::test]
async fn what_only_the_merge_can_see_is_found_by_halves(#[case] rule: &str, #[case] code: &str) {
    let stage = Stage::with_films(300).await;
    stage.db.execute("create table analytics.known as select id from content.film where id <> 7; alter table analytics.known add primary key (id)").await;
    let id = stage.pipeline(json!({"batch_size": 50, "reject_limit": 1, "first_load": "staged"})).await;
    stage.db.execute(rule).await;
    let run = stage.succeed(id).await;
    assert_eq!((run.rows_read, run.rows_written, run.rows_rejected), (300, 299, 1));
    assert_eq!(stage.rejects().await, [(code.to_owned(), "[\"7\"]".to_owned())]);
}

#[rstest]
#[case::read_in_a_stream("stream")]
#[case::read_by_pages("keyset")]
#[tokio::test]
async fn a_row_without_a_key_is_a_reject(#[case] read: &str) {
    let stage = Stage::with_films(25).await;
    let query = "select nullif(id, 3) as id, title, rating, modified from content.film";
    let id = stage
        .pipeline(json!({"source_query": query, "read": read, "batch_size": 10, "reject_limit": 1}))
        .await;
    let run = stage.succeed(id).await;
    assert_eq!((run.rows_written, run.rows_rejected), (24, 1));
    assert_eq!(stage.rejects().await, [("row.null_key".to_owned(), "[null]".to_owned())]);
}

#[rstest]
#[case::in_one_batch(100)]
#[case::at_the_edge_of_two_batches(5)]
#[tokio::test]
async fn a_key_that_comes_twice_without_an_order_is_a_reject(#[case] batch_size: i32) {
    let stage = Stage::with_films(20).await;
    let query = "select id, title, rating, modified from content.film union all select 5, 'again', null::numeric(3,1), null";
    let id =
        stage.pipeline(json!({"source_query": query, "batch_size": batch_size, "reject_limit": 1})).await;
    let run = stage.succeed(id).await;
    assert_eq!(stage.rejects().await, [("row.duplicate_key".to_owned(), "[\"5\"]".to_owned())]);
    assert_eq!(stage.count("analytics.film where id <> 5").await, 19);
    let attempts = stage.store.attempts(run.id).await.unwrap();
    let codes: Vec<_> = attempts.iter().map(|attempt| attempt.error_code.as_deref()).collect();
    assert_eq!(codes, [Some("sink.duplicate_key"), None], "begun directly, gone on through staging");
    assert_eq!(stage.succeed(id).await.rows_rejected, 1, "and through staging from the start");
}

#[tokio::test]
async fn of_rows_with_one_key_the_last_by_the_cursor_counts() {
    let stage = Stage::with_films(20).await;
    let query =
        "select id, title, rating, modified from content.film union all select 5, 'newer', null::numeric(3,1), now()
                 union all select 9, 'older', null::numeric(3,1), '2000-01-01'";
    for batch_size in [3, 100] {
        let id = stage
            .pipeline(
                json!({"name": format!("film{batch_size}"), "source_query": query, "batch_size": batch_size,
                             "incremental_key": "modified", "incremental_id_key": "id"}),
            )
            .await;
        stage.succeed(id).await;
        assert_eq!(titles(&stage).await, "newer, Film 9", "in batches of {batch_size}");
        stage.db.execute("update analytics.film set title = 'wrong' where id in (5, 9)").await;
        stage.request_keys(id, json!([["1"], ["5"], ["9"]])).await;
        stage.runner().work_off().await.unwrap();
        assert_eq!(titles(&stage).await, "newer, Film 9", "read again by their keys");
        stage.delete(id).await;
    }
}

/// As far as it is known which one is.
#[tokio::test]
async fn of_rows_with_one_key_the_newest_counts_though_the_query_does_not_return_the_id_of_its_cursor() {
    let stage = Stage::with_films(0).await;
    let takes = "create table content.take (n int primary key, film_id int, title text, modified timestamptz not null);
                 insert into content.take values (1, 5, 'new', '2024-02-02'), (2, 5, 'old', '2024-01-01'), (3, 9, 'one', '2024-01-01')";
    stage.db.execute(takes).await;
    for mode in ["full", "incremental"] {
        let id = stage
            .pipeline(json!({"name": mode, "mode": mode, "source_table": "content.take",
                "source_query": "select film_id as id, title, modified from content.take",
                "incremental_key": "modified", "incremental_id_key": "n"}))
            .await;
        stage.succeed(id).await;
        assert_eq!(titles(&stage).await, "new, one", "{mode}");
        stage.db.execute("delete from analytics.film").await;
        stage.delete(id).await;
    }
}

async fn titles(stage: &Stage) -> String {
    stage.db.value("select string_agg(title, ', ' order by id) from analytics.film where id in (5, 9)").await
}

#[tokio::test]
async fn keys_that_are_equal_and_written_otherwise_are_rejects_too() {
    let stage = Stage::empty().await;
    stage
        .db
        .execute(
            "create extension citext; create schema content; create schema analytics;
             create table content.price (k public.citext, v int); insert into content.price values ('eur', 1), ('Eur', 2), ('usd', 3);
             create table analytics.price (k public.citext primary key, v int); insert into analytics.price values ('EUR', 1)",
        )
        .await;
    for batch_size in [1, 100] {
        let id = stage
            .pipeline(
                json!({"name": format!("price{batch_size}"), "source_query": "select k, v from content.price",
                             "target_table": "analytics.price", "batch_size": batch_size, "reject_limit": 2}),
            )
            .await;
        let run = stage.succeed(id).await;
        assert_eq!(stage.count("analytics.price").await, 2, "{run:?}");
        assert!(stage.rejects().await.iter().all(|(code, _)| code == "row.duplicate_key"));
        assert!(!stage.rejects().await.is_empty());
        stage.delete(id).await;
    }
}

#[tokio::test]
async fn rejects_are_read_again_at_the_source_and_the_checkpoint_stays() {
    let stage = with_a_bad_film(30).await;
    let id = stage
        .pipeline(json!({"mode": "incremental", "incremental_key": "modified", "incremental_id_key": "id", "reject_limit": 1}))
        .await;
    stage.succeed(id).await;
    let before = stage.checkpoint().await;
    // Mended without a new stamp: no pass would ever read it again.
    stage.db.execute("update content.film set title = 'short' where id = 7").await;
    let keys = stage.store.reject_keys(id, &RejectChoice::default(), 100).await.unwrap();
    let run = stage.request_keys(id, json!(keys)).await;
    stage.runner().work_off().await.unwrap();
    let run = stage.run_record(run).await;
    assert_eq!((run.status, run.rows_read, run.rows_written), (RunStatus::Success, 1, 1), "{:?}", run.error);
    assert_eq!(stage.rejects().await, []);
    assert_eq!(stage.differences().await, 0);
    assert_eq!(stage.checkpoint().await, before);
}

#[tokio::test]
async fn a_backfill_writes_what_is_there_and_deletes_what_is_gone() {
    let stage = Stage::with_films(30).await;
    let id = stage.full(10).await;
    stage.succeed(id).await;
    stage.db.execute("update content.film set title = 'New' where id in (1, 2); delete from content.film where id in (3, 4)").await;
    let run = stage.request_keys(id, json!([[1], [3], ["4"], [77]])).await;
    stage.runner().work_off().await.unwrap();
    let run = stage.run_record(run).await;
    assert_eq!(
        (run.status, run.rows_read, run.rows_written, run.rows_deleted),
        (RunStatus::Success, 1, 1, 2),
        "{:?}",
        run.error
    );
    let titles: String =
        stage.db.value("select string_agg(title, ', ' order by id) from analytics.film where id < 6").await;
    assert_eq!(titles, "New, Film 2, Film 5", "no other key is touched");
}

#[tokio::test]
async fn a_backfill_of_keys_with_the_wrong_number_of_columns_is_refused() {
    let stage = Stage::with_films(3).await;
    let id = stage.full(10).await;
    let run = stage.request_keys(id, json!([[1, 2]])).await;
    stage.runner().work_off().await.unwrap();
    assert_eq!(stage.run_record(run).await.error_code.as_deref(), Some("backfill.key"));
}

#[tokio::test]
async fn many_rows_of_one_refused_key_hide_no_other_row() {
    let stage = Stage::with_films(300).await;
    let query = "select nullif(id, id % 2 * id) as id, title, rating, modified from content.film";
    for changes in [
        json!({}),
        json!({"mode": "incremental", "incremental_key": "modified", "incremental_id_key": "title"}),
    ] {
        let mut changes = changes;
        changes["name"] = json!(format!("film{}", changes.as_object().unwrap().len()));
        changes["source_query"] = json!(query);
        changes["reject_limit"] = json!(1);
        let id = stage.pipeline(changes).await;
        let run = stage.succeed(id).await;
        assert_eq!((run.rows_read, run.rows_rejected), (300, 1));
        assert_eq!(stage.count("analytics.film").await, 150);
        stage.delete(id).await;
    }
}

#[tokio::test]
async fn pages_that_hold_no_key_at_all_come_to_an_end() {
    let stage = Stage::with_films(50).await;
    let query = "select nullif(id, id) as id, title, rating, modified from content.film";
    let id = stage
        .pipeline(json!({"source_query": query, "read": "keyset", "batch_size": 10, "reject_limit": 1}))
        .await;
    assert_eq!(stage.succeed(id).await.rows_rejected, 1);
}

#[tokio::test]
async fn rows_that_cannot_be_used_are_no_rows_where_a_mart_might_be_emptied() {
    let stage = Stage::with_films(10).await;
    let id = stage.pipeline(json!({"delete_limit": 1, "reject_limit": 1})).await;
    stage.succeed(id).await;
    stage.db.execute("update etl.etl_pipelines set source_query = 'select max(id) as id, max(title) as title, max(rating)::numeric(3,1) as rating, max(modified) as modified from content.film where id < 0'").await;
    assert_eq!(stage.fail(id).await.0, "sink.source_empty");
    assert_eq!(stage.count("analytics.film").await, 10);
}

#[tokio::test]
async fn a_backfill_in_the_middle_of_a_load_is_not_undone_by_it() {
    let stage = with_a_bad_film(100).await;
    let id = stage
        .pipeline(json!({"batch_size": 10, "first_load": "staged", "reject_limit": 1, "delete_limit": 1}))
        .await;
    stage.db.execute("alter table analytics.film add check (id <> 55)").await;
    assert_eq!(stage.fail(id).await.0, "rejects.limit", "behind its first batches");
    stage.db.execute("update content.film set title = 'short' where id = 7").await;
    let run = stage.request_keys(id, json!([["7"]])).await;
    stage.runner().work_off().await.unwrap();
    assert_eq!(stage.run_record(run).await.status, RunStatus::Success);
    stage.store.acknowledge_rejects(id, &RejectChoice::default()).await.unwrap();
    stage.succeed(id).await;
    assert_eq!(stage.count("analytics.film where id = 7").await, 1);
    assert_eq!(stage.count("analytics.film").await, 99);
}

#[rstest]
#[case::a_time("timestamptz", "2024-01-01 12:30:00+03")]
#[case::a_number("double precision", "1e20")]
#[case::padded("char(5)", "ab")]
#[case::without_case("public.citext", "Ann")]
#[tokio::test]
async fn a_key_with_an_open_reject_stays_in_the_mart_whatever_its_type(
    #[case] kind: &str,
    #[case] key: &str,
) {
    let stage = Stage::empty().await;
    stage
        .db
        .execute(&format!(
            "create extension citext; create schema content; create schema analytics;
             create table content.odd (k {kind} primary key, v int); insert into content.odd values ('{key}', -1);
             create table analytics.odd (k {kind} primary key, v int check (v >= 0)); insert into analytics.odd values ('{key}', 1)"
        ))
        .await;
    let other = if kind == "double precision" { "2" } else { "2020-01-01" };
    if kind != "char(5)" {
        stage.db.execute(&format!("insert into content.odd values ('{other}', 5)")).await;
    }
    let id = stage
        .pipeline(
            json!({"source_query": null, "source_table": "content.odd", "target_table": "analytics.odd",
                         "delete_limit": 1, "reject_limit": 1, "batch_size": 1}),
        )
        .await;
    if kind == "char(5)" {
        stage.db.execute("insert into content.odd values ('zz', 5)").await;
    }
    let run = stage.succeed(id).await;
    assert_eq!((run.rows_rejected, run.rows_deleted), (1, 0));
    assert_eq!(stage.count("analytics.odd").await, 2);
    stage.db.execute("update content.odd set v = 7").await;
    stage.succeed(id).await;
    assert_eq!((stage.rejects().await.len(), stage.count("analytics.odd where v = 7").await), (0, 2));
}

#[rstest]
#[case::a_constraint_that_waits_for_the_commit(
    "create table analytics.known as select id from content.film where id <> 7; alter table analytics.known add primary key (id);
     alter table analytics.film add foreign key (id) references analytics.known deferrable initially deferred"
)]
#[case::a_value_too_long_for_an_index("update content.film set title = (select string_agg(md5(n::text), '') from generate_series(1, 2000) n) where id = 7;
     create index on analytics.film (title)")]
#[case::a_state_of_ones_own("create function analytics.refuse() returns trigger language plpgsql as $$ begin if new.id = 7 then raise 'no' using errcode = 'MY001'; end if; return new; end $$;
     create trigger refuse before insert on analytics.film for each row execute function analytics.refuse()")]
#[case::a_check_over_the_whole_row("create function analytics.fits(f analytics.film) returns boolean language sql immutable as 'select f.id <> 7';
     alter table analytics.film add check (analytics.fits(film))")]
#[tokio::test]
async fn whatever_refuses_a_row_refuses_no_other(#[case] rule: &str) {
    let stage = Stage::with_films(30).await;
    stage.db.execute(rule).await;
    for (name, changes) in
        [("direct", json!({})), ("staged", json!({"first_load": "staged", "batch_size": 10}))]
    {
        let mut changes = changes;
        changes["name"] = json!(name);
        changes["reject_limit"] = json!(1);
        let id = stage.pipeline(changes).await;
        let run = stage.succeed(id).await;
        assert_eq!((run.rows_read, run.rows_rejected), (30, 1), "{name}");
        assert_eq!(stage.count("analytics.film").await, 29, "{name}");
        stage.db.execute("truncate analytics.film").await;
        stage.delete(id).await;
    }
}

#[tokio::test]
async fn what_has_vanished_makes_room_for_what_comes() {
    let stage = Stage::with_films(10).await;
    stage.db.execute("create unique index on analytics.film (title)").await;
    for batch_size in [100, 3] {
        let id = stage
            .pipeline(
                json!({"name": format!("film{batch_size}"), "batch_size": batch_size, "delete_limit": 1}),
            )
            .await;
        stage.succeed(id).await;
        stage
            .db
            .execute("update content.film set id = id + 1000 where id = (select min(id) from content.film)")
            .await;
        let run = stage.succeed(id).await;
        assert_eq!((run.rows_written, run.rows_deleted, run.rows_rejected), (1, 1, 0));
        assert_eq!(stage.differences().await, 0);
        stage.delete(id).await;
    }
}

#[tokio::test]
async fn the_delete_limit_holds_over_all_batches_of_a_backfill() {
    let stage = Stage::with_films(100).await;
    let id = stage.full(10).await;
    stage.succeed(id).await;
    stage.db.execute("delete from content.film where id <= 60").await;
    let keys: Vec<_> = (1..=60).map(|id| json!([id])).collect();
    let run = stage.request_keys(id, json!(keys)).await;
    stage.runner().work_off().await.unwrap();
    assert_eq!(stage.run_record(run).await.error_code.as_deref(), Some("sink.delete_limit"));
    assert_eq!(stage.count("analytics.film").await, 80, "20 % of what there was, and no more");
}

#[tokio::test]
async fn a_key_that_the_mart_cannot_hold_spoils_no_backfill() {
    let stage = Stage::with_films(10).await;
    let query = "select id::bigint + case when id = 3 then 5000000000 else 0 end as id, title, rating, modified from content.film";
    let id = stage.pipeline(json!({"source_query": query, "reject_limit": 1})).await;
    stage.succeed(id).await;
    stage.db.execute("update content.film set title = 'New' where id = 1").await;
    let run = stage.request_keys(id, json!([["5000000003"], ["1"]])).await;
    stage.runner().work_off().await.unwrap();
    let run = stage.run_record(run).await;
    assert_eq!((run.status, run.rows_written), (RunStatus::Success, 1), "{:?}", run.error);
    assert_eq!(stage.rejects().await.len(), 1);
}
