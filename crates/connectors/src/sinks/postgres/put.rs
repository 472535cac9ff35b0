//! Rows by COPY to where they go, all at once; or, when one of them is to blame, in halves until it is found.

use std::pin::Pin;
use std::sync::Arc;

use arrow_array::{Array, ArrayRef, RecordBatch, TimestampMicrosecondArray};
use arrow_schema::{Field, Schema};
use bytes::{Bytes, BytesMut};
use futures_util::SinkExt;
use tokio_postgres::{CopyInSink, Statement};
use vitrina_core::{Error, Outcome, Result};
use vitrina_pgcopy::Encoder;

use super::PostgresSink;
use super::mart::MartColumn;
use super::statements::{self, STAGE};
use super::trouble::{RowTrouble, Tried, Trouble};
use crate::delivery::OnBadRow;
use crate::rejects::reject;
use crate::sql::identifier;

const TIMESTAMPTZ: u32 = 1184;
/// The server writes one message while the next is made.
const ROWS_A_MESSAGE: usize = 250;
/// More is cut: where in its bytes a COPY is cut into messages makes no difference to the server.
const BYTES_A_MESSAGE: usize = 1 << 20;
/// COPY gathers up to 1,000 rows in slots, and counts the slots of one statement in a time that grows with their
/// square: a batch of that size takes less as several statements, and a large one soon reuses its slots. Each statement
/// is a round trip more.
const ROWS_A_COPY: usize = 500;
const LARGE: usize = 4000;

