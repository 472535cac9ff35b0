//! Rows of the query by their change keys. What is asked for and does not come back has left the source.

use std::sync::Arc;

use arrow_array::{ArrayRef, RecordBatch, StringArray};
use arrow_schema::{DataType, Field, Schema};
use arrow_select::concat::concat_batches;
use vitrina_core::{Batch, Error, Pipeline, Position, Reject, Result, Scope};

use super::reader::Reader;
use crate::rejects::{without_flawed, without_null_keys};
use crate::sql::{OrderedColumn, expressions, identifier};

/// A batch that brings nothing and leads nowhere yet.
pub(super) fn nothing(reader: &Reader, from: &Position) -> Batch {
    Batch {
        rows: RecordBatch::new_empty(reader.schema.clone()),
        scope: Scope::Nothing,
        rejected: Vec::new(),
        from: from.clone(),
        to: None,
        rows_read: 0,
    }
}

/// One text a key column, NULL being `None`.
pub(super) type Key = Vec<Option<String>>;

pub(super) struct Recompute {
    change_key: Vec<OrderedColumn>,
    /// The target's key, by which rejects are named.
    key: Vec<String>,
    /// Keys to read at a time.
    step: usize,
    /// Of several rows of one key the last by the cursor counts: it comes last.
    newest_last: String,
}

/// Of several rows of one key the last by the cursor counts, where the query returns the cursor.
pub(super) fn newest_last(pipeline: &Pipeline, reader: &Reader) -> String {
    let names = [&pipeline.incremental_key, &pipeline.incremental_id_key].into_iter().flatten();
    let columns: Result<Vec<_>> = names.map(|name| reader.ordered(name, "cursor")).collect();
    columns.map(|columns| expressions(&columns, "q")).unwrap_or_default()
}

/// All rows of some change keys.
pub(super) struct Recomputed {
    /// How many of the keys it covers: fewer than were asked for if their rows are too large.
    pub(super) keys: usize,
    pub(super) rows: RecordBatch,
    pub(super) rejected: Vec<Reject>,
    pub(super) scope: Scope,
}

impl Recomputed {
    pub(super) fn batch(self, nothing: Batch) -> Batch {
        let rows_read = (self.rows.num_rows() + self.rejected.len()) as u64;
        Batch { rows: self.rows, scope: self.scope, rejected: self.rejected, rows_read, ..nothing }
    }
}

impl Recompute {
    pub(super) fn new(change_key: &[String], key: &[String], reader: &Reader, order: &str) -> Result<Self> {
        let ordered = change_key.iter().map(|name| reader.ordered(name, "change key"));
        let newest_last = if order.is_empty() { String::new() } else { format!(" order by {order}") };
        let (change_key, key) = (ordered.collect::<Result<_>>()?, key.to_vec());
        Ok(Self { change_key, key, step: reader.batch_size, newest_last })
    }

    pub(super) async fn read(&mut self, keys: &[Key], reader: &mut Reader) -> Result<Recomputed> {
        loop {
            let some = &keys[..keys.len().min(self.step)];
            let mut rejected = Vec::new();
            if let Some(rows) = self.whole(some, reader, &mut rejected).await? {
                let scope = Scope::Keys(self.scope(some)?);
                return Ok(Recomputed { keys: some.len(), rows, rejected, scope });
            }
            // More bytes than a batch may have: fewer keys at a time, on a session that is not in the middle of them.
            self.step = (self.step / 2).max(1);
            reader.reconnect().await?;
        }
    }

    /// All rows of the keys in one batch: their scope is one. `None` if they are too many for one.
    async fn whole(
        &self,
        keys: &[Key],
        reader: &Reader,
        rejected: &mut Vec<Reject>,
    ) -> Result<Option<RecordBatch>> {
        let mut page = reader.page(&self.tail(keys)).await?;
        let mut pieces = Vec::new();
        loop {
            let mut piece = page.next(reader, usize::MAX).await?;
            without_flawed(&mut piece.rows, rejected, &piece.flawed, &self.key)?;
            without_null_keys(&mut piece.rows, rejected, &self.key)?;
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
        let columns = self.change_key.iter().map(|column| format!("q.{}", identifier(&column.name)));
        let columns = columns.collect::<Vec<_>>().join(", ");
        let (whole, with_null): (Vec<&Key>, Vec<&Key>) =
            keys.iter().partition(|key| key.iter().all(Option::is_some));
        let mut conditions: Vec<String> = with_null.iter().map(|key| self.same(key)).collect();
        match self.change_key.as_slice() {
            _ if whole.is_empty() => {}
            // One literal is read faster than a thousand.
            [column] => {
                let values = whole.iter().filter_map(|key| key[0].as_deref());
                conditions.push(format!("{columns} = any ({})", column.values(values)));
            }
            _ => {
                let rows = whole.iter().map(|key| format!("({})", self.values(key))).collect::<Vec<_>>();
                conditions.push(format!("({columns}) in ({})", rows.join(", ")));
            }
        }
        format!("where {}{}", conditions.join(" or "), self.newest_last)
    }

    fn values(&self, key: &Key) -> String {
        let value = |(column, text): (&OrderedColumn, &Option<String>)| {
            text.as_deref().map_or_else(|| "null".to_owned(), |text| column.value(text))
        };
        self.change_key.iter().zip(key).map(value).collect::<Vec<_>>().join(", ")
    }

    fn same(&self, key: &Key) -> String {
        let same = |(column, text): (&OrderedColumn, &Option<String>)| match text {
            Some(text) => format!("q.{} = {}", identifier(&column.name), column.value(text)),
            None => format!("q.{} is null", identifier(&column.name)),
        };
        let all = self.change_key.iter().zip(key).map(same).collect::<Vec<_>>();
        format!("({})", all.join(" and "))
    }

    fn scope(&self, keys: &[Key]) -> Result<RecordBatch> {
        let field = |column: &OrderedColumn| Field::new(&column.name, DataType::Utf8, true);
        let schema = Schema::new(self.change_key.iter().map(field).collect::<Vec<_>>());
        let column = |place: usize| {
            let texts: StringArray = keys.iter().map(|key| key[place].as_deref()).collect();
            Arc::new(texts) as ArrayRef
        };
        let columns = (0..self.change_key.len()).map(column).collect();
        RecordBatch::try_new(Arc::new(schema), columns)
            .map_err(|error| Error::bug("source.scope", error.to_string()))
    }
}
