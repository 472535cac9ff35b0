//! The Postgres sink. Per batch one transaction: COPY into a temporary staging table, one upsert
//! that rewrites only rows that differ, deletes of scope minus batch, and `etl.commit_batch` last,
//! so that mart, rejects, fence and checkpoint become true together.

mod mart;
mod statements;

use std::time::Instant;

use arrow_array::RecordBatch;
use async_trait::async_trait;
use bytes::BytesMut;
use futures_util::SinkExt;
use serde_json::json;
use tokio_postgres::SimpleQueryMessage;
use vitrina_core::{
    Batch, Checkpoint, Commit, Counts, Error, Lease, Result, Scope, Sink, TargetName, Written,
};
use vitrina_pgcopy::Encoder;

use super::{Kind, Opened, Order};
use crate::connection::{End, Session};
use crate::sql::literal;
use mart::Mart;
use statements::Statements;

pub(super) struct Postgres;

#[async_trait]
impl Kind for Postgres {
    fn serves(&self, target: &TargetName) -> bool {
        matches!(target, TargetName::Postgres { .. })
    }

    async fn open(&self, target: &TargetName, order: &Order<'_>) -> Result<Opened> {
        let connection = order.connections.get(&order.target.connection)?;
        let session = Session::open(connection, End::Sink, &order.lease.application_name()).await?;
        mart::require_meta_store(&session, order.installation).await?;
        let mart = Mart::describe(&session, target, order.target).await?;
        let key = mart.key_names();
        Ok(Opened { sink: Box::new(PostgresSink { session, mart, statements: None }), key })
    }
}

struct PostgresSink {
    session: Session,
    mart: Mart,
    /// Made for the columns of the first batch; a batch with other columns makes them anew.
    statements: Option<Statements>,
}

#[async_trait]
impl Sink for PostgresSink {
    /// No token to raise: the claim's own stands in the same database as the mart. What an older owner
    /// left open would hold locks on the mart's rows.
    async fn seal(&mut self, lease: &Lease) -> Result<()> {
        self.session.end_older(lease).await
    }

    async fn write(&mut self, batch: &Batch, commit: &Commit) -> Result<Written> {
        let written = self.transact(batch, commit).await;
        if written.is_err() {
            // The session may be gone; then so is its transaction.
            self.session.run("rollback").await.ok();
        }
        written
    }
}

impl PostgresSink {
    async fn transact(&mut self, batch: &Batch, commit: &Commit) -> Result<Written> {
        let started = Instant::now();
        self.prepare(batch).await?;
        self.session.run("begin isolation level read committed").await?;
        let mut counts =
            Counts { read: batch.rows_read, rejected: batch.rejected.len() as u64, ..Counts::default() };
        counts.bytes = self.stage("vitrina_stage", &batch.rows).await?;
        let before = self.rows_before(batch, commit).await?;
        self.merge(batch, &mut counts).await?;
        self.delete_vanished(batch, commit, before, &mut counts).await?;
        let checkpoint = commit.from.advance(commit.run, batch.to.clone(), counts.deleted, before);
        self.commit(batch, commit, checkpoint, counts, started).await
    }

    /// Outside the transaction: staging tables outlive it, empty.
    async fn prepare(&mut self, batch: &Batch) -> Result<()> {
        let fits = |statements: &Statements| statements.columns() == batch.rows.schema().fields();
        if !self.statements.as_ref().is_some_and(fits) {
            let statements = Statements::new(&self.mart, &batch.rows.schema(), &batch.scope)?;
            self.session.run(&statements.create_stage).await?;
            self.statements = Some(statements);
        }
        if let Scope::Keys(keys) = &batch.scope {
            self.session.run(&Statements::create_scope(&keys.schema())?).await?;
        }
        Ok(())
    }

    /// COPYs rows into a temporary table; answers their size on the wire.
    async fn stage(&self, table: &str, rows: &RecordBatch) -> Result<u64> {
        if rows.num_rows() == 0 {
            return Ok(0);
        }
        let encoder = Encoder::new(rows.schema()).map_err(unwritable)?;
        let mut buffer = BytesMut::new();
        Encoder::header(&mut buffer);
        encoder.encode(rows, &mut buffer).map_err(unwritable)?;
        Encoder::trailer(&mut buffer);
        let bytes = buffer.len() as u64;
        let copy = format!("copy pg_temp.{table} from stdin (format binary)");
        let copying =
            self.session.client.copy_in(&copy).await.map_err(|error| self.session.explain(error))?;
        let mut copying = std::pin::pin!(copying);
        copying.send(buffer.freeze()).await.map_err(|error| self.session.explain(error))?;
        copying.finish().await.map_err(|error| self.session.explain(error))?;
        Ok(bytes)
    }

    async fn merge(&self, batch: &Batch, counts: &mut Counts) -> Result<()> {
        let Some(statements) = self.statements.as_ref().filter(|_| batch.rows.num_rows() > 0) else {
            return Ok(());
        };
        let row = self
            .session
            .client
            .query_one(&statements.merge, &[])
            .await
            .map_err(|error| self.explain_merge(error))?;
        counts.inserted = row.get::<_, i64>(0).unsigned_abs();
        counts.updated = row.get::<_, i64>(1).unsigned_abs();
        counts.unchanged = batch.rows.num_rows() as u64 - counts.inserted - counts.updated;
        Ok(())
    }

