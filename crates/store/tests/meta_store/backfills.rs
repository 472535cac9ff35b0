//! Backfills: runs over a list of keys, which outlives pauses and leaves the pipeline's pass alone.

use serde_json::{Value, json};
use vitrina_core::{Backfill, CursorRange, Event, Mode, OnActive, Outcome, PipelineId, Status};
use vitrina_store::{Claim, Error, RunRequest};

use crate::stage::{Stage, pipeline, ten_rows};

fn keys() -> Vec<Value> {
    vec![json!(["7"]), json!(["8", null])]
}

fn backfill() -> RunRequest {
    RunRequest { keys: Some(keys()), ..RunRequest::default() }
}

async fn begin_backfill(stage: &Stage, id: PipelineId) -> Claim {
    stage.store.request_run(id, OnActive::Reject, &backfill()).await.unwrap();
    stage.claim().await.unwrap()
}

/// The whole run has come to a pause.
async fn pause(stage: &Stage, claim: &Claim) {
    stage.store.request_change(claim.lease.pipeline, Event::Pause).await.unwrap();
    stage.store.interrupt(&claim.lease).await.unwrap();
}

async fn open_a_pass(stage: &Stage) {
    let checkpoint = json!({"position": {"done": null, "pass": {"position": ["7"]}}});
    stage.db.execute(&format!("update etl.etl_state set checkpoint = '{checkpoint}'")).await;
}

async fn has_open_pass(stage: &Stage, id: PipelineId) -> bool {
    stage.store.state(id).await.unwrap().checkpoint.position.pass.is_some()
}

#[tokio::test]
async fn a_backfill_is_kept_with_its_keys_claimed_with_them_and_shown_by_their_number() {
    let stage = Stage::new().await;
    let id = stage.create("film_dim").await;
    let claim = begin_backfill(&stage, id).await;
    assert_eq!(claim.backfill, Some(Backfill::Keys(keys())));
    assert_eq!(stage.store.backfill_keys(claim.run).await.unwrap(), Some(keys()));
    assert_eq!(stage.run(claim.run).await.backfill_keys, Some(2));
    assert_eq!(stage.record(id).await.last_run.unwrap().backfill_keys, Some(2));
    stage.expire_leases().await;
    assert_eq!(
        stage.claim().await.unwrap().backfill,
        Some(Backfill::Keys(keys())),
        "a takeover goes on with them"
    );
}

#[tokio::test]
async fn the_run_after_a_backfill_is_none() {
    let stage = Stage::new().await;
    let id = stage.create("film_dim").await;
    let first = begin_backfill(&stage, id).await;
    stage.store.finish(&first.lease).await.unwrap();
    let plain = stage.begin(id).await;
    assert_eq!((plain.backfill, stage.run(plain.run).await.backfill_keys), (None, None));
    assert_eq!(stage.store.backfill_keys(plain.run).await.unwrap(), None);
    stage.store.finish(&plain.lease).await.unwrap();
    let failing = begin_backfill(&stage, id).await;
    stage.store.fail(&failing.lease, "test.fault", "it broke", false).await.unwrap();
    assert_eq!(stage.begin(id).await.backfill, None);
}

#[tokio::test]
async fn a_backfill_that_waits_for_the_active_run_keeps_its_keys() {
    let stage = Stage::new().await;
    let id = stage.create("film_dim").await;
    let active = stage.begin(id).await;
    stage.store.request_run(id, OnActive::After, &backfill()).await.unwrap();
    stage.store.finish(&active.lease).await.unwrap();
    assert_eq!(stage.claim().await.unwrap().backfill, Some(Backfill::Keys(keys())));
}

#[tokio::test]
async fn a_paused_backfill_is_resumed_with_its_keys() {
    let stage = Stage::new().await;
    let id = stage.create("film_dim").await;
    pause(&stage, &begin_backfill(&stage, id).await).await;
    let resumed = stage.begin(id).await;
    assert_eq!(resumed.backfill, Some(Backfill::Keys(keys())));
    stage.store.request_change(id, Event::Disable).await.unwrap();
    stage.store.interrupt(&resumed.lease).await.unwrap();
    stage.store.request_change(id, Event::Enable).await.unwrap();
    assert_eq!(stage.claim().await.unwrap().backfill, Some(Backfill::Keys(keys())));
}

