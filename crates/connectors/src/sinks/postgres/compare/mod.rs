//! A mart beside the rows of its pipeline, compared in SQL: by the source where the query's own rows are what is written,
//! else in a temporary table beside the mart, where the rows are put as the transforms leave them.

mod columns;
mod form;
mod hashing;
mod origin;
mod ranges;
mod side;
mod staged;

use std::collections::{BTreeSet, HashMap, VecDeque};
use std::sync::Arc;

use async_trait::async_trait;
use tokio_postgres::Row as Answer;
use vitrina_core::{Error, ErrorKind, Figures, Level, Result, SideFigures, TargetName};

use super::create;
use super::fence::MetaStore;
use super::mart::{Mart, MartColumn};
use super::own_part::OwnPart;
use super::owners::{own_columns, refuse_overlap};
use crate::connection::{End, Session};
use crate::reconcile::{Differing, Key, Mark, Order, Pair, Portion, Row, Seen, Stream, no_key};
use crate::sql::identifier;
use columns::Compared;
use hashing::{Hashing, VECTORS};
use origin::Origin;
use ranges::{Part, differing, differing_keys, keyless, part, sums, total};
use side::{Side, SideColumn, unsigned};

/// Rows of a range: few enough to be read for one that differs.
const ROWS_A_RANGE: u64 = 256;
const MOST_RANGES: u64 = 16_384;
/// Rows that are read one by one at a time. A range with more is cut into smaller ones.
const ROWS_AT_ONCE: u64 = 50_000;
/// Ranges that one statement reads.
const RANGES_AT_ONCE: usize = 64;

/// Few rows are asked for at a time, by keys that an index may serve.
const BY_KEYS: &str = "set random_page_cost = 1.1; set max_parallel_workers_per_gather = 0";

struct PostgresPair<'a> {
    mart: Arc<Session>,
    origin: Origin<'a>,
    target: Side,
    source: Side,
    /// The source's columns as the mart would hold them.
    written: Vec<SideColumn>,
    hashing: Hashing,
    key: Vec<String>,
    columns: Vec<String>,
    /// Columns whose smallest and greatest values are told.
    extremes: Vec<String>,
    left: Left,
    /// Its source can be asked for keys.
    takes_keys: bool,
    portion: Portion,
    /// When a row was written last, in the mart's own time.
    touch: Option<String>,
    /// The mart is beside the meta-store.
    by_meta_store: bool,
    /// Ranges or buckets that have been read.
    done: u64,
    /// Rows of the source without a whole key.
    keyless: u64,
}

/// What differs and has not been read yet.
enum Left {
    Ranges(VecDeque<Part>),
    /// Numbers of buckets, of so many, with their rows.
    Buckets(u32, VecDeque<(i32, u64)>),
}

pub(super) async fn open<'a>(name: &TargetName, order: &'a Order<'a>) -> Result<Box<dyn Pair + 'a>> {
    let connection = order.connections.get(&order.target.connection)?;
    let session = Session::open(connection, End::Sink, &order.lease().application_name()).await?;
    let mut mart =
        Mart::describe(&session, name, order.target).await?.ok_or_else(|| create::no_table(name))?;
    mart.own = OwnPart::of(order.pipeline, order.target)?;
    mart.require_own_part(&session).await?;
    let session = Arc::new(session);
    let mut origin = Origin::open(order, &mart, Arc::clone(&session)).await?;
    claim_columns(&mut mart, &session, order, &origin).await?;
    let columns = columns::described(&session, &mart, &origin).await?;
    refuse_rounded(order, &mart, &columns, &origin)?;
    let mut target = columns::target(&mart, &columns, &origin)?;
    let mut source = columns::source(&mart, &columns, &origin)?;
    refuse_keyless(&session, &mart, &target).await?;
    target.refused = refused(order, mart.key.len());
    source.refused.clone_from(&target.refused);
    let vectors = (ask(&session, VECTORS).await?, origin.ask(VECTORS).await?);
    let is_same = text(&vectors.0) == text(&vectors.1);
    let meta_store = MetaStore::of(&session, order.ledger, order.installation, order.id, order.owner).await?;
    let (touch, by_meta_store) = (touch(&mart, &columns), matches!(meta_store, MetaStore::Here));
    let cursor = order.pipeline.incremental_key.iter();
    let extremes = mart.key.iter().chain(cursor).cloned().collect();
    let left = match target.key[0].form.has_ranges() {
        true => Left::Ranges(VecDeque::new()),
        false => Left::Buckets(1, VecDeque::new()),
    };
    Ok(Box::new(PostgresPair {
        columns: target.columns.iter().map(|column| column.name.clone()).collect(),
        key: mart.key.clone(),
        mart: session,
        written: columns::as_written(&source, &columns, &origin),
        origin,
        target,
        source,
        hashing: Hashing::draw(is_same),
        extremes,
        left,
        takes_keys: Stream::takes_keys(order),
        portion: Portion::default(),
        touch,
        by_meta_store,
        done: 0,
        keyless: 0,
    }))
}

