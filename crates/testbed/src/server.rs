//! A server that tests are on.

use std::env;
use std::path::{Path, PathBuf};
use std::thread;

use nix::sys::signal::{Signal, kill};
use nix::sys::statvfs::statvfs;
use nix::unistd::Pid;
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use tokio_postgres::{Client, Connection, NoTls, Socket, tls::NoTlsStream};
use url::Url;
use uuid::Uuid;
use vitrina_cluster::{Cluster, Options, Primary};

/// The variable that names a server to use, by the URL of a superuser.
pub const DATABASE_URL: &str = "VITRINA_TEST_DATABASE_URL";
/// The variable that names servers which somebody else starts for the tests and throws away after them.
pub const SERVERS: &str = "VITRINA_TEST_SERVERS";

/// Starts servers that end with this process and leave nothing behind. Blocks.
pub fn throwaway_clusters(count: usize) -> vitrina_cluster::Result<Vec<Cluster>> {
    let starts: Vec<_> = (0..count).map(|_| thread::spawn(|| throwaway(None))).collect();
    starts.into_iter().map(|start| start.join().expect("starting does not panic")).collect()
}

fn throwaway(standby_of: Option<Primary>) -> vitrina_cluster::Result<Cluster> {
    let name = format!("vitrina-test-{}", Uuid::new_v4().simple());
    let settings = [
        ("fsync", "off"),
        ("full_page_writes", "off"),
        ("max_connections", "200"),
        ("max_wal_size", "256MB"),
    ];
    Cluster::start(&Options {
        settings: settings.map(|(name, value)| (name.to_owned(), value.to_owned())).into(),
        die_with_parent: true,
        quick_logins: true,
        standby_of,
        ..Options::new(throwaway_folder().join(name))
    })
}

/// Memory where the system has some to spare: every test makes a database and drops it, and a disk that is busy with that
/// answers late.
fn throwaway_folder() -> PathBuf {
    const MEMORY: &str = "/dev/shm";
    const NEEDED: u64 = 4 << 30;
    let chosen = env::var_os("TMPDIR").is_some_and(|folder| !folder.is_empty());
    let free = || statvfs(MEMORY).map(|it| it.blocks_available() * it.fragment_size()).unwrap_or_default();
    if chosen || free() < NEEDED { env::temp_dir() } else { MEMORY.into() }
}

#[derive(Debug)]
pub(crate) struct Server {
    url: Url,
    /// Never dropped, as the server is a static: it ends when the process does.
    private: Option<Cluster>,
    /// Goes when the tests are over: what is left on it is in nobody's way.
    pub(crate) is_throwaway: bool,
}

impl Server {
    /// The ones that are named, else one that is started. Blocks.
    pub(crate) fn found() -> Vec<&'static Self> {
        let given = |name| env::var(name).ok().filter(|urls| !urls.trim().is_empty());
        let named = |name, is_throwaway| {
            let parse = move |url: &str| {
                let url = Url::parse(url).unwrap_or_else(|error| panic!("{name} is not a URL: {error}"));
                Self { url, private: None, is_throwaway }.forever()
            };
            given(name).map(|urls| urls.split_whitespace().map(parse).collect())
        };
        named(SERVERS, true).or_else(|| named(DATABASE_URL, false)).unwrap_or_else(|| vec![Self::private()])
    }

    fn private() -> &'static Self {
        let cluster = throwaway(None).unwrap_or_else(|error| panic!("{error}"));
        let url = Url::parse(&cluster.url("postgres")).expect("a cluster's address is a URL");
        Self { url, private: Some(cluster), is_throwaway: true }.forever()
    }

    fn forever(self) -> &'static Self {
        Box::leak(Box::new(self))
    }

    /// One more server; like the shared one it ends with the process.
    pub(crate) async fn own() -> &'static Self {
        tokio::task::spawn_blocking(Self::private).await.expect("a Postgres for this test")
    }

    /// Others would feel what is done to theirs.
    pub(crate) fn require_private(&self) -> &Cluster {
        self.private.as_ref().expect("a server of the test's own")
    }

    /// What `pg_ctl restart -m immediate` does. The watchdog of the first start looks after the second as well.
    pub(crate) async fn crash(&'static self) {
        self.while_down(|_| {}).await;
    }

    /// All that is committed by now is in the copy, which there is one of.
    pub(crate) async fn back_up(&'static self) {
        self.while_down(|folder| replace(&folder.join("data"), &folder.join("copy"))).await;
    }

    /// What was committed since the copy was made never happened.
    pub(crate) async fn restore(&'static self) {
        self.while_down(|folder| replace(&folder.join("copy"), &folder.join("data"))).await;
    }

    /// `act` gets the cluster's folder.
    async fn while_down(&'static self, act: impl FnOnce(&Path) + Send + 'static) {
        let cluster = self.require_private();
        let restart = move || {
            let pid = cluster.postmaster().expect("the server runs");
            kill(Pid::from_raw(pid), Signal::SIGQUIT).expect("the server can be told to quit");
            while kill(Pid::from_raw(pid), None).is_ok() {
                std::thread::sleep(std::time::Duration::from_millis(5));
            }
            act(cluster.directory());
            let options = Options { port: Some(cluster.port()), ..Options::new(cluster.directory()) };
            Cluster::start(&options).unwrap_or_else(|error| panic!("{error}"));
        };
        tokio::task::spawn_blocking(restart).await.expect("the server starts again");
    }

    /// A standby of this server; like it, it ends with the process. Answers the URL of a database there.
    pub(crate) async fn standby(&'static self, database: &str) -> String {
        let primary = self.require_private().primary();
        let start = || {
            let standby = throwaway(Some(primary)).unwrap_or_else(|error| panic!("{error}"));
            &*Box::leak(Box::new(standby))
        };
        let standby = tokio::task::spawn_blocking(start).await.expect("a standby for this test");
        standby.url(database)
    }

    pub(crate) fn outlives_the_process(&self) -> bool {
        self.private.is_none()
    }

    pub(crate) fn url(&self, database: &str) -> Url {
        let mut url = self.url.clone();
        url.set_path(&encoded(database));
        url
    }

    pub(crate) fn url_as(&self, database: &str, user: &str, password: &str) -> Url {
        let mut url = self.url(database);
        url.set_username(&encoded(user)).expect("a server's URL has a host");
        url.set_password(Some(&encoded(password))).expect("a server's URL has a host");
        url
    }

    /// Runs statements as the superuser, outside of the test's database.
    pub(crate) async fn administer(&self, sql: &str) {
        let (client, connection) = connect(self.url.as_str()).await;
        let work = async move { client.batch_execute(sql).await };
        let (done, _) = tokio::join!(work, connection);
        done.unwrap_or_else(|error| panic!("{sql}: {error:?}"));
    }
}

pub(crate) async fn connect(url: &str) -> (Client, Connection<Socket, NoTlsStream>) {
    tokio_postgres::connect(url, NoTls)
        .await
        .unwrap_or_else(|error| panic!("cannot connect to Postgres: {error:?}"))
}

fn encoded(part: &str) -> String {
    utf8_percent_encode(part, NON_ALPHANUMERIC).to_string()
}

/// With owners and modes, which Postgres insists on.
fn replace(from: &Path, to: &Path) {
    if to.exists() {
        std::fs::remove_dir_all(to).expect("our folder");
    }
    let copied = std::process::Command::new("cp").arg("-a").arg(from).arg(to).status();
    assert!(copied.expect("cp").success(), "{} is copied", from.display());
}
