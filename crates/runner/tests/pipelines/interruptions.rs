use vitrina_core::{Event, RunStatus, Status};

use crate::stage::{Stage, until};

#[tokio::test]
async fn a_request_wakes_an_idle_runner_without_waiting_for_a_poll() {
    let stage = Stage::with_films(5).await;
    let id = stage.full(10).await;
    let (mut runner, shutdown) = stage.start_runner("idle");
    until(async || !stage.store.runners().await.unwrap().is_empty()).await;
    let run = stage.request(id).await;
    until(async || stage.run_record(run).await.status == RunStatus::Success).await;
    shutdown.cancel();
    runner.join_next().await.unwrap().unwrap();
}

#[tokio::test]
async fn a_paused_run_stops_between_batches_and_resumes_at_its_checkpoint() {
    let stage = Stage::with_films(100).await;
    let id = stage.full(10).await;
    let (mut runner, shutdown) = stage.start_runner("pausing");
    let blocker = stage.block_mart().await;
    let first = stage.request(id).await;
    stage.someone_waits_for_the_mart().await;
    stage.pause_unheard(id).await;
    assert_eq!(stage.status(id).await, Status::PauseRequested);
    blocker.batch_execute("commit").await.unwrap();
    stage.reaches(id, Status::Paused).await;

    let paused = stage.run_record(first).await;
    assert_eq!((paused.status, paused.rows_read, paused.batches), (RunStatus::Paused, 10, 1));
    assert_eq!(stage.count("analytics.film").await, 10);

    let second = stage.request(id).await;
    stage.reaches(id, Status::Idle).await;
    let resumed = stage.run_record(second).await;
    assert_eq!((resumed.status, resumed.rows_read), (RunStatus::Success, 90));
    assert_eq!(stage.differences().await, 0);
    shutdown.cancel();
    runner.join_next().await.unwrap().unwrap();
}

#[rstest::rstest]
#[case::pause(Event::Pause, Status::Paused, RunStatus::Paused)]
#[case::cancel(Event::Cancel, Status::Idle, RunStatus::Cancelled)]
#[tokio::test]
async fn a_run_is_stopped_at_once_while_it_waits_for_its_source(
    #[case] event: Event,
    #[case] status: Status,
    #[case] run_status: RunStatus,
) {
    let stage = Stage::with_films(10).await;
    let id = stage.full(10).await;
    let (_runner, _shutdown) = stage.start_runner("listening");
    let gate = stage.db.client().await;
    gate.batch_execute("begin; lock table content.film in access exclusive mode").await.unwrap();
    let run = stage.request(id).await;
    stage.someone_waits_for("content.film").await;
    stage.change(id, event).await;
    stage.reaches(id, status).await;
    assert_eq!(stage.run_record(run).await.status, run_status);
}

#[tokio::test]
async fn a_cancelled_run_ends_between_batches_and_the_next_one_starts_over() {
    let stage = Stage::with_films(100).await;
    let id = stage.full(10).await;
    let (_runner, _shutdown) = stage.start_runner("cancelling");
    let blocker = stage.block_mart().await;
    let first = stage.request(id).await;
    stage.someone_waits_for_the_mart().await;
    stage.change(id, Event::Cancel).await;
    blocker.batch_execute("commit").await.unwrap();
    stage.reaches(id, Status::Idle).await;
    assert_eq!(stage.run_record(first).await.status, RunStatus::Cancelled);
    let second = stage.request(id).await;
    stage.reaches(id, Status::Idle).await;
    assert_eq!(stage.run_record(second).await.rows_read, 100);
}

#[tokio::test]
async fn a_runner_that_stops_finishes_its_batch_and_hands_the_run_to_the_next() {
    let stage = Stage::with_films(100).await;
    let id = stage.full(10).await;
    let (mut first, shutdown) = stage.start_runner("first");
    let blocker = stage.block_film(5).await;
    let run = stage.request(id).await;
    stage.someone_waits_for_a_row().await;
    shutdown.cancel();
    blocker.batch_execute("rollback").await.unwrap();
    first.join_next().await.unwrap().unwrap();
    assert_eq!((stage.status(id).await, stage.count("analytics.film").await), (Status::RunRequested, 10));
    assert_eq!(stage.store.runners().await.unwrap()[0].status, "STOPPED");

    stage.runner().work_off().await.unwrap();
    let done = stage.run_record(run).await;
    assert_eq!((done.status, done.rows_read), (RunStatus::Success, 100), "one run, two attempts");
    assert_eq!(stage.store.attempts(run).await.unwrap().len(), 2);
    assert_eq!(stage.differences().await, 0);
}

#[tokio::test]
async fn a_run_left_by_a_dead_runner_is_taken_over_from_its_checkpoint() {
    let stage = Stage::with_films(100).await;
    let id = stage.full(10).await;
    let (mut doomed, _shutdown) = stage.start_runner("doomed");
    // The first batch lands, the second one waits: the runner dies in the middle of it.
    let run = {
        let gate = stage.block_mart().await;
        let run = stage.request(id).await;
        stage.someone_waits_for_the_mart().await;
        gate.batch_execute("commit").await.unwrap();
        run
    };
    until(async || stage.count("analytics.film").await >= 10).await;
    doomed.abort_all();
    while doomed.join_next().await.is_some() {}
    // The server may still be at the dead runner's last commit, which holds the pipeline.
    until(async || {
        stage.expire_leases().await;
        stage.runner().work_off().await.unwrap();
        stage.status(id).await == Status::Idle
    })
    .await;
    assert_eq!(stage.run_record(run).await.status, RunStatus::Success);
    assert_eq!(stage.run_record(run).await.rows_read, 100, "no batch counts twice");
    assert_eq!(stage.differences().await, 0);
}

#[tokio::test]
async fn a_zombie_that_wakes_after_a_takeover_writes_nothing() {
    let stage = Stage::with_films(20).await;
    let id = stage.full(10).await;
    let (mut zombie, _shutdown) = stage.start_runner("zombie");
    let blocker = stage.block_mart().await;
    let run = stage.request(id).await;
    stage.someone_waits_for_the_mart().await;
    let abilities = vitrina_store::RunnerAbilities {
        name: "new owner".into(),
        connections: vec!["content".into(), "marts".into()],
        ..Default::default()
    };
    // While the zombie waits, its lease expires and another token is given out; nothing is written yet. A heartbeat
    // may come between the two.
    let claim = loop {
        stage.expire_leases().await;
        let claim = stage
            .store
            .claim(&abilities, &vitrina_store::Terms::idle(std::time::Duration::from_secs(30)))
            .await
            .unwrap();
        if let Some(claim) = claim {
            break claim;
        }
    };
    blocker.batch_execute("commit").await.unwrap();
    let ended = "select not exists (select from pg_stat_activity where datname = current_database() and application_name like 'vitrina/%' and state <> 'idle')";
    until(|| stage.db.value::<bool>(ended)).await;
    assert_eq!(stage.count("analytics.film").await, 0, "the fence rolled the zombie's batch back");
    assert_eq!(stage.run_record(run).await.status, RunStatus::Running);
    stage.store.release(&claim.lease, "test", "hand over", std::time::Duration::ZERO).await.unwrap();
    stage.reaches(id, Status::Idle).await;
    assert_eq!(stage.differences().await, 0);
    zombie.abort_all();
}
