//! What can go wrong before a private Postgres answers, each with what to do about it.

use std::io;
use std::path::{Path, PathBuf};

pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Meant to be shown as it is: causes stand in the message, so that the hint comes last.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error(
        "no Postgres installation found; looked in {}\nhint: `apt-get install postgresql` (Debian, Ubuntu), \
         `dnf install postgresql-server` (Fedora, RHEL) or `brew install postgresql@17` (macOS), \
         or set VITRINA_PG_BINDIR to the directory of initdb",
        listed(.looked)
    )]
    NoInstallation { looked: Vec<PathBuf> },

    #[error(
        "{} has no {missing}\nhint: set VITRINA_PG_BINDIR to the directory that holds initdb, postgres and pg_ctl",
        .bindir.display()
    )]
    Incomplete { bindir: PathBuf, missing: &'static str },

    #[error(
        "Postgres {version} in {} is too old\nhint: install Postgres {} or newer, \
         or set VITRINA_PG_BINDIR to the directory of one",
        .bindir.display(), crate::OLDEST_MAJOR
    )]
    TooOld { bindir: PathBuf, version: String },

    #[error("cannot use {}: {cause}\nhint: choose a directory that you can write to", .path.display())]
    Directory { path: PathBuf, cause: io::Error },

    #[error(
        "{} is neither empty nor a private Postgres of Vitrina\nhint: choose a new or an empty directory",
        .path.display()
    )]
    NotOurs { path: PathBuf },

    #[error(
        "the user {user}, as whom servers run because Postgres refuses root, cannot enter {}\n\
         hint: choose a directory below one that all users can enter, such as /var/tmp/vitrina",
        .path.display()
    )]
    NotReachable { path: PathBuf, user: String },

    #[error(
        "Postgres refuses to run as root and there is no user postgres or nobody to run it as\n\
         hint: start vitrina as an ordinary user"
    )]
    NoAccount,

    #[error("port {port} of 127.0.0.1 is taken\nhint: name a free port, or none to have one found")]
    PortTaken { port: u16 },

    #[error("no port of 127.0.0.1 to be had: {cause}\nhint: name a port that this user may listen on")]
    NoPort { cause: io::Error },

    #[error(
        "the Postgres in {} already runs on port {port}, not on {asked}\n\
         hint: name port {port} or none, or stop it first",
        .path.display()
    )]
    OnOtherPort { path: PathBuf, port: u16, asked: u16 },

    #[error("cannot run {}: {cause}\nhint: check the installation of Postgres", .program.display())]
    Spawn { program: PathBuf, cause: io::Error },

    #[error("{program} failed: {output}\nhint: the log of the server is {}", .log.display())]
    Failed { program: &'static str, output: String, log: PathBuf },
}

impl Error {
    /// For `map_err` on operations on files.
    pub(crate) fn at(path: &Path) -> impl FnOnce(io::Error) -> Self {
        move |cause| Self::Directory { path: path.to_owned(), cause }
    }
}

fn listed(paths: &[PathBuf]) -> String {
    paths.iter().map(|path| path.display().to_string()).collect::<Vec<_>>().join(", ")
}
