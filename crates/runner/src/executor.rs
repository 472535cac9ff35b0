//! Executes one claimed pipeline: source → transforms → sink → checkpoint, batch by batch, and then
//! tells the meta-store how it ended.

use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use arrow_schema::Schema;
use jiff::Timestamp;
use tokio::sync::Notify;
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;
use tracing::Instrument;
use vitrina_connectors::{sinks, sources, transforms};
use vitrina_core::{
    Backfill, Checkpoint, Code, Commit, Counts, Decision, Error, ErrorKind, Pipeline, Remedy, Result,
    Resumption, Sink, Source, State, Target, TargetName, Violation, Written,
};
use vitrina_store::{Claim, Store};

use crate::conclusion::{Conclusion, jittered};
use crate::counters::{self, Took};
use crate::events::{self, Figures};
use crate::read_ahead::{Ahead, ReadAhead};
use crate::{RunLog, RunnerSettings, heartbeat};

/// Waits before a batch is tried again (R-EX-7): one attempt and three retries.
const RETRIES: [Duration; 3] = [Duration::from_secs(1), Duration::from_secs(2), Duration::from_secs(4)];

pub(crate) struct Executor {
    settings: Arc<RunnerSettings>,
    store: Store,
    shutdown: CancellationToken,
    /// Makes the next heartbeat come at once.
    beat: Arc<Notify>,
    /// Someone asked for a pause or a cancel.
    interruption: CancellationToken,
    /// A write was given up, and its session is still busy with it.
    abandoned: bool,
    counts: Counts,
    /// Batches committed here.
    batches: u64,
    started: Instant,
    run_log: Option<RunLog>,
    /// What is still to be read again, where the run is a backfill.
    backfill: Option<Backfill>,
    /// An index that nobody had described before this run.
    described: OnceLock<Target>,
}

/// Why the batches stopped.
pub(crate) enum End {
    Data,
    /// A pass that was opened then has found nothing that a batch could have told of.
    Unchanged {
        as_of: Timestamp,
    },
    Interrupted,
    Shutdown,
}

/// The stations of a batch, opened for one attempt. Source and transforms work ahead of the sink.
struct Stations {
    ahead: ReadAhead,
    sink: Box<dyn Sink>,
    state: State,
}

impl Stations {
    /// The source has nothing more. A backfill is no pass.
    fn unchanged(&self, claim: &Claim) -> End {
        let checkpoint = &self.state.checkpoint;
        match checkpoint.opened_at {
            Some(as_of) if claim.backfill.is_none() && checkpoint.position.pass.is_none() => {
                End::Unchanged { as_of }
            }
            _ => End::Data,
        }
    }
}

impl Executor {
    pub(crate) fn new(
        settings: Arc<RunnerSettings>,
        store: Store,
        shutdown: CancellationToken,
        beat: Arc<Notify>,
    ) -> Self {
        Self {
            batches: 0,
            started: Instant::now(),
            run_log: None,
            settings,
            store,
            shutdown,
            beat,
            interruption: CancellationToken::new(),
            abandoned: false,
            counts: Counts::default(),
            backfill: None,
            described: OnceLock::new(),
        }
    }

    /// What happens in its runs is kept there as well.
    pub(crate) fn logging_to(self, run_log: Option<RunLog>) -> Self {
        Self { run_log, ..self }
    }

    pub(crate) async fn execute(self, claim: Claim) {
        let span = events::span(&claim);
        self.execute_in_span(claim).instrument(span).await;
    }

    async fn execute_in_span(mut self, claim: Claim) {
        events::run_started(&claim);
        counters::run_started(&claim);
        let end = self.run(&claim).await;
        let conclusion = Conclusion {
            store: &self.store,
            claim: &claim,
            shutdown: &self.shutdown,
            run_log: self.run_log.as_ref(),
            figures: Figures { counts: self.counts, batches: self.batches, started: self.started },
        };
        conclusion.reach(&end).await;
    }

    /// The work, raced against its heartbeat.
    async fn run(&mut self, claim: &Claim) -> Result<End> {
        if claim.interrupted {
            return Ok(End::Interrupted);
        }
        self.backfill.clone_from(&claim.backfill);
        let store = self.store.clone();
        let beat = Arc::clone(&self.beat);
        let heartbeat =
            heartbeat::keep(&store, claim.lease, claim.lease_length, &beat, self.interruption.clone());
        tokio::select! {
            end = Box::pin(self.attempts(claim)) => end,
            lost = heartbeat => Err(lost),
        }
    }

