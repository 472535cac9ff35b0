//! A real pgbouncer before a database, as companies put one there.

use std::fs;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};

use vitrina_cluster::Account;

use crate::nginx::{free_port, furnish};
use crate::search::{SCRIPT, ServerDirectory, directory};
use crate::{Database, name, wait};

/// Another program may take a free port before pgbouncer does.
const TRIES: usize = 20;

/// One session at the server for all clients, so that each of them gets what the others have left.
#[derive(Debug)]
pub struct Pooler {
    directory: PathBuf,
    url: String,
    child: Child,
}

/// How it is configured.
#[derive(Debug, Clone, Copy)]
pub struct PoolerPlan {
    /// `transaction`, `session` or `statement`.
    pub mode: &'static str,
    /// Startup options of clients are dropped, and not refused.
    pub drops_options: bool,
}

impl Pooler {
    /// `None`, and a word about it, where pgbouncer is not installed.
    pub async fn before(database: &Database, plan: PoolerPlan) -> Option<Self> {
        let Some(program) = find() else {
            eprintln!("SKIPPED: pgbouncer is missing; hint: TESTS=1 scripts/bootstrap");
            return None;
        };
        for _ in 0..TRIES {
            let directory = ServerDirectory::of_this_process().join(format!("pooler-{}", name::random()));
            let account = furnish(&directory);
            let port = free_port();
            let url = write(plan, database, &directory, port);
            let child = spawn(&program, &account, &directory);
            let mut pooler = Self { url, directory, child };
            match pooler.listening(port).await {
                Ok(()) => return Some(pooler),
                Err(said) => {
                    assert!(said.contains("Address already in use"), "pgbouncer has ended:\n{said}");
                }
            }
        }
        panic!("no port stays free for pgbouncer");
    }

    /// The database, through it.
    pub fn url(&self) -> &str {
        &self.url
    }

    async fn listening(&mut self, port: u16) -> Result<(), String> {
        wait::eventually("pgbouncer listens", async || {
            let said = fs::read_to_string(self.directory.join("log")).unwrap_or_default();
            if self.child.try_wait().expect("a child can be asked").is_some() {
                return Some(Err(said));
            }
            // Its own word for being ready; the port may be another's.
            let is_ready = said.contains("process up");
            let reached = is_ready && tokio::net::TcpStream::connect(("127.0.0.1", port)).await.is_ok();
            reached.then_some(Ok(()))
        })
        .await
    }
}

impl Drop for Pooler {
    fn drop(&mut self) {
        self.child.kill().ok();
        self.child.wait().ok();
        fs::remove_dir_all(&self.directory).ok();
    }
}

fn find() -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let places = std::env::split_paths(&path).chain(["/usr/sbin".into(), "/usr/local/sbin".into()]);
    places.map(|folder| folder.join("pgbouncer")).find(|program| program.is_file())
}

/// Answers where it will listen.
fn write(plan: PoolerPlan, database: &Database, directory: &Path, port: u16) -> String {
    let mut url = url::Url::parse(database.url()).expect("a database has a url");
    let host = url.host_str().expect("a server has a host").to_owned();
    let server = format!("host={host} port={} user={}", url.port().unwrap_or(5432), url.username());
    let password = url.password().map(|password| format!(" password={password}")).unwrap_or_default();
    let dropped =
        if plan.drops_options { "ignore_startup_parameters = options,extra_float_digits" } else { "" };
    let text = format!(
        "[databases]\n* = {server}{password}\n[pgbouncer]\nlisten_addr = 127.0.0.1\nlisten_port = {port}\nunix_socket_dir =\n\
         auth_type = any\npool_mode = {}\ndefault_pool_size = 1\nserver_tls_sslmode = prefer\n{dropped}\n",
        plan.mode
    );
    fs::write(directory.join("pgbouncer.ini"), text).expect("a file can be written");
    url.set_host(Some("127.0.0.1")).expect("a url of Postgres has a host");
    url.set_port(Some(port)).expect("a url of Postgres has a port");
    url.to_string()
}

fn spawn(program: &Path, account: &Account, directory: &Path) -> Child {
    let log = fs::File::create(directory.join("log")).expect("a log can be written");
    let mut command = account.command(Path::new("/bin/sh"), directory);
    command.args(["-c", SCRIPT, directory::OPEN]).arg(program).arg(directory.join("pgbouncer.ini"));
    command.process_group(0).stdin(Stdio::null());
    command.stdout(log.try_clone().expect("a file can be opened twice")).stderr(log);
    command.spawn().expect("a shell can be started")
}
