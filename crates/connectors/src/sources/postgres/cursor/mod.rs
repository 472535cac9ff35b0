//! Incremental reading behind (incremental_key, incremental_id_key), in passes.
//!
//! A pass opens at one moment and ends at the greatest cursor that was visible then; the next one starts
//! `late_window` before whichever is earlier, that cursor or the opening, so that rows stamped before their
//! commit, or ahead of the clock, are met again. Where the rows of the query stand for a table, the pass reads
//! keys there and recomputes the rows of those keys: a row that leaves the query is deleted, and of what was
//! read before only rows of late transactions are read again. A query that returns all rows of its table is left by
//! none: what is new is read at once.
//!
//! A source that may lack rows which it has shown (a standby was promoted, a server restored) is loaded anew.

mod checkpoint;
mod range;
mod rows;
mod time;
mod track;

use std::collections::BTreeMap;

use async_trait::async_trait;
use jiff::SignedDuration;
use serde_json::{Value, json};
use vitrina_core::{Advice, Batch, Error, Pipeline, Position, Reject, Result};
use vitrina_guard::ChangeTable;

use super::advice::{Noticed, spelled_otherwise, unnoticed};
use super::load::{Baseline, Load, is_load};
use super::opening;
use super::pending::Pending;
use super::reader::Reader;
use super::recompute::{Recompute, nothing};
use crate::sql::orders_by_itself;
use checkpoint::{Done, Pass, Reached, Way};
pub(super) use range::RangeBackfill;
use rows::{RowCursor, no_cursor};
use time::Kind;
use track::{Range, Track};

pub(super) struct Cursor {
    driver: Driver,
    /// Further tables, by name.
    watched: BTreeMap<String, Track>,
    names: Vec<String>,
    key: Vec<String>,
    late_window: SignedDuration,
    pending: Pending,
    pipeline: Pipeline,
    /// In place of a pass that would go on from another history.
    load: Option<Box<Load>>,
    /// The source has been looked at since this run began.
    looked: bool,
    finished: bool,
    /// The second of the names, where nobody has given it.
    stand_in: Option<String>,
}

#[async_trait]
impl Baseline for Cursor {
    async fn take(&self, reader: &Reader) -> Result<Option<Value>> {
        Ok(self.opening(reader).await?.map(|opened| json!(opened)))
    }
}

/// An opening that a load begins with.
struct Taken(Option<Value>);

#[async_trait]
impl Baseline for Taken {
    async fn take(&self, _: &Reader) -> Result<Option<Value>> {
        Ok(self.0.clone())
    }
}

const OTHER_COLUMNS: &str = "the checkpoint was made by a cursor of another number of columns";

/// What a run begins with.
enum Opened {
    Pass(Pass),
    /// The source may lack what it has shown: a load, from this opening on.
    Load(&'static str, Option<Done>),
    /// There is nothing to read.
    Nothing,
}

/// What is read in the order of the cursor.
enum Driver {
    /// Keys of the table that the rows of the query stand for.
    Keys(Track),
    /// Rows of the table that the query returns whole; keys of those that come late.
    Table(Track, RowCursor),
    /// Rows of the query, which stand for no single table.
    Query(RowCursor),
}

impl Driver {
    fn kind(&self) -> Kind {
        match self {
            Self::Keys(track) | Self::Table(track, _) => track.kind,
            Self::Query(rows) => rows.kind,
        }
    }
}

impl Cursor {
    /// The cursor of a pipeline that has one.
    pub(super) async fn of(pipeline: &Pipeline, reader: &Reader, key: &[String]) -> Result<Option<Self>> {
        let Some(incremental_key) = &pipeline.incremental_key else { return Ok(None) };
        let stand_in = stand_in(pipeline, reader, key).await?;
        let pipeline = &Pipeline {
            incremental_id_key: pipeline.incremental_id_key.clone().or_else(|| stand_in.clone()),
            ..pipeline.clone()
        };
        let names: Vec<String> = [Some(incremental_key.clone()), pipeline.incremental_id_key.clone()]
            .into_iter()
            .flatten()
            .collect();
        let change_key = pipeline.change_key_or(key);
        let wanted: Vec<&str> = names.iter().chain(change_key).map(String::as_str).collect();
        let table = reader.driving_table(&wanted, names.len()).await?;
        let driver = match table {
            Ok(table) if is_read_whole(&table, &names, key, pipeline) => {
                let late = Track::driving(table, names.len())?.late_only();
                Driver::Table(late, RowCursor::new(names.clone(), key, true, reader)?)
            }
            Ok(table) => Driver::Keys(Track::driving(table, names.len())?),
            Err(reason) => {
                tracing::info!(
                    reason,
                    "the rows stand for no single table: the late window is read again as a whole"
                );
                Driver::Query(RowCursor::new(names.clone(), key, false, reader)?)
            }
        };
        let mut watched = BTreeMap::new();
        for watch in &pipeline.watch {
            let track = Track::watched(watch, Some(incremental_key), change_key.len(), reader).await?;
            watched.insert(watch.table.clone(), track);
        }
        Ok(Some(Self {
            driver,
            watched,
            names,
            key: key.to_vec(),
            late_window: SignedDuration::from_secs(pipeline.late_window_seconds),
            pending: Pending::new(Recompute::new(change_key, key, reader, pipeline).await?),
            pipeline: pipeline.clone(),
            load: None,
            looked: false,
            finished: false,
            stand_in,
        }))
    }

