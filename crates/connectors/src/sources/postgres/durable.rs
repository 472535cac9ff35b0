//! Nothing is copied that can vanish: a snapshot is read only when all it shows has reached the disk of its
//! server. Commits that were not waited for (`synchronous_commit = off`) are seen before that, and a crash
//! takes them back: the mart would be ahead of its source, and their transaction numbers come again.

use std::time::{Duration, Instant};

use tokio::time::sleep;
use tokio_postgres::{SimpleQueryMessage, SimpleQueryRow};
use vitrina_core::{Error, Result};

use crate::connection::Session;

/// On a standby all that is visible has come through the log already.
const POSITIONS: &str = "select case when not pg_is_in_recovery() then pg_current_wal_insert_lsn() end,
           case when not pg_is_in_recovery() then pg_current_wal_flush_lsn() end";
const FLUSHED: &str = "select null, pg_current_wal_flush_lsn()";
/// Others commit, and flush the log as they do.
const FLUSHED_SOON: Duration = Duration::from_millis(7);
/// A server's own log writer has had its turn.
const FLUSHED_LATE: Duration = Duration::from_millis(250);
const PATIENCE: Duration = Duration::from_secs(30);

/// Nobody can be told of a word in a log that is not kept for logical decoding.
const MAY_WRITE: &str = "rollback; select current_setting('wal_level') <> 'logical'
           and bool_and(has_function_privilege(oid, 'execute'))
      from pg_proc where proname = 'pg_logical_emit_message' and pronamespace = 'pg_catalog'::regnamespace";
/// A commit that has written flushes the log up to itself. This is the one word that anybody may write, and it is in the
/// log alone.
const WRITE: &str = "begin; set local synchronous_commit = local;
    select pg_logical_emit_message(true, 'vitrina', ''::text); commit";
/// One that has but a number makes the server flush its log soon, where nothing else does: an idle transaction may have
/// filled half a page of it.
const NUDGE: &str = "rollback; begin; select pg_current_xact_id(); commit";

/// How far a snapshot shows the log, and how far that is on disk.
type Positions = (Option<u64>, Option<u64>);

/// A snapshot that may be read.
pub(super) struct Durable {
    /// It is that of the first transaction.
    pub(super) first: bool,
    /// How long the source's log was; not of a standby.
    pub(super) log: Option<u64>,
}

/// Returns when the snapshot of a transaction that `begin` has just begun is such a one, or that of another transaction in
/// its place.
pub(super) async fn wait(session: &Session, begin: &str) -> Result<Durable> {
    let begin = format!("{begin}; {POSITIONS}");
    let (started, mut wait, mut first) = (Instant::now(), FLUSHED_SOON, true);
    let (mut seen, mut flushed) = positions(session, POSITIONS).await?;
    while let Some(snapshot) = seen {
        if flushed >= seen || reaches(session, snapshot, wait).await? {
            break;
        }
        if started.elapsed() > PATIENCE {
            let message = "the source does not write its log to disk, and what it shows could still vanish";
            return Err(Error::release("source.not_durable", message));
        }
        (seen, flushed) = flush_and(session, &begin).await?;
        (wait, first) = (FLUSHED_LATE, false);
    }
    Ok(Durable { first, log: seen })
}

/// At once where the server lets it, else soon. In one message: others write meanwhile.
async fn flush_and(session: &Session, begin: &str) -> Result<Positions> {
    let may_write = row(session, MAY_WRITE).await?.get(0) == Some("t");
    if may_write && let Ok(positions) = positions(session, &format!("{WRITE}; {begin}")).await {
        return Ok(positions);
    }
    positions(session, &format!("{NUDGE}; {begin}")).await
}

async fn reaches(session: &Session, seen: u64, patience: Duration) -> Result<bool> {
    let (started, mut wait) = (Instant::now(), Duration::from_millis(1));
    while started.elapsed() < patience {
        sleep(wait).await;
        wait = (wait * 2).min(Duration::from_millis(50));
        if positions(session, FLUSHED).await?.1 >= Some(seen) {
            return Ok(true);
        }
    }
    Ok(false)
}

async fn positions(session: &Session, sql: &str) -> Result<Positions> {
    let row = row(session, sql).await?;
    Ok((row.get(0).and_then(parse), row.get(1).and_then(parse)))
}

/// The last one of its answers.
async fn row(session: &Session, sql: &str) -> Result<SimpleQueryRow> {
    let answer = session.client.simple_query(sql).await.map_err(|error| session.explain(error))?;
    let row = answer.into_iter().rev().find_map(|message| match message {
        SimpleQueryMessage::Row(row) => Some(row),
        _ => None,
    });
    row.ok_or_else(|| Error::bug("source.log", "the source did not tell how far its log is"))
}

/// `16/B374D848`.
fn parse(text: &str) -> Option<u64> {
    let (high, low) = text.split_once('/')?;
    Some(u64::from_str_radix(high, 16).ok()? << 32 | u64::from_str_radix(low, 16).ok()?)
}
