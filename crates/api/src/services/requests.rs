//! What is asked of pipelines. The API only requests; a runner acts (R-ST-2).

use serde_json::{Value, json};
use vitrina_core::{Event, Lifecycle, Mode, OnActive, Pipeline, Refusal};
use vitrina_store::{Error as StoreError, PipelineRef, RunRecord, RunRequest, StepDone};

use crate::access::Actor;
use crate::app::App;
use crate::error::{Error, Result};
use crate::models::{RunAccepted, RunOrder};
use crate::problem::Fault;

use super::runs::find;

/// Asks for a run: opens one, joins the active one, or stands in line behind it.
pub(crate) async fn run(
    app: &App,
    actor: &Actor,
    reference: &PipelineRef,
    order: &RunOrder,
    idempotency_key: Option<String>,
) -> Result<RunAccepted> {
    let pipeline = app.store.pipeline(reference).await?.config;
    let id = pipeline.id;
    check_mode(app, pipeline, order.mode)?;
    let request = RunRequest { mode: order.mode, keys: None, idempotency_key };
    let on_active = order.on_active.unwrap_or(OnActive::Join);
    let done = app.store.request_run(id, on_active, &request).await?;
    let run = done.run.ok_or(Error::Internal("an accepted request has no run"))?;
    let run = find(app, run).await?;
    let pending = stands_in_line(&done, on_active);
    refuse_reused_key(&done, &run, &request, pending)?;
    refuse_to_lose(&done, &run, order.mode, pending)?;
    let after = json!({"run": run.id, "mode": run.mode, "on_active": on_active, "pending": pending});
    app.audit(actor, "pipeline.run", id, Some(shown(done.before)), Some(after)).await;
    Ok(RunAccepted { run_id: run.id.0, status: run.status, pending })
}

/// The rule that a pipeline is saved under, for the mode of this run.
fn check_mode(app: &App, pipeline: Pipeline, mode: Option<Mode>) -> Result<()> {
    let Some(mode) = mode else { return Ok(()) };
    let violations = Pipeline { mode, ..pipeline }.violations(&app.rules.allowed_targets);
    match violations.iter().find(|rule| rule.code == "pipeline.incremental_key") {
        Some(rule) => Err(Error::NoIncrementalKey(Fault::new("/mode", rule.code, &rule.message))),
        None => Ok(()),
    }
}

/// One key, one request: answered with the run of another mode, this one would be lost. Like a join,
/// the look at the earlier request has changed nothing.
fn refuse_reused_key(done: &StepDone, run: &RunRecord, request: &RunRequest, pending: bool) -> Result<()> {
    let (Some(key), Some(mode)) = (&request.idempotency_key, request.mode) else { return Ok(()) };
    let waiting = done.pipeline.pending_request.as_ref();
    let waits = waiting.filter(|waiting| waiting["idempotency_key"] == json!(key));
    let other_waits = waits.is_some_and(|waiting| waiting["mode"] != json!(mode));
    let repeats = done.effect == Default::default() && !pending;
    if other_waits || (repeats && run.mode != mode) { Err(Error::KeyReused) } else { Ok(()) }
}

/// A request that the active run, or the one already waiting, does not fulfil is refused: answered
/// with theirs it would be lost. Neither joining nor a taken place in the line has changed anything.
fn refuse_to_lose(done: &StepDone, active: &RunRecord, mode: Option<Mode>, pending: bool) -> Result<()> {
    let Some(mode) = mode else { return Ok(()) };
    if done.effect.join_run && active.mode != mode {
        return Err(StoreError::Refusal(Refusal::Active).into());
    }
    let waiting = done.pipeline.pending_request.as_ref().filter(|_| done.before.pending);
    let same = |waiting: &Value| waiting["mode"] == json!(mode);
    if pending && waiting.is_some_and(|waiting| !same(waiting)) {
        return Err(Error::LineTaken);
    }
    Ok(())
}

/// Nothing was opened or joined, and it was not the answer to a repeated idempotency key.
fn stands_in_line(done: &StepDone, on_active: OnActive) -> bool {
    let untouched = !done.effect.open_run && !done.effect.join_run && done.run == done.pipeline.run_id;
    on_active == OnActive::After && untouched && done.pipeline.pending_request.is_some()
}

/// Pause, cancel, enable or disable.
pub(crate) async fn change(
    app: &App,
    actor: &Actor,
    reference: &PipelineRef,
    event: Event,
    reason: Option<&str>,
) -> Result<StepDone> {
    let id = app.store.pipeline(reference).await?.config.id;
    let done = app.store.request_change(id, event).await?;
    let mut after = shown(done.pipeline.lifecycle());
    after["run"] = json!(done.run);
    after["reason"] = json!(reason);
    app.audit(actor, action(event), id, Some(shown(done.before)), Some(after)).await;
    Ok(done)
}

fn action(event: Event) -> &'static str {
    match event {
        Event::Pause => "pipeline.pause",
        Event::Cancel => "pipeline.cancel",
        Event::Enable => "pipeline.enable",
        Event::Disable => "pipeline.disable",
        _ => "pipeline.change",
    }
}

fn shown(lifecycle: Lifecycle) -> Value {
    json!({"status": lifecycle.status, "enabled": lifecycle.enabled, "cancel_requested": lifecycle.cancel_requested})
}