    /// One attempt, and retries of what may pass by itself. A committed batch starts the count anew.
    async fn attempts(&mut self, claim: &Claim) -> Result<End> {
        let mut retries = RETRIES.into_iter();
        for attempt in 1.. {
            if attempt > 1 {
                events::attempt_started(attempt);
            }
            let before = self.counts.read;
            let error = match self.attempt(claim).await {
                Err(error) if error.remedy == Remedy::Retry => error,
                ended => return ended,
            };
            if self.counts.read > before {
                retries = RETRIES.into_iter();
            }
            let Some(wait) = retries.next().map(jittered) else { return Err(error) };
            counters::retry(&claim.pipeline.name);
            events::attempt_failed(attempt, &error, wait, self.counts, self.started);
            self.store
                .retry(&claim.lease, &self.settings.name, claim.run, error.code, &error.with_values())
                .await?;
            tokio::select! {
                () = sleep(wait) => {}
                () = self.interruption.cancelled() => return Ok(End::Interrupted),
                () = self.shutdown.cancelled() => return Ok(End::Shutdown),
            }
        }
        Err(Error::bug("runner.attempts", "there is no end of numbers"))
    }

    async fn attempt(&mut self, claim: &Claim) -> Result<End> {
        if claim.rollback {
            return self.roll_back(claim).await;
        }
        let Some(mut stations) = self.open(claim).await? else { return Ok(End::Data) };
        let end = self.batches(claim, &mut stations).await;
        let is_dropped = end.as_ref().is_err_and(Error::drops_pass);
        let cancelled = matches!(end, Ok(End::Interrupted)) && self.is_cancelled(claim).await;
        if is_dropped || (cancelled && !self.abandoned) {
            // Only space depends on it: the next load of this pipeline clears up as well.
            stations.sink.clear().await.ok();
        }
        if end.is_ok() && !self.abandoned {
            // Where this fails, the next owner shuts this one out.
            stations.sink.close().await.ok();
        }
        end
    }

    /// Nothing is read: readers get what they saw before the last load, and the checkpoint goes back with it.
    async fn roll_back(&self, claim: &Claim) -> Result<End> {
        let sinks::Opened { mut sink, .. } = self.open_sink(claim, self.target(claim), None).await?;
        let state = self.seal(claim, sink.as_mut()).await?;
        sink.roll_back(claim.run, &state).await?;
        tracing::info!("readers see what they saw before the last load");
        sink.close().await.ok();
        Ok(End::Data)
    }

    async fn batches(&mut self, claim: &Claim, stations: &mut Stations) -> Result<End> {
        loop {
            let ahead = tokio::select! {
                biased;
                () = self.interruption.cancelled() => return Ok(End::Interrupted),
                () = self.shutdown.cancelled() => return Ok(End::Shutdown),
                ahead = stations.ahead.next() => ahead?,
            };
            let Some(ahead) = ahead else { return Ok(stations.unchanged(claim)) };
            let ends_pass = ahead.batch.ends_pass();
            let impatience = out_of_patience(self.interruption.clone(), self.settings.pause_timeout);
            tokio::select! {
                written = self.write(claim, stations, ahead) => written?,
                () = impatience => {
                    self.abandoned = true;
                    return Ok(End::Interrupted);
                }
            }
            if ends_pass {
                return Ok(End::Data);
            }
        }
    }

    async fn is_cancelled(&self, claim: &Claim) -> bool {
        let run = self.store.run(claim.run).await;
        run.is_ok_and(|run| run.is_some_and(|run| run.cancel_requested))
    }

