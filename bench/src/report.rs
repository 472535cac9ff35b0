//! A table and a picture for people, and one JSON file a workload for programs.

use std::fmt::Write;
use std::fs;
use std::path::PathBuf;

use anyhow::Result;
use serde::Serialize;

use crate::clock::{Took, steady};
use crate::plot;
use crate::runner_process::Usage;

#[derive(Debug, Serialize)]
pub(crate) struct Measured {
    pub(crate) workload: String,
    pub(crate) rows: u64,
    pub(crate) seconds: f64,
    pub(crate) limit_seconds: f64,
    pub(crate) ratio: f64,
    /// The share of the machine that its neighbours took in the rounds that count, where several were timed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) stolen: Option<f64>,
    /// The same work inside the server, by one statement.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) server_seconds: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) batches: Option<u64>,
    /// What one call in a hundred took longer than.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) p99_ms: Option<f64>,
    pub(crate) cpu_seconds: f64,
    pub(crate) peak_rss_mb: f64,
}

impl Measured {
    pub(crate) fn new(workload: &str, rows: u64, seconds: f64, limit_seconds: f64) -> Self {
        Self {
            workload: workload.to_owned(),
            rows,
            seconds,
            limit_seconds,
            ratio: seconds / limit_seconds,
            stolen: None,
            server_seconds: None,
            batches: None,
            p99_ms: None,
            cpu_seconds: 0.0,
            peak_rss_mb: 0.0,
        }
    }

    /// Of several rounds.
    pub(crate) fn steady(workload: &str, rows: u64, rounds: &[Took], limit: Took) -> Self {
        let took = steady(rounds);
        let stolen = Some(took.stolen.max(limit.stolen));
        Self { stolen, ..Self::new(workload, rows, took.seconds, limit.seconds) }
    }

    pub(crate) fn by(self, runner: &Usage) -> Self {
        Self { cpu_seconds: runner.cpu_seconds, peak_rss_mb: runner.peak_rss_mb, ..self }
    }
}

pub(crate) fn write(results: &[Measured]) -> Result<()> {
    let folder = PathBuf::from("target/bench");
    fs::create_dir_all(&folder)?;
    for result in results {
        fs::write(
            folder.join(format!("{}.json", result.workload)),
            serde_json::to_string_pretty(result)? + "\n",
        )?;
    }
    fs::write(folder.join("ratios.svg"), plot::svg(results))?;
    Ok(())
}

pub(crate) fn table(results: &[Measured]) -> String {
    let mut out = format!(
        "{:<16} {:>10} {:>8} {:>9} {:>10} {:>9} {:>7} {:>9} {:>8} {:>9} {:>7} {:>7}\n",
        "workload",
        "rows",
        "batches",
        "seconds",
        "rows/s",
        "limit s",
        "ratio",
        "server s",
        "cpu s",
        "peak MB",
        "p99 ms",
        "stolen"
    );
    for r in results {
        let rate = r.rows as f64 / r.seconds;
        writeln!(
            out,
            "{:<16} {:>10} {:>8} {:>9.2} {:>10.0} {:>9.2} {:>7.2} {:>9} {:>8.2} {:>9.1} {:>7} {:>7}",
            r.workload,
            r.rows,
            r.batches.map(|batches| batches.to_string()).unwrap_or_default(),
            r.seconds,
            rate,
            r.limit_seconds,
            r.ratio,
            r.server_seconds.map(|seconds| format!("{seconds:.2}")).unwrap_or_default(),
            r.cpu_seconds,
            r.peak_rss_mb,
            r.p99_ms.map(|p99| format!("{p99:.1}")).unwrap_or_default(),
            r.stolen.map(|stolen| format!("{:.0} %", stolen * 100.0)).unwrap_or_default()
        )
        .expect("a string takes everything");
    }
    out
}
