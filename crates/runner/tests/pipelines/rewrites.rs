//! Tables of a source that are emptied and filled again, or rewritten, while they are read. Such statements are not
//! MVCC-safe: a transaction with an older snapshot that waits for their lock sees an empty table.

use rstest::rstest;
use serde_json::{Value, json};
use tokio_postgres::Client;
use vitrina_connectors::sources::changelog::Desk;
use vitrina_core::{Mode, PipelineId, RunId, RunStatus, Status};
use vitrina_runner::RunnerSettings;
use vitrina_store::RunRecord;

use crate::stage::{FILTERED, QUERY, Stage, until};

const FILMS: i32 = 300;
/// A run with pages, passes and keyed reads of a few rows each.
const BATCH: i32 = 10;
const RELOAD: &str = "truncate content.film; insert into content.film table content.kept; commit";
/// Its default is another one for each row, so that the table is written anew.
const REWRITE: &str =
    "alter table content.film add column seen timestamptz not null default clock_timestamp(); commit";

async fn with_kept_films() -> Stage {
    let stage = Stage::with_films(FILMS).await;
    stage.db.execute("create table content.kept as table content.film").await;
    stage
}

/// The run waits for a lock on the table that somebody else holds.
async fn the_run_waits_for(stage: &Stage, table: &str) {
    let waits = format!(
        "select exists (select from pg_locks l join pg_stat_activity a using (pid)
                         where l.relation = '{table}'::regclass and not l.granted and l.mode = 'AccessShareLock'
                           and a.application_name like 'vitrina/%')"
    );
    until(|| stage.db.value::<bool>(&waits)).await;
}

/// As `meet`, and the run succeeds.
async fn meet_halfway(stage: &Stage, settings: RunnerSettings, id: PipelineId, table: &str, ddl: &str) {
    let run = meet(stage, settings, id, table, ddl).await;
    assert_eq!((run.status, stage.status(id).await), (RunStatus::Success, Status::Idle), "{:?}", run.error);
}

/// Halfway through its rows a run meets a transaction that has locked `table`, and which then does `ddl`.
async fn meet(stage: &Stage, settings: RunnerSettings, id: PipelineId, table: &str, ddl: &str) -> RunRecord {
    let (mut runner, shutdown) = stage.start(settings);
    let (run, sink) = stop_halfway(stage, id).await;
    let other = stage.db.client().await;
    let lock = format!("begin; lock table {table} in access exclusive mode");
    // Granted at the end of the page that is being read.
    let locked = tokio::join!(other.batch_execute(&lock), async {
        until(async || is_locked_or_awaited(stage, table).await).await;
        sink.batch_execute("rollback").await.unwrap();
    });
    locked.0.unwrap();
    let run = end_beside(stage, &other, run, table, ddl).await;
    shutdown.cancel();
    runner.join_next().await.unwrap().unwrap();
    run
}

/// A run whose sink waits: at its third batch where the mart was empty, else at its first one.
async fn stop_halfway(stage: &Stage, id: PipelineId) -> (RunId, Client) {
    if stage.count("analytics.film").await > 0 {
        let sink = stage.block_mart().await;
        let run = stage.request(id).await;
        stage.someone_waits_for_the_mart().await;
        return (run, sink);
    }
    let sink = stage.block_film(3 * BATCH).await;
    let run = stage.request(id).await;
    stage.someone_waits_for_a_row().await;
    (run, sink)
}

async fn is_locked_or_awaited(stage: &Stage, table: &str) -> bool {
    let sql = format!(
        "select exists (select from pg_locks where relation = '{table}'::regclass and mode = 'AccessExclusiveLock')"
    );
    stage.db.value::<bool>(&sql).await
}

