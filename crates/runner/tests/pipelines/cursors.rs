//! What a cursor reads again, what it need not, and what it names dirty.

use rstest::rstest;
use serde_json::{Value, json};
use vitrina_core::PipelineId;
use vitrina_runner::RunnerSettings;
use vitrina_testbed::Database;

use crate::stage::{FILMS, FILTERED, QUERY, Stage, until};

async fn with_query(stage: &Stage, query: &str) -> vitrina_core::PipelineId {
    stage
        .pipeline(json!({
            "mode": "incremental", "incremental_key": "modified", "incremental_id_key": "id", "source_query": query,
        }))
        .await
}

/// Films stamped in this very moment, and so in every later late window.
async fn with_new_films(films: i32) -> Stage {
    let stage = Stage::with_films(films).await;
    stage.db.execute("update content.film set modified = now()").await;
    stage.outlasts_others().await;
    stage
}

#[rstest]
#[tokio::test]
async fn an_idle_pass_stores_nothing_and_reads_no_row_of_its_window_again(
    #[values(QUERY, FILTERED)] query: &str,
) {
    let stage = with_new_films(50).await;
    let id = stage.incremental_of(query, 20).await;
    assert_eq!(stage.succeed(id).await.rows_read, 50);
    let checkpoint = stage.checkpoint().await;
    let idle = stage.succeed(id).await;
    assert_eq!((idle.rows_read, idle.batches), (0, 0));
    assert_eq!(stage.checkpoint().await, checkpoint);
    stage.db.execute("update content.film set title = 'New', modified = now() where id = 7").await;
    assert_eq!(stage.succeed(id).await.rows_read, 1);
    assert_eq!(stage.differences().await, 0);
}

/// A planner that sees no range in the window's two ends takes it for a tenth of the table, and reads all of that.
#[rstest]
#[tokio::test]
async fn a_late_window_that_its_rows_have_left_is_looked_at_by_its_index(
    #[values(QUERY, FILTERED)] query: &str,
) {
    let stage = Stage::with_films(20_000).await;
    let touch = async |stamp: &str| {
        let touched = format!(
            "update content.film set title = repeat('wide ', 100), modified = '{stamp}' where id % 10 = 0"
        );
        stage.db.execute(&touched).await;
        stage.db.execute("vacuum analyze content.film").await;
    };
    // Sessions tell what they have done when they end, this one within a second unless it is asked to.
    let ended = "select count(*) = 0 from pg_stat_activity where datname = current_database()
                    and backend_type = 'client backend' and application_name <> 'vitrina-test' and pid <> pg_backend_pid()";
    let whole_scans = async || -> i64 {
        until(|| stage.db.value(ended)).await;
        stage.db.execute("select pg_stat_force_next_flush()").await;
        stage
            .db
            .value("select seq_scan from pg_stat_user_tables where relid = 'content.film'::regclass")
            .await
    };
    stage.db.execute("update content.film set title = repeat('wide ', 100)").await;
    let id = stage.incremental_of(query, 1000).await;
    touch("2026-06-01").await;
    stage.succeed(id).await;
    touch("2026-06-02").await;
    let before = whole_scans().await;
    assert_eq!(stage.succeed(id).await.rows_read, 2000);
    assert_eq!(whole_scans().await, before, "the whole table was read");
}

#[tokio::test]
async fn a_row_that_leaves_the_query_is_deleted_when_its_change_is_met() {
    let stage = with_new_films(50).await;
    stage.db.execute("alter table content.film add hidden boolean not null default false").await;
    let id = with_query(&stage, &format!("{QUERY} where not hidden")).await;
    stage.succeed(id).await;
    stage.db.execute("update content.film set hidden = true, modified = now() where id in (3, 4)").await;
    let run = stage.succeed(id).await;
    assert_eq!((run.rows_read, run.rows_deleted), (0, 2));
    assert_eq!(stage.count("analytics.film").await, 48);
}