/// A unique constraint lets any number of rows without a key into the mart. They are no rows of the source, and nothing could name
/// them: neither a list of differences nor a repair.
async fn refuse_keyless(session: &Session, mart: &Mart, target: &Side) -> Result<()> {
    let is_never_null = |column: &MartColumn| column.not_null || !mart.is_key(&column.name);
    if mart.columns.iter().all(is_never_null) {
        return Ok(());
    }
    let counted = ask(session, &target.count_keyless()).await?;
    let rows: i64 = first(&counted)?.get(0);
    if rows == 0 {
        return Ok(());
    }
    let nulls: Vec<String> = mart.key.iter().map(|name| format!("{} is null", identifier(name))).collect();
    let message =
        format!("{rows} rows of {} have no key: no row of the source stands behind them", mart.name);
    Err(Error::fix("reconcile.keyless", message).hint(format!(
        "`delete from {} where {}`, or run it in mode full, which deletes them",
        mart.name,
        nulls.join(" or ")
    )))
}

/// The columns that the pipeline writes or, where no row has come that would tell, has written.
async fn claim_columns(
    mart: &mut Mart,
    session: &Session,
    order: &Order<'_>,
    origin: &Origin<'_>,
) -> Result<()> {
    let OwnPart::Columns(_) = &mart.own else { return Ok(()) };
    let mut own: Vec<String> = origin.columns().iter().filter(|name| !mart.is_key(name)).cloned().collect();
    if own.is_empty() {
        own = own_columns(session, &mart.name, order.installation, order.pipeline.id).await?;
    }
    // What a run may not write a comparison does not show.
    refuse_overlap(session, &mart.name, order.pipeline, &own).await?;
    mart.own = OwnPart::Columns(own);
    Ok(())
}

/// The touch column, where it holds moments and the query does not bring it itself.
fn touch(mart: &Mart, columns: &[Compared]) -> Option<String> {
    const TIMESTAMPTZ: u32 = 1184;
    let touch = mart.touch_column.as_ref()?;
    let is_brought = columns.iter().any(|compared| compared.column.name == *touch);
    let is_moment = mart.columns.iter().any(|column| column.name == *touch && column.oid == TIMESTAMPTZ);
    (is_moment && !is_brought).then(|| format!("m.{}", identifier(touch)))
}

