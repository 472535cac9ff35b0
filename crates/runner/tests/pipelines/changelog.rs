//! The change log: what it names, what it does not vouch for, and who may follow it.

use rstest::rstest;
use serde_json::{Value, json};
use vitrina_connectors::sources::changelog::{Desk, Logged};
use vitrina_core::PipelineId;
use vitrina_testbed::Database;

use crate::stage::{Stage, until};

/// The statements that `vitrina changelog install` prints, applied.
pub(crate) async fn install(stage: &Stage, table: &str, key: &[&str]) -> Logged {
    let desk = desk(stage).await;
    let key: Vec<String> = key.iter().map(|&name| name.to_owned()).collect();
    let logged = desk.logged(table, &key).await.unwrap();
    let statements = desk.install(&logged, "postgres").await.unwrap();
    assert!(!statements.is_empty());
    desk.apply(&statements).await.unwrap();
    assert_eq!(desk.install(&logged, "postgres").await.unwrap(), Vec::<String>::new(), "once is enough");
    logged
}

async fn desk(stage: &Stage) -> Desk {
    Desk::open(stage.settings("desk").connections.get("content").unwrap()).await.unwrap()
}

fn followed(changes: &Value) -> Value {
    let mut config = json!({"mode": "incremental", "capture": "changelog", "batch_size": 10});
    for (field, value) in changes.as_object().unwrap() {
        config[field] = value.clone();
    }
    config
}

async fn with_log(films: i32) -> (Stage, PipelineId) {
    let stage = Stage::with_films(films).await;
    install(&stage, "content.film", &["id"]).await;
    let id = stage.pipeline(followed(&json!({}))).await;
    stage.succeed(id).await;
    assert_eq!(stage.differences().await, 0);
    (stage, id)
}

#[tokio::test]
async fn inserts_updates_deletes_and_moved_keys_arrive_whatever_the_clock_says() {
    let (stage, id) = with_log(50).await;
    stage
        .db
        .execute(
            "insert into content.film (id, title, modified) values (51, 'Old stamp', '1990-01-01');
             update content.film set title = 'Same stamp' where id in (3, 4);
             update content.film set id = 1007 where id = 7;
             delete from content.film where id between 20 and 24",
        )
        .await;
    let run = stage.succeed(id).await;
    assert_eq!((run.rows_written, run.rows_deleted, stage.differences().await), (4, 6, 0));
    let idle = stage.succeed(id).await;
    assert_eq!((idle.rows_read, idle.batches), (0, 0));
}

#[tokio::test]
async fn a_transaction_belongs_to_one_window_however_long_it_runs() {
    let (stage, id) = with_log(20).await;
    let late = stage.db.client().await;
    late.batch_execute(
        "begin; savepoint a; update content.film set title = 'late' where id = 2; release a; select 1",
    )
    .await
    .unwrap();
    for film in 3..6 {
        stage.db.execute(&format!("update content.film set title = 'soon' where id = {film}")).await;
        assert_eq!(stage.succeed(id).await.rows_read, 1);
    }
    late.batch_execute("commit").await.unwrap();
    assert_eq!(stage.succeed(id).await.rows_read, 1);
    assert_eq!(stage.differences().await, 0);
    let undone = stage.db.client().await;
    undone.batch_execute("begin; update content.film set title = 'never'; rollback").await.unwrap();
    assert_eq!(stage.succeed(id).await.rows_read, 0);
}

#[tokio::test]
async fn a_large_window_is_read_in_pages_and_resumed_where_it_was_left() {
    let (stage, id) = with_log(300).await;
    stage
        .db
        .execute("update content.film set title = 'new'; update etl.etl_pipelines set batch_size = 7")
        .await;
    let run = stage.succeed(id).await;
    assert_eq!((run.rows_read, run.rows_written), (300, 300));
    assert!(run.batches >= 43, "{}", run.batches);
    assert_eq!(stage.differences().await, 0);
}

