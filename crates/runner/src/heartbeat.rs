//! Renews a lease while the work goes on, and ends the work when the lease is lost.

use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;
use vitrina_core::{Error, Lease};
use vitrina_store::{Error as StoreError, Store};

/// Raises `interruption` when someone asks for a pause or a cancel, and returns only when the lease is
/// lost. `beat` has it look at once: a notification alone proves nothing, it may be of an earlier run.
/// An unreachable meta-store proves nothing either: the fence in every commit decides, so the work may go
/// on until it answers again.
pub(crate) async fn keep(
    store: &Store,
    lease: Lease,
    length: Duration,
    beat: &Notify,
    interruption: CancellationToken,
) -> Error {
    let mut wait = length / 3;
    loop {
        timeout(wait, beat.notified()).await.ok();
        wait = length / 3;
        match timeout(length / 3, store.renew(&lease)).await {
            Ok(Ok(pulse)) if pulse.interrupted => interruption.cancel(),
            Ok(Ok(_)) => {}
            Ok(Err(StoreError::LeaseLost)) => return Error::lease_lost(),
            failed => {
                let reason = match failed {
                    Ok(Err(error)) => error.to_string(),
                    _ => "no answer in time".to_owned(),
                };
                tracing::warn!(pipeline_id = %lease.pipeline, error = reason, "a heartbeat failed");
                wait = length / 10;
            }
        }
    }
}
