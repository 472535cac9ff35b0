//! What every handler shares.

use std::collections::BTreeMap;
use std::sync::Arc;

use tokio_util::sync::CancellationToken;
use vitrina_core::AllowedTargets;
use vitrina_store::Store;
use vitrina_telemetry::Exposition;

use crate::SourceConnection;
use crate::events::Events;
use crate::limits::Limits;
use crate::lookups::Lookups;
use crate::pulses::Pulses;
use crate::wakeups::Wakeups;

#[derive(Debug, Clone)]
pub(crate) struct App {
    pub(crate) store: Store,
    pub(crate) lookups: Lookups,
    pub(crate) limits: Arc<Limits>,
    pub(crate) pulses: Arc<Pulses>,
    pub(crate) rules: Arc<Rules>,
    pub(crate) wakeups: Wakeups,
    pub(crate) events: Events,
    /// Ends long polls, so that a stopping server waits for nobody.
    pub(crate) shutdown: CancellationToken,
    /// What is counted of calls.
    pub(crate) exposition: Exposition,
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