/// A change through the other table leaves no newer version in this one: rows may not be told by it.
#[tokio::test]
async fn what_is_computed_from_several_tables_is_read_again_as_a_whole() {
    let stage = with_new_films(20).await;
    stage
        .db
        .execute(
            "create table content.note (film_id int primary key, text text, modified timestamptz not null default now());
             insert into content.note select id, 'old' from content.film",
        )
        .await;
    let query = "select f.id, n.text as title, f.rating, greatest(f.modified, n.modified) as modified
                   from content.film f join content.note n on n.film_id = f.id";
    let id = with_query(&stage, query).await;
    stage.succeed(id).await;
    stage.db.execute("update content.note set text = 'new', modified = now() where film_id = 5").await;
    stage.succeed(id).await;
    assert_eq!(stage.count("analytics.film where title = 'new'").await, 1);
}

/// The row of one film carries the stamp of another.
#[tokio::test]
async fn a_table_that_the_query_names_twice_does_not_tell_what_is_dirty() {
    let stage = with_new_films(20).await;
    let query = "select a.id, b.title, a.rating, b.modified from content.film a join content.film b on b.id = 21 - a.id";
    let id = with_query(&stage, query).await;
    stage.succeed(id).await;
    stage.db.execute("update content.film set title = 'new', modified = now() where id = 20").await;
    stage.succeed(id).await;
    let title: String = stage.db.value("select title from analytics.film where id = 1").await;
    assert_eq!(title, "new");
}

#[rstest]
#[tokio::test]
async fn an_old_transaction_that_ends_late_is_met_although_the_fence_has_moved(
    #[values(QUERY, FILTERED)] query: &str,
) {
    let stage = with_new_films(10).await;
    let id = stage.incremental_of(query, 4).await;
    let late = stage.db.client().await;
    late.batch_execute("begin; savepoint a; update content.film set title = 'late', modified = now() where id = 2; release a").await.unwrap();
    for film in 3..6 {
        stage
            .db
            .execute(&format!("update content.film set title = 'soon', modified = now() where id = {film}"))
            .await;
        stage.succeed(id).await;
    }
    late.batch_execute("commit").await.unwrap();
    stage.succeed(id).await;
    assert_eq!(stage.differences().await, 0);
}

#[rstest]
#[tokio::test]
async fn what_comes_late_and_what_is_new_is_read_once_each(#[values(QUERY, FILTERED)] query: &str) {
    let stage = with_new_films(100).await;
    let id = stage.incremental_of(query, 7).await;
    let late = stage.db.client().await;
    let touch = "update content.film set title = 'late', modified = clock_timestamp() where id <= 30";
    late.batch_execute(&format!("begin; {touch}")).await.unwrap();
    stage.db.execute("update content.film set title = 'first', modified = now() where id = 31").await;
    stage.succeed(id).await;
    late.batch_execute("commit").await.unwrap();
    stage
        .db
        .execute("update content.film set title = 'new', modified = clock_timestamp() where id > 60")
        .await;
    // Film 31 was written while the late transaction was open: nobody can tell that it was met.
    assert_eq!(stage.succeed(id).await.rows_read, 30 + 40 + 1);
    assert_eq!(stage.differences().await, 0);
}

/// A query returns a domain as the type below it: the table orders such ids as texts, the query as numbers.
#[rstest]
#[case::a_domain(
    "create domain content.number as bigint; alter table content.film alter id type content.number"
)]
#[case::a_text("alter table content.film alter id type text; alter table analytics.film alter id type text")]
#[case::a_day("alter table content.film alter modified type date")]
#[case::a_number(
    "alter table content.film alter modified drop default, alter modified type bigint using 0;
     alter table analytics.film alter modified type bigint using 0"
)]
#[tokio::test]
async fn rows_that_share_a_stamp_are_met_whatever_tells_them_apart(
    #[case] other: &str,
    #[values(QUERY, FILTERED)] query: &str,
) {
    let stage = with_new_films(12).await;
    stage.db.execute(other).await;
    let today = "(select max(modified) from content.film)";
    stage.db.execute(&format!("update content.film set modified = {today}")).await;
    let query = query.replace("id > 0", "title <> ''");
    let id = stage.incremental_of(&query, 5).await;
    stage.succeed(id).await;
    assert_eq!(stage.count("analytics.film").await, 12);
    let touch =
        |id: i32| format!("insert into content.film (id, title, modified) values ({id}, 'New', {today})");
    for film in [100, 20, 3000] {
        stage.db.execute(&touch(film)).await;
        stage.succeed(id).await;
    }
    assert_eq!(stage.differences().await, 0);
}