#[async_trait]
impl Pair for PostgresPair<'_> {
    fn key(&self) -> &[String] {
        &self.key
    }

    fn columns(&self) -> &[String] {
        &self.columns
    }

    async fn count(&mut self) -> Result<(SideFigures, SideFigures)> {
        let (target, source) = (self.target.count(&self.extremes), self.source.count(&self.extremes));
        let as_of = self.as_of().await?;
        let (counted, source_counted) = self.ask_both(&target, &source).await?;
        let mut figures = (
            self.target.counted(&self.extremes, first(&counted)?),
            self.source.counted(&self.extremes, first(&source_counted)?),
        );
        (figures.0.as_of, figures.1.as_of) = as_of;
        self.keyless = self.count_keyless().await?;
        Ok(figures)
    }

    fn refused(&self) -> u64 {
        self.keyless + self.origin.refused()
    }

    async fn scan(&mut self, figures: &mut Figures) -> Result<()> {
        (figures.target.as_of, figures.source.as_of) = self.as_of().await?;
        match self.left {
            Left::Ranges(_) => self.scan_ranges(figures).await?,
            Left::Buckets(..) => self.scan_buckets(figures).await?,
        }
        self.mart.run(BY_KEYS).await
    }

    async fn differing(&mut self) -> Result<Option<Differing>> {
        match &mut self.left {
            Left::Ranges(parts) => match parts.front() {
                None => Ok(None),
                Some(part) if part.rows() > ROWS_AT_ONCE => self.cut().await.map(Some),
                Some(_) => self.read_ranges().await.map(Some),
            },
            Left::Buckets(_, buckets) if buckets.is_empty() => Ok(None),
            Left::Buckets(..) => self.read_buckets().await.map(Some),
        }
    }

    fn at_once(&self) -> usize {
        if self.takes_keys { self.portion.rows() } else { usize::MAX }
    }

    /// A value that cannot be compared costs its own row alone, which is shown as it was read.
    async fn rows(&mut self, keys: &[Key]) -> Result<Vec<Row>> {
        let (mut rows, mut left) = (Vec::with_capacity(keys.len()), vec![keys]);
        while let Some(some) = left.pop() {
            match self.rows_together(some).await {
                Ok(found) => rows.extend(found),
                Err(error) if error.kind != ErrorKind::ValueRefused => return Err(error),
                Err(_) if some.len() > 1 => {
                    self.origin.recover().await?;
                    let (first, second) = some.split_at(some.len() / 2);
                    left.extend([second, first]);
                }
                Err(_) => {
                    for key in some {
                        rows.push(self.as_read(key.clone()).await?.row);
                    }
                }
            }
        }
        self.portion.note(&rows);
        Ok(rows)
    }

    async fn row(&mut self, key: &Key) -> Result<Seen> {
        let known =
            ask(&self.mart, &self.target.known_as(key)).await.map_err(|error| match error.is_refused() {
                true => no_key(&self.key),
                false => error,
            })?;
        let key: Key = first(&known)?.get(0);
        match self.row_that_fits(&key).await {
            Err(error) if error.kind == ErrorKind::ValueRefused => self.as_read(key).await,
            row => row.map(|row| Seen { row, fits: true }),
        }
    }

    async fn mark(&mut self, key: &Key) -> Result<Option<Mark>> {
        let Some(touch) = &self.touch else { return Ok(None) };
        let found = ask(&self.mart, &self.target.moment(touch, key)).await?;
        let moment = found.first().and_then(|row| row.get::<_, Option<String>>(0));
        let at = moment.and_then(|text| text.parse().ok());
        Ok(at.map(|at| Mark::Touched { at, by_meta_store: self.by_meta_store }))
    }
}

