//! Sessions at the databases that are read and written.

use std::hash::{BuildHasher, RandomState};
use std::pin::pin;
use std::sync::LazyLock;

use rustls::{ClientConfig, RootCertStore};
use tokio_postgres::config::SslMode;
use tokio_postgres::tls::MakeTlsConnect;
use tokio_postgres::{Client, Config, SimpleQueryMessage};
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

/// Why there is no session.
#[derive(Debug, thiserror::Error)]
pub enum Unconnected {
    #[error(transparent)]
    Failed(#[from] tokio_postgres::Error),
    /// What answers is no Postgres but a pooler, which hands one session of the server to several clients in turn.
    #[error("{}", vitrina_core::POOLED)]
    Pooled,
}

/// A session that is ours alone, with these settings from its beginning. They travel as startup options, as does a number
/// that nobody else knows: a pooler refuses such options or drops them, and then nothing was set in a session that others
/// get next. Whether a pooler happens to give us the same session twice plays no part.
pub async fn connect(
    config: &mut Config,
    application_name: &str,
    settings: &[(&str, &str)],
) -> Result<(Client, Driver), Unconnected> {
    let token = format!("{:016x}", RandomState::new().hash_one(config.get_dbname()));
    let mut options = config.get_options().unwrap_or_default().to_owned();
    let own = [("application_name", application_name), (TOKEN, token.as_str())];
    options.extend(settings.iter().copied().chain(own).map(option));
    config.options(options);
    // Of a name beside the options a pooler would make one of the server's session.
    if config.get_application_name().is_some() {
        config.application_name(application_name);
    }
    let (client, mut driver) = enter(config).await.map_err(refused_options)?;
    let told = {
        let mut asked = pin!(client.simple_query(TOLD));
        tokio::select! {
            told = &mut asked => told?,
            ended = &mut driver => {
                ended?;
                asked.await?
            }
        }
    };
    let is_ours = told
        .iter()
        .any(|message| matches!(message, SimpleQueryMessage::Row(row) if row.get(0) == Some(&token)));
    if is_ours { Ok((client, driver)) } else { Err(Unconnected::Pooled) }
}

/// What a session of ours is recognised by.
const TOKEN: &str = "vitrina.session";
const TOLD: &str = "select pg_catalog.current_setting('vitrina.session', true)";

/// As the server reads them: blanks separate, a backslash keeps one.
fn option((name, value): (&str, &str)) -> String {
    format!(" -c {name}={}", value.replace('\\', "\\\\").replace(' ', "\\ "))
}

/// pgbouncer lets nobody in with options that it does not know, unless it is told to drop them.
fn refused_options(error: tokio_postgres::Error) -> Unconnected {
    let refusal = error.as_db_error().map(|refusal| refusal.message());
    match refusal.is_some_and(|said| said.starts_with(vitrina_core::REFUSED_OPTIONS)) {
        true => Unconnected::Pooled,
        false => error.into(),
    }
}

/// `prefer` promises no more than a try: a certificate nobody knows falls back to no encryption.
async fn enter(config: &mut Config) -> Result<(Client, Driver), tokio_postgres::Error> {
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
