//! Executes one claimed pipeline: source → transforms → sink → checkpoint, batch by batch, and then
//! tells the meta-store how it ended.

use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::time::sleep;
use tokio_util::sync::CancellationToken;
use tracing::Instrument;
use uuid::Uuid;
use vitrina_connectors::{sinks, sources, transforms};
use vitrina_core::{
    Batch, Checkpoint, Commit, Counts, Error, Remedy, Result, Sink, Source, Timings, Transform, Violation,
    Written,
};
use vitrina_store::{Claim, Store};

use crate::RunnerSettings;
use crate::heartbeat;
use crate::manager::meta_store;

/// Waits before a batch is tried again (R-EX-7): one attempt and three retries.
const RETRIES: [Duration; 3] = [Duration::from_secs(1), Duration::from_secs(2), Duration::from_secs(4)];
/// A pass that ran into one of these has read a source that cannot be trusted: whatever it deleted before
/// must be read again, so the next run starts it anew.
const CONDEMNED: [&str; 2] = ["sink.delete_limit", "sink.source_empty"];
const LONGEST_RELEASE: Duration = Duration::from_secs(300);

pub(crate) struct Executor {
    settings: Arc<RunnerSettings>,
    store: Store,
    installation: Uuid,
    shutdown: CancellationToken,
    /// Someone asked for a pause or a cancel.
    interruption: CancellationToken,
    counts: Counts,
}

/// Why the batches stopped.
enum End {
    Data,
    Interrupted,
    Shutdown,
}

/// The stations of a batch, opened for one attempt.
struct Stations {
    source: Box<dyn Source>,
    transforms: Vec<Box<dyn Transform>>,
    sink: Box<dyn Sink>,
    checkpoint: Checkpoint,
    version: i64,
}

impl Executor {
    pub(crate) fn new(
        settings: Arc<RunnerSettings>,
        store: Store,
        installation: Uuid,
        shutdown: CancellationToken,
    ) -> Self {
        Self {
            settings,
            store,
            installation,
            shutdown,
            interruption: CancellationToken::new(),
            counts: Counts::default(),
        }
    }

    pub(crate) async fn execute(mut self, claim: Claim) {
        let pipeline = claim.pipeline.name.clone();
        let span =
            tracing::error_span!("run", pipeline, pipeline_id = %claim.lease.pipeline, run_id = %claim.run);
        async move {
            let started = Instant::now();
            tracing::info!(mode = %claim.mode, token = %claim.lease.token, takeover = claim.takeover, "run started");
            let end = self.run(&claim).await;
            self.conclude(&claim, end, started).await;
        }
        .instrument(span)
        .await;
    }

    /// The work, raced against its heartbeat.
    async fn run(&mut self, claim: &Claim) -> Result<End> {
        if claim.interrupted {
            return Ok(End::Interrupted);
        }
        let store = self.store.clone();
        let heartbeat = heartbeat::keep(&store, claim.lease, claim.lease_length, self.interruption.clone());
        tokio::select! {
            end = Box::pin(self.attempts(claim)) => end,
            lost = heartbeat => Err(lost),
        }
    }

    /// One attempt, and retries of what may pass by itself. A committed batch starts the count anew.
    async fn attempts(&mut self, claim: &Claim) -> Result<End> {
        let mut retries = RETRIES.into_iter();
        loop {
            let before = self.counts.read;
            let error = match self.attempt(claim).await {
                Err(error) if error.remedy == Remedy::Retry => error,
                ended => return ended,
            };
            if self.counts.read > before {
                retries = RETRIES.into_iter();
            }
            let Some(wait) = retries.next() else { return Err(error) };
            tracing::warn!(error_code = error.code, %error, ?wait, "an attempt failed and will be repeated");
            self.store
                .retry(&claim.lease, &self.settings.name, claim.run, error.code, &error.to_string())
                .await
                .map_err(meta_store)?;
            tokio::select! {
                () = sleep(wait) => {}
                () = self.interruption.cancelled() => return Ok(End::Interrupted),
                () = self.shutdown.cancelled() => return Ok(End::Shutdown),
            }
        }
    }

    async fn attempt(&mut self, claim: &Claim) -> Result<End> {
        let mut stations = self.open(claim).await?;
        if stations.checkpoint.completed_by == Some(claim.run) {
            return Ok(End::Data);
        }
        loop {
            if self.interruption.is_cancelled() {
                return Ok(End::Interrupted);
            }
            if self.shutdown.is_cancelled() {
                return Ok(End::Shutdown);
            }
            let read = self.batch(claim, &mut stations).await?;
            if !read || stations.checkpoint.position.pass.is_none() {
                return Ok(End::Data);
            }
        }
    }

