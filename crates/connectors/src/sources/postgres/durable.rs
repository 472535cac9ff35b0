//! Nothing is copied that can vanish: a snapshot is read only when all it shows has reached the disk of its
//! server. Commits that were not waited for (`synchronous_commit = off`) are seen before that, and a crash
//! takes them back: the mart would be ahead of its source, and their transaction numbers come again.

use std::time::{Duration, Instant};

use tokio::time::sleep;
use tokio_postgres::SimpleQueryMessage;
use vitrina_core::{Error, Result};

use crate::connection::Session;

/// On a standby all that is visible has come through the log already.
const POSITIONS: &str = "select case when not pg_is_in_recovery() then pg_current_wal_insert_lsn() end,
           case when not pg_is_in_recovery() then pg_current_wal_flush_lsn() end";
const FLUSHED: &str = "select null, pg_current_wal_flush_lsn()";
/// The number alone makes the server flush its log soon, where nothing else does: an idle transaction may have
/// filled half a page of it.
const NUDGE: &str = "rollback; select pg_current_xact_id()";
const NUDGE_AFTER: Duration = Duration::from_millis(250);
const PATIENCE: Duration = Duration::from_secs(30);

/// Begins a transaction on such a snapshot.
pub(super) async fn begin(session: &Session, begin: &str) -> Result<()> {
    let begin = format!("{begin}; {POSITIONS}");
    let started = Instant::now();
    loop {
        let (seen, flushed) = positions(session, &begin).await?;
        let Some(seen) = seen else { return Ok(()) };
        if flushed >= Some(seen) || reaches(session, seen).await? {
            return Ok(());
        }
        session.run(NUDGE).await?;
        if started.elapsed() > PATIENCE {
            let message = "the source does not write its log to disk, and what it shows could still vanish";
            return Err(Error::release("source.not_durable", message));
        }
    }
}

async fn reaches(session: &Session, seen: u64) -> Result<bool> {
    let (started, mut wait) = (Instant::now(), Duration::from_millis(1));
    while started.elapsed() < NUDGE_AFTER {
        sleep(wait).await;
        wait = (wait * 2).min(Duration::from_millis(50));
        if positions(session, FLUSHED).await?.1 >= Some(seen) {
            return Ok(true);
        }
    }
    Ok(false)
}

async fn positions(session: &Session, sql: &str) -> Result<(Option<u64>, Option<u64>)> {
    let answer = session.client.simple_query(sql).await.map_err(|error| session.explain(error))?;
    let row = answer.iter().find_map(|message| match message {
        SimpleQueryMessage::Row(row) => Some((row.get(0).and_then(parse), row.get(1).and_then(parse))),
        _ => None,
    });
    row.ok_or_else(|| Error::bug("source.log", "the source did not tell how far its log is"))
}

/// `16/B374D848`.
fn parse(text: &str) -> Option<u64> {
    let (high, low) = text.split_once('/')?;
    Some(u64::from_str_radix(high, 16).ok()? << 32 | u64::from_str_radix(low, 16).ok()?)
}
