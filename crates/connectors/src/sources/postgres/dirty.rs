//! Dirty keys, page by page: what a feed names and the recompute reads.

use std::collections::{HashSet, VecDeque};

use bytes::BytesMut;
use tokio_postgres::types::{Format, IsNull, ToSql, Type, to_sql_checked};
use vitrina_core::{Error, Result, Watch};

use super::reader::Reader;
use super::recompute::Key;
use crate::sql::array;

/// A key that may be dirty, and where its table has been read to once it and all before it are done.
#[derive(Debug)]
pub(super) struct Dirty {
    pub(super) key: Key,
    pub(super) at: Option<Vec<String>>,
}

#[derive(Debug, Default)]
pub(super) struct Page {
    pub(super) dirty: VecDeque<Dirty>,
    /// Where the table has been read to when all of them are done.
    pub(super) end: Option<Vec<String>>,
    /// No other follows.
    pub(super) last: bool,
}

/// Leads from the key of a watched table to change keys.
pub(super) struct KeysQuery {
    sql: String,
    columns: usize,
}

/// The key of a watched table must be the change key, or lead to it.
pub(super) fn other_columns(watch: &Watch) -> Error {
    let message =
        format!("the key of the watched table {} has not the columns of the change key", watch.table);
    Error::fix("watch.key", message)
        .hint("name as many columns as the change key has, or give `keys`, a query that leads to it")
}

/// Each key once; the last one of those that share a cursor takes the reading behind it.
pub(super) fn in_order(found: Vec<(Vec<String>, Key)>) -> VecDeque<Dirty> {
    let ends: Vec<bool> = found.windows(2).map(|pair| pair[0].0 != pair[1].0).chain([true]).collect();
    let (mut dirty, mut seen) = (VecDeque::<Dirty>::with_capacity(found.len()), HashSet::new());
    for ((at, key), ends) in found.into_iter().zip(ends) {
        let (at, is_new) = (ends.then_some(at), seen.insert(key.clone()));
        match dirty.back_mut() {
            Some(last) if !is_new => last.at = at.or(last.at.take()),
            _ => dirty.push_back(Dirty { key, at }),
        }
    }
    dirty
}

impl KeysQuery {
    pub(super) fn new(sql: &str, columns: usize) -> Self {
        Self { sql: vitrina_guard::wrap(sql), columns }
    }

    /// The change keys that the keys of one page lead to, each once. Only with all of them done is the page done.
    pub(super) async fn lead(
        &self,
        found: Vec<(Vec<String>, Key)>,
        reader: &Reader,
    ) -> Result<VecDeque<Dirty>> {
        if found.is_empty() {
            return Ok(VecDeque::new());
        }
        let changed = TextArray(found.iter().filter_map(|(_, key)| key[0].as_deref()).collect());
        let names: Vec<String> = (0..self.columns).map(|place| format!("c{place}")).collect();
        let texts: Vec<String> = names.iter().map(|name| format!("q.{name}::text")).collect();
        let sql = format!("select distinct {} from {}({})", texts.join(", "), self.sql, names.join(", "));
        // Whatever else users' SQL may do is undone with its transaction.
        reader.run("begin read only").await?;
        let rows = reader.rows_with(&sql, &[&changed]).await;
        reader.run("rollback").await?;
        let rows = rows?;
        let key = |row: &tokio_postgres::Row| (0..self.columns).map(|place| row.get(place)).collect();
        Ok(rows.iter().map(|row| Dirty { key: key(row), at: None }).collect())
    }
}

/// An array as the server reads it from text, of whatever type it takes `$1` for.
#[derive(Debug)]
struct TextArray<'a>(Vec<&'a str>);

impl ToSql for TextArray<'_> {
    fn to_sql(
        &self,
        _: &Type,
        out: &mut BytesMut,
    ) -> Result<IsNull, Box<dyn std::error::Error + Sync + Send>> {
        out.extend_from_slice(array(self.0.iter().copied()).as_bytes());
        Ok(IsNull::No)
    }

    fn accepts(_: &Type) -> bool {
        true
    }

    fn encode_format(&self, _: &Type) -> Format {
        Format::Text
    }

    to_sql_checked!();
}
