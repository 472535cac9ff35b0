//! Requests and a runner's reports, held against the table of core, through the database.

use std::time::Duration;

use serde_json::{Value, json};
use vitrina_core::{Event, Mode, OnActive, PipelineId, RunStatus, Status};
use vitrina_store::{Error, RunRequest};

use crate::stage::{Stage, pipeline, reachable};

#[tokio::test]
async fn every_event_in_every_state_leads_where_the_table_of_core_says() {
    let stage = Stage::new().await;
    let mut cells = 0;
    for (number, (state, _)) in reachable().into_iter().enumerate() {
        let of_plain_runs = |event: &Event| !matches!(event, Event::FailBeside(_));
        for (place, event) in Event::ALL.into_iter().filter(of_plain_runs).enumerate() {
            let by_runner = matches!(event, Event::BatchDone | Event::DataEnd | Event::Fail | Event::Release);
            if by_runner && !state.status.is_leased() {
                continue;
            }
            let (id, lease) = stage.bring_to(&format!("p{number}_{place}"), state).await;
            let outcome = match (event, lease) {
                (Event::Claim, _) => stage.claimed(id).await,
                (Event::ScheduleDue, _) => stage.came_due(id).await,
                (Event::BatchDone, Some(lease)) => stage.store.interrupt(&lease).await,
                (Event::DataEnd, Some(lease)) => stage.store.finish(&lease).await,
                (Event::Fail, Some(lease)) => stage.store.fail(&lease, "test.fault", "it broke", false).await,
                (Event::Release, Some(lease)) => {
                    stage.store.release(&lease, "test.drain", "drained", Duration::ZERO).await
                }
                (Event::Run(on_active), _) => {
                    stage.store.request_run(id, on_active, &RunRequest::default()).await
                }
                (request, _) => stage.store.request_change(id, request).await,
            };
            let after = stage.record(id).await;
            match state.apply(event) {
                Ok((next, effect)) => {
                    let done = outcome.unwrap_or_else(|error| panic!("{state:?} {event:?}: {error}"));
                    assert_eq!(after.lifecycle(), next, "{state:?} {event:?}");
                    assert_eq!(done.effect, effect);
                    assert_eq!(after.run_id.is_some(), next.status.is_active());
                }
                Err(refusal) => {
                    assert!(
                        matches!(outcome, Err(Error::Refusal(given)) if given == refusal),
                        "{state:?} {event:?}"
                    );
                    assert_eq!(after.lifecycle(), state, "a refusal changes nothing");
                }
            }
            stage.store.request_change(id, Event::Disable).await.unwrap();
            stage.db.execute(&format!("delete from etl.etl_pipelines where id = '{id}'")).await;
            cells += 1;
        }
    }
    assert!(cells > 100, "only {cells} cells were tried");
}

#[tokio::test]
async fn a_run_keeps_the_configuration_it_was_requested_with() {
    let stage = Stage::new().await;
    let id = stage.create("film_dim").await;
    stage.request(id).await;
    stage
        .db
        .execute("update etl.etl_pipelines set source_query = 'select 2 as id', version = version + 1")
        .await;
    let claim = stage.claim().await.unwrap();
    assert_eq!(claim.pipeline.source_query.as_deref(), Some("select 1 as id"));
    assert_eq!(claim.target.name, "analytics.mart_film_dim");
}

#[tokio::test]
async fn one_idempotency_key_is_one_run() {
    let stage = Stage::new().await;
    let id = stage.create("film_dim").await;
    let request = RunRequest { idempotency_key: Some("airflow-7".into()), ..RunRequest::default() };
    let first = stage.store.request_run(id, OnActive::Reject, &request).await.unwrap().run;
    let claim = stage.claim().await.unwrap();
    stage.store.finish(&claim.lease).await.unwrap();
    let again = stage.store.request_run(id, OnActive::Reject, &request).await.unwrap();
    assert_eq!(again.run, first);
    assert_eq!(stage.status(id).await, Status::Idle, "no second run was opened");
}

#[tokio::test]
async fn a_request_after_the_open_run_starts_when_that_ends_and_keeps_its_mode() {
    let stage = Stage::new().await;
    let id = stage.create("film_dim").await;
    stage.request(id).await;
    let claim = stage.claim().await.unwrap();
    let full = RunRequest { mode: Some(Mode::Full), ..RunRequest::default() };
    stage.store.request_run(id, OnActive::After, &full).await.unwrap();
    let done = stage.store.finish(&claim.lease).await.unwrap();
    assert_eq!(done.pipeline.status, Status::RunRequested);
    let second = stage.claim().await.unwrap();
    assert_ne!(second.run, claim.run);
    assert_eq!(second.mode, Mode::Full);
}