    /// `None` when there is nothing left to do: the batch that ended the run was committed, and its answer lost.
    async fn open(&self, claim: &Claim) -> Result<Option<Stations>> {
        let (pipeline, lease) = (&claim.pipeline, &claim.lease);
        let (connections, allowed_targets) = (&self.settings.connections, &self.settings.allowed_targets);
        refuse_violations(pipeline.violations(allowed_targets).as_slice())?;
        let mut transforms = transforms::open(&transforms::Order {
            pipeline,
            python: self.settings.python.as_ref(),
            run_id: claim.run.to_string(),
            mode: claim.mode.to_string(),
            done: claim.batches + self.batches,
        })?;
        let order = sources::Order {
            pipeline,
            mode: claim.mode,
            backfill: self.backfill.as_ref(),
            max_batch_bytes: self.settings.max_batch_bytes,
            lease,
            takeover: claim.takeover,
            installation: claim.installation,
            changelog_max_age: self.settings.changelog_max_age.as_secs().try_into().unwrap_or(i64::MAX),
            connections,
            python: self.settings.python.as_ref(),
            run_id: claim.run.to_string(),
            observes: false,
            strict_keys: false,
        };
        let mut source = self.settings.sources.open(&order).await?;
        let schema = source.schema();
        let columns = schema.as_deref().filter(|_| transforms.is_empty());
        let opened = match self.open_sink(claim, self.target(claim), columns).await {
            // What functions make of rows may have another key.
            Err(error) if columns.is_some() && error.kind == ErrorKind::KeyMissing => {
                let target = self.with_proposed_key(claim, source.as_mut(), error).await?;
                self.open_sink(claim, &target, columns).await
            }
            opened => opened,
        };
        let sinks::Opened { mut sink, destination } = opened?;
        let fields = schema.iter().flat_map(|schema| schema.fields());
        let read: Vec<String> = fields.map(|field| field.name().clone()).collect();
        // Neither side waits for the other's servers.
        let (resumed, begun) = tokio::join!(
            self.resume(claim, &destination.key, &read, sink.as_mut()),
            source.begin(&destination)
        );
        let mut state = resumed?;
        if state.checkpoint.completed_by == Some(claim.run) {
            return Ok(None);
        }
        begun?;
        if claim.backfill.is_none() {
            state.checkpoint = state.checkpoint.open_pass(claim.run, claim.now());
        }
        transforms.iter_mut().for_each(|transform| transform.begin(&destination));
        let from = state.checkpoint.position.clone();
        let done = claim.batches + self.batches;
        let ahead = ReadAhead::start(source, transforms, from, self.settings.source_patience, done);
        Ok(Some(Stations { ahead, sink, state }))
    }

    fn target<'a>(&'a self, claim: &'a Claim) -> &'a Target {
        self.described.get().unwrap_or(&claim.target)
    }

    /// The target with the key that the source proves of its rows. A mart is created with it and keeps it as its primary key; for an index
    /// it is kept beside the configuration.
    async fn with_proposed_key(
        &self,
        claim: &Claim,
        source: &mut dyn Source,
        error: Error,
    ) -> Result<Target> {
        let Some(key) = source.propose_key().await? else { return Err(error) };
        tracing::info!(target = %claim.target.name, key = key.join(", "), "the target names no key: the source proves this one");
        let target = Target { key, ..claim.target.clone() };
        let Ok(TargetName::Named { .. }) = target.name.parse() else { return Ok(target) };
        // There is always an index after the first run.
        let target = Target { create_if_missing: false, ..target };
        self.store.describe_target(&target).await?;
        Ok(self.described.get_or_init(|| target).clone())
    }

    async fn open_sink(
        &self,
        claim: &Claim,
        target: &Target,
        schema: Option<&Schema>,
    ) -> Result<sinks::Opened> {
        let order = sinks::Order {
            pipeline: &claim.pipeline,
            target,
            schema,
            lease: &claim.lease,
            issued: &claim.issued,
            takeover: claim.takeover,
            connections: &self.settings.connections,
            allowed_targets: &self.settings.allowed_targets,
            installation: claim.installation,
            ledger: Arc::new(self.store.clone()),
        };
        let opened = self.settings.sinks.open(&order).await;
        opened.inspect_err(|error| counters::sink_error(&claim.target.connection, error))
    }

    /// Read again at every attempt: a commit whose answer was lost may have happened. A backfill leaves the
    /// checkpoint as it finds it.
    async fn resume(
        &self,
        claim: &Claim,
        key: &[String],
        columns: &[String],
        sink: &mut dyn Sink,
    ) -> Result<State> {
        let sealed = self.seal(claim, sink).await?;
        if claim.backfill.is_some() {
            refuse_other_key(&sealed.checkpoint, key)?;
            return Ok(sealed);
        }
        let (before, had_load) = (sealed.checkpoint.decided_by, sealed.checkpoint.load.is_some());
        let oldest = claim.now().checked_sub(self.settings.load_max_age).unwrap_or(Timestamp::MIN);
        let by = Resumption {
            run: claim.run,
            mode: claim.mode,
            decision: claim.decision,
            on_change: claim.pipeline.on_change,
            config_hash: claim.pipeline.config_hash(self.target(claim)),
            key: key.to_vec(),
            code: self.code(&claim.pipeline),
            columns: columns.to_vec(),
            continues_since: claim.resume.then_some(oldest),
        };
        let checkpoint = sealed.checkpoint.resume(&by)?;
        let resumed = State { checkpoint, version: sealed.version };
        if had_load && resumed.checkpoint.load.is_none() {
            events::load_begins_anew(claim.resume, self.settings.load_max_age);
        }
        let decision = claim.decision.or_else(|| claim.pipeline.on_change.decision());
        match decision.filter(|_| resumed.checkpoint.decided_by != before) {
            Some(decision) => self.decide(claim, decision, &resumed, sink).await,
            None => Ok(resumed),
        }
    }

