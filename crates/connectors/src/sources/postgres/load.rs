//! A load: the whole query in the order of the target's key, so that a load that was interrupted goes on
//! behind its last key. In one stream, or in pages of their own short transactions.

use arrow_array::{Array, RecordBatch};
use arrow_select::concat::concat_batches;
use async_trait::async_trait;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use vitrina_core::{Advice, Batch, Error, Pipeline, Position, ReadBy, Reject, Result, Scope};

use super::estimate;
use super::reader::{Page, Piece, Reader};
use super::recompute::newest_last;
use super::recompute::nothing;
use crate::arrow_text::texts;
use crate::rejects::{without_flawed, without_null_keys};
use crate::sql::{OrderedColumn, compare, conditions, expressions};

/// The open pass of a load, as the checkpoint keeps it.
#[derive(Debug, Clone, Serialize, Deserialize)]
struct Pass {
    kind: String,
    /// The last key that was written.
    position: Option<Vec<String>>,
    /// Where incremental reading will go on when the load ends: taken before its first row was read,
    /// so that what changes during a long load is read again.
    opening: Option<Value>,
}

const KIND: &str = "load";
/// Rows without a key that are looked for behind a position: enough to run into any sensible limit.
const NULL_KEYS: usize = 1000;

/// Where incremental reading will go on when a load ends.
#[async_trait]
pub(super) trait Baseline: Send + Sync {
    /// Taken before the first row of the load is read. `None` when there is nothing to go on from.
    async fn take(&self, reader: &Reader) -> Result<Option<Value>>;
}

/// This position is of a load under way.
pub(super) fn is_load(position: &Position) -> bool {
    position.pass.as_ref().is_some_and(|pass| pass["kind"] == KIND)
}

pub(super) struct Load {
    key: Vec<OrderedColumn>,
    key_names: Vec<String>,
    /// Of several rows of one key the last by this order counts.
    newest_last: String,
    baseline: Option<Box<dyn Baseline>>,
    in_pages: bool,
    page: Option<Page>,
    /// Rows of the last key that was read: more of them may follow, and rows of one key stay together.
    held: Option<RecordBatch>,
    /// Some rows were read behind a position, where a NULL key is never met.
    behind: bool,
    finished: bool,
}

impl Load {
    pub(super) async fn new(
        key: &[String],
        pipeline: &Pipeline,
        reader: &Reader,
        baseline: Option<Box<dyn Baseline>>,
    ) -> Result<Self> {
        if key.is_empty() {
            return Err(Error::bug("source.key", "a load needs the target's key"));
        }
        let ordered: Vec<_> = key.iter().map(|name| reader.ordered(name, "key")).collect::<Result<_>>()?;
        let in_pages = match pipeline.read {
            ReadBy::Keyset => true,
            ReadBy::Stream => false,
            ReadBy::Auto => estimate::pages_are_cheap(reader, &ordered).await?,
        };
        Ok(Self {
            key: ordered,
            key_names: key.to_vec(),
            newest_last: newest_last(pipeline, reader),
            baseline,
            in_pages,
            page: None,
            held: None,
            behind: false,
            finished: false,
        })
    }

    pub(super) async fn read(&mut self, reader: &Reader, from: &Position) -> Result<Option<Batch>> {
        if self.finished {
            return Ok(None);
        }
        let mut pass = self.open_pass(reader, from).await?;
        let mut rejected = Vec::new();
        let rows = self.rows(reader, &mut pass, &mut rejected).await?;
        if self.finished && self.behind {
            rejected.extend(self.unseen_null_keys(reader).await?);
        }
        // What is held back counts with the batch that brings it.
        let rows_read = (rows.num_rows() + rejected.len()) as u64;
        let to = if self.finished { ended(from, pass) } else { halfway(from, pass)? };
        let scope = Scope::Load { begins: !is_load(from) };
        Ok(Some(Batch { rows, scope, rejected, rows_read, to: Some(to), ..nothing(reader, from) }))
    }

    /// The next batch, up to where a key ends; moves the position of the pass behind it.
    async fn rows(
        &mut self,
        reader: &Reader,
        pass: &mut Pass,
        rejected: &mut Vec<Reject>,
    ) -> Result<RecordBatch> {
        loop {
            let piece = self.piece(reader, pass.position.as_ref()).await?;
            let reached = reached(&piece.rows, &self.key_names)?.filter(|_| piece.ends_page);
            let mut rows = self.usable(piece, rejected)?;
            if self.page.is_some() {
                rows = self.hold_back(rows)?;
            }
            if let Some(position) = reached.or(last_key(&rows, &self.key_names)?) {
                self.require_progress(pass.position.as_ref(), &position)?;
                pass.position = Some(position);
            } else if self.in_pages && self.page.is_none() && !self.finished {
                return Err(stuck());
            }
            if rows.num_rows() > 0 || self.finished || !rejected.is_empty() {
                return Ok(rows);
            }
        }
    }

    /// The next rows of the open page; opens one behind `position` where there is none.
    async fn piece(&mut self, reader: &Reader, position: Option<&Vec<String>>) -> Result<Piece> {
        let mut page = match self.page.take() {
            Some(page) => page,
            None => {
                self.behind |= position.is_some() || self.in_pages;
                // Ties are of the key alone: rows of one key may not be cut apart.
                reader.page_within(&self.tail(position, reader.page_rows()), &self.order()).await?
            }
        };
        // One row further than the batch, to see where its last key ends.
        let held = self.held.as_ref().map_or(0, RecordBatch::num_rows);
        let max_rows = (reader.batch_size + 1).saturating_sub(held).max(1);
        let piece = page.next(reader, max_rows).await?;
        match piece.ends_page {
            true => self.finished = !self.in_pages || page.rows < reader.page_rows(),
            false => self.page = Some(page),
        }
        Ok(piece)
    }

