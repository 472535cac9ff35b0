//! Long polls. One session listens for all of them; whoever waits also looks by itself now and then,
//! so a notification that is lost costs a second and nothing else.

use std::time::Duration;

use tokio::sync::watch;
use tokio::time::{Instant, sleep, sleep_until};
use tokio_util::sync::CancellationToken;
use vitrina_store::Store;

use crate::app::App;

const LOOK_EVERY: Duration = Duration::from_secs(1);

/// Ticks whenever some pipeline's status has changed.
#[derive(Debug, Clone)]
pub(crate) struct Wakeups(watch::Receiver<u64>);

pub(crate) fn channel() -> (watch::Sender<u64>, Wakeups) {
    let (sender, receiver) = watch::channel(0);
    (sender, Wakeups(receiver))
}

impl Wakeups {
    /// Returns after the next one, or never.
    pub(crate) async fn changed(&mut self) {
        if self.0.changed().await.is_err() {
            std::future::pending::<()>().await;
        }
    }
}

/// Passes the store's notifications on, until it is dropped.
pub(crate) async fn forward(store: Store, sender: watch::Sender<u64>) {
    loop {
        match store.wakeups().await {
            Ok(mut wakeups) => loop {
                wakeups.next().await;
                sender.send_modify(|count| *count += 1);
            },
            Err(error) => {
                tracing::warn!(%error, "cannot listen to the meta-store: long polls ask every second");
            }
        }
        sleep(LOOK_EVERY).await;
    }
}

/// One caller's patience. Look, and while what is seen does not content, `next().await` and look again.
#[derive(Debug)]
pub(crate) struct Watch {
    wakeups: watch::Receiver<u64>,
    deadline: Instant,
    shutdown: CancellationToken,
}

impl App {
    /// To be made before the first look, so that no change falls in between.
    pub(crate) fn watch(&self, wait: Duration) -> Watch {
        let mut wakeups = self.wakeups.0.clone();
        wakeups.mark_unchanged();
        Watch { wakeups, deadline: Instant::now() + wait, shutdown: self.shutdown.clone() }
    }
}

impl Watch {
    /// Returns when it is worth to look again; `false` when the time is over.
    pub(crate) async fn next(&mut self) -> bool {
        if Instant::now() >= self.deadline || self.shutdown.is_cancelled() {
            return false;
        }
        let next_look = self.deadline.min(Instant::now() + LOOK_EVERY);
        tokio::select! {
            Ok(()) = self.wakeups.changed() => {}
            () = sleep_until(next_look) => {}
            () = self.shutdown.cancelled() => {}
        }
        true
    }
}
