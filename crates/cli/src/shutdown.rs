//! The wish to end: SIGINT, SIGTERM or SIGHUP, heard by whoever holds the token. A second one ends at once.

use std::io;
use std::time::Duration;

use anyhow::Result;
use tokio::signal::unix::{SignalKind, signal};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::exit::Exit;

#[derive(Debug)]
pub(crate) struct Shutdown {
    pub(crate) token: CancellationToken,
    _listener: JoinSet<()>,
}

impl Shutdown {
    pub(crate) fn on_signals() -> io::Result<Self> {
        let mut interrupts = signal(SignalKind::interrupt())?;
        let mut terminations = signal(SignalKind::terminate())?;
        let mut hangups = if ignores_hangups() { None } else { Some(signal(SignalKind::hangup())?) };
        let mut received = async move || {
            tokio::select! {
                _ = interrupts.recv() => {}
                _ = terminations.recv() => {}
                Some(()) = async { hangups.as_mut()?.recv().await } => {}
            }
        };
        let token = CancellationToken::new();
        let cancelled = token.clone();
        let mut listener = JoinSet::new();
        listener.spawn(async move {
            received().await;
            cancelled.cancel();
            received().await;
            std::process::exit(Exit::Interrupted as i32);
        });
        Ok(Self { token, _listener: listener })
    }

    /// The work's result, or `None` if the wish to end came first.
    pub(crate) async fn race<T>(&self, work: impl Future<Output = T>) -> Option<T> {
        self.token.run_until_cancelled(work).await
    }

    /// The work's result, or the error that `left` makes of why it is left: the time is over, or the wish to end came first.
    pub(crate) async fn race_within<T>(
        &self,
        limit: Option<Duration>,
        work: impl Future<Output = Result<T>>,
        left: impl FnOnce(Exit, &str) -> anyhow::Error,
    ) -> Result<T> {
        let limited = tokio::time::timeout(limit.unwrap_or(Duration::MAX), Box::pin(work));
        match self.race(limited).await {
            Some(Ok(done)) => done,
            Some(Err(_)) => Err(left(Exit::TimedOut, "the time is over")),
            None => Err(left(Exit::Interrupted, "interrupted")),
        }
    }
}

/// Whoever started it with `nohup` wants it to outlive the terminal. To listen would undo that.
fn ignores_hangups() -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let ignored = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let mask = ignored.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or_default();
    mask & (1 << (SignalKind::hangup().as_raw_value() - 1)) != 0
}