    /// What was held back, and the rows of a piece that have a key and can be read.
    fn usable(&mut self, mut piece: Piece, rejected: &mut Vec<Reject>) -> Result<RecordBatch> {
        without_flawed(&mut piece.rows, rejected, &piece.flawed, &self.key_names)?;
        without_null_keys(&mut piece.rows, rejected, &self.key_names)?;
        match self.held.take() {
            None => Ok(piece.rows),
            Some(held) => concat_batches(&piece.rows.schema(), [&held, &piece.rows])
                .map_err(|error| Error::defect("source.rows", &error)),
        }
    }

    /// Keeps the rows of the last key for the next batch.
    fn hold_back(&mut self, rows: RecordBatch) -> Result<RecordBatch> {
        let Some(key) = last_key(&rows, &self.key_names)? else { return Ok(rows) };
        let mut first = rows.num_rows() - 1;
        while first > 0 && texts(&rows, &self.key_names, first - 1)? == key {
            first -= 1;
        }
        self.held = Some(rows.slice(first, rows.num_rows() - first));
        Ok(rows.slice(0, first))
    }

    fn require_progress(&self, before: Option<&Vec<String>>, position: &Vec<String>) -> Result<()> {
        if self.in_pages && self.page.is_none() && !self.finished && before == Some(position) {
            return Err(stuck());
        }
        Ok(())
    }

    pub(super) fn advice(&self) -> Advice {
        Advice::fine(match self.in_pages {
            true => "a load is read in pages, each in a short transaction of its own",
            false => {
                "a load is read in one stream: an index does not serve the order of its key, or not well enough"
            }
        })
    }

    /// The page is given up; the next read opens one behind its position.
    pub(super) fn let_go(&mut self) -> bool {
        self.held = None;
        self.page.take().is_some()
    }

    async fn open_pass(&self, reader: &Reader, from: &Position) -> Result<Pass> {
        let stored = from.pass.clone().and_then(|pass| serde_json::from_value::<Pass>(pass).ok());
        if let Some(pass) = stored.filter(|pass| pass.kind == KIND) {
            return Ok(pass);
        }
        let opening = match &self.baseline {
            Some(baseline) => baseline.take(reader).await?,
            None => None,
        };
        Ok(Pass { kind: KIND.to_owned(), position: None, opening })
    }

    fn tail(&self, after: Option<&Vec<String>>, page_rows: usize) -> String {
        // Behind a position NULL keys are never met; in pages they are left out from the start, and read apart.
        let condition = match (after, self.in_pages) {
            (Some(key), _) => format!("where {} ", compare(&self.key, "q", ">", key)),
            (None, true) => format!("where {} ", conditions(&self.key, "q", "is not null", " and ")),
            (None, false) => String::new(),
        };
        let limit = match self.in_pages {
            true => format!(" fetch first {page_rows} rows with ties"),
            false => String::new(),
        };
        format!("{condition}order by {}{limit}", expressions(&self.key, "q"))
    }

    /// Of several rows of one key the last by the cursor counts: it comes last.
    fn order(&self) -> String {
        let key = expressions(&self.key, "q");
        match self.newest_last.as_str() {
            "" => String::new(),
            newest_last => format!("order by {key}, {newest_last}"),
        }
    }

    /// NULLs satisfy no comparison: behind a position they are not met.
    async fn unseen_null_keys(&self, reader: &Reader) -> Result<Vec<Reject>> {
        let tail = format!("where {} limit {NULL_KEYS}", conditions(&self.key, "q", "is null", " or "));
        let mut page = reader.page(&tail).await?;
        let mut rejected = Vec::new();
        loop {
            let mut piece = page.next(reader, usize::MAX).await?;
            without_null_keys(&mut piece.rows, &mut rejected, &self.key_names)?;
            if piece.ends_page {
                return Ok(rejected);
            }
        }
    }
}

/// The last whole key among the rows: what follows comes behind it.
fn reached(rows: &RecordBatch, key: &[String]) -> Result<Option<Vec<String>>> {
    let columns: Vec<_> = key.iter().filter_map(|name| rows.column_by_name(name)).collect();
    let whole = |row: &usize| columns.iter().all(|column| column.is_valid(*row));
    (0..rows.num_rows()).rev().find(whole).map(|row| texts(rows, key, row)).transpose()
}

fn last_key(rows: &RecordBatch, key: &[String]) -> Result<Option<Vec<String>>> {
    rows.num_rows().checked_sub(1).map(|last| texts(rows, key, last)).transpose()
}

fn stuck() -> Error {
    Error::fix(
        "source.stuck",
        "a whole page of rows has no key that could be read, so that none can follow it",
    )
    .hint("cast the key in the query to a type that can be read, or set read to stream")
}

fn halfway(from: &Position, pass: Pass) -> Result<Position> {
    let pass = serde_json::to_value(pass).map_err(|error| Error::defect("source.position", &error))?;
    Ok(Position { pass: Some(pass), ..from.clone() })
}

fn ended(from: &Position, pass: Pass) -> Position {
    let done = pass.opening.unwrap_or_else(|| from.done.clone());
    Position { done, seen: from.seen, ..Position::start() }
}
