//! The release binary's runner as a process of its own, with the time and memory it took.

use std::fs;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use anyhow::{Context, Result, ensure};
use vitrina_core::{OnActive, RunStatus};
use vitrina_store::{PipelineRef, RunRecord, RunRequest, Store};

use crate::clock::{Clock, Took};

pub(crate) struct RunnerProcess {
    child: Child,
}

/// What a runner has used so far.
pub(crate) struct Usage {
    pub(crate) cpu_seconds: f64,
    pub(crate) peak_rss_mb: f64,
}

impl RunnerProcess {
    pub(crate) fn start(url: &str) -> Result<Self> {
        Self::start_reading(url, url)
    }

    /// The source under another login.
    pub(crate) fn start_reading(url: &str, source: &str) -> Result<Self> {
        Self::start_with(url, source, &[])
    }

    pub(crate) fn start_with(url: &str, source: &str, variables: &[(&str, &str)]) -> Result<Self> {
        let program = std::env::var("BENCH_BINARY")
            .context("BENCH_BINARY names the release binary: run `make bench`")?;
        let child = Command::new(Path::new(&program))
            .arg("runner")
            .env("VITRINA_DATABASE_URL", url)
            .env("VITRINA_CONNECTIONS_CINEMA_URL", source)
            .env("VITRINA_CONNECTIONS_MARTS_URL", url)
            .env("VITRINA_LOG_LEVEL", "warn")
            .envs(variables.iter().copied())
            .stdin(Stdio::null())
            .spawn()?;
        Ok(Self { child })
    }

    /// Requests a run and waits for its end.
    pub(crate) async fn run(&self, store: &Store, pipeline: &str) -> Result<RunRecord> {
        let mut wakeups = store.wakeups().await?;
        let id = store.pipeline(&PipelineRef::from(pipeline)).await?.config.id;
        let run =
            store.request_run(id, OnActive::Reject, &RunRequest::default()).await?.run.context("a run")?;
        loop {
            wakeups.next().await;
            let record = store.run(run).await?.context("the run")?;
            if !record.status.is_open() {
                ensure!(record.status == RunStatus::Success, "{pipeline}: {:?}", record.error);
                return Ok(record);
            }
        }
    }

    /// With its own times, from its claim to its end.
    pub(crate) async fn timed_run(&self, store: &Store, pipeline: &str) -> Result<(Took, RunRecord)> {
        let clock = Clock::start()?;
        let run = self.run(store, pipeline).await?;
        let (started, finished) = (run.started_at.context("a start")?, run.finished_at.context("an end")?);
        Ok((clock.stop_with(finished.duration_since(started).unsigned_abs())?, run))
    }

    pub(crate) fn usage(&self) -> Result<Usage> {
        usage(self.child.id())
    }
}

/// Of any process.
pub(crate) fn usage(pid: u32) -> Result<Usage> {
    let status = fs::read_to_string(format!("/proc/{pid}/status"))?;
    let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).context("VmHWM")?;
    let kilobytes: f64 = peak.trim().trim_end_matches("kB").trim().parse()?;
    let stat = fs::read_to_string(format!("/proc/{pid}/stat"))?;
    let fields: Vec<&str> = stat.rsplit(')').next().context("stat")?.split_whitespace().collect();
    let ticks: f64 = fields[11].parse::<f64>()? + fields[12].parse::<f64>()?;
    // The unit of /proc/<pid>/stat is USER_HZ, which is 100 on every Linux this runs on.
    Ok(Usage { cpu_seconds: ticks / 100.0, peak_rss_mb: kilobytes / 1024.0 })
}

impl Drop for RunnerProcess {
    fn drop(&mut self) {
        drop(self.child.kill());
        drop(self.child.wait());
    }
}
