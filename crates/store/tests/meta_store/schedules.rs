//! What is due is requested once, by whichever runner looks first.

use std::time::Duration;

use serde_json::json;
use tokio::task::JoinSet;
use vitrina_core::{Event, Level, Mode, OnActive, Pipeline, PipelineId, ReconcileTrigger, Status};
use vitrina_store::{ReconcileOrder, RunRequest};

use crate::stage::{LEASE, Stage, pipeline, runner};

/// How many runs a pipeline has got by its schedule.
async fn scheduled_runs(stage: &Stage, id: PipelineId) -> i64 {
    let sql = format!(
        "select count(*) from etl.etl_runs where pipeline_id = '{id}' and trigger in ('schedule', 'pending')"
    );
    stage.db.value(&sql).await
}

/// Its next time is one that is still to come.
async fn waits_for_its_time(stage: &Stage, id: PipelineId) -> bool {
    let sql = format!(
        "select coalesce(next_run_at > clock_timestamp(), false) from etl.etl_pipelines where id = '{id}'"
    );
    stage.db.value(&sql).await
}

#[tokio::test]
async fn a_due_pipeline_is_requested_once_by_any_number_of_runners() {
    let stage = Stage::new().await;
    for number in 0..30 {
        let id = stage.create_scheduled(&format!("p{number}"), "5m").await;
        stage.make_due(id).await;
    }
    let mut runners = JoinSet::new();
    for _ in 0..6 {
        let store = stage.store.clone();
        runners.spawn(async move {
            let mut requested = 0;
            for _ in 0..3 {
                requested += store.request_due().await.unwrap();
            }
            requested
        });
    }
    assert_eq!(runners.join_all().await.iter().sum::<usize>(), 30);
    let twice: i64 = stage
        .db
        .value("select count(*) from (select from etl.etl_runs group by pipeline_id having count(*) > 1) t")
        .await;
    assert_eq!((stage.db.value::<i64>("select count(*) from etl.etl_runs").await, twice), (30, 0));
}

#[tokio::test]
async fn what_was_missed_is_requested_once_and_the_next_time_is_to_come() {
    let stage = Stage::new().await;
    let id = stage.create_scheduled("film_dim", "1s").await;
    stage.make_due(id).await;
    assert_eq!(stage.store.request_due().await.unwrap(), 1);
    let next: f64 = stage
        .db
        .value("select extract(epoch from next_run_at - clock_timestamp())::float8 from etl.etl_pipelines")
        .await;
    assert!((-60.0..=1.0).contains(&next), "{next} s until the next run");
    assert_eq!(scheduled_runs(&stage, id).await, 1);
    assert_eq!(stage.status(id).await, Status::RunRequested);
}

#[tokio::test]
async fn a_new_schedule_is_looked_at_and_not_run_at_once() {
    let stage = Stage::new().await;
    let id = stage.create_scheduled("film_dim", "0 3 * * *").await;
    assert_eq!(stage.store.request_due().await.unwrap(), 0);
    assert!(waits_for_its_time(&stage, id).await);
    let first = stage.record(id).await.next_run_at;

    stage.db.execute("update etl.etl_pipelines set schedule_interval = '30 4 * * *'").await;
    assert_eq!(stage.record(id).await.next_run_at, None, "whoever changes it, in psql too");
    assert_eq!(stage.store.request_due().await.unwrap(), 0);
    assert_ne!(stage.record(id).await.next_run_at, first);
    stage.db.execute("update etl.etl_pipelines set schedule_interval = null").await;
    stage.store.request_due().await.unwrap();
    assert_eq!(stage.record(id).await.next_run_at, None);
}

#[tokio::test]
async fn a_disabled_pipeline_is_never_due_and_does_not_make_up_for_what_it_missed() {
    let stage = Stage::new().await;
    let id = stage.create_scheduled("film_dim", "1h").await;
    stage.make_due(id).await;
    stage.store.request_change(id, Event::Disable).await.unwrap();
    assert_eq!(stage.store.request_due().await.unwrap(), 0);
    assert_eq!(stage.record(id).await.next_run_at, None);
    stage.store.request_change(id, Event::Enable).await.unwrap();
    assert_eq!(stage.store.request_due().await.unwrap(), 0);
    assert!(waits_for_its_time(&stage, id).await);
}

