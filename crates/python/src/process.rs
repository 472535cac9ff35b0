//! The process of a worker: its descriptors, its environment, its memory and its end.

use std::fs;
use std::io::{PipeReader, PipeWriter};
use std::os::fd::{AsFd, OwnedFd};
use std::path::PathBuf;
use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use command_fds::CommandFdExt;
use command_fds::FdMapping;
use nix::fcntl::{FcntlArg, fcntl};
use nix::sys::signal::{Signal, killpg};
use nix::sys::wait::{Id, WaitPidFlag, WaitStatus, waitid, waitpid};
use nix::unistd::Pid;
use tokio::net::unix::pipe::{Receiver, Sender};
use tokio::process::{Child, Command};
use vitrina_core::{Error, Result};

use crate::PythonSettings;
use crate::account::Account;
use crate::sdk::Sdk;

/// Variables that a program may need whatever it does. All others stay with the runner: they may hold its passwords.
pub const VARIABLES: [&str; 9] =
    ["PATH", "HOME", "LANG", "LC_ALL", "LC_CTYPE", "TZ", "TMPDIR", "USER", "LD_LIBRARY_PATH"];
const IN: i32 = 3;
const OUT: i32 = 4;
/// Hangs up when this process is gone, however it went.
const ALIVE: i32 = 5;
/// How long a worker that has closed its pipe may take to end.
const ENDING: Duration = Duration::from_secs(5);
/// Batches are larger than the 64 KiB that a pipe holds.
#[cfg(target_os = "linux")]
const PIPE: i32 = 1 << 20;

#[derive(Debug)]
pub(crate) struct Process {
    child: Child,
    group: Option<Pid>,
    pub(crate) to: Sender,
    pub(crate) from: Receiver,
    /// What is printed.
    pub(crate) printed: [Receiver; 2],
    /// Open for as long as this process lives.
    _alive: PipeWriter,
    pub(crate) meter: Meter,
}

impl Process {
    pub(crate) fn start(settings: &PythonSettings, sdk: &Sdk) -> Result<Self> {
        let (theirs_in, ours_out) = pipe()?;
        let (ours_in, theirs_out) = pipe()?;
        let ((out, out_end), (err, err_end)) = (pipe()?, pipe()?);
        let (theirs_alive, alive) = pipe()?;
        let mut command = command(settings, sdk)?;
        command.stdin(Stdio::null()).stdout(out_end).stderr(err_end).process_group(0).kill_on_drop(true);
        let mapped = vec![
            FdMapping { parent_fd: OwnedFd::from(theirs_in), child_fd: IN },
            FdMapping { parent_fd: OwnedFd::from(theirs_out), child_fd: OUT },
            FdMapping { parent_fd: OwnedFd::from(theirs_alive), child_fd: ALIVE },
        ];
        command.fd_mappings(mapped).map_err(|error| Error::bug("python.descriptors", error.to_string()))?;
        let child = spawn(&mut command).map_err(|error| unstarted(settings, &error))?;
        let group = child.id().and_then(|pid| i32::try_from(pid).ok()).map(Pid::from_raw);
        let lost = |error: std::io::Error| Error::bug("python.pipe", error.to_string());
        Ok(Self {
            child,
            group,
            _alive: alive,
            meter: Meter(group),
            to: Sender::from_owned_fd(nonblocking(ours_out)?).map_err(lost)?,
            from: Receiver::from_owned_fd(nonblocking(ours_in)?).map_err(lost)?,
            printed: [
                Receiver::from_owned_fd(nonblocking(out)?).map_err(lost)?,
                Receiver::from_owned_fd(nonblocking(err)?).map_err(lost)?,
            ],
        })
    }

    /// With its children: they are in its group.
    pub(crate) async fn kill(&mut self) -> Option<ExitStatus> {
        let group = self.group.take();
        if let Some(group) = group {
            killpg(group, Signal::SIGKILL).ok();
        }
        let status = self.child.wait().await.ok();
        if let Some(group) = group {
            bury(group).await;
        }
        status
    }