    async fn open(&self, claim: &Claim) -> Result<Stations> {
        let (pipeline, lease) = (&claim.pipeline, &claim.lease);
        let (connections, allowed_targets) = (&self.settings.connections, &self.settings.allowed_targets);
        refuse_violations(pipeline.violations(allowed_targets).as_slice())?;
        let transforms = transforms::open(pipeline)?;
        let order = sinks::Order {
            pipeline,
            target: &claim.target,
            lease,
            connections,
            allowed_targets,
            installation: self.installation,
        };
        let sinks::Opened { mut sink, key } = sinks::open(&order).await?;
        sink.seal(lease).await?;
        let target = vitrina_core::Target { key, ..claim.target.clone() };
        let order = sources::Order { pipeline, target: &target, mode: claim.mode, lease, connections };
        let source = sources::open(&order).await?;
        // Read again at every attempt: a commit whose answer was lost may have happened.
        let state = self.store.state(lease.pipeline).await.map_err(meta_store)?;
        let checkpoint = state.checkpoint.resume(&pipeline.config_hash(&target));
        Ok(Stations { source, transforms, sink, checkpoint, version: state.version })
    }

    /// Read, transform, write, checkpoint. False when the source has nothing more.
    async fn batch(&mut self, claim: &Claim, stations: &mut Stations) -> Result<bool> {
        let started = Instant::now();
        let Some(batch) = stations.source.read(&stations.checkpoint.position).await? else {
            return Ok(false);
        };
        let read = started.elapsed();
        let batch = transform(batch, &mut stations.transforms).await?;
        let timings =
            Timings { read_ms: millis(read), transform_ms: millis(started.elapsed().saturating_sub(read)) };
        let commit = Commit {
            lease: claim.lease,
            run: claim.run,
            from_version: stations.version,
            from: stations.checkpoint.clone(),
            delete_limit: claim.pipeline.delete_limit,
            timings,
        };
        let written = stations.sink.write(&batch, &commit).await?;
        self.note(written, stations, started);
        Ok(true)
    }

    fn note(&mut self, written: Written, stations: &mut Stations, started: Instant) {
        let Written { counts, checkpoint, version, interrupted } = written;
        self.counts += counts;
        stations.checkpoint = checkpoint;
        stations.version = version;
        if interrupted {
            self.interruption.cancel();
        }
        tracing::info!(
            rows_read = counts.read,
            rows_written = counts.written(),
            rows_unchanged = counts.unchanged,
            rows_deleted = counts.deleted,
            batch_ms = millis(started.elapsed()),
            "batch done"
        );
    }

    /// Tells the meta-store how the run ended, by what happens next.
    async fn conclude(&self, claim: &Claim, end: Result<End>, started: Instant) {
        let lease = &claim.lease;
        let told = match &end {
            Ok(End::Data) => self.store.finish(lease).await.map(Some),
            Ok(End::Interrupted) => self.store.interrupt(lease).await.map(Some),
            Ok(End::Shutdown) => self
                .store
                .release(lease, "runner.stopped", "the runner was stopped", Duration::ZERO)
                .await
                .map(Some),
            Err(error) => self.conclude_error(claim, error).await,
        };
        let (rows_read, rows_written, run_ms) =
            (self.counts.read, self.counts.written(), millis(started.elapsed()));
        match told {
            Ok(Some(done)) => {
                tracing::info!(status = %done.pipeline.status, rows_read, rows_written, run_ms, "run ended");
            }
            Ok(None) => tracing::warn!(rows_read, rows_written, run_ms, "run left to its new owner"),
            Err(error) => {
                tracing::error!(%error, "the end of the run could not be recorded; its lease will expire");
            }
        }
    }

    async fn conclude_error(
        &self,
        claim: &Claim,
        error: &Error,
    ) -> vitrina_store::Result<Option<vitrina_store::StepDone>> {
        let (lease, text) = (&claim.lease, error.to_string());
        match error.remedy {
            Remedy::StandDown => {
                tracing::warn!(error_code = error.code, "the lease is lost: {text}");
                Ok(None)
            }
            Remedy::Release => {
                let releases = self.store.releases(lease.pipeline).await?;
                let wait = LONGEST_RELEASE.min(Duration::from_secs(1 << releases.min(9)));
                tracing::warn!(error_code = error.code, ?wait, "the pipeline is given back: {text}");
                self.store.release(lease, error.code, &text, wait).await.map(Some)
            }
            Remedy::Retry | Remedy::FixConfiguration | Remedy::ReportBug => {
                tracing::error!(error_code = error.code, "the run failed: {text}");
                self.store.fail(lease, error.code, &text, CONDEMNED.contains(&error.code)).await.map(Some)
            }
        }
    }
}

/// The contract of pipeline and plan, again: rows of the meta-store may be written past the API.
fn refuse_violations(found: &[Violation]) -> Result<()> {
    let Some(first) = found.first() else { return Ok(()) };
    let all = found.iter().map(|violation| format!("{}: {}", violation.field, violation.message));
    Err(Error::fix(first.code, all.collect::<Vec<_>>().join("\n")))
}

async fn transform(batch: Batch, transforms: &mut [Box<dyn Transform>]) -> Result<Batch> {
    let mut batch = batch;
    for transform in transforms {
        batch = transform.apply(batch).await?;
    }
    Ok(batch)
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}
