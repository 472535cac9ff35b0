//! Runners that work by themselves, give way, drain, panic and lose their database.

use std::time::Duration;

use async_trait::async_trait;
use serde_json::json;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;
use vitrina_connectors::sinks::{Kind, Opened, Order};
use vitrina_core::{PipelineId, Result, RunStatus, Status, TargetName};
use vitrina_runner::{Runner, RunnerSettings};
use vitrina_store::{RunnerAbilities, Store, Terms};
use vitrina_testbed::CuttableProxy;

use crate::stage::{Stage, until};

const GENRES: &str = "
    create table content.genre (id int primary key, title text);
    insert into content.genre select n, 'Genre ' || n from generate_series(1, 20) n;
    create table analytics.genre (id int primary key, title text)";

async fn genres(stage: &Stage) -> PipelineId {
    stage.db.execute(GENRES).await;
    let query = "select id, title from content.genre";
    stage.pipeline(json!({"name": "genre", "source_query": query, "target_table": "analytics.genre"})).await
}

fn restless(stage: &Stage, name: &str) -> RunnerSettings {
    let (poll_interval, lease) = (Duration::from_millis(50), Duration::from_secs(2));
    RunnerSettings { poll_interval, lease, ..stage.settings(name) }
}

#[tokio::test]
async fn a_scheduled_pipeline_runs_by_itself_again_and_again() {
    let stage = Stage::with_films(10).await;
    let (_runner, _shutdown) = stage.start_runner("punctual");
    stage.pipeline(json!({"schedule_interval": "1s"})).await;
    let succeeded = "select count(*) > 1 from etl.etl_runs where trigger = 'schedule' and status = 'SUCCESS'";
    until(|| stage.db.value::<bool>(succeeded)).await;
    assert_eq!(stage.differences().await, 0);
}

/// Returns when the runner has dealt with whatever it was told before. It claims behind its heartbeat, so that the
/// second one tells of the claims of the first turn.
async fn is_up_to_date(stage: &Stage) {
    let heartbeat = "select heartbeat_at::text from etl.etl_runners";
    for schedule in ["24h", "25h"] {
        let before: String = stage.db.value(heartbeat).await;
        let change =
            format!("update etl.etl_pipelines set schedule_interval = '{schedule}' where name = 'genre'");
        stage.db.execute(&change).await;
        until(async || stage.db.value::<String>(heartbeat).await != before).await;
    }
}

#[tokio::test]
async fn a_pipeline_that_may_kill_runners_gets_no_neighbours() {
    let stage = Stage::with_films(10).await;
    let (suspect, other) = (stage.full(10).await, genres(&stage).await);
    let gate = stage.block_mart().await;
    stage.request(suspect).await;
    stage.db.execute("update etl.etl_pipelines set stalls = 2 where name = 'film'").await;
    let (_runner, _shutdown) = stage.start_runner("wary");
    stage.someone_waits_for_the_mart().await;
    stage.request(other).await;
    is_up_to_date(&stage).await;
    assert_eq!(stage.status(other).await, Status::RunRequested);
    gate.batch_execute("commit").await.unwrap();
    stage.reaches(suspect, Status::Idle).await;
    stage.reaches(other, Status::Idle).await;
}

#[tokio::test]
async fn room_for_a_suspect_does_not_hold_up_others_for_long() {
    let stage = Stage::with_films(10).await;
    let (suspect, long) = (stage.full(10).await, genres(&stage).await);
    let gate = stage.db.client().await;
    gate.batch_execute("begin; lock table analytics.genre in share mode").await.unwrap();
    let (_runner, _shutdown) = stage.start(restless(&stage, "fair"));
    stage.request(long).await;
    stage.someone_waits_for("analytics.genre").await;
    // A request clears its stalls, and the runner may claim it at once: it is a suspect from the same moment on.
    stage
        .db
        .execute(
            "create function public.suspect() returns trigger language plpgsql as $$ begin
                 new.stalls := 2; new.requested_at := now() - interval '1 hour'; return new; end $$;
             create trigger suspect before update on etl.etl_pipelines for each row
                 when (new.name = 'film' and new.status = 'RUN_REQUESTED') execute function public.suspect()",
        )
        .await;
    let run = stage.request(suspect).await;
    stage.db.execute("create table analytics.other (id int primary key, title text)").await;
    let query = "select id, title from content.film";
    let other = stage
        .pipeline(json!({"name": "other", "source_query": query, "target_table": "analytics.other"}))
        .await;
    for _ in 0..3 {
        stage.request(other).await;
        stage.reaches(other, Status::Idle).await;
    }
    assert_eq!(stage.status(suspect).await, Status::RunRequested, "the runner is not idle");
    gate.batch_execute("commit").await.unwrap();
    until(async || stage.run_record(run).await.status == RunStatus::Success).await;
}

