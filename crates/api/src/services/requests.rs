//! What is asked of pipelines. The API only requests; a runner acts (R-ST-2).

use serde_json::{Value, json};
use vitrina_core::{
    CursorRange, Decision, Event, Lifecycle, Mode, OnActive, Pipeline, PipelineId, Position, Refusal,
};
use vitrina_guard::Misfit;
use vitrina_store::{Actor, Error as StoreError, PipelineRef, RunRecord, RunRequest, StepDone};

use crate::app::App;
use crate::documents::{Key, RunAccepted, RunOrder};
use crate::error::{Error, Result};
use crate::problem::Fault;

use super::pipelines;
use super::preview::{self, Checked};
use super::runs::find;

/// What column `source_connection` has where nobody has set it.
const UNNAMED_SOURCE: &str = "source";

/// A run that was opened or joined, or that goes before; with what the audit keeps.
pub(super) struct Submitted {
    pub(super) run: RunAccepted,
    pub(super) before: Value,
    pub(super) after: Value,
}

/// What comes beside the body of a request for a run.
#[derive(Debug, Default)]
pub(crate) struct Beside {
    pub(crate) idempotency_key: Option<String>,
    /// The caller's trace, which the run goes on with.
    pub(crate) traceparent: Option<String>,
}

/// Asks for a run: of the whole pipeline, or a backfill.
pub(crate) async fn run(
    app: &App,
    actor: &Actor,
    reference: &PipelineRef,
    order: RunOrder,
    beside: Beside,
) -> Result<RunAccepted> {
    let RunOrder { mode, keys, from, to, checkpoint, rollback, resume, on_active } = order;
    let range = (from.is_some() || to.is_some()).then_some(CursorRange { from, to, at: None });
    let pipeline = with_source(app, actor, app.store.pipeline(reference).await?.config).await?;
    let id = pipeline.id;
    if keys.is_some() || range.is_some() {
        check_alone(mode, checkpoint, keys.is_some() && range.is_some())?;
    }
    if resume {
        check_resume(checkpoint, keys.is_some() || range.is_some() || rollback)?;
    }
    if rollback {
        check_rollback(
            &pipeline,
            mode.is_some() || checkpoint.is_some() || keys.is_some() || range.is_some(),
        )?;
    }
    if let Some(keys) = &keys {
        check_keys(app, &pipeline, keys).await?;
    }
    if let Some(range) = &range {
        check_range(app, &pipeline, range).await?;
    }
    check_mode(app, pipeline, mode)?;
    let keys = keys.map(|keys| keys.into_iter().map(|key| json!(key)).collect());
    let Beside { idempotency_key, traceparent } = beside;
    let request = RunRequest {
        mode,
        keys,
        range,
        checkpoint,
        idempotency_key,
        traceparent,
        rollback,
        resume,
        ..RunRequest::default()
    };
    // Going back is a request of its own: no run that is active fulfils it.
    let otherwise = if rollback { OnActive::Reject } else { OnActive::Join };
    let submitted = submit(app, id, on_active.unwrap_or(otherwise), request).await?;
    app.audit(actor, "pipeline.run", id, Some(submitted.before), Some(submitted.after)).await;
    Ok(submitted.run)
}

