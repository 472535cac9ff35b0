//! Rows by COPY to where they go, all at once; or, when one of them is to blame, in halves until it is found.

use std::pin::Pin;
use std::sync::Arc;

use arrow_array::{Array, ArrayRef, RecordBatch, TimestampMicrosecondArray};
use arrow_schema::{Field, Schema};
use bytes::{Bytes, BytesMut};
use futures_util::SinkExt;
use tokio::join;
use tokio_postgres::{CopyInSink, Statement};
use vitrina_core::{Error, Outcome, Result};
use vitrina_pgcopy::Encoder;

use super::PostgresSink;
use super::mart::MartColumn;
use super::statements::{self, STAGE};
use super::trouble::{RowTrouble, Tried, Trouble};
use crate::duplicates;
use crate::rejects::reject;
use crate::sql::identifier;

/// How much of a batch one refused row takes with it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Care {
    /// All of it: the quick way, for rows that pass.
    Batch,
    /// Nothing: rows that are refused are found and left out.
    Rows,
}

const TIMESTAMPTZ: u32 = 1184;
const ROWS_A_MESSAGE: usize = 250;
/// COPY gathers up to 1,000 rows in slots, and counts the slots of one statement in a time that grows with their
/// square: a batch of that size takes less as several statements, and a large one soon reuses its slots.
const LARGE: usize = 4000;

/// Where rows go.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Way {
    /// Into the temporary table that they are merged from.
    Stage,
    /// Into the staging table of a load.
    Load(String),
    /// Into the mart itself, which has none of them.
    Mart,
}

impl PostgresSink {
    pub(super) async fn put(
        &mut self,
        rows: &RecordBatch,
        way: &Way,
        care: Care,
        outcome: &mut Outcome,
    ) -> Tried<()> {
        match care {
            Care::Batch => self.put_all(rows, way, care, outcome).await,
            Care::Rows => self.put_by_halves(rows, way, outcome).await,
        }
    }

    async fn put_all(
        &mut self,
        rows: &RecordBatch,
        way: &Way,
        care: Care,
        outcome: &mut Outcome,
    ) -> Tried<()> {
        if rows.num_rows() == 0 {
            return Ok(());
        }
        outcome.counts.bytes += self.fill(way, rows).await?;
        if *way == Way::Stage && care == Care::Rows {
            // A value that the mart's types cannot hold would fail every statement that looks at it.
            self.count_of(&statements::cast_all(self.shape()?)).await?;
        }
        if *way == Way::Mart {
            outcome.counts.inserted += rows.num_rows() as u64;
        }
        Ok(())
    }

    /// Halves on the stack, the left one first, so that rows keep their order.
    async fn put_by_halves(&mut self, rows: &RecordBatch, way: &Way, outcome: &mut Outcome) -> Tried<()> {
        let mut halves = vec![(0, rows.num_rows())];
        while let Some((from, count)) = halves.pop() {
            let before = outcome.counts;
            self.session.run("savepoint half").await?;
            match self.put_all(&rows.slice(from, count), way, Care::Rows, outcome).await {
                Ok(()) => self.session.run("release half").await?,
                Err(Trouble::Row(row)) => {
                    self.session.run("rollback to half").await?;
                    outcome.counts = before;
                    match count {
                        1 => self.refuse(rows, from, way, row, outcome)?,
                        _ => halves.extend([(from + count / 2, count - count / 2), (from, count / 2)]),
                    }
                    self.refused.hold_limit(outcome)?;
                }
                Err(other) => return Err(other),
            }
        }
        Ok(())
    }

    /// A second row of a key in a mart that was empty says nothing against the first: the load must go
    /// another way.
    fn refuse(
        &self,
        rows: &RecordBatch,
        row: usize,
        way: &Way,
        trouble: RowTrouble,
        outcome: &mut Outcome,
    ) -> Tried<()> {
        if *way == Way::Mart && trouble.code == "row.unique" {
            return Err(Trouble::Row(RowTrouble { code: duplicates::CODE, ..trouble }));
        }
        outcome.rejects.push(reject(rows, row, &self.mart.key, trouble.code, trouble.message)?);
        Ok(())
    }

    /// Where COPY alone can take the rows, and with which columns. New rows of a mart carry the time of their
    /// writing, which COPY cannot compute.
    pub(super) fn straight(&self, way: &Way, rows: &RecordBatch) -> Result<Option<(String, RecordBatch)>> {
        let shape = self.shape()?;
        let table = match way {
            Way::Stage => return Ok(Some((STAGE.to_owned(), rows.clone()))),
            _ if !shape.is_native() => return Ok(None),
            Way::Load(load) => load,
            Way::Mart => &self.mart.table,
        };
        let names = shape.names();
        let Some(touch) = shape.touch(&self.mart).filter(|_| *way == Way::Mart) else {
            return Ok(Some((format!("{table} ({names})"), rows.clone())));
        };
        let is_time = |column: &MartColumn| column.name == touch && column.oid == TIMESTAMPTZ;
        if !self.mart.columns.iter().any(is_time) {
            return Ok(None);
        }
        let into = format!("{table} ({names}, {})", identifier(touch));
        Ok(Some((into, touched(rows, touch, self.clock.micros())?)))
    }