#[tokio::test]
async fn a_paused_backfill_is_dropped_by_no_run_but_one_that_reads_its_rows_too() {
    let stage = Stage::new().await;
    let id = stage.create("film_dim").await;
    let claim = begin_backfill(&stage, id).await;
    pause(&stage, &claim).await;
    let other = RunRequest { keys: Some(vec![json!(["9"])]), ..RunRequest::default() };
    let incremental = RunRequest { mode: Some(Mode::Incremental), ..RunRequest::default() };
    for request in [other, incremental] {
        let refused = stage.store.request_run(id, OnActive::Join, &request).await;
        assert!(matches!(refused, Err(Error::BackfillPaused)), "{refused:?}");
        assert_eq!(stage.status(id).await, Status::Paused);
    }
    let full = RunRequest { mode: Some(Mode::Full), ..RunRequest::default() };
    stage.store.request_run(id, OnActive::Join, &full).await.unwrap();
    let claim = stage.claim().await.unwrap();
    assert_eq!(claim.backfill, None);
    pause(&stage, &claim).await;
    assert_eq!(begin_backfill(&stage, id).await.backfill, Some(Backfill::Keys(keys())));
}

#[tokio::test]
async fn a_pause_between_runs_repeats_neither_the_keys_nor_the_mode_of_the_last_one() {
    let stage = Stage::new().await;
    let mut incremental = pipeline("film_dim");
    (incremental.mode, incremental.incremental_key) = (Mode::Incremental, Some("modified".into()));
    let id = stage.store.create_pipeline(&incremental).await.unwrap().config.id;
    let full = RunRequest { mode: Some(Mode::Full), ..RunRequest::default() };
    for last in [backfill(), full] {
        stage.store.request_run(id, OnActive::Join, &last).await.unwrap();
        let claim = stage.claim().await.unwrap();
        stage.store.finish(&claim.lease).await.unwrap();
        stage.store.request_change(id, Event::Pause).await.unwrap();
        assert_eq!(stage.status(id).await, Status::Paused);
        let next = stage.begin(id).await;
        assert_eq!((next.backfill, next.mode), (None, Mode::Incremental), "{last:?}");
        stage.store.finish(&next.lease).await.unwrap();
    }
}

#[tokio::test]
async fn a_cancelled_backfill_leaves_the_open_pass_to_the_run_that_goes_on_with_it() {
    let stage = Stage::new().await;
    let id = stage.create("film_dim").await;
    open_a_pass(&stage).await;
    let claim = begin_backfill(&stage, id).await;
    stage.store.request_change(id, Event::Cancel).await.unwrap();
    stage.store.interrupt(&claim.lease).await.unwrap();
    assert!(has_open_pass(&stage, id).await);
    pause(&stage, &begin_backfill(&stage, id).await).await;
    stage.store.request_change(id, Event::Cancel).await.unwrap();
    assert!(has_open_pass(&stage, id).await);
    let ended = begin_backfill(&stage, id).await;
    stage.store.finish(&ended.lease).await.unwrap();
    stage.store.request_change(id, Event::Pause).await.unwrap();
    stage.store.request_change(id, Event::Cancel).await.unwrap();
    assert!(!has_open_pass(&stage, id).await, "this cancel was of no backfill");
}

fn range(at: Option<&str>) -> CursorRange {
    CursorRange { from: Some("10".into()), to: Some("20".into()), at: at.map(|at| vec![at.to_owned()]) }
}

