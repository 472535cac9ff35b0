//! A window of the change log: what was not visible in one snapshot and is in the next. Each change belongs to
//! exactly one window, and nothing waits for long transactions.

use std::collections::BTreeMap;

use jiff::Timestamp;
use uuid::Uuid;
use vitrina_core::{Error, PipelineId, Result, shell_word};

use super::checkpoint::{Moment, Snapshot};
use super::owner;
use crate::sources::postgres::reader::Reader;
use crate::sources::postgres::recompute::Key;
use crate::sql::literal;

/// The triggers of every logged table and all that inherits from it. One that is switched off, or lacks an event,
/// makes it incomplete, as does a subscription where rows are not logged one by one; one that was switched off and on again has another version of its row.
pub(super) const SIGNATURES: &str = "
    with recursive tree(source, function, root, relid) as (
        select source, function, relation, relation from vitrina_log.change_sources
         union all select t.source, t.function, t.root, i.inhrelid from tree t join pg_inherits i on i.inhparent = t.relid)
    select m.source, md5(string_agg(m.relid || ':' || m.triggers, ',' order by m.relid)) as signature, bool_and(m.events = 60) as complete, min(m.root) as relation
      from (select t.source, t.root, t.relid, coalesce(bit_or(g.tgtype::int) filter (where g.tgenabled = 'A' or g.tgenabled = 'O' and r.srrelid is null), 0) & 60 as events,
                   coalesce(string_agg(format('%s%s%s', g.oid, g.tgenabled, g.xmin), '+' order by g.oid), '') as triggers
              from tree t left join pg_trigger g on g.tgrelid = t.relid and g.tgfoid = to_regprocedure(t.function || '()')
                   left join (select distinct srrelid from pg_subscription_rel) r on r.srrelid = t.relid
             group by t.source, t.root, t.relid) m
     group by m.source";

/// The source and the log at one moment.
pub(super) struct Opened {
    pub(super) moment: Moment,
    /// What the source last told this consumer, and whether it has given it up.
    pub(super) consumer: Option<(i64, bool)>,
    pub(super) pruned_below: u64,
}

/// A table of a log that a pipeline follows.
#[derive(Debug, Clone)]
pub(super) struct Followed {
    pub(super) source: String,
    pub(super) oid: u32,
}

/// Whose checkpoint it is.
#[derive(Debug, Clone, Copy)]
pub(super) struct Who {
    pub(super) installation: Uuid,
    pub(super) pipeline: PipelineId,
}

/// Nothing can be logged where the log is not installed, a standby does not know who is running, and a log that others can
/// change says nothing.
pub(super) async fn require_log(reader: &Reader) -> Result<()> {
    let row = reader
        .row(&format!(
            "select pg_is_in_recovery(), exists (select from pg_class c join pg_namespace n on n.oid = c.relnamespace
                                                  where n.nspname = 'vitrina_log' and c.relname = 'change_sources'),
                    {}, ({})",
            owner::IS_OUTDATED,
            owner::FAULT
        ))
        .await?;
    if row.get(0) {
        return Err(Error::fix("changelog.standby", "the change log cannot be read on a standby")
            .hint("name the primary as source_connection, or use capture: cursor"));
    }
    if let Some(fault) = row.get::<_, Option<&str>>(3) {
        return Err(owner::unsound(fault));
    }
    match (row.get(1), row.get(2)) {
        (true, _) => Ok(()),
        (false, true) => Err(owner::outdated()),
        (false, false) => Err(Error::fix("changelog.not_installed", "the source has no change log")
            .hint("`vitrina changelog install TABLE --key …` shows what its owner has to apply")),
    }
}

/// Of one snapshot, all that it shows being on disk.
pub(super) async fn open(reader: &Reader, sources: &[Followed], who: Who) -> Result<Opened> {
    reader.begin().await?;
    let opened = opened(reader, sources, who).await;
    reader.end().await?;
    opened
}

