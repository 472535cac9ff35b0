//! A private Postgres with database `cinema` and the two logins, in one directory that one demo uses at a time.
//! `stand.env` in it holds the addresses and passwords, and is the demo's whole configuration.

use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions, Permissions, TryLockError};
use std::io::{ErrorKind, Write};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};
use nix::unistd::Uid;
use sqlx::{Connection, PgConnection};
use url::Url;
use uuid::Uuid;
use vitrina_cluster::{Cluster, Options};
use vitrina_guard::FromPublic;

use super::search;
use crate::config::{Config, Flag, Inputs, Settings};
use crate::exit::Exit;
use crate::output;
use crate::roles::{Grants, LOGIN, Part, Passwords, READER, READER_CONNECTIONS};

/// The database, and the superuser who owns it.
const CINEMA: &str = "cinema";
const VARIABLES: &str = "stand.env";
pub(super) const ADMIN_URL: &str = "CINEMA_ADMIN_URL";
pub(super) const LOGIN_PASSWORD: &str = "VITRINA_ROLE_PASSWORD";
pub(super) const READER_PASSWORD: &str = "VITRINA_READER_PASSWORD";

/// The directory that was named, or the one for data of this user.
pub(super) fn directory(named: Option<PathBuf>) -> Result<PathBuf> {
    let by_user = || {
        if Uid::effective().is_root() {
            return Some(PathBuf::from("/var/lib"));
        }
        let variable = |name| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
        variable("XDG_DATA_HOME").or_else(|| Some(variable("HOME")?.join(".local/share")))
    };
    let named = named.or_else(|| Some(by_user()?.join("vitrina/demo")));
    let named =
        named.ok_or_else(|| Exit::Usage.fault("no directory for the demo\nhint: name one with --dir"))?;
    Ok(std::path::absolute(named)?)
}

/// The directory, held against other demos for as long as this lives.
#[derive(Debug)]
pub(super) struct Place {
    path: PathBuf,
    _lock: File,
}

impl Place {
    pub(super) fn claim(path: PathBuf) -> Result<Self> {
        fs::create_dir_all(&path).map_err(unusable(&path))?;
        Self::lock(path)
    }

    /// `None` when there is no such directory.
    pub(super) fn existing(path: PathBuf) -> Result<Option<Self>> {
        if path.exists() { Self::lock(path).map(Some) } else { Ok(None) }
    }

    /// A Postgres has been started here.
    pub(super) fn is_used(&self) -> bool {
        self.path.join(VARIABLES).exists()
    }

    /// Takes hold of the server by starting it: nothing else can tell whether it runs.
    pub(super) async fn stop(self) -> Result<()> {
        Ok(blocking(move || Cluster::start(&options(&self.path))?.stop()).await??)
    }

    /// The lock is on the directory itself, so that nothing is left behind where a demo is removed.
    fn lock(path: PathBuf) -> Result<Self> {
        let lock = File::open(&path).map_err(unusable(&path))?;
        match lock.try_lock() {
            Ok(()) => Ok(Self { path, _lock: lock }),
            Err(TryLockError::Error(cause)) => Err(unusable(&path)(cause).into()),
            Err(TryLockError::WouldBlock) => Err(Exit::Conflict.fault(format!(
                "another demo uses {}\nhint: stop it with Ctrl-C, or give this one a directory of its own with --dir",
                path.display()
            ))),
        }
    }
}

fn options(path: &Path) -> Options {
    Options { superuser: CINEMA.to_owned(), ..Options::new(path) }
}

fn unusable(path: &Path) -> impl FnOnce(std::io::Error) -> vitrina_cluster::Error {
    move |cause| vitrina_cluster::Error::Directory { path: path.to_owned(), cause }
}

/// Removes the directory and all in it, and stops the server if it runs.
pub(super) async fn remove(directory: PathBuf) -> Result<Exit> {
    let Some(place) = Place::existing(directory.clone())? else {
        output::say(&format!("nothing to remove: there is no {}", directory.display()));
        return Ok(Exit::Done);
    };
    search::remove(&directory).await;
    blocking(move || vitrina_cluster::remove(&place.path)).await??;
    output::say(&format!("removed {}", directory.display()));
    Ok(Exit::Done)
}

/// A server that answers, with everything that is needed to connect.
#[derive(Debug)]
pub(super) struct Stand {
    cluster: Cluster,
    variables: BTreeMap<String, String>,
    is_new: bool,
    place: Place,
}

impl Stand {
    pub(super) async fn start(place: Place) -> Result<Self> {
        let is_new = !place.is_used();
        let options = options(&place.path);
        let cluster = match blocking(move || Cluster::start(&options)).await? {
            Ok(cluster) => cluster,
            Err(error) => {
                // A directory that was made for this start goes with it; any other is not empty.
                let _ = fs::remove_dir(&place.path);
                return Err(error.into());
            }
        };
        create_database(&cluster).await?;
        let variables = variables(&cluster)?;
        write(&place.path, &variables)?;
        Ok(Self { cluster, variables, is_new, place })
    }

    pub(super) fn port(&self) -> u16 {
        self.cluster.port()
    }

    pub(super) fn admin_url(&self) -> &str {
        &self.variables[ADMIN_URL]
    }

    pub(super) fn directory(&self) -> &Path {
        &self.place.path
    }

    pub(super) fn variables_file(&self) -> PathBuf {
        self.place.path.join(VARIABLES)
    }

    /// The flag that leads to this place, if the usual way does not.
    pub(super) fn flag(&self) -> String {
        match directory(None) {
            Ok(usual) if usual == self.place.path => String::new(),
            _ => format!(" --dir {}", output::shell_word(&self.place.path.to_string_lossy())),
        }
    }