#[tokio::test]
async fn a_long_pipeline_does_not_hold_up_others() {
    let stage = Stage::with_films(10).await;
    let (long, other) = (stage.full(10).await, genres(&stage).await);
    let (_runner, _shutdown) = stage.start_runner("busy");
    let _gate = stage.block_mart().await;
    stage.request(long).await;
    stage.someone_waits_for_the_mart().await;
    let run = stage.request(other).await;
    stage.reaches(other, Status::Idle).await;
    assert_eq!(stage.run_record(run).await.status, RunStatus::Success);
    assert_eq!(stage.status(long).await, Status::Running);
}

#[tokio::test]
async fn a_silent_owner_that_holds_its_pipeline_is_cut_off() {
    let stage = Stage::with_films(10).await;
    let id = stage.full(10).await;
    let run = stage.request(id).await;
    let connections = vec!["content".to_owned(), "marts".to_owned()];
    let abilities = RunnerAbilities { name: "zombie".into(), connections, ..RunnerAbilities::default() };
    let claim = stage.store.claim(&abilities, &Terms::idle(Duration::from_secs(30))).await.unwrap().unwrap();
    stage.expire_leases().await;
    // Stopped between its commit_batch and its commit: the row is locked, and no claim sees it.
    let zombie = stage.db.client().await;
    let name = claim.lease.application_name();
    zombie
        .batch_execute(&format!(
            "set application_name = '{name}'; begin; select from etl.etl_pipelines where id = '{id}' for update"
        ))
        .await
        .unwrap();
    let (_runner, _shutdown) = stage.start(restless(&stage, "heir"));
    stage.reaches(id, Status::Idle).await;
    assert_eq!(stage.run_record(run).await.status, RunStatus::Success);
    assert!(zombie.batch_execute("commit").await.is_err(), "its session is gone");
}

#[tokio::test]
async fn a_runner_that_is_asked_to_drain_finishes_its_batch_hands_its_run_back_and_ends() {
    let stage = Stage::with_films(100).await;
    let id = stage.full(10).await;
    let (mut runner, _shutdown) = stage.start_runner("leaving");
    let film = stage.block_film(1).await;
    let run = stage.request(id).await;
    stage.someone_waits_for_a_row().await;
    let asked = stage.store.request_drain("leaving").await.unwrap().unwrap();
    assert_eq!((asked.status.as_str(), asked.alive), ("DRAINING", true));
    film.batch_execute("rollback").await.unwrap();
    runner.join_next().await.unwrap().unwrap();
    assert_eq!(stage.store.runners().await.unwrap()[0].status, "STOPPED");
    assert_eq!(
        (stage.status(id).await, stage.run_record(run).await.status),
        (Status::RunRequested, RunStatus::Running)
    );
    stage.runner().work_off().await.unwrap();
    let ended = stage.run_record(run).await;
    assert_eq!((ended.status, ended.rows_read), (RunStatus::Success, 100), "no batch counts twice");
    assert_eq!(stage.differences().await, 0);
}

#[derive(Debug)]
struct Buggy;

#[async_trait]
impl Kind for Buggy {
    fn serves(&self, target: &TargetName) -> bool {
        matches!(target, TargetName::Named { kind, .. } if kind == "buggy")
    }

    async fn open(&self, target: &TargetName, _: &Order<'_>) -> Result<Opened> {
        panic!("no rows for {target}")
    }
}

#[tokio::test]
async fn a_panic_fails_its_own_pipeline_and_leaves_its_neighbours_alone() {
    let stage = Stage::with_films(50).await;
    stage.db.execute("insert into etl.etl_targets (name, key) values ('buggy:film', '{id}')").await;
    let good = stage.full(10).await;
    let bad = stage.pipeline(json!({"name": "bad", "target_table": "buggy:film"})).await;
    let mut settings = stage.settings("brave");
    settings.sinks.0.push(&Buggy);
    settings.allowed_targets.0.push("buggy:*".to_owned());
    let (good_run, bad_run) = (stage.request(good).await, stage.request(bad).await);
    stage.work_off(settings).await;
    let failed = stage.run_record(bad_run).await;
    assert_eq!((failed.status, failed.error_code.as_deref()), (RunStatus::Failed, Some("runner.panic")));
    assert_eq!(stage.status(bad).await, Status::Failed);
    assert_eq!(stage.run_record(good_run).await.status, RunStatus::Success);
    assert_eq!(stage.differences().await, 0);
}