#[rstest]
#[tokio::test]
async fn after_a_crash_of_the_source_a_pass_reads_its_whole_window_again(
    #[values(QUERY, FILTERED)] query: &str,
) {
    let stage = Stage::on_a_server_of_its_own(30).await;
    stage.db.execute("update content.film set modified = now()").await;
    let id = stage.incremental_of(query, 100).await;
    stage.succeed(id).await;
    let stage = stage.crash().await;
    stage.db.execute("update content.film set title = 'new', modified = now() where id = 7").await;
    assert_eq!(stage.succeed(id).await.rows_read, 30);
    stage.db.execute("update content.film set title = 'newer', modified = now() where id = 8").await;
    assert_eq!(stage.succeed(id).await.rows_read, 1);
    assert_eq!(stage.differences().await, 0);
}

/// Film and genre make the mart's key; changes are named by films.
#[tokio::test]
async fn a_film_that_lost_one_of_its_genres_keeps_no_row_of_it() {
    let stage = with_new_films(10).await;
    stage
        .db
        .execute(
            "create table content.film_genre (film_id int, genre text, primary key (film_id, genre));
             insert into content.film_genre select id, genre from content.film, unnest(array['drama', 'comedy', 'war']) genre;
             create table analytics.film_genre (film_id int, genre text, title text, primary key (film_id, genre))",
        )
        .await;
    let id = stage
        .pipeline(json!({
            "mode": "incremental", "incremental_key": "modified", "incremental_id_key": "film_id", "change_key": ["film_id"],
            "target_table": "analytics.film_genre", "source_table": "content.film", "batch_size": 3,
            "source_query": "select f.id as film_id, g.genre, f.title from content.film f join content.film_genre g on g.film_id = f.id",
        }))
        .await;
    assert_eq!(stage.succeed(id).await.rows_written, 30);
    stage.db.execute("delete from content.film_genre where film_id = 4 and genre = 'war'; update content.film set modified = now() where id = 4").await;
    let run = stage.succeed(id).await;
    assert_eq!((run.rows_unchanged, run.rows_deleted), (2, 1));
    assert_eq!(stage.count("analytics.film_genre").await, 29);
}

/// By the table's own values their rows would be looked for in vain, and stay as they are.
#[tokio::test]
async fn a_key_that_is_computed_under_the_name_of_a_column_is_not_looked_for_in_the_named_table() {
    let stage = with_new_films(10).await;
    super::changelog::install(&stage, "content.film", &["id"]).await;
    let computed = "select id + 1000 as id, title, rating, modified from content.film";
    let id = stage
        .pipeline(json!({
            "mode": "incremental", "incremental_key": "modified", "incremental_id_key": "id",
            "source_table": "content.film", "source_query": computed, "batch_size": 3,
        }))
        .await;
    for capture in ["cursor", "changelog"] {
        stage
            .db
            .execute(&format!("update etl.etl_pipelines set capture = '{capture}', status = 'IDLE'"))
            .await;
        let (code, message) = stage.fail(id).await;
        assert_eq!(code, "source.driving_table", "{capture}: {message}");
        assert_eq!(stage.count("analytics.film").await, 0);
    }
    // Without the name the query itself is asked for changed rows.
    stage
        .db
        .execute("update etl.etl_pipelines set capture = 'cursor', source_table = null, status = 'IDLE'")
        .await;
    stage.succeed(id).await;
    stage.db.execute("update content.film set title = 'new', modified = now() where id = 4").await;
    stage.succeed(id).await;
    assert_eq!(stage.count("analytics.film where id = 1004 and title = 'new'").await, 1);
}

fn rating_pipeline(watch: &Value) -> Value {
    json!({
        "mode": "incremental", "incremental_key": "modified", "incremental_id_key": "id", "watch": watch,
        "source_query": "select f.id, coalesce(min(a.name), f.title) as title, avg(r.score)::numeric(3,1) as rating, f.modified
            from content.film f left join content.rating r on r.film_id = f.id
            left join content.role o on o.film_id = f.id left join content.actor a on a.id = o.actor_id
            group by f.id",
        "batch_size": 5,
    })
}

