//! The target's own time, without asking for it at every batch.

use std::time::Instant;

use vitrina_core::Result;

use crate::connection::Session;

#[derive(Debug)]
pub(super) struct Clock {
    asked: i64,
    since: Instant,
}

impl Clock {
    pub(super) async fn of(session: &Session) -> Result<Self> {
        let sql = "select (extract(epoch from clock_timestamp()) * 1000000)::bigint";
        let row = session.client.query_one(sql, &[]).await.map_err(|error| session.explain(error))?;
        Ok(Self { asked: row.get(0), since: Instant::now() })
    }

    /// Microseconds since 1970; never ahead of the target.
    pub(super) fn micros(&self) -> i64 {
        self.asked.saturating_add(i64::try_from(self.since.elapsed().as_micros()).unwrap_or(i64::MAX))
    }
}
