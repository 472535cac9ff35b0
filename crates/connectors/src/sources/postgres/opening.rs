//! The moment at which a pass opens: one statement, and so one snapshot, for all that the pass is bounded by.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use vitrina_core::{Error, Result};

use super::origins::{OTHER_ORIGINS, Origins};
use super::reader::Reader;

/// The source at one moment.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Server {
    /// Which server it is, since when it runs, and on which history: transaction numbers of another one mean nothing.
    identity: String,
    /// All transactions before this one had ended.
    xmin: u64,
    /// The next one to come.
    xmax: u64,
    /// The whole snapshot; a standby does not know who is running.
    snapshot: Option<String>,
    /// How far its log was on disk; not of a standby, which follows the log of another server.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    flushed: Option<u64>,
    /// The oid of the database: a server may have a copy of it beside it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    database: Option<u32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    origins: Option<Origins>,
}

/// Half of all transaction numbers: what is further behind looks as if it were ahead.
const HALF: u64 = 1 << 31;

impl Server {
    /// Nothing has been committed since `earlier`.
    pub(super) fn is_still(&self, earlier: &Self) -> bool {
        self.snapshot.is_some() && self.snapshot == earlier.snapshot && self.identity == earlier.identity
    }

    /// Why the source may lack rows that it has shown at `earlier`, or later, when its log was as long as `seen`. A restart is
    /// no reason.
    pub(super) fn mistrust(&self, earlier: &Self, seen: Option<u64>) -> Option<&'static str> {
        if self.history().ne(earlier.history()) {
            return Some("the source is another server, or has another history");
        }
        if self.database.zip(earlier.database).is_some_and(|(now, then)| now != then) {
            return Some("the source is another database");
        }
        let origins = self.origins.as_ref().zip(earlier.origins.as_ref());
        if origins.is_some_and(|(now, then)| now.are_other_than(then)) {
            return Some(OTHER_ORIGINS);
        }
        let (now, then) = self.flushed.zip(earlier.flushed.max(seen))?;
        (now < then).then_some("the source has gone back in time")
    }

    /// It was restarted since, or put back.
    pub(super) fn is_another_start(&self, earlier: &Self) -> bool {
        self.identity.split('/').nth(2) != earlier.identity.split('/').nth(2)
    }

    /// System identifier and timeline: a standby that is promoted begins another one, as does a restored server.
    fn history(&self) -> impl Iterator<Item = &str> {
        self.identity.split('/').take(2)
    }

    /// Rows that became visible after `earlier` were written by this transaction or later ones. `None` when
    /// nothing can be said, or when saying it would rule out nothing.
    pub(super) fn since(&self, earlier: &Self) -> Option<u64> {
        let same = self.identity == earlier.identity;
        let near = self.xmax.checked_sub(earlier.xmin).is_some_and(|behind| behind < HALF);
        let moves = self.xmin > earlier.xmin;
        (same && near && moves).then_some(earlier.xmin)
    }
}

/// A row that a later transaction than `xmin` may have written, as a condition on its version.
pub(super) fn is_since(alias: &str, xmin: u64) -> String {
    format!("age({alias}.xmin) <= (select age('{}'::xid))", xmin % (1 << 32))
}

/// The server stays the same only while all of these do: a promoted standby changes its timeline, a restart
/// its time, and a crash that leaves the postmaster alive the statistics. The control file of a promoted server shows its
/// timeline late.
const SERVER: &str = "pg_current_snapshot()::text, pg_is_in_recovery(),
    concat_ws('/', (select system_identifier from pg_control_system()),
              case when pg_is_in_recovery() then (select timeline_id from pg_control_checkpoint())
                   else ('x' || left(pg_walfile_name(pg_current_wal_insert_lsn()), 8))::bit(32)::int end,
              extract(epoch from pg_postmaster_start_time()), (select extract(epoch from stats_reset) from pg_stat_bgwriter)),
    case when not pg_is_in_recovery() then (pg_current_wal_flush_lsn() - '0/0')::text end,
    (select oid from pg_database where datname = current_database())";
const NOW: &str = "to_char(now() at time zone 'UTC', 'YYYY-MM-DD\"T\"HH24:MI:SS.US\"Z\"')";

pub(super) struct Opening {
    pub(super) opened_at: Timestamp,
    pub(super) server: Server,
    /// One a greatest cursor that was asked for.
    pub(super) bounds: Vec<Option<Vec<String>>>,
}

