//! The rows of a pipeline as its functions leave them, in a temporary table beside the mart: there they are hashed like
//! the mart's own.

use std::sync::Arc;

use arrow_array::RecordBatch;
use arrow_schema::Schema;
use bytes::{Bytes, BytesMut};
use futures_util::SinkExt;
use vitrina_core::{Error, Result};
use vitrina_pgcopy::Encoder;

use super::super::mart::Mart;
use super::super::put::pieces;
use super::super::shape::{Shape, WrittenColumn};
use super::Session;
use crate::reconcile::{Key, Order, Stream, Wanted};
use crate::sql::identifier;

pub(super) struct Staged<'a> {
    order: &'a Order<'a>,
    session: Arc<Session>,
    key: Vec<String>,
    columns: Vec<String>,
    /// The schema that the table was made for.
    table: Option<Schema>,
    /// Rows that were read and refused.
    refused: u64,
}

const TABLE: &str = "pg_temp.vitrina_compared";
/// Like it, for rows that are read once more.
const AGAIN: &str = "pg_temp.vitrina_again";
/// For rows of another shape on their way there.
const OTHER: &str = "pg_temp.vitrina_other";
const ROWS_A_MESSAGE: usize = 250;

impl<'a> Staged<'a> {
    pub(super) const RELATION: &'static str = "pg_temp.vitrina_compared s";
    pub(super) const AGAIN: &'static str = "pg_temp.vitrina_again s";

    pub(super) async fn open(order: &'a Order<'a>, mart: &Mart, session: Arc<Session>) -> Result<Self> {
        let mut staged =
            Self { order, session, key: mart.key.clone(), columns: Vec::new(), table: None, refused: 0 };
        staged.read(mart).await?;
        Ok(staged)
    }

    pub(super) fn refused(&self) -> u64 {
        self.refused
    }

    pub(super) fn columns(&self) -> &[String] {
        &self.columns
    }

    pub(super) fn session(&self) -> &Session {
        &self.session
    }

    pub(super) fn newest_last(&self) -> String {
        let cursor = [&self.order.pipeline.incremental_key, &self.order.pipeline.incremental_id_key];
        let is_there = |name: &&String| self.columns.contains(name);
        let names = cursor.into_iter().flatten().filter(is_there);
        names.map(|name| format!("s.{}", identifier(name))).collect::<Vec<_>>().join(", ")
    }

    /// The rows that these keys have now. A source without keys is read whole.
    pub(super) async fn read_again(&mut self, keys: &[Key]) -> Result<()> {
        self.session.run(&format!("truncate {AGAIN}")).await?;
        let wanted = if Stream::takes_keys(self.order) { Wanted::Keys(keys) } else { Wanted::All };
        let mut rows = Stream::open(self.order, &self.key, wanted).await?;
        while let Some(rows) = rows.next().await? {
            self.put(AGAIN, &rows).await?;
        }
        Ok(())
    }

    async fn read(&mut self, mart: &Mart) -> Result<()> {
        let mut stream = Stream::open(self.order, &self.key, Wanted::All).await?;
        while let Some(rows) = stream.next().await? {
            if self.table.is_none() && rows.num_rows() > 0 {
                self.create(mart, &rows.schema()).await?;
            }
            // Rows of given keys are read by themselves: of the others it is enough to know the columns.
            if self.order.keys.is_some() && self.table.is_some() {
                break;
            }
            self.put(TABLE, &rows).await?;
        }
        self.refused = stream.refused();
        if self.table.is_none() {
            self.create_empty(mart).await?;
        }
        let key = self.key.iter().map(|name| identifier(name)).collect::<Vec<_>>().join(", ");
        let again = format!("create temporary table {} (like {TABLE})", bare(AGAIN));
        self.session.run(&format!("{again}; create index on {TABLE} ({key}); analyze {TABLE}")).await
    }

    async fn create(&mut self, mart: &Mart, schema: &Schema) -> Result<()> {
        let shape = Shape::new(mart, schema)?;
        let column =
            |written: &WrittenColumn| format!("{} {}", identifier(&written.column.name), written.staged_type);
        let columns = shape.written.iter().map(column).collect::<Vec<_>>();
        self.columns = shape.fields.iter().map(|field| field.name().clone()).collect();
        self.table = Some(schema.clone());
        self.session.run(&format!("create temporary table {} ({})", bare(TABLE), columns.join(", "))).await
    }

