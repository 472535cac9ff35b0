//! Incremental reading behind (incremental_key, incremental_id_key), in passes.
//!
//! A pass opens at one moment and ends at the greatest key that was visible then; the next one starts
//! `late_window` before whichever is earlier, that key or the opening, so that rows stamped before
//! their commit, or ahead of the clock, are met again. Comparison is on the text form at full
//! precision; a page ends with all rows that share its last key.

use arrow_array::RecordBatch;
use jiff::{SignedDuration, Timestamp};
use serde::{Deserialize, Serialize};
use serde_json::json;
use vitrina_core::{Batch, Error, Pipeline, Position, Result, Scope};

use super::reader::{Page, Piece, Reader};
use crate::arrow_text::texts;
use crate::rejects::without_flawed;
use crate::sql::{OrderedColumn, compare, conditions, expressions, literal};

/// What completed passes established.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct Done {
    bound: Vec<String>,
    opened_at: Timestamp,
    /// Earlier passes, oldest first: where a cursor that is no time starts again.
    #[serde(default)]
    earlier: Vec<Opened>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct Opened {
    bound: Vec<String>,
    opened_at: Timestamp,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
struct Pass {
    kind: String,
    bound: Vec<String>,
    opened_at: Timestamp,
    /// The first page begins here: a time is reached inclusively, a number is passed.
    start: Option<String>,
    position: Option<Vec<String>>,
}

const KIND: &str = "cursor";

pub(super) struct Cursor {
    columns: Vec<OrderedColumn>,
    names: Vec<String>,
    time: Option<TimeKind>,
    late_window: SignedDuration,
    /// The target's key, by which rejects are named.
    key: Vec<String>,
    page: Option<Page>,
    /// The last key that was handed out: the next page begins behind it.
    seen: Option<Vec<String>>,
    finished: bool,
}

impl Cursor {
    /// The cursor of a pipeline that has one.
    pub(super) fn of(pipeline: &Pipeline, reader: &Reader, target_key: &[String]) -> Result<Option<Self>> {
        let Some(key) = &pipeline.incremental_key else { return Ok(None) };
        let time = time_kind(reader, key)?;
        let names: Vec<String> =
            [Some(key.clone()), pipeline.incremental_id_key.clone()].into_iter().flatten().collect();
        let columns = names.iter().map(|name| reader.ordered(name, "cursor")).collect::<Result<_>>()?;
        let late_window = SignedDuration::from_secs(pipeline.late_window_seconds);
        Ok(Some(Self {
            columns,
            names,
            time,
            late_window,
            key: target_key.to_vec(),
            page: None,
            seen: None,
            finished: false,
        }))
    }

    pub(super) fn order(&self) -> String {
        expressions(&self.columns, "q")
    }

    pub(super) async fn read(&mut self, reader: &Reader, from: &Position) -> Result<Option<Batch>> {
        if self.finished {
            return Ok(None);
        }
        let Some(pass) = self.open_pass(reader, from).await? else { return Ok(None) };
        let (page_position, mut piece) = self.piece(reader, &pass).await?;
        let reached = page_position.or_else(|| pass.position.clone());
        let to = match self.finished {
            true => self.ended(from, pass),
            false => halfway(from, &Pass { position: reached, ..pass }),
        };
        let rows_read = piece.rows.num_rows() as u64;
        let mut rejected = Vec::new();
        without_flawed(&mut piece.rows, &mut rejected, &piece.flawed, &self.key)?;
        Ok(Some(Batch {
            rows: piece.rows,
            scope: Scope::Nothing,
            rejected,
            from: from.clone(),
            to: Some(to),
            rows_read,
        }))
    }

    /// The next rows, and the last key that all rows of have come. A page that ends with nothing is passed over.
    async fn piece(&mut self, reader: &Reader, pass: &Pass) -> Result<(Option<Vec<String>>, Piece)> {
        loop {
            let mut page = match self.page.take() {
                Some(page) => page,
                None => {
                    let position = self.seen.take().or_else(|| pass.position.clone());
                    reader.page(&self.tail(&Pass { position, ..pass.clone() }, reader.page_rows())).await?
                }
            };
            let piece = page.next(reader, reader.batch_size).await?;
            self.finished = piece.ends_page && page.rows < reader.page_rows();
            if !piece.ends_page {
                self.page = Some(page);
            }
            if piece.rows.num_rows() > 0 || self.finished {
                let reached = self.reached(&piece.rows, piece.ends_page)?;
                return Ok((reached, piece));
            }
        }
    }

    /// The page is given up; the next read opens one behind its position.
    pub(super) fn let_go(&mut self) -> bool {
        self.seen = None;
        self.page.take().is_some()
    }

    /// The last key that all rows of have come. Where a page is cut, its last key may go on behind the cut.
    fn reached(&mut self, rows: &RecordBatch, whole: bool) -> Result<Option<Vec<String>>> {
        let Some(last) = rows.num_rows().checked_sub(1) else { return Ok(None) };
        let key = texts(rows, &self.names, last)?;
        let before = self.seen.replace(key.clone());
        if whole {
            return Ok(Some(key));
        }
        for row in (0..last).rev() {
            let earlier = texts(rows, &self.names, row)?;
            if earlier != key {
                return Ok(Some(earlier));
            }
        }
        Ok(before.filter(|before| *before != key))
    }

    async fn open_pass(&self, reader: &Reader, from: &Position) -> Result<Option<Pass>> {
        let stored = from.pass.clone().and_then(|pass| serde_json::from_value::<Pass>(pass).ok());
        if let Some(pass) = stored.filter(|pass| pass.kind == KIND) {
            return Ok(Some(pass));
        }
        let done: Option<Done> = serde_json::from_value(from.done.clone()).ok();
        let Some(opening) = self.opening(reader).await? else { return Ok(None) };
        let start = self.start(reader, done.as_ref()).await?;
        Ok(Some(Pass {
            kind: KIND.to_owned(),
            bound: opening.bound,
            opened_at: opening.opened_at,
            start,
            position: None,
        }))
    }

    /// The greatest visible key and the source's clock, in one statement; `None` when there are no rows.
    pub(super) async fn opening(&self, reader: &Reader) -> Result<Option<Done>> {
        let texts = self
            .columns
            .iter()
            .map(|column| format!("{}::text", column.expression("q")))
            .collect::<Vec<_>>()
            .join(", ");
        let any_null = conditions(&self.columns, "q", "is null", " or ");
        let descending = conditions(&self.columns, "q", "desc", ", ");
        let query = &reader.query;
        let sql = format!(
            "select to_char(now() at time zone 'UTC', 'YYYY-MM-DD\"T\"HH24:MI:SS.US\"Z\"'),
                    (select array[{texts}] from {query} where not ({any_null}) order by {descending} limit 1),
                    exists (select from {query} where {any_null})"
        );
        let row = reader.row(&sql).await?;
        if row.get(2) {
            return Err(Error::fix(
                "source.null_key",
                format!("the cursor ({}) is NULL in some rows of the source", self.names.join(", ")),
            )
            .hint("filter such rows out in the query, or choose columns that are never NULL"));
        }
        let opened_at: String = row.get(0);
        let opened_at = opened_at.parse().map_err(|error| Error::bug("source.clock", format!("{error}")))?;
        let bound: Option<Vec<String>> = row.get(1);
        Ok(bound.map(|bound| Done { bound, opened_at, earlier: Vec::new() }))
    }

    async fn start(&self, reader: &Reader, done: Option<&Done>) -> Result<Option<String>> {
        let Some(done) = done else { return Ok(None) };
        let Some(time) = self.time else { return Ok(self.numeric_start(done)) };
        let margin = if time == TimeKind::Local { "interval '14 hours'" } else { "interval '0'" };
        let sql = format!(
            "select (least({}::timestamptz, {}::timestamptz - {margin}) - {} * interval '1 second')::text",
            literal(&done.bound[0]),
            literal(&done.opened_at.to_string()),
            self.late_window.as_secs()
        );
        Ok(Some(reader.row(&sql).await?.get(0)))
    }

    /// A number says nothing of time: go back to the newest pass that opened at least the window
    /// before the last completed one did; without one, to the beginning.
    fn numeric_start(&self, done: &Done) -> Option<String> {
        let old_enough = |pass: &&Opened| done.opened_at.duration_since(pass.opened_at) >= self.late_window;
        done.earlier.iter().rev().find(old_enough).map(|pass| pass.bound[0].clone())
    }

    /// With ties: rows that share the last key come with it, because the next page begins behind them.
    fn tail(&self, pass: &Pass, page_rows: usize) -> String {
        let upto = compare(&self.columns, "q", "<=", &pass.bound);
        let key = &self.columns[..1];
        let after = match (&pass.position, &pass.start) {
            (Some(position), _) => format!("{} and ", compare(&self.columns, "q", ">", position)),
            (None, Some(start)) => format!("{} and ", compare(key, "q", ">=", std::slice::from_ref(start))),
            (None, None) => String::new(),
        };
        format!(
            "where {after}{upto} order by {} fetch first {page_rows} rows with ties",
            expressions(&self.columns, "q")
        )
    }

    fn ended(&self, from: &Position, pass: Pass) -> Position {
        let before: Option<Done> = serde_json::from_value(from.done.clone()).ok();
        let earlier = before.map(|done| self.remembered(done)).unwrap_or_default();
        let done = Done { bound: pass.bound, opened_at: pass.opened_at, earlier };
        Position { done: json!(done), pass: None }
    }

    /// Numbers need the openings of one window, at about ten to the window; times need none.
    fn remembered(&self, done: Done) -> Vec<Opened> {
        if self.time.is_some() {
            return Vec::new();
        }
        let step = self.late_window / 10;
        let newest = Opened { bound: done.bound, opened_at: done.opened_at };
        let mut earlier = done.earlier;
        if earlier.last().is_none_or(|last| newest.opened_at.duration_since(last.opened_at) >= step) {
            earlier.push(newest.clone());
        }
        let needed = earlier
            .iter()
            .rposition(|pass| newest.opened_at.duration_since(pass.opened_at) >= self.late_window);
        earlier.split_off(needed.unwrap_or(0))
    }
}

fn halfway(from: &Position, pass: &Pass) -> Position {
    Position { done: from.done.clone(), pass: Some(json!(pass)) }
}

/// What the source's clock can be compared with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum TimeKind {
    /// timestamptz
    Absolute,
    /// timestamp and date: the writer's zone is unknown, so its clock may be that of any zone.
    Local,
}

/// Times and numbers grow with new rows; free text and random ids do not.
fn time_kind(reader: &Reader, key: &str) -> Result<Option<TimeKind>> {
    let column = reader.column(key, "incremental_key")?;
    match column.type_oid {
        1184 => Ok(Some(TimeKind::Absolute)),
        1082 | 1114 => Ok(Some(TimeKind::Local)),
        20 | 21 | 23 | 1700 => Ok(None),
        _ => {
            let message = format!("incremental_key {key:?} has type {}", column.type_name);
            Err(Error::fix("pipeline.cursor_type", message).hint(
                "use a timestamp, timestamptz, date, integer or numeric column that grows with every change",
            ))
        }
    }
}
