//! One server as a process, in a directory of its own: what we put there, and `home`, which is the server's.

use std::fs::{self, File, OpenOptions, Permissions};
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use vitrina_cluster::Account;

use super::Distribution;
use super::directory::OPEN;
use super::installation::{Installation, Purpose};
use crate::wait::eventually;

/// Only its process id makes a server known to whoever has to end it.
pub(crate) const SCRIPT: &str = r#"echo "$$" > home/pid && [ -e "../$0" ] && exec "$@""#;

#[derive(Debug)]
pub(super) struct Node {
    directory: PathBuf,
    account: Account,
    java: PathBuf,
    packages: PathBuf,
    settings: Vec<String>,
    purpose: Purpose,
}

impl Node {
    /// Takes what is in `directory` or makes it ready.
    pub(super) fn prepare(
        distribution: Distribution,
        directory: PathBuf,
        settings: &[(&str, &str)],
        purpose: Purpose,
    ) -> Self {
        let installation = Installation::find(distribution).unwrap_or_else(|error| panic!("{error}"));
        let account = Account::for_data(&directory.join("home")).unwrap_or_else(|error| panic!("{error}"));
        let mut node = Self {
            packages: installation.packages.clone(),
            java: installation.java.clone(),
            settings: settings.iter().map(|(name, value)| format!("{name}={value}")).collect(),
            account,
            directory,
            purpose,
        };
        if !node.home().exists() {
            node.furnish(&installation)
                .unwrap_or_else(|error| panic!("{}: {error}", node.directory.display()));
        }
        if node.account.is_other() {
            node.packages = node.directory.join("packages");
        }
        node
    }

    /// `home` comes last: without it, what is there was left behind by somebody who was interrupted.
    /// Another user may be unable to enter our clone and our cache, so that it gets copies.
    fn furnish(&self, installation: &Installation) -> io::Result<()> {
        self.delete();
        create_directory(&self.directory, self.account.home_mode())?;
        copy(&installation.launcher, &self.directory)?;
        copy(&installation.folder.join(self.purpose.options()), &self.directory)?;
        if self.account.is_other() {
            let packages = self.directory.join("packages");
            create_directory(&packages, 0o755)?;
            for package in fs::read_dir(&installation.packages)? {
                copy(&package?.path(), &packages)?;
            }
        }
        create_directory(&self.home(), 0o700)?;
        self.account.own(&self.home()).map_err(io::Error::other)
    }

    /// In a process group of its own: whoever ends the test that happened to start a server does not mean the server.
    pub(super) fn start(&self, port: u16) -> Child {
        fs::remove_file(self.home().join("url")).ok();
        let log =
            OpenOptions::new().create(true).append(true).open(self.log()).expect("a log can be written");
        let mut temporary = std::ffi::OsString::from("-Djava.io.tmpdir=");
        temporary.push(self.home());
        let mut command = self.account.command(Path::new("/bin/sh"), &self.directory);
        command
            .args(["-c", SCRIPT, OPEN])
            .arg(&self.java)
            .arg(format!("@{}", self.purpose.options()))
            .arg(temporary);
        command.arg("-cp").arg(self.packages.join("*")).arg("Launcher.java");
        command.arg(format!("path.home={}", self.home().display())).arg(format!("http.port={port}"));
        command.args(&self.settings).process_group(0).stdin(Stdio::null());
        command.stdout(log.try_clone().expect("a file can be opened twice")).stderr(log);
        command.spawn().expect("a shell can be started")
    }

    /// Waits until the server says where it listens; `Err` has its last words. `child` is there for whoever has
    /// started it: only a parent hears of the end at once.
    pub(super) async fn url(&self, mut child: Option<&mut Child>) -> Result<String, String> {
        eventually("a search server starts", async || {
            if let Ok(url) = fs::read_to_string(self.home().join("url")) {
                return Some(Ok(url));
            }
            let ended = match &mut child {
                Some(child) => child.try_wait().expect("a child can be asked").is_some(),
                None => self.pid().is_some_and(|pid| kill(pid, None).is_err()),
            };
            ended.then(|| Err(self.last_words()))
        })
        .await
    }

    /// There as soon as the server was started, also by another process.
    pub(super) fn pid(&self) -> Option<Pid> {
        let pid = fs::read_to_string(self.home().join("pid")).ok()?;
        pid.trim().parse().ok().map(Pid::from_raw)
    }

    pub(super) fn send(&self, signal: Signal) {
        kill(self.pid().expect("a server was started"), signal).expect("our server takes signals");
    }

    /// Stops it, and waits until each of its threads stands still: on a busy machine one may work on for a while.
    pub(super) fn freeze(&self) {
        self.send(Signal::SIGSTOP);
        let threads = format!("/proc/{}/task", self.pid().expect("a server was started"));
        let still = |thread: std::io::Result<fs::DirEntry>| {
            let stat = thread.and_then(|thread| fs::read_to_string(thread.path().join("stat")));
            // The state stands behind the name, which is in brackets. A thread that has gone works no more.
            stat.map_or(true, |stat| stat.rsplit(") ").next().is_some_and(|rest| rest.starts_with('T')))
        };
        let started = Instant::now();
        while !fs::read_dir(&threads).is_ok_and(|mut threads| threads.all(still)) {
            assert!(started.elapsed() < Duration::from_secs(30), "the server does not stop");
            std::thread::sleep(std::time::Duration::from_millis(5));
        }
    }

    /// Kills the server and waits for its end. Its number may be another's from then on.
    pub(super) fn kill(&self, child: &mut Child) {
        child.kill().expect("our child can be killed");
        child.wait().expect("our child can be waited for");
        fs::remove_file(self.home().join("pid")).ok();
    }

    pub(super) fn delete(&self) {
        fs::remove_dir_all(&self.directory).ok();
    }

    fn home(&self) -> PathBuf {
        self.directory.join("home")
    }

    fn log(&self) -> PathBuf {
        self.directory.join("log")
    }

    fn last_words(&self) -> String {
        let log = fs::read_to_string(self.log()).unwrap_or_default();
        let lines: Vec<&str> = log.lines().collect();
        lines[lines.len().saturating_sub(60)..].join("\n")
    }
}

/// The umask has no say.
pub(crate) fn create_directory(path: &Path, mode: u32) -> io::Result<()> {
    fs::create_dir(path)?;
    fs::set_permissions(path, Permissions::from_mode(mode))
}

fn copy(file: &Path, folder: &Path) -> io::Result<()> {
    let copy = folder.join(file.file_name().unwrap_or_default());
    io::copy(&mut File::open(file)?, &mut File::create(&copy)?)?;
    fs::set_permissions(copy, Permissions::from_mode(0o644))
}
