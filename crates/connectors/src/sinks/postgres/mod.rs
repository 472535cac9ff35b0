//! The Postgres sink. Per batch one transaction: rows by COPY, one statement that rewrites only what
//! differs, deletes of scope minus batch, and the fence last, so that mart, rejects and checkpoint become
//! true together. The batches of a load gather in staging and are merged at its end.

mod clock;
mod compare;
mod create;
mod cut;
mod declared;
mod fence;
mod load;
mod mart;
mod merge;
mod own_part;
mod owners;
mod put;
mod rights;
mod schema;
mod shape;
mod shared;
mod standing;
mod statements;
mod straight;
mod trouble;

use std::collections::HashMap;

use arrow_schema::Schema;
use async_trait::async_trait;
use tokio_postgres::Statement;
use vitrina_core::{
    Batch, Checkpoint, Commit, Committed, Counts, Destination, Error, Lease, Ledger, LoadPath, Outcome,
    Result, RowChange, Scope, Sink, State, Target, TargetName, Written,
};

use super::{Definition, Kind, Left, Opened, Order};
use crate::connection::{End, Session};
use crate::delivery::duplicates::{self, Distinct};
use crate::delivery::{self, Failure, OnBadRow, OpenRejects, after_upsert, delete_limit};
use crate::reconcile::{self, Pair};
use crate::rejects::without_null_keys;
use crate::sql::literal;
use clock::Clock;
use fence::Fence;
use load::Loads;
use mart::Mart;
use own_part::OwnPart;
use owners::Writer;
use put::Way;
use shape::Shape;
use statements::{Find, STAGE};
use trouble::{Tried, Trouble};

#[derive(Debug)]
pub(super) struct Postgres;

#[async_trait]
impl Kind for Postgres {
    fn serves(&self, target: &TargetName) -> bool {
        matches!(target, TargetName::Postgres { .. })
    }

    async fn open(&self, target: &TargetName, order: &Order<'_>) -> Result<Opened> {
        let connection = order.connections.get(&order.target.connection)?;
        let session = Session::open(connection, End::Sink, &order.lease.application_name()).await?;
        let own = OwnPart::of(order.pipeline, order.target)?;
        let found = Mart::describe(&session, target, order.target).await?;
        let is_new = found.is_none();
        let writer = Writer::new(target, order, is_new);
        let (fence, acquired) =
            Fence::new(&session, order.ledger.clone(), order.lease, order.issued, &writer).await?;
        let mut mart = match found {
            Some(mart) => mart,
            None => new_mart(&session, target, order).await?,
        };
        mart.own = own.with_columns(acquired.columns.into_iter());
        mart.require_own_part(&session).await?;
        let mut sink = PostgresSink {
            loads: Loads::new(order.lease.pipeline),
            newest_last: order.newest_last(),
            rejects: OpenRejects::default(),
            shape: None,
            rows_before: None,
            copies: HashMap::new(),
            clock: Clock::of(&session).await?,
            target: order.target.clone(),
            session,
            is_new,
            is_emptied: acquired.emptied,
            // What only rows tell may come with fewer columns than there are.
            has_claimed: order.schema.is_none(),
            writer,
            mart,
            fence,
        };
        if let Some(schema) = order.schema {
            sink.take_shape(schema, true).await?;
        }
        let server = Some(sink.session.server().await?);
        let destination = Destination { key: sink.mart.key.clone(), server, takes_ids: false };
        Ok(Opened { sink: Box::new(sink), destination })
    }

    async fn forget(&self, left: &Left<'_>) -> Result<()> {
        let connection = left.connections.get(&left.target.connection)?;
        let session = Session::open(connection, End::Sink, "vitrina/forget").await?;
        let is_alone = fence::forget(&session, left).await?;
        if left.deleted && is_alone { Loads::new(left.pipeline).clear(&session).await } else { Ok(()) }
    }

