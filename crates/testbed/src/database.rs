//! One test's own database: dropped when the test succeeds, kept when it panics.

use std::fmt;
use std::sync::Mutex;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use tokio::task::JoinSet;
use tokio_postgres::types::FromSqlOwned;
use tokio_postgres::{Client, SimpleQueryMessage};

use crate::name;
use crate::server::{Server, connect};

pub struct Database {
    server: &'static Server,
    name: String,
    url: String,
    session: Client,
    /// Drives the connections of all clients and ends them with the database.
    connections: Mutex<JoinSet<()>>,
}

impl Database {
    /// Creates an empty database, named after the test.
    pub async fn fresh() -> Self {
        Self::on(Server::shared().await).await
    }

    /// On a server that no other test uses, so that it may `crash`.
    pub async fn on_a_server_of_its_own() -> Self {
        Self::on(Server::own().await).await
    }

    /// Shuts the server down at once, as a power cut would, starts it again and connects anew.
    pub async fn crash(self) -> Self {
        self.server.crash().await;
        self.connected_anew().await
    }

    /// Copies the files of the server, which is down meanwhile, as from a power cut on.
    pub async fn back_up(self) -> Self {
        self.server.back_up().await;
        self.connected_anew().await
    }

    /// Puts the copied files back: what was committed since never happened.
    pub async fn restore(self) -> Self {
        self.server.restore().await;
        self.connected_anew().await
    }

    async fn connected_anew(mut self) -> Self {
        let connections = self.connections.get_mut().expect("no holder panics");
        self.session = open(&self.url, connections).await;
        self
    }

    /// Until the answer is dropped, the server's log reaches its disk by commits, hardly else.
    pub async fn stop_log_writer(&self) -> impl Drop + use<> {
        self.server.require_private();
        let pid: i32 = self.value("select pid from pg_stat_activity where backend_type = 'walwriter'").await;
        Stopped::new(Pid::from_raw(pid))
    }

    /// A standby of the server that this database has for itself; answers the URL of the database there.
    pub async fn standby(&self) -> String {
        self.server.standby(&self.name).await
    }

    /// A copy of it as it is now. Sessions of others end meanwhile; its own is opened anew.
    pub async fn copy(&mut self) -> Self {
        let from = self.name.clone();
        self.server.administer(&format!("alter database {from} allow_connections false")).await;
        let end = "select pg_terminate_backend(pid, 10000) from pg_stat_activity where datname";
        self.server.administer(&format!("{end} = '{from}'")).await;
        let copy = Self::from_template(self.server, &from).await;
        self.server.administer(&format!("alter database {from} allow_connections true")).await;
        let connections = self.connections.get_mut().expect("no holder panics");
        self.session = open(&self.url, connections).await;
        copy
    }

    async fn on(server: &'static Server) -> Self {
        Self::from_template(server, "template0").await
    }

    async fn from_template(server: &'static Server, template: &str) -> Self {
        let name = name::of_test();
        server.administer(&format!("create database {name} template {template}")).await;
        let url = server.url(&name).to_string();
        let mut connections = JoinSet::new();
        let session = open(&url, &mut connections).await;
        Self { server, name, url, session, connections: Mutex::new(connections) }
    }

    /// The superuser's URL of this database.
    pub fn url(&self) -> &str {
        &self.url
    }

    /// The URL of this database for another role. Roles belong to the server: give them names of their own.
    pub fn url_as(&self, user: &str, password: &str) -> String {
        self.server.url_as(&self.name, user, password).into()
    }

    /// The superuser's URL of another database of the same server.
    pub fn server_url(&self, database: &str) -> String {
        self.server.url(database).into()
    }

    pub fn name(&self) -> &str {
        &self.name
    }

    /// A session of its own, which ends with the database.
    pub async fn client(&self) -> Client {
        let (client, connection) = connect(&self.url).await;
        self.connections.lock().expect("no holder panics").spawn(async move { drop(connection.await) });
        client
    }

    /// Runs any number of statements.
    pub async fn execute(&self, sql: &str) {
        self.session.batch_execute(sql).await.unwrap_or_else(|error| panic!("{sql}: {error:?}"));
    }

    /// The single value that a query yields.
    pub async fn value<T: FromSqlOwned>(&self, sql: &str) -> T {
        let row = self.session.query_one(sql, &[]).await.unwrap_or_else(|error| panic!("{sql}: {error:?}"));
        row.try_get(0).unwrap_or_else(|error| panic!("{sql}: {error:?}"))
    }

    /// All rows of a query, as Postgres writes the values.
    pub async fn texts(&self, sql: &str) -> Vec<Vec<Option<String>>> {
        let messages =
            self.session.simple_query(sql).await.unwrap_or_else(|error| panic!("{sql}: {error:?}"));
        let rows = messages.into_iter().filter_map(|message| match message {
            SimpleQueryMessage::Row(row) => Some(row),
            _ => None,
        });
        rows.map(|row| (0..row.len()).map(|column| row.get(column).map(str::to_owned)).collect()).collect()
    }
}

impl fmt::Debug for Database {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Database").field("name", &self.name).finish_non_exhaustive()
    }
}

impl Drop for Database {
    fn drop(&mut self) {
        if thread::panicking() {
            keep(self.server, &self.name);
        } else {
            drop_database(self.server, &self.name);
        }
    }
}

fn keep(server: &Server, name: &str) {
    if server.outlives_the_process() {
        eprintln!("kept database {name}");
    } else {
        eprintln!("database {name} ends with this process; to keep it, set {}", crate::DATABASE_URL);
    }
}

/// How long a test waits for its database to be dropped. Under load Postgres may take a minute for it, waiting for
/// one of its own processes; the statement goes on without the test.
const PATIENCE: Duration = Duration::from_secs(2);

/// On a thread with a runtime of its own: the test's runtime cannot be waited for from here.
fn drop_database(server: &'static Server, name: &str) {
    let statement = format!("drop database {name} with (force)");
    let (done, waiting) = mpsc::channel();
    thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        runtime.expect("a runtime for one statement").block_on(server.administer(&statement));
        done.send(()).ok();
    });
    if waiting.recv_timeout(PATIENCE) == Err(RecvTimeoutError::Disconnected) {
        eprintln!("database {name} is left behind");
    }
}

async fn open(url: &str, connections: &mut JoinSet<()>) -> Client {
    let (client, connection) = connect(url).await;
    connections.spawn(async move { drop(connection.await) });
    client
}

struct Stopped(Pid);

impl Stopped {
    fn new(pid: Pid) -> Self {
        kill(pid, Signal::SIGSTOP).expect("it is there");
        Self(pid)
    }
}

impl Drop for Stopped {
    fn drop(&mut self) {
        kill(self.0, Signal::SIGCONT).ok();
    }
}
