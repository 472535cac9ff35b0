//! Checkpoints, looked at and changed by people: never under a run, and only the version they have seen.

use jiff::Timestamp;
use serde_json::{Map, Value, json};
use vitrina_core::{Capture, Checkpoint, Pipeline, Position};
use vitrina_store::{Actor, CheckpointRecord, PipelineRef, StateChange, StateRecord};

use crate::app::App;
use crate::documents::{NewPosition, StateEdit, StateForecast};
use crate::error::{Error, Result};
use crate::problem::Fault;

use super::estimate;

/// What a person wants of a checkpoint.
pub(crate) enum Wish {
    Edit(StateEdit),
    Reset,
}

pub(crate) async fn show(app: &App, reference: &PipelineRef) -> Result<StateRecord> {
    let record = app.store.pipeline(reference).await?;
    Ok(app.store.state(record.config.id).await?)
}

/// Newest first.
pub(crate) async fn history(app: &App, reference: &PipelineRef, limit: u32) -> Result<Vec<CheckpointRecord>> {
    let id = app.store.pipeline(reference).await?.config.id;
    Ok(app.store.checkpoints(id, i64::from(limit)).await?)
}

/// `version` is the one that the caller has seen.
pub(crate) async fn change(
    app: &App,
    actor: &Actor,
    reference: &PipelineRef,
    wish: Wish,
    version: i64,
) -> Result<StateRecord> {
    let pipeline = app.store.pipeline(reference).await?.config;
    let before = app.store.state(pipeline.id).await?;
    let (change, checkpoint) = wanted(app, &pipeline, &before, wish).await?;
    app.store.change_state(pipeline.id, version, change, &checkpoint).await?;
    let after = app.store.state(pipeline.id).await?;
    let action = match change {
        StateChange::Edit => "state.edit",
        StateChange::Restore => "state.restore",
        StateChange::Reset => "state.reset",
    };
    app.audit(actor, action, pipeline.id, Some(shown(&before)), Some(shown(&after))).await;
    Ok(after)
}

/// What the same call would do.
pub(crate) async fn forecast(
    app: &App,
    reference: &PipelineRef,
    wish: Wish,
    version: Option<i64>,
) -> Result<StateForecast> {
    let record = app.store.pipeline(reference).await?;
    let state = app.store.state(record.config.id).await?;
    if record.run_id.is_some() {
        return Err(vitrina_store::Error::RunOpen.into());
    }
    if version.is_some_and(|seen| seen != state.version) {
        return Err(vitrina_store::Error::CheckpointMoved { current: state.version }.into());
    }
    let (_, checkpoint) = wanted(app, &record.config, &state, wish).await?;
    let rows = estimate::rows(app, &record.config, &checkpoint).await;
    Ok(StateForecast::new(&checkpoint, state.version, rows))
}

async fn wanted(
    app: &App,
    pipeline: &Pipeline,
    state: &StateRecord,
    wish: Wish,
) -> Result<(StateChange, Checkpoint)> {
    let now = &state.checkpoint;
    match wish {
        Wish::Reset => Ok((StateChange::Reset, now.reset())),
        Wish::Edit(StateEdit { position: Some(position), restore: None }) => {
            Ok((StateChange::Edit, now.edit(written(pipeline, position)?)))
        }
        Wish::Edit(StateEdit { position: None, restore: Some(version) }) => {
            let earlier = app.store.checkpoint(pipeline.id, version).await?;
            let earlier = earlier.ok_or(Error::NoSuchVersion(version))?;
            Ok((StateChange::Restore, now.restore(&earlier.checkpoint)))
        }
        Wish::Edit(_) => Err(invalid("", "state.edit", "give either position or restore")),
    }
}

/// What a cursor remembers beside its bound, of the source's transactions and of earlier passes, speaks of the
/// bound that was there before: rows behind the new one would be taken for read.
fn written(pipeline: &Pipeline, NewPosition { mut done }: NewPosition) -> Result<Position> {
    if pipeline.capture == Capture::Cursor {
        let bound = done.get("bound").filter(|bound| is_bound(bound)).cloned();
        let rule = "bound is a list of the texts of incremental_key and incremental_id_key";
        let bound = bound.ok_or_else(|| invalid("/position/done/bound", "state.bound", rule))?;
        done.remove("server");
        done.insert("earlier".to_owned(), json!([{"bound": bound, "opened_at": Timestamp::UNIX_EPOCH}]));
        fill(&mut done, "opened_at", json!(Timestamp::now()));
    }
    Ok(Position { done: Value::Object(done), ..Position::default() })
}

fn is_bound(bound: &Value) -> bool {
    bound.as_array().is_some_and(|texts| matches!(texts.len(), 1 | 2) && texts.iter().all(Value::is_string))
}

fn fill(done: &mut Map<String, Value>, field: &str, value: Value) {
    done.entry(field).or_insert(value);
}

fn invalid(pointer: &str, code: &str, rule: &str) -> Error {
    Error::InvalidBody(Fault::new(pointer, code, rule))
}

fn shown(state: &StateRecord) -> Value {
    json!({"version": state.version, "checkpoint": state.checkpoint})
}