    async fn key(&self, definition: &Definition<'_>) -> Result<Vec<String>> {
        let session = create::session(definition).await?;
        let mart = Mart::describe(&session, definition.name, definition.target).await?;
        Ok(mart.map_or_else(|| definition.target.key.clone(), |mart| mart.key))
    }

    async fn lacks(&self, definition: &Definition<'_>) -> Result<Vec<String>> {
        create::lacks(&create::session(definition).await?, definition).await
    }

    async fn grants(&self, definition: &Definition<'_>) -> Result<Vec<String>> {
        rights::grants(definition).await
    }

    async fn standing(&self, definition: &Definition<'_>) -> Result<super::Standing> {
        standing::standing(definition).await
    }

    async fn pair<'a>(
        &self,
        target: &TargetName,
        order: &'a reconcile::Order<'a>,
    ) -> Result<Box<dyn Pair + 'a>> {
        compare::open(target, order).await
    }

    async fn supply(&self, definition: &Definition<'_>, lacks: &[String]) -> Result<()> {
        create::supply(&create::session(definition).await?, definition.name, lacks).await
    }
}

/// One that is not there.
async fn new_mart(session: &Session, name: &TargetName, order: &Order<'_>) -> Result<Mart> {
    create::refuse_taken(session, name).await?;
    match order.schema {
        _ if !order.target.create_if_missing => Err(create::no_table(name)),
        Some(schema) => create::mart(session, name, order.target, schema).await,
        // Its columns show with the first rows.
        None => Mart::to_come(name, order.target),
    }
}

struct PostgresSink {
    session: Session,
    /// The mart was not there when this was opened.
    is_new: bool,
    /// Another pipeline that shares the mart has created it anew since the last run of this one.
    is_emptied: bool,
    /// Own columns have been claimed: later batches may add to them.
    has_claimed: bool,
    writer: Writer,
    target: Target,
    mart: Mart,
    fence: Fence,
    /// Made for the columns of the rows; a batch with other columns makes it anew.
    shape: Option<Shape>,
    loads: Loads,
    rejects: OpenRejects,
    /// Of several rows of one key the last one counts.
    newest_last: Option<Vec<String>>,
    /// Rows that the mart had before the deletes that count, once they are known.
    rows_before: Option<u64>,
    /// COPY statements that the server knows already.
    copies: HashMap<String, Statement>,
    clock: Clock,
}

#[async_trait]
impl Sink for PostgresSink {
    async fn seal(&mut self, lease: &Lease, state: State) -> Result<State> {
        let state = self.fence.seal(&self.session, lease, state).await?;
        // What an older owner left open would hold locks on the mart's rows. Not before: it may be another copy's.
        self.session.end_older(lease.pipeline, lease.token).await?;
        self.rejects = OpenRejects::of(self.fence.ledger().open_rejects(lease).await?);
        let state = self.vouch(lease, state).await?;
        self.loads.resume(&self.session, state).await
    }

    async fn write(&mut self, batch: &Batch, commit: &Commit) -> Result<Written> {
        delivery::deliver(self, batch, commit).await
    }

    async fn clear(&mut self) -> Result<()> {
        self.loads.clear(&self.session).await
    }
}

#[async_trait]
impl delivery::Target for PostgresSink {
    fn rejects(&mut self) -> &mut OpenRejects {
        &mut self.rejects
    }

    fn ledger(&self) -> &dyn Ledger {
        self.fence.ledger()
    }

