//! Questions from the control plane that only a runner can answer: they touch targets. A request is taken under a lease
//! of its own, kept while it is worked on, and answered in the meta-store. A new kind is one module and one line in
//! `answer`.

mod forget;
mod inspect;
mod row;
mod standing;
mod test_connection;

use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;
use tokio::task::JoinSet;
use tokio::time::{MissedTickBehavior, interval, timeout};
use uuid::Uuid;
use vitrina_connectors::Connections;
use vitrina_core::{Error, Remedy, Result};
use vitrina_store::{Store, TakenRequest};

use crate::RunnerSettings;
use crate::look::View;

/// What has been put off waits so long.
const LATER: Duration = Duration::from_secs(300);
/// How many are worked on at a time, beside the runs.
const AT_A_TIME: usize = 4;
const LEASE: Duration = Duration::from_secs(30);
/// Whoever asks waits less.
const PATIENCE: Duration = Duration::from_secs(30);

/// What every kind needs.
#[derive(Debug, Clone)]
struct Context {
    settings: Arc<RunnerSettings>,
    store: Store,
}

impl Context {
    /// What a look at a pipeline and its target needs to know.
    fn view<'a>(&'a self, connections: &'a Connections, installation: Uuid) -> View<'a> {
        View {
            connections,
            allowed_targets: &self.settings.allowed_targets,
            sources: &self.settings.sources,
            sinks: &self.settings.sinks,
            max_batch_bytes: self.settings.max_batch_bytes,
            installation,
            python: self.settings.python.as_ref(),
        }
    }
}

#[derive(Debug)]
pub(crate) struct Requests {
    context: Context,
    open: JoinSet<()>,
}

impl Requests {
    pub(crate) fn new(settings: Arc<RunnerSettings>, store: Store) -> Self {
        Self { context: Context { settings, store }, open: JoinSet::new() }
    }

    /// Takes what waits, as far as there is room.
    pub(crate) async fn fill(&mut self) -> vitrina_store::Result<()> {
        while self.open.len() < AT_A_TIME {
            let abilities = self.context.settings.abilities();
            let Some(taken) = self.context.store.take_request(&abilities, LEASE).await? else {
                return Ok(());
            };
            self.open.spawn(serve(self.context.clone(), taken));
        }
        Ok(())
    }

    /// Waits for ever where nothing is open.
    pub(crate) async fn one_ended(&mut self) {
        match self.open.join_next().await {
            Some(Ok(())) => {}
            Some(Err(error)) => tracing::error!(%error, "a request broke off"),
            None => std::future::pending().await,
        }
    }
}

async fn serve(context: Context, taken: TakenRequest) {
    tracing::info!(request = %taken.id, kind = taken.kind, "took a request");
    let answered = tokio::select! {
        answered = timeout(PATIENCE, answer(&context, &taken)) => answered.unwrap_or_else(|_| Err(too_long())),
        // Somebody else has it by now.
        () = kept(&context.store, &taken) => return,
    };
    // Nobody waits for these: what may pass is tried again when the lease has expired, by whoever comes first.
    if let Err(error) = &answered
        && taken.kind == "forget"
        && error.remedy != Remedy::ReportBug
    {
        return put_off(&context, &taken, error).await;
    }
    let answered = answered.map_err(|error| {
        tracing::warn!(request = %taken.id, kind = taken.kind, %error, "a request cannot be answered");
        (error.code, error.with_values())
    });
    if let Err(error) = context.store.answer(&taken, answered).await {
        tracing::warn!(request = %taken.id, %error, "the answer to a request is lost");
    }
}

async fn put_off(context: &Context, taken: &TakenRequest, error: &Error) {
    tracing::warn!(request = %taken.id, %error, "what a deleted pipeline has left cannot be removed now; it is tried again");
    if let Err(error) = context.store.keep_request(taken, LATER).await {
        tracing::warn!(request = %taken.id, %error, "a request could not be put off");
    }
}

async fn answer(context: &Context, taken: &TakenRequest) -> Result<Value> {
    match taken.kind.as_str() {
        "inspect" => inspect::answer(context, taken).await,
        "row" => row::answer(context, taken).await,
        "standing" => standing::answer(context, taken).await,
        "test_connection" => test_connection::answer(context, &taken.payload).await,
        "forget" => forget::answer(context, taken).await,
        kind => Err(Error::fix("request.unknown", format!("this runner knows no request {kind:?}"))
            .hint("the API may be of a newer release than the runner")),
    }
}

/// Returns when the request is not this runner's any more.
async fn kept(store: &Store, taken: &TakenRequest) {
    let mut beat = interval(LEASE / 3);
    beat.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        beat.tick().await;
        match store.keep_request(taken, LEASE).await {
            Ok(()) => {}
            Err(vitrina_store::Error::LeaseLost) => return,
            Err(error) => {
                tracing::warn!(request = %taken.id, %error, "a request could not be kept this time");
            }
        }
    }
}

fn too_long() -> Error {
    Error::retry("request.too_long", "it took too long to look")
}

fn unreadable(error: &serde_json::Error) -> Error {
    Error::fix("request.payload", format!("a request cannot be read: {error}"))
}
