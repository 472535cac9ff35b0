//! Rows that were refused: looked at, acknowledged, discarded, or read again at their source.

use serde_json::{Value, json};
use vitrina_core::{OnActive, PipelineId};
use vitrina_store::{Actor, PipelineRef, RejectChoice, RejectCursor, RejectGroup, RejectRecord, RunRequest};

use crate::app::App;
use crate::documents::{MOST_KEYS, RetryAccepted};
use crate::error::{Error, Result};

use super::requests;

/// A page of rejects, where the next one begins, and all reasons there are.
pub(crate) type Listed = (Vec<RejectRecord>, Option<RejectCursor>, Vec<RejectGroup>);

pub(crate) async fn list(
    app: &App,
    reference: &PipelineRef,
    choice: &RejectChoice,
    after: Option<&RejectCursor>,
    rows: usize,
) -> Result<Listed> {
    let id = find(app, reference).await?;
    let mut records = app.store.rejects(id, choice, after, limit(rows + 1)).await?;
    let more = records.len() > rows;
    records.truncate(rows);
    let next = records.last().filter(|_| more).map(RejectCursor::from);
    Ok((records, next, app.store.reject_groups(id).await?))
}

pub(crate) async fn acknowledge(
    app: &App,
    actor: &Actor,
    reference: &PipelineRef,
    choice: &RejectChoice,
) -> Result<u64> {
    let id = find(app, reference).await?;
    let rejects = app.store.acknowledge_rejects(id, choice).await?;
    app.audit(actor, "rejects.acknowledge", id, None, Some(noted(choice, rejects))).await;
    Ok(rejects)
}

pub(crate) async fn discard(
    app: &App,
    actor: &Actor,
    reference: &PipelineRef,
    choice: &RejectChoice,
) -> Result<u64> {
    let id = find(app, reference).await?;
    let rejects = app.store.discard_rejects(id, choice).await?;
    app.audit(actor, "rejects.discard", id, None, Some(noted(choice, rejects))).await;
    Ok(rejects)
}

/// A backfill over the keys of rejects, after the run that may be active.
pub(crate) async fn retry(
    app: &App,
    actor: &Actor,
    reference: &PipelineRef,
    choice: &RejectChoice,
) -> Result<RetryAccepted> {
    let id = find(app, reference).await?;
    let mut keys = app.store.reject_keys(id, choice, limit(MOST_KEYS + 1)).await?;
    let more = keys.len() > MOST_KEYS;
    keys.truncate(MOST_KEYS);
    if keys.is_empty() {
        return Err(Error::NoRejects);
    }
    let rejects = keys.len() as u64;
    let request = RunRequest { keys: Some(keys), ..RunRequest::default() };
    let submitted = requests::submit(app, id, OnActive::After, request).await?;
    let mut after = submitted.after;
    after["chosen"] = noted(choice, rejects);
    app.audit(actor, "rejects.retry", id, Some(submitted.before), Some(after)).await;
    Ok(RetryAccepted { run: submitted.run, rejects, more })
}

async fn find(app: &App, reference: &PipelineRef) -> Result<PipelineId> {
    Ok(app.store.pipeline(reference).await?.config.id)
}

fn noted(choice: &RejectChoice, rejects: u64) -> Value {
    json!({"rejects": rejects, "code": choice.code, "ids": choice.keys})
}

fn limit(rows: usize) -> i64 {
    i64::try_from(rows).unwrap_or(i64::MAX)
}