    fn reject_limit_hint(&self) -> &'static str {
        "nothing of this batch was written; look at the rejects, then mend the rows at the source, acknowledge the rejects or raise reject_limit, and run again"
    }

    async fn prepare(&mut self, batch: &Batch) -> Result<Option<Batch>> {
        self.check_columns(batch).await?;
        self.without_cut_texts(batch)
    }

    async fn write_pipelined(&mut self, batch: &Batch, commit: &Commit) -> Result<Option<Written>, Failure> {
        Ok(self.write_straight(batch, commit).await?)
    }

    async fn write(
        &mut self,
        batch: &Batch,
        commit: &Commit,
        on_bad_row: OnBadRow,
        outcome: &mut Outcome,
    ) -> Result<Checkpoint, Failure> {
        self.session.run(begin(batch)).await?;
        let mut checkpoint = match &batch.scope {
            Scope::Load { .. } => self.write_load(batch, commit, on_bad_row, outcome).await?,
            Scope::Keys(_) | Scope::Nothing => self.upsert(batch, commit, on_bad_row, outcome).await?,
        };
        if batch.ends_pass() {
            self.require_same_table().await?;
        }
        (checkpoint.unlogged, checkpoint.mart) = (self.mart.is_unlogged, self.mart.id);
        checkpoint.filled = self.is_filled_by(&outcome.counts, checkpoint.filled).await?;
        Ok(checkpoint)
    }

    async fn commit(
        &mut self,
        batch: &Batch,
        commit: &Commit,
        checkpoint: &Checkpoint,
        outcome: &Outcome,
    ) -> Result<Committed> {
        let last = std::mem::take(&mut self.loads.told);
        let committed = self.fence.commit(&self.session, &last, commit, checkpoint, outcome).await?;
        self.loads.committed(batch, checkpoint);
        Ok(committed)
    }

    async fn abandon(&mut self) -> Result<()> {
        self.session.run("rollback").await
    }
}

impl PostgresSink {
    /// A mart that was not there holds nothing, whatever the meta-store knows, and one that somebody has emptied or put in its place may:
    /// everything is read again. What a load has staged is all there. An unlogged one may hold nothing since its server has crashed.
    async fn vouch(&self, lease: &Lease, state: State) -> Result<State> {
        let checkpoint = &state.checkpoint;
        let is_staged = checkpoint.load.is_some_and(|load| load.path == LoadPath::Staged);
        let holds_rows = !checkpoint.position.done.is_null() || checkpoint.position.pass.is_some();
        let was_unlogged = self.mart.is_unlogged || checkpoint.unlogged;
        let crashed = was_unlogged && self.loads.crashed(&self.session).await?;
        let is_another = self.mart.id.is_some_and(|now| checkpoint.is_in_another_table(now));
        // What is to be merged yet is missed by nobody.
        let is_known = !self.is_new && !is_staged;
        let is_another = is_known && is_another;
        let lacks_all = is_known && checkpoint.filled && !self.has_own_rows().await?;
        let reason = match () {
            () if is_another => Some("is another table than the one that was written to"),
            () if !holds_rows => None,
            () if crashed => Some("is or was unlogged, and a crash may have emptied it"),
            () if self.is_emptied || (self.is_new && !is_staged) => Some("was gone"),
            () if lacks_all => Some("was emptied by somebody else"),
            () => None,
        };
        let Some(reason) = reason else { return self.clear_emptied(state).await };
        tracing::warn!(target = %self.mart.name, "the mart {reason}: everything is read again");
        // Stored at once: from the next attempt on the mart is there.
        let state = State { checkpoint: checkpoint.load_anew(self.mart.id), version: state.version + 1 };
        self.fence.ledger().adopt(lease, &state).await?;
        let state = self.fence.believe(&self.session, lease, state).await?;
        self.clear_emptied(state).await
    }

    async fn has_own_rows(&self) -> Result<bool> {
        let (table, own) = (&self.mart.table, self.mart.own.condition("t"));
        let sql = format!("select exists (select from {table} t where {own})");
        let row =
            self.session.client.query_one(&sql, &[]).await.map_err(|error| self.session.explain(error))?;
        Ok(row.get(0))
    }

    /// Whether a batch leaves rows in the mart; one that neither writes nor deletes leaves it as it was.
    async fn is_filled_by(&self, counts: &Counts, before: bool) -> Result<bool> {
        match counts.written() + counts.unchanged > 0 {
            true => Ok(true),
            false if counts.deleted > 0 => self.has_own_rows().await,
            false => Ok(before),
        }
    }

