//! The server's connections: so many at a time, none silent for long, all of them ended in order.

use std::pin::pin;
use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::Router;
use axum::serve::Listener;
use hyper::Request;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::{Service as _, service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use rustls::ServerConfig;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::task::JoinSet;
use tokio::time::timeout;
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::CancellationToken;
use tower_http::normalize_path::NormalizePath;

use crate::logins::Peer;

/// How often a full house is told of.
const TELLING: Duration = Duration::from_secs(60);

pub(crate) type Service = NormalizePath<Router>;

pub(crate) struct Connections {
    tcp: TcpListener,
    tls: Option<TlsAcceptor>,
    patience: Duration,
    /// Whoever comes beyond them waits in the listener's own queue, at no cost to the server.
    places: Arc<Semaphore>,
    max: usize,
    told: Option<Instant>,
}

/// How a peer is spoken with.
#[derive(Clone)]
struct Manners {
    tls: Option<TlsAcceptor>,
    patience: Duration,
    service: Service,
    shutdown: CancellationToken,
}

impl Connections {
    /// `patience` is for a greeting, for the headers of a call, and between two calls.
    pub(crate) fn new(
        tcp: TcpListener,
        tls: Option<Arc<ServerConfig>>,
        max: usize,
        patience: Duration,
    ) -> Self {
        let places = Arc::new(Semaphore::new(max.min(Semaphore::MAX_PERMITS)));
        Self { tcp, tls: tls.map(TlsAcceptor::from), patience, places, max, told: None }
    }

    /// Until `shutdown`; then no connection takes another call, and what is being answered is waited for.
    pub(crate) async fn serve(mut self, service: Service, shutdown: CancellationToken) {
        let manners = Manners { tls: self.tls.take(), patience: self.patience, service, shutdown };
        let mut open = JoinSet::new();
        loop {
            tokio::select! {
                () = manners.shutdown.cancelled() => break,
                (stream, peer, place) = self.accept() => {
                    let manners = manners.clone();
                    open.spawn(async move {
                        manners.greet(stream, peer).await;
                        drop(place);
                    });
                }
                Some(_) = open.join_next() => {}
            }
        }
        drop(self.tcp);
        while open.join_next().await.is_some() {}
    }

    async fn accept(&mut self) -> (TcpStream, Peer, OwnedSemaphorePermit) {
        let place = self.place().await;
        let (stream, address) = Listener::accept(&mut self.tcp).await;
        (stream, Peer(address), place)
    }

    async fn place(&mut self) -> OwnedSemaphorePermit {
        if self.places.available_permits() == 0 && self.told.is_none_or(|told| told.elapsed() > TELLING) {
            self.told = Some(Instant::now());
            tracing::warn!(
                max_connections = self.max,
                "all connections are taken, and new ones wait; raise api.max_connections if they are all wanted"
            );
        }
        Arc::clone(&self.places).acquire_owned().await.expect("nobody closes it")
    }
}

impl Manners {
    /// In the connection's own time: a slow handshake keeps no other caller waiting.
    async fn greet(self, stream: TcpStream, peer: Peer) {
        let Some(tls) = &self.tls else { return self.talk(stream, peer).await };
        let shaken = tokio::select! {
            shaken = timeout(self.patience, tls.accept(stream)) => shaken,
            () = self.shutdown.cancelled() => return,
        };
        match shaken {
            Ok(Ok(stream)) => self.talk(stream, peer).await,
            Ok(Err(error)) => tracing::debug!(%error, "no TLS"),
            Err(_) => tracing::debug!("a handshake took too long"),
        }
    }

    async fn talk(self, io: impl AsyncRead + AsyncWrite + Unpin + Send + 'static, peer: Peer) {
        let mut http = http1::Builder::new();
        // Runs from the first moment and from the end of each answer: it also ends connections that nobody uses.
        http.timer(TokioTimer::new()).header_read_timeout(self.patience);
        let service = TowerToHyperService::new(self.service);
        let service = service_fn(move |mut request: Request<Incoming>| {
            request.extensions_mut().insert(peer);
            service.call(request)
        });
        let mut connection = pin!(http.serve_connection(TokioIo::new(io), service));
        let ended = tokio::select! {
            ended = connection.as_mut() => ended,
            () = self.shutdown.cancelled() => {
                connection.as_mut().graceful_shutdown();
                connection.await
            }
        };
        if let Err(error) = ended {
            tracing::debug!(%error, "a connection broke off");
        }
    }
}
