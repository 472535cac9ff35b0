//! What the server is told when it starts.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::ops::Deref;
use std::sync::Arc;
use std::time::Duration;

use secrecy::SecretString;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::timeout;
use vitrina_core::AllowedTargets;
use vitrina_guard::{Reading, Secret};

use crate::tls::TlsFiles;

#[derive(Debug, Clone)]
pub struct ApiSettings {
    pub listen: SocketAddr,
    pub allowed_targets: AllowedTargets,
    /// Calls a second that one token may make; 0 is no limit.
    pub rate_limit: u32,
    /// Connections at a time: whoever comes beyond them waits.
    pub max_connections: usize,
    /// How long a peer may take for its greeting and for the headers of a call, and stay silent between two calls.
    pub patience: Duration,
    /// HTTPS instead of HTTP.
    pub tls: Option<TlsFiles>,
    /// Becomes the token named `admin`, so that a fresh installation can be reached at all.
    pub admin_token: Option<SecretString>,
    /// The databases that pipelines may read, by name.
    pub source_connections: BTreeMap<String, SourceConnection>,
}

#[derive(Debug, Clone)]
pub struct SourceConnection {
    pub url: Secret,
    pub allowed_schemas: Vec<String>,
    /// What the planner may expect a query to cost, as for the runner.
    pub max_query_cost: Option<f64>,
    /// Sessions that may be open there at a time: it is somebody's production.
    places: Arc<Semaphore>,
}

const SESSIONS: usize = 4;
const PATIENCE: Duration = Duration::from_secs(5);

/// A session to look with, and its place.
#[derive(Debug)]
pub(crate) struct Seat {
    reading: Reading,
    _place: OwnedSemaphorePermit,
}

impl Deref for Seat {
    type Target = Reading;

    fn deref(&self) -> &Reading {
        &self.reading
    }
}

impl SourceConnection {
    pub fn new(url: Secret, allowed_schemas: Vec<String>) -> Self {
        Self { url, allowed_schemas, max_query_cost: None, places: Arc::new(Semaphore::new(SESSIONS)) }
    }

    /// Waits for a place, but not for long.
    pub(crate) async fn read(&self, purpose: &str) -> Result<Seat, String> {
        let place = timeout(PATIENCE, Arc::clone(&self.places).acquire_owned()).await;
        let _place = place.ok().and_then(Result::ok).ok_or("too many callers look at this source at once")?;
        Ok(Seat { reading: Reading::open(&self.url, purpose).await?, _place })
    }
}