#[tokio::test]
async fn paused_and_failed_pipelines_wait_for_a_person_while_their_schedule_goes_on() {
    let stage = Stage::new().await;
    let paused = stage.create_scheduled("paused", "1h").await;
    stage.store.request_change(paused, Event::Pause).await.unwrap();
    let failed = stage.create_scheduled("failed", "1h").await;
    let claim = stage.begin(failed).await;
    stage.store.fail(&claim.lease, "test.fault", "it broke", false).await.unwrap();
    for (id, status) in [(paused, Status::Paused), (failed, Status::Failed)] {
        stage.make_due(id).await;
        assert_eq!(stage.store.request_due().await.unwrap(), 0);
        assert_eq!((stage.status(id).await, scheduled_runs(&stage, id).await), (status, 0));
        assert!(waits_for_its_time(&stage, id).await);
    }
}

#[tokio::test]
async fn a_pipeline_that_is_due_while_it_runs_runs_once_more() {
    let stage = Stage::new().await;
    let id = stage.create_scheduled("film_dim", "1s").await;
    let claim = stage.begin(id).await;
    for _ in 0..3 {
        stage.make_due(id).await;
        assert_eq!(stage.store.request_due().await.unwrap(), 0);
    }
    stage.store.finish(&claim.lease).await.unwrap();
    let again = stage.claim().await.expect("one more run");
    stage.store.finish(&again.lease).await.unwrap();
    assert_eq!((stage.status(id).await, scheduled_runs(&stage, id).await), (Status::Idle, 1));
}

#[tokio::test]
async fn a_time_that_comes_while_a_pipeline_waits_for_its_retry_leaves_that_alone() {
    let stage = Stage::new().await;
    let id = stage.create_scheduled("film_dim", "1s").await;
    let claim = stage.begin(id).await;
    stage
        .store
        .release(&claim.lease, "source.connection_lost", "gone", Duration::from_secs(300))
        .await
        .unwrap();
    let retry_at = stage.record(id).await.retry_at;
    stage.make_due(id).await;
    stage.store.request_due().await.unwrap();
    assert!(retry_at.is_some() && stage.record(id).await.retry_at == retry_at);
}

#[tokio::test]
async fn a_persons_request_takes_the_place_of_the_schedules_and_neither_is_lost() {
    let stage = Stage::new().await;
    let id = stage.create_scheduled("film_dim", "1h").await;
    let first = stage.begin(id).await;
    stage.make_due(id).await;
    stage.store.request_due().await.unwrap();
    let backfill = RunRequest { keys: Some(vec![json!(["7"])]), ..RunRequest::default() };
    stage.store.request_run(id, OnActive::After, &backfill).await.unwrap();
    stage.store.request_due().await.unwrap();
    stage.store.finish(&first.lease).await.unwrap();
    let second = stage.claim().await.expect("the backfill");
    assert!(second.backfill.is_some());
    stage.make_due(id).await;
    stage.store.request_due().await.unwrap();
    stage.store.finish(&second.lease).await.unwrap();
    let third = stage.claim().await.expect("the scheduled run");
    assert!(third.backfill.is_none());
    let trigger: String =
        stage.db.value(&format!("select trigger from etl.etl_runs where id = '{}'", third.run)).await;
    assert_eq!(trigger, "schedule");
}

#[tokio::test]
async fn a_time_that_comes_while_a_persons_request_waits_is_put_off_and_not_dropped() {
    let stage = Stage::new().await;
    let id = stage.create_scheduled("film_dim", "24h").await;
    stage.begin(id).await;
    let backfill = RunRequest { keys: Some(vec![json!(["7"])]), ..RunRequest::default() };
    stage.store.request_run(id, OnActive::After, &backfill).await.unwrap();
    stage.make_due(id).await;
    stage.store.request_due().await.unwrap();
    let soon: bool = stage
        .db
        .value("select next_run_at between now() and now() + interval '1 minute' from etl.etl_pipelines")
        .await;
    assert!(soon, "not tomorrow");
}

