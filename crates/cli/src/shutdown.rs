//! The wish to end: SIGINT or SIGTERM, heard by whoever holds the token. A second one ends at once.

use std::io;

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
        let mut received = async move || {
            tokio::select! {
                _ = interrupts.recv() => {}
                _ = terminations.recv() => {}
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
}
