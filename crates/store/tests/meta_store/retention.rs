//! History that need not be kept any longer is deleted: in short steps, by indexes, and never what somebody still needs.

use std::time::Duration;

use vitrina_core::PipelineId;
use vitrina_store::{RetentionStep, RunChoice, Store};
use vitrina_testbed::eventually;

use crate::stage::Stage;

const DAY: Duration = Duration::from_secs(86_400);

/// Runs that ended ten days ago, one a second, each with an attempt, so many batches and a line of its log.
async fn old_runs(stage: &Stage, pipeline: PipelineId, runs: i32, batches: i32) {
    stage
        .db
        .execute(&format!(
            "with runs as (
                insert into etl.etl_runs (id, pipeline_id, status, trigger, mode, snapshot, requested_at, finished_at, batches)
                select gen_random_uuid(), '{pipeline}', 'SUCCESS', 'schedule', 'full', '{{}}', at, at, {batches}
                  from generate_series(1, {runs}) n, lateral (select now() - interval '10 days' + n * interval '1 second') t (at)
                returning id, pipeline_id),
             attempts as (insert into etl.etl_attempts (run_id, pipeline_id, runner, token, ended_at) select id, pipeline_id, 'r', 1, now() from runs),
             logs as (insert into etl.etl_logs (run_id, pipeline_id, level, message) select id, pipeline_id, 'info', 'run started' from runs)
             insert into etl.etl_batches (run_id, pipeline_id, token, rows_read, rows_inserted, rows_updated, rows_unchanged,
                                          rows_deleted, rows_rejected, bytes, read_ms, transform_ms, write_ms)
             select id, pipeline_id, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0 from runs, generate_series(1, {batches})"
        ))
        .await;
}

/// What a session does is counted some time later, in its order.
async fn one_session(stage: &Stage) -> Store {
    Store::connect(stage.db.url(), "vitrina-test", 1).await.unwrap()
}

async fn counted(stage: &Stage, what: &str) {
    let sql =
        format!("select exists (select from pg_stat_user_tables where relname = 'etl_runs' and {what})");
    eventually(what, async || stage.db.value::<bool>(&sql).await.then_some(())).await;
}

#[tokio::test]
async fn old_runs_are_deleted_with_all_that_belongs_to_them_but_never_the_newest() {
    let stage = Stage::new().await;
    let id = stage.create("films").await;
    for _ in 0..3 {
        let claim = stage.begin(id).await;
        stage.store.fail(&claim.lease, "source.sql", "no", false).await.unwrap();
    }
    stage.db.execute("update etl.etl_runs set requested_at = requested_at - interval '10 days', finished_at = finished_at - interval '10 days'").await;
    assert_eq!(stage.delete_older_than(20 * DAY).await, (0, 0));
    assert_eq!(stage.delete_older_than(DAY).await, (2, 0));
    let left: i64 = stage
        .db
        .value("select (select count(*) from etl.etl_runs) + (select count(*) from etl.etl_attempts)")
        .await;
    assert_eq!(left, 2, "the newest run and its attempt");
    assert_eq!(stage.delete_older_than(DAY).await, (0, 0));
}

#[tokio::test]
async fn the_newest_success_of_a_pipeline_stays_however_many_failures_came_after_it() {
    let stage = Stage::new().await;
    let id = stage.create("films").await;
    old_runs(&stage, id, 30, 1).await;
    stage
        .db
        .execute(
            "update etl.etl_runs set status = 'FAILED', error = 'no'
              where requested_at > (select requested_at from etl.etl_runs order by requested_at offset 9 limit 1)",
        )
        .await;
    assert_eq!(stage.delete_older_than(DAY).await, (28, 0));
    let left = stage.store.runs(RunChoice::default(), None, 10).await.unwrap();
    let left: Vec<_> = left.iter().map(|run| run.status.as_str()).collect();
    assert_eq!(left, ["FAILED", "SUCCESS"]);
}