impl PostgresPair<'_> {
    /// Refused where the mart's types, as they were declared, cannot hold what the source has.
    async fn row_that_fits(&mut self, key: &Key) -> Result<Row> {
        let keys = std::slice::from_ref(key);
        let row = self.rows_together(keys).await?.into_iter().next().ok_or_else(no_answer)?;
        if row.source.is_none() || row.source == row.target {
            return Ok(row);
        }
        let compared = std::mem::replace(&mut self.source.columns, self.written.clone());
        let written = self.source.rows(keys, &self.origin.relation_of_keys());
        self.source.columns = compared;
        self.origin.ask_keys(&written, keys).await.map(|_| row)
    }

    async fn rows_together(&mut self, keys: &[Key]) -> Result<Vec<Row>> {
        let mut target = HashMap::new();
        for some in keys.chunks(1000) {
            target.extend(by_key(&ask(&self.mart, &self.target.rows(some, &self.target.relation)).await?));
        }
        let source = self.source.rows(keys, &self.origin.relation_of_keys());
        let mut source = by_key(&self.origin.ask_keys(&source, keys).await?);
        let mut row =
            |key: &Key| Row { key: key.clone(), source: source.remove(key), target: target.remove(key) };
        let mut rows: Vec<Row> = keys.iter().map(&mut row).collect();
        // Keys may come as somebody else has written them, 1.50 for 1.5: their rows come back under their own.
        let others: BTreeSet<Key> = source.keys().chain(target.keys()).cloned().collect();
        rows.extend(others.into_iter().map(|key| {
            let (source, target) = (source.remove(&key), target.remove(&key));
            Row { key, source, target }
        }));
        Ok(rows)
    }

    async fn count_keyless(&mut self) -> Result<u64> {
        let counted = self.origin.ask(&self.source.count_keyless()).await?;
        Ok(unsigned(first(&counted)?.get(0)))
    }

    /// The mart's types cannot hold the source's values: those are shown as they are.
    async fn as_read(&mut self, key: Key) -> Result<Seen> {
        let keys = [key];
        self.origin.recover().await?;
        let mut target = by_key(&ask(&self.mart, &self.target.rows(&keys, &self.target.relation)).await?);
        let columns = columns::as_read(&self.source, &self.origin);
        let casting = std::mem::replace(&mut self.source.columns, columns);
        let plain = self.source.rows(&keys, &self.origin.relation_of_keys());
        self.source.columns = casting;
        let mut source = by_key(&self.origin.ask_keys(&plain, &keys).await?);
        let [key] = keys;
        let (source, target) = (source.remove(&key), target.remove(&key));
        Ok(Seen { row: Row { key, source, target }, fits: false })
    }

    /// When either side was looked at, by its own clock.
    async fn as_of(&mut self) -> Result<(Option<jiff::Timestamp>, Option<jiff::Timestamp>)> {
        const NOW: &str =
            "select to_char(clock_timestamp() at time zone 'UTC', 'YYYY-MM-DD\"T\"HH24:MI:SS.US\"Z\"')";
        let moment = |rows: &[Answer]| text(rows).and_then(|text| text.parse().ok());
        Ok((moment(&ask(&self.mart, NOW).await?), moment(&self.origin.ask(NOW).await?)))
    }

    async fn ask_both(&mut self, target: &str, source: &str) -> Result<(Vec<Answer>, Vec<Answer>)> {
        tokio::try_join!(ask(&self.mart, target), self.origin.ask(source))
    }

    async fn scan_ranges(&mut self, figures: &mut Figures) -> Result<()> {
        let rows = (self.expected_rows().await? / MOST_RANGES).max(ROWS_A_RANGE);
        let mut bounds = bounds(&ask(&self.mart, &self.target.bounds(rows, None)).await?);
        if longest_run(&bounds) * rows > ROWS_AT_ONCE {
            // Too many rows share their first column: ranges of it would have to be read at once.
            return self.scan_buckets(figures).await;
        }
        bounds.dedup();
        let parts = match self.differing_ranges(&bounds, None, Some(figures)).await {
            Err(error) if error.kind == ErrorKind::ValueRefused => {
                let parts = self.narrow(&bounds, figures).await?;
                self.keyless = self.count_keyless().await?;
                parts
            }
            parts => parts?,
        };
        figures.ranges = bounds.len() as u64 + 1;
        figures.differing_ranges = parts.len() as u64;
        self.left = Left::Ranges(parts.into());
        Ok(())
    }

    /// Some value of the source is none of the mart's type: the range that it is in differs, and the others are compared.
    async fn narrow(&mut self, bounds: &[String], figures: &mut Figures) -> Result<Vec<Part>> {
        let end = |place: Option<usize>| place.and_then(|place| bounds.get(place)).cloned();
        let all = 0..bounds.len() + 1;
        let (mut parts, mut left) = (Vec::new(), Vec::from_iter([all]));
        while let Some(ranges) = left.pop() {
            self.origin.recover().await?;
            let (from, to) = (end(ranges.start.checked_sub(1)), end(Some(ranges.end - 1)));
            let within = Part { from, to, ..Part::default() };
            let inner = &bounds[ranges.start..ranges.end - 1];
            let mut counted = Figures::default();
            match self.differing_ranges(inner, Some(&within), Some(&mut counted)).await {
                Ok(found) => {
                    parts.extend(found);
                    figures.target.rows += counted.target.rows;
                    figures.source.rows += counted.source.rows;
                }
                Err(error) if error.kind != ErrorKind::ValueRefused => return Err(error),
                Err(_) if ranges.len() > 1 => {
                    let middle = ranges.start + ranges.len() / 2;
                    left.extend([middle..ranges.end, ranges.start..middle]);
                }
                Err(_) => parts.push(within),
            }
        }
        Ok(parts)
    }

    /// Checksums of the ranges between bounds; answers those that differ.
    async fn differing_ranges(
        &mut self,
        bounds: &[String],
        within: Option<&Part>,
        figures: Option<&mut Figures>,
    ) -> Result<Vec<Part>> {
        let target = self.target.ranges(self.hashing, bounds, within);
        let source = self.source.ranges(self.hashing, bounds, within);
        let (target, source) = self.ask_both(&target, &source).await?;
        if within.is_none() {
            self.keyless = keyless(&source);
        }
        let (target, source) = (sums(&target), sums(&source));
        if let Some(figures) = figures {
            (figures.target.rows, figures.source.rows) = (total(&target), total(&source));
        }
        Ok(differing(&target, &source).into_iter().map(|differs| part(bounds, differs, within)).collect())
    }

    async fn scan_buckets(&mut self, figures: &mut Figures) -> Result<()> {
        let wanted = (self.expected_rows().await? / ROWS_A_RANGE).clamp(1024, MOST_RANGES);
        let buckets = u32::try_from(wanted.next_power_of_two()).unwrap_or(1024);
        let target = self.target.buckets(self.hashing, buckets);
        let source = self.source.buckets(self.hashing, buckets);
        let (target, source) = self.ask_both(&target, &source).await?;
        self.keyless = keyless(&source);
        let (target, source) = (sums(&target), sums(&source));
        let differing = differing(&target, &source);
        (figures.target.rows, figures.source.rows) = (total(&target), total(&source));
        (figures.ranges, figures.differing_ranges) = (buckets.into(), differing.len() as u64);
        let rows = differing.into_iter().map(|of| (of.number, of.target_rows + of.source_rows));
        self.left = Left::Buckets(buckets, rows.collect());
        Ok(())
    }

    /// By the statistics: what matters is how many ranges there will be.
    async fn expected_rows(&self) -> Result<u64> {
        let sql = format!(
            "select coalesce(sum(greatest(reltuples, 0)), 0)::int8 from pg_class
              where oid in (select relid from pg_partition_tree({0}::regclass) union select {0}::regclass)",
            crate::sql::literal(self.target.relation.trim_end_matches(" m"))
        );
        let rows = ask(&self.mart, &sql).await?;
        Ok(rows.first().map_or(0, |row| unsigned(row.get(0))))
    }

    /// A range that one side has many rows in is cut by the keys of that side.
    async fn cut(&mut self) -> Result<Differing> {
        let Left::Ranges(parts) = &mut self.left else { return Ok(Differing::default()) };
        let Some(whole) = parts.pop_front() else { return Ok(Differing::default()) };
        let rows = (whole.rows() / MOST_RANGES).max(ROWS_A_RANGE);
        let mut bounds = match whole.target_rows > whole.source_rows {
            true => bounds(&ask(&self.mart, &self.target.bounds(rows, Some(&whole))).await?),
            false => bounds(&self.origin.ask(&self.source.bounds(rows, Some(&whole))).await?),
        };
        bounds.dedup();
        let is_cut = bounds.iter().any(|bound| whole.from.as_ref() != Some(bound));
        let smaller = match is_cut {
            true => self.differing_ranges(&bounds, Some(&whole), None).await?,
            // All of its rows have one value in the first column of their key.
            false => vec![Part { target_rows: 0, source_rows: 0, ..whole }],
        };
        if let Left::Ranges(parts) = &mut self.left {
            smaller.into_iter().rev().for_each(|part| parts.push_front(part));
        }
        Ok(Differing { done: self.done, ..Differing::default() })
    }

    async fn read_ranges(&mut self) -> Result<Differing> {
        let mut some: Vec<Part> = Vec::new();
        if let Left::Ranges(parts) = &mut self.left {
            let mut rows = 0;
            while let Some(part) = parts.pop_front_if(|part| {
                some.is_empty() || (some.len() < RANGES_AT_ONCE && rows + part.rows() <= ROWS_AT_ONCE)
            }) {
                rows += part.rows();
                some.push(part);
            }
        }
        self.done += some.len() as u64;
        let target = self.target.rows_of_ranges(self.hashing, &some);
        let source = self.source.rows_of_ranges(self.hashing, &some);
        match tokio::try_join!(ask(&self.mart, &target), self.origin.ask_few(&source)) {
            Err(error) if error.kind == ErrorKind::ValueRefused => self.read_keys(&some).await,
            both => Ok(self.compared(&both?)),
        }
    }

    /// All keys of ranges that cannot be hashed: their rows are compared one by one.
    async fn read_keys(&mut self, parts: &[Part]) -> Result<Differing> {
        self.origin.recover().await?;
        let (target, source) = (self.target.keys_of_ranges(parts), self.source.keys_of_ranges(parts));
        let (target, source) = tokio::try_join!(ask(&self.mart, &target), self.origin.ask_few(&source))?;
        let mut keys: Vec<Key> = target.iter().chain(&source).map(|row| row.get(0)).collect();
        let rows_read = keys.len() as u64;
        keys.sort_unstable();
        keys.dedup();
        Ok(Differing { keys, done: self.done, rows_read })
    }

    async fn read_buckets(&mut self) -> Result<Differing> {
        let mut some: Vec<i32> = Vec::new();
        let mut of = 1;
        if let Left::Buckets(all, buckets) = &mut self.left {
            let mut rows = 0;
            while let Some((number, more)) =
                buckets.pop_front_if(|(_, more)| some.is_empty() || rows + *more <= 2 * ROWS_AT_ONCE)
            {
                rows += more;
                some.push(number);
            }
            of = *all;
        }
        self.done += some.len() as u64;
        let target = self.target.rows_of_buckets(self.hashing, of, &some);
        let source = self.source.rows_of_buckets(self.hashing, of, &some);
        let both = self.ask_both(&target, &source).await?;
        Ok(self.compared(&both))
    }

    fn compared(&self, (target, source): &(Vec<Answer>, Vec<Answer>)) -> Differing {
        let rows_read = (target.len() + source.len()) as u64;
        Differing { keys: differing_keys(source, target), done: self.done, rows_read }
    }
}