#[tokio::test]
async fn a_resumed_pipeline_goes_on_with_the_mode_that_was_paused() {
    let stage = Stage::new().await;
    let id = requested_full_of_an_incremental_pipeline(&stage).await;
    let claim = stage.claim().await.unwrap();
    stage.store.request_change(id, Event::Pause).await.unwrap();
    stage.store.interrupt(&claim.lease).await.unwrap();
    assert_eq!(stage.store.run(claim.run).await.unwrap().unwrap().status, RunStatus::Paused);
    stage.request(id).await;
    assert_eq!(stage.claim().await.unwrap().mode, Mode::Full);
}

#[tokio::test]
async fn a_cancel_drops_the_open_pass_and_keeps_what_was_done() {
    let stage = Stage::new().await;
    let id = stage.create("film_dim").await;
    let checkpoint =
        json!({"position": {"done": {"bound": ["5", "a"]}, "pass": {"position": ["7", "b"]}}, "deleted": 3});
    stage.db.execute(&format!("update etl.etl_state set checkpoint = '{checkpoint}'")).await;
    assert_eq!(stage.store.state(id).await.unwrap().last_processed_key.as_deref(), Some("7"));
    stage.request(id).await;
    let claim = stage.claim().await.unwrap();
    stage.store.request_change(id, Event::Cancel).await.unwrap();
    let done = stage.store.finish(&claim.lease).await.unwrap();
    assert_eq!(done.pipeline.status, Status::Idle);
    assert_eq!(stage.store.run(claim.run).await.unwrap().unwrap().status, RunStatus::Cancelled);
    let state = stage.store.state(id).await.unwrap();
    assert_eq!(state.checkpoint.position.pass, None::<Value>);
    assert_eq!(state.checkpoint.deletes.deleted, 3, "the limit of the next pass knows of them");
    assert_eq!(
        (state.last_processed_key.as_deref(), state.last_processed_id.as_deref()),
        (Some("5"), Some("a"))
    );
}

#[tokio::test]
async fn a_failed_pipeline_runs_again_when_asked() {
    let stage = Stage::new().await;
    let id = stage.create("film_dim").await;
    stage.request(id).await;
    let claim = stage.claim().await.unwrap();
    stage.store.fail(&claim.lease, "source.refused", &"x".repeat(9000), false).await.unwrap();
    let run = stage.store.run(claim.run).await.unwrap().unwrap();
    assert_eq!((run.status, run.error.map(|error| error.len())), (RunStatus::Failed, Some(4000)));
    stage.request(id).await;
    assert_eq!(stage.claim().await.unwrap().lease.pipeline, id);
}

#[tokio::test]
async fn a_cancelled_pause_leaves_no_mode_behind() {
    let stage = Stage::new().await;
    let id = requested_full_of_an_incremental_pipeline(&stage).await;
    stage.store.request_change(id, Event::Pause).await.unwrap();
    stage.store.request_change(id, Event::Cancel).await.unwrap();
    stage.request(id).await;
    assert_eq!(stage.claim().await.unwrap().mode, Mode::Incremental);
}

#[tokio::test]
async fn a_pause_taken_back_as_it_is_reached_goes_on_with_its_mode() {
    let stage = Stage::new().await;
    let id = requested_full_of_an_incremental_pipeline(&stage).await;
    let claim = stage.claim().await.unwrap();
    stage.store.request_change(id, Event::Disable).await.unwrap();
    stage.store.request_change(id, Event::Enable).await.unwrap();
    stage.store.interrupt(&claim.lease).await.unwrap();
    assert_eq!(stage.claim().await.unwrap().mode, Mode::Full);
}

/// An incremental pipeline with one full run asked for.
async fn requested_full_of_an_incremental_pipeline(stage: &Stage) -> PipelineId {
    let mut incremental = pipeline("film_dim");
    incremental.mode = Mode::Incremental;
    incremental.incremental_key = Some("modified".into());
    let id = stage.store.create_pipeline(&incremental).await.unwrap().config.id;
    let full = RunRequest { mode: Some(Mode::Full), ..RunRequest::default() };
    stage.store.request_run(id, OnActive::Join, &full).await.unwrap();
    id
}
