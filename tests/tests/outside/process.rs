//! A program that a test has started: what it says is kept, waited for, and shown where the test fails.

use std::ffi::OsStr;
use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use tokio::io::{AsyncBufReadExt, AsyncRead, BufReader};
use tokio::process::{Child, Command};
use tokio::sync::watch;
use tokio::task::JoinSet;

/// Longer than anything here takes; only a test that fails waits for so long.
const PATIENCE: Duration = Duration::from_secs(100);

pub(crate) struct Process {
    name: String,
    child: Child,
    patience: Duration,
    /// Lines of both its streams.
    said: watch::Receiver<Vec<String>>,
    _readers: JoinSet<()>,
}

impl Process {
    pub(crate) fn start(name: &str, mut command: Command) -> Self {
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).kill_on_drop(true);
        let mut child = command.spawn().unwrap_or_else(|error| panic!("{name}: {error}"));
        let (sender, said) = watch::channel(Vec::new());
        let mut readers = JoinSet::new();
        readers.spawn(keep(child.stdout.take().unwrap(), sender.clone()));
        readers.spawn(keep(child.stderr.take().unwrap(), sender));
        Self { name: name.to_owned(), child, patience: PATIENCE, said, _readers: readers }
    }

    /// For programs that take longer than others.
    pub(crate) fn patient(self, patience: Duration) -> Self {
        Self { patience, ..self }
    }

    /// The first line with this text, as soon as it is there.
    pub(crate) async fn says(&self, text: &str) -> String {
        let mut said = self.said.clone();
        let is_said = |lines: &Vec<String>| lines.iter().any(|line| line.contains(text));
        match tokio::time::timeout(self.patience, said.wait_for(is_said)).await {
            Ok(Ok(lines)) => lines.iter().find(|line| line.contains(text)).unwrap().clone(),
            _ => panic!("{} never says {text:?}:\n{}", self.name, self.all()),
        }
    }

    pub(crate) fn all(&self) -> String {
        self.said.borrow().join("\n")
    }

    pub(crate) fn signal(&self, signal: Signal) {
        kill(Pid::from_raw(self.child.id().unwrap().cast_signed()), signal).unwrap();
    }

    /// How it ends, and all that it has said until then.
    pub(crate) async fn ends(mut self) -> (ExitStatus, String) {
        let ended = async {
            let status = self.child.wait().await.unwrap();
            // Both readers have come to the end of what they read.
            while self.said.changed().await.is_ok() {}
            status
        };
        match tokio::time::timeout(self.patience, ended).await {
            Ok(status) => (status, self.all()),
            Err(_) => panic!("{} does not end:\n{}", self.name, self.all()),
        }
    }
}

/// A program in Python without the machine's settings: a proxy, say, would be asked for this machine's own addresses.
pub(crate) fn python(program: impl AsRef<OsStr>) -> Command {
    let mut command = Command::new(program);
    let path = std::env::var_os("PATH").unwrap_or_default();
    command.env_clear().env("PATH", path).env("LC_ALL", "C.UTF-8").env("PYTHONDONTWRITEBYTECODE", "1");
    command
}

async fn keep(pipe: impl AsyncRead + Unpin, said: watch::Sender<Vec<String>>) {
    let mut lines = BufReader::new(pipe).lines();
    while let Ok(Some(line)) = lines.next_line().await {
        said.send_modify(|all| all.push(line));
    }
}
