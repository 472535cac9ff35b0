//! A runner that was taken for dead.

use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;
use vitrina_core::PipelineId;
use vitrina_testbed::{Fault, FaultProxy, Gate};

use crate::shelf::Shelf;

/// A runner that was taken for dead while one of its requests stood before a gate.
pub(crate) struct Zombie {
    pub(crate) gate: Gate,
    pub(crate) runner: JoinSet<()>,
    pub(crate) stop: CancellationToken,
}

impl Zombie {
    pub(crate) async fn before(shelf: &Shelf, proxy: &FaultProxy, part: &str, id: PipelineId) -> Self {
        let gate = Gate::new();
        proxy.play(1, part, Fault::Hold(gate.clone()));
        let (runner, stop) = shelf.stage.start(shelf.settings("zombie"));
        shelf.stage.request(id).await;
        gate.arrived().await;
        shelf.stage.expire_leases().await;
        Self { gate, runner, stop }
    }

    /// It wakes, and does whatever it still means to do.
    pub(crate) async fn wake(mut self) {
        self.gate.open();
        self.gate.passed().await;
        self.stop.cancel();
        self.runner.join_next().await.unwrap().unwrap();
    }
}