/// Before its first row a run meets such a transaction: its source is described by then.
async fn meet_at_the_start(stage: &Stage, run: RunId, ddl: &str) {
    let gate = stage.db.client().await;
    gate.batch_execute("begin; lock table etl.etl_rejects in access exclusive mode").await.unwrap();
    let (mut runner, shutdown) = stage.start_runner("tester");
    stage.someone_waits_for("etl.etl_rejects").await;
    let other = stage.db.client().await;
    other.batch_execute("begin; lock table content.film in access exclusive mode").await.unwrap();
    gate.batch_execute("commit").await.unwrap();
    let run = end_beside(stage, &other, run, "content.film", ddl).await;
    shutdown.cancel();
    runner.join_next().await.unwrap().unwrap();
    assert_eq!(run.status, RunStatus::Success, "{:?}", run.error);
}

async fn end_beside(stage: &Stage, other: &Client, run: RunId, table: &str, ddl: &str) -> RunRecord {
    the_run_waits_for(stage, table).await;
    other.batch_execute(ddl).await.unwrap();
    until(async || stage.run_record(run).await.status != RunStatus::Running).await;
    stage.run_record(run).await
}

fn pipeline(query: &str, more: &Value) -> Value {
    let mut config = json!({"source_query": query, "batch_size": BATCH, "delete_limit": 1.0});
    for (field, value) in more.as_object().unwrap() {
        config[field] = value.clone();
    }
    config
}

fn in_pages() -> Value {
    json!({"read": "keyset"})
}

fn by_cursor() -> Value {
    json!({"mode": "incremental", "incremental_key": "modified", "incremental_id_key": "id"})
}

#[rstest]
#[case::in_pages(QUERY, in_pages())]
#[case::by_rows_of_a_cursor(QUERY, by_cursor())]
#[case::by_keys_of_a_cursor(FILTERED, by_cursor())]
#[tokio::test]
async fn a_table_that_is_emptied_and_filled_again_during_a_run_loses_no_row(
    #[case] query: &str,
    #[case] more: Value,
    #[values(RELOAD, REWRITE)] ddl: &str,
) {
    let stage = with_kept_films().await;
    let id = stage.pipeline(pipeline(query, &more)).await;
    meet_halfway(&stage, stage.settings("tester"), id, "content.film", ddl).await;
    assert_eq!(stage.differences().await, 0);
}

/// The same for all that a query may read: the locks of views and partitioned tables hold what is below them.
#[rstest]
#[case::a_joined_table(
    "select f.id, f.title, k.rating, f.modified from content.plain f left join content.film k using (id)"
)]
#[case::a_view("select id, title, rating, modified from content.all_films")]
#[case::a_view_of_views("select id, title, rating, modified from content.some_films")]
#[tokio::test]
async fn tables_behind_joins_and_views_are_locked_as_well(#[case] query: &str) {
    let stage = with_kept_films().await;
    stage
        .db
        .execute(
            "create table content.plain as table content.film; alter table content.plain add primary key (id);
             create view content.all_films as select * from content.film;
             create view content.some_films as select * from content.all_films where id > 0",
        )
        .await;
    let id = stage.pipeline(pipeline(query, &in_pages())).await;
    meet_halfway(&stage, stage.settings("tester"), id, "content.film", RELOAD).await;
    assert_eq!(stage.differences().await, 0);
}

const RELOAD_PARTITION: &str =
    "truncate content.film_2; insert into content.film select * from content.kept where id >= 150; commit";
const EXCHANGE: &str = "create table content.film_3 (like content.film_2 including all);
    insert into content.film_3 table content.film_2; alter table content.film detach partition content.film_2;
    alter table content.film attach partition content.film_3 for values from (150) to (1000); commit";

async fn with_partitions() -> Stage {
    let stage = with_kept_films().await;
    stage
        .db
        .execute(
            "drop table content.film;
             create table content.film (id int, title text, rating numeric(3,1), modified timestamptz not null, primary key (id)) partition by range (id);
             create table content.film_1 partition of content.film for values from (0) to (150);
             create table content.film_2 partition of content.film for values from (150) to (1000);
             insert into content.film table content.kept",
        )
        .await;
    stage
}

