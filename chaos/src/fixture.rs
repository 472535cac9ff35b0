//! A private Postgres that may crash, with source, marts and meta-store in one database, made by the binary
//! that is tested.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use tokio::task::JoinSet;
use tokio_postgres::{Client, NoTls};
use vitrina_cluster::{Cluster, Options};

use crate::fault_schedule::FaultSchedule;
use crate::remote::Remote;
use crate::restored_source::RestoredSource;

/// Cheap to clone: all share the server.
#[derive(Debug, Clone)]
pub struct Fixture {
    cluster: Arc<Cluster>,
    /// A source that is restored from a copy now and then.
    pub(crate) restored_source: Arc<RestoredSource>,
    pub(crate) remote: Arc<Remote>,
    pub binary: PathBuf,
    /// Logs of all processes.
    pub logs: PathBuf,
    pub url: String,
}

/// A session that ends when it is dropped.
#[derive(Debug)]
pub struct Session {
    pub client: Client,
    _driver: JoinSet<()>,
}

/// A crash of the server's processes leaves what the kernel holds: there is no need to wait for disks. What was
/// committed without waiting is lost in it all the same.
const SETTINGS: [(&str, &str); 5] = [
    ("fsync", "off"),
    ("full_page_writes", "off"),
    ("max_connections", "250"),
    ("shared_buffers", "64MB"),
    ("autovacuum_naptime", "5s"),
];
/// More than there are runners at a time, so that neighbours differ.
const LOGINS: u32 = 16;
/// Also the name of the harness's own sessions, which are left alone.
const APPLICATION: &str = "chaos";

impl Fixture {
    pub async fn prepare(binary: &Path, folder: &Path, schedule: &FaultSchedule) -> Result<Self> {
        let logs = folder.join("logs");
        std::fs::create_dir_all(&logs)?;
        let options = Options {
            settings: SETTINGS.map(|(name, value)| (name.to_owned(), value.to_owned())).into(),
            die_with_parent: true,
            ..Options::new(folder.join("postgres"))
        };
        let cluster = tokio::task::spawn_blocking(move || Cluster::start(&options)).await??;
        let administrator = connect(&cluster.url("postgres")).await?;
        administrator.client.batch_execute("create database cinema").await?;
        administrator.client.batch_execute("create database remote").await?;
        let url = cluster.url("cinema");
        let restored_source = Arc::new(RestoredSource::start(&folder.join("restored_source")).await?);
        let remote = Remote::prepare(cluster.url("remote"), schedule.search, schedule.seed).await?;
        let (cluster, remote) = (Arc::new(cluster), Arc::new(remote));
        let fixture = Self { cluster, restored_source, remote, binary: binary.to_owned(), logs, url };
        fixture.fill().await?;
        Ok(fixture)
    }

    /// The change log comes after the tables and before the pipelines, the harness's triggers last.
    async fn fill(&self) -> Result<()> {
        let session = self.session().await?;
        self.vitrina("migrate", &["migrate"])?;
        session.client.batch_execute(include_str!("../sql/source.sql")).await.context("source.sql")?;
        session.client.batch_execute(include_str!("../sql/trials.sql")).await.context("trials.sql")?;
        for table in ["content.actor", "content.delete_limit"] {
            self.vitrina(
                "changelog",
                &["changelog", "install", table, "--connection", "content", "--key", "id", "--apply"],
            )?;
        }
        for login in 0..LOGINS {
            session
                .client
                .batch_execute(&format!("create role chaos_{login} superuser login password 'chaos'"))
                .await?;
        }
        session.client.batch_execute(include_str!("../sql/history.sql")).await.context("history.sql")
    }

    pub async fn session(&self) -> Result<Session> {
        connect(&self.url).await
    }

    /// Runs a command of the binary to its end.
    fn vitrina(&self, name: &str, arguments: &[&str]) -> Result<()> {
        let status = self.command(name, arguments)?.status()?;
        ensure!(status.success(), "vitrina {} failed: see {}", arguments.join(" "), self.log(name).display());
        Ok(())
    }

