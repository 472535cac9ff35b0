//! Deletes what is older than `runner.keep_history`, until nothing is left to delete.

use std::time::Duration;

use tokio::time::{Instant, sleep};
use vitrina_store::{Retention, RetentionStep, Store};

use crate::counters;

/// Steps take half of the time at most, so that a meta-store with much to delete has room for its other callers.
pub(crate) async fn sweep(store: &Store, keep: Duration) {
    let started = Instant::now();
    let mut retention = store.retention(keep);
    loop {
        let (began, before) = (Instant::now(), (retention.runs, retention.reconciles));
        let step = retention.step().await;
        counters::history_deleted(retention.runs - before.0, retention.reconciles - before.1);
        match step {
            Ok(RetentionStep::Deleted) => sleep(began.elapsed()).await,
            Ok(RetentionStep::Done | RetentionStep::Busy) => break,
            Err(error) => {
                tracing::warn!(%error, "old history cannot be deleted this time");
                break;
            }
        }
    }
    report(&retention, started.elapsed());
}

fn report(retention: &Retention, took: Duration) {
    let Retention { runs, reconciles, .. } = retention;
    if runs + reconciles > 0 {
        let seconds = took.as_secs_f64();
        tracing::info!(runs, reconciles, seconds, "history older than runner.keep_history was deleted");
    }
}
