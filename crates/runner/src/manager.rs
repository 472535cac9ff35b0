//! Keeps one runner turning: announce, dispatch, wait for a reason to turn again. A turn never
//! fails for good: while the meta-store is away the runner waits and goes on by itself.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Notify;
use tokio::task::JoinSet;
use tokio::time::{MissedTickBehavior, interval, timeout};
use tokio_util::sync::CancellationToken;
use vitrina_core::{Error, Remedy, Result};
use vitrina_store::{Store, Wakeups};

use crate::RunnerSettings;
use crate::dispatcher::Dispatcher;

#[derive(Debug)]
pub struct Runner {
    settings: Arc<RunnerSettings>,
    store: Store,
}

impl Runner {
    pub fn new(settings: RunnerSettings, store: Store) -> Self {
        Self { settings: Arc::new(settings), store }
    }

    /// Works until `shutdown`, then finishes the batches under way and gives its pipelines back.
    pub async fn run(self, shutdown: CancellationToken) -> Result<()> {
        let mut dispatcher = self.dispatcher(shutdown.child_token()).await?;
        self.look_around().await?;
        let wake = Arc::new(Notify::new());
        let mut listening = JoinSet::new();
        listening.spawn(listen(self.wakeups().await?, Arc::clone(&wake)));
        let mut tick = interval(self.settings.poll_interval);
        tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
        tracing::info!(runner = %self.settings.name, max_concurrent = self.settings.max_concurrent, "the runner is ready");

        while !shutdown.is_cancelled() {
            tokio::select! {
                () = shutdown.cancelled() => break,
                () = self.turn(&mut dispatcher) => {}
            }
            tokio::select! {
                () = shutdown.cancelled() => {}
                () = wake.notified() => {}
                () = dispatcher.one_ended() => {}
                _ = tick.tick() => {}
            }
        }
        self.stop(dispatcher).await;
        Ok(())
    }

    /// Executes everything that is waiting, and returns when nothing is left to claim or to end.
    pub async fn drain(&self) -> Result<()> {
        let mut dispatcher = self.dispatcher(CancellationToken::new()).await?;
        loop {
            dispatcher.fill().await.map_err(Error::from)?;
            if dispatcher.is_idle() {
                return Ok(());
            }
            dispatcher.one_ended().await;
            dispatcher.fail_panicked().await;
        }
    }

    async fn dispatcher(&self, shutdown: CancellationToken) -> Result<Dispatcher> {
        self.store.check_schema().await.map_err(Error::from)?;
        let installation = self.store.installation().await.map_err(Error::from)?;
        Ok(Dispatcher::new(Arc::clone(&self.settings), self.store.clone(), installation, shutdown))
    }

    /// Announces the runner with what it finds at its connections. A server that is away now may be
    /// back when a pipeline needs it: the runner starts all the same, and says so.
    async fn look_around(&self) -> Result<()> {
        let found = self.settings.connections.probe().await;
        for (connection, problem) in &found {
            if let Some(error) = problem {
                tracing::warn!(connection, %error, "a connection does not work");
            }
        }
        let health: BTreeMap<_, _> =
            found.iter().map(|(name, problem)| (name.clone(), problem.as_ref().map(what_is_wrong))).collect();
        self.store
            .announce(&self.settings.abilities(), self.settings.max_concurrent, 0)
            .await
            .map_err(Error::from)?;
        self.store.note_health(&self.settings.name, &health).await.map_err(Error::from)
    }

    async fn wakeups(&self) -> Result<Wakeups> {
        self.store.wakeups().await.map_err(Error::from)
    }

    async fn turn(&self, dispatcher: &mut Dispatcher) {
        self.settings.connections.tidy();
        let abilities = self.settings.abilities();
        let announced =
            self.store.announce(&abilities, self.settings.max_concurrent, dispatcher.active()).await;
        let turned = match announced {
            Ok(()) => dispatcher.fill().await,
            Err(error) => Err(error),
        };
        if let Err(error) = turned {
            tracing::warn!(%error, "the meta-store does not answer; the runner goes on trying");
        }
    }

    async fn stop(&self, mut dispatcher: Dispatcher) {
        tracing::info!(
            active = dispatcher.active(),
            "the runner stops: batches under way are finished, leases handed back"
        );
        let ended = async {
            while !dispatcher.is_idle() {
                dispatcher.one_ended().await;
                dispatcher.fail_panicked().await;
            }
        };
        if timeout(self.settings.shutdown_timeout, ended).await.is_err() {
            tracing::warn!("some batches did not end in time; their transactions are rolled back");
        }
        dispatcher.abandon().await;
        let farewell = self.store.farewell(&self.settings.name);
        timeout(Duration::from_secs(2), farewell).await.ok();
    }
}

fn what_is_wrong(error: &Error) -> &'static str {
    if error.remedy == Remedy::Release { "unreachable" } else { "refused" }
}

/// In a task of its own, because waiting for a notification must not be interrupted half-way.
async fn listen(mut wakeups: Wakeups, wake: Arc<Notify>) {
    loop {
        wakeups.next().await;
        wake.notify_one();
    }
}