    /// Rows of earlier batches are in the table that was there then: before a pass is over it is asked for once more.
    async fn require_same_table(&self) -> Result<()> {
        let Some(id) = self.mart.id else { return Ok(()) };
        let sql =
            format!("select coalesce(to_regclass({})::oid = {}, false)", literal(&self.mart.table), id.table);
        let row =
            self.session.client.query_one(&sql, &[]).await.map_err(|error| self.session.explain(error))?;
        match row.get(0) {
            true => Ok(()),
            false => Err(Error::retry(
                "sink.table_replaced",
                format!("somebody has put another table in place of {} meanwhile", self.mart.name),
            )),
        }
    }

    /// A batch without rows may not know their columns: those of the batches before count, if there were any.
    async fn check_columns(&mut self, batch: &Batch) -> Result<()> {
        let (schema, has_rows) = (batch.rows.schema(), batch.rows.num_rows() > 0);
        if self.mart.is_to_come && has_rows {
            let name = self.mart.name.clone();
            let own = std::mem::take(&mut self.mart.own);
            self.mart = create::mart(&self.session, &name, &self.target, &schema).await?;
            self.mart.own = own;
            self.mart.require_own_part(&self.session).await?;
        }
        match batch.columns_unknown || self.mart.is_to_come {
            true => Ok(()),
            false => self.take_shape(&schema, has_rows).await,
        }
    }

    /// Checks the columns of the rows against the mart, and has the server check the statements.
    async fn take_shape(&mut self, schema: &Schema, has_rows: bool) -> Result<()> {
        if self.shape.as_ref().is_some_and(|shape| shape.fields == *schema.fields()) {
            return Ok(());
        }
        let shape = match has_rows {
            true => Shape::new(&self.mart, schema)?,
            false => Shape::of_none(&self.mart, schema)?,
        };
        shape.require_whole(&self.mart)?;
        self.copies.clear();
        self.shape = Some(shape);
        let checked = self.check_shape().await;
        if checked.is_err() {
            self.shape = None;
        }
        checked
    }

    async fn check_shape(&mut self) -> Result<()> {
        self.claim_columns().await?;
        let shape = self.shape()?;
        self.session.run(&statements::create_stage(shape)).await?;
        let merge = statements::merge(&self.mart, shape, STAGE, Find::ByKey, "");
        self.session.client.prepare(&merge).await.map_err(|error| self.mismatch(error))?;
        Ok(())
    }

    fn mismatch(&self, error: tokio_postgres::Error) -> Error {
        let wrong_type =
            error.code().is_some_and(|state| matches!(state.code(), "42804" | "42846" | "42883"));
        let explained = self.session.explain(error);
        match wrong_type {
            true => Error::fix(
                "sink.type_mismatch",
                format!("{} cannot take the query's types: {explained}", self.mart.name),
            )
            .hint("cast the column in the query to the mart's type"),
            false => explained,
        }
    }

    async fn upsert(
        &mut self,
        batch: &Batch,
        commit: &Commit,
        on_bad_row: OnBadRow,
        outcome: &mut Outcome,
    ) -> Tried<Checkpoint> {
        let staged = self.put_distinct(batch, &Way::Stage, on_bad_row, outcome).await?;
        let removed = match staged {
            0 => 0,
            _ => self.reject_duplicates(STAGE, on_bad_row, outcome).await?,
        };
        outcome.closed = self.rejects.closed_by(batch, &self.mart.key, outcome)?;
        let has_keys = matches!(&batch.scope, Scope::Keys(keys) if keys.num_rows() > 0);
        if has_keys || staged > removed {
            self.take_turns().await?;
        }
        self.delete_scope(batch, commit, outcome).await?;
        if staged > removed {
            self.merge(STAGE, Find::ByKey, staged - removed, on_bad_row, outcome).await?;
        }
        Ok(after_upsert(batch, commit, self.row_change(outcome)))
    }