    pub(super) async fn read(&mut self, reader: &mut Reader, from: &Position) -> Result<Option<Batch>> {
        if self.finished {
            return Ok(None);
        }
        if is_load(from) || self.load.is_some() {
            return self.reload(reader, from, None).await;
        }
        let mut pass = match self.open(reader, from).await? {
            Opened::Pass(pass) => pass,
            Opened::Nothing => return Ok(None),
            Opened::Load(reason, opened) => {
                tracing::warn!(
                    reason,
                    "the target may hold rows that the source does not have: a full load is made"
                );
                return self.reload(reader, from, opened.map(|opened| json!(opened))).await;
            }
        };
        let before = Done::of(from);
        while !pass.is_finished() {
            let Some(mut batch) = self.step(reader, &mut pass, before.as_ref(), from).await? else {
                continue;
            };
            if pass.is_finished() {
                let unmet = self.without_cursor(reader).await?;
                batch.rows_read += unmet.len() as u64;
                batch.rejected.extend(unmet);
            }
            batch.to = Some(self.reached(from, pass));
            return Ok(Some(batch));
        }
        self.last_batch(reader, pass, from).await
    }

    /// The pass is over, and nothing has come of it. It need not be stored where it has found nothing at all.
    async fn last_batch(
        &mut self,
        reader: &mut Reader,
        pass: Pass,
        from: &Position,
    ) -> Result<Option<Batch>> {
        let rejected = self.without_cursor(reader).await?;
        self.finished = true;
        if rejected.is_empty() && from.pass.is_none() && Done::of(from).is_some() {
            return Ok(None);
        }
        let rows_read = rejected.len() as u64;
        let batch = Batch { rejected, rows_read, ..nothing(reader, from) };
        Ok(Some(Batch { to: Some(self.reached(from, pass)), ..batch }))
    }

    pub(super) fn is_loading(&self) -> bool {
        self.load.is_some()
    }

    fn reached(&mut self, from: &Position, pass: Pass) -> Position {
        if !pass.is_finished() {
            return pass.halfway(from);
        }
        self.finished = true;
        self.ended(from, pass)
    }

    async fn reload(
        &mut self,
        reader: &Reader,
        from: &Position,
        opened: Option<Value>,
    ) -> Result<Option<Batch>> {
        if self.load.is_none() {
            let baseline: Box<dyn Baseline> = Box::new(Taken(opened));
            self.load = Some(Box::new(Load::new(&self.key, &self.pipeline, reader, Some(baseline)).await?));
        }
        let Some(load) = &mut self.load else { return Ok(None) };
        load.read(reader, from).await
    }

    /// The pass that is open, or a new one.
    async fn open(&mut self, reader: &Reader, from: &Position) -> Result<Opened> {
        if from.anew {
            let reason = "it was emptied or replaced, its key has changed, or its checkpoint was reset";
            return Ok(Opened::Load(reason, self.opening(reader).await?));
        }
        if let Some(pass) = Pass::of(from) {
            return self.go_on(reader, pass, from.seen).await;
        }
        self.looked = true;
        let before = Done::of(from);
        let Some(opened) = self.opening(reader).await? else { return Ok(Opened::Nothing) };
        if before.as_ref().is_some_and(|before| self.is_of_other_columns(before.reached.bound.as_ref())) {
            return Ok(Opened::Load(OTHER_COLUMNS, Some(opened)));
        }
        let servers = opened.server.as_ref().zip(before.as_ref().and_then(|before| before.server.as_ref()));
        if let Some(reason) = servers.and_then(|(now, then)| now.mistrust(then, from.seen)) {
            return Ok(Opened::Load(reason, Some(opened)));
        }
        let restarted = servers.is_some_and(|(now, then)| now.is_another_start(then));
        if restarted && self.lacks_rows(reader, before.as_ref()).await? {
            return Ok(Opened::Load(
                "the source was started anew, and lacks a row that it has shown",
                Some(opened),
            ));
        }
        if servers.is_some_and(|(now, then)| now.is_still(then)) {
            return Ok(Opened::Nothing);
        }
        let since = servers.and_then(|(now, then)| now.since(then));
        Ok(Opened::Pass(Pass::new(opened, since, before.is_none())))
    }