    fn explain_merge(&self, error: tokio_postgres::Error) -> Error {
        if error.code().is_some_and(|state| state.code() == "21000") {
            let key = self.mart.key_names().join(", ");
            return Error::fix(
                "sink.duplicate_key",
                format!("the query returns several rows for one key ({key})"),
            )
            .hint("group or filter the query so that each key comes once, or widen the key");
        }
        self.session.explain(error)
    }

    async fn delete_vanished(
        &self,
        batch: &Batch,
        commit: &Commit,
        before: Option<u64>,
        counts: &mut Counts,
    ) -> Result<()> {
        let Some(statements) = &self.statements else { return Ok(()) };
        let sql = match &batch.scope {
            Scope::Nothing => return Ok(()),
            Scope::Range(range) => {
                if batch.rows.num_rows() == 0 && range.after.is_none() && range.upto.is_none() {
                    self.refuse_empty_source().await?;
                }
                statements.delete_range(&self.mart, range)
            }
            Scope::Keys(keys) => {
                self.stage("vitrina_scope", keys).await?;
                statements.delete_keys(&self.mart, &keys.schema())
            }
        };
        let deleted =
            self.session.client.execute(&sql, &[]).await.map_err(|error| self.session.explain(error))?;
        counts.deleted = deleted;
        self.hold_delete_limit(commit, deleted, before.unwrap_or(0))
    }

    /// A source that returns nothing at all is more likely broken than empty.
    async fn refuse_empty_source(&self) -> Result<()> {
        let sql = format!("select exists (select from {})", self.mart.table);
        if !self.flag(&sql).await? {
            return Ok(());
        }
        Err(Error::fix(
            "sink.source_empty",
            format!("the query returns no rows at all, and {} is not empty", self.mart.table),
        )
        .hint("nothing was deleted; if the source is meant to be empty, empty the mart yourself"))
    }

    /// The mart's size when the pass began. Counted once a pass, before its first batch is merged: rows
    /// that the pass brings in must not make room for deletes.
    async fn rows_before(&self, batch: &Batch, commit: &Commit) -> Result<Option<u64>> {
        if matches!(batch.scope, Scope::Nothing) || commit.from.rows_before.is_some() {
            return Ok(commit.from.rows_before);
        }
        let sql = format!("select count(*) from {}", self.mart.table);
        let row =
            self.session.client.query_one(&sql, &[]).await.map_err(|error| self.session.explain(error))?;
        Ok(Some(row.get::<_, i64>(0).unsigned_abs()))
    }

    fn hold_delete_limit(&self, commit: &Commit, deleted: u64, before: u64) -> Result<()> {
        let total = commit.from.deleted + deleted;
        if deleted == 0 || total as f64 <= commit.delete_limit * before as f64 {
            return Ok(());
        }
        let (table, limit) = (&self.mart.table, commit.delete_limit * 100.0);
        let message = format!(
            "this pass would delete {total} of {before} rows of {table}, over the limit of {limit} %"
        );
        Err(Error::fix("sink.delete_limit", message).hint(
            "nothing of this batch was deleted; if so much has really vanished, raise delete_limit and run again",
        ))
    }

    async fn flag(&self, sql: &str) -> Result<bool> {
        let row =
            self.session.client.query_one(sql, &[]).await.map_err(|error| self.session.explain(error))?;
        Ok(row.get(0))
    }

    /// The fence and COMMIT travel as one message: a runner stopped between the two would hide the
    /// pipeline's row from every claim.
    async fn commit(
        &self,
        batch: &Batch,
        commit: &Commit,
        checkpoint: Checkpoint,
        counts: Counts,
        started: Instant,
    ) -> Result<Written> {
        let figures = json!({
            "read": counts.read, "inserted": counts.inserted, "updated": counts.updated, "unchanged": counts.unchanged,
            "deleted": counts.deleted, "rejected": counts.rejected, "bytes": counts.bytes,
            "read_ms": commit.timings.read_ms, "transform_ms": commit.timings.transform_ms,
            "write_ms": u64::try_from(started.elapsed().as_millis()).unwrap_or(u64::MAX),
        });
        let sql = format!(
            "select new_version, interrupted from etl.commit_batch({}, {}, {}, {}, {}, {}, {}); commit",
            literal(&commit.lease.pipeline.to_string()),
            literal(&commit.lease.owner.0.to_string()),
            commit.lease.token,
            commit.from_version,
            literal(&json!(checkpoint).to_string()),
            literal(&figures.to_string()),
            literal(&json!(batch.rejected).to_string()),
        );
        let answer =
            self.session.client.simple_query(&sql).await.map_err(|error| self.session.explain(error))?;
        let row = answer.iter().find_map(|message| match message {
            SimpleQueryMessage::Row(row) => Some(row),
            _ => None,
        });
        let row = row.ok_or_else(|| Error::bug("sink.commit", "etl.commit_batch returned no row"))?;
        let version = row.get(0).and_then(|text| text.parse().ok());
        let version =
            version.ok_or_else(|| Error::bug("sink.commit", "etl.commit_batch returned no version"))?;
        Ok(Written { counts, checkpoint, version, interrupted: row.get(1) == Some("t") })
    }
}

fn unwritable(error: vitrina_pgcopy::Error) -> Error {
    Error::fix("sink.unwritable", format!("the rows cannot be written: {error}")).caused_by(error)
}