    /// `15.13`, where it lives, and whether it has been here before.
    pub(super) fn described(&self) -> String {
        let version = self.cluster.installation().version();
        let version = version.split_whitespace().next().unwrap_or(version);
        let history = match (self.is_new, self.cluster.was_running()) {
            (true, _) => "new",
            (false, false) => "reused, with the data of last time",
            (false, true) => "reused, it was still running",
        };
        format!(
            "Postgres {version} on 127.0.0.1:{}, in {} ({history})",
            self.port(),
            self.place.path.display()
        )
    }

    /// Grants on schemas that are not there yet need another call after the migrations.
    pub(super) async fn create_logins(&self) -> Result<()> {
        let mut connection = PgConnection::connect(self.admin_url()).await?;
        let passwords = Passwords::given(&self.variables[LOGIN_PASSWORD], &self.variables[READER_PASSWORD]);
        grants().apply(&mut connection, &passwords).await?;
        Ok(connection.close().await?)
    }

    /// The settings of services that work on this stand: its variables, and nothing of the user's but a search server.
    pub(super) fn settings(&self, flags: Vec<Flag>, server: Option<&search::Server>) -> Result<Settings> {
        let process = Inputs::of_process(flags, None)?;
        let directory = self.place.path.clone();
        let mut environment = self.variables.clone();
        environment.extend(server.map(search::Server::variable));
        Ok(Config::load(&Inputs { environment, directory, ..process })?.settings)
    }

    pub(super) async fn stop(self) -> Result<()> {
        let Self { cluster, place, .. } = self;
        blocking(move || cluster.stop()).await??;
        drop(place);
        Ok(())
    }
}

/// What the cinema's pipelines read and write.
pub(super) fn grants() -> Grants {
    let [content, ugc, marts] = ["content", "ugc", "analytics"].map(str::to_owned);
    Grants {
        database: None,
        schemas: vec![content, ugc],
        marts,
        login: LOGIN.to_owned(),
        reader: READER.to_owned(),
        reader_connections: READER_CONNECTIONS,
        from_public: FromPublic::Tables,
        part: Part::All,
    }
}

async fn create_database(cluster: &Cluster) -> Result<()> {
    let mut connection = PgConnection::connect(&cluster.url("postgres")).await?;
    let query = "select exists (select from pg_database where datname = $1)";
    if !sqlx::query_scalar(query).bind(CINEMA).fetch_one(&mut connection).await? {
        sqlx::raw_sql("create database cinema").execute(&mut connection).await?;
    }
    Ok(connection.close().await?)
}

/// Passwords are those of last time; addresses change with the port.
fn variables(cluster: &Cluster) -> Result<BTreeMap<String, String>> {
    let password =
        |name| variable(cluster.directory(), name).unwrap_or_else(|| Uuid::new_v4().simple().to_string());
    let (login, reader) = (password(LOGIN_PASSWORD), password(READER_PASSWORD));
    let admin = cluster.url(CINEMA);
    let url = |user, password: &str| {
        let mut url = Url::parse(&admin)?;
        let set = url.set_username(user).and_then(|()| url.set_password(Some(password)));
        set.map(|()| url.to_string()).ok().context("a cluster's URL has a host")
    };
    let marts = url(LOGIN, &login)?;
    let variables = [
        ("VITRINA_DATABASE_URL", marts.clone()),
        ("VITRINA_CONNECTIONS_MARTS_URL", marts),
        ("VITRINA_CONNECTIONS_CINEMA_URL", url(READER, &reader)?),
        // For psql, which would show the password of a URL to everyone who lists processes.
        ("PGHOST", "127.0.0.1".to_owned()),
        ("PGPORT", cluster.port().to_string()),
        ("PGUSER", CINEMA.to_owned()),
        ("PGPASSWORD", Url::parse(&admin)?.password().unwrap_or_default().to_owned()),
        ("PGDATABASE", CINEMA.to_owned()),
        (ADMIN_URL, admin),
        (LOGIN_PASSWORD, login),
        (READER_PASSWORD, reader),
    ];
    Ok(variables.map(|(name, value)| (name.to_owned(), value)).into())
}

/// A variable of `stand.env`, if there is such a file.
pub(super) fn variable(directory: &Path, name: &str) -> Option<String> {
    let variables = dotenvy::from_path_iter(directory.join(VARIABLES)).ok()?;
    variables.filter_map(Result::ok).find(|(found, _)| found == name).map(|(_, value)| value)
}

/// As shells and dotenv read it: all values are made of characters that need no more than the quotes.
fn write(directory: &Path, variables: &BTreeMap<String, String>) -> Result<()> {
    let lines: String = variables.iter().map(|(name, value)| format!("{name}='{value}'\n")).collect();
    write_private(&directory.join(VARIABLES), &lines)
}

/// For nobody else's eyes, and whole or not at all.
pub(super) fn write_private(path: &Path, text: &str) -> Result<()> {
    let fresh = path.with_added_extension("new");
    match fs::remove_file(&fresh) {
        Err(error) if error.kind() != ErrorKind::NotFound => return Err(unusable(&fresh)(error).into()),
        _ => {}
    }
    let written =
        OpenOptions::new().create_new(true).write(true).mode(0o600).open(&fresh).and_then(|mut file| {
            file.set_permissions(Permissions::from_mode(0o600))?;
            file.write_all(text.as_bytes())
        });
    written.and_then(|()| fs::rename(&fresh, path)).map_err(unusable(path))?;
    Ok(())
}

async fn blocking<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> Result<T> {
    Ok(tokio::task::spawn_blocking(work).await?)
}
