//! Named connections of the server's configuration, sessions on them, and what a Postgres error
//! means for the run.

use std::collections::{BTreeMap, HashMap};
use std::path::PathBuf;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use secrecy::{ExposeSecret, SecretString};
use tokio::task::JoinSet;
use tokio::time::timeout;
use tokio_postgres::error::SqlState;
use tokio_postgres::{Client, Row, Statement};
use vitrina_core::{DIRECT, Error, ErrorKind, LeaseToken, POOLED, PipelineId, Remedy, Result};
use vitrina_guard::{Secret, Unconnected, address, connect, marked};

use crate::known_tables::KnownTables;
use crate::parked::Parked;
use crate::sinks::search;

#[derive(Debug, Clone)]
pub struct Connection {
    pub name: String,
    pub url: Secret,
    /// Schemas that queries on this connection may read.
    pub allowed_schemas: Vec<String>,
    /// What the planner may expect a query to cost; unset, whatever it takes, as a full load is honestly expensive.
    pub max_query_cost: Option<f64>,
    /// For a search server: instead of a user and a password.
    pub api_key: Option<Secret>,
    /// For a search server: a file with certificates to trust beside the system's.
    pub ca: Option<PathBuf>,
    pub(crate) search: Arc<OnceLock<Arc<search::Client>>>,
    pub(crate) parked: Parked,
    pub(crate) known_tables: KnownTables,
}

impl Connection {
    pub fn new(name: impl Into<String>, url: Secret, allowed_schemas: Vec<String>) -> Self {
        Self {
            name: name.into(),
            url,
            allowed_schemas,
            max_query_cost: None,
            api_key: None,
            ca: None,
            search: Arc::default(),
            parked: Parked::default(),
            known_tables: KnownTables::default(),
        }
    }
}

impl Connection {
    /// What a search server asks for, and who vouches for it.
    #[must_use]
    pub fn trusting(self, api_key: Option<Secret>, ca: Option<PathBuf>) -> Self {
        Self { api_key, ca, ..self }
    }

    /// The same, without what is remembered of it.
    pub(crate) fn afresh(&self) -> Self {
        let new = Self::new(&self.name, self.url.clone(), self.allowed_schemas.clone());
        let new = Self { max_query_cost: self.max_query_cost, ..new };
        new.trusting(self.api_key.clone(), self.ca.clone())
    }

    /// Leads to a search server, and not to a Postgres.
    pub fn is_search(&self) -> bool {
        let url = self.url.get();
        let url = url.expose_secret();
        url.starts_with("http://") || url.starts_with("https://")
    }

    /// Errs where it does not work.
    async fn probe(&self) -> Result<()> {
        match self.is_search() {
            true => search::tested::greet(self).await.map(drop),
            false => Session::open(self, End::Sink, "vitrina/probe").await.map(drop),
        }
    }
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

    /// The same, without what is remembered of them: for who wants to see them as they are now.
    pub fn afresh(&self) -> Self {
        Self(self.0.iter().map(|(name, known)| (name.clone(), known.afresh())).collect())
    }

    /// Tries every connection once; answers what each of them says, `None` for nothing wrong.
    pub async fn probe(&self) -> BTreeMap<String, Option<Error>> {
        let probes =
            self.0.values().map(async |connection| (connection.name.clone(), connection.probe().await.err()));
        futures_util::future::join_all(probes).await.into_iter().collect()
    }

    /// Ends the sessions of pipelines' tokens below these.
    pub async fn end_older(&self, connection: &str, leases: &[(PipelineId, LeaseToken)]) -> Result<()> {
        let session = Session::open(self.get(connection)?, End::Sink, "vitrina/silence").await?;
        for (pipeline, token) in leases {
            session.end_older(*pipeline, *token).await?;
        }
        Ok(())
    }

    /// Ends sessions that nobody has needed for a while.
    pub fn tidy(&self) {
        self.0.values().for_each(|connection| connection.parked.clear());
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
    /// Statements that the server knows by now: for texts that do not change.
    known: tokio::sync::Mutex<HashMap<&'static str, Statement>>,
    pub(crate) since: Instant,
    _driver: JoinSet<()>,
}

/// Text forms of values and the meaning of unqualified names must not depend on a role's or a
/// database's settings. With row security off a policy raises an error instead of hiding rows.
const PINNED: [(&str, &str); 12] = [
    ("search_path", "pg_catalog, pg_temp"),
    ("datestyle", "ISO, YMD"),
    ("timezone", "UTC"),
    ("intervalstyle", "postgres"),
    ("bytea_output", "hex"),
    ("extra_float_digits", "1"),
    ("row_security", "off"),
    ("standard_conforming_strings", "on"),
    ("client_min_messages", "warning"),
    ("lock_timeout", "30s"),
    ("idle_in_transaction_session_timeout", "10min"),
    ("client_connection_check_interval", "5s"),
];
/// For the whole of it: name, address, TLS and login.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(20);

impl Session {
    /// A login that was rotated is read again where it came from.
    pub(crate) async fn open(connection: &Connection, end: End, application_name: &str) -> Result<Self> {
        let login = connection.url.get();
        match Self::enter(connection, &login, end, application_name).await {
            Err(error) if error.remedy == Remedy::AwaitLogin && connection.url.read_again(&login).await => {
                Self::enter(connection, &connection.url.get(), end, application_name).await
            }
            entered => entered,
        }
    }