    /// It has closed its pipe: it is about to end, or has. Not reaped before its group is killed: until then nobody else can
    /// have its number.
    pub(crate) async fn ended(&mut self) -> Option<ExitStatus> {
        let flags = WaitPidFlag::WEXITED | WaitPidFlag::WNOHANG | WaitPidFlag::WNOWAIT;
        let runs = |pid: Pid| matches!(waitid(Id::Pid(pid), flags), Ok(WaitStatus::StillAlive));
        let ending = async {
            while self.group.is_some_and(runs) {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        tokio::time::timeout(ENDING, ending).await.ok();
        self.kill().await
    }
}

/// Tells what a process and its children hold in memory, as far as this system tells it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Meter(Option<Pid>);

impl Meter {
    pub(crate) fn read(self) -> u64 {
        self.0.map_or(0, |pid| memory_of(pid.as_raw(), 0))
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let Some(group) = self.group.take() else { return };
        killpg(group, Signal::SIGKILL).ok();
        if let Ok(runtime) = tokio::runtime::Handle::try_current() {
            runtime.spawn(bury(group));
        }
    }
}

/// What a worker has started outlives it as a child of the first process. In a container that may be this one, and without
/// this the dead would stay. Elsewhere they are no children of ours.
async fn bury(group: Pid) {
    let flags = WaitPidFlag::WEXITED | WaitPidFlag::WNOHANG | WaitPidFlag::WNOWAIT;
    let burying = async {
        while let Ok(found) = waitid(Id::PGid(group), flags) {
            match found.pid().filter(|pid| *pid != group) {
                Some(pid) => drop(waitpid(pid, Some(WaitPidFlag::WNOHANG))),
                // They live, or the worker itself is dead, whose parent reaps it.
                None => tokio::time::sleep(Duration::from_millis(5)).await,
            }
        }
    };
    tokio::time::timeout(ENDING, burying).await.ok();
}

fn command(settings: &PythonSettings, sdk: &Sdk) -> Result<Command> {
    let mut command = Command::new(&settings.interpreter);
    command.arg(sdk.start()).args(["--in", &IN.to_string(), "--out", &OUT.to_string()]);
    command.args(["--alive", &ALIVE.to_string()]);
    for module in &settings.modules {
        command.args(["--module", module]);
    }
    command.env_clear();
    let given = VARIABLES.into_iter().chain(settings.variables.iter().map(String::as_str));
    command.envs(given.filter_map(|name| Some((name.to_owned(), std::env::var_os(name)?))));
    let folders = [sdk.path()].into_iter().chain(settings.path.iter().map(PathBuf::as_path));
    let path = std::env::join_paths(folders).map_err(|error| Error::fix("python.path", error.to_string()))?;
    command.env("PYTHONPATH", path).env("PYTHONUNBUFFERED", "1").env("PYTHONDONTWRITEBYTECODE", "1");
    if let Some(user) = &settings.user {
        Account::named(user)?.apply(&mut command);
    }
    Ok(command)
}

/// In a thread that gives up gaining rights, and ends: a child has that from the thread that starts it, and programs with the
/// rights of their owner, such as `sudo`, give it none. The runner itself keeps what it has.
#[cfg(target_os = "linux")]
fn spawn(command: &mut Command) -> std::io::Result<Child> {
    let runtime = tokio::runtime::Handle::try_current().map_err(std::io::Error::other)?;
    let spawning = || {
        let _context = runtime.enter();
        nix::sys::prctl::set_no_new_privs()?;
        command.spawn()
    };
    let ended = std::thread::scope(|scope| scope.spawn(spawning).join());
    ended.unwrap_or_else(|_| Err(std::io::Error::other("the thread that starts it has panicked")))
}

#[cfg(not(target_os = "linux"))]
fn spawn(command: &mut Command) -> std::io::Result<Child> {
    command.spawn()
}

fn pipe() -> Result<(PipeReader, PipeWriter)> {
    let pipe = std::io::pipe().map_err(|error| Error::retry("python.pipe", error.to_string()))?;
    // A smaller one is slower, and does.
    #[cfg(target_os = "linux")]
    fcntl(pipe.1.as_fd(), FcntlArg::F_SETPIPE_SZ(PIPE)).ok();
    Ok(pipe)
}

fn nonblocking(end: impl Into<OwnedFd>) -> Result<OwnedFd> {
    let end = end.into();
    let flags = nix::fcntl::OFlag::O_NONBLOCK;
    fcntl(end.as_fd(), FcntlArg::F_SETFL(flags))
        .map_err(|error| Error::bug("python.pipe", error.to_string()))?;
    Ok(end)
}

fn unstarted(settings: &PythonSettings, error: &std::io::Error) -> Error {
    let message = format!("Python cannot be started as {}: {error}", settings.interpreter.display());
    Error::fix("python.interpreter", message)
        .hint("python.interpreter names the program `python` of the environment that holds the functions; python.user, where it is set, has to be able to start it")
}

/// Of a process and those that its threads have started, however deep.
fn memory_of(pid: i32, depth: usize) -> u64 {
    let threads = fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
    let children = threads
        .filter(|_| depth < DEEPEST)
        .filter_map(|thread| fs::read_to_string(thread.path().join("children")).ok())
        .flat_map(|children| children.split_whitespace().map(str::to_owned).collect::<Vec<_>>())
        .filter_map(|child| child.parse().ok());
    resident(pid) + children.map(|child| memory_of(child, depth + 1)).sum::<u64>()
}

const DEEPEST: usize = 8;

/// `VmRSS:     9292 kB`
fn resident(pid: i32) -> u64 {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let kilobytes: Option<u64> = line.and_then(|line| line.split_whitespace().next()?.parse().ok());
    kilobytes.unwrap_or(0) << 10
}
