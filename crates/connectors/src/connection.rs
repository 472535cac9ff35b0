//! Named connections of the server's configuration, sessions on them, and what a Postgres error
//! means for the run.

use std::collections::BTreeMap;
use std::sync::LazyLock;
use std::time::Duration;

use rustls::{ClientConfig, RootCertStore};
use secrecy::{ExposeSecret, SecretString};
use tokio::task::JoinSet;
use tokio_postgres::config::SslMode;
use tokio_postgres::tls::MakeTlsConnect;
use tokio_postgres::{Client, Config};
use tokio_postgres_rustls::MakeRustlsConnect;
use vitrina_core::{Error, Result};

#[derive(Debug, Clone)]
pub struct Connection {
    pub name: String,
    pub url: SecretString,
    /// Schemas that queries on this connection may read.
    pub allowed_schemas: Vec<String>,
}

#[derive(Debug, Clone, Default)]
pub struct Connections(pub BTreeMap<String, Connection>);

impl Connections {
    pub fn get(&self, name: &str) -> Result<&Connection> {
        self.0.get(name).ok_or_else(|| {
            let known = self.0.keys().map(String::as_str).collect::<Vec<_>>().join(", ");
            Error::fix("connection.unknown", format!("no connection is named {name:?}"))
                .hint(format!("configured connections: {known}"))
        })
    }

    /// Tries every Postgres connection once; answers what each of them says, `None` for nothing wrong.
    pub async fn probe(&self) -> BTreeMap<String, Option<Error>> {
        let postgres =
            self.0.values().filter(|connection| connection.url.expose_secret().starts_with("postgres"));
        let probes = postgres.map(async |connection| {
            let opened = Session::open(connection, End::Sink, "vitrina/probe").await;
            (connection.name.clone(), opened.err())
        });
        futures_util::future::join_all(probes).await.into_iter().collect()
    }

    pub fn names(&self) -> Vec<String> {
        self.0.keys().cloned().collect()
    }
}

/// Which end of a pipeline a session serves: the first word of its error codes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum End {
    Source,
    Sink,
}

/// One Postgres session. Dropping it ends the connection's driver and with it the session.
#[derive(Debug)]
pub(crate) struct Session {
    pub(crate) client: Client,
    connection: String,
    end: End,
    _driver: JoinSet<()>,
}

/// Text forms of values and the meaning of unqualified names must not depend on a role's or a
/// database's settings. With row security off a policy raises an error instead of hiding rows.
const PINNED: &str =
    "set search_path = pg_catalog, pg_temp; set datestyle = 'ISO, YMD'; set timezone = 'UTC';
    set intervalstyle = postgres; set bytea_output = hex; set extra_float_digits = 1; set row_security = off;
    set standard_conforming_strings = on; set client_min_messages = warning; set lock_timeout = '30s';
    set idle_in_transaction_session_timeout = '10min'";

impl Session {
    pub(crate) async fn open(connection: &Connection, end: End, application_name: &str) -> Result<Self> {
        let name = &connection.name;
        let mut config = parse(connection.url.expose_secret()).ok_or_else(|| bad_url(name))?;
        config.application_name(application_name).connect_timeout(Duration::from_secs(10));
        let (client, driver) = connect(&mut config).await.map_err(|error| classify(end, name, error))?;
        let mut tasks = JoinSet::new();
        tasks.spawn(async move {
            if let Err(error) = driver.await {
                tracing::debug!(%error, "a session ended");
            }
        });
        let session = Self { client, connection: name.clone(), end, _driver: tasks };
        session.run(PINNED).await?;
        Ok(session)
    }

    /// Statements without an answer.
    pub(crate) async fn run(&self, sql: &str) -> Result<()> {
        self.client.batch_execute(sql).await.map_err(|error| self.explain(error))
    }

    pub(crate) fn explain(&self, error: tokio_postgres::Error) -> Error {
        classify(self.end, &self.connection, error)
    }
}

/// Certificates are verified whenever TLS is used: `verify-ca` and `verify-full` ask for just that.
fn parse(url: &str) -> Option<Config> {
    url.replace("sslmode=verify-full", "sslmode=require")
        .replace("sslmode=verify-ca", "sslmode=require")
        .parse()
        .ok()
}