async fn ask(session: &Session, sql: &str) -> Result<Vec<Answer>> {
    session.client.query(sql, &[]).await.map_err(|error| session.explain(error))
}

fn first(rows: &[Answer]) -> Result<&Answer> {
    rows.first().ok_or_else(no_answer)
}

fn no_answer() -> Error {
    Error::bug("reconcile.answer", "a question has no answer")
}

fn text(rows: &[Answer]) -> Option<String> {
    rows.first().map(|row| row.get(0))
}

fn bounds(rows: &[Answer]) -> Vec<String> {
    rows.first().map(|row| row.get(0)).unwrap_or_default()
}

/// Of equal ones among bounds in order.
fn longest_run(bounds: &[String]) -> u64 {
    let runs = bounds.chunk_by(|one, other| one == other);
    runs.map(|run| run.len() as u64).max().unwrap_or_default()
}

/// Keys that are not compared. More of them would make every statement long.
const MOST_REFUSED: usize = 10_000;

fn refused(order: &Order<'_>, columns: usize) -> Vec<Key> {
    let key = |text: &String| serde_json::from_str::<Key>(text).ok().filter(|key| key.len() == columns);
    order.refused.iter().filter_map(key).take(MOST_REFUSED).collect()
}

/// A repair asks the source for the keys that differ, and it knows them by other values than the mart.
fn refuse_rounded(order: &Order<'_>, mart: &Mart, columns: &[Compared], origin: &Origin<'_>) -> Result<()> {
    let rounds = |compared: &&Compared| {
        let name = &compared.column.name;
        mart.is_key(name) && compared.rounds() && !origin.is_of_type(name, &compared.column.full_type)
    };
    let Some(rounded) = columns.iter().find(rounds).filter(|_| order.level == Level::Rows) else {
        return Ok(());
    };
    let name = &rounded.column.name;
    let message = format!("{} rounds its key {name:?}: rows cannot be found at the source by it", mart.name);
    Err(Error::fix("reconcile.rounded_key", message)
        .hint("cast the column in the query to the mart's type, or compare at level `hash`"))
}

/// Of several rows of one key the last one counts.
fn by_key(rows: &[Answer]) -> HashMap<Key, Vec<Option<String>>> {
    rows.iter().map(|row| (row.get(0), row.get(1))).collect()
}
