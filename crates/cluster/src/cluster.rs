//! Starting, reusing, stopping and removing a private Postgres.

use std::path::{Path, PathBuf};

use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use secrecy::{ExposeSecret, SecretString};

use crate::home::Home;
use crate::launch;
use crate::programs::Programs;
use crate::watchdog::Watchdog;
use crate::{Error, Installation, Result};

#[derive(Debug, Clone)]
pub struct Options {
    /// Holds everything; created when it is not there.
    pub directory: PathBuf,
    /// `None`: the port of last time if it is free, else any free one.
    pub port: Option<u16>,
    /// Counts when the directory is new; later the server keeps the name it has.
    pub superuser: String,
    /// Settings of Postgres, on top of ours; they count from the next start of the server.
    pub settings: Vec<(String, String)>,
    /// The server ends with this process and its directory is deleted: for tests.
    pub die_with_parent: bool,
    /// A new directory becomes a standby of this server.
    pub standby_of: Option<Primary>,
    /// The superuser of a new directory logs in by md5, which is two rounds of a hash and not the thousands of scram-sha-256: for tests, which
    /// log in thousands of times. Other roles are as ever.
    pub quick_logins: bool,
}

/// A running server as a standby needs to know it.
#[derive(Debug, Clone)]
pub struct Primary {
    pub(crate) superuser: String,
    pub(crate) password: SecretString,
    pub(crate) port: u16,
}

impl Options {
    pub fn new(directory: impl Into<PathBuf>) -> Self {
        Self {
            directory: directory.into(),
            port: None,
            superuser: "postgres".to_owned(),
            settings: Vec::new(),
            die_with_parent: false,
            standby_of: None,
            quick_logins: false,
        }
    }
}

/// A server that answers. Dropping it leaves the server running, unless it is to die with its parent.
#[derive(Debug)]
pub struct Cluster {
    programs: Programs,
    port: u16,
    superuser: String,
    password: SecretString,
    was_running: bool,
    watchdog: Option<Watchdog>,
}

impl Cluster {
    pub fn start(options: &Options) -> Result<Self> {
        let directory = absolute(&options.directory)?;
        let programs = Programs::find(&directory)?;
        let home = Home::claim(&directory, &programs.account)?;
        programs.account.check_reach(home.path())?;
        let watchdog = watch(options, &home)?;
        launch::initialise(options, &programs, &home)?;
        let running = home.running_port();
        let port = match running {
            Some(port) => same_port(options, port)?,
            None => launch::launch(options, &programs, &home)?,
        };
        Ok(Self {
            port,
            superuser: home.recall("superuser").unwrap_or_else(|| options.superuser.clone()),
            password: home.recall("password").unwrap_or_default().into(),
            was_running: running.is_some(),
            watchdog,
            programs,
        })
    }

    /// The superuser's URL. It holds the password: show it to no one but the owner of the directory.
    pub fn url(&self, database: &str) -> String {
        let encoded = |part| utf8_percent_encode(part, NON_ALPHANUMERIC);
        let (user, password) = (encoded(&self.superuser), encoded(self.password.expose_secret()));
        format!("postgres://{user}:{password}@127.0.0.1:{}/{}", self.port, encoded(database))
    }

    pub fn port(&self) -> u16 {
        self.port
    }

    pub fn directory(&self) -> &Path {
        &self.programs.directory
    }

    /// For a standby of this server.
    pub fn primary(&self) -> Primary {
        let (superuser, password) = (self.superuser.clone(), self.password.clone());
        Primary { superuser, password, port: self.port }
    }

    /// The process id of the server, as long as it runs.
    pub fn postmaster(&self) -> Option<i32> {
        let pidfile =
            std::fs::read_to_string(crate::home::data(self.directory()).join("postmaster.pid")).ok()?;
        pidfile.lines().next()?.trim().parse().ok()
    }

    pub fn installation(&self) -> &Installation {
        &self.programs.installation
    }

    /// Whether the server was there before `start`.
    pub fn was_running(&self) -> bool {
        self.was_running
    }

    /// Ends all sessions, shuts down in order and waits for it.
    pub fn stop(self) -> Result<()> {
        let stopped = self.programs.stop();
        if let Some(watchdog) = self.watchdog {
            watchdog.finish();
        }
        stopped
    }
}

/// Stops the server in `directory` if it runs and deletes it all. Nothing there is nothing to do;
/// a directory that is not a private Postgres of Vitrina is refused.
pub fn remove(directory: &Path) -> Result<()> {
    let directory = absolute(directory)?;
    let Some(home) = Home::existing(&directory)? else { return Ok(()) };
    if home.running_port().is_some() {
        Programs::find(&directory)?.stop()?;
    }
    home.delete()
}

fn absolute(path: &Path) -> Result<PathBuf> {
    std::path::absolute(path).map_err(Error::at(path))
}

fn watch(options: &Options, home: &Home) -> Result<Option<Watchdog>> {
    let watchdog = options.die_with_parent.then(|| Watchdog::over(home.path())).transpose();
    watchdog.map_err(|cause| Error::Spawn { program: "/bin/sh".into(), cause })
}

fn same_port(options: &Options, port: u16) -> Result<u16> {
    match options.port {
        Some(asked) if asked != port => {
            Err(Error::OnOtherPort { path: options.directory.clone(), port, asked })
        }
        _ => Ok(port),
    }
}