    /// Its cursor was unique when it was written and needed no second column, or the other way round.
    fn is_of_other_columns(&self, bound: Option<&Vec<String>>) -> bool {
        bound.is_some_and(|bound| bound.len() != self.names.len())
    }

    /// A server whose files were put back, and whose log is longer by now than it was, looks like one that was restarted. The
    /// greatest rows tell: they are there, or were changed since. A row that was deleted meanwhile costs a load.
    async fn lacks_rows(&self, reader: &Reader, before: Option<&Done>) -> Result<bool> {
        let Some(before) = before else { return Ok(false) };
        let driver = match &self.driver {
            Driver::Keys(track) | Driver::Table(track, _) => Some((track, &before.reached)),
            Driver::Query(_) => None,
        };
        let watched =
            self.watched.iter().filter_map(|(name, track)| Some((track, before.watched.get(name)?)));
        let lacks = driver.into_iter().chain(watched);
        let lacks: Vec<String> =
            lacks.filter_map(|(track, reached)| Some(track.lacks(reached.bound.as_ref()?))).collect();
        if lacks.is_empty() {
            return Ok(false);
        }
        reader.begin().await?;
        let lacked = reader.text(&format!("select ({})::text", lacks.join(" or "))).await;
        reader.end().await?;
        Ok(lacked? == "true")
    }

    /// A pass that was left open, unless the source has become another one since.
    async fn go_on(&mut self, reader: &Reader, pass: Pass, seen: Option<u64>) -> Result<Opened> {
        let looked = std::mem::replace(&mut self.looked, true);
        if self.is_of_other_columns(pass.way.bound.as_ref()) {
            let opened = self.opening(reader).await?;
            return Ok(opened.map_or(Opened::Nothing, |opened| Opened::Load(OTHER_COLUMNS, Some(opened))));
        }
        let Some(then) = pass.server.as_ref().filter(|_| !looked) else { return Ok(Opened::Pass(pass)) };
        let Some(reason) = opening::server(reader).await?.mistrust(then, seen) else {
            return Ok(Opened::Pass(pass));
        };
        let opened = self.opening(reader).await?;
        Ok(opened.map_or(Opened::Nothing, |opened| Opened::Load(reason, Some(opened))))
    }

    /// Where the next pass will go on from, if it begins now; `None` when there are no rows.
    async fn opening(&self, reader: &Reader) -> Result<Option<Done>> {
        let driver = match &self.driver {
            Driver::Keys(track) | Driver::Table(track, _) => track.greatest(None),
            Driver::Query(rows) => rows.greatest(reader, None),
        };
        let greatest: Vec<String> =
            [driver].into_iter().chain(self.watched.values().map(|track| track.greatest(None))).collect();
        // What makes a source flush its log counts as a transaction there: before the moment that is kept, not after it.
        reader.begin().await?;
        let opening = opening::open(reader, &greatest).await;
        reader.end().await?;
        let opening = opening?;
        if opening.bounds.iter().all(Option::is_none) {
            return Ok(None);
        }
        let mut reached = opening.bounds.into_iter().map(|bound| Reached { bound, earlier: Vec::new() });
        let driver = reached.next().unwrap_or_default();
        let watched = self.watched.keys().cloned().zip(reached).collect();
        Ok(Some(Done {
            opened_at: opening.opened_at,
            reached: driver,
            watched,
            server: Some(opening.server),
        }))
    }