const RATINGS: &str = "
    create table content.rating (film_id int, person int, score int, modified timestamptz not null default now(), primary key (film_id, person));
    create table content.actor (id int primary key, name text, modified timestamptz not null default now());
    create table content.role (film_id int, actor_id int, primary key (film_id, actor_id));
    insert into content.rating select f.id, p, (f.id + p) % 10 from content.film f, generate_series(1, 3) p;
    insert into content.actor select n, 'Actor ' || n from generate_series(1, 5) n;
    insert into content.role select id, 1 + id % 5 from content.film";

async fn stale(stage: &Stage, query: &str) -> i64 {
    stage
        .db
        .value(&format!(
            "with mart as (select id, title, rating, modified from analytics.film), source as (select id, title, rating, modified from ({query}) q)
             select (select count(*) from (table mart except all table source) a) + (select count(*) from (table source except all table mart) b)"
        ))
        .await
}

#[tokio::test]
async fn changes_of_watched_tables_recompute_the_rows_that_depend_on_them() {
    let stage = with_new_films(40).await;
    stage.db.execute(RATINGS).await;
    let config = rating_pipeline(&json!([
        {"table": "content.rating", "key": ["film_id"]},
        {"table": "content.actor", "key": ["id"], "keys": "select film_id from content.role where actor_id = any($1)"},
    ]));
    let query = config["source_query"].as_str().unwrap().to_owned();
    let id = stage.pipeline(config).await;
    assert_eq!(stage.succeed(id).await.rows_read, 40);
    stage.db.execute("update content.rating set score = 9, modified = now() where film_id in (3, 4); insert into content.rating values (5, 9, 1)").await;
    let run = stage.succeed(id).await;
    assert_eq!((run.rows_read, stale(&stage, &query).await), (3, 0), "each film once");
    stage.db.execute("update content.actor set name = 'Changed', modified = now() where id = 2").await;
    let run = stage.succeed(id).await;
    assert_eq!((run.rows_read, run.rows_written, stale(&stage, &query).await), (8, 8, 0));
    let idle = stage.succeed(id).await;
    assert_eq!((idle.rows_read, idle.batches), (0, 0));
}

#[tokio::test]
async fn a_watched_key_of_another_type_leads_to_its_rows_when_it_is_cast() {
    let stage = with_new_films(4).await;
    stage.db.execute(RATINGS).await;
    stage
        .db
        .execute("alter table content.rating alter film_id type text using lpad(film_id::text, 4, '0')")
        .await;
    let mut config = rating_pipeline(&json!([
        {"table": "content.rating", "key": ["film_id"], "keys": "select x::integer from unnest($1::text[]) x"},
    ]));
    let query = config["source_query"].as_str().unwrap().replace("r.film_id = f.id", "r.film_id::int = f.id");
    config["source_query"] = json!(query);
    let id = stage.pipeline(config).await;
    stage.succeed(id).await;
    stage.db.execute("update content.rating set score = 9, modified = now() where film_id = '0003'").await;
    let run = stage.succeed(id).await;
    assert_eq!((run.rows_read, stale(&stage, &query).await), (1, 0));
}

#[tokio::test]
async fn a_watched_table_that_cannot_be_followed_is_told_of() {
    let stage = with_new_films(3).await;
    stage.db.execute(RATINGS).await;
    for (watch, code) in [
        (json!([{"table": "content.nothing", "key": ["id"]}]), "watch.table"),
        (json!([{"table": "content.role", "key": ["film_id"]}]), "watch.table"),
        (json!([{"table": "content.rating", "key": ["film_id", "person"]}]), "watch.key"),
    ] {
        stage.db.execute("delete from etl.etl_pipelines").await;
        let id = stage.pipeline(rating_pipeline(&watch)).await;
        assert_eq!(stage.fail(id).await.0, code, "{watch}");
    }
}

/// A source whose commits reach its disk only when they must.
async fn lazy_source() -> Database {
    let source = Database::on_a_server_of_its_own().await;
    source
        .execute("create schema etl; create table etl.etl_targets (name text, key text[], touch_column text)")
        .await;
    source.execute(FILMS).await;
    source
        .execute("create role reader login password 'reads'; grant usage on schema content to reader; grant select on all tables in schema content to reader")
        .await;
    source.execute("alter role reader set synchronous_commit = off").await;
    source.execute("alter system set wal_writer_delay = '2s'").await;
    source.execute("select pg_reload_conf()").await;
    source
}

