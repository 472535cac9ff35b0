//! Functions whose code changes: which version goes on from a checkpoint, and who is asked.

use std::time::Duration;

use serde_json::json;
use vitrina_core::{Decision, Event, Mode, OnActive, PipelineId, RunStatus, Status};
use vitrina_runner::RunnerSettings;
use vitrina_store::{RunRequest, RunnerRecord};

use super::{FUNCTIONS, incremental};
use crate::functions::{Functions, plan};
use crate::stage::{Stage, until};

#[tokio::test]
async fn functions_are_published_with_their_docs_and_a_plan_waits_for_a_runner_that_has_them() {
    let (stage, functions) = (Stage::with_films(2).await, Functions::new().await);
    let id = stage.pipeline(plan(&["slug"])).await;
    let run = stage.request(id).await;
    stage.runner().work_off().await.unwrap();
    assert_eq!(stage.run_record(run).await.status, RunStatus::Requested, "this one has no Python");
    let (_running, _stop) = stage.start(functions.settings(&stage));
    stage.reaches(id, Status::Idle).await;
    assert_eq!(stage.run_record(run).await.status, RunStatus::Success);
    let tasks = stage.store.python_tasks().await.unwrap();
    let slug = tasks.iter().find(|task| task.name == "slug").unwrap();
    assert_eq!((slug.runner.as_str(), slug.kind.as_str(), slug.alive), ("pythonic", "transform", true));
    assert!(slug.doc.contains("address") && slug.version_hash.len() >= 16, "{slug:?}");
}

/// The same functions in other words.
async fn changed_functions() -> Functions {
    Functions::of(&format!("{FUNCTIONS}\n# changed\n")).await
}

async fn decided(stage: &Stage, functions: &Functions, id: PipelineId, checkpoint: Decision) -> RunStatus {
    let request = RunRequest { checkpoint: Some(checkpoint), ..RunRequest::default() };
    let run = stage.store.request_run(id, OnActive::Reject, &request).await.unwrap().run.unwrap();
    stage.work_off(functions.settings(stage)).await;
    stage.run_record(run).await.status
}

#[tokio::test]
async fn increments_through_changed_code_ask_and_do_what_they_are_told() {
    for decision in [Decision::Keep, Decision::Reset] {
        let (stage, functions) = (Stage::with_films(5).await, Functions::new().await);
        let id = stage.pipeline(incremental(&["slug"])).await;
        functions.succeed(&stage, id).await;
        let changed = changed_functions().await;
        let run = changed.run(&stage, id).await;
        assert_eq!(run.error_code.as_deref(), Some("checkpoint.code_changed"), "{:?}", run.error);
        let error = run.error.unwrap();
        assert!(["slug", "keep", "reset", "full"].iter().all(|word| error.contains(word)), "{error}");
        functions.succeed(&stage, id).await;
        assert_eq!(decided(&stage, &changed, id, decision).await, RunStatus::Success);
        changed.succeed(&stage, id).await;
        let run = functions.run(&stage, id).await;
        assert_eq!(run.error_code.as_deref(), Some("checkpoint.code_changed"), "it is the changed one's now");
    }
}

#[tokio::test]
async fn a_load_through_changed_code_begins_anew() {
    let (stage, functions) = (Stage::with_films(25).await, Functions::new().await);
    let mut changes = plan(&["up_to_ten"]);
    changes["batch_size"] = json!(4);
    let id = stage.pipeline(changes).await;
    assert_eq!(functions.run(&stage, id).await.error_code.as_deref(), Some("python.exception"));
    let changed = changed_functions().await;
    changed.allow();
    assert_eq!(changed.succeed(&stage, id).await.rows_read, 25);
    assert_eq!(stage.count("analytics.film").await, 10);
}

#[tokio::test]
async fn of_two_versions_side_by_side_the_one_that_the_checkpoint_knows_goes_on() {
    let (stage, functions) = (Stage::with_films(5).await, Functions::new().await);
    let changed = changed_functions().await;
    let named = |functions: &Functions, name: &str| RunnerSettings {
        name: name.to_owned(),
        poll_interval: Duration::from_millis(200),
        ..functions.settings(&stage)
    };
    let id = stage.pipeline(incremental(&["slug"])).await;
    let (old, stop_old) = stage.start(named(&functions, "old"));
    stage.request(id).await;
    stage.reaches(id, Status::Idle).await;
    let (_new, _stop_new) = stage.start(named(&changed, "new"));
    until(async || is_ready(&stage.store.runners().await.unwrap(), "new")).await;
    for film in 6..12 {
        stage.add_films(film, film).await;
        stage.request(id).await;
        stage.reaches(id, Status::Idle).await;
    }
    assert_eq!(
        stage.db.texts("select distinct runner from etl.etl_attempts").await,
        [[Some("old".to_owned())]]
    );
    stop_old.cancel();
    old.join_all().await;
    let refused = stage.store.request_run(id, OnActive::Join, &RunRequest::default()).await;
    assert!(matches!(refused, Err(vitrina_store::Error::CodeChanged(_))), "{refused:?}");
    let full = RunRequest { mode: Some(Mode::Full), ..RunRequest::default() };
    let run = stage.store.request_run(id, OnActive::Join, &full).await.unwrap().run.unwrap();
    stage.reaches(id, Status::Idle).await;
    assert_eq!(stage.run_record(run).await.status, RunStatus::Success);
    stage.request(id).await;
}

