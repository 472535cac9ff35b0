//! A backfill: rows are read again by their keys, and the checkpoint stays where it is. What is asked for
//! and does not come back has left the source.

use std::sync::Arc;

use arrow_array::{ArrayRef, RecordBatch, StringArray};
use arrow_schema::{DataType, Field, Schema};
use arrow_select::concat::concat_batches;
use serde_json::Value;
use vitrina_core::{Batch, Error, Position, Reject, Result, Scope};

use super::cursor::Cursor;
use super::reader::Reader;
use crate::rejects::{without_flawed, without_null_keys};
use crate::sql::{OrderedColumn, identifier};

/// One text a key column, NULL being `None`.
type Key = Vec<Option<String>>;

pub(super) struct Backfill {
    key: Vec<OrderedColumn>,
    keys: Vec<Key>,
    /// Keys that have been read.
    done: usize,
    /// Keys to read at a time.
    step: usize,
    /// Of several rows of one key the last by the cursor counts: it comes last.
    newest_last: String,
}

impl Backfill {
    pub(super) fn new(
        key: &[String],
        keys: &[Value],
        reader: &Reader,
        cursor: Option<&Cursor>,
    ) -> Result<Self> {
        let ordered = key.iter().map(|name| reader.ordered(name, "key")).collect::<Result<_>>()?;
        let keys = keys.iter().map(|value| parse(value, key)).collect::<Result<_>>()?;
        let newest_last = cursor.map(|cursor| format!(" order by {}", cursor.order())).unwrap_or_default();
        Ok(Self { key: ordered, keys, done: 0, step: reader.batch_size, newest_last })
    }

    pub(super) async fn read(&mut self, reader: &mut Reader, from: &Position) -> Result<Option<Batch>> {
        if self.done >= self.keys.len() {
            return Ok(None);
        }
        loop {
            let upto = self.keys.len().min(self.done + self.step);
            let keys = &self.keys[self.done..upto];
            let mut rejected = Vec::new();
            let Some(rows) = self.whole(keys, reader, &mut rejected).await? else {
                // More bytes than a batch may have: fewer keys at a time, on a session that is not in the middle of them.
                self.step = (self.step / 2).max(1);
                reader.reconnect().await?;
                continue;
            };
            let scope = Scope::Keys(self.scope(keys)?);
            self.done = upto;
            let rows_read = rows.num_rows() as u64 + rejected.len() as u64;
            return Ok(Some(Batch { rows, scope, rejected, from: from.clone(), to: None, rows_read }));
        }
    }

    /// All rows of the keys in one batch: their scope is one. `None` if they are too many for one.
    async fn whole(
        &self,
        keys: &[Key],
        reader: &Reader,
        rejected: &mut Vec<Reject>,
    ) -> Result<Option<RecordBatch>> {
        let names: Vec<String> = self.key.iter().map(|column| column.name.clone()).collect();
        let mut page = reader.page(&self.tail(keys)).await?;
        let mut pieces = Vec::new();
        loop {
            let mut piece = page.next(reader, usize::MAX).await?;
            without_flawed(&mut piece.rows, rejected, &piece.flawed, &names)?;
            without_null_keys(&mut piece.rows, rejected, &names)?;
            pieces.push(piece.rows);
            if piece.ends_page {
                break;
            }
            if keys.len() > 1 {
                return Ok(None);
            }
        }
        let rows = concat_batches(&reader.schema, &pieces);
        rows.map(Some).map_err(|error| Error::bug("source.rows", error.to_string()))
    }

    /// As a list of values an index can serve; a key with a NULL in it has a condition of its own.
    fn tail(&self, keys: &[Key]) -> String {
        let columns = |alias: &str| {
            let all = self.key.iter().map(|column| format!("{alias}.{}", identifier(&column.name)));
            all.collect::<Vec<_>>().join(", ")
        };
        let (whole, with_null): (Vec<&Key>, Vec<&Key>) =
            keys.iter().partition(|key| key.iter().all(Option::is_some));
        let mut conditions: Vec<String> = with_null.iter().map(|key| self.same(key)).collect();
        if !whole.is_empty() {
            let rows = whole.iter().map(|key| format!("({})", self.values(key))).collect::<Vec<_>>();
            conditions.push(format!("({}) in ({})", columns("q"), rows.join(", ")));
        }
        format!("where {}{}", conditions.join(" or "), self.newest_last)
    }

    fn values(&self, key: &Key) -> String {
        let value = |(column, text): (&OrderedColumn, &Option<String>)| {
            text.as_deref().map_or_else(|| "null".to_owned(), |text| column.value(text))
        };
        self.key.iter().zip(key).map(value).collect::<Vec<_>>().join(", ")
    }

    fn same(&self, key: &Key) -> String {
        let same = |(column, text): (&OrderedColumn, &Option<String>)| match text {
            Some(text) => format!("q.{} = {}", identifier(&column.name), column.value(text)),
            None => format!("q.{} is null", identifier(&column.name)),
        };
        let all = self.key.iter().zip(key).map(same).collect::<Vec<_>>();
        format!("({})", all.join(" and "))
    }

    fn scope(&self, keys: &[Key]) -> Result<RecordBatch> {
        let field = |column: &OrderedColumn| Field::new(&column.name, DataType::Utf8, true);
        let schema = Schema::new(self.key.iter().map(field).collect::<Vec<_>>());
        let column = |place: usize| {
            let texts: StringArray = keys.iter().map(|key| key[place].as_deref()).collect();
            Arc::new(texts) as ArrayRef
        };
        let columns = (0..self.key.len()).map(column).collect();
        RecordBatch::try_new(Arc::new(schema), columns)
            .map_err(|error| Error::bug("source.scope", error.to_string()))
    }
}

fn parse(value: &Value, key: &[String]) -> Result<Key> {
    let parts = value.as_array().filter(|parts| parts.len() == key.len()).ok_or_else(|| {
        let columns = key.join(", ");
        Error::fix("backfill.key", format!("a key to read again does not have the columns ({columns})"))
    })?;
    Ok(parts
        .iter()
        .map(|part| match part {
            Value::Null => None,
            Value::String(text) => Some(text.clone()),
            other => Some(other.to_string()),
        })
        .collect())
}
