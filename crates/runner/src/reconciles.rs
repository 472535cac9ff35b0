//! Comparisons of targets with their sources: taken under a lease of their own, beside the runs, kept while they are made,
//! and concluded in the meta-store.

use std::collections::HashSet;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use tokio::task::JoinSet;
use tokio::time::{MissedTickBehavior, interval, timeout};
use tokio_util::sync::CancellationToken;
use vitrina_connectors::reconcile::{self, Office, Order};
use vitrina_core::{Checkpoint, Findings, PipelineId, ReconcileProgress, Remedy, Result};
use vitrina_store::{RejectChoice, Store, TakenReconcile};

use crate::RunnerSettings;

/// How many are made at a time, beside the runs: each keeps two databases busy.
const AT_A_TIME: usize = 2;
const LEASE: Duration = Duration::from_secs(30);
/// How often it is asked whether one is to stop, and told how far it has come.
const BEAT: Duration = Duration::from_secs(2);
/// A stopping runner does not wait longer than this to hand them back.
const HAND_BACK: Duration = Duration::from_secs(5);
/// More rejects than these are not told from differences.
const MOST_REJECTS: i64 = 100_000;

#[derive(Debug)]
pub(crate) struct Reconciles {
    context: Context,
    open: JoinSet<()>,
}

#[derive(Debug, Clone)]
struct Context {
    settings: Arc<RunnerSettings>,
    store: Store,
    stop: CancellationToken,
}

impl Reconciles {
    pub(crate) fn new(settings: Arc<RunnerSettings>, store: Store) -> Self {
        let stop = CancellationToken::new();
        Self { context: Context { settings, store, stop }, open: JoinSet::new() }
    }

    /// Takes what waits, as far as there is room.
    pub(crate) async fn fill(&mut self) -> vitrina_store::Result<()> {
        while self.open.len() < AT_A_TIME {
            let abilities = self.context.settings.abilities();
            let Some(taken) = self.context.store.take_reconcile(&abilities, LEASE).await? else {
                return Ok(());
            };
            self.open.spawn(serve(self.context.clone(), taken));
        }
        Ok(())
    }

    pub(crate) fn is_idle(&self) -> bool {
        self.open.is_empty()
    }

    /// Waits for ever where nothing is open.
    pub(crate) async fn one_ended(&mut self) {
        match self.open.join_next().await {
            Some(Ok(())) => {}
            Some(Err(error)) => tracing::error!(%error, "a comparison broke off"),
            None => std::future::pending().await,
        }
    }

    /// What is under way is left for another runner to begin anew.
    pub(crate) async fn hand_back(&mut self) {
        self.context.stop.cancel();
        let handed_back = async { while self.open.join_next().await.is_some() {} };
        timeout(HAND_BACK, handed_back).await.ok();
    }
}

/// How a comparison came to its end.
enum End {
    Compared(Box<Result<Findings>>),
    /// Somebody wants it to stop.
    Cancelled,
    /// Somebody else has it by now.
    Lost,
    Shutdown,
}

async fn serve(context: Context, taken: TakenReconcile) {
    let (pipeline, level) = (&taken.pipeline.name, taken.level);
    tracing::info!(reconcile = %taken.id, pipeline, %level, "a comparison begins");
    let notes =
        Notes { store: context.store.clone(), pipeline: taken.pipeline.id, progress: Mutex::default() };
    let end = tokio::select! {
        compared = compare(&context, &taken, &notes) => End::Compared(Box::new(compared)),
        end = kept(&context.store, &taken, &notes) => end,
        () = context.stop.cancelled() => End::Shutdown,
    };
    if let Err(error) = conclude(&context.store, &taken, end).await {
        tracing::warn!(reconcile = %taken.id, %error, "what a comparison has found is lost; it is made again");
    }
}

/// What may pass by itself is tried a second time.
async fn compare(context: &Context, taken: &TakenReconcile, notes: &Notes) -> Result<Findings> {
    let settings = &context.settings;
    let refused =
        context.store.reject_keys(taken.pipeline.id, &RejectChoice::default(), MOST_REJECTS).await?;
    let refused: HashSet<String> = refused.iter().map(ToString::to_string).collect();
    let order = Order {
        refused: &refused,
        id: taken.id,
        owner: taken.owner,
        pipeline: &taken.pipeline,
        target: &taken.target,
        level: taken.level,
        keep: taken.keep,
        keys: taken.keys.as_deref(),
        refused_before: taken.refused_before,
        connections: &settings.connections,
        allowed_targets: &settings.allowed_targets,
        sources: &settings.sources,
        sinks: &settings.sinks,
        installation: taken.installation,
        ledger: &context.store,
        max_batch_bytes: settings.max_batch_bytes,
        changelog_max_age: settings.changelog_max_age.as_secs().try_into().unwrap_or(i64::MAX),
        python: settings.python.as_ref(),
    };
    match reconcile::compare(&order, notes).await {
        Err(error) if matches!(error.remedy, Remedy::Retry | Remedy::Release) => {
            tracing::warn!(reconcile = %taken.id, %error, "a comparison is tried again");
            tokio::time::sleep(BEAT).await;
            reconcile::compare(&order, notes).await
        }
        compared => compared,
    }
}

async fn conclude(store: &Store, taken: &TakenReconcile, end: End) -> vitrina_store::Result<()> {
    let pipeline = &taken.pipeline.name;
    match end {
        End::Compared(compared) => told(store, taken, *compared).await,
        End::Cancelled => {
            tracing::info!(reconcile = %taken.id, pipeline, "a comparison was cancelled");
            store.stop_reconcile(taken).await
        }
        End::Shutdown => store.release_reconcile(taken).await,
        End::Lost => Ok(()),
    }
}

async fn told(
    store: &Store,
    taken: &TakenReconcile,
    compared: Result<Findings>,
) -> vitrina_store::Result<()> {
    let pipeline = &taken.pipeline.name;
    match compared {
        Ok(findings) => {
            let (verdict, figures) = (findings.verdict, &findings.figures);
            tracing::info!(reconcile = %taken.id, pipeline, %verdict, differences = figures.differences(), in_flight = figures.in_flight, "compared");
            store.finish_reconcile(taken, &findings).await
        }
        Err(error) => {
            tracing::warn!(reconcile = %taken.id, pipeline, %error, "a comparison failed");
            store.fail_reconcile(taken, error.code, error.with_values()).await
        }
    }
}

/// Returns when the comparison is not this runner's any more, or nobody wants it.
async fn kept(store: &Store, taken: &TakenReconcile, notes: &Notes) -> End {
    let mut beat = interval(BEAT);
    beat.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        beat.tick().await;
        let progress = notes.progress.lock().unwrap_or_else(PoisonError::into_inner).take();
        match store.keep_reconcile(taken, LEASE, progress.as_ref()).await {
            Ok(true) => return End::Cancelled,
            Ok(false) => {}
            Err(vitrina_store::Error::LeaseLost) => return End::Lost,
            Err(error) => {
                tracing::warn!(reconcile = %taken.id, %error, "a comparison could not be kept this time");
            }
        }
    }
}

struct Notes {
    store: Store,
    pipeline: PipelineId,
    /// Told with the next beat.
    progress: Mutex<Option<ReconcileProgress>>,
}

#[async_trait]
impl Office for Notes {
    async fn checkpoint(&self) -> Result<Checkpoint> {
        Ok(self.store.state(self.pipeline).await?.checkpoint)
    }

    fn note(&self, progress: ReconcileProgress) {
        *self.progress.lock().unwrap_or_else(PoisonError::into_inner) = Some(progress);
    }
}
