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

/// Who follows the log for its changes would be told of a word in it.
const MAY_WRITE: &str = "rollback; select bool_and(has_function_privilege(oid, 'execute'))
           and not exists (select from pg_replication_slots where slot_type = 'logical')
      from pg_proc where proname = 'pg_logical_emit_message' and pronamespace = 'pg_catalog'::regnamespace";
/// A commit that has written flushes the log up to itself. This is the one word that anybody may write, and it is in the
/// log alone.
const WRITE: &str = "begin read write; set local synchronous_commit = local;
    select pg_logical_emit_message(true, 'vitrina', ''::text); commit";
/// One that has but a number makes the server flush its log soon, where nothing else does: an idle transaction may have
/// filled half a page of it.
const NUDGE: &str = "select pg_current_xact_id()";

/// Begins a transaction on such a snapshot.
pub(super) async fn begin(session: &Session, begin: &str) -> Result<()> {
    let begin = format!("{begin}; {POSITIONS}");
    let (started, mut wait) = (Instant::now(), FLUSHED_SOON);
    loop {
        let (seen, flushed) = positions(session, &begin).await?;
        let Some(seen) = seen else { return Ok(()) };
        if flushed >= Some(seen) || reaches(session, seen, wait).await? {
            return Ok(());
        }
        flush(session).await?;
        wait = FLUSHED_LATE;
        if started.elapsed() > PATIENCE {
            let message = "the source does not write its log to disk, and what it shows could still vanish";
            return Err(Error::release("source.not_durable", message));
        }
    }
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

/// At once if it can be done, else soon.
async fn flush(session: &Session) -> Result<()> {
    let may_write = row(session, MAY_WRITE).await?.get(0) == Some("t");
    session.run(if may_write { WRITE } else { NUDGE }).await
}

async fn positions(session: &Session, sql: &str) -> Result<(Option<u64>, Option<u64>)> {
    let row = row(session, sql).await?;
    Ok((row.get(0).and_then(parse), row.get(1).and_then(parse)))
}

async fn row(session: &Session, sql: &str) -> Result<SimpleQueryRow> {
    let answer = session.client.simple_query(sql).await.map_err(|error| session.explain(error))?;
    let row = answer.into_iter().find_map(|message| match message {
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
