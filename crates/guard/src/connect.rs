//! Sessions at the databases that are read and written.

use std::sync::LazyLock;

use rustls::{ClientConfig, RootCertStore};
use tokio_postgres::config::SslMode;
use tokio_postgres::tls::MakeTlsConnect;
use tokio_postgres::{Client, Config};
use tokio_postgres_rustls::MakeRustlsConnect;

/// What keeps a session going: it has to be awaited beside the client.
pub type Driver = tokio_postgres::Connection<
    tokio_postgres::Socket,
    <MakeRustlsConnect as MakeTlsConnect<tokio_postgres::Socket>>::Stream,
>;

/// Certificates are verified whenever TLS is used: `verify-ca` and `verify-full` ask for just that.
pub fn address(url: &str) -> Option<Config> {
    url.replace("sslmode=verify-full", "sslmode=require")
        .replace("sslmode=verify-ca", "sslmode=require")
        .parse()
        .ok()
}

/// `prefer` promises no more than a try: a certificate nobody knows falls back to no encryption.
pub async fn connect(config: &mut Config) -> Result<(Client, Driver), tokio_postgres::Error> {
    let connected = config.connect(TLS.clone()).await;
    match connected {
        Err(error) if error.to_string().contains("TLS") && config.get_ssl_mode() == SslMode::Prefer => {
            config.ssl_mode(SslMode::Disable).connect(TLS.clone()).await
        }
        connected => connected,
    }
}

/// Asks the server to end what a session is at. It may not hear of it before it is done.
pub(crate) async fn cancel(session: &Client) -> Result<(), tokio_postgres::Error> {
    session.cancel_token().cancel_query(TLS.clone()).await
}

/// The system's certificates, read once; none at all is an empty list, not an error.
static TLS: LazyLock<MakeRustlsConnect> = LazyLock::new(|| match MakeRustlsConnect::with_native_certs() {
    Ok((tls, _unreadable)) => tls,
    Err(_) => {
        let config =
            ClientConfig::builder().with_root_certificates(RootCertStore::empty()).with_no_client_auth();
        MakeRustlsConnect::new(config)
    }
});
