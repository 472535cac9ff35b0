//! Runs a command with VITRINA_TEST_SERVERS set to throwaway servers, one for each test that runs at a time:
//! `with_postgres cargo test`.
//! Search servers that its tests start are shared by all of them. Ends with the command's exit code.

use std::env;
use std::io::{self, IsTerminal};
use std::num::NonZero;
use std::os::unix::process::ExitStatusExt;
use std::process::{ExitCode, ExitStatus};
use std::thread;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use tokio::process::Command;
use tokio::signal::unix::{SignalKind, signal};
use vitrina_testbed::{SEARCH_DIRECTORY, SERVERS, ServerDirectory, throwaway_clusters};

#[tokio::main(flavor = "current_thread")]
async fn main() -> ExitCode {
    let mut arguments = env::args_os().skip(1);
    let Some(program) = arguments.next() else {
        eprintln!("usage: with_postgres <command> [arguments]");
        return ExitCode::from(2);
    };
    let started = throwaway_clusters(tests_at_a_time()).and_then(|it| Ok((it, ServerDirectory::create()?)));
    let (clusters, search) = match started {
        Ok(servers) => servers,
        Err(error) => {
            eprintln!("error: {error}");
            return ExitCode::FAILURE;
        }
    };
    let mut command = Command::new(&program);
    let urls: Vec<_> = clusters.iter().map(|cluster| cluster.url("postgres")).collect();
    command.env(SERVERS, urls.join(" ")).env(SEARCH_DIRECTORY, search.path());
    let ended = run(command.args(arguments)).await;
    search.end();
    for error in clusters.into_iter().filter_map(|cluster| cluster.stop().err()) {
        eprintln!("error: {error}");
    }
    ended.map(code).unwrap_or_else(|error| {
        eprintln!("error: cannot run {}: {error}", program.display());
        ExitCode::from(127)
    })
}

/// As many as test programs run in threads.
fn tests_at_a_time() -> usize {
    let told = env::var("RUST_TEST_THREADS").ok().and_then(|threads| threads.parse().ok());
    told.or_else(|| thread::available_parallelism().ok()).map_or(1, NonZero::get)
}

/// Listens for signals before the command is there, so that none is lost. A terminal sends its Ctrl-C to the
/// command as well, so that one is not sent twice.
async fn run(command: &mut Command) -> io::Result<ExitStatus> {
    let mut interrupts = signal(SignalKind::interrupt())?;
    let mut terminations = signal(SignalKind::terminate())?;
    let mut child = command.spawn()?;
    let pid = child.id().map(|id| Pid::from_raw(id.cast_signed()));
    loop {
        let received = tokio::select! {
            ended = child.wait() => return ended,
            _ = interrupts.recv() => (!io::stdin().is_terminal()).then_some(Signal::SIGINT),
            _ = terminations.recv() => Some(Signal::SIGTERM),
        };
        if let (Some(pid), Some(signal)) = (pid, received) {
            kill(pid, signal)?;
        }
    }
}

/// As a shell puts it: 128 and the signal's number for a command that a signal ended.
fn code(status: ExitStatus) -> ExitCode {
    let code = status.code().or(status.signal().map(|signal| 128 + signal)).unwrap_or(1);
    ExitCode::from(u8::try_from(code).unwrap_or(1))
}
