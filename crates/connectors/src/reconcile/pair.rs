//! A source and a target as they can be compared. What comparing costs depends on both: so they are one thing here.

use async_trait::async_trait;
use jiff::Timestamp;
use vitrina_core::{Figures, Result, SideFigures};

/// One text a column of the target's key.
pub type Key = Vec<String>;

/// Both rows of a key, as text in one form, one a compared column; `None` where a side has no such row.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Row {
    pub key: Key,
    pub source: Option<Vec<Option<String>>>,
    pub target: Option<Vec<Option<String>>>,
}

/// A row that was looked for.
#[derive(Debug)]
pub struct Seen {
    /// Under its key as the target writes it, whatever was typed.
    pub row: Row,
    /// The target's types can hold the source's values, and those are as they would be there.
    pub fits: bool,
}

/// What a row of a target tells of its last write.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Mark {
    /// The touch column says when, by a clock that is the meta-store's or another one.
    Touched { at: Timestamp, by_meta_store: bool },
    /// The version of a document says under which lease.
    Token(i64),
}

impl Mark {
    pub(super) fn touched(&self) -> Option<(Timestamp, bool)> {
        if let Self::Touched { at, by_meta_store } = self { Some((*at, *by_meta_store)) } else { None }
    }

    pub(super) fn token(&self) -> Option<i64> {
        if let Self::Token(token) = self { Some(*token) } else { None }
    }
}

/// How many rows may be asked for at a time: few until it is known how large they are, and what fits into a bound then.
#[derive(Debug)]
pub(crate) struct Portion {
    row_bytes: usize,
}

impl Default for Portion {
    fn default() -> Self {
        Self { row_bytes: Self::BYTES / 100 }
    }
}

impl Portion {
    const BYTES: usize = 16 << 20;
    const MOST: usize = 1000;

    pub(crate) fn rows(&self) -> usize {
        (Self::BYTES / self.row_bytes.max(1)).clamp(1, Self::MOST)
    }

    /// What was asked for is known by now.
    pub(crate) fn note(&mut self, rows: &[Row]) {
        let values = |row: &Row| {
            [&row.source, &row.target]
                .into_iter()
                .flatten()
                .flatten()
                .flatten()
                .map(String::len)
                .sum::<usize>()
        };
        let bytes: usize = rows.iter().map(values).sum::<usize>();
        self.row_bytes = bytes / rows.len().max(1);
    }
}

/// Keys whose rows may differ.
#[derive(Debug, Default)]
pub struct Differing {
    pub keys: Vec<Key>,
    /// Ranges that have been read by now.
    pub done: u64,
    /// Rows that were read for it.
    pub rows_read: u64,
}

#[async_trait]
pub trait Pair: Send + Sync {
    /// The target's key.
    fn key(&self) -> &[String];

    /// The compared columns, in the order of a row's values.
    fn columns(&self) -> &[String];

    /// A key of one text, whatever columns the target's key has, is the id of a document.
    fn takes_ids(&self) -> bool {
        false
    }

    /// Rows and extremes: of the target, then of the source.
    async fn count(&mut self) -> Result<(SideFigures, SideFigures)>;

    /// Checksums of all rows of both sides, by ranges. Notes rows and ranges.
    async fn scan(&mut self, figures: &mut Figures) -> Result<()>;

    /// Rows of the source that the last scan or count has met and that no row of the target can stand for.
    fn refused(&self) -> u64;

    /// Keys of the next ranges that differ; `None` when none is left.
    async fn differing(&mut self) -> Result<Option<Differing>>;

    /// Keys that `rows` may be asked for now. Where a source cannot be asked for keys, it is read whole for each time.
    fn at_once(&self) -> usize;

    /// The rows of these keys as they are now: the target is read first, the source then.
    async fn rows(&mut self, keys: &[Key]) -> Result<Vec<Row>>;

    /// The row of a key that a person has typed, also where the target could not hold it.
    async fn row(&mut self, key: &Key) -> Result<Seen>;

    /// What the target's row of a key tells of its last write; nothing where it carries no mark.
    async fn mark(&mut self, key: &Key) -> Result<Option<Mark>>;
}