#[tokio::test]
async fn many_that_are_due_are_requested_in_turns_and_the_alarm_comes_soon() {
    let stage = Stage::new().await;
    for number in 0..25 {
        let id = stage.create_scheduled(&format!("p{number}"), "5m").await;
        stage.make_due(id).await;
    }
    let first = stage.store.request_due().await.unwrap();
    assert!(first < 25 && stage.store.next_alarm().await.unwrap().unwrap() < Duration::from_secs(1));
    assert_eq!(first + stage.store.request_due().await.unwrap(), 25);
}

#[tokio::test]
async fn a_runner_that_starts_has_doubtful_times_looked_at_anew() {
    let stage = Stage::new().await;
    let (ahead, unread) =
        (stage.create_scheduled("ahead", "5m").await, stage.create_scheduled("unread", "5m").await);
    stage.store.request_due().await.unwrap();
    let far =
        format!("update etl.etl_pipelines set next_run_at = now() + interval '1 day' where id = '{ahead}'");
    stage.db.execute(&far).await;
    let older = format!(
        "update etl.etl_pipelines set next_run_at = null, schedule_error = 'what?' where id = '{unread}'"
    );
    stage.db.execute(&older).await;
    stage.store.review_schedules().await.unwrap();
    stage.store.request_due().await.unwrap();
    let soon: bool = stage
        .db
        .value("select bool_and(next_run_at < now() + interval '6 minutes') from etl.etl_pipelines")
        .await;
    assert!(soon && stage.record(unread).await.schedule_error.is_none());
}

#[tokio::test]
async fn a_schedule_that_says_nothing_is_told_and_holds_up_no_other() {
    let stage = Stage::new().await;
    let (bad, never) =
        (stage.create_scheduled("bad", "often").await, stage.create_scheduled("never", "0 0 30 2 *").await);
    let good = stage.create_scheduled("good", "5m").await;
    stage.make_due(good).await;
    assert_eq!(stage.store.request_due().await.unwrap(), 1);
    let error = stage.record(bad).await.schedule_error.unwrap();
    assert!(error.contains("\"often\" is no length of time") && error.contains("such as 5m"), "{error}");
    assert!(stage.record(never).await.schedule_error.unwrap().contains("never comes"));
    stage
        .db
        .execute(&format!("update etl.etl_pipelines set schedule_interval = '5m' where id = '{bad}'"))
        .await;
    stage.store.request_due().await.unwrap();
    assert_eq!(stage.record(bad).await.schedule_error, None);
    assert!(waits_for_its_time(&stage, bad).await);
}

#[tokio::test]
async fn a_pipeline_that_cannot_be_requested_is_passed_over_until_its_next_time() {
    let stage = Stage::new().await;
    let (bad, good) = (stage.create_scheduled("bad", "1h").await, stage.create_scheduled("good", "1h").await);
    stage
        .db
        .execute(&format!("update etl.etl_pipelines set target_table = 'no.such.target' where id = '{bad}'"))
        .await;
    stage.make_due(bad).await;
    stage.make_due(good).await;
    assert_eq!(stage.store.request_due().await.unwrap(), 1);
    assert_eq!((stage.status(bad).await, stage.status(good).await), (Status::Idle, Status::RunRequested));
    assert!(waits_for_its_time(&stage, bad).await);
}

#[tokio::test]
async fn the_alarm_is_set_for_whatever_comes_first() {
    let stage = Stage::new().await;
    let within = async |seconds: std::ops::Range<u64>| {
        let alarm = stage.store.next_alarm().await.unwrap().expect("an alarm");
        assert!(seconds.contains(&alarm.as_secs()), "{alarm:?}");
    };
    assert_eq!(stage.store.next_alarm().await.unwrap(), None);
    let id = stage.create_scheduled("film_dim", "24h").await;
    stage.db.execute("update etl.etl_pipelines set next_run_at = now() + interval '1 hour'").await;
    within(3590..3601).await;
    let claim = stage.begin(id).await;
    within(20..31).await;
    stage.store.release(&claim.lease, "t", "t", Duration::from_secs(10)).await.unwrap();
    within(5..11).await;
    stage.make_due(id).await;
    assert!(stage.store.next_alarm().await.unwrap().unwrap() < Duration::from_secs(1), "it is late");
}