    /// The binary with this fixture's addresses and nothing of the caller's settings.
    pub(crate) fn command(&self, name: &str, arguments: &[&str]) -> Result<Command> {
        let log = std::fs::File::create(self.log(name))?;
        let mut command = Command::new(&self.binary);
        for (variable, _) in std::env::vars().filter(|(variable, _)| variable.starts_with("VITRINA_")) {
            command.env_remove(variable);
        }
        command
            .args(arguments)
            .env("VITRINA_DATABASE_URL", &self.url)
            .env("VITRINA_CONNECTIONS_CONTENT_URL", &self.url)
            .env("VITRINA_CONNECTIONS_CONTENT_ALLOWED_SCHEMAS", "content")
            .env("VITRINA_CONNECTIONS_MARTS_URL", &self.url)
            .env("VITRINA_CONNECTIONS_RESTORED_SOURCE_URL", self.restored_source.url())
            .env("VITRINA_CONNECTIONS_RESTORED_SOURCE_ALLOWED_SCHEMAS", "content")
            .env("VITRINA_CONNECTIONS_REMOTE_URL", self.remote.remote_url())
            .env("VITRINA_LOG_FORMAT", "text")
            .current_dir(&self.logs)
            .stdin(Stdio::null())
            .stdout(log.try_clone()?)
            .stderr(log);
        if let Some(url) = self.remote.search_url() {
            command.env("VITRINA_CONNECTIONS_SEARCH_URL", url);
        }
        Ok(command)
    }

    /// Under the login that all share, or under one of their own.
    pub(crate) fn marts_url(&self, login: Option<u32>) -> String {
        let Some(login) = login else { return self.url.clone() };
        let server = self.url.split_once('@').map_or(self.url.as_str(), |(_, server)| server);
        format!("postgres://chaos_{}:chaos@{server}", login % LOGINS)
    }

    pub fn log(&self, name: &str) -> PathBuf {
        self.logs.join(format!("{name}.log"))
    }

    /// What `pg_ctl restart -m immediate` does. The watchdog of the first start looks after the second as well.
    pub async fn restart(&self) -> Result<()> {
        let cluster = Arc::clone(&self.cluster);
        tokio::task::spawn_blocking(move || crash(&cluster)).await?
    }

    /// Ends the server and deletes its data; the logs stay.
    pub async fn clear(self) -> Result<()> {
        if let Some(restored_source) = Arc::into_inner(self.restored_source) {
            restored_source.stop().await.ok();
        }
        let Some(cluster) = Arc::into_inner(self.cluster) else { return Ok(()) };
        tokio::task::spawn_blocking(move || cluster.stop()).await?.ok();
        Ok(())
    }
}

/// Ends a server as a power cut does.
pub(crate) fn cut_off(cluster: &Cluster) -> Result<()> {
    let pid = Pid::from_raw(cluster.postmaster().context("the server runs")?);
    kill(pid, Signal::SIGQUIT)?;
    while kill(pid, None).is_ok() {
        thread::sleep(Duration::from_millis(5));
    }
    Ok(())
}

fn crash(cluster: &Cluster) -> Result<()> {
    cut_off(cluster)?;
    let options = Options { port: Some(cluster.port()), ..Options::new(cluster.directory()) };
    let settings = SETTINGS.map(|(name, value)| (name.to_owned(), value.to_owned())).into();
    Cluster::start(&Options { settings, ..options })?;
    Ok(())
}

pub(crate) async fn connect(url: &str) -> Result<Session> {
    let mut config: tokio_postgres::Config = url.parse()?;
    config.application_name(APPLICATION).connect_timeout(Duration::from_secs(5));
    let (client, connection) = config.connect(NoTls).await?;
    let mut driver = JoinSet::new();
    driver.spawn(async move { drop(connection.await) });
    Ok(Session { client, _driver: driver })
}
