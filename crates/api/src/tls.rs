//! Encryption of the server's own connections, where it is not a proxy's business.

use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use axum::serve::Listener;
use rustls::ServerConfig;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;
use tokio::time::timeout;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;

/// A peer that says nothing keeps nobody waiting.
const PATIENCE: Duration = Duration::from_secs(10);
/// Handshakes at a time: those beyond wait in the listener's own queue.
const AT_A_TIME: usize = 256;

/// A certificate chain and its key, as PEM files.
#[derive(Debug, Clone)]
pub struct TlsFiles {
    pub certificate: PathBuf,
    pub key: PathBuf,
}

#[derive(Debug, thiserror::Error)]
#[error("{}: {reason}", .file.display())]
pub struct TlsError {
    file: PathBuf,
    reason: String,
}

impl TlsFiles {
    pub(crate) fn config(&self) -> Result<Arc<ServerConfig>, TlsError> {
        let wrong = |file: &Path, reason: &dyn ToString| TlsError {
            file: file.to_owned(),
            reason: reason.to_string(),
        };
        let read = |error: &rustls::pki_types::pem::Error| match error {
            rustls::pki_types::pem::Error::NoItemsFound => "holds no PEM item of this kind".to_owned(),
            error => error.to_string(),
        };
        let certificates: Result<Vec<_>, _> =
            CertificateDer::pem_file_iter(&self.certificate).and_then(Iterator::collect);
        let certificates = certificates.map_err(|error| wrong(&self.certificate, &read(&error)))?;
        let key = PrivateKeyDer::from_pem_file(&self.key).map_err(|error| wrong(&self.key, &read(&error)))?;
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = ServerConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
        let config = config.map_err(|error| wrong(&self.certificate, &error))?.with_no_client_auth();
        let config =
            config.with_single_cert(certificates, key).map_err(|error| wrong(&self.certificate, &error))?;
        Ok(Arc::new(config))
    }
}

/// Handshakes go on beside each other: a slow one keeps no other caller waiting.
pub(crate) struct TlsListener {
    tcp: TcpListener,
    acceptor: TlsAcceptor,
    handshakes: JoinSet<Option<(TlsStream<TcpStream>, SocketAddr)>>,
}

impl TlsListener {
    pub(crate) fn new(tcp: TcpListener, config: Arc<ServerConfig>) -> Self {
        Self { tcp, acceptor: TlsAcceptor::from(config), handshakes: JoinSet::new() }
    }
}

impl Listener for TlsListener {
    type Io = TlsStream<TcpStream>;
    type Addr = SocketAddr;

    async fn accept(&mut self) -> (Self::Io, Self::Addr) {
        loop {
            tokio::select! {
                (stream, address) = Listener::accept(&mut self.tcp), if self.handshakes.len() < AT_A_TIME => {
                    let handshake = self.acceptor.accept(stream);
                    self.handshakes.spawn(async move {
                        let shaken = timeout(PATIENCE, handshake).await.ok()?;
                        shaken.inspect_err(|error| tracing::debug!(%error, %address, "no TLS")).ok().map(|io| (io, address))
                    });
                }
                // Matched whatever came of it: a branch that does not match is not waited for any more.
                Some(shaken) = self.handshakes.join_next() => {
                    if let Ok(Some(ready)) = shaken {
                        return ready;
                    }
                }
            }
        }
    }

    fn local_addr(&self) -> io::Result<Self::Addr> {
        self.tcp.local_addr()
    }
}