/// An incremental pipeline that runs every minute, and is loaded in full every night.
async fn with_full_schedule(stage: &Stage, name: &str, schedule: &str) -> PipelineId {
    let config = Pipeline {
        mode: Mode::Incremental,
        incremental_key: Some("modified".to_owned()),
        schedule_interval: Some("1m".to_owned()),
        full_schedule: Some(schedule.to_owned()),
        ..pipeline(name)
    };
    stage.store.create_pipeline(&config).await.unwrap().config.id
}

async fn make_full_run_due(stage: &Stage, id: PipelineId) {
    let sql =
        format!("update etl.etl_pipelines set next_full_run_at = now() - interval '1 day' where id = '{id}'");
    stage.db.execute(&sql).await;
}

async fn full_run_is_due_within_a_minute(stage: &Stage) -> bool {
    stage
        .db
        .value("select next_full_run_at between now() and now() + interval '1 minute' from etl.etl_pipelines")
        .await
}

/// The modes of a pipeline's runs, in the order of their requests.
async fn modes(stage: &Stage) -> String {
    stage.db.value("select string_agg(mode, ' ' order by requested_at) from etl.etl_runs").await
}

#[tokio::test]
async fn a_full_schedule_requests_full_runs_and_the_other_schedule_those_of_the_own_mode() {
    let stage = Stage::new().await;
    let id = with_full_schedule(&stage, "films", "0 2 * * *").await;
    assert_eq!(stage.store.request_due().await.unwrap(), 0, "both are new");
    assert!(stage.record(id).await.next_full_run_at.is_some());
    stage.make_due(id).await;
    assert_eq!(stage.store.request_due().await.unwrap(), 1);
    let own = stage.claim().await.expect("a run");
    stage.store.finish(&own.lease).await.unwrap();
    make_full_run_due(&stage, id).await;
    assert_eq!(stage.store.request_due().await.unwrap(), 1);
    assert_eq!(modes(&stage).await, "incremental full");
    assert_eq!(scheduled_runs(&stage, id).await, 2);
    let to_come: bool = stage.db.value("select next_full_run_at > now() from etl.etl_pipelines").await;
    assert!(to_come);
}

#[tokio::test]
async fn where_both_schedules_are_due_one_full_run_is_opened() {
    let stage = Stage::new().await;
    let id = with_full_schedule(&stage, "films", "0 2 * * *").await;
    stage.make_due(id).await;
    make_full_run_due(&stage, id).await;
    assert_eq!(stage.store.request_due().await.unwrap(), 1);
    let claim = stage.claim().await.expect("the full run");
    stage.store.finish(&claim.lease).await.unwrap();
    assert_eq!((modes(&stage).await.as_str(), stage.status(id).await), ("full", Status::Idle));
}

#[tokio::test]
async fn a_full_run_that_is_due_during_a_run_waits_for_its_end_and_gives_its_place_to_no_other() {
    let stage = Stage::new().await;
    let id = with_full_schedule(&stage, "films", "0 2 * * *").await;
    let first = stage.begin(id).await;
    stage.make_due(id).await;
    stage.store.request_due().await.unwrap();
    make_full_run_due(&stage, id).await;
    stage.store.request_due().await.unwrap();
    stage.make_due(id).await;
    stage.store.request_due().await.unwrap();
    stage.store.finish(&first.lease).await.unwrap();
    let second = stage.claim().await.expect("the full run");
    stage.store.finish(&second.lease).await.unwrap();
    assert_eq!((modes(&stage).await.as_str(), stage.status(id).await), ("incremental full", Status::Idle));
}