async fn opened(reader: &Reader, sources: &[Followed], who: Who) -> Result<Opened> {
    let row = reader
        .row(&format!(
            "select pg_current_snapshot()::text, to_char(now() at time zone 'UTC', 'YYYY-MM-DD\"T\"HH24:MI:SS.US\"Z\"'),
                    concat_ws('/', (select system_identifier from pg_control_system()), left(pg_walfile_name(pg_current_wal_insert_lsn()), 8)),
                    (select below::text from vitrina_log.change_pruned),
                    (select receipt from vitrina_log.change_consumers where installation = {installation} and pipeline = {pipeline}),
                    (select dropped from vitrina_log.change_consumers where installation = {installation} and pipeline = {pipeline}),
                    (select oid from pg_database where datname = current_database())",
            installation = literal(&who.installation.to_string()),
            pipeline = literal(&who.pipeline.to_string()),
        ))
        .await?;
    let unreadable = |error: String| Error::bug("changelog.opening", error);
    let snapshot = Snapshot::try_from(row.get::<_, String>(0)).map_err(unreadable)?;
    let opened_at: Timestamp =
        row.get::<_, String>(1).parse().map_err(|error| unreadable(format!("{error}")))?;
    let pruned_below = row.get::<_, Option<String>>(3).and_then(|below| below.parse().ok()).unwrap_or(0);
    let consumer = row.get::<_, Option<i64>>(4).zip(row.get(5));
    let triggers = triggers(reader, sources).await?;
    let moment = Moment::new(snapshot, opened_at, row.get(2), row.get(6), triggers);
    Ok(Opened { moment: Moment { origins: Some(reader.origins.clone()), ..moment }, consumer, pruned_below })
}

async fn triggers(reader: &Reader, sources: &[Followed]) -> Result<BTreeMap<String, String>> {
    let known = reader.known_rows(SIGNATURES).await?;
    let mut found = BTreeMap::new();
    for Followed { source, oid } in sources {
        let is_it = |row: &&tokio_postgres::Row| row.get::<_, &str>(0) == source;
        // One of the same name may have taken its place, and nothing logs that.
        let Some(row) = known.iter().find(is_it).filter(|row| row.get::<_, u32>(3) == *oid) else {
            return Err(not_logged(source, "changes of this table are not logged"));
        };
        if !row.get::<_, bool>(2) {
            return Err(not_logged(source, "some of its triggers are missing or switched off"));
        }
        found.insert(source.clone(), row.get(1));
    }
    Ok(found)
}

fn not_logged(source: &str, why: &str) -> Error {
    let (table, key) =
        source.strip_suffix(')').and_then(|source| source.split_once('(')).unwrap_or((source, ""));
    Error::fix("changelog.not_installed", format!("{source}: {why}")).hint(format!(
        "`vitrina changelog install {} --key {}` shows what is to be applied",
        shell_word(table),
        shell_word(key)
    ))
}

/// Tells the source how far this consumer has come; answers its receipt.
pub(super) async fn consume(reader: &Reader, who: Who, snapshot: &Snapshot, max_age: i64) -> Result<i64> {
    let sql = format!(
        "begin read write; select vitrina_log.consume_changes({}, {}, {}, make_interval(secs => {max_age})); commit",
        literal(&who.installation.to_string()),
        literal(&who.pipeline.to_string()),
        literal(&snapshot.text),
    );
    let receipt = reader.text(&sql).await?;
    receipt.parse().map_err(|_| Error::bug("changelog.receipt", format!("{receipt:?} is no receipt")))
}

/// Between two snapshots.
pub(super) struct Window<'a> {
    pub(super) from: &'a Snapshot,
    pub(super) upto: &'a Snapshot,
}

