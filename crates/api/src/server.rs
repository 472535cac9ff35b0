//! From settings to a listening server, and its orderly end.

use std::collections::BTreeSet;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use rustls::ServerConfig;
use secrecy::ExposeSecret;
use tokio::net::TcpListener;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;
use tower_http::normalize_path::NormalizePath;
use vitrina_store::{Offered, Scope, Store};

use crate::app::{App, Rules};
use crate::connections::Connections;
use crate::health_cache::HealthCache;
use crate::limits::Limits;
use crate::listeners::Listeners;
use crate::lookups::Lookups;
use crate::{ApiSettings, TlsError, TlsFiles, events, measure, routes, wakeups};

/// How long a stopping server lets answers finish.
const GRACE: Duration = Duration::from_secs(10);

#[derive(Debug, thiserror::Error)]
pub enum StartError {
    #[error(
        "{0} is in use by another program\nhint: stop it, or listen elsewhere, e.g. --listen 127.0.0.1:0 for any free port"
    )]
    PortTaken(SocketAddr),
    #[error(
        "cannot listen on {address}: {source}\nhint: give an address of this machine, e.g. --listen 127.0.0.1:0"
    )]
    Listen { address: SocketAddr, source: io::Error },
    #[error(
        "{0} can be reached by other machines, and there is no token to keep them out\nhint: set VITRINA_ADMIN_TOKEN, or listen on 127.0.0.1"
    )]
    Unprotected(SocketAddr),
    #[error("the admin token is empty\nhint: give VITRINA_ADMIN_TOKEN a long random value, or unset it")]
    EmptyToken,
    #[error(
        "the admin token has {0} characters, and may be guessed\nhint: give VITRINA_ADMIN_TOKEN at least 20 random ones, such as `openssl rand -hex 32` prints"
    )]
    ShortToken(usize),
    #[error(
        "the admin token is a sample that everybody can read, or one character over and over\nhint: give VITRINA_ADMIN_TOKEN a random value, such as `openssl rand -hex 32` prints"
    )]
    SampleToken,
    #[error(
        "the meta-store has another admin token than this process was given\nhint: give VITRINA_ADMIN_TOKEN the value that is in use; to replace that one, which ends it for everybody, run `vitrina token admin --replace` with the new value"
    )]
    OtherToken,
    #[error("the certificate cannot be used: {0}\nhint: give PEM files as api.tls_cert and api.tls_key")]
    Tls(#[from] TlsError),
    #[error(transparent)]
    Store(#[from] vitrina_store::Error),
}

/// A server that listens and does not answer yet.
#[derive(Debug)]
pub struct Server {
    listener: TcpListener,
    address: SocketAddr,
    tls: Option<Arc<ServerConfig>>,
    settings: ApiSettings,
    store: Store,
    closed: bool,
}

impl Server {
    pub async fn bind(settings: ApiSettings, store: Store) -> Result<Self, StartError> {
        store.check_schema().await?;
        let tls = settings.tls.as_ref().map(TlsFiles::config).transpose()?;
        if let Some(token) = &settings.admin_token {
            check_admin_token(token.expose_secret())?;
        }
        // First of all: a server that cannot listen changes no token and warns of nothing.
        let listener =
            TcpListener::bind(settings.listen).await.map_err(|error| explain(error, settings.listen))?;
        let address = listener.local_addr().map_err(|error| explain(error, settings.listen))?;
        save_admin_token(&settings, &store).await?;
        let closed = check_protection(&settings, &store).await?;
        Ok(Self { listener, address, tls, settings, store, closed })
    }

    /// Where it listens, also when the settings left the port open.
    pub fn local_addr(&self) -> SocketAddr {
        self.address
    }

    /// Answers until `shutdown`; then long polls end at once, and other calls have a moment.
    pub async fn serve(self, shutdown: CancellationToken) -> Result<(), StartError> {
        let (sender, wakeups) = wakeups::channel();
        let mut background = JoinSet::new();
        background.spawn(wakeups::forward(self.store.clone(), sender));
        let rules = Arc::new(Rules {
            allowed_targets: self.settings.allowed_targets,
            source_connections: self.settings.source_connections,
            loopback: self.address.ip().is_loopback(),
            encrypted: self.tls.is_some(),
        });
        let exposition = measure::exposition();
        let upkeep = exposition.clone();
        background.spawn(async move { upkeep.keep_up().await });
        let lookups = Lookups::start(&self.store, &mut background);
        let (events, telling) = events::hub(self.store.clone(), wakeups.clone());
        background.spawn(telling);
        let limits = Arc::new(Limits::new(self.settings.rate_limit));
        let (store, health) = (self.store, Arc::new(HealthCache::default()));
        let app = App {
            store: store.within(Scope::NOTHING),
            closed: Arc::new(AtomicBool::new(self.closed)),
            lookups,
            limits,
            logins: Arc::default(),
            health,
            rules,
            wakeups,
            events,
            listeners: Listeners::default(),
            shutdown: shutdown.clone(),
            exposition,
        };
        let service = NormalizePath::trim_trailing_slash(routes::router(&app));
        tracing::info!(address = %self.address, tls = self.tls.is_some(), "the API listens");
        let (max_connections, patience) = (self.settings.max_connections, self.settings.patience);
        let connections = Connections::new(self.listener, self.tls, max_connections, patience);
        tokio::select! {
            () = connections.serve(service, shutdown.clone()) => {}
            () = grace(&shutdown) => {}
        }
        Ok(())
    }
}

async fn grace(shutdown: &CancellationToken) {
    shutdown.cancelled().await;
    tokio::time::sleep(GRACE).await;
}

async fn save_admin_token(settings: &ApiSettings, store: &Store) -> Result<(), StartError> {
    let Some(token) = &settings.admin_token else { return Ok(()) };
    match store.offer_admin_token(token.expose_secret().trim()).await? {
        Offered::Saved => {
            tracing::warn!("VITRINA_ADMIN_TOKEN is the admin token of this meta-store from now on");
            Ok(())
        }
        Offered::Known => Ok(()),
        Offered::Other => Err(StartError::OtherToken),
    }
}

const SHORTEST_TOKEN: usize = 20;
/// Parts of what stands in samples and in documentation.
const SAMPLES: [&str; 6] = ["change-me", "changeme", "change_me", "replace-me", "your-token", "example"];

/// Whoever guesses it may do everything.
pub fn check_admin_token(token: &str) -> Result<(), StartError> {
    let token = token.trim();
    let characters = token.chars().count();
    if characters == 0 {
        return Err(StartError::EmptyToken);
    }
    let plain = token.to_ascii_lowercase();
    let distinct = plain.chars().collect::<BTreeSet<_>>().len();
    if SAMPLES.iter().any(|sample| plain.contains(sample)) || (distinct < 5 && characters >= SHORTEST_TOKEN) {
        return Err(StartError::SampleToken);
    }
    if characters < SHORTEST_TOKEN { Err(StartError::ShortToken(characters)) } else { Ok(()) }
}

/// Open to everyone is only what nobody else can reach, and then it says so. Answers whether it is closed.
async fn check_protection(settings: &ApiSettings, store: &Store) -> Result<bool, StartError> {
    if store.has_tokens().await? {
        return Ok(true);
    }
    if !settings.listen.ip().is_loopback() {
        return Err(StartError::Unprotected(settings.listen));
    }
    tracing::warn!(
        "THE API IS OPEN: there is no token, so every program on this machine may change pipelines; set VITRINA_ADMIN_TOKEN to close it"
    );
    Ok(false)
}

fn explain(error: io::Error, address: SocketAddr) -> StartError {
    match error.kind() {
        io::ErrorKind::AddrInUse => StartError::PortTaken(address),
        _ => StartError::Listen { address, source: error },
    }
}