#[rstest]
#[tokio::test]
async fn increments_of_a_login_with_rights_on_some_columns_meet_every_change(
    #[values(QUERY, FILTERED)] query: &str,
) {
    let stage = Stage::with_films(20).await;
    let settings = as_reader(&stage, COLUMNS).await;
    let id = stage.incremental_of(query, 7).await;
    let run = async || {
        stage.request(id).await;
        stage.work_off(settings.clone()).await;
        assert_eq!(stage.status(id).await, Status::Idle);
        assert_eq!(stage.differences().await, 0);
    };
    run().await;
    stage.db.execute("update content.film set title = 'New', modified = now() where id in (3, 9)").await;
    run().await;
    // Within the late window, behind what the last pass has read.
    stage
        .db
        .execute(
            "update content.film set title = 'Late', modified = now() - interval '1 minute' where id = 5",
        )
        .await;
    run().await;
}

#[rstest]
#[case::the_whole_table("content.film", RELOAD)]
#[case::a_partition("content.film_2", RELOAD_PARTITION)]
#[case::a_partition_in_place_of_another("content.film", EXCHANGE)]
#[tokio::test]
async fn partitions_that_are_emptied_or_exchanged_during_a_run_lose_no_row(
    #[case] table: &str,
    #[case] ddl: &str,
    #[values(in_pages(), by_cursor())] more: Value,
) {
    let stage = with_partitions().await;
    let id = stage.pipeline(pipeline(QUERY, &more)).await;
    meet_halfway(&stage, stage.settings("tester"), id, table, ddl).await;
    assert_eq!(stage.differences().await, 0);
}

/// A login of its own that may read what the statements grant it.
async fn as_reader(stage: &Stage, grants: &str) -> RunnerSettings {
    let reader = format!("reader_{}", stage.db.name());
    let grants = grants.replace("READER", &reader);
    stage
        .db
        .execute(&format!(
            "create role {reader} login password 'read'; grant usage on schema content to {reader}; {grants}"
        ))
        .await;
    let mut settings = stage.settings("tester");
    settings.connections.0.get_mut("content").unwrap().url = stage.db.url_as(&reader, "read").into();
    settings
}

const COLUMNS: &str = "grant select (id, title, rating, modified) on content.film to READER";

#[rstest]
#[case::in_pages(QUERY, in_pages())]
#[case::by_keys(FILTERED, by_cursor())]
#[tokio::test]
async fn a_login_with_rights_on_some_columns_loses_no_row_either(
    #[case] query: &str,
    #[case] more: Value,
    #[values(RELOAD, REWRITE)] ddl: &str,
) {
    let stage = with_kept_films().await;
    let settings = as_reader(&stage, COLUMNS).await;
    let id = stage.pipeline(pipeline(query, &more)).await;
    meet_halfway(&stage, settings, id, "content.film", ddl).await;
    assert_eq!(stage.differences().await, 0);
}

#[rstest]
#[case::the_whole_table("content.film", RELOAD)]
#[case::a_partition("content.film_2", RELOAD_PARTITION)]
#[case::a_partition_in_place_of_another("content.film", EXCHANGE)]
#[tokio::test]
async fn a_login_with_rights_on_some_columns_loses_no_partition_either(
    #[case] table: &str,
    #[case] ddl: &str,
) {
    let stage = with_partitions().await;
    let settings = as_reader(&stage, COLUMNS).await;
    let id = stage.pipeline(pipeline(QUERY, &in_pages())).await;
    meet_halfway(&stage, settings, id, table, ddl).await;
    assert_eq!(stage.differences().await, 0);
}

#[tokio::test]
async fn a_table_beside_a_materialized_view_loses_no_row_either() {
    let stage = with_kept_films().await;
    stage.db.execute("create materialized view content.ratings as select id, rating from content.film").await;
    let settings = as_reader(&stage, "grant select on all tables in schema content to READER").await;
    let query = "select f.id, f.title, r.rating, f.modified from content.film f left join content.ratings r using (id)";
    let id = stage.pipeline(pipeline(query, &in_pages())).await;
    meet_halfway(&stage, settings, id, "content.film", RELOAD).await;
    assert_eq!(stage.differences().await, 0);
}