/// What COPY has done.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Copied {
    /// On the wire.
    pub(super) bytes: u64,
    /// That the table has taken, by its own answer.
    rows: u64,
}

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
        on_bad_row: OnBadRow,
        outcome: &mut Outcome,
    ) -> Tried<()> {
        match on_bad_row {
            OnBadRow::FailBatch => self.put_all(rows, way, outcome).await,
            OnBadRow::Reject => self.put_by_halves(rows, way, outcome).await,
        }
    }

    async fn put_all(&mut self, rows: &RecordBatch, way: &Way, outcome: &mut Outcome) -> Tried<()> {
        if rows.num_rows() == 0 {
            return Ok(());
        }
        let filled = self.fill(way, rows).await?;
        outcome.counts.bytes += filled.bytes;
        if *way == Way::Mart {
            outcome.counts.inserted += filled.rows;
            self.tell_left_out((rows.num_rows() as u64).saturating_sub(filled.rows));
        }
        Ok(())
    }

    /// Halves on the stack, the left one first, so that rows keep their order.
    async fn put_by_halves(&mut self, rows: &RecordBatch, way: &Way, outcome: &mut Outcome) -> Tried<()> {
        let mut halves = vec![(0, rows.num_rows())];
        let mut command = -1;
        while let Some((from, count)) = halves.pop() {
            let before = outcome.counts;
            self.session.run(statements::HALF).await?;
            match self.put_half(&rows.slice(from, count), way, &mut command, outcome).await {
                Ok(()) => self.session.run("release half").await?,
                Err(Trouble::Row(row)) => {
                    self.session.run(statements::UNDO_HALF).await?;
                    outcome.counts = before;
                    match count {
                        1 => self.refuse(rows, from, way, row, outcome)?,
                        _ => halves.extend([(from + count / 2, count - count / 2), (from, count / 2)]),
                    }
                    self.rejects.stop_beyond_limit(outcome)?;
                }
                Err(other) => return Err(other),
            }
        }
        Ok(())
    }

    /// A value that the mart's types cannot hold would fail every statement that looks at it. `command` is the newest whose
    /// staged rows were looked at: each is cast once, however many halves there are. A row may come to lie in an earlier
    /// block that has room; then all are looked at.
    async fn put_half(
        &mut self,
        rows: &RecordBatch,
        way: &Way,
        command: &mut i64,
        outcome: &mut Outcome,
    ) -> Tried<()> {
        if *way != Way::Stage {
            return self.put_all(rows, way, outcome).await;
        }
        let last_block = self.figure(statements::STAGE_BLOCKS).await?.saturating_sub(1);
        self.put_all(rows, way, outcome).await?;
        let (new, newest) = self.cast_since(last_block, *command).await?;
        *command = match new < rows.num_rows() as u64 {
            true => self.cast_since(0, *command).await?.1,
            false => newest,
        };
        Ok(())
    }

    /// Casts staged rows from a block on. Answers how many of them are of later commands, and the newest of those.
    async fn cast_since(&self, block: u64, command: i64) -> Tried<(u64, i64)> {
        let sql = statements::cast_since(self.shape()?, block, command);
        let answer = self.session.client.query_one(&sql, &[]).await;
        let row = answer.map_err(|error| Trouble::of(&self.session, error))?;
        Ok((row.get::<_, i64>(0).unsigned_abs(), row.get(1)))
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
        if *way == Way::Mart && trouble.is_repeated {
            return Err(Trouble::Row(trouble));
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
    async fn fill(&mut self, way: &Way, rows: &RecordBatch) -> Tried<Copied> {
        if let Some((into, rows)) = self.straight(way, rows)? {
            return self.copy(&into, &rows).await;
        }
        let insert = statements::insert_staged(&self.mart, self.shape()?, way);
        let Copied { bytes, .. } = self.copy(STAGE, rows).await?;
        let rows = self.count_of(&insert).await?;
        self.session.run(&format!("truncate {STAGE}")).await?;
        Ok(Copied { bytes, rows })
    }

    async fn copy(&mut self, into: &str, rows: &RecordBatch) -> Tried<Copied> {
        let statement = self.copy_statement(into).await?;
        let copying = self.start_copy(&statement).await?;
        let (mut last, mut copied) = self.send_all(&statement, copying, rows).await?;
        copied.rows += self.finish_copy(last.as_mut()).await?;
        Ok(copied)
    }

    /// No COPY may be sent behind one that is not finished: where the first fails, the second cannot start, and the
    /// client then ends it by one message more than the server expects, whose answer nobody waits for. After a COPY
    /// that did not start the session is out of step for the same reason, so this is never one row's error, after which
    /// the session would be used again.
    pub(super) async fn start_copy(&self, statement: &Statement) -> Result<CopyInSink<Bytes>> {
        self.session.client.copy_in(statement).await.map_err(|error| self.session.explain(error))
    }

    /// Answers how many rows the table has taken.
    async fn finish_copy(&self, copying: Pin<&mut CopyInSink<Bytes>>) -> Tried<u64> {
        copying.finish().await.map_err(|error| Trouble::of(&self.session, error))
    }

    /// By one COPY or several. The last one is not finished yet: a statement behind it need not wait.
    pub(super) async fn send_all(
        &self,
        statement: &Statement,
        first: CopyInSink<Bytes>,
        rows: &RecordBatch,
    ) -> Tried<(Pin<Box<CopyInSink<Bytes>>>, Copied)> {
        let encoder = Encoder::new(rows.schema()).map_err(|error| Trouble::unwritable(&error))?;
        let size = if rows.num_rows() < LARGE { ROWS_A_COPY } else { rows.num_rows() };
        let mut copying = Box::pin(first);
        let mut copied = Copied::default();
        for from in (0..rows.num_rows()).step_by(size) {
            let piece = rows.slice(from, size.min(rows.num_rows() - from));
            let mut messages = messages(&encoder, &piece);
            // Made while the server works on the piece before.
            let mut message = messages.next().transpose()?;
            if from > 0 {
                copied.rows += self.finish_copy(copying.as_mut()).await?;
                copying = Box::pin(self.start_copy(statement).await?);
            }
            while let Some(next) = message {
                copied.bytes += next.len() as u64;
                for piece in pieces(next) {
                    copying.send(piece).await.map_err(|error| Trouble::of(&self.session, error))?;
                }
                message = messages.next().transpose()?;
            }
        }
        Ok((copying, copied))
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

/// The rows of one COPY, message by message.
fn messages<'a>(
    encoder: &'a Encoder,
    rows: &'a RecordBatch,
) -> impl Iterator<Item = Tried<Bytes>> + Send + 'a {
    let message = move |from: usize| {
        let mut buffer = BytesMut::new();
        if from == 0 {
            Encoder::header(&mut buffer);
        }
        let piece = rows.slice(from, ROWS_A_MESSAGE.min(rows.num_rows() - from));
        encoder.encode(&piece, &mut buffer).map_err(|error| Trouble::unwritable(&error))?;
        if from + ROWS_A_MESSAGE >= rows.num_rows() {
            Encoder::trailer(&mut buffer);
        }
        Ok(buffer.freeze())
    };
    (0..rows.num_rows()).step_by(ROWS_A_MESSAGE).map(message)
}

/// The driver copies what is sent at once: a value of hundreds of megabytes would be in memory once more.
pub(super) fn pieces(mut message: Bytes) -> impl Iterator<Item = Bytes> + Send {
    std::iter::from_fn(move || {
        (!message.is_empty()).then(|| message.split_to(message.len().min(BYTES_A_MESSAGE)))
    })
}

/// The rows with one more column that holds this moment.
fn touched(rows: &RecordBatch, touch: &str, now: i64) -> Result<RecordBatch> {
    let times = TimestampMicrosecondArray::from_value(now, rows.num_rows()).with_timezone("UTC");
    let field = Field::new(touch, times.data_type().clone(), false);
    let fields = rows.schema().fields().iter().cloned().chain([Arc::new(field)]).collect::<Vec<_>>();
    let columns = rows.columns().iter().cloned().chain([Arc::new(times) as ArrayRef]).collect();
    RecordBatch::try_new(Arc::new(Schema::new(fields)), columns)
        .map_err(|error| Error::defect("sink.touch", &error))
}
