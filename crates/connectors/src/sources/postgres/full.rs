//! A load: the whole query in the order of the mart's key, in one stream. Each batch answers for the
//! range of keys it covers, so that what has vanished from the source vanishes from the mart, and a
//! load that was interrupted goes on behind its last key.

use arrow_array::RecordBatch;
use serde::{Deserialize, Serialize};
use serde_json::json;
use vitrina_core::{Batch, Error, KeyRange, Position, Result, Scope};

use super::cursor::{Cursor, Done};
use super::reader::{Reader, RowStream};
use crate::arrow_text::texts;
use crate::sql::{OrderedColumn, compare, expressions};

/// The open pass of a load, as the checkpoint keeps it.
#[derive(Debug, Clone, Serialize, Deserialize)]
struct Pass {
    kind: String,
    /// The last key that was written.
    position: Option<Vec<String>>,
    /// Where incremental reading will go on when the load ends: taken before its first row was read,
    /// so that what changes during a long load is read again.
    opening: Option<Done>,
}

const KIND: &str = "load";

pub(super) struct FullRead {
    key: Vec<OrderedColumn>,
    key_names: Vec<String>,
    cursor: Option<Cursor>,
    stream: Option<RowStream>,
    resumed: bool,
    finished: bool,
}

impl FullRead {
    pub(super) fn new(key: &[String], reader: &Reader, cursor: Option<Cursor>) -> Result<Self> {
        if key.is_empty() {
            return Err(Error::bug("source.key", "a load needs the mart's key"));
        }
        let ordered = key.iter().map(|name| reader.ordered(name, "key")).collect::<Result<_>>()?;
        Ok(Self {
            key: ordered,
            key_names: key.to_vec(),
            cursor,
            stream: None,
            resumed: false,
            finished: false,
        })
    }

    pub(super) async fn read(&mut self, reader: &Reader, from: &Position) -> Result<Option<Batch>> {
        if self.finished {
            return Ok(None);
        }
        let pass = self.open_pass(reader, from).await?;
        if self.stream.is_none() {
            if let Some(text) = self.key.iter().find(|column| column.is_text()) {
                reader.session.require_utf8(&text.name).await?;
            }
            self.resumed = pass.position.is_some();
            self.stream = Some(reader.stream(&self.tail(pass.position.as_ref())).await?);
        }
        let Some(stream) = &mut self.stream else { return Ok(None) };
        let (rows, last) = stream.next(reader).await?;
        self.refuse_null_keys(&rows)?;
        if last {
            self.close(reader).await?;
        }
        self.batch(rows, last, from, pass).map(Some)
    }

    async fn open_pass(&self, reader: &Reader, from: &Position) -> Result<Pass> {
        let stored = from.pass.clone().and_then(|pass| serde_json::from_value::<Pass>(pass).ok());
        if let Some(pass) = stored.filter(|pass| pass.kind == KIND) {
            return Ok(pass);
        }
        let opening = match &self.cursor {
            Some(cursor) => cursor.opening(reader).await?,
            None => None,
        };
        Ok(Pass { kind: KIND.to_owned(), position: None, opening })
    }

    fn tail(&self, after: Option<&Vec<String>>) -> String {
        let condition =
            after.map(|key| format!("where {} ", compare(&self.key, "q", ">", key))).unwrap_or_default();
        format!("{condition}order by {}", expressions(&self.key, "q"))
    }

    async fn close(&mut self, reader: &Reader) -> Result<()> {
        if let Some(stream) = self.stream.take() {
            stream.drain(reader).await?;
        }
        reader.end_transaction().await?;
        if self.resumed {
            self.refuse_unseen_null_keys(reader).await?;
        }
        self.finished = true;
        Ok(())
    }

    fn batch(&self, rows: RecordBatch, last: bool, from: &Position, pass: Pass) -> Result<Batch> {
        let reached = match rows.num_rows() {
            0 => pass.position.clone(),
            count => Some(texts(&rows, &self.key_names, count - 1)?),
        };
        let range =
            KeyRange { after: pass.position.clone(), upto: if last { None } else { reached.clone() } };
        let to = if last { ended(from, pass) } else { halfway(from, Pass { position: reached, ..pass })? };
        let rows_read = rows.num_rows() as u64;
        Ok(Batch {
            rows,
            scope: Scope::Range(range),
            rejected: Vec::new(),
            from: from.clone(),
            to,
            rows_read,
        })
    }

    fn refuse_null_keys(&self, rows: &RecordBatch) -> Result<()> {
        let nulls = |name: &&String| rows.column_by_name(name).is_some_and(|column| column.null_count() > 0);
        self.key_names.iter().find(nulls).map_or(Ok(()), |name| Err(null_key(name)))
    }

    /// NULLs sort last and satisfy no comparison: behind a resumed position they would not be seen.
    async fn refuse_unseen_null_keys(&self, reader: &Reader) -> Result<()> {
        for column in &self.key {
            let sql = format!(
                "select exists (select from {} where {} is null)",
                reader.query,
                column.expression("q")
            );
            if reader.row(&sql).await?.get::<_, bool>(0) {
                return Err(null_key(&column.name));
            }
        }
        Ok(())
    }
}

fn halfway(from: &Position, pass: Pass) -> Result<Position> {
    let pass =
        serde_json::to_value(pass).map_err(|error| Error::bug("source.position", error.to_string()))?;
    Ok(Position { done: from.done.clone(), pass: Some(pass) })
}

fn ended(from: &Position, pass: Pass) -> Position {
    let done = pass.opening.map_or_else(|| from.done.clone(), |opening| json!(opening));
    Position { done, pass: None }
}

fn null_key(name: &str) -> Error {
    Error::fix("source.null_key", format!("the query returns rows whose key column {name:?} is NULL"))
        .hint("filter them out in the query, or choose another key")
}
