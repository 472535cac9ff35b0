//! What is told of a run (R-OPS-1): its span, which names pipeline and run on every line, and an event for everything
//! that happens. Figures only, never values of rows.

use std::time::{Duration, Instant};

use tracing::Span;
use tracing::field::Empty;
use vitrina_core::{Counts, Error, Remedy};
use vitrina_store::{Claim, StepDone};
use vitrina_telemetry::{TraceParent, continue_trace, trace_id};

use crate::counters::Took;
use crate::read_ahead::millis;

/// All that is told of a run carries its names, and is a part of its caller's trace.
pub(crate) fn span(claim: &Claim) -> Span {
    let pipeline = &claim.pipeline.name;
    let span = tracing::error_span!("run", pipeline, pipeline_id = %claim.lease.pipeline, run_id = %claim.run, trace_id = Empty);
    let caller: Option<TraceParent> = claim.traceparent.as_deref().and_then(|text| text.parse().ok());
    if let Some(caller) = &caller {
        continue_trace(&span, caller);
    }
    if let Some(id) = trace_id(&span).or_else(|| caller.map(|caller| caller.trace_id())) {
        span.record("trace_id", id);
    }
    span
}

pub(crate) fn run_started(claim: &Claim) {
    let (was, status) = claim.step();
    let (mode, trigger, token) = (claim.mode, claim.trigger.as_str(), claim.lease.token);
    let takeover = claim.takeover;
    tracing::info!(%mode, trigger, %token, takeover, attempt = 1, %was, %status, "run started");
}

pub(crate) fn attempt_started(attempt: u32) {
    tracing::info!(attempt, "attempt started");
}

pub(crate) fn attempt_failed(attempt: u32, error: &Error, wait: Duration, counts: Counts, started: Instant) {
    tracing::warn!(
        error_code = error.code,
        %error,
        attempt,
        ?wait,
        rows_read = counts.read,
        rows_written = counts.written(),
        run_ms = millis(started.elapsed()),
        "an attempt failed and will be repeated"
    );
}

/// The checkpoint holds a load that another run opened, and this run does not continue it.
pub(crate) fn load_begins_anew(resume: bool, load_max_age: Duration) {
    if resume {
        tracing::warn!(?load_max_age, "the load was opened too long ago to be resumed: it begins anew");
    } else {
        tracing::info!(
            "a load that an earlier run left open begins anew; a run with resume would continue it"
        );
    }
}

pub(crate) fn batch_done(counts: &Counts, took: &Took, started: Instant) {
    tracing::info!(
        rows_read = counts.read,
        rows_written = counts.written(),
        rows_unchanged = counts.unchanged,
        rows_deleted = counts.deleted,
        rows_rejected = counts.rejected,
        read_ms = millis(took.read),
        transform_ms = millis(took.transform),
        write_ms = millis(took.write),
        batch_ms = millis(took.all()),
        run_ms = millis(started.elapsed()),
        "batch done"
    );
}

/// What a run comes to.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Figures {
    pub(crate) counts: Counts,
    pub(crate) batches: u64,
    pub(crate) started: Instant,
}

/// Why it ends before its data does.
pub(crate) fn run_broke_off(error: &Error, figures: &Figures) {
    let (rows_read, rows_written) = (figures.counts.read, figures.counts.written());
    let (error_code, run_ms) = (error.code, millis(figures.started.elapsed()));
    match error.remedy {
        Remedy::StandDown => {
            tracing::warn!(error_code, %error, rows_read, rows_written, run_ms, "the lease is lost");
        }
        Remedy::Release => {
            tracing::warn!(error_code, %error, rows_read, rows_written, run_ms, "the pipeline is given back");
        }
        Remedy::AwaitLogin => {
            tracing::warn!(error_code, %error, rows_read, rows_written, run_ms, "the login is refused");
        }
        Remedy::Retry | Remedy::FixConfiguration | Remedy::ReportBug => {
            tracing::error!(error_code, %error, rows_read, rows_written, run_ms, "the run failed");
        }
    }
}

/// `error` is what it broke off with, if it did. A run that goes on elsewhere has no result.
pub(crate) fn run_ended(done: &StepDone, error: Option<&Error>, figures: &Figures) {
    let (rows_read, rows_written) = (figures.counts.read, figures.counts.written());
    let (batches, run_ms) = (figures.batches, millis(figures.started.elapsed()));
    let (was, status) = (done.before.status, done.pipeline.status);
    let result = done.effect.close_run.map(vitrina_core::RunStatus::as_str);
    let error_code = error.map(|error| error.code);
    tracing::info!(result, error_code, %was, %status, batches, rows_read, rows_written, run_ms, "run ended");
}

pub(crate) fn run_left(figures: &Figures) {
    let (rows_read, rows_written) = (figures.counts.read, figures.counts.written());
    tracing::warn!(
        rows_read,
        rows_written,
        run_ms = millis(figures.started.elapsed()),
        "run left to its new owner"
    );
}