fn is_ready(runners: &[RunnerRecord], name: &str) -> bool {
    runners.iter().any(|runner| runner.name == name && runner.status == "READY")
}

/// A runner that has published its functions, and is gone again.
async fn was_here(stage: &Stage, functions: &Functions, name: &str) {
    let (running, stop) = stage.start(named(stage, functions, name));
    until(async || is_ready(&stage.store.runners().await.unwrap(), name)).await;
    stop.cancel();
    running.join_all().await;
}

/// It lives elsewhere, as far as the meta-store can see.
async fn lives(stage: &Stage, name: &str, connections: &str) {
    let sql = format!(
        "update etl.etl_runners set status = 'READY', heartbeat_at = clock_timestamp(), connections = {connections}
          where name = '{name}'"
    );
    stage.db.execute(&sql).await;
}

fn named(stage: &Stage, functions: &Functions, name: &str) -> RunnerSettings {
    RunnerSettings { name: name.to_owned(), ..functions.settings(stage) }
}

/// An increment through the functions by a runner that is gone since, and others that have changed.
async fn after_an_older_runner() -> (Stage, Functions, PipelineId) {
    let (stage, functions) = (Stage::with_films(5).await, Functions::new().await);
    let id = stage.pipeline(incremental(&["slug"])).await;
    functions.succeed(&stage, id).await;
    was_here(&stage, &functions, "old").await;
    (stage, changed_functions().await, id)
}

#[tokio::test]
async fn while_a_runner_has_the_known_code_newer_code_takes_loads_and_what_was_decided_alone() {
    let (stage, changed, id) = after_an_older_runner().await;
    lives(&stage, "old", "connections").await;
    let waiting = stage.request(id).await;
    stage.work_off(named(&stage, &changed, "new")).await;
    assert_eq!(stage.run_record(waiting).await.status, RunStatus::Requested);
    stage.change(id, Event::Cancel).await;
    let decided = RunRequest { checkpoint: Some(Decision::Keep), ..RunRequest::default() };
    let full = RunRequest { mode: Some(Mode::Full), ..RunRequest::default() };
    for request in [full, decided] {
        lives(&stage, "old", "connections").await;
        let run = stage.store.request_run(id, OnActive::Reject, &request).await.unwrap().run.unwrap();
        stage.work_off(named(&stage, &changed, "new")).await;
        assert_eq!(stage.run_record(run).await.status, RunStatus::Success, "{request:?}");
    }
}

#[tokio::test]
async fn a_runner_that_cannot_reach_the_source_is_nobody_who_could_go_on() {
    let (stage, changed, id) = after_an_older_runner().await;
    was_here(&stage, &changed, "new").await;
    lives(&stage, "new", "connections").await;
    lives(&stage, "old", "'{}'").await;
    let refused = stage.store.request_run(id, OnActive::Join, &RunRequest::default()).await;
    assert!(matches!(refused, Err(vitrina_store::Error::CodeChanged(_))), "{refused:?}");
    lives(&stage, "old", "(select connections from etl.etl_runners where name = 'new')").await;
    stage.request(id).await;
}

#[tokio::test]
async fn a_runner_that_was_forgotten_publishes_its_functions_again() {
    let (stage, functions) = (Stage::with_films(0).await, Functions::new().await);
    let settings = RunnerSettings { poll_interval: Duration::from_millis(100), ..functions.settings(&stage) };
    let (_running, _stop) = stage.start(settings);
    let published = async || !stage.store.python_tasks().await.unwrap().is_empty();
    until(published).await;
    stage.db.execute("delete from etl.etl_runners").await;
    until(published).await;
}

#[tokio::test]
async fn a_run_that_meets_changed_files_is_given_back_and_fails_nothing() {
    let stage = Stage::with_films(5).await;
    let functions = Functions::with(|settings| settings.batches_a_worker = 1).await;
    let mut changes = plan(&["slug"]);
    changes["batch_size"] = json!(1);
    let id = stage.pipeline(changes).await;
    functions.rewrite(&format!("{FUNCTIONS}\n# changed\n"));
    let run = functions.run(&stage, id).await;
    assert_eq!((stage.status(id).await, run.error), (Status::RunRequested, None));
    let changed = changed_functions().await;
    let settings = RunnerSettings { poll_interval: Duration::from_millis(100), ..changed.settings(&stage) };
    let (_running, _stop) = stage.start(settings);
    stage.reaches(id, Status::Idle).await;
    let run = stage.run_record(run.id).await;
    assert_eq!(run.status, RunStatus::Success, "{:?}", run.error);
}