async fn copy_film_that_is_not_on_disk(stage: &Stage, source: &Database, id: PipelineId, film: i64) {
    let insert = format!("insert into content.film (id, title) values ({film}, 'Film')");
    source.execute(&format!("set synchronous_commit = off; {insert}")).await;
    stage.request(id).await;
    stage.work_off(reading_from(stage, source)).await;
    assert_eq!(stage.count("analytics.film").await, film);
}

fn reading_from(stage: &Stage, source: &Database) -> RunnerSettings {
    let mut settings = stage.settings("tester");
    settings.connections.0.get_mut("content").unwrap().url = source.url_as("reader", "reads").into();
    settings
}

#[rstest]
#[tokio::test]
async fn nothing_is_copied_that_a_crash_of_its_source_could_take_back(
    #[values(QUERY, FILTERED)] query: &str,
) {
    let stage = Stage::with_films(0).await;
    let source = lazy_source().await;
    let id = stage.incremental_of(query, 10).await;
    for film in 1..4 {
        copy_film_that_is_not_on_disk(&stage, &source, id, film).await;
    }
    let source = source.crash().await;
    assert_eq!(source.value::<i64>("select count(*) from content.film").await, 3);
}

#[rstest]
#[tokio::test]
async fn a_source_whose_log_nobody_flushes_is_made_to_flush_it(#[values(QUERY, FILTERED)] query: &str) {
    let stage = Stage::with_films(0).await;
    let source = lazy_source().await;
    let id = stage.incremental_of(query, 10).await;
    let _stopped = source.stop_log_writer().await;
    copy_film_that_is_not_on_disk(&stage, &source, id, 1).await;
    let snapshot: String = source.value("select pg_current_snapshot()::text").await;
    let checkpoint = stage.checkpoint().await.to_string();
    assert!(checkpoint.contains(&snapshot), "the next pass has nothing to look for: {snapshot} {checkpoint}");
}

#[tokio::test]
async fn nothing_is_written_to_the_log_of_a_source_that_others_may_follow_or_where_it_is_forbidden() {
    let stage = Stage::with_films(0).await;
    let source = lazy_source().await;
    let id = stage.incremental_of(QUERY, 10).await;
    let change = |right: &str| {
        format!(
            "do $$ begin execute (select string_agg(format('{right}', oid::regprocedure), ';') from pg_proc where proname = 'pg_logical_emit_message'); end $$"
        )
    };
    source.execute(&change("revoke execute on function %s from public")).await;
    copy_film_that_is_not_on_disk(&stage, &source, id, 1).await;
    source.execute("alter system set wal_level = logical").await;
    let source = source.crash().await;
    source.execute(&change("grant execute on function %s to public")).await;
    source.execute("select pg_create_logical_replication_slot('others', 'test_decoding')").await;
    copy_film_that_is_not_on_disk(&stage, &source, id, 2).await;
    let written =
        "select count(*) from pg_logical_slot_peek_changes('others', null, null) where data like '%vitrina%'";
    assert_eq!(source.value::<i64>(written).await, 0);
    source.execute("set synchronous_commit = on; select pg_logical_emit_message(true, 'vitrina', '')").await;
    assert_eq!(source.value::<i64>(written).await, 1, "it would have been seen");
}

#[tokio::test]
async fn a_query_whose_rows_depend_on_each_other_cannot_be_followed_row_by_row() {
    let stage = with_new_films(5).await;
    let query = "select id, title, (rank() over (order by rating))::numeric(3,1) as rating, modified from content.film";
    let id = with_query(&stage, query).await;
    let (code, message) = stage.fail(id).await;
    assert_eq!(code, "sql.not_of_a_key");
    assert!(message.contains("partition it by id, or run the pipeline in mode full"), "{message}");
    stage.request_mode(id, vitrina_core::Mode::Full).await;
    stage.runner().work_off().await.unwrap();
    assert_eq!(stage.count("analytics.film").await, 5);
}

