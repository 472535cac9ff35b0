//! What the server is told when it starts.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::ops::Deref;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use secrecy::SecretString;
use tokio::runtime::Handle;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::task::JoinSet;
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
    /// Those whose callers have gone.
    leaving: Arc<Mutex<JoinSet<()>>>,
}

const SESSIONS: usize = 4;
const PATIENCE: Duration = Duration::from_secs(5);

/// A session to look with, and its place. Whoever hangs up leaves a server at work: the place is free when that has ended.
#[derive(Debug)]
pub(crate) struct Seat {
    taken: Option<(Reading, OwnedSemaphorePermit)>,
    leaving: Arc<Mutex<JoinSet<()>>>,
}

impl Deref for Seat {
    type Target = Reading;

    #[allow(clippy::expect_used)] // taken out by `drop` alone
    fn deref(&self) -> &Reading {
        &self.taken.as_ref().expect("a seat holds its session").0
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        let (Some((reading, place)), Ok(runtime)) = (self.taken.take(), Handle::try_current()) else {
            return;
        };
        let mut leaving = self.leaving.lock().unwrap_or_else(PoisonError::into_inner);
        while leaving.try_join_next().is_some() {}
        let left = async move {
            reading.leave().await;
            drop(place);
        };
        leaving.spawn_on(left, &runtime);
    }
}

impl SourceConnection {
    pub fn new(url: Secret, allowed_schemas: Vec<String>) -> Self {
        let places = Arc::new(Semaphore::new(SESSIONS));
        Self { url, allowed_schemas, max_query_cost: None, places, leaving: Arc::default() }
    }

    /// Waits for a place, but not for long.
    pub(crate) async fn read(&self, purpose: &str) -> Result<Seat, String> {
        let place = timeout(PATIENCE, Arc::clone(&self.places).acquire_owned()).await;
        let place = place.ok().and_then(Result::ok).ok_or("too many callers look at this source at once")?;
        self.open(purpose, place).await
    }

    /// Where a place is free, and the source lets somebody in.
    pub(crate) async fn read_at_once(&self, purpose: &str) -> Option<Seat> {
        let place = Arc::clone(&self.places).try_acquire_owned().ok()?;
        self.open(purpose, place).await.ok()
    }

    async fn open(&self, purpose: &str, place: OwnedSemaphorePermit) -> Result<Seat, String> {
        let reading = Reading::open(&self.url, purpose).await?;
        Ok(Seat { taken: Some((reading, place)), leaving: Arc::clone(&self.leaving) })
    }
}