    async fn enter(
        connection: &Connection,
        url: &SecretString,
        end: End,
        application_name: &str,
    ) -> Result<Self> {
        let name = &connection.name;
        let mut config = address(url.expose_secret()).ok_or_else(|| bad_url(name))?;
        config.connect_timeout(Duration::from_secs(10));
        // A peer that vanished without a word is noticed within a minute, not in two hours.
        config.keepalives_idle(Duration::from_secs(30)).keepalives_interval(Duration::from_secs(10));
        config.keepalives_retries(3).tcp_user_timeout(Duration::from_secs(60));
        let connected = timeout(CONNECT_TIMEOUT, connect(&mut config, application_name, &PINNED)).await;
        let connected = connected.map_err(|_| lost(end, name, "no answer in time"))?;
        let (client, driver) = connected.map_err(|unconnected| match unconnected {
            Unconnected::Failed(error) => connect_error(end, name, error),
            Unconnected::Pooled => pooled(end, name),
        })?;
        let mut tasks = JoinSet::new();
        tasks.spawn(async move {
            if let Err(error) = driver.await {
                tracing::debug!(%error, "a session ended");
            }
        });
        Ok(Self {
            client,
            connection: name.clone(),
            end,
            known: tokio::sync::Mutex::default(),
            since: Instant::now(),
            _driver: tasks,
        })
    }

    /// Ends sessions that older tokens of this pipeline left behind: no timeout of the server ends one
    /// that is stuck inside COPY, and it may hold locks. A login may always end its own sessions.
    pub(crate) async fn end_older(&self, pipeline: PipelineId, token: LeaseToken) -> Result<()> {
        let sql = "select count(pg_terminate_backend(pid)) from pg_stat_activity
                    where datname = current_database() and usename = current_user and pid <> pg_backend_pid()
                      and application_name like $1 || '/%'
                      and substring(application_name from '[0-9]+$')::bigint < $2";
        let name = format!("vitrina/{pipeline}");
        let row = self.client.query_one(sql, &[&name, &token.0]).await;
        match row.map_err(|error| self.explain(error))?.get::<_, i64>(0) {
            0 => {}
            ended => tracing::warn!(pipeline_id = %pipeline, ended, "ended sessions of an older lease"),
        }
        Ok(())
    }

    /// Which server it is, and on which history: two databases of one server answer the same.
    pub(crate) async fn server(&self) -> Result<String> {
        const SQL: &str = "select concat_ws('/', (select system_identifier from pg_control_system()), case when pg_is_in_recovery() then (select timeline_id::text from pg_control_checkpoint()) else left(pg_walfile_name(pg_current_wal_insert_lsn()), 8) end, pg_postmaster_start_time())";
        let rows = self.rows(SQL).await?;
        rows.first().map(|row| row.get(0)).ok_or_else(|| Error::bug("connection.server", "no answer"))
    }

    /// The answer to a statement that is asked in every run: parsed and planned once a session.
    pub(crate) async fn rows(&self, sql: &'static str) -> Result<Vec<Row>> {
        let mut known = self.known.lock().await;
        let statement = match known.get(sql) {
            Some(statement) => statement.clone(),
            None => {
                let prepared = self.client.prepare(sql).await.map_err(|error| self.explain(error))?;
                known.insert(sql, prepared.clone());
                prepared
            }
        };
        drop(known);
        self.client.query(&statement, &[]).await.map_err(|error| self.explain(error))
    }

    /// Statements without an answer.
    pub(crate) async fn run(&self, sql: &str) -> Result<()> {
        self.client.batch_execute(sql).await.map_err(|error| self.explain(error))
    }