    /// Versions of the functions that the pipeline's rows go through.
    fn code(&self, pipeline: &Pipeline) -> Code {
        let (mut code, used) = (self.settings.code(), pipeline.python_tasks());
        code.retain(|name, _| used.contains(&name.as_str()));
        code
    }

    async fn seal(&self, claim: &Claim, sink: &mut dyn Sink) -> Result<State> {
        let stored = self.store.state(claim.lease.pipeline).await?;
        sink.seal(&claim.lease, State { checkpoint: stored.checkpoint, version: stored.version }).await
    }

    /// Stored before anything is read: a pass that finds nothing stores nothing, and would ask again.
    async fn decide(
        &self,
        claim: &Claim,
        decision: Decision,
        resumed: &State,
        sink: &mut dyn Sink,
    ) -> Result<State> {
        tracing::info!(%decision, "the checkpoint is changed, as the run or its pipeline says");
        let State { checkpoint, version } = resumed;
        self.store.decide(&claim.lease, claim.run, decision, *version, checkpoint).await?;
        self.seal(claim, sink).await
    }

    /// Write and checkpoint.
    async fn write(&mut self, claim: &Claim, stations: &mut Stations, ahead: Ahead) -> Result<()> {
        let span = ahead.span.clone();
        self.write_in_span(claim, stations, ahead).instrument(span).await
    }

    async fn write_in_span(&mut self, claim: &Claim, stations: &mut Stations, ahead: Ahead) -> Result<()> {
        let started = Instant::now();
        let commit = Commit {
            lease: claim.lease,
            run: claim.run,
            from_version: stations.state.version,
            from: stations.state.checkpoint.clone(),
            delete_limit: claim.pipeline.delete_limit,
            backfill_deleted: match claim.backfill {
                Some(_) => claim.rows_deleted + self.counts.deleted,
                None => 0,
            },
            now: claim.now(),
            reject_limit: claim.pipeline.reject_limit,
            first_load: claim.pipeline.first_load,
            timings: ahead.timings(),
        };
        let writing = stations.sink.write(&ahead.batch, &commit).instrument(tracing::info_span!("write"));
        let written = writing.await;
        let written = written.inspect_err(|error| counters::sink_error(&claim.target.connection, error))?;
        if let (Some(backfill), Some(at)) = (&mut self.backfill, &ahead.batch.backfilled_to) {
            backfill.go_on_from(at);
        }
        let took = Took { read: ahead.read, transform: ahead.transform, write: started.elapsed() };
        counters::batch(
            &claim.pipeline.name,
            &written.counts,
            &took,
            ahead.batch.rows.get_array_memory_size(),
        );
        self.note(written, stations, &took);
        Ok(())
    }

    fn note(&mut self, written: Written, stations: &mut Stations, took: &Took) {
        let Written { counts, checkpoint, version, interrupted } = written;
        self.counts += counts;
        self.batches += 1;
        stations.state = State { checkpoint, version };
        if interrupted {
            self.interruption.cancel();
        }
        events::batch_done(&counts, took, self.started);
    }
}

/// A pause or cancel waits for the batch under way, but not for ever: then that is rolled back.
async fn out_of_patience(interruption: CancellationToken, pause_timeout: Duration) {
    interruption.cancelled().await;
    sleep(pause_timeout).await;
}

/// Single rows would be written under their new key beside those that are there under the old one.
fn refuse_other_key(checkpoint: &Checkpoint, key: &[String]) -> Result<()> {
    let is_known = !checkpoint.key.is_empty() && !key.is_empty();
    match is_known && checkpoint.key != key {
        true => Err(Error::key_changed(&checkpoint.key, key)),
        false => Ok(()),
    }
}

/// The contract of pipeline and plan, again: rows of the meta-store may be written past the API.
fn refuse_violations(found: &[Violation]) -> Result<()> {
    let Some(first) = found.first() else { return Ok(()) };
    let all = found.iter().map(|violation| format!("{}: {}", violation.field, violation.message));
    Err(Error::fix(first.code, all.collect::<Vec<_>>().join("\n")))
}
