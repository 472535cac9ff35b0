//! Where a request waits for the test, and the test for the request.

use tokio::sync::watch;
use tokio::time::timeout;

use crate::wait::PATIENCE;

#[derive(Debug, Clone)]
pub struct Gate {
    progress: watch::Sender<Progress>,
}

#[derive(Debug, Default)]
struct Progress {
    arrived: usize,
    is_open: bool,
    passed: usize,
}

impl Gate {
    /// A closed one.
    pub fn new() -> Self {
        Self { progress: watch::Sender::new(Progress::default()) }
    }

    /// Waits until a request stands before the gate, or has stood there.
    pub async fn arrived(&self) {
        self.wait("a request arrives at the gate", |progress| progress.arrived > 0).await;
    }

    /// Lets all pass, those to come too.
    pub fn open(&self) {
        self.progress.send_modify(|progress| progress.is_open = true);
    }

    /// Waits until what had arrived has been answered by the server.
    pub async fn passed(&self) {
        self.wait("a request passes the gate", |progress| {
            progress.passed > 0 && progress.passed == progress.arrived
        })
        .await;
    }

    async fn wait(&self, what: &str, condition: impl FnMut(&Progress) -> bool) {
        let mut progress = self.progress.subscribe();
        let waited = timeout(PATIENCE, progress.wait_for(condition)).await;
        waited.map(drop).unwrap_or_else(|_| panic!("{what}: not within {PATIENCE:?}"));
    }

    /// A request stands before the gate until that is open.
    pub async fn enter(&self) {
        self.progress.send_modify(|progress| progress.arrived += 1);
        let mut progress = self.progress.subscribe();
        drop(progress.wait_for(|progress| progress.is_open).await.expect("the gate is ours too"));
    }

    /// It has passed.
    pub fn leave(&self) {
        self.progress.send_modify(|progress| progress.passed += 1);
    }
}

impl Default for Gate {
    fn default() -> Self {
        Self::new()
    }
}