#[tokio::test]
async fn a_runner_outlives_its_database_and_goes_on_by_itself() {
    let stage = Stage::on_a_server_of_its_own(100).await;
    let id = stage.full(1).await;
    let settings = RunnerSettings { lease: Duration::from_secs(30), ..restless(&stage, "patient") };
    let (_runner, _shutdown) = stage.start(settings);
    let run = stage.request(id).await;
    until(async || stage.count("etl.etl_batches").await >= 10).await;
    let stage = stage.crash().await;
    stage.reaches(id, Status::Idle).await;
    let ended = stage.run_record(run).await;
    assert_eq!((ended.status, ended.rows_read), (RunStatus::Success, 100), "no batch counts twice");
    assert_eq!(stage.differences().await, 0);
    let attempts = stage.store.attempts(run).await.unwrap();
    let lost = attempts.iter().any(|attempt| attempt.error_code.as_deref() == Some("lease.expired"));
    assert!(!lost, "the pipeline is given back, and nobody waits for a lease to expire");
    stage.db.execute("update content.film set title = 'after the crash'").await;
    stage.request(id).await;
    stage.reaches(id, Status::Idle).await;
    assert_eq!(stage.differences().await, 0);
}

#[tokio::test]
async fn a_runner_that_is_cut_off_is_replaced_and_works_again_when_it_is_back() {
    let stage = Stage::with_films(100).await;
    let id = stage.full(1).await;
    let proxy = CuttableProxy::before(stage.db.url()).await;
    let mut settings = restless(&stage, "cut off");
    for connection in settings.connections.0.values_mut() {
        connection.url = proxy.url().into();
    }
    let store = Store::connect(proxy.url(), "cut off", 8).await.unwrap();
    let runner = Runner::new(settings, store);
    let mut tasks = JoinSet::new();
    tasks.spawn(runner.run(CancellationToken::new()));
    let run = stage.request(id).await;
    until(async || stage.count("etl.etl_batches").await >= 10).await;
    proxy.cut();

    let (mut heir, shutdown) = stage.start(restless(&stage, "heir"));
    stage.reaches(id, Status::Idle).await;
    let ended = stage.run_record(run).await;
    assert_eq!((ended.status, ended.rows_read), (RunStatus::Success, 100), "no batch counts twice");
    assert_eq!(stage.differences().await, 0);
    shutdown.cancel();
    heir.join_next().await.unwrap().unwrap();

    stage.db.execute("update content.film set title = 'New'").await;
    proxy.mend();
    let run = stage.request(id).await;
    stage.reaches(id, Status::Idle).await;
    assert_eq!(stage.store.attempts(run).await.unwrap()[0].runner, "cut off");
    assert_eq!(stage.differences().await, 0);
}

/// A file system of its own, so that it can be full. `None` where this process may not mount one.
struct SmallDisk(tempfile::TempDir);

impl SmallDisk {
    /// For a server's own user.
    async fn of(stage: &Stage, size: &str) -> Option<Self> {
        let directory = tempfile::Builder::new().prefix("vitrina-disk-").tempdir().unwrap();
        let mounted =
            command("mount", &["-t", "tmpfs", "-o", &format!("size={size}"), "tmpfs", &path(&directory)]);
        let data: String = stage.db.value("select current_setting('data_directory')").await;
        (mounted && command("chown", &["--reference", &data, &path(&directory)])).then(|| Self(directory))
    }

    fn enlarge(&self, size: &str) {
        assert!(command("mount", &["-o", &format!("remount,size={size}"), &path(&self.0)]));
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        command("umount", &["--lazy", &path(&self.0)]);
    }
}

fn path(directory: &tempfile::TempDir) -> String {
    directory.path().display().to_string()
}

fn command(program: &str, arguments: &[&str]) -> bool {
    std::process::Command::new(program).args(arguments).status().is_ok_and(|status| status.success())
}

#[tokio::test]
async fn a_full_disk_gives_the_pipeline_back_until_there_is_room_again() {
    let stage = Stage::on_a_server_of_its_own(20_000).await;
    let id = stage.full(1000).await;
    let Some(disk) = SmallDisk::of(&stage, "1m").await else {
        eprintln!("not tried: this process may not mount a file system");
        return;
    };
    stage.db.execute(&format!("create tablespace small location '{}'", path(&disk.0))).await;
    stage.db.execute("alter table analytics.film set tablespace small").await;
    let run = stage.request(id).await;
    stage.runner().work_off().await.unwrap();
    assert_eq!(stage.status(id).await, Status::RunRequested);
    let attempts = stage.store.attempts(run).await.unwrap();
    assert_eq!(attempts[0].error_code.as_deref(), Some("sink.unavailable"), "{:?}", attempts[0].error);
    disk.enlarge("64m");
    stage.db.execute("update etl.etl_pipelines set retry_at = now()").await;
    stage.runner().work_off().await.unwrap();
    assert_eq!(stage.run_record(run).await.status, RunStatus::Success);
    assert_eq!(stage.differences().await, 0);
}
