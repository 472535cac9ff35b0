//! `as_of`: what the source had committed before that moment is in the target. The clock is the meta-store's, which
//! is also the one that lag is told by.

use jiff::Timestamp;
use serde_json::json;
use vitrina_core::{Event, Mode, PipelineId, RunStatus, Status};

use crate::stage::{Stage, until};

impl Stage {
    async fn as_of(&self, id: PipelineId) -> Option<Timestamp> {
        self.store.state(id).await.unwrap().as_of
    }

    /// By the clock of the meta-store.
    async fn now(&self) -> Timestamp {
        let micros = "select (extract(epoch from clock_timestamp()) * 1000000)::bigint";
        Timestamp::from_microsecond(self.db.value(micros).await).unwrap()
    }
}

#[tokio::test]
async fn a_completed_pass_moves_the_watermark_to_its_opening() {
    let stage = Stage::with_films(30).await;
    let id = stage.incremental(10).await;
    assert_eq!(stage.as_of(id).await, None);
    for mode in [Mode::Full, Mode::Incremental, Mode::Incremental, Mode::Full] {
        stage
            .db
            .execute("update content.film set title = title || '!', modified = now() where id < 15")
            .await;
        let before = stage.now().await;
        let run = stage.request_mode(id, mode).await;
        stage.runner().work_off().await.unwrap();
        assert_eq!(stage.run_record(run).await.status, RunStatus::Success);
        let as_of = stage.as_of(id).await.unwrap();
        assert!(before <= as_of && as_of <= stage.now().await, "{mode}: {before} {as_of}");
    }
}

/// Answers the watermark before it. While others are at work on the server, a pass may rightly read rows again.
async fn an_idle_run(stage: &Stage, id: PipelineId) -> Option<Timestamp> {
    loop {
        let (as_of, checkpoint) = (stage.as_of(id).await, stage.checkpoint().await);
        if stage.succeed(id).await.batches == 0 {
            assert_eq!(stage.checkpoint().await, checkpoint);
            return as_of;
        }
    }
}

#[tokio::test]
async fn a_pass_that_finds_nothing_moves_the_watermark_and_no_checkpoint() {
    let stage = Stage::with_films(5).await;
    let id = stage.incremental(10).await;
    stage.succeed(id).await;
    let first = an_idle_run(&stage, id).await;
    let second = stage.as_of(id).await;
    assert!(second > first, "{second:?} {first:?}");
    // The next pass is under way: what was established is not taken back.
    stage.add_films(6, 40).await;
    let blocker = stage.block_film(35).await;
    let run = stage.request(id).await;
    let (_runner, _stop) = stage.start_runner("blocked");
    stage.someone_waits_for_a_row().await;
    assert!(stage.run_record(run).await.batches > 0);
    assert_eq!(stage.as_of(id).await, second);
    drop(blocker);
    stage.reaches(id, Status::Idle).await;
    assert!(stage.as_of(id).await > second);
}

#[tokio::test]
async fn a_pass_that_is_paused_and_resumed_counts_from_its_first_opening() {
    let stage = Stage::with_films(50).await;
    let id = stage.full(10).await;
    let (_runner, _stop) = stage.start_runner("pausing");
    let blocker = stage.block_mart().await;
    let before = stage.now().await;
    stage.request(id).await;
    stage.someone_waits_for_the_mart().await;
    stage.pause_unheard(id).await;
    blocker.batch_execute("commit").await.unwrap();
    stage.reaches(id, Status::Paused).await;
    let paused = stage.now().await;
    assert_eq!(stage.as_of(id).await, None, "half a pass proves nothing");
    stage.request(id).await;
    stage.reaches(id, Status::Idle).await;
    let as_of = stage.as_of(id).await.unwrap();
    assert!(before <= as_of && as_of < paused, "{before} {as_of} {paused}");
}

#[tokio::test]
async fn a_pass_that_is_taken_over_counts_from_its_first_opening() {
    let stage = Stage::with_films(50).await;
    let id = stage.full(10).await;
    let (mut doomed, _stop) = stage.start_runner("doomed");
    let blocker = stage.block_film(15).await;
    stage.request(id).await;
    stage.someone_waits_for_a_row().await;
    let silent = stage.now().await;
    doomed.abort_all();
    while doomed.join_next().await.is_some() {}
    drop(blocker);
    until(async || {
        stage.expire_leases().await;
        stage.runner().work_off().await.unwrap();
        stage.status(id).await == Status::Idle
    })
    .await;
    assert!(stage.as_of(id).await.unwrap() < silent);
}

#[tokio::test]
async fn a_cancelled_pass_leaves_the_watermark_and_the_next_one_opens_anew() {
    let stage = Stage::with_films(50).await;
    let id = stage.full(10).await;
    let (_runner, _stop) = stage.start_runner("cancelling");
    let blocker = stage.block_mart().await;
    stage.request(id).await;
    stage.someone_waits_for_the_mart().await;
    stage.change(id, Event::Cancel).await;
    blocker.batch_execute("commit").await.unwrap();
    stage.reaches(id, Status::Idle).await;
    let cancelled = stage.now().await;
    assert_eq!(stage.as_of(id).await, None);
    stage.request(id).await;
    stage.reaches(id, Status::Idle).await;
    assert!(stage.as_of(id).await.unwrap() >= cancelled);
}

#[tokio::test]
async fn neither_a_backfill_nor_a_failed_run_moves_the_watermark() {
    let stage = Stage::with_films(20).await;
    let id = stage.incremental(10).await;
    stage.succeed(id).await;
    let as_of = stage.as_of(id).await;
    stage.db.execute("update content.film set title = 'New'").await;
    for keys in [json!([["3"], ["4"]]), json!([["999"]])] {
        stage.request_keys(id, keys).await;
        stage.runner().work_off().await.unwrap();
    }
    assert_eq!((stage.count("analytics.film where title = 'New'").await, stage.as_of(id).await), (2, as_of));
    stage
        .db
        .execute("alter table analytics.film drop column rating; update content.film set modified = now()")
        .await;
    stage.fail(id).await;
    assert_eq!(stage.as_of(id).await, as_of);
}

#[tokio::test]
async fn a_reset_checkpoint_vouches_for_nothing_until_the_next_pass_has_ended() {
    let stage = Stage::with_films(5).await;
    let id = stage.incremental(10).await;
    stage.succeed(id).await;
    let state = stage.store.state(id).await.unwrap();
    let change = vitrina_store::StateChange::Reset;
    stage.store.change_state(id, state.version, change, &state.checkpoint.reset()).await.unwrap();
    assert_eq!(stage.as_of(id).await, None);
    stage.succeed(id).await;
    assert!(stage.as_of(id).await > state.as_of);
}