#[tokio::test]
async fn keys_of_several_columns_and_awkward_types_are_named_exactly() {
    let stage = Stage::with_films(0).await;
    stage
        .db
        .execute(
            "create table content.show (day date, at time, place text, seats numeric, primary key (day, at, place));
             create table analytics.show (day date, at time, place text, seats numeric, primary key (day, at, place))",
        )
        .await;
    install(&stage, "content.show", &["day", "at", "place"]).await;
    let query = "select day, at, place, seats from content.show";
    let id = stage
        .pipeline(followed(
            &json!({"source_query": query, "target_table": "analytics.show", "delete_limit": 1}),
        ))
        .await;
    stage.succeed(id).await;
    let writer = stage.db.client().await;
    writer
        .batch_execute(
            "set datestyle = 'German'; set timezone = 'Asia/Tokyo';
             insert into content.show values ('03.02.2026', '10:30', 'Зал \"1\", {left}', 10), ('04.02.2026', '23:59:59.5', E'a\\\\b\\tc', 1.50)",
        )
        .await
        .unwrap();
    assert_eq!(stage.succeed(id).await.rows_written, 2);
    writer
        .batch_execute(
            "update content.show set seats = 9; delete from content.show where seats = 9 and place like 'a%'",
        )
        .await
        .unwrap();
    let run = stage.succeed(id).await;
    assert_eq!((run.rows_written, run.rows_deleted), (1, 1));
}

#[tokio::test]
async fn an_aggregate_and_a_join_follow_every_table_they_are_made_of() {
    let stage = Stage::with_films(30).await;
    stage
        .db
        .execute(
            "create table content.rating (film_id int, person int, score int, primary key (film_id, person));
             create table content.actor (id int primary key, name text);
             create table content.role (film_id int, actor_id int, primary key (film_id, actor_id));
             insert into content.rating select f.id, p, (f.id + p) % 10 from content.film f, generate_series(1, 3) p;
             insert into content.actor select n, 'Actor ' || n from generate_series(1, 5) n;
             insert into content.role select id, 1 + id % 5 from content.film",
        )
        .await;
    for (table, key) in [
        ("content.film", "id"),
        ("content.rating", "film_id"),
        ("content.role", "film_id"),
        ("content.actor", "id"),
    ] {
        install(&stage, table, &[key]).await;
    }
    let query = "select f.id, coalesce(min(a.name), f.title) as title, avg(r.score)::numeric(3,1) as rating, f.modified
        from content.film f left join content.rating r on r.film_id = f.id
        left join content.role o on o.film_id = f.id left join content.actor a on a.id = o.actor_id group by f.id";
    let id = stage
        .pipeline(followed(&json!({"source_query": query, "watch": [
            {"table": "content.rating", "key": ["film_id"]},
            {"table": "content.role", "key": ["film_id"]},
            {"table": "content.actor", "key": ["id"], "keys": "select film_id from content.role where actor_id = any($1)"},
        ]})))
        .await;
    stage.succeed(id).await;
    let stale = format!(
        "with mart as (select id, title, rating, modified from analytics.film), source as ({query})
         select (select count(*) from (table mart except all table source) a) + (select count(*) from (table source except all table mart) b)"
    );
    for change in [
        "delete from content.rating where film_id = 3",
        "update content.rating set film_id = 5, person = 77 where film_id = 4 and person = 1",
        "update content.actor set name = 'Changed' where id = 2",
        "delete from content.role where film_id = 9",
        "insert into content.role values (9, 3), (10, 4)",
    ] {
        stage.db.execute(change).await;
        let run = stage.succeed(id).await;
        assert!((1..=10).contains(&run.rows_read), "{change}: {} rows read", run.rows_read);
        assert_eq!(stage.db.value::<i64>(&stale).await, 0, "{change}");
    }
}

