//! What a runner counts and measures. Per batch a few look-ups, per row nothing; without a recorder all of it is
//! for free. Labels are names of pipelines, connections and runners, never of runs.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use metrics::{Unit, counter, gauge, histogram};
use vitrina_core::{Counts, Error};
use vitrina_store::Claim;

/// Where the time of a batch went.
pub(crate) struct Took {
    pub(crate) read: Duration,
    pub(crate) transform: Duration,
    pub(crate) write: Duration,
}

impl Took {
    pub(crate) fn all(&self) -> Duration {
        self.read + self.transform + self.write
    }
}

/// Gives every metric its meaning, once a recorder is there.
#[rustfmt::skip] // A table.
pub fn describe() {
    use metrics::{describe_counter as counter, describe_gauge as gauge, describe_histogram as histogram};
    gauge!("vitrina_build_info", "1; its label tells the version of this process");
    counter!("vitrina_runs_total", "runs that have ended here, by result and trigger");
    histogram!("vitrina_run_duration_seconds", Unit::Seconds, "from the claim of a run to its end here");
    counter!("vitrina_run_retries_total", "attempts that failed and were repeated");
    counter!("vitrina_run_releases_total", "runs given back for another attempt, as when a connection is lost");
    histogram!("vitrina_batch_duration_seconds", Unit::Seconds, "time of a batch at each of its stages");
    counter!("vitrina_rows_total", "rows of committed batches, by what became of them");
    counter!("vitrina_bytes_total", Unit::Bytes, "size of committed batches: as read into memory, and as sent to the target");
    counter!("vitrina_sink_request_errors_total", "what targets refused or failed to do, by connection and error code");
    counter!("vitrina_run_log_dropped_lines_total", "lines that the log of their run lacks");
    gauge!("vitrina_runner_active_runs", "runs that the runner executes now");
    gauge!("vitrina_runner_heartbeat_timestamp_seconds", Unit::Seconds, "when the meta-store last heard of the runner");
    counter!("vitrina_runner_takeovers_total", "pipelines taken over from runners that fell silent");
    counter!("vitrina_history_deleted_total", "runs and comparisons older than runner.keep_history that this runner has deleted, by what they are");
    metrics::gauge!("vitrina_build_info", "version" => env!("CARGO_PKG_VERSION")).set(1.0);
}

/// What begins at nothing begins before it happens: else its first time would be no increase.
pub(crate) fn run_started(claim: &Claim) {
    let pipeline = || claim.pipeline.name.clone();
    for result in ["SUCCESS", "FAILED"] {
        let trigger = claim.trigger.as_str();
        counter!("vitrina_runs_total", "pipeline" => pipeline(), "result" => result, "trigger" => trigger)
            .increment(0);
    }
    counter!("vitrina_run_retries_total", "pipeline" => pipeline()).increment(0);
    counter!("vitrina_run_releases_total", "pipeline" => pipeline()).increment(0);
}

pub(crate) fn batch(pipeline: &str, counts: &Counts, took: &Took, bytes_read: usize) {
    for (stage, time) in [("read", took.read), ("transform", took.transform), ("write", took.write)] {
        histogram!("vitrina_batch_duration_seconds", "pipeline" => pipeline.to_owned(), "stage" => stage)
            .record(time);
    }
    let rows = [
        ("read", counts.read),
        ("written", counts.written()),
        ("unchanged", counts.unchanged),
        ("deleted", counts.deleted),
        ("rejected", counts.rejected),
    ];
    for (stage, rows) in rows {
        counter!("vitrina_rows_total", "pipeline" => pipeline.to_owned(), "stage" => stage).increment(rows);
    }
    for (direction, bytes) in [("read", bytes_read as u64), ("written", counts.bytes)] {
        counter!("vitrina_bytes_total", "pipeline" => pipeline.to_owned(), "direction" => direction)
            .increment(bytes);
    }
}

/// `result` is none where the run goes on elsewhere.
pub(crate) fn run_ended(claim: &Claim, result: Option<&'static str>, took: Duration) {
    let pipeline = claim.pipeline.name.clone();
    let Some(result) = result else {
        counter!("vitrina_run_releases_total", "pipeline" => pipeline).increment(1);
        return;
    };
    histogram!("vitrina_run_duration_seconds", "pipeline" => pipeline.clone()).record(took);
    let trigger = claim.trigger.as_str();
    counter!("vitrina_runs_total", "pipeline" => pipeline, "result" => result, "trigger" => trigger)
        .increment(1);
}

pub(crate) fn retry(pipeline: &str) {
    counter!("vitrina_run_retries_total", "pipeline" => pipeline.to_owned()).increment(1);
}

pub(crate) fn sink_error(connection: &str, error: &Error) {
    counter!("vitrina_sink_request_errors_total", "sink" => connection.to_owned(), "status" => error.code)
        .increment(1);
}

pub(crate) fn dropped_lines(lines: u64) {
    counter!("vitrina_run_log_dropped_lines_total").increment(lines);
}

pub(crate) fn takeover(runner: &str) {
    counter!("vitrina_runner_takeovers_total", "runner" => runner.to_owned()).increment(1);
}

pub(crate) fn history_deleted(runs: u64, reconciles: u64) {
    for (kind, deleted) in [("run", runs), ("reconcile", reconciles)] {
        counter!("vitrina_history_deleted_total", "kind" => kind).increment(deleted);
    }
}

pub(crate) fn active(runner: &str, runs: usize) {
    gauge!("vitrina_runner_active_runs", "runner" => runner.to_owned()).set(runs as f64);
}

pub(crate) fn heartbeat(runner: &str, runs: usize) {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    gauge!("vitrina_runner_heartbeat_timestamp_seconds", "runner" => runner.to_owned()).set(now);
    active(runner, runs);
}
