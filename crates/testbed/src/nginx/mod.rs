//! A real reverse proxy before a search server, as companies put one there: nginx, with certificates, passwords, keys,
//! prefixes and limits.

mod certificates;
mod plan;

use std::fs;
use std::net::TcpListener;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};

use vitrina_cluster::Account;

pub use plan::NginxPlan;

use crate::SearchServer;
use crate::search::{SCRIPT, ServerDirectory, create_directory, directory};
use crate::{name, wait};

/// Another program may take a free port before nginx does.
const TRIES: usize = 20;

#[derive(Debug)]
pub struct Nginx {
    directory: PathBuf,
    url: String,
    child: Child,
}

impl Nginx {
    /// Lets everything pass over plain HTTP until the plan says otherwise.
    pub fn before(server: &SearchServer) -> NginxPlan {
        NginxPlan::before(server.url())
    }

    /// Where it listens, with its prefix and without a slash at its end; whoever calls brings user and password.
    pub fn url(&self) -> &str {
        &self.url
    }

    /// The same with a user and a password in it.
    pub fn url_as(&self, user: &str, password: &str) -> String {
        let mut url = url::Url::parse(&self.url).expect("an address of ours");
        url.set_username(user).expect("it has a host");
        url.set_password(Some(password)).expect("it has a host");
        url.to_string()
    }

    /// The certificate of the authority that vouches for it.
    pub fn ca(&self) -> PathBuf {
        self.directory.join("ca.pem")
    }

    /// How many of its answers had this status.
    pub fn answered(&self, status: u16) -> usize {
        let log = fs::read_to_string(self.directory.join("home/answers")).unwrap_or_default();
        log.lines().filter(|line| line.starts_with(&format!("{status} "))).count()
    }

    async fn start(plan: &NginxPlan) -> Self {
        let program = find();
        for _ in 0..TRIES {
            let directory = ServerDirectory::of_this_process().join(format!("nginx-{}", name::random()));
            let account = furnish(&directory);
            let port = free_port();
            plan.write(&directory, port);
            let child = spawn(&program, &account, &directory);
            let mut nginx = Self { url: plan.url(port), directory, child };
            match nginx.listening(port).await {
                Ok(()) => return nginx,
                Err(said) => assert!(said.contains("Address already in use"), "nginx has ended:\n{said}"),
            }
        }
        panic!("no port stays free for nginx");
    }

    async fn listening(&mut self, port: u16) -> Result<(), String> {
        wait::eventually("nginx listens", async || {
            if self.child.try_wait().expect("a child can be asked").is_some() {
                return Some(Err(fs::read_to_string(self.directory.join("log")).unwrap_or_default()));
            }
            // Its own word for being ready; the port may be another's.
            let is_ready = self.directory.join("home/nginx.pid").exists();
            let reached = is_ready && tokio::net::TcpStream::connect(("127.0.0.1", port)).await.is_ok();
            reached.then_some(Ok(()))
        })
        .await
    }
}

impl Drop for Nginx {
    fn drop(&mut self) {
        self.child.kill().ok();
        self.child.wait().ok();
        fs::remove_dir_all(&self.directory).ok();
    }
}

fn find() -> PathBuf {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let places = std::env::split_paths(&path).chain(["/usr/sbin".into(), "/usr/local/sbin".into()]);
    let found = places.map(|folder| folder.join("nginx")).find(|program| program.is_file());
    found.unwrap_or_else(|| panic!("nginx is missing\nhint: TESTS=1 scripts/bootstrap"))
}

/// `directory` is ours, `home` in it is the account's: see the search servers.
pub(crate) fn furnish(directory: &Path) -> Account {
    let home = directory.join("home");
    let account = Account::for_data(&home).unwrap_or_else(|error| panic!("{error}"));
    let made = create_directory(directory, account.home_mode()).and_then(|()| create_directory(&home, 0o700));
    made.unwrap_or_else(|error| panic!("{}: {error}", directory.display()));
    account.own(&home).unwrap_or_else(|error| panic!("{error}"));
    account
}

pub(crate) fn free_port() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    listener.local_addr().expect("the listener's address").port()
}

fn spawn(nginx: &Path, account: &Account, directory: &Path) -> Child {
    let log = fs::File::create(directory.join("log")).expect("a log can be written");
    let mut command = account.command(Path::new("/bin/sh"), directory);
    command.args(["-c", SCRIPT, directory::OPEN]).arg(nginx).arg("-p").arg(directory).arg("-c");
    command.arg(directory.join("nginx.conf")).args(["-e", "stderr"]);
    command.process_group(0).stdin(Stdio::null());
    command.stdout(log.try_clone().expect("a file can be opened twice")).stderr(log);
    command.spawn().expect("a shell can be started")
}
