//! What every handler shares.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use tokio_util::sync::CancellationToken;
use vitrina_core::AllowedTargets;
use vitrina_store::Store;
use vitrina_telemetry::Exposition;

use crate::SourceConnection;
use crate::error::Result;
use crate::events::Events;
use crate::health_cache::HealthCache;
use crate::limits::Limits;
use crate::listeners::Listeners;
use crate::logins::Logins;
use crate::lookups::Lookups;
use crate::wakeups::Wakeups;

#[derive(Debug, Clone)]
pub(crate) struct App {
    /// Within the scope of the caller: see [`crate::extract::Scoped`].
    pub(crate) store: Store,
    /// A token has been seen: from then on nobody enters without one.
    pub(crate) closed: Arc<AtomicBool>,
    pub(crate) lookups: Lookups,
    pub(crate) limits: Arc<Limits>,
    /// Who has tried tokens that nobody knows.
    pub(crate) logins: Arc<Logins>,
    pub(crate) health: Arc<HealthCache>,
    pub(crate) rules: Arc<Rules>,
    pub(crate) wakeups: Wakeups,
    pub(crate) events: Events,
    /// Places for those who listen.
    pub(crate) listeners: Listeners,
    /// Ends long polls, so that a stopping server waits for nobody.
    pub(crate) shutdown: CancellationToken,
    /// What is counted of calls.
    pub(crate) exposition: Exposition,
}

impl App {
    /// There is a token, or has been since the server started.
    pub(crate) async fn is_closed(&self) -> Result<bool> {
        if !self.closed.load(Ordering::Relaxed) && self.store.has_tokens().await? {
            self.closed.store(true, Ordering::Relaxed);
        }
        Ok(self.closed.load(Ordering::Relaxed))
    }
}

/// What the server's own configuration says about pipelines and callers.
#[derive(Debug)]
pub(crate) struct Rules {
    pub(crate) allowed_targets: AllowedTargets,
    pub(crate) source_connections: BTreeMap<String, SourceConnection>,
    /// Only who is on this machine can call.
    pub(crate) loopback: bool,
    /// Callers come by HTTPS.
    pub(crate) encrypted: bool,
}

impl Rules {
    /// What a pipeline reads that names no connection: the only source there is, else the one of that name.
    pub(crate) fn usual_source(&self) -> &str {
        let mut names = self.source_connections.keys();
        match (names.next(), names.next()) {
            (Some(only), None) => only,
            _ => "source",
        }
    }
}