    /// No row has come, and nobody knows which columns it would have had.
    async fn create_empty(&mut self, mart: &Mart) -> Result<()> {
        self.columns.clone_from(&self.key);
        let column = |name: &String| {
            let column = mart.columns.iter().find(|column| column.name == *name);
            format!("{} {}", identifier(name), column.map_or("text", |column| column.type_name.as_str()))
        };
        let columns = self.key.iter().map(column).collect::<Vec<_>>().join(", ");
        self.session.run(&format!("create temporary table {} ({columns})", bare(TABLE))).await
    }

    /// What a function adds is typed by its values, batch by batch: rows of other types are cast on their way.
    async fn put(&self, table: &str, rows: &RecordBatch) -> Result<()> {
        if rows.num_rows() == 0 {
            return Ok(());
        }
        match &self.table {
            Some(known) if known.fields() == rows.schema().fields() => self.copy(table, rows).await,
            Some(known) => self.cast(table, known, rows).await,
            None => Err(Error::retry("reconcile.columns", "rows have come where there were none")),
        }
    }

    async fn cast(&self, table: &str, known: &Schema, rows: &RecordBatch) -> Result<()> {
        let schema = rows.schema();
        let columns: Vec<String> = typed(&schema)?.map(|(name, kind)| format!("{name} {kind}")).collect();
        let other = format!("create temporary table {} ({})", bare(OTHER), columns.join(", "));
        self.session.run(&format!("drop table if exists {OTHER}; {other}")).await?;
        self.copy(OTHER, rows).await?;
        let has = |name: &str| schema.fields().iter().any(|field| identifier(field.name()) == name);
        let value = |(name, kind): (String, &str)| match has(&name) {
            true => format!("{name}::{kind}"),
            false => "null".to_owned(),
        };
        let values: Vec<String> = typed(known)?.map(value).collect();
        self.session.run(&format!("insert into {table} select {} from {OTHER}", values.join(", "))).await
    }

    async fn copy(&self, table: &str, rows: &RecordBatch) -> Result<()> {
        let session = &self.session;
        let schema = rows.schema();
        let names = schema.fields().iter().map(|field| identifier(field.name())).collect::<Vec<_>>();
        let copy = format!("copy {table} ({}) from stdin (format binary)", names.join(", "));
        let sink = session.client.copy_in::<_, Bytes>(&copy).await.map_err(|error| session.explain(error))?;
        tokio::pin!(sink);
        let encoder = Encoder::new(rows.schema()).map_err(|error| unwritable(&error))?;
        let mut bytes = BytesMut::new();
        Encoder::header(&mut bytes);
        for start in (0..rows.num_rows()).step_by(ROWS_A_MESSAGE) {
            let some = rows.slice(start, ROWS_A_MESSAGE.min(rows.num_rows() - start));
            encoder.encode(&some, &mut bytes).map_err(|error| unwritable(&error))?;
            for piece in pieces(bytes.split().freeze()) {
                sink.send(piece).await.map_err(|error| session.explain(error))?;
            }
        }
        Encoder::trailer(&mut bytes);
        sink.send(bytes.freeze()).await.map_err(|error| session.explain(error))?;
        sink.finish().await.map_err(|error| session.explain(error))?;
        Ok(())
    }
}

/// Columns by name, with the types that take them as they travel.
fn typed(schema: &Schema) -> Result<impl Iterator<Item = (String, &'static str)>> {
    let encoder = Encoder::new(Arc::new(schema.clone())).map_err(|error| unwritable(&error))?;
    let names = schema.fields().iter().map(|field| identifier(field.name())).collect::<Vec<_>>();
    Ok(names.into_iter().zip(encoder.column_types()))
}

fn unwritable(error: &vitrina_pgcopy::Error) -> Error {
    Error::defect("reconcile.rows", error)
}

/// As it is created: in the schema of temporary tables anyway.
fn bare(table: &str) -> &str {
    table.trim_start_matches("pg_temp.")
}
