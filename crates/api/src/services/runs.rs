//! What becomes of requests: runs and statuses, for people and pollers.

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use vitrina_core::{RunId, RunStatus};
use vitrina_store::{AttemptRecord, BatchRecord, LogRecord, PipelineRef, RunChoice, RunCursor, RunRecord};

use crate::app::App;
use crate::documents::{PipelineStatus, RunMetrics};
use crate::error::{Error, Result};

const SETTLING: SignedDuration = SignedDuration::from_secs(2);

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
        let status = PipelineStatus::from(app.lookups.pipeline(app.store.scope(), reference).await?.as_ref());
        let changed = *known.get_or_insert_with(|| status.etag()) != status.etag();
        if changed || !watch.next().await {
            return Ok(status);
        }
    }
}

/// Newest first, of one pipeline or of all, and where the next page begins.
pub(crate) async fn list(
    app: &App,
    reference: Option<&PipelineRef>,
    status: Option<RunStatus>,
    after: Option<RunCursor>,
    rows: i64,
) -> Result<(Vec<RunRecord>, Option<RunCursor>)> {
    let pipeline = match reference {
        Some(reference) => Some(app.lookups.pipeline(app.store.scope(), reference).await?.id),
        None => None,
    };
    let choice = RunChoice { pipeline, status };
    let mut records = app.store.runs(choice, after.as_ref(), rows + 1).await?;
    let more = cut(&mut records, rows);
    let next = records.last().filter(|_| more).map(RunCursor::from);
    Ok((records, next))
}

/// In the order they were committed, and the last one's number where more follow.
pub(crate) async fn batches(
    app: &App,
    id: RunId,
    after: i64,
    rows: i64,
) -> Result<(Vec<BatchRecord>, Option<i64>)> {
    find(app, id).await?;
    let mut records = app.store.batches(id, after, rows + 1).await?;
    let more = cut(&mut records, rows);
    let next = records.last().filter(|_| more).map(|batch| batch.id);
    Ok((records, next))
}

/// What was noticed during a run after the line of this number: as it is, or as soon as there is something. The number
/// to go on from is there as long as more may come.
pub(crate) async fn logs(
    app: &App,
    id: RunId,
    after: Option<i64>,
    rows: i64,
    wait: Duration,
) -> Result<(Vec<LogRecord>, Option<i64>)> {
    let mut watch = app.watch(wait);
    loop {
        // Before the lines: a run that has ended tells no more.
        let ended = is_told(&find(app, id).await?);
        let records = app.store.logs(id, after, rows).await?;
        let whole = ended && (records.len() as i64) < rows;
        if !records.is_empty() || whole || !watch.next().await {
            let last = records.last().map(|line| line.id).or(after).unwrap_or(0);
            return Ok((records, (!whole).then_some(last)));
        }
    }
}

/// A runner writes the last lines of a run in the moment after its end.
fn is_told(run: &RunRecord) -> bool {
    let settled = |end: Timestamp| Timestamp::now().duration_since(end) > SETTLING;
    run.finished_at.is_some_and(settled)
}

/// Of the runs that were asked for within the window.
pub(crate) async fn metrics(app: &App, reference: &PipelineRef, seconds: i64) -> Result<RunMetrics> {
    let id = app.lookups.pipeline(app.store.scope(), reference).await?.id;
    Ok(RunMetrics::new(seconds, app.store.run_figures(id, seconds).await?))
}

/// One more than the page was read; answers whether it was there.
pub(super) fn cut<T>(records: &mut Vec<T>, rows: i64) -> bool {
    let rows = usize::try_from(rows).unwrap_or(usize::MAX);
    let more = records.len() > rows;
    records.truncate(rows);
    more
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