    /// The rows whose keys come once to where they go; answers how many arrived.
    async fn put_distinct(
        &mut self,
        batch: &Batch,
        way: &Way,
        on_bad_row: OnBadRow,
        outcome: &mut Outcome,
    ) -> Tried<u64> {
        if batch.rows.num_rows() == 0 {
            return Ok(0);
        }
        let distinct = self.distinct(batch)?;
        outcome.counts.unchanged += distinct.replaced;
        outcome.rejects.extend(distinct.rejected);
        let before = outcome.rejects.len();
        self.put(&distinct.rows, way, on_bad_row, outcome).await?;
        Ok(distinct.rows.num_rows() as u64 - (outcome.rejects.len() - before) as u64)
    }

    /// Where only the mart can tell which keys are equal, it is asked when the rows are there.
    fn distinct(&self, batch: &Batch) -> Result<Distinct> {
        let (mut rows, mut rejected) = (batch.rows.clone(), Vec::new());
        without_null_keys(&mut rows, &mut rejected, &self.mart.key)?;
        self.mart.without_foreign_rows(&mut rows, &mut rejected)?;
        let mut distinct = match self.newest_last.is_some() || self.shape()?.has_plain_key(&self.mart) {
            true => duplicates::distinct(&rows, &self.mart.key, self.newest_last.as_deref())?,
            false => Distinct::all(&rows),
        };
        distinct.rejected.extend(rejected);
        Ok(distinct)
    }

    async fn delete_scope(&mut self, batch: &Batch, commit: &Commit, outcome: &mut Outcome) -> Tried<()> {
        let Scope::Keys(keys) = &batch.scope else { return Ok(()) };
        let scope = self.scope_keys(batch, keys)?;
        if scope.is_empty() || self.mart.is_to_come {
            return Ok(());
        }
        let columns: Vec<String> = keys.schema().fields().iter().map(|field| field.name().clone()).collect();
        self.fill_keys(statements::SCOPE, &columns, &scope).await?;
        let names: Vec<&str> = columns.iter().map(String::as_str).collect();
        // Without rows nothing has come back.
        let came = self.shape.as_ref().filter(|_| batch.rows.num_rows() > 0);
        let delete = [false, true].map(|sparing| statements::delete_keys(&self.mart, came, &names, sparing));
        self.delete(delete, commit, outcome).await
    }

    /// Behind deletes, before anything is merged. The batch is rolled back where it is over the limit.
    async fn hold_delete_limit(&mut self, commit: &Commit, deleted: u64) -> Result<()> {
        if deleted == 0 {
            return Ok(());
        }
        let before = match commit.from.deletes.rows_before.or(self.rows_before) {
            Some(before) => before,
            None => {
                let own = self.mart.own.condition("t");
                let count = format!("select count(*) from {} t where {own}", self.mart.table);
                let now = self.figure(&count).await?;
                now + commit.backfill_deleted + deleted
            }
        };
        self.rows_before = Some(before);
        delete_limit::check(&self.mart.name, commit, deleted, before)
    }

    fn row_change(&self, outcome: &Outcome) -> RowChange {
        let Counts { deleted, inserted, .. } = outcome.counts;
        RowChange { deleted, inserted, rows_before: self.rows_before }
    }

    async fn count_of(&self, sql: &str) -> Tried<u64> {
        self.session.client.execute(sql, &[]).await.map_err(|error| Trouble::of(&self.session, error))
    }

    fn shape(&self) -> Result<&Shape> {
        self.shape
            .as_ref()
            .ok_or_else(|| Error::bug("sink.shape", "rows are written before their columns are known"))
    }
}

/// A batch in the middle of a pass need not wait for the disk: data and checkpoint vanish together.
/// What is deferred to the commit could not be blamed on a row.
fn begin(batch: &Batch) -> &'static str {
    match batch.to.is_some() && !batch.ends_pass() {
        true => {
            "begin isolation level read committed; set constraints all immediate; set local synchronous_commit = off"
        }
        false => "begin isolation level read committed; set constraints all immediate",
    }
}