/// `greatest` are sub-selects of one text array each.
pub(super) async fn open(reader: &Reader, greatest: &[String]) -> Result<Opening> {
    let bounds: String = greatest.iter().map(|sql| format!(", ({sql})")).collect();
    let row = reader.row(&format!("select {SERVER}, {NOW}{bounds}")).await?;
    let opened_at = row.get::<_, String>(5).parse().map_err(|error| unreadable(format!("{error}")))?;
    let bounds = (0..greatest.len()).map(|place| row.get(6 + place)).collect();
    Ok(Opening { opened_at, server: Server::read(reader, &row)?, bounds })
}

/// The source as it is now.
pub(super) async fn server(reader: &Reader) -> Result<Server> {
    Server::read(reader, &reader.row(&format!("select {SERVER}")).await?)
}

impl Server {
    fn read(reader: &Reader, row: &tokio_postgres::Row) -> Result<Self> {
        let (snapshot, standby): (String, bool) = (row.get(0), row.get(1));
        let mut parts = snapshot.split(':').map(str::parse::<u64>);
        let (Some(Ok(xmin)), Some(Ok(xmax))) = (parts.next(), parts.next()) else {
            return Err(unreadable(format!("{snapshot} is no snapshot")));
        };
        let flushed = row.get::<_, Option<&str>>(3).and_then(|flushed| flushed.parse().ok());
        let snapshot = (!standby).then_some(snapshot);
        let (database, origins) = (row.get(4), Some(reader.origins.clone()));
        Ok(Self { identity: row.get(2), xmin, xmax, snapshot, flushed, database, origins })
    }
}

fn unreadable(error: String) -> Error {
    Error::bug("source.opening", error)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn server(identity: &str, xmin: u64, xmax: u64) -> Server {
        Server {
            identity: identity.into(),
            xmin,
            xmax,
            snapshot: Some(format!("{xmin}:{xmax}:")),
            flushed: None,
            database: None,
            origins: None,
        }
    }

    #[test]
    fn a_fence_holds_on_the_same_server_and_for_half_of_all_numbers() {
        let earlier = server("a", 1000, 1010);
        assert_eq!(server("a", 1005, 1020).since(&earlier), Some(1000));
        assert_eq!(server("b", 1005, 1020).since(&earlier), None);
        assert_eq!(server("a", 1005, 1000 + HALF).since(&earlier), None);
        assert_eq!(server("a", 1005, 999 + HALF).since(&earlier), Some(1000));
    }

    #[test]
    fn a_fence_that_a_long_transaction_holds_is_not_put_up() {
        assert_eq!(server("a", 1000, 2000).since(&server("a", 1000, 1010)), None);
    }

    #[test]
    fn a_server_is_still_only_when_nothing_has_come_or_gone() {
        let earlier = server("a", 1000, 1010);
        assert!(server("a", 1000, 1010).is_still(&earlier));
        assert!(!server("a", 1000, 1011).is_still(&earlier));
        assert!(!server("b", 1000, 1010).is_still(&earlier));
        let standby = Server { snapshot: None, ..earlier };
        assert!(!standby.is_still(&standby.clone()));
    }

    #[test]
    fn a_source_is_mistrusted_for_another_history_and_for_a_log_that_is_shorter_than_it_was() {
        let at = |identity: &str, flushed: Option<u64>| Server { flushed, ..server(identity, 1, 2) };
        let earlier = at("7/1/10.5/3", Some(500));
        assert_eq!(at("7/1/99.5/4", Some(500)).mistrust(&earlier, None), None, "a restart");
        assert_eq!(at("7/1/10.5/3", None).mistrust(&earlier, None), None, "a standby");
        assert!(at("7/2/10.5/3", Some(900)).mistrust(&earlier, None).unwrap().contains("another history"));
        assert!(at("8/1/10.5/3", Some(900)).mistrust(&earlier, None).unwrap().contains("another server"));
        assert!(at("7/1/10.5/3", Some(499)).mistrust(&earlier, None).unwrap().contains("back in time"));
        assert!(at("7/1/10.5/3", Some(700)).mistrust(&earlier, Some(701)).unwrap().contains("back in time"));
        assert_eq!(at("7/1/10.5/3", Some(700)).mistrust(&earlier, Some(700)), None);
        let of = |database| Server { database, ..server("7/1/10.5/3", 1, 2) };
        assert_eq!(of(Some(5)).mistrust(&of(Some(5)), None), None);
        assert_eq!(of(Some(5)).mistrust(&of(None), None), None, "as an older release has kept it");
        assert!(of(Some(6)).mistrust(&of(Some(5)), None).unwrap().contains("another database"));
    }
}
