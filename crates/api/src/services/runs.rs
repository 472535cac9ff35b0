//! What becomes of requests: runs and statuses, for people and pollers.

use std::time::Duration;

use vitrina_core::RunId;
use vitrina_store::{AttemptRecord, PipelineRef, RunRecord};

use crate::app::App;
use crate::error::{Error, Result};
use crate::models::PipelineStatus;

/// The status as it is, or as soon as it differs from what the caller knows.
pub(crate) async fn status(
    app: &App,
    reference: &PipelineRef,
    wait: Duration,
    known: Option<&str>,
) -> Result<PipelineStatus> {
    let mut watch = app.watch(wait);
    let mut known = known.map(str::to_owned);
    loop {
        let status = PipelineStatus::from(app.store.pipeline(reference).await?);
        let changed = *known.get_or_insert_with(|| status.etag()) != status.etag();
        if changed || !watch.next().await {
            return Ok(status);
        }
    }
}

/// Newest first.
pub(crate) async fn of_pipeline(app: &App, reference: &PipelineRef, limit: u32) -> Result<Vec<RunRecord>> {
    let id = app.store.pipeline(reference).await?.config.id;
    Ok(app.store.runs(id, i64::from(limit)).await?)
}

/// The run as it is, or as soon as it is closed.
pub(crate) async fn follow(app: &App, id: RunId, wait: Duration) -> Result<(RunRecord, Vec<AttemptRecord>)> {
    let mut watch = app.watch(wait);
    loop {
        let run = find(app, id).await?;
        if !run.status.is_open() || !watch.next().await {
            return Ok((run, app.store.attempts(id).await?));
        }
    }
}

pub(super) async fn find(app: &App, id: RunId) -> Result<RunRecord> {
    app.store.run(id).await?.ok_or_else(|| Error::NoSuchRun(id.to_string()))
}