#[tokio::test]
async fn a_watched_row_that_names_nothing_is_passed_over() {
    let stage = with_new_films(10).await;
    stage.db.execute("create table content.note (id int primary key, film_id int, text text, modified timestamptz not null default now())").await;
    let id = stage
        .pipeline(json!({
            "mode": "incremental", "incremental_key": "modified", "incremental_id_key": "id", "watch": [{"table": "content.note", "key": ["film_id"]}],
            "source_query": "select f.id, coalesce((select max(n.text) from content.note n where n.film_id = f.id), f.title) as title, f.rating, f.modified from content.film f",
        }))
        .await;
    stage
        .db
        .execute("insert into content.note values (1, 1, 'first', now()), (2, null, 'of nothing', now())")
        .await;
    stage.succeed(id).await;
    stage
        .db
        .execute("insert into content.note values (3, null, 'of nothing', now()), (4, 4, 'noted', now())")
        .await;
    stage.succeed(id).await;
    assert_eq!(stage.count("analytics.film where title = 'noted'").await, 1);
}

#[tokio::test]
async fn an_open_reject_does_not_stop_a_pipeline_that_names_changes_by_a_part_of_its_key() {
    let stage = with_new_films(6).await;
    stage
        .db
        .execute(
            "create table content.film_genre (film_id int, genre text, primary key (film_id, genre));
             insert into content.film_genre select id, genre from content.film, unnest(array['drama', 'too long a word']) genre where id = 2 or genre = 'drama';
             create table analytics.film_genre (film_id int, genre text check (length(genre) < 10), title text, primary key (film_id, genre))",
        )
        .await;
    let id = stage
        .pipeline(json!({
            "mode": "incremental", "incremental_key": "modified", "incremental_id_key": "film_id", "change_key": ["film_id"], "reject_limit": 1,
            "target_table": "analytics.film_genre", "source_table": "content.film",
            "source_query": "select f.id as film_id, g.genre, f.title from content.film f join content.film_genre g on g.film_id = f.id",
        }))
        .await;
    stage.succeed(id).await;
    assert_eq!(stage.rejects().await.len(), 1);
    stage.db.execute("update content.film set title = 'new', modified = now() where id = 3").await;
    stage.succeed(id).await;
    assert_eq!(
        (stage.count("analytics.film_genre where title = 'new'").await, stage.rejects().await.len()),
        (1, 1)
    );
    stage.db.execute("delete from content.film_genre where length(genre) > 9; update content.film set modified = now() where id = 2").await;
    stage.succeed(id).await;
    assert_eq!(stage.rejects().await.len(), 0);
}

/// Three rows a key, and pages that end between them.
#[tokio::test]
async fn of_rows_with_one_key_the_newest_counts_where_a_page_of_a_load_ends_among_them() {
    let stage = with_new_films(20).await;
    let query = "select id, 'version ' || v as title, rating, modified + v * interval '1 second' as modified from content.film, generate_series(1, 3) v";
    let id = stage
        .pipeline(json!({
            "mode": "incremental", "incremental_key": "modified", "incremental_id_key": "id", "source_query": query,
            "read": "keyset", "batch_size": 1, "first_load": "staged",
        }))
        .await;
    stage.request_mode(id, vitrina_core::Mode::Full).await;
    stage.runner().work_off().await.unwrap();
    assert_eq!(stage.count("analytics.film where title = 'version 3'").await, 20);
}

#[rstest]
#[case::keys("select id, title, rating, modified from content.film where title <> 'none'")]
#[case::rows(QUERY)]
#[tokio::test]
async fn a_cursor_that_was_not_null_a_moment_ago_is_looked_at_again(#[case] query: &str) {
    let stage = Stage::with_films(20).await;
    stage.db.execute("alter table content.film alter modified set not null").await;
    let id = stage
        .pipeline(json!({"mode": "incremental", "incremental_key": "modified", "incremental_id_key": "id",
                         "source_query": query, "reject_limit": 9}))
        .await;
    stage.succeed(id).await;
    stage
        .db
        .execute(
            "alter table content.film alter modified drop not null;
             insert into content.film (id, title, modified) values (800, 'Lost', null)",
        )
        .await;
    stage.succeed(id).await;
    assert_eq!(stage.rejects().await, [("row.null_cursor".to_owned(), "[\"800\"]".to_owned())]);
}
