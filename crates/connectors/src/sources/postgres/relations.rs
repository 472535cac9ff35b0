//! The relations that a reader reads. They are locked before the snapshot that they are read in is taken: TRUNCATE and
//! statements that rewrite a table are not MVCC-safe. A transaction whose snapshot is older than such a statement, and
//! which then waits for its lock, sees an empty table.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};

use tokio_postgres::SimpleQueryMessage;
use tokio_postgres::error::SqlState;
use vitrina_core::Result;

use crate::connection::Session;

#[derive(Debug, Default)]
pub(super) struct Relations {
    /// Quoted and qualified. One order for all sessions, so that two of them do not wait for each other.
    names: Mutex<BTreeSet<String>>,
    /// LOCK TABLE is refused: for a materialized view, or for a login that may read some columns only.
    unlockable: AtomicBool,
}

/// Whether the locks of this transaction came too late: a locked relation is not the one that its snapshot shows, has
/// other files, or has partitions that came or went since. Functions of the catalog show the present, tables of it the
/// snapshot.
const CHANGED: &str = "select count(*) from pg_locks l left join pg_class c on c.oid = l.relation
     where l.pid = pg_backend_pid() and l.locktype = 'relation' and l.relation >= 16384
       and (c.oid is null
            or c.relkind in ('r', 'm') and c.relfilenode is distinct from pg_relation_filenode(l.relation)
            or not c.relispartition and pg_partition_root(l.relation) <> l.relation
            or exists (select from pg_inherits i join pg_class p on p.oid = i.inhrelid and p.relispartition
                        where i.inhparent = l.relation and coalesce(pg_partition_root(p.oid), p.oid) = p.oid))";

impl Relations {
    pub(super) fn of(sql: &str) -> Self {
        Self { names: Mutex::new(vitrina_guard::relations(sql).into_iter().collect()), ..Self::default() }
    }

    pub(super) fn add(&self, names: impl IntoIterator<Item = String>) {
        self.names.lock().unwrap_or_else(PoisonError::into_inner).extend(names);
    }

    /// To be sent before the statement that takes the snapshot. A lock on a view holds all that it reads, one on a
    /// table all of its partitions.
    pub(super) fn lock(&self) -> Option<String> {
        let names = self.names.lock().unwrap_or_else(PoisonError::into_inner);
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        let lockable = !names.is_empty() && !self.unlockable.load(Ordering::Relaxed);
        lockable.then(|| format!("lock table {} in access share mode", names.join(", ")))
    }

    /// Whether the relations cannot be locked in this way; from now on it is not tried.
    pub(super) fn refuse_lock(&self, error: &tokio_postgres::Error) -> bool {
        let refusals = [SqlState::INSUFFICIENT_PRIVILEGE, SqlState::WRONG_OBJECT_TYPE];
        let refused = error.code().is_some_and(|state| refusals.contains(state));
        refused && !self.unlockable.swap(true, Ordering::Relaxed)
    }

    /// Where they could not be locked before the snapshot, they are now; then whether it shows them as they are.
    pub(super) async fn are_as_shown(&self, session: &Session) -> Result<bool> {
        if !self.unlockable.load(Ordering::Relaxed) {
            return Ok(true);
        }
        let answer = session.client.simple_query(&self.late_lock()).await;
        let answer = answer.map_err(|error| session.explain(error))?;
        let last = answer.iter().rev().find_map(|message| match message {
            SimpleQueryMessage::Row(row) => row.get(0),
            _ => None,
        });
        Ok(last == Some("0"))
    }

    /// Whoever plans a query locks all that it reads.
    fn late_lock(&self) -> String {
        let names = self.names.lock().unwrap_or_else(PoisonError::into_inner);
        let locks: String = names.iter().map(|name| format!("select from {name} limit 0; ")).collect();
        format!("{locks}{CHANGED}")
    }
}
