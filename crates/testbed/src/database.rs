//! One test's own database: dropped when the test succeeds, kept when it panics.

use std::collections::HashMap;
use std::fmt;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use tokio::sync;
use tokio::task::JoinSet;
use tokio_postgres::types::FromSqlOwned;
use tokio_postgres::{Client, SimpleQueryMessage};

use crate::name;
use crate::server::{Server, connect};
use crate::slot::Slot;

pub struct Database {
    server: &'static Server,
    /// None on a server of its own.
    slot: Option<Arc<Slot>>,
    name: String,
    url: String,
    session: Client,
    /// Drives the connections of all clients and ends them with the database.
    connections: Mutex<JoinSet<()>>,
}

impl Database {
    /// Creates an empty database, named after the test.
    pub async fn fresh() -> Self {
        let slot = Slot::of_test().await;
        Self::from_template(slot.server, Some(slot), "template0").await
    }

    /// What `prepare` makes of an empty database, given by its URL. It does so once for a server and process; every further
    /// database is a copy, which takes a fraction of the time.
    pub async fn prepared(prepare: impl AsyncFnOnce(&str)) -> Self {
        static TEMPLATES: sync::Mutex<Option<HashMap<String, String>>> = sync::Mutex::const_new(None);
        let slot = Slot::of_test().await;
        if !slot.server.is_throwaway {
            let database = Self::fresh().await;
            prepare(database.url()).await;
            return database;
        }
        let mut templates = TEMPLATES.lock().await;
        let templates = templates.get_or_insert_default();
        let server = slot.server.url("postgres").to_string();
        let template = match templates.get(&server) {
            Some(template) => template.clone(),
            None => {
                let name = format!("template_{}", name::random());
                slot.server.administer(&format!("create database {name} template template0")).await;
                prepare(slot.server.url(&name).as_str()).await;
                close(slot.server, &name).await;
                templates.insert(server, name.clone());
                name
            }
        };
        Self::from_template(slot.server, Some(slot), &template).await
    }

    /// On a server that no other test uses, so that it may `crash`.
    pub async fn on_a_server_of_its_own() -> Self {
        Self::from_template(Server::own().await, None, "template0").await
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
        close(self.server, &from).await;
        let copy = Self::from_template(self.server, self.slot.clone(), &from).await;
        self.server.administer(&format!("alter database {from} allow_connections true")).await;
        let connections = self.connections.get_mut().expect("no holder panics");
        self.session = open(&self.url, connections).await;
        copy
    }

    async fn from_template(server: &'static Server, slot: Option<Arc<Slot>>, template: &str) -> Self {
        let name = name::of_test();
        server.administer(&format!("create database {name} template {template}")).await;
        let url = server.url(&name).to_string();
        let mut connections = JoinSet::new();
        let session = open(&url, &mut connections).await;
        Self { server, slot, name, url, session, connections: Mutex::new(connections) }
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

/// Ends all sessions of a database and lets nobody in, so that it can be copied.
async fn close(server: &Server, name: &str) {
    server.administer(&format!("alter database {name} allow_connections false")).await;
    let end = "select pg_terminate_backend(pid, 10000) from pg_stat_activity where datname";
    server.administer(&format!("{end} = '{name}'")).await;
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
