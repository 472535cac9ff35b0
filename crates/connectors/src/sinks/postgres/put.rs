//! Rows by COPY to where they go, all at once; or, when one of them is to blame, in halves until it is found.

use std::sync::Arc;

use arrow_array::{Array, ArrayRef, RecordBatch, TimestampMicrosecondArray};
use arrow_schema::{Field, Schema};
use bytes::BytesMut;
use futures_util::SinkExt;
use vitrina_core::{Error, Outcome, Result};
use vitrina_pgcopy::Encoder;

use super::mart::MartColumn;
use super::statements::{self, Find, STAGE};
use super::trouble::{RowTrouble, Tried, Trouble};
use super::{PostgresSink, duplicates};
use crate::rejects::reject;
use crate::sql::{identifier, literal};

/// How much of a batch one refused row takes with it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Care {
    /// All of it: the quick way, for rows that pass.
    Batch,
    /// Nothing: rows that are refused are found and left out.
    Rows,
}

const TIMESTAMPTZ: u32 = 1184;

/// Where rows go.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Way {
    /// Into the mart, by key.
    Upsert,
    /// Into the mart, which has none of them.
    Direct,
    /// Into the staging table of a load.
    Staged(String),
}

impl PostgresSink {
    pub(super) async fn put(
        &mut self,
        rows: &RecordBatch,
        way: Way,
        care: Care,
        outcome: &mut Outcome,
    ) -> Tried<()> {
        match care {
            Care::Batch => self.put_all(rows, &way, care, outcome).await,
            Care::Rows => self.put_by_halves(rows, &way, outcome).await,
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
        match way {
            Way::Upsert => {
                outcome.counts.bytes += self.copy(STAGE, rows).await?;
                let removed = self.reject_duplicates(STAGE, care, outcome).await?;
                let merged = self.merge(STAGE, Find::ByKey, "").await?;
                outcome.counts.inserted += merged.inserted;
                outcome.counts.updated += merged.updated;
                let gone = removed + merged.inserted + merged.updated;
                outcome.counts.unchanged += (rows.num_rows() as u64).saturating_sub(gone);
            }
            Way::Direct => {
                outcome.counts.bytes += self.fill_mart(rows).await?;
                outcome.counts.inserted += rows.num_rows() as u64;
            }
            Way::Staged(load) => outcome.counts.bytes += self.fill(load, false, rows).await?,
        }
        Ok(())
    }

    /// Halves on the stack, the left one first, so that rows keep their order.
    async fn put_by_halves(&mut self, rows: &RecordBatch, way: &Way, outcome: &mut Outcome) -> Tried<()> {
        let budget = self.refused.budget(outcome.reject_limit);
        let mut halves = vec![(0, rows.num_rows())];
        while let Some((from, count)) = halves.pop() {
            let before = outcome.clone();
            self.session.run("savepoint half").await?;
            match self.put_all(&rows.slice(from, count), way, Care::Rows, outcome).await {
                Ok(()) => self.session.run("release half").await?,
                Err(Trouble::Row(row)) => {
                    self.session.run("rollback to half").await?;
                    *outcome = before;
                    if count > 1 {
                        halves.extend([(from + count / 2, count - count / 2), (from, count / 2)]);
                    } else {
                        self.refuse(rows, from, way, row, outcome)?;
                    }
                }
                Err(other) => return Err(other),
            }
            if outcome.rejects.len() > budget {
                break;
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
        if *way == Way::Direct && trouble.constraint.as_deref() == Some(self.mart.key_index.as_str()) {
            return Err(Trouble::Row(RowTrouble { code: duplicates::CODE, ..trouble }));
        }
        outcome.rejects.push(reject(rows, row, &self.mart.key, trouble.code, trouble.message)?);
        Ok(())
    }

    /// New rows with the time of their writing, which COPY cannot compute: it is sent along.
    async fn fill_mart(&mut self, rows: &RecordBatch) -> Tried<u64> {
        let (shape, table) = (self.shape()?, self.mart.table.clone());
        let Some(touch) = shape.touch(&self.mart).map(str::to_owned) else {
            return self.fill(&table, false, rows).await;
        };
        let is_time = |column: &MartColumn| column.name == touch && column.oid == TIMESTAMPTZ;
        if !shape.is_native() || !self.mart.columns.iter().any(is_time) {
            return self.fill(&table, true, rows).await;
        }
        let into = format!("{table} ({}, {})", shape.names(), identifier(&touch));
        let now = "select (extract(epoch from now()) * 1000000)::bigint";
        let row = self.session.client.query_one(now, &[]).await;
        let now: i64 = row.map_err(|error| Trouble::of(&self.session, error))?.get(0);
        self.copy(&into, &touched(rows, &touch, now)?).await
    }

    /// Rows into a table with the mart's types: straight, or cast on the way.
    async fn fill(&mut self, table: &str, touch: bool, rows: &RecordBatch) -> Tried<u64> {
        let shape = self.shape()?;
        if shape.is_native() && !touch {
            let into = format!("{table} ({})", shape.names());
            return self.copy(&into, rows).await;
        }
        let insert = statements::insert_staged(&self.mart, shape, table, touch);
        let bytes = self.copy(STAGE, rows).await?;
        self.count_of(&insert).await?;
        self.session.run(&format!("truncate {STAGE}")).await?;
        Ok(bytes)
    }

    /// COPYs rows; answers their size on the wire.
    pub(super) async fn copy(&mut self, into: &str, rows: &RecordBatch) -> Tried<u64> {
        let encoder = Encoder::new(rows.schema()).map_err(|error| Trouble::unwritable(&error))?;
        let mut buffer = BytesMut::new();
        Encoder::header(&mut buffer);
        encoder.encode(rows, &mut buffer).map_err(|error| Trouble::unwritable(&error))?;
        Encoder::trailer(&mut buffer);
        let bytes = buffer.len() as u64;
        let refused = |error| Trouble::of(&self.session, error);
        let copy = format!("copy {into} from stdin (format binary)");
        let statement = match self.copies.get(into) {
            Some(statement) => statement.clone(),
            None => {
                let statement = self.session.client.prepare(&copy).await.map_err(refused)?;
                self.copies.insert(into.to_owned(), statement.clone());
                statement
            }
        };
        let copying = self.session.client.copy_in(&statement).await.map_err(refused)?;
        let mut copying = std::pin::pin!(copying);
        copying.send(buffer.freeze()).await.map_err(refused)?;
        copying.finish().await.map_err(refused)?;
        Ok(bytes)
    }

    pub(super) async fn merge(&self, from: &str, find: Find, condition: &str) -> Tried<Merged> {
        let new = match self.mart.partitioned {
            true => {
                Some(self.figure(&statements::count_new(&self.mart, self.shape()?, from, condition)).await?)
            }
            false => None,
        };
        let sql = statements::merge(&self.mart, self.shape()?, from, find, condition);
        let answer = self.session.client.query_one(&sql, &[]).await;
        let row = answer.map_err(|error| Trouble::of(&self.session, error))?;
        let figure = |place: usize| row.get::<_, i64>(place).unsigned_abs();
        Ok(match new {
            Some(new) => Merged { inserted: new.min(figure(0)), updated: figure(0).saturating_sub(new) },
            None => Merged { inserted: figure(0), updated: figure(1) },
        })
    }

    /// The number that a query answers.
    pub(super) async fn figure(&self, sql: &str) -> Result<u64> {
        let row =
            self.session.client.query_one(sql, &[]).await.map_err(|error| self.session.explain(error))?;
        Ok(row.get::<_, i64>(0).unsigned_abs())
    }

    /// Keys that are equal only to the database. Where bytes tell, the batch has been looked through already.
    pub(super) async fn reject_duplicates(
        &self,
        from: &str,
        care: Care,
        outcome: &mut Outcome,
    ) -> Tried<u64> {
        let shape = self.shape()?;
        if care == Care::Batch && shape.has_plain_key(&self.mart) {
            return Ok(0);
        }
        let groups =
            self.session.client.query(&statements::duplicate_keys(&self.mart, shape, from), &[]).await;
        let groups = groups.map_err(|error| Trouble::of(&self.session, error))?;
        let mut removed = 0;
        for group in groups {
            let places: Vec<String> = group.get(0);
            let message = duplicates::message(places.len(), &self.mart.key);
            self.reject_staged(from, &places, duplicates::CODE, &message, outcome).await?;
            removed += self.count_of(&delete_places(from, &places)).await?;
        }
        Ok(removed)
    }

    /// Staged rows as rejects, by where they lie.
    pub(super) async fn reject_staged(
        &self,
        from: &str,
        places: &[String],
        code: &str,
        message: &str,
        outcome: &mut Outcome,
    ) -> Result<()> {
        let sql = statements::staged_rows(&self.mart, self.shape()?, from, places);
        let rows = self.session.client.query(&sql, &[]).await.map_err(|error| self.session.explain(error))?;
        for row in rows {
            let json = |place| serde_json::from_str(row.get(place));
            let unreadable = |error: serde_json::Error| Error::bug("sink.reject", error.to_string());
            let (key, row) = (json(0).map_err(unreadable)?, json(1).map_err(unreadable)?);
            let (code, message) = (code.to_owned(), message.to_owned());
            outcome.rejects.push(vitrina_core::Reject { key, code, message, row });
        }
        Ok(())
    }
}

/// What a merge did.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Merged {
    pub(super) inserted: u64,
    pub(super) updated: u64,
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

fn delete_places(from: &str, places: &[String]) -> String {
    let places = places.iter().map(|place| literal(place)).collect::<Vec<_>>().join(", ");
    format!("delete from {from} where ctid = any(array[{places}]::tid[])")
}