#[tokio::test]
async fn a_backfill_over_a_range_goes_on_from_where_its_batches_were_committed() {
    let stage = Stage::new().await;
    let id = stage.create("film_dim").await;
    let asked = RunRequest { range: Some(range(None)), ..RunRequest::default() };
    stage.store.request_run(id, OnActive::Join, &asked).await.unwrap();
    let claim = stage.claim().await.unwrap();
    assert_eq!(claim.backfill, Some(Backfill::Range(range(None))));
    let outcome = Outcome { backfilled_to: Some(vec!["14".to_owned()]), ..ten_rows() };
    stage.commit(&claim.lease, 0, &outcome).await.unwrap();
    assert_eq!(stage.run(claim.run).await.backfill_range, Some(range(Some("14"))));
    pause(&stage, &claim).await;
    let resumed = stage.begin(id).await;
    assert_eq!(resumed.backfill, Some(Backfill::Range(range(Some("14")))));
    stage.store.finish(&resumed.lease).await.unwrap();
    assert_eq!(begin_backfill(&stage, id).await.backfill, Some(Backfill::Keys(keys())), "keys are no range");
}

#[tokio::test]
async fn a_backfill_or_a_rollback_that_fails_leaves_the_status_as_it_was() {
    let rollback = RunRequest { rollback: true, ..RunRequest::default() };
    for (was, request) in [Status::Idle, Status::Paused]
        .into_iter()
        .flat_map(|was| [(was, backfill()), (was, rollback.clone())])
    {
        let stage = Stage::new().await;
        let id = stage.create("film_dim").await;
        if was == Status::Paused {
            stage.store.request_change(id, Event::Pause).await.unwrap();
        }
        stage.store.request_run(id, OnActive::Reject, &request).await.unwrap();
        let claim = stage.claim().await.unwrap();
        stage.store.fail(&claim.lease, "backfill.key", "no such key", false).await.unwrap();
        assert_eq!(stage.record(id).await.status, was);
        assert_eq!(stage.run(claim.run).await.error_code.as_deref(), Some("backfill.key"));
    }
}

#[tokio::test]
async fn a_backfill_that_fails_behind_a_failed_run_leaves_it_failed() {
    let stage = Stage::new().await;
    let id = stage.create("film_dim").await;
    let plain = stage.begin(id).await;
    stage.store.fail(&plain.lease, "source.refused", "no", false).await.unwrap();
    let claim = begin_backfill(&stage, id).await;
    stage.store.fail(&claim.lease, "backfill.key", "no such key", false).await.unwrap();
    assert_eq!(stage.record(id).await.status, Status::Failed);
}

#[tokio::test]
async fn what_waited_for_a_backfill_begins_when_it_has_failed() {
    let stage = Stage::new().await;
    let id = stage.create("film_dim").await;
    let claim = begin_backfill(&stage, id).await;
    stage.store.request_run(id, OnActive::After, &RunRequest::default()).await.unwrap();
    stage.store.fail(&claim.lease, "backfill.key", "no such key", false).await.unwrap();
    let next = stage.claim().await.unwrap();
    assert_eq!((next.backfill, next.run != claim.run), (None, true));
}

#[tokio::test]
async fn a_backfill_that_was_paused_and_fails_goes_back_to_where_it_began() {
    let stage = Stage::new().await;
    let id = stage.create("film_dim").await;
    let claim = begin_backfill(&stage, id).await;
    pause(&stage, &claim).await;
    let resumed = stage.begin(id).await;
    assert_eq!(resumed.backfill, Some(Backfill::Keys(keys())));
    stage.store.fail(&resumed.lease, "backfill.key", "no such key", false).await.unwrap();
    assert_eq!(stage.record(id).await.status, Status::Idle);
}

#[tokio::test]
async fn a_backfill_that_failed_is_continued_on_request() {
    let stage = Stage::new().await;
    let id = stage.create("film_dim").await;
    let claim = begin_backfill(&stage, id).await;
    stage.store.fail(&claim.lease, "source.refused", "no", false).await.unwrap();
    let request = RunRequest { resume: true, ..RunRequest::default() };
    stage.store.request_run(id, OnActive::Reject, &request).await.unwrap();
    assert_eq!(stage.claim().await.unwrap().backfill, Some(Backfill::Keys(keys())));
}
