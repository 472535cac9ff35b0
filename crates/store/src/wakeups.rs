//! NOTIFY wakes runners and pollers at once; whoever waits here also polls, so a lost one costs a
//! little time and nothing else.

use std::time::Duration;

use sqlx::postgres::PgListener;

use crate::{Result, Store};

/// A session that listens for changes of status. Reconnects by itself.
#[derive(Debug)]
pub struct Wakeups {
    listener: PgListener,
}

impl Store {
    pub async fn wakeups(&self) -> Result<Wakeups> {
        let mut listener = PgListener::connect_with(&self.pool).await?;
        listener.listen("vitrina").await?;
        Ok(Wakeups { listener })
    }
}

impl Wakeups {
    /// The next payload (`<pipeline id> <what>`). A connection that was lost counts as a wake-up:
    /// what happened meanwhile must be looked up.
    pub async fn next(&mut self) -> String {
        match self.listener.try_recv().await {
            Ok(Some(notification)) => notification.payload().to_owned(),
            Ok(None) => String::new(),
            Err(error) => {
                tracing::warn!(%error, "the meta-store's notifications are interrupted");
                // Polling goes on meanwhile; without a pause a dead server would be asked in a tight loop.
                tokio::time::sleep(Duration::from_secs(1)).await;
                String::new()
            }
        }
    }
}
