//! Renews a lease while the work goes on, and ends the work when the lease is lost.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tokio::time::sleep;
use vitrina_core::{Error, Lease};
use vitrina_store::{Error as StoreError, Store};

/// Set by the heartbeat and by every commit: someone asked for a pause or a cancel.
#[derive(Debug, Clone, Default)]
pub(crate) struct Interruption(Arc<AtomicBool>);

impl Interruption {
    pub(crate) fn raise(&self) {
        self.0.store(true, Ordering::Relaxed);
    }

    pub(crate) fn is_raised(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

/// Returns only when the lease is lost. An unreachable meta-store proves nothing: the fence in every
/// commit decides, so the work may go on until it answers again.
pub(crate) async fn keep(store: &Store, lease: Lease, length: Duration, interruption: Interruption) -> Error {
    loop {
        sleep(length / 3).await;
        match store.renew(&lease).await {
            Ok(pulse) if pulse.interrupted => interruption.raise(),
            Ok(_) => {}
            Err(StoreError::LeaseLost) => return Error::lease_lost(),
            Err(error) => tracing::warn!(pipeline_id = %lease.pipeline, %error, "a heartbeat failed"),
        }
    }
}