type Driver = tokio_postgres::Connection<
    tokio_postgres::Socket,
    <MakeRustlsConnect as MakeTlsConnect<tokio_postgres::Socket>>::Stream,
>;

/// `prefer` promises no more than a try: a certificate nobody knows falls back to no encryption.
async fn connect(config: &mut Config) -> std::result::Result<(Client, Driver), tokio_postgres::Error> {
    let connected = config.connect(TLS.clone()).await;
    match connected {
        Err(error) if error.to_string().contains("TLS") && config.get_ssl_mode() == SslMode::Prefer => {
            config.ssl_mode(SslMode::Disable).connect(TLS.clone()).await
        }
        connected => connected,
    }
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

fn bad_url(name: &str) -> Error {
    Error::fix("connection.url", format!("the url of connection {name:?} is no Postgres URL"))
        .hint("write postgres://user:password@host:5432/database")
}

/// What a Postgres error means for the run. The end and the connection's name tell source, mart and
/// meta-store apart; DETAIL never leaves the server, because it quotes rows.
pub(crate) fn classify(end: End, connection: &str, error: tokio_postgres::Error) -> Error {
    let side = if end == End::Source { "source" } else { "mart" };
    let Some(refusal) = error.as_db_error() else {
        let code = if end == End::Source { "source.connection_lost" } else { "sink.connection_lost" };
        let reason = std::error::Error::source(&error).map_or_else(|| error.to_string(), ToString::to_string);
        return Error::release(code, format!("the {side} connection {connection:?} is lost: {reason}"))
            .caused_by(error);
    };
    let state = refusal.code().code().to_owned();
    let message =
        format!("the {side} {connection:?} answers {state}: {}", redacted(&state, refusal.message()));
    let codes: [&'static str; 3] = match end {
        End::Source => ["source.unavailable", "source.busy", "source.refused"],
        End::Sink => ["sink.unavailable", "sink.busy", "sink.refused"],
    };
    match state.as_str() {
        "VT001" => Error::lease_lost(),
        "VT002" => Error::new(
            vitrina_core::Remedy::StandDown,
            "checkpoint.moved",
            "the checkpoint was moved by someone else",
        ),
        // Shutdown, crash recovery, too many connections: the server will be back.
        "57P01" | "57P02" | "57P03" | "57P05" | "53300" => Error::release(codes[0], message).caused_by(error),
        state if state.starts_with("08") => Error::release(codes[0], message).caused_by(error),
        // Serialization, deadlock, locks, cancelled or timed out, resources.
        state if ["40", "53", "55", "57"].iter().any(|class| state.starts_with(class)) => {
            Error::retry(codes[1], message).caused_by(error)
        }
        _ => Error::fix(codes[2], message),
    }
}

/// Messages about data quote the data; messages about SQL, rights and constraints quote names.
fn redacted(state: &str, message: &str) -> String {
    let speaks_of_names = ["08", "0A", "23", "25", "28", "3D", "3F", "40", "42", "53", "54", "55", "57"];
    if speaks_of_names.iter().any(|class| state.starts_with(class)) {
        return message.to_owned();
    }
    let quoted =
        |(place, part): (usize, &str)| if place % 2 == 1 { "…".to_owned() } else { part.to_owned() };
    message.split('"').enumerate().map(quoted).collect::<Vec<_>>().join("\"")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_about_data_loses_the_data_and_one_about_names_keeps_them() {
        let about_data = "invalid input syntax for type integer: \"4111 1111\"";
        assert_eq!(redacted("22P02", about_data), "invalid input syntax for type integer: \"…\"");
        let about_names = "column \"titel\" does not exist";
        assert_eq!(redacted("42703", about_names), about_names);
    }

    #[test]
    fn an_unknown_connection_is_told_with_the_known_ones() {
        let url = SecretString::from("postgres://localhost/x");
        let known = Connection { name: "cinema".into(), url, allowed_schemas: vec![] };
        let connections = Connections(BTreeMap::from([("cinema".to_owned(), known)]));
        let error = connections.get("cinemas").unwrap_err();
        assert!(
            error.to_string().contains("cinemas")
                && error.to_string().ends_with("configured connections: cinema")
        );
    }
}