/// Ten a second were deleted once: a meta-store with a hundred runs a second grew for ever.
#[tokio::test]
async fn five_hundred_old_runs_are_deleted_at_a_time_and_no_table_is_read_from_end_to_end_for_them() {
    let stage = Stage::new().await;
    let id = stage.create("films").await;
    old_runs(&stage, id, 10_000, 2).await;
    let newest = "select id from etl.etl_runs order by requested_at desc limit 5000";
    let now = format!(
        "update etl.etl_runs set requested_at = now(), finished_at = now() where id in ({newest}); analyze"
    );
    stage.db.execute(&now).await;
    let scans = "select coalesce(sum(seq_scan), 0)::bigint from pg_stat_user_tables
                  where schemaname = 'etl' and relname in ('etl_runs', 'etl_attempts', 'etl_batches', 'etl_logs')";
    counted(&stage, "n_tup_upd = 5000").await;
    let before: i64 = stage.db.value(scans).await;
    let store = one_session(&stage).await;
    let (mut retention, mut steps) = (store.retention(DAY), 1);
    while retention.step().await.unwrap() == RetentionStep::Deleted {
        steps += 1;
    }
    assert_eq!((retention.runs, steps), (5000, 11), "five hundred a step, and one that finds nothing");
    counted(&stage, "n_tup_del = 5000").await;
    assert_eq!(stage.db.value::<i64>(scans).await, before);
}

#[tokio::test]
async fn a_run_of_very_many_batches_is_deleted_in_several_steps() {
    let stage = Stage::new().await;
    let id = stage.create("films").await;
    old_runs(&stage, id, 1, 12_000).await;
    old_runs(&stage, id, 3, 2).await;
    let mut retention = stage.store.retention(DAY);
    let mut left = vec![12_006];
    while *left.last().unwrap() > 2 {
        retention.step().await.unwrap();
        left.push(stage.db.value::<i64>("select count(*) from etl.etl_batches").await);
    }
    assert!(left.windows(2).all(|pair| (1..=5000).contains(&(pair[0] - pair[1]))), "{left:?}");
    assert_eq!((left.last().copied(), retention.runs), (Some(2), 3), "the newest run stays");
}

#[tokio::test]
async fn history_is_deleted_by_one_process_at_a_time_and_the_others_do_not_wait() {
    let stage = Stage::new().await;
    let id = stage.create("films").await;
    old_runs(&stage, id, 3, 1).await;
    let other = stage.db.client().await;
    let lock = "begin; select pg_advisory_xact_lock(hashtextextended('vitrina.retention', 0))";
    other.batch_execute(lock).await.unwrap();
    assert_eq!(stage.store.retention(DAY).step().await.unwrap(), RetentionStep::Busy);
    other.batch_execute("rollback").await.unwrap();
    assert_eq!(stage.delete_older_than(DAY).await, (2, 0));
}

/// The page of all pipelines asks four times a second which runs are under way.
#[tokio::test]
async fn runs_under_way_are_found_without_reading_all_runs() {
    let stage = Stage::new().await;
    let id = stage.create("films").await;
    old_runs(&stage, id, 5000, 0).await;
    let claim = stage.begin(id).await;
    stage.db.execute("analyze").await;
    counted(&stage, "n_tup_ins = 5001").await;
    let read = "select seq_tup_read from pg_stat_user_tables where relname = 'etl_runs'";
    let before: i64 = stage.db.value(read).await;
    let store = one_session(&stage).await;
    for _ in 0..5 {
        let moving = store.moving_runs().await.unwrap();
        assert_eq!(moving.iter().map(|run| run.id).collect::<Vec<_>>(), [claim.run]);
        assert_eq!(store.run_figures(id, 3600).await.unwrap().runs.values().sum::<u64>(), 1);
    }
    // A last change of the same session: once it is counted, so is what came before it.
    store.finish(&claim.lease).await.unwrap();
    counted(&stage, "n_tup_upd > 1").await;
    assert_eq!(stage.db.value::<i64>(read).await, before);
}