#[tokio::test]
async fn a_full_run_whose_place_a_person_takes_is_due_again() {
    let stage = Stage::new().await;
    let id = with_full_schedule(&stage, "films", "0 2 * * *").await;
    let first = stage.begin(id).await;
    make_full_run_due(&stage, id).await;
    stage.store.request_due().await.unwrap();
    let backfill = RunRequest { keys: Some(vec![json!(["7"])]), ..RunRequest::default() };
    stage.store.request_run(id, OnActive::After, &backfill).await.unwrap();
    stage.store.request_due().await.unwrap();
    assert!(full_run_is_due_within_a_minute(&stage).await, "not tomorrow");
    stage.store.finish(&first.lease).await.unwrap();
    let second = stage.claim().await.expect("the backfill");
    assert!(second.backfill.is_some());
    make_full_run_due(&stage, id).await;
    stage.store.request_due().await.unwrap();
    stage.store.finish(&second.lease).await.unwrap();
    stage.claim().await.expect("the full run");
    assert!(modes(&stage).await.ends_with(" full"));
}

#[tokio::test]
async fn a_full_run_that_is_due_before_a_requested_run_begins_or_during_a_cancel_is_put_off() {
    let stage = Stage::new().await;
    let id = with_full_schedule(&stage, "films", "0 2 * * *").await;
    stage.make_due(id).await;
    stage.store.request_due().await.unwrap();
    make_full_run_due(&stage, id).await;
    stage.store.request_due().await.unwrap();
    assert!(full_run_is_due_within_a_minute(&stage).await, "the incremental run is no full one");
    stage.claim().await.expect("the incremental run");
    stage.store.request_change(id, Event::Cancel).await.unwrap();
    make_full_run_due(&stage, id).await;
    stage.store.request_due().await.unwrap();
    assert!(full_run_is_due_within_a_minute(&stage).await);
}

#[tokio::test]
async fn a_full_run_that_is_due_joins_one_that_is_requested() {
    let stage = Stage::new().await;
    let id = with_full_schedule(&stage, "films", "0 2 * * *").await;
    let full = RunRequest { mode: Some(Mode::Full), ..RunRequest::default() };
    stage.store.request_run(id, OnActive::Reject, &full).await.unwrap();
    make_full_run_due(&stage, id).await;
    assert_eq!(stage.store.request_due().await.unwrap(), 0);
    let far: bool = stage.db.value("select next_full_run_at > now() from etl.etl_pipelines").await;
    assert_eq!((far, modes(&stage).await.as_str()), (true, "full"));
}

#[tokio::test]
async fn a_full_schedule_that_says_nothing_is_reported_and_holds_up_no_run() {
    let stage = Stage::new().await;
    let id = with_full_schedule(&stage, "films", "now and then").await;
    stage.make_due(id).await;
    assert_eq!(stage.store.request_due().await.unwrap(), 1);
    let record = stage.record(id).await;
    assert!(record.full_schedule_error.unwrap().contains("is no length of time"));
    assert_eq!(record.schedule_error, None);
    stage.db.execute("update etl.etl_pipelines set full_schedule = '1d'").await;
    stage.store.request_due().await.unwrap();
    assert!(stage.record(id).await.next_full_run_at.is_some(), "whoever changes it, in psql too");
}

#[tokio::test]
async fn the_alarm_is_set_for_a_full_run_too() {
    let stage = Stage::new().await;
    let config = Pipeline { full_schedule: Some("1d".to_owned()), ..pipeline("films") };
    stage.store.create_pipeline(&config).await.unwrap();
    assert_eq!(stage.store.next_alarm().await.unwrap(), None);
    stage.store.request_due().await.unwrap();
    assert!(stage.store.next_alarm().await.unwrap().expect("an alarm") <= Duration::from_secs(86_400));
}

/// A pipeline that is compared by its own schedule.
async fn compared_by(stage: &Stage, name: &str, schedule: &str) -> PipelineId {
    let config = Pipeline { reconcile_schedule: Some(schedule.to_owned()), ..pipeline(name) };
    stage.store.create_pipeline(&config).await.unwrap().config.id
}

async fn make_reconciles_due(stage: &Stage) {
    stage.db.execute("update etl.etl_pipelines set next_reconcile_at = now() - interval '1 day'").await;
}