    pub(crate) fn explain(&self, error: tokio_postgres::Error) -> Error {
        classify(self.end, &self.connection, error)
    }
}

fn bad_url(name: &str) -> Error {
    Error::fix("connection.url", format!("the url of connection {name:?} is no Postgres URL"))
        .hint("write postgres://user:password@host:5432/database")
}

/// No run waits for it: somebody has to give another address.
fn pooled(end: End, connection: &str) -> Error {
    let code = if end == End::Source { "source.pooled" } else { "sink.pooled" };
    Error::fix(code, format!("connection {connection:?} cannot be used: {POOLED}")).hint(DIRECT)
}

/// A database that takes no connections, as while it is restored, will; one that is not there may be made again, if it ever was.
fn connect_error(end: End, connection: &str, error: tokio_postgres::Error) -> Error {
    let code = if end == End::Source { "source.unavailable" } else { "sink.unavailable" };
    let remedy = match error.code().map(SqlState::code) {
        Some("55000") => Remedy::Release,
        Some("3D000") => Remedy::AwaitLogin,
        _ => return classify(end, connection, error),
    };
    let reason = error.as_db_error().map_or_else(String::new, |refusal| refusal.message().to_owned());
    Error::new(remedy, code, format!("connection {connection:?} cannot be used now: {reason}"))
        .caused_by(error)
}

fn lost(end: End, connection: &str, reason: &str) -> Error {
    let (code, side) = match end {
        End::Source => ("source.connection_lost", "source"),
        End::Sink => ("sink.connection_lost", "mart"),
    };
    Error::release(code, format!("the {side} connection {connection:?} is lost: {reason}"))
}

/// What a Postgres error means for the run. The end and the connection's name tell source, mart and
/// meta-store apart; values of rows are marked.
pub(crate) fn classify(end: End, connection: &str, error: tokio_postgres::Error) -> Error {
    let Some(refusal) = error.as_db_error() else { return without_state(end, connection, error) };
    let side = if end == End::Source { "source" } else { "mart" };
    let state = refusal.code().code().to_owned();
    let message = format!("the {side} {connection:?} answers {state}: {}", marked(refusal));
    let [unavailable, busy, locked, login_refused, refused] = match end {
        End::Source => {
            ["source.unavailable", "source.busy", "source.locked", "source.login_refused", "source.refused"]
        }
        End::Sink => ["sink.unavailable", "sink.busy", "sink.locked", "sink.login_refused", "sink.refused"],
    };
    match state.as_str() {
        "VT001" => Error::lease_lost(),
        "VT002" => Error::checkpoint_moved(),
        "VT004" => Error::reject_limit("too many rejects"),
        // Shutdown, crash recovery, a primary that became a standby, a full disk, too many connections: it will be back.
        "57P01" | "57P02" | "57P03" | "57P05" | "25006" | "53100" | "53300" => {
            Error::release(unavailable, message).caused_by(error)
        }
        state if state.starts_with("08") => Error::release(unavailable, message).caused_by(error),
        // Whoever changes a table may need hours for it.
        "55P03" => Error::release(locked, message).of_kind(ErrorKind::Locked).caused_by(error),
        "28P01" | "28000" => Error::new(Remedy::AwaitLogin, login_refused, message)
            .caused_by(error)
            .hint("check user and password of its url, and pg_hba.conf of the server"),
        // Serialization, deadlock, resources, cancelled or timed out.
        state if ["40", "53", "57"].iter().any(|class| state.starts_with(class)) => {
            Error::retry(busy, message).caused_by(error)
        }
        // Data exceptions.
        state if state.starts_with("22") => Error::fix(refused, message).of_kind(ErrorKind::ValueRefused),
        _ => Error::fix(refused, message).of_kind(ErrorKind::StatementRefused),
    }
}

/// The server has not spoken: either the line is cut, or the two sides cannot agree to talk at all.
fn without_state(end: End, connection: &str, error: tokio_postgres::Error) -> Error {
    let cause = std::error::Error::source(&error);
    let is_io = cause.is_some_and(|cause| cause.is::<std::io::Error>());
    let reason = cause.map_or_else(|| error.to_string(), |cause| format!("{error}: {cause}"));
    if is_io || error.is_closed() || reason.contains("timed out") {
        return lost(end, connection, &reason).caused_by(error);
    }
    let code = if end == End::Source { "source.cannot_connect" } else { "sink.cannot_connect" };
    Error::fix(code, format!("connection {connection:?} cannot be used: {reason}"))
        .hint("check user, password, database and sslmode of its url")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unknown_connection_is_told_with_the_known_ones() {
        let url = Secret::from("postgres://localhost/x");
        let known = Connection::new("cinema", url, vec![]);
        let connections = Connections(BTreeMap::from([("cinema".to_owned(), known)]));
        let error = connections.get("cinemas").unwrap_err();
        assert!(
            error.to_string().contains("cinemas")
                && error.to_string().ends_with("configured connections: cinema")
        );
    }
}