impl Window<'_> {
    /// Whether a transaction lies in the window: not visible in the first snapshot, visible in the second. In two
    /// parts, because "from the oldest running one on" would read again all since an old open transaction.
    fn conditions(&self) -> [String; 2] {
        let (first, last) = (self.from.xmax, self.upto.xmax);
        let visible = format!("pg_visible_in_snapshot(xid, {}::pg_snapshot)", literal(&self.upto.text));
        let running = self.from.running.iter().map(u64::to_string).collect::<Vec<_>>().join(",");
        [
            format!("xid >= '{first}'::xid8 and xid < '{last}'::xid8 and {visible}"),
            format!("xid = any ('{{{running}}}'::xid8[]) and {visible}"),
        ]
    }

    pub(super) async fn holds_truncate(&self, reader: &Reader, sources: &[Followed]) -> Result<bool> {
        let [new, late] = self.conditions();
        let sources = sources.iter().map(|followed| literal(&followed.source)).collect::<Vec<_>>().join(", ");
        let marker = |condition: &str| {
            format!(
                "exists (select from vitrina_log.change_log where source in ({sources}) and op = 'T' and {condition})"
            )
        };
        let row = reader.row(&format!("select {} or {}", marker(&new), marker(&late))).await?;
        Ok(row.get(0))
    }

    /// The next dirty keys of a source in the order of their hashes, each with its position, and whether they are
    /// the last. The planner is not trusted with the statistics of a table that grows and shrinks all the time.
    pub(super) async fn keys(
        &self,
        reader: &Reader,
        source: &str,
        after: Option<&Vec<String>>,
    ) -> Result<(Vec<(Vec<String>, Key)>, bool)> {
        let limit = reader.page_rows();
        reader.begin().await?;
        let keys = self.small(reader, source, after, limit).await?;
        let keys = match keys {
            Some(keys) => (keys, true),
            None => {
                let keys = self.page(reader, source, after, limit).await?;
                let last = keys.len() < limit;
                (keys, last)
            }
        };
        reader.end().await?;
        Ok(keys)
    }

    /// All keys of the window, if they are few.
    async fn small(
        &self,
        reader: &Reader,
        source: &str,
        after: Option<&Vec<String>>,
        limit: usize,
    ) -> Result<Option<Vec<(Vec<String>, Key)>>> {
        let [new, late] = self.conditions();
        let from = format!("from vitrina_log.change_log where source = {} and op <> 'T'", literal(source));
        let behind = after.map(|after| behind(after)).unwrap_or_default();
        reader.text("set local enable_seqscan = off; set local enable_bitmapscan = off").await?;
        let sql = format!(
            "with named as materialized (
                 (select kid, key {from} and {new} limit {limit} + 1) union all (select kid, key {from} and {late} limit {limit} + 1))
             select kid::text, key::text, (select count(*) from named) from named where true {behind} group by named.kid, named.key order by named.kid, named.key::text collate \"C\""
        );
        let rows = reader.rows(&sql).await?;
        // Nothing behind a position says nothing of how many there are: only some were looked at.
        let few = rows.first().map_or(after.is_none(), |row| row.get::<_, i64>(2) <= limit as i64);
        if few { parse(&rows).map(Some) } else { Ok(None) }
    }

    /// By the index of hashes, with all other plans switched off.
    async fn page(
        &self,
        reader: &Reader,
        source: &str,
        after: Option<&Vec<String>>,
        limit: usize,
    ) -> Result<Vec<(Vec<String>, Key)>> {
        let [new, late] = self.conditions();
        let (source, behind) = (literal(source), after.map(|after| behind(after)).unwrap_or_default());
        reader.text("set local enable_sort = off; set local enable_hashagg = off").await?;
        let sql = format!(
            "select distinct kid, key from (
                 select kid, key::text collate \"C\" as key from vitrina_log.change_log where source = {source} and op <> 'T' and (({new}) or ({late})) {behind} order by kid) l
              order by kid, key limit {limit}"
        );
        let sql = format!("select kid::text, key from ({sql}) page order by page.kid, page.key");
        parse(&reader.rows(&sql).await?)
    }
}

fn behind(after: &[String]) -> String {
    let [kid, key] = after else { return String::new() };
    let (kid, key) = (literal(kid), literal(key));
    format!("and kid >= {kid}::bigint and (kid > {kid}::bigint or key::text collate \"C\" > {key})")
}

fn parse(rows: &[tokio_postgres::Row]) -> Result<Vec<(Vec<String>, Key)>> {
    let parse = |row: &tokio_postgres::Row| {
        let (kid, key): (String, String) = (row.get(0), row.get(1));
        let values: Key = serde_json::from_str(&key).map_err(|error| {
            Error::bug("changelog.key", format!("the log holds a key that is none: {error}"))
        })?;
        Ok((vec![kid, key], values))
    };
    rows.iter().map(parse).collect()
}
