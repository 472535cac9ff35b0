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
    /// A source without keys has been read a second time.
    is_second: bool,
}

const TABLE: &str = "vitrina_compared";
const ROWS_A_MESSAGE: usize = 250;

impl<'a> Staged<'a> {
    pub(super) const RELATION: &'static str = "pg_temp.vitrina_compared s";

    pub(super) async fn open(order: &'a Order<'a>, mart: &Mart, session: Arc<Session>) -> Result<Self> {
        let mut staged = Self {
            order,
            session,
            key: mart.key.clone(),
            columns: Vec::new(),
            table: None,
            is_second: false,
        };
        staged.read(mart).await?;
        Ok(staged)
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

    /// The rows that these keys have now take the place of those that are there. A source without keys is read once more.
    pub(super) async fn read_again(&mut self, keys: &[Key]) -> Result<()> {
        if self.is_second {
            return Ok(());
        }
        self.is_second = !Stream::takes_keys(self.order);
        self.session.run(&format!("truncate pg_temp.{TABLE}")).await?;
        let wanted = if self.is_second { Wanted::All } else { Wanted::Keys(keys) };
        let mut rows = Stream::open(self.order, &self.key, wanted).await?;
        while let Some(rows) = rows.next().await? {
            self.put(&rows).await?;
        }
        Ok(())
    }

    async fn read(&mut self, mart: &Mart) -> Result<()> {
        let mut rows = Stream::open(self.order, &self.key, Wanted::All).await?;
        while let Some(rows) = rows.next().await? {
            if self.table.is_none() && rows.num_rows() > 0 {
                self.create(mart, &rows.schema()).await?;
            }
            self.put(&rows).await?;
        }
        if self.table.is_none() {
            return self.create_empty(mart).await;
        }
        let key = self.key.iter().map(|name| identifier(name)).collect::<Vec<_>>().join(", ");
        self.session.run(&format!("create index on pg_temp.{TABLE} ({key}); analyze pg_temp.{TABLE}")).await
    }

    async fn create(&mut self, mart: &Mart, schema: &Schema) -> Result<()> {
        let shape = Shape::new(mart, schema)?;
        let column =
            |written: &WrittenColumn| format!("{} {}", identifier(&written.column.name), written.staged_type);
        let columns = shape.written.iter().map(column).collect::<Vec<_>>();
        self.columns = shape.fields.iter().map(|field| field.name().clone()).collect();
        self.table = Some(schema.clone());
        self.session.run(&format!("create temporary table {TABLE} ({})", columns.join(", "))).await
    }

    /// No row has come, and nobody knows which columns it would have had.
    async fn create_empty(&mut self, mart: &Mart) -> Result<()> {
        self.columns.clone_from(&self.key);
        let column = |name: &String| {
            let column = mart.columns.iter().find(|column| column.name == *name);
            format!("{} {}", identifier(name), column.map_or("text", |column| column.type_name.as_str()))
        };
        let columns = self.key.iter().map(column).collect::<Vec<_>>().join(", ");
        self.session.run(&format!("create temporary table {TABLE} ({columns})")).await
    }

    async fn put(&self, rows: &RecordBatch) -> Result<()> {
        if rows.num_rows() == 0 {
            return Ok(());
        }
        if self.table.as_ref().is_none_or(|table| table.fields() != rows.schema().fields()) {
            return Err(Error::fix("reconcile.columns", "the rows of the pipeline have different columns"));
        }
        let session = &self.session;
        let unwritable = |error: vitrina_pgcopy::Error| Error::bug("reconcile.rows", error.to_string());
        let names = self.columns.iter().map(|name| identifier(name)).collect::<Vec<_>>().join(", ");
        let copy = format!("copy pg_temp.{TABLE} ({names}) from stdin (format binary)");
        let sink = session.client.copy_in::<_, Bytes>(&copy).await.map_err(|error| session.explain(error))?;
        tokio::pin!(sink);
        let encoder = Encoder::new(rows.schema()).map_err(unwritable)?;
        let mut bytes = BytesMut::new();
        Encoder::header(&mut bytes);
        for start in (0..rows.num_rows()).step_by(ROWS_A_MESSAGE) {
            let some = rows.slice(start, ROWS_A_MESSAGE.min(rows.num_rows() - start));
            encoder.encode(&some, &mut bytes).map_err(unwritable)?;
            sink.send(bytes.split().freeze()).await.map_err(|error| session.explain(error))?;
        }
        Encoder::trailer(&mut bytes);
        sink.send(bytes.freeze()).await.map_err(|error| session.explain(error))?;
        sink.finish().await.map_err(|error| session.explain(error))?;
        Ok(())
    }
}