    /// Rows into a table with the mart's types: straight, or cast on the way.
    async fn fill(&mut self, way: &Way, rows: &RecordBatch) -> Tried<u64> {
        if let Some((into, rows)) = self.straight(way, rows)? {
            return self.copy(&into, &rows).await;
        }
        let insert = statements::insert_staged(&self.mart, self.shape()?, way);
        let bytes = self.copy(STAGE, rows).await?;
        self.count_of(&insert).await?;
        self.session.run(&format!("truncate {STAGE}")).await?;
        Ok(bytes)
    }

    /// COPYs rows; answers their size on the wire.
    pub(super) async fn copy(&mut self, into: &str, rows: &RecordBatch) -> Tried<u64> {
        let statement = self.copy_statement(into).await?;
        let copying = self.session.client.copy_in(&statement).await;
        let copying = copying.map_err(|error| Trouble::of(&self.session, error))?;
        let (mut last, bytes) = self.send_all(&statement, copying, rows).await?;
        last.as_mut().finish().await.map_err(|error| Trouble::of(&self.session, error))?;
        Ok(bytes)
    }

    /// By one COPY or several. The last one is not finished yet: what comes behind it need not wait.
    pub(super) async fn send_all(
        &self,
        statement: &Statement,
        first: CopyInSink<Bytes>,
        rows: &RecordBatch,
    ) -> Tried<(Pin<Box<CopyInSink<Bytes>>>, u64)> {
        let refused = |error| Trouble::of(&self.session, error);
        let encoder = Encoder::new(rows.schema()).map_err(|error| Trouble::unwritable(&error))?;
        let some = if rows.num_rows() < LARGE { ROWS_A_MESSAGE } else { rows.num_rows() };
        let mut copying = Box::pin(first);
        let mut bytes =
            self.send(copying.as_mut(), &encoder, &rows.slice(0, some.min(rows.num_rows()))).await?;
        for from in (some..rows.num_rows()).step_by(some) {
            let (copied, next) = join!(copying.as_mut().finish(), self.session.client.copy_in(statement));
            copied.map_err(refused)?;
            copying = Box::pin(next.map_err(refused)?);
            let piece = rows.slice(from, some.min(rows.num_rows() - from));
            bytes += self.send(copying.as_mut(), &encoder, &piece).await?;
        }
        Ok((copying, bytes))
    }

    /// In pieces: the server writes one while the next is made.
    async fn send(
        &self,
        mut copying: Pin<&mut CopyInSink<Bytes>>,
        encoder: &Encoder,
        rows: &RecordBatch,
    ) -> Tried<u64> {
        let mut bytes = 0;
        for from in (0..rows.num_rows()).step_by(ROWS_A_MESSAGE) {
            let mut buffer = BytesMut::new();
            if from == 0 {
                Encoder::header(&mut buffer);
            }
            let piece = rows.slice(from, ROWS_A_MESSAGE.min(rows.num_rows() - from));
            encoder.encode(&piece, &mut buffer).map_err(|error| Trouble::unwritable(&error))?;
            if from + ROWS_A_MESSAGE >= rows.num_rows() {
                Encoder::trailer(&mut buffer);
            }
            bytes += buffer.len() as u64;
            copying.send(buffer.freeze()).await.map_err(|error| Trouble::of(&self.session, error))?;
        }
        Ok(bytes)
    }

    /// Known to the server after the first time.
    pub(super) async fn copy_statement(&mut self, into: &str) -> Tried<Statement> {
        if let Some(statement) = self.copies.get(into) {
            return Ok(statement.clone());
        }
        let copy = format!("copy {into} from stdin (format binary)");
        let prepared = self.session.client.prepare(&copy).await;
        let statement = prepared.map_err(|error| Trouble::of(&self.session, error))?;
        self.copies.insert(into.to_owned(), statement.clone());
        Ok(statement)
    }

    /// The number that a query answers.
    pub(super) async fn figure(&self, sql: &str) -> Result<u64> {
        let row =
            self.session.client.query_one(sql, &[]).await.map_err(|error| self.session.explain(error))?;
        Ok(row.get::<_, i64>(0).unsigned_abs())
    }
}

/// The rows with one more column that holds this moment.
fn touched(rows: &RecordBatch, touch: &str, now: i64) -> Result<RecordBatch> {
    let times = TimestampMicrosecondArray::from_value(now, rows.num_rows()).with_timezone("UTC");
    let field = Field::new(touch, times.data_type().clone(), false);
    let fields = rows.schema().fields().iter().cloned().chain([Arc::new(field)]).collect::<Vec<_>>();
    let columns = rows.columns().iter().cloned().chain([Arc::new(times) as ArrayRef]).collect();
    RecordBatch::try_new(Arc::new(Schema::new(fields)), columns)
        .map_err(|error| Error::bug("sink.touch", error.to_string()))
}