async fn install_log(stage: &Stage) {
    let settings = stage.settings("desk");
    let desk = Desk::open(settings.connections.get("content").unwrap()).await.unwrap();
    let logged = desk.logged("content.film", &["id".to_owned()]).await.unwrap();
    desk.apply(&desk.install(&logged, "postgres").await.unwrap()).await.unwrap();
}

fn by_changelog() -> Value {
    json!({"mode": "incremental", "capture": "changelog"})
}

#[tokio::test]
async fn by_the_change_log_a_rewritten_table_loses_no_row() {
    let stage = with_kept_films().await;
    install_log(&stage).await;
    let id = stage.pipeline(pipeline(QUERY, &by_changelog())).await;
    stage.succeed(id).await;
    stage.db.execute("update content.film set title = 'New ' || id").await;
    meet_halfway(&stage, stage.settings("tester"), id, "content.film", REWRITE).await;
    assert_eq!(stage.differences().await, 0);
}

#[rstest]
#[case::a_stream(QUERY, json!({"read": "stream"}))]
#[case::the_opening_of_a_pass_by_rows(QUERY, by_cursor())]
#[case::the_opening_of_a_pass_by_keys(FILTERED, by_cursor())]
#[tokio::test]
async fn a_run_whose_table_is_emptied_and_filled_again_before_its_first_row_loses_none(
    #[case] query: &str,
    #[case] more: Value,
) {
    let stage = with_kept_films().await;
    let id = stage.pipeline(pipeline(query, &more)).await;
    let run = stage.request(id).await;
    meet_at_the_start(&stage, run, RELOAD).await;
    assert_eq!((stage.count("analytics.film").await, stage.differences().await), (i64::from(FILMS), 0));
}

#[rstest]
#[tokio::test]
async fn a_backfill_deletes_no_row_of_a_table_that_is_emptied_and_filled_again(
    #[values(true, false)] by_keys: bool,
) {
    let stage = with_kept_films().await;
    let id = stage.pipeline(pipeline(FILTERED, &by_cursor())).await;
    stage.succeed(id).await;
    let run = match by_keys {
        true => stage.request_keys(id, json!([["5"], ["6"]])).await,
        false => stage.request_range(id, Some("2024-01-01"), None).await,
    };
    meet_at_the_start(&stage, run, RELOAD).await;
    assert_eq!(stage.differences().await, 0);
}

#[tokio::test]
async fn a_table_that_stays_locked_gives_the_pipeline_back() {
    let stage = with_kept_films().await;
    let id = stage.full(BATCH).await;
    let other = stage.db.client().await;
    other.batch_execute("begin; lock table content.film in access exclusive mode").await.unwrap();
    stage.run(id).await;
    let told: String = stage.db.value("select error_code from etl.etl_attempts").await;
    assert_eq!((stage.status(id).await, told.as_str()), (Status::RunRequested, "source.locked"));
    other.batch_execute("commit").await.unwrap();
    stage.db.execute("update etl.etl_pipelines set retry_at = null").await;
    stage.work_off(stage.settings("tester")).await;
    assert_eq!((stage.status(id).await, stage.differences().await), (Status::Idle, 0));
}

const NUMBERED: &str = "select id, title, rating, modified, n from content.film";

async fn with_numbers() -> Stage {
    let stage = with_kept_films().await;
    stage.db.execute("alter table content.film add column n int default 7; alter table analytics.film add column n bigint").await;
    stage
}

