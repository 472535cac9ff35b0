//! NOTIFY wakes runners and pollers at once; whoever waits here also polls, so a lost one costs a
//! little time and nothing else.

use std::time::Duration;

use sqlx::postgres::PgListener;
use uuid::Uuid;
use vitrina_core::PipelineId;

use crate::{Result, Store};

/// A session that listens for changes of status. Reconnects by itself.
#[derive(Debug)]
pub struct Wakeups {
    listener: PgListener,
}

/// What somebody ought to look at. A hint, never a fact: it may come late, twice or not at all.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Wakeup {
    /// A run waits for a runner.
    Requested,
    /// Somebody wants this pipeline's run to stop.
    Interrupted(PipelineId),
    /// A schedule is new, or a runner is asked to drain.
    Round,
    /// Something is asked that only a runner can answer.
    Asked,
    /// Some other change of status.
    Changed,
    /// Notifications were lost.
    Anything,
}

impl Store {
    pub async fn wakeups(&self) -> Result<Wakeups> {
        let mut listener = PgListener::connect_with(&self.pool).await?;
        listener.listen("vitrina").await?;
        Ok(Wakeups { listener })
    }
}

impl Wakeups {
    /// Waits for the next one.
    pub async fn next(&mut self) -> Wakeup {
        match self.listener.try_recv().await {
            Ok(Some(notification)) => read(notification.payload()),
            Ok(None) => Wakeup::Anything,
            Err(error) => {
                tracing::warn!(%error, "the meta-store's notifications are interrupted");
                // Polling goes on meanwhile; without a pause a dead server would be asked in a tight loop.
                tokio::time::sleep(Duration::from_secs(1)).await;
                Wakeup::Anything
            }
        }
    }
}

/// `<id> <what>`, or `DRAIN`.
fn read(payload: &str) -> Wakeup {
    let (pipeline, what) = payload.split_once(' ').unwrap_or(("", payload));
    match (what, Uuid::parse_str(pipeline)) {
        ("RUN_REQUESTED", _) => Wakeup::Requested,
        ("PAUSE_REQUESTED" | "CANCEL", Ok(id)) => Wakeup::Interrupted(PipelineId(id)),
        ("SCHEDULE" | "DRAIN", _) => Wakeup::Round,
        ("REQUEST", _) => Wakeup::Asked,
        _ => Wakeup::Changed,
    }
}