    /// One batch of what is under way. `None` when there was nothing in it.
    async fn step(
        &mut self,
        reader: &mut Reader,
        pass: &mut Pass,
        before: Option<&Done>,
        from: &Position,
    ) -> Result<Option<Batch>> {
        let late_window = self.late_window;
        let start = |kind: Kind, reached: Option<&Reached>| {
            before.zip(reached).and_then(|(done, reached)| kind.start(done, reached, late_window))
        };
        if !pass.way.finished {
            let reached = before.map(|done| &done.reached);
            let start = start(self.driver.kind(), reached);
            let range = Range { start, before: reached, since: pass.since };
            return self.drive(reader, &mut pass.way, &range, from).await;
        }
        let Some((table, way)) = pass.watched.iter_mut().find(|(_, way)| !way.finished) else {
            return Ok(None);
        };
        let Some(track) = self.watched.get(table) else {
            way.finished = true;
            return Ok(None);
        };
        let reached = before.and_then(|done| done.watched.get(table));
        let range = Range { start: start(track.kind, reached), before: reached, since: pass.since };
        track.follow(&mut self.pending, reader, way, &range, from).await
    }

    /// One batch of what is read in the order of the cursor.
    async fn drive(
        &mut self,
        reader: &mut Reader,
        way: &mut Way,
        range: &Range<'_>,
        from: &Position,
    ) -> Result<Option<Batch>> {
        let rows = match &mut self.driver {
            Driver::Keys(track) => return track.follow(&mut self.pending, reader, way, range, from).await,
            Driver::Table(track, _) if !way.above => {
                let late = track.follow(&mut self.pending, reader, way, range, from).await?;
                track.rise(way, range);
                return Ok(late);
            }
            Driver::Table(_, rows) | Driver::Query(rows) => rows,
        };
        let read = rows.read(reader, way, range.start.as_deref()).await?;
        Ok(read.batch(nothing(reader, from)))
    }

    /// Rows that no pass will ever meet are told as rejects, at the end of each.
    async fn without_cursor(&mut self, reader: &mut Reader) -> Result<Vec<Reject>> {
        let track = match &self.driver {
            Driver::Query(rows) => return rows.without_cursor(reader).await,
            Driver::Keys(track) | Driver::Table(track, _) => track,
        };
        if !track.may_lack_cursors(reader).await? {
            return Ok(Vec::new());
        }
        let keys = track.keys_without_cursor(reader).await?;
        let (mut rejected, mut read) = (Vec::new(), 0);
        while read < keys.len() {
            for recomputed in self.pending.recompute.read(&keys[read..], reader).await? {
                for row in 0..recomputed.rows.num_rows() {
                    rejected.push(no_cursor(&recomputed.rows, row, &self.key, &self.names)?);
                }
                read += recomputed.keys;
            }
        }
        Ok(rejected)
    }

    pub(super) async fn advise(&self, reader: &Reader) -> Result<Vec<Advice>> {
        let again = "of what was read before only rows of late transactions are read again";
        let mut advice = vec![match &self.driver {
            Driver::Keys(track) => track.advice("keys", again),
            Driver::Table(track, _) => track.advice("rows", again),
            Driver::Query(rows) => {
                let window = rows.rows_in_window(reader, self.late_window).await?;
                Advice::warning(
                    format!(
                        "the rows stand for no single table: the late window, about {window} rows now, is read again on every pass, and rows that leave the query are not noticed"
                    ),
                    "name the table as source_table, or make the cursor and the key plain columns of one table",
                )
            }
        }];
        advice.extend(
            self.watched
                .values()
                .map(|track| track.advice("keys", "its changes recompute the rows that depend on it")),
        );
        for track in self.watched.values() {
            advice.extend(track.advice_of_nulls(reader).await?);
        }
        advice.extend(spelled_otherwise(&self.pipeline, &self.key, reader).await?);
        advice.extend(self.unnoticed(reader).await?);
        advice.extend(self.stand_in.iter().map(|column| {
            Advice::fine(format!(
                "rows with an equal {} are told apart by {column}, the key of the target, as incremental_id_key is not named",
                self.names[0]
            ))
        }));
        advice.push(Advice::fine(format!(
            "deleted rows are not noticed by a cursor, nor are transactions that take longer than {} s",
            self.late_window.as_secs()
        )));
        Ok(advice)
    }

    /// Changes that move no cursor. Of a cursor that is no plain column nobody can tell what moves it.
    async fn unnoticed(&self, reader: &Reader) -> Result<Vec<Advice>> {
        let own = match &self.driver {
            Driver::Keys(track) | Driver::Table(track, _) => Some(track.table_oid()),
            Driver::Query(_) => reader.origin(&self.names[0]),
        };
        if own.is_none() {
            return Ok(Vec::new());
        }
        let watched = self.watched.values().map(Track::table_oid).collect();
        let by_key = self.watched.values().filter(|track| track.is_by_key()).map(Track::table_oid).collect();
        let followed = Noticed { own, watched, by_key };
        unnoticed(reader, &followed, self.pipeline.change_key_or(&self.key)).await
    }