/// Opens a run, joins the active one, or stands in line behind it.
pub(super) async fn submit(
    app: &App,
    id: PipelineId,
    on_active: OnActive,
    mut request: RunRequest,
) -> Result<Submitted> {
    // In one order and once each, so that equal requests are equal.
    if let Some(keys) = &mut request.keys {
        keys.sort_by_cached_key(Value::to_string);
        keys.dedup();
    }
    let done = app.store.request_run(id, on_active, &request).await?;
    let run = done.run.ok_or(Error::Internal("an accepted request has no run"))?;
    let run = find(app, run).await?;
    let pending = stands_in_line(&done, on_active) || waits_behind_it(&done, &request);
    refuse_reused_key(app, &done, &run, &request, pending).await?;
    refuse_to_lose(app, &done, &run, &request, pending).await?;
    let backfill_keys = request.keys.as_ref().map(Vec::len);
    let after = json!({"run": run.id, "mode": run.mode, "on_active": on_active, "pending": pending,
                       "backfill_keys": backfill_keys, "backfill_range": request.range, "checkpoint": request.checkpoint});
    let run = RunAccepted { run_id: run.id.0, status: run.status, pending };
    Ok(Submitted { run, before: shown(done.before), after })
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

/// A row that was inserted by SQL without a source has the default of its column: it reads the only source that there is.
async fn with_source(app: &App, actor: &Actor, pipeline: Pipeline) -> Result<Pipeline> {
    let usual = app.rules.usual_source();
    let is_named = pipeline.source_connection != UNNAMED_SOURCE || usual == UNNAMED_SOURCE;
    if is_named || app.rules.source_connections.contains_key(&pipeline.source_connection) {
        return Ok(pipeline);
    }
    let patch = serde_json::Map::from_iter([("source_connection".to_owned(), json!(usual))]);
    let saved = pipelines::edit(app, actor, &PipelineRef::Id(pipeline.id), &patch, None).await?;
    Ok(saved.record.config)
}

/// A backfill leaves the checkpoint where it is, ignores the mode, and reads one thing only.
fn check_alone(mode: Option<Mode>, checkpoint: Option<Decision>, both: bool) -> Result<()> {
    let (pointer, code, rule) = if checkpoint.is_some() {
        ("/checkpoint", "backfill.checkpoint", "a backfill leaves the checkpoint alone\nhint: leave it out")
    } else if mode.is_some() {
        ("/mode", "backfill.mode", "a backfill reads its rows, whatever the mode\nhint: leave it out")
    } else if both {
        ("/keys", "backfill.both", "a backfill reads keys or a range\nhint: leave out keys, or from and to")
    } else {
        return Ok(());
    };
    Err(Error::InvalidBody(Fault::new(pointer, code, rule)))
}

/// What is asked for anew continues nothing, and a decision about the checkpoint drops the open load.
fn check_resume(checkpoint: Option<Decision>, anew: bool) -> Result<()> {
    let rule = match (checkpoint, anew) {
        (Some(_), _) => {
            "a decision about the checkpoint drops what could be resumed\nhint: leave out one of the two"
        }
        (None, true) => {
            "a backfill or a rollback that is asked for now continues nothing\nhint: leave out resume"
        }
        (None, false) => return Ok(()),
    };
    Err(Error::InvalidBody(Fault::new("/resume", "run.resume", rule)))
}

/// Only an index keeps what was there before its last load.
fn check_rollback(pipeline: &Pipeline, more: bool) -> Result<()> {
    let (code, rule) = if more {
        ("rollback.alone", "going back reads nothing\nhint: leave out mode, keys, from, to and checkpoint")
    } else if !pipeline.effective_target().starts_with("es:") {
        ("rollback.no_index", "only an index can go back to what it was before its last load")
    } else {
        return Ok(());
    };
    Err(Error::InvalidBody(Fault::new("/rollback", code, rule)))
}

/// A range is one of the cursor, between values that it can have.
async fn check_range(app: &App, pipeline: &Pipeline, range: &CursorRange) -> Result<()> {
    let Some(cursor) = &pipeline.incremental_key else {
        let rule =
            "a backfill over a range needs incremental_key\nhint: give keys instead, or run with mode full";
        return Err(Error::NoIncrementalKey(Fault::new("/from", "pipeline.incremental_key", rule)));
    };
    let ends = [&range.from, &range.to].map(|end| vec![end.clone()]);
    if let Some(misfit) = misfit(app, pipeline, std::slice::from_ref(cursor), &ends).await {
        let rule = format!("{cursor} is of type {}, and this is no value of it", misfit.type_name);
        return Err(Error::InvalidBody(Fault::new(["/from", "/to"][misfit.place], "backfill.range", &rule)));
    }
    let Some((from, to)) = range.from.as_deref().zip(range.to.as_deref()) else { return Ok(()) };
    if !is_reversed(app, pipeline, cursor, (from, to)).await {
        return Ok(());
    }
    let rule = format!(
        "no row is in this range: from is greater than to\nhint: from is the least {cursor} that is read, to the first that is not"
    );
    Err(Error::InvalidBody(Fault::new("/from", "backfill.range", &rule)))
}

/// A source that cannot be asked keeps nobody from requesting it.
async fn is_reversed(app: &App, pipeline: &Pipeline, cursor: &str, range: (&str, &str)) -> bool {
    let Ok(Checked { session, sql, .. }) = preview::checked(app, pipeline, "keys").await else {
        return false;
    };
    vitrina_guard::ends_before_it_begins(&session.client, &sql, cursor, range).await.unwrap_or(false)
}

/// The key that the target's rows have.
struct KnownKey {
    /// Empty where nobody can tell.
    columns: Vec<String>,
    /// The query proves it, and nobody has looked whether the mart has it.
    is_proposed: bool,
}

/// A target that nobody has described has its mart's primary key: as the last run has found it there, or as the first one
/// will create it.
async fn known_key(app: &App, pipeline: &Pipeline) -> Result<KnownKey> {
    let Ok(target) = pipeline.target_name(&app.rules.allowed_targets) else {
        return Ok(KnownKey { columns: Vec::new(), is_proposed: false });
    };
    let described = app.store.target(&target).await?.key;
    if !described.is_empty() {
        return Ok(KnownKey { columns: described, is_proposed: false });
    }
    let checkpoint = app.store.checkpoints_of(&[pipeline.id]).await?.remove(&pipeline.id).unwrap_or_default();
    let has_run = checkpoint.position != Position::start() || !checkpoint.config_hash.is_empty();
    // What functions make of rows may have another key than the query's.
    if has_run || !pipeline.python_tasks().is_empty() {
        return Ok(KnownKey { columns: checkpoint.key, is_proposed: false });
    }
    let columns = proposed_key(app, pipeline).await.unwrap_or_default();
    Ok(KnownKey { is_proposed: !columns.is_empty(), columns })
}

async fn proposed_key(app: &App, pipeline: &Pipeline) -> Option<Vec<String>> {
    let Checked { session, sql, .. } = preview::checked(app, pipeline, "keys").await.ok()?;
    let described = vitrina_guard::describe(&session.client, &sql).await.ok()?;
    vitrina_guard::proposed_key(&session.client, &sql, &described).await.ok()?
}

/// A key of other columns would fail the run, and one of another type would read nothing. Where nobody can tell the columns,
/// the keys need only be alike: the run warns of those that no row can have.
async fn check_keys(app: &App, pipeline: &Pipeline, keys: &[Key]) -> Result<()> {
    let KnownKey { columns: known, is_proposed } = known_key(app, pipeline).await?;
    let proposed = "this is the key that the query proves; describe the target where its mart has another";
    let hint = |known: &'static str| if is_proposed { proposed } else { known };
    let (needed, whose) = match known.as_slice() {
        [] => (keys.first().map_or(0, Key::columns), "as the first key does".to_owned()),
        columns => (columns.len(), format!("one for each column of ({})", columns.join(", "))),
    };
    let Some(place) = keys.iter().position(|key| key.columns() != needed) else {
        let values: Vec<_> = keys.iter().map(Key::values).collect();
        let Some(Misfit { place, column, type_name }) = misfit(app, pipeline, &known, &values).await else {
            return Ok(());
        };
        let rule = format!(
            "no row can have this key: its value for {column} is not of type {type_name}\nhint: {}",
            hint("write the value as the database shows it")
        );
        return Err(Error::InvalidBody(Fault::new(format!("/keys/{place}"), "backfill.key", &rule)));
    };
    let rule = format!(
        "this key has {} values and needs {needed}, {whose}\nhint: {}",
        keys[place].columns(),
        hint("a key of several columns is a JSON list such as [\"7\", \"en\"]")
    );
    Err(Error::InvalidBody(Fault::new(format!("/keys/{place}"), "backfill.key", &rule)))
}

/// A mistyped value would fail the run. A source that cannot be asked keeps nobody from requesting it.
async fn misfit(
    app: &App,
    pipeline: &Pipeline,
    columns: &[String],
    values: &[Vec<Option<String>>],
) -> Option<Misfit> {
    let Checked { session, sql, .. } = preview::checked(app, pipeline, "keys").await.ok()?;
    vitrina_guard::misfit(&session.client, &sql, columns, values).await.ok()?
}

/// One key, one request: answered with a run that does something else, this one would be lost. Like a
/// join, the look at the earlier request has changed nothing.
async fn refuse_reused_key(
    app: &App,
    done: &StepDone,
    run: &RunRecord,
    request: &RunRequest,
    pending: bool,
) -> Result<()> {
    let Some(key) = &request.idempotency_key else { return Ok(()) };
    let same_key = |waiting: &RunRequest| waiting.idempotency_key.as_ref() == Some(key);
    let other_waits = waiting(done).filter(same_key).is_some_and(|waiting| !is_met_by(request, &waiting));
    let repeats = done.effect == Default::default() && !pending;
    if other_waits || (repeats && !is_done_by(app, request, run).await?) {
        return Err(Error::KeyReused);
    }
    Ok(())
}

/// A request that the active run, or the one already waiting, does not fulfil is refused: answered
/// with theirs it would be lost. Neither joining nor a taken place in the line has changed anything.
async fn refuse_to_lose(
    app: &App,
    done: &StepDone,
    active: &RunRecord,
    request: &RunRequest,
    pending: bool,
) -> Result<()> {
    if done.effect.join_run && !is_done_by(app, request, active).await? {
        return Err(StoreError::Refusal(Refusal::Active).into());
    }
    let before = waiting(done).filter(|_| pending && done.before.pending);
    if before.is_some_and(|waiting| !is_met_by(request, &waiting)) {
        return Err(Error::LineTaken);
    }
    Ok(())
}

fn waiting(done: &StepDone) -> Option<RunRequest> {
    serde_json::from_value(done.pipeline.pending_request.clone()?).ok()
}

/// An empty request is content with whatever run is there.
async fn is_done_by(app: &App, request: &RunRequest, run: &RunRecord) -> Result<bool> {
    if request.checkpoint.is_some() && request.checkpoint != run.checkpoint {
        return Ok(false);
    }
    if let Some(range) = &request.range {
        return Ok(run.backfill_range.as_ref().is_some_and(|run| run.is_as_asked(range)));
    }
    match (&request.keys, request.mode) {
        (None, None) => Ok(true),
        (None, Some(mode)) => Ok(!run.is_backfill() && run.mode == mode),
        (Some(keys), _) => Ok(app.store.backfill_keys(run.id).await?.as_ref() == Some(keys)),
    }
}

/// Who asks for one more run needs it: of the line, an empty request is content with any mode, and with
/// no backfill.
fn is_met_by(request: &RunRequest, waiting: &RunRequest) -> bool {
    request.keys == waiting.keys
        && request.range == waiting.range
        && (request.mode.is_none() || request.mode == waiting.mode)
        && (request.checkpoint.is_none() || request.checkpoint == waiting.checkpoint)
}

/// Nothing was opened or joined, and it was not the answer to a repeated idempotency key.
fn stands_in_line(done: &StepDone, on_active: OnActive) -> bool {
    let untouched = !done.effect.open_run && !done.effect.join_run && done.run == done.pipeline.run_id;
    on_active == OnActive::After && untouched && done.pipeline.pending_request.is_some()
}

/// A request that waited before, while the run that is opened now continues what was paused.
fn waits_behind_it(done: &StepDone, request: &RunRequest) -> bool {
    let same_key = |waiting: &RunRequest| waiting.idempotency_key == request.idempotency_key;
    done.effect.open_run && request.idempotency_key.is_some() && waiting(done).is_some_and(|it| same_key(&it))
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