/// Each of these may have passed the log by.
#[tokio::test]
async fn what_the_log_cannot_vouch_for_is_loaded_anew() {
    for doubt in [
        "truncate content.film; insert into content.film (id, title) select n, 'Again' from generate_series(2, 30) n",
        "alter table content.film disable trigger user; delete from content.film where id = 2; alter table content.film enable trigger user;
         do $$ declare t record; begin for t in select tgname, pg_get_triggerdef(oid) as def from pg_trigger where tgrelid = 'content.film'::regclass and tgname like 'vitrina%insert' loop
            execute 'drop trigger ' || t.tgname || ' on content.film'; execute t.def; end loop; end $$",
        "alter table content.film disable trigger user; delete from content.film where id = 2; alter table content.film enable trigger user",
        "update vitrina_log.change_consumers set dropped = true",
        "delete from vitrina_log.change_consumers",
        "update vitrina_log.change_consumers set receipt = 0",
        "update vitrina_log.change_pruned set below = pg_snapshot_xmax(pg_current_snapshot())",
        "update vitrina_log.change_pruned set below = '99999999999'",
        "update etl.etl_state set checkpoint = jsonb_set(checkpoint, '{position,done,server}', '\"another/1\"')",
        "update etl.etl_state set checkpoint = jsonb_set(checkpoint, '{position,done,snapshot}', '\"999999999:999999999:\"')",
    ] {
        let (stage, id) = with_log(30).await;
        stage.db.execute(doubt).await;
        let run = stage.succeed(id).await;
        assert!(run.rows_read >= 29, "{doubt}: {} rows read", run.rows_read);
        assert_eq!(stage.differences().await, 0, "{doubt}");
        stage.db.execute("update content.film set title = 'after' where id = 3").await;
        assert_eq!(stage.succeed(id).await.rows_read, 1, "{doubt}");
    }
}

#[tokio::test]
async fn a_log_whose_triggers_are_missing_is_refused_until_they_are_back() {
    let (stage, id) = with_log(10).await;
    stage.db.execute("alter table content.film disable trigger user").await;
    let (code, message) = stage.fail(id).await;
    assert_eq!(code, "changelog.not_installed");
    assert!(message.contains("vitrina changelog install content.film --key id"), "{message}");
    stage
        .db
        .execute("delete from content.film where id = 5; alter table content.film enable trigger user")
        .await;
    stage.succeed(id).await;
    assert_eq!(stage.differences().await, 0);
}

#[tokio::test]
async fn partitions_are_logged_themselves_and_a_new_one_is_not_trusted_before_it_is() {
    let stage = Stage::with_films(0).await;
    stage
        .db
        .execute(
            "drop table content.film;
             create table content.film (id int primary key, title text, rating numeric(3,1), modified timestamptz not null default now()) partition by range (id);
             create table content.film_1 partition of content.film for values from (0) to (100);
             create table content.film_2 partition of content.film for values from (100) to (200)",
        )
        .await;
    stage.add_films(1, 150).await;
    install(&stage, "content.film", &["id"]).await;
    let id = stage.pipeline(followed(&json!({}))).await;
    stage.succeed(id).await;
    stage.db.execute("update content.film set title = 'by the parent' where id in (5, 105); update content.film_2 set title = 'by the partition' where id = 106; update content.film set id = 180 + id where id = 8").await;
    stage.succeed(id).await;
    assert_eq!(stage.differences().await, 0);
    stage
        .db
        .execute(
            "create table content.film_3 (like content.film including all); insert into content.film_3 (id, title) values (250, 'attached');
             alter table content.film attach partition content.film_3 for values from (200) to (300)",
        )
        .await;
    assert_eq!(stage.fail(id).await.0, "changelog.not_installed");
    install(&stage, "content.film", &["id"]).await;
    stage.succeed(id).await;
    assert_eq!(stage.differences().await, 0);
}

/// Pruning and followers were last heard of long enough ago to be heard of again.
const AGED: &str = "update vitrina_log.change_pruned set pruned_at = now() - interval '1 hour';
    update vitrina_log.change_consumers set updated_at = now() - interval '10 minutes'";

#[tokio::test]
async fn the_log_is_pruned_behind_its_slowest_follower() {
    let (stage, id) = with_log(20).await;
    stage.db.execute("update content.film set title = 'new'").await;
    // A transaction of another test on the same server would hold the window's end back, and the pruning with it.
    let behind_all = "select not exists (select from vitrina_log.change_log where xid >= pg_snapshot_xmin(pg_current_snapshot()))";
    until(|| stage.db.value::<bool>(behind_all)).await;
    stage.succeed(id).await;
    stage.db.execute(AGED).await;
    assert!(stage.count("vitrina_log.change_log").await >= 20);
    stage.db.execute("update content.film set title = 'newer' where id = 1").await;
    stage.succeed(id).await;
    assert_eq!(stage.count("vitrina_log.change_log").await, 1, "the last window may be read again");
    stage.db.execute("insert into vitrina_log.change_consumers (installation, pipeline, snapshot) values (gen_random_uuid(), gen_random_uuid(), '1:1:')").await;
    stage.db.execute("update content.film set title = 'newest'").await;
    stage.succeed(id).await;
    stage.db.execute(AGED).await;
    stage.succeed(id).await;
    assert!(stage.count("vitrina_log.change_log").await > 20, "someone has not read them yet");
}