    /// Whatever is open is given up; the next read goes on behind its position.
    pub(super) fn let_go(&mut self) -> bool {
        if let Some(load) = &mut self.load {
            return load.let_go();
        }
        match &mut self.driver {
            Driver::Query(rows) | Driver::Table(_, rows) => rows.let_go(),
            Driver::Keys(_) => false,
        }
    }

    fn ended(&self, from: &Position, pass: Pass) -> Position {
        let before = Done::of(from);
        let reached = |kind: Kind, bound: Option<Vec<String>>, before: Option<&Reached>| {
            let opened_at = Done::of(from).map(|done| done.opened_at);
            let earlier = opened_at
                .zip(before)
                .map(|(opened_at, before)| kind.remember(opened_at, before.clone(), self.late_window));
            Reached { bound, earlier: earlier.unwrap_or_default() }
        };
        let watched = pass.watched.into_iter().filter_map(|(table, way)| {
            let kind = self.watched.get(&table)?.kind;
            let before = before.as_ref().and_then(|before| before.watched.get(&table));
            Some((table, reached(kind, way.bound, before)))
        });
        let done = Done {
            opened_at: pass.opened_at,
            reached: reached(
                self.driver.kind(),
                pass.way.bound,
                before.as_ref().map(|before| &before.reached),
            ),
            watched: watched.collect(),
            server: pass.server,
        };
        Position { done: json!(done), seen: from.seen, ..Position::start() }
    }
}

/// Rows need no keys to be read by where the query returns all of the table, one a key, and nobody takes some away
/// later. An index serves their order, and their cursor tells them apart.
fn is_read_whole(table: &ChangeTable, names: &[String], key: &[String], pipeline: &Pipeline) -> bool {
    // Else the table and the query order them differently (a domain), or no index does (texts).
    let in_order = table.columns[..names.len()].iter().all(|column| orders_by_itself(column.type_oid));
    let one_a_key = match (&table.columns[names.len()..], key) {
        ([column], [key]) => names.last() == Some(key) && column.unique && column.not_null,
        _ => false,
    };
    let is_its_change_key = pipeline.change_key_or(key) == key;
    table.projected
        && table.indexed
        && table.has_versions
        && in_order
        && one_a_key
        && is_its_change_key
        && pipeline.transforms().is_empty()
}

/// What tells rows with an equal cursor apart, where nobody has named it and the cursor does not: the key of the target, if it
/// is one column, and the table or the query proves that no two rows share it. A row that pages could pass over would be
/// lost, so nothing is guessed.
async fn stand_in(pipeline: &Pipeline, reader: &Reader, key: &[String]) -> Result<Option<String>> {
    let (Some(cursor), None) = (&pipeline.incremental_key, &pipeline.incremental_id_key) else {
        return Ok(None);
    };
    let wanted: Vec<&str> =
        [cursor].into_iter().chain(pipeline.change_key_or(key)).map(String::as_str).collect();
    if reader.driving_table(&wanted, 1).await?.is_ok_and(|table| table.columns[0].unique) {
        return Ok(None);
    }
    match key {
        [column] if column != cursor && is_proven(pipeline, reader, [cursor, column]).await? => {
            tracing::info!(
                incremental_id_key = column,
                "incremental_key is not known to be unique: the key of the target tells rows with an equal one apart"
            );
            Ok(Some(column.clone()))
        }
        _ => Err(needs_id_key(cursor, key)),
    }
}

/// No two rows that the cursor is read of have this column in common.
async fn is_proven(pipeline: &Pipeline, reader: &Reader, [cursor, column]: [&String; 2]) -> Result<bool> {
    if pipeline.driving_table().is_none()
        && reader.propose_key().await?.is_some_and(|key| key == [column.clone()])
    {
        return Ok(true);
    }
    let table = reader.driving_table(&[cursor, column], 2).await?;
    Ok(table.is_ok_and(|table| table.columns[1].unique && table.columns[1].not_null))
}

fn needs_id_key(incremental_key: &str, key: &[String]) -> Error {
    let column = match key {
        [column] if column != incremental_key => column,
        _ => "COLUMN",
    };
    Error::fix(
        "pipeline.incremental_id_key",
        format!("incremental_key {incremental_key:?} is not known to be unique, and there is no incremental_id_key"),
    )
    .hint(format!(
        "add `incremental_id_key: {column}`, where that is a column of the query in which no two rows with an equal {incremental_key} are equal"
    ))
}
