//! From an empty directory to a server that answers: initdb, settings, a free port, pg_ctl.

use std::fs::{self, File, OpenOptions};
use std::io::{Read, Seek, SeekFrom};
use std::net::{Ipv4Addr, TcpListener};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::thread;
use std::time::Duration;

use secrecy::ExposeSecret;
use uuid::Uuid;

use crate::cluster::{Options, Primary};
use crate::home::{self, Home};
use crate::programs::Programs;
use crate::{Error, Result};

const TRIES: usize = 50;
const PAUSE: Duration = Duration::from_millis(100);

/// Runs initdb unless it has already run to its end; what an interrupted one left behind is thrown away.
pub(crate) fn initialise(options: &Options, programs: &Programs, home: &Home) -> Result<()> {
    if home.data().exists() {
        return Ok(());
    }
    let unfinished = home.unfinished();
    if let Some(primary) = &options.standby_of {
        copy(primary, programs, home)?;
        return fs::rename(&unfinished, home.data()).map_err(Error::at(&unfinished));
    }
    home.remember("superuser", &options.superuser, 0o600)?;
    home.remember("password", &Uuid::new_v4().simple().to_string(), 0o600)?;
    programs.account.own(&home.password_file())?;
    if !initdb(options, programs, home, "C.UTF-8")? {
        initdb(options, programs, home, "C")?;
    }
    fs::rename(&unfinished, home.data()).map_err(Error::at(&unfinished))
}

/// A directory for the server's user alone.
fn empty(directory: &Path, programs: &Programs) -> Result<()> {
    home::delete(directory)?;
    fs::create_dir(directory).map_err(Error::at(directory))?;
    home::set_mode(directory, 0o700)?;
    programs.account.own(directory)
}

/// The data of a running server, which this one will follow.
fn copy(primary: &Primary, programs: &Programs, home: &Home) -> Result<()> {
    empty(&home.unfinished(), programs)?;
    let password = primary.password.expose_secret();
    home.remember("superuser", &primary.superuser, 0o600)?;
    home.remember("password", password, 0o600)?;
    let from = format!(
        "--dbname=host=127.0.0.1 port={} user={} password={password}",
        primary.port, primary.superuser
    );
    let arguments =
        ["--pgdata=data.unfinished", "--write-recovery-conf", "--checkpoint=fast", "--no-sync", &from];
    let output = programs.run("pg_basebackup", &arguments)?;
    programs.check("pg_basebackup", &output)
}

/// False when the system does not have the locale.
fn initdb(options: &Options, programs: &Programs, home: &Home, locale: &str) -> Result<bool> {
    let unfinished = home.unfinished();
    empty(&unfinished, programs)?;
    let (username, locale) = (format!("--username={}", options.superuser), format!("--locale={locale}"));
    let mut arguments = vec![
        "--pgdata=data.unfinished",
        &username,
        &locale,
        "--pwfile=password",
        if options.quick_logins { "--auth=md5" } else { "--auth=scram-sha-256" },
        "--encoding=UTF8",
        "--data-checksums",
    ];
    if options.settings.iter().any(|(name, value)| name == "fsync" && value == "off") {
        arguments.push("--no-sync");
    }
    let output = programs.run("initdb", &arguments)?;
    if String::from_utf8_lossy(&output.stderr).contains("invalid locale name") {
        return Ok(false);
    }
    programs.check("initdb", &output).map(|()| true)
}

/// Starts the server and waits until it takes connections.
pub(crate) fn launch(options: &Options, programs: &Programs, home: &Home) -> Result<u16> {
    let mut tries = 1;
    loop {
        let port = choose_port(options, home)?;
        home.remember("postgresql.conf", &configuration(options, port), 0o644)?;
        match start(programs, home) {
            Ok(()) => return home.remember("port", &port.to_string(), 0o600).map(|()| port),
            Err(error) if tries == TRIES || !may_pass(&error) => return Err(error),
            Err(_) => tries += 1,
        }
        thread::sleep(PAUSE);
    }
}

/// Another process has taken the port since we found it free, or a server that was killed, or its children,
/// have not quite ended yet.
fn may_pass(error: &Error) -> bool {
    let passing = ["could not bind", "\"postmaster.pid\" already exists", "pre-existing shared memory block"];
    matches!(error, Error::Failed { output, .. } if passing.iter().any(|text| output.contains(text)))
}

fn choose_port(options: &Options, home: &Home) -> Result<u16> {
    if let Some(port) = options.port {
        return if is_free(port) { Ok(port) } else { Err(Error::PortTaken { port }) };
    }
    match home.recall("port").and_then(|port| port.parse().ok()) {
        Some(port) if is_free(port) => Ok(port),
        _ => TcpListener::bind((Ipv4Addr::LOCALHOST, 0))
            .and_then(|listener| listener.local_addr())
            .map(|address| address.port())
            .map_err(|cause| Error::NoPort { cause }),
    }
}

fn is_free(port: u16) -> bool {
    TcpListener::bind((Ipv4Addr::LOCALHOST, port)).is_ok()
}

/// Stands beside the data, not in it: the data belongs to the server's user, this file to us.
fn configuration(options: &Options, port: u16) -> String {
    let mut text = format!(
        "include 'data/postgresql.conf'\nlisten_addresses = '127.0.0.1'\nport = {port}\nunix_socket_directories = ''\n"
    );
    if options.quick_logins {
        // initdb sets it to md5 for all roles to come.
        text.push_str("password_encryption = 'scram-sha-256'\n");
    }
    for (name, value) in &options.settings {
        let value = value.replace('\\', r"\\").replace('\'', "''");
        text.push_str(&format!("{name} = '{value}'\n"));
    }
    text
}

fn start(programs: &Programs, home: &Home) -> Result<()> {
    let path = home.log();
    let open = OpenOptions::new().create(true).append(true).read(true).mode(0o600).open(&path);
    let mut log = open.map_err(Error::at(&path))?;
    log.seek(SeekFrom::End(0)).map_err(Error::at(&path))?;
    programs.account.own(&path)?;
    let options = "--options=-c config_file=postgresql.conf";
    let output =
        programs.run("pg_ctl", &["start", "--pgdata=data", options, "--log=log", "--wait", "--silent"])?;
    programs.check("pg_ctl start", &output).map_err(|error| explained(error, log))
}

/// pg_ctl only says that it failed; what the server wrote since then says why.
fn explained(error: Error, mut log: File) -> Error {
    let mut written = String::new();
    match (log.read_to_string(&mut written), error) {
        (Ok(1..), Error::Failed { program, log, .. }) => {
            Error::Failed { program, output: written.trim().to_owned(), log }
        }
        (_, error) => error,
    }
}