#[tokio::test]
async fn a_due_reconcile_is_requested_once_by_any_number_of_runners() {
    let stage = Stage::new().await;
    for number in 0..30 {
        compared_by(&stage, &format!("p{number}"), "1d").await;
    }
    make_reconciles_due(&stage).await;
    let mut runners = JoinSet::new();
    for _ in 0..6 {
        let store = stage.store.clone();
        runners.spawn(async move {
            for _ in 0..3 {
                assert_eq!(store.request_due().await.unwrap(), 0, "no run is due");
            }
        });
    }
    runners.join_all().await;
    let asked = "select count(*) || ' ' || count(distinct pipeline_id) || ' ' || string_agg(distinct level || ' ' || trigger, ',')
                   from etl.etl_reconciles";
    assert_eq!(stage.db.value::<String>(asked).await, "30 30 hash schedule");
    let runs: i64 = stage.db.value("select count(*) from etl.etl_runs").await;
    assert_eq!(runs, 0, "nothing is run");
}

#[tokio::test]
async fn a_scheduled_reconcile_waits_for_its_time_and_joins_one_that_is_open() {
    let stage = Stage::new().await;
    let id = compared_by(&stage, "films", "0 3 * * *").await;
    assert_eq!(stage.store.request_due_reconciles().await.unwrap(), 0, "it is new");
    assert!(stage.record(id).await.next_reconcile_at.is_some());
    let alarm = stage.store.next_alarm().await.unwrap().expect("an alarm");
    assert!(alarm <= Duration::from_secs(86_400), "{alarm:?}");
    make_reconciles_due(&stage).await;
    assert_eq!(stage.store.request_due_reconciles().await.unwrap(), 1);
    make_reconciles_due(&stage).await;
    assert_eq!(stage.store.request_due_reconciles().await.unwrap(), 0, "one is open");
    assert_eq!(stage.db.value::<i64>("select count(*) from etl.etl_reconciles").await, 1);
    assert!(stage.record(id).await.next_reconcile_at.is_some());
}

#[tokio::test]
async fn a_disabled_pipeline_is_not_compared_by_itself() {
    let stage = Stage::new().await;
    let id = compared_by(&stage, "films", "1h").await;
    stage.store.request_change(id, Event::Disable).await.unwrap();
    make_reconciles_due(&stage).await;
    assert_eq!(stage.store.request_due_reconciles().await.unwrap(), 0);
    stage.store.request_change(id, Event::Enable).await.unwrap();
    assert_eq!(
        stage.store.request_due_reconciles().await.unwrap(),
        0,
        "it does not make up for what it missed"
    );
    assert!(stage.record(id).await.next_reconcile_at.is_some());
}

#[tokio::test]
async fn a_reconcile_schedule_that_says_nothing_is_told_of_and_reviewed_by_the_next_release() {
    let stage = Stage::new().await;
    let id = compared_by(&stage, "films", "now and then").await;
    stage.store.request_due().await.unwrap();
    let error = stage.record(id).await.reconcile_schedule_error.expect("a reason");
    assert!(error.contains("is no length of time"), "{error}");
    assert_eq!(stage.store.next_alarm().await.unwrap(), None);
    stage.store.review_schedules().await.unwrap();
    assert_eq!(stage.record(id).await.reconcile_schedule_error, None, "it is looked at anew");
    stage.db.execute("update etl.etl_pipelines set reconcile_schedule = '5m'").await;
    stage.store.request_due().await.unwrap();
    assert!(stage.record(id).await.next_reconcile_at.is_some());
}

#[tokio::test]
async fn a_reconcile_whose_runner_falls_silent_is_worth_an_alarm() {
    let stage = Stage::new().await;
    let id = stage.create("films").await;
    let order =
        ReconcileOrder { level: Level::Hash, keep: 0, trigger: ReconcileTrigger::Manual, requested_by: None };
    stage.store.request_reconcile(id, &order).await.unwrap();
    assert_eq!(stage.store.next_alarm().await.unwrap(), None);
    stage.store.take_reconcile(&runner("r"), LEASE).await.unwrap().unwrap();
    let alarm = stage.store.next_alarm().await.unwrap().expect("an alarm");
    assert!(alarm <= LEASE, "{alarm:?}");
}