#[tokio::test]
async fn changes_that_a_copy_of_the_meta_store_has_read_are_not_lost_to_the_original() {
    let (mut stage, id) = with_log(20).await;
    let copy = stage.copy().await;
    let mut settings = copy.settings("copied");
    settings.connections.0.get_mut("content").unwrap().url = stage.db.url().into();
    for title in ["First", "Second", "Third"] {
        stage.db.execute(&format!("update content.film set title = '{title}' where id < 5; {AGED}")).await;
        stage.outlasts_others().await;
        copy.request(id).await;
        copy.work_off(settings.clone()).await;
    }
    assert_eq!(stage.count("vitrina_log.change_log").await, 4, "the copy has had the others pruned");
    stage.succeed(id).await;
    assert_eq!(stage.differences().await, 0);
}

/// The status of what was asked of the two ends of a deleted pipeline.
async fn forgetting(stage: &Stage, end: &str) -> String {
    let sql = format!(
        "select status from etl.etl_requests where kind = 'forget' and payload -> '{end}' is not null"
    );
    stage.db.value(&sql).await
}

/// A runner that could not remove what was left puts that off.
async fn is_put_off(stage: &Stage) {
    let later = "select count(*) = 1 from etl.etl_requests where kind = 'forget' and status = 'RUNNING'
                    and lease_until > clock_timestamp() + interval '1 minute'";
    until(|| stage.db.value::<bool>(later)).await;
}

async fn let_it_be_tried_again(stage: &Stage) {
    stage
        .db
        .execute("update etl.etl_requests set lease_until = clock_timestamp() where status = 'RUNNING'")
        .await;
}

/// A runner whose login at the source may read, and has what `vitrina changelog install` grants.
async fn as_reader(stage: &Stage) -> vitrina_runner::RunnerSettings {
    let reader = format!("r_{}", stage.db.name());
    let reader = &reader[..reader.len().min(60)];
    stage.db.execute(&format!("create role {reader} login password 'read'; alter role {reader} set default_transaction_read_only = on")).await;
    let desk = desk(stage).await;
    let logged = desk.logged("content.film", &["id".to_owned()]).await.unwrap();
    desk.apply(&desk.install(&logged, reader).await.unwrap()).await.unwrap();
    let mut settings = stage.settings("r1");
    settings.connections.0.get_mut("content").unwrap().url = stage.db.url_as(reader, "read").into();
    settings
}