#[rstest]
#[tokio::test]
async fn a_column_that_gets_another_type_during_a_run_is_described_anew(
    #[values(in_pages(), by_cursor())] more: Value,
) {
    let stage = with_numbers().await;
    let id = stage.pipeline(pipeline(NUMBERED, &more)).await;
    let ddl = "alter table content.film alter column n type bigint using n + 5000000000; commit";
    meet_halfway(&stage, stage.settings("tester"), id, "content.film", ddl).await;
    let numbers = "select string_agg(distinct n::text, ' ' order by n::text) from analytics.film";
    assert_eq!(
        stage.db.value::<String>(numbers).await,
        "5000000007 7",
        "those read before, and those read after"
    );
    assert_eq!(stage.differences().await, 0);
}

#[tokio::test]
async fn a_column_that_gets_another_type_of_the_same_size_is_not_read_as_the_older_one() {
    let stage = with_numbers().await;
    stage.db.execute("alter table content.film alter column n type bigint").await;
    let id = stage.pipeline(pipeline(NUMBERED, &in_pages())).await;
    let ddl = "alter table content.film alter column n type float8; commit";
    meet(&stage, stage.settings("tester"), id, "content.film", ddl).await;
    assert_eq!(stage.db.value::<i64>("select count(*) from analytics.film where n <> 7").await, 0);
}

#[tokio::test]
async fn a_column_that_comes_during_a_run_is_left_to_the_next_one() {
    let stage = with_kept_films().await;
    let id = stage.pipeline(pipeline("select * from content.film", &in_pages())).await;
    let ddl = "alter table content.film add column studio text default 'x'; commit";
    meet_halfway(&stage, stage.settings("tester"), id, "content.film", ddl).await;
    assert_eq!(stage.differences().await, 0);
}

/// It is in no page of the load: not under the key that it had, nor under the one that it has.
#[rstest]
#[tokio::test]
async fn a_key_that_moves_behind_the_position_of_a_load_is_found_by_the_next_pass(
    #[values(by_cursor(), by_changelog())] mut more: Value,
) {
    let stage = with_kept_films().await;
    install_log(&stage).await;
    more["read"] = json!("keyset");
    let id = stage.pipeline(pipeline(FILTERED, &more)).await;
    let (mut runner, shutdown) = stage.start_runner("tester");
    let sink = stage.block_film(3 * BATCH).await;
    let run = stage.request_mode(id, Mode::Full).await;
    stage.someone_waits_for_a_row().await;
    stage.db.execute("delete from content.film where id = 1; update content.film set id = 1, modified = now() where id = 300").await;
    sink.batch_execute("rollback").await.unwrap();
    until(async || stage.run_record(run).await.status == RunStatus::Success).await;
    assert_ne!(stage.differences().await, 0, "a page has missed it");
    shutdown.cancel();
    runner.join_next().await.unwrap().unwrap();
    stage.succeed(id).await;
    assert_eq!(stage.differences().await, 0);
}

#[rstest]
#[case::a_foreign_table("select id, title, rating, modified from content.elsewhere")]
#[case::behind_a_view("select id, title, rating, modified from content.both")]
#[case::a_foreign_partition("select id, title, rating, modified from content.parts")]
#[tokio::test]
async fn a_query_that_reads_foreign_tables_is_refused(#[case] query: &str) {
    let stage = Stage::with_films(3).await;
    stage
        .db
        .execute(
            "create extension postgres_fdw; create server away foreign data wrapper postgres_fdw;
             create foreign table content.elsewhere (id int, title text, rating numeric(3,1), modified timestamptz) server away;
             create view content.both as select id, title, rating, modified from content.film union all table content.elsewhere;
             create table content.parts (id int, title text, rating numeric(3,1), modified timestamptz) partition by range (id);
             create foreign table content.part_1 partition of content.parts for values from (0) to (100) server away",
        )
        .await;
    let id = stage.pipeline(pipeline(query, &by_cursor())).await;
    let (code, message) = stage.fail(id).await;
    assert_eq!(code, "sql.foreign_table", "{message}");
    assert!(message.contains("source_connection"), "{message}");
}
