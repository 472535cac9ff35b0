//! Renews a lease while the work goes on, and ends the work when the lease is lost.

use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;
use vitrina_core::{Error, Lease};
use vitrina_store::{Error as StoreError, Store};

/// Raises `interruption` when someone asks for a pause or a cancel, and returns only when the lease is
/// lost. `beat` has it look at once: a notification alone proves nothing, it may be of an earlier run. An unreachable meta-store proves nothing: the fence in every commit decides, so the work may go
/// on until it answers again.
pub(crate) async fn keep(
    store: &Store,
    lease: Lease,
    length: Duration,
    beat: &Notify,
    interruption: CancellationToken,
) -> Error {
    loop {
        timeout(length / 3, beat.notified()).await.ok();
        // An answer that is late says nothing any more, and one that never comes must not be waited for.
        match timeout(length, store.renew(&lease)).await {
            Ok(Ok(pulse)) if pulse.interrupted => interruption.cancel(),
            Ok(Ok(_)) => {}
            Ok(Err(StoreError::LeaseLost)) => return Error::lease_lost(),
            Ok(Err(error)) => tracing::warn!(pipeline_id = %lease.pipeline, %error, "a heartbeat failed"),
            Err(_) => tracing::warn!(pipeline_id = %lease.pipeline, "a heartbeat is not answered"),
        }
    }
}