#[tokio::test(flavor = "multi_thread")]
async fn the_log_does_not_wait_for_a_deleted_pipeline() {
    let (stage, id) = with_log(20).await;
    stage.db.execute("create table analytics.stays (like analytics.film including all)").await;
    let stays = stage.pipeline(followed(&json!({"name": "stays", "target_table": "analytics.stays"}))).await;
    stage.succeed(stays).await;
    stage.delete(id).await;
    let (runner, stop) = stage.start(as_reader(&stage).await);
    until(async || forgetting(&stage, "source").await == "DONE").await;
    let followers = stage.db.texts("select pipeline::text from vitrina_log.change_consumers").await;
    assert_eq!(followers, [[Some(stays.to_string())]]);
    stop.cancel();
    runner.join_all().await;
    stage.db.execute("update content.film set title = 'new'").await;
    stage.succeed(stays).await;
    stage.db.execute(AGED).await;
    stage.db.execute("update content.film set title = 'newer' where id = 1").await;
    stage.succeed(stays).await;
    assert_eq!(stage.count("vitrina_log.change_log").await, 1, "nobody else has to read the others");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_source_that_is_away_is_told_later_that_a_pipeline_is_gone_and_keeps_nothing_else_waiting() {
    let (stage, id) = with_log(3).await;
    stage.delete(id).await;
    let mut away = stage.settings("r1");
    away.connections.0.get_mut("content").unwrap().url = "postgres://reader@127.0.0.1:1/content".into();
    let (away, stop) = stage.start(away);
    until(async || forgetting(&stage, "target").await == "DONE").await;
    is_put_off(&stage).await;
    stop.cancel();
    away.join_all().await;
    assert_eq!(stage.count("vitrina_log.change_consumers").await, 1);
    let_it_be_tried_again(&stage).await;
    let (_back, _stop) = stage.start_runner("r2");
    until(async || forgetting(&stage, "source").await == "DONE").await;
    assert_eq!(stage.count("vitrina_log.change_consumers").await, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_log_of_an_older_release_is_followed_as_it_is_and_completed_by_its_next_installation() {
    let (stage, id) = with_log(3).await;
    stage.db.execute("drop function vitrina_log.forget_changes").await;
    stage.db.execute("update content.film set title = 'new'").await;
    assert_eq!(stage.succeed(id).await.rows_read, 3);
    stage.delete(id).await;
    let (_runner, _stop) = stage.start_runner("r1");
    is_put_off(&stage).await;
    assert_eq!(stage.count("vitrina_log.change_consumers").await, 1);
    install(&stage, "content.film", &["id"]).await;
    let_it_be_tried_again(&stage).await;
    let (_next, _stop) = stage.start_runner("r2");
    until(async || forgetting(&stage, "source").await == "DONE").await;
    assert_eq!(stage.count("vitrina_log.change_consumers").await, 0);
}

#[tokio::test]
async fn without_a_log_the_run_says_what_to_apply() {
    let stage = Stage::with_films(3).await;
    let id = stage.pipeline(followed(&json!({}))).await;
    assert_eq!(stage.fail(id).await.0, "changelog.not_installed");
    install(&stage, "content.film", &["id"]).await;
    stage.db.execute("update etl.etl_pipelines set source_query = 'select max(id) as id, title, max(rating)::numeric(3,1) as rating, max(modified) as modified from content.film group by title'").await;
    let (code, message) = stage.fail(id).await;
    assert_eq!(code, "changelog.no_table");
    assert!(message.contains("id is not a plain column"), "{message}");
}

#[tokio::test]
async fn a_removed_log_leaves_nothing_at_the_table() {
    let (stage, _) = with_log(3).await;
    let desk = desk(&stage).await;
    let logged = desk.logged("content.film", &["id".to_owned()]).await.unwrap();
    assert_eq!(desk.tables().await.unwrap().len(), 1);
    desk.apply(&desk.remove(&logged).await.unwrap()).await.unwrap();
    assert_eq!(desk.tables().await.unwrap().len(), 0);
    assert_eq!(stage.count("pg_trigger where tgname like 'vitrina%'").await, 0);
    stage.db.execute("update content.film set title = 'free'").await;
}

/// Statement triggers do not fire for what logical replication applies.
#[tokio::test]
async fn a_subscribed_table_logs_what_replication_brings() {
    let publisher = Database::on_a_server_of_its_own().await;
    publisher.execute("alter system set wal_level = logical").await;
    let publisher = publisher.crash().await;
    let tables = "create schema content; create table content.film (id int primary key, title text)";
    publisher.execute(&format!("{tables}; create publication films for table content.film")).await;
    publisher.execute("insert into content.film values (1, 'One')").await;

    let stage = Stage::with_films(0).await;
    let source = Database::on_a_server_of_its_own().await;
    source.execute(tables).await;
    source
        .execute(&format!("create subscription films connection '{}' publication films", publisher.url()))
        .await;
    let films = async |count: i64| {
        until(async || source.value::<i64>("select count(*) from content.film").await == count).await;
    };
    films(1).await;

    let mut settings = stage.settings("tester");
    settings.connections.0.get_mut("content").unwrap().url = source.url().into();
    let desk = Desk::open(settings.connections.get("content").unwrap()).await.unwrap();
    let logged = desk.logged("content.film", &["id".to_owned()]).await.unwrap();
    let statements = desk.install(&logged, "postgres").await.unwrap();
    assert!(statements.iter().any(|sql| sql.contains("enable always trigger")), "{statements:?}");
    desk.apply(&statements).await.unwrap();

    publisher.execute("insert into content.film values (2, 'Two'), (3, 'Three'); update content.film set title = 'Uno' where id = 1").await;
    films(3).await;
    publisher.execute("delete from content.film where id = 2").await;
    films(2).await;
    let logged =
        "select string_agg(key::text || op::text, ' ' order by xid, key) from vitrina_log.change_log";
    let logged: String = source.value(logged).await;
    assert_eq!(logged, r#"["1"]U ["2"]I ["3"]I ["2"]D"#);
    source.execute("drop subscription films").await;
}

/// What it brings fires none of the triggers that are there.
#[tokio::test]
async fn a_subscription_that_comes_after_the_triggers_is_refused_until_they_are_installed_again() {
    let (stage, id) = with_log(3).await;
    stage
        .db
        .execute(
            "create subscription films connection 'host=nowhere' publication films with (connect = false)",
        )
        .await;
    let relation = "insert into pg_subscription_rel select s.oid, 'content.film'::regclass, 'r', null from pg_subscription s";
    stage.db.execute(&format!("set allow_system_table_mods = on; {relation}")).await;
    let (code, message) = stage.fail(id).await;
    assert_eq!(code, "changelog.not_installed");
    assert!(message.contains("vitrina changelog install content.film --key id"), "{message}");
    install(&stage, "content.film", &["id"]).await;
    stage.db.execute("update content.film set title = 'new'").await;
    stage.succeed(id).await;
    assert_eq!(stage.differences().await, 0);
    stage.db.execute("alter subscription films set (slot_name = none)").await;
    stage.db.execute("drop subscription films").await;
}

/// Writes of the mart fail from the `after`th row on, until the trigger is dropped.
async fn fail_after(stage: &Stage, after: i32) {
    stage
        .db
        .execute(&format!(
            "create sequence if not exists public.written; select setval('public.written', 1, false);
             create or replace function public.refuse() returns trigger language plpgsql as $$
             begin if nextval('public.written') > {after} then raise exception 'not now'; end if; return new; end $$;
             create trigger refuse before update on analytics.film for each row execute function public.refuse()"
        ))
        .await;
}

#[tokio::test]
async fn a_window_goes_on_behind_its_position_after_a_failure_in_its_middle() {
    let (stage, id) = with_log(400).await;
    stage
        .db
        .execute("update etl.etl_pipelines set batch_size = 90; update content.film set title = 'new'")
        .await;
    fail_after(&stage, 180).await;
    stage.fail(id).await;
    stage.db.execute("drop trigger refuse on analytics.film").await;
    let run = stage.succeed(id).await;
    assert!(run.rows_read < 400, "{} rows read", run.rows_read);
    assert_eq!(stage.differences().await, 0);
}

#[tokio::test]
async fn a_key_that_changes_all_the_time_hides_no_other() {
    let (stage, id) = with_log(60).await;
    stage.db.execute("update etl.etl_pipelines set batch_size = 1").await;
    for _ in 0..15 {
        stage.db.execute("update content.film set title = title || '!' where id = 5").await;
    }
    stage.db.execute("update content.film set title = 'new' where id > 10").await;
    stage.succeed(id).await;
    assert_eq!(stage.differences().await, 0);
}

#[tokio::test]
async fn a_table_that_takes_the_name_of_a_logged_one_is_not_taken_for_it() {
    let (stage, id) = with_log(5).await;
    stage
        .db
        .execute(
            "create table content.film_new (like content.film including all); insert into content.film_new select * from content.film;
             alter table content.film rename to film_old; alter table content.film_new rename to film;
             update content.film set title = 'new' where id = 2",
        )
        .await;
    assert_eq!(stage.fail(id).await.0, "changelog.not_installed");
    install(&stage, "content.film", &["id"]).await;
    stage.succeed(id).await;
    assert_eq!(stage.differences().await, 0);
}

#[rstest]
#[tokio::test]
async fn a_key_that_is_a_row_is_refused_however_deep_in_domains_it_is(
    #[values("content.place", "content.inner_place", "content.outer_place")] key: &str,
) {
    let stage = Stage::with_films(0).await;
    let table = format!(
        "create type content.place as (n int, t text); create domain content.inner_place as content.place;
         create domain content.outer_place as content.inner_place; create table content.item (k {key} primary key)"
    );
    stage.db.execute(&table).await;
    let desk = desk(&stage).await;
    let logged = desk.logged("content.item", &["k".to_owned()]).await.unwrap();
    assert_eq!(desk.install(&logged, "postgres").await.unwrap_err().code, "changelog.key");
}

/// Its function stays in use by the table that had the name before.
#[tokio::test]
async fn a_log_is_removed_whose_tables_have_exchanged_their_names() {
    let stage = Stage::with_films(2).await;
    stage.db.execute("create table content.other (id int primary key)").await;
    let film = install(&stage, "content.film", &["id"]).await;
    let other = install(&stage, "content.other", &["id"]).await;
    stage
        .db
        .execute(
            "alter table content.film rename to x; alter table content.other rename to film; alter table content.x rename to other",
        )
        .await;
    let desk = desk(&stage).await;
    desk.apply(&desk.remove(&film).await.unwrap()).await.unwrap();
    assert_eq!(desk.tables().await.unwrap().len(), 1);
    desk.apply(&desk.remove(&other).await.unwrap()).await.unwrap();
    assert_eq!(desk.tables().await.unwrap().len(), 0);
    assert_eq!(stage.count("pg_trigger where tgname like 'vitrina%'").await, 0);
}

#[tokio::test]
async fn a_group_without_a_name_is_followed_like_any_other() {
    let stage = Stage::with_films(10).await;
    stage.db.execute("alter table content.film add studio int; alter table analytics.film add studio int; update content.film set studio = nullif(id % 3, 0)").await;
    install(&stage, "content.film", &["studio"]).await;
    let query = "select id, title, rating, modified, studio from content.film";
    let config = json!({"source_query": query, "change_key": ["studio"], "delete_limit": 1});
    let id = stage.pipeline(followed(&config)).await;
    stage.succeed(id).await;
    stage
        .db
        .execute("delete from content.film where id = 3; update content.film set studio = null where id = 4")
        .await;
    stage.succeed(id).await;
    assert_eq!(stage.differences().await, 0);
}

#[tokio::test]
async fn a_mart_that_follows_a_change_log_can_be_read_again_over_a_range_of_its_cursor() {
    let stage = Stage::with_films(20).await;
    install(&stage, "content.film", &["id"]).await;
    let cursor = json!({"incremental_key": "modified", "incremental_id_key": "id"});
    let id = stage.pipeline(followed(&cursor)).await;
    stage.succeed(id).await;
    stage.db.execute("update analytics.film set title = 'Spoilt'").await;
    let run = stage.request_range(id, None, None).await;
    stage.runner().work_off().await.unwrap();
    assert_eq!(stage.run_record(run).await.rows_written, 20);
    assert_eq!(stage.differences().await, 0);
    assert_eq!(stage.succeed(id).await.rows_read, 0);
}

#[tokio::test]
async fn a_table_is_named_as_sql_reads_it_or_else_as_it_is_shown() {
    let stage = Stage::with_films(1).await;
    stage
        .db
        .execute(
            "create schema \"Content\"; create table \"Content\".\"Film\" (id int); create schema \"Web Shop\";
             create table \"Web Shop\".\"Films\" (id int); create schema \"a.b\"; create table \"a.b\".c (id int);
             create schema a; create table a.\"b.c\" (id int)",
        )
        .await;
    let desk = desk(&stage).await;
    for (written, table) in [
        ("content.film", "content.film"),
        ("Content.Film", "content.film"),
        ("\"Content\".\"Film\"", "\"Content\".\"Film\""),
        ("Web Shop.Films", "\"Web Shop\".\"Films\""),
        ("\"a.b\".c", "\"a.b\".c"),
    ] {
        assert_eq!(desk.logged(written, &[]).await.unwrap().table, table, "{written}");
    }
    for written in ["Web Shop.Nothing", "content.nothing", "Films", "a-b.c"] {
        assert_eq!(desk.logged(written, &[]).await.unwrap_err().code, "changelog.table", "{written}");
    }
}
