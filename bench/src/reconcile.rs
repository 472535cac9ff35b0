//! A mart of a million films compared with its source, beside reading either side once.

use anyhow::{Context, Result, ensure};
use vitrina_core::{Figures, Level, ReconcileTrigger, Verdict};
use vitrina_store::{PipelineRef, ReconcileOrder, Store};

use serde_json::json;

use crate::clock::{Clock, Took, steady};
use crate::ground::Ground;
use crate::report::Measured;
use crate::runner_process::RunnerProcess;
use crate::workloads::FILMS;

pub(crate) const NAMES: [&str; 2] = ["reconcile-equal", "reconcile-100"];

/// Limit and comparison in turn.
const ROUNDS: usize = 5;
const PLANTED: u64 = 100;

pub(crate) async fn measure(name: &'static str, ground: &Ground) -> Result<Measured> {
    let runner = RunnerProcess::start(&ground.url)?;
    let pipeline = json!({"name": name, "source_query": FILMS, "target_table": "analytics.films"});
    ground.pipeline(&pipeline).await?;
    ground.sql(&format!("truncate analytics.films; insert into analytics.films {FILMS}"))?;
    ground.sql("vacuum analyze analytics.films")?;
    let planted = if name == "reconcile-100" { PLANTED } else { 0 };
    ground.sql(&format!(
        "update analytics.films set title = title || '!' where id in (
            select id from analytics.films where hashtext(id::text) % 1000 = 0 order by id limit {planted})"
    ))?;
    let (mut seconds, mut limits, mut last) = (Vec::new(), Vec::new(), None);
    for _ in 0..ROUNDS {
        let limit = read_once(ground)?;
        let (took, verdict, figures) = compare(&ground.store, name, Level::Rows).await?;
        ensure!((verdict == Verdict::Equal) == (planted == 0), "{verdict} {figures:?}");
        ensure!(figures.different == planted, "{figures:?}");
        ensure!(figures.rows_read <= figures.source.rows / 20, "{figures:?}");
        eprintln!("  limit: {limit}, compared: {took}, rows read: {}", figures.rows_read);
        limits.push(limit);
        seconds.push(took);
        last = Some(figures);
    }
    let rows = last.context("a comparison")?.source.rows;
    Ok(Measured::steady(name, rows, &seconds, steady(&limits)).by(&runner.usage()?))
}

/// Each side once, as the server reads it for nobody.
fn read_once(ground: &Ground) -> Result<Took> {
    let clock = Clock::start()?;
    let source = ground.timed_sql(&format!("copy ({FILMS}) to '/dev/null' (format binary)"))?;
    let mart = ground.timed_sql("copy analytics.films to '/dev/null' (format binary)")?;
    clock.stop_with(source + mart)
}

pub(crate) async fn compare(store: &Store, name: &str, level: Level) -> Result<(Took, Verdict, Figures)> {
    let pipeline = store.pipeline(&PipelineRef::Name(name.to_owned())).await?.config.id;
    let trigger = ReconcileTrigger::Manual;
    let order = ReconcileOrder { level, keep: 1000, trigger, requested_by: None };
    let mut wakeups = store.wakeups().await?;
    let clock = Clock::start()?;
    let id = store.request_reconcile(pipeline, &order).await?;
    loop {
        let record = store.reconcile(id).await?.context("the comparison")?;
        if let (Some(finished), Some(started)) = (record.finished_at, record.started_at) {
            let verdict = record.verdict.with_context(|| record.error.unwrap_or_default())?;
            let took = clock.stop_with(finished.duration_since(started).unsigned_abs())?;
            return Ok((took, verdict, record.figures.context("figures")?));
        }
        wakeups.next().await;
    }
}
