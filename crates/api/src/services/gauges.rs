//! The page of metrics: what this process has counted, and what the meta-store says of pipelines and runners now. Read at
//! every scrape, so that a pipeline that is gone is gone from here too, whoever changed it.

use metrics::{Unit, describe_gauge, gauge};
use vitrina_core::{Status, Verdict};
use vitrina_store::{Gauges, LastVerdict, PipelineGauges, RunnerGauges};
use vitrina_telemetry::Exposition;

use crate::app::App;
use crate::error::Result;

pub(crate) async fn page(app: &App) -> Result<String> {
    let Gauges { pipelines, runners } = app.store.gauges().await?;
    let now = Exposition::new();
    now.record(|| {
        describe();
        pipelines.iter().for_each(show_pipeline);
        runners.iter().for_each(show_runner);
    });
    // What this process has counted is not told apart by pipeline.
    let own = app.store.scope().is_everything().then(|| app.exposition.render());
    Ok(own.unwrap_or_default() + &now.render())
}

#[rustfmt::skip] // A table.
fn describe() {
    describe_gauge!("vitrina_pipeline_watermark_timestamp_seconds", Unit::Seconds, "what the source had committed before is in the target");
    describe_gauge!("vitrina_pipeline_lag_seconds", Unit::Seconds, "how long ago that was, by the meta-store's clock");
    describe_gauge!("vitrina_pipeline_freshness_limit_seconds", Unit::Seconds, "how much lag the pipeline may have");
    describe_gauge!("vitrina_pipeline_last_success_timestamp_seconds", Unit::Seconds, "end of the last successful run that was no backfill");
    describe_gauge!("vitrina_pipeline_status", "1 for the status the pipeline has, 0 for the others");
    describe_gauge!("vitrina_pipeline_waiting", "1 for the reason why nobody executes what the pipeline waits for");
    describe_gauge!("vitrina_pipeline_enabled", "1 where the pipeline may run");
    describe_gauge!("vitrina_rejected_rows", "rejects that are open and that nobody has acknowledged");
    describe_gauge!("vitrina_reconcile_differences", "rows that differ from the source by kind, as the last reconcile has found");
    describe_gauge!("vitrina_reconcile_verdict", "1 for the verdict of the last reconcile, 0 for the others");
    describe_gauge!("vitrina_reconcile_outdated", "1 where the configuration was changed since the last reconcile, else 0");
    describe_gauge!("vitrina_reconcile_last_timestamp_seconds", Unit::Seconds, "when the last reconcile has come to its verdict");
    describe_gauge!("vitrina_runner_heartbeat_timestamp_seconds", Unit::Seconds, "when the meta-store last heard of the runner");
    describe_gauge!("vitrina_runner_active_runs", "runs that the runner executes, as of its heartbeat");
}

fn show_pipeline(pipeline: &PipelineGauges) {
    let name = || pipeline.name.clone();
    if let Some(as_of) = pipeline.as_of {
        gauge!("vitrina_pipeline_watermark_timestamp_seconds", "pipeline" => name()).set(as_of);
    }
    if let Some(lag) = pipeline.lag {
        gauge!("vitrina_pipeline_lag_seconds", "pipeline" => name()).set(lag);
    }
    if let Some(limit) = pipeline.freshness_limit {
        gauge!("vitrina_pipeline_freshness_limit_seconds", "pipeline" => name()).set(limit);
    }
    if let Some(last_success) = pipeline.last_success {
        gauge!("vitrina_pipeline_last_success_timestamp_seconds", "pipeline" => name()).set(last_success);
    }
    for status in Status::ALL {
        let has = f64::from(u8::from(*status == pipeline.status));
        gauge!("vitrina_pipeline_status", "pipeline" => name(), "status" => status.as_str()).set(has);
    }
    gauge!("vitrina_pipeline_enabled", "pipeline" => name()).set(f64::from(u8::from(pipeline.enabled)));
    gauge!("vitrina_rejected_rows", "pipeline" => name()).set(pipeline.rejected as f64);
    if let Some(waiting) = &pipeline.waiting {
        gauge!("vitrina_pipeline_waiting", "pipeline" => name(), "reason" => waiting.code.clone()).set(1.0);
    }
    if let Some(last) = &pipeline.verdict {
        show_verdict(&pipeline.name, last);
    }
}

fn show_verdict(pipeline: &str, last: &LastVerdict) {
    let name = || pipeline.to_owned();
    let figures = &last.figures;
    let kinds = [("missing", figures.missing), ("extra", figures.extra), ("different", figures.different)];
    for (kind, rows) in kinds {
        gauge!("vitrina_reconcile_differences", "pipeline" => name(), "kind" => kind).set(rows as f64);
    }
    for verdict in Verdict::ALL {
        let has = f64::from(u8::from(*verdict == last.verdict));
        gauge!("vitrina_reconcile_verdict", "pipeline" => name(), "verdict" => verdict.as_str()).set(has);
    }
    let outdated = f64::from(u8::from(last.outdated));
    gauge!("vitrina_reconcile_outdated", "pipeline" => name()).set(outdated);
    let at = last.finished_at.as_millisecond() as f64 / 1000.0;
    gauge!("vitrina_reconcile_last_timestamp_seconds", "pipeline" => name()).set(at);
}

fn show_runner(runner: &RunnerGauges) {
    let RunnerGauges { name, heartbeat, active_runs } = runner;
    gauge!("vitrina_runner_heartbeat_timestamp_seconds", "runner" => name.clone()).set(*heartbeat);
    gauge!("vitrina_runner_active_runs", "runner" => name.clone()).set(f64::from(*active_runs));
}
