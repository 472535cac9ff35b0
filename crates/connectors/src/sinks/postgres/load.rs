//! A load: its batches gather in an unlogged table beside the mart, and its last one merges them all in
//! one transaction: readers see the mart as it was or as it is. An empty mart is filled directly.
//!
//! What the staging holds is told by a row of `vitrina.loads`, unlogged as well: a server crash takes both,
//! and the load starts anew. A position that outlived its rows would make the merge delete good ones.

use arrow_row::OwnedRow;
use serde_json::json;
use uuid::Uuid;
use vitrina_core::{
    Batch, Checkpoint, Commit, Error, FirstLoad, Load, LoadPath, Outcome, PipelineId, Position, Result, State,
};

use super::put::{Care, Merged, Way};
use super::statements::{self, Find, STAGE};
use super::trouble::{Tried, Trouble};
use super::{PostgresSink, duplicates};
use crate::connection::Session;
use crate::sql::literal;

/// The loads of one pipeline, as this sink knows them.
pub(super) struct Loads {
    pipeline: PipelineId,
    /// The greatest key of the batch before: a key that goes on in the next batch comes twice.
    last_key: Option<OwnedRow>,
    /// The same of the batch under way; it counts once that has been committed.
    next_key: Option<OwnedRow>,
    /// What is to be told of the staging in the message that commits the batch.
    pub(super) told: String,
}

/// Rows fit a page of 8 KiB at most so often.
const PLACES_A_BLOCK: u64 = 1024;

impl Loads {
    pub(super) fn new(pipeline: PipelineId) -> Self {
        Self { pipeline, last_key: None, next_key: None, told: String::new() }
    }

    fn table(&self, load: Uuid) -> String {
        format!("vitrina.{}{}", self.prefix(), &load.simple().to_string()[..8])
    }

    fn prefix(&self) -> String {
        format!("load_{}_", self.pipeline.0.simple())
    }

    /// Where a staged load goes on: behind what its staging holds, or from the start if that is gone.
    pub(super) async fn resume(&self, session: &Session, mut state: State) -> Result<State> {
        let staged = state.checkpoint.load.filter(|load| load.path == LoadPath::Staged);
        let (Some(load), Some(_)) = (staged, &state.checkpoint.position.pass) else { return Ok(state) };
        let sql = format!("select position::text from vitrina.loads where load = {}", id(load.id));
        let rows = session.client.query(&sql, &[]).await.map_err(|error| session.explain(error))?;
        let kept = rows.first().and_then(|row| serde_json::from_str::<Position>(row.get(0)).ok());
        match kept {
            Some(position) => state.checkpoint.position = position,
            None => {
                tracing::warn!(load = %load.id, "the staging of this load is gone, as after a crash of the server: it starts anew");
                state.checkpoint = state.checkpoint.without_pass();
            }
        }
        Ok(state)
    }

    pub(super) fn committed(&mut self, checkpoint: &Checkpoint) {
        self.last_key = self.next_key.take().filter(|_| checkpoint.position.pass.is_some());
    }

    /// Drops the staging of this pipeline, whichever load it was of.
    pub(super) async fn clear(&self, session: &Session) -> Result<()> {
        let like = literal(&format!("{}%", self.prefix().replace('_', "\\_")));
        let sql = format!(
            "select relname::text from pg_class where relnamespace = 'vitrina'::regnamespace and relkind = 'r' and relname like {like}"
        );
        let tables = session.client.query(&sql, &[]).await.map_err(|error| session.explain(error))?;
        for table in tables {
            session.run(&format!("drop table if exists vitrina.{}", table.get::<_, String>(0))).await?;
        }
        let pipeline = literal(&self.pipeline.to_string());
        session.run(&format!("delete from vitrina.loads where pipeline = {pipeline}")).await
    }
}

/// How a batch of a load is written.
enum Step {
    /// The only batch: no staging beside the mart is needed.
    Whole,
    Direct(Load),
    Staged(Load),
}

impl PostgresSink {
    pub(super) async fn write_load(
        &mut self,
        batch: &Batch,
        commit: &Commit,
        care: Care,
        outcome: &mut Outcome,
    ) -> Tried<Checkpoint> {
        let step = self.step(batch, commit).await?;
        let load = match step {
            Step::Whole => Load { id: Uuid::now_v7(), path: LoadPath::Staged },
            Step::Direct(load) | Step::Staged(load) => load,
        };
        outcome.load = Some(load.id);
        outcome.close_others = batch.ends_pass();
        let deleted = match step {
            Step::Whole => self.merge_whole(batch, commit, care, outcome).await?,
            Step::Direct(_) => self.fill_directly(batch, commit, care, outcome).await?,
            Step::Staged(load) => self.stage(batch, commit, load, care, outcome).await?,
        };
        outcome.counts.deleted = deleted;
        let to = batch.to.clone().ok_or_else(|| Error::bug("sink.load", "a load leads nowhere"))?;
        let mut checkpoint = commit.from.advance(commit.run, to, deleted, None);
        checkpoint.load = (!batch.ends_pass()).then_some(load);
        Ok(checkpoint)
    }

    async fn step(&mut self, batch: &Batch, commit: &Commit) -> Result<Step> {
        let begins = commit.from.position.pass.is_none();
        let known = commit.from.load;
        let path = match (begins, known.map(|load| load.path)) {
            (_, Some(path)) => path,
            (_, None) if commit.first_load == FirstLoad::Direct && self.is_empty().await? => LoadPath::Direct,
            (_, None) => LoadPath::Staged,
        };
        let load = known.unwrap_or_else(|| Load { id: Uuid::now_v7(), path });
        Ok(match path {
            LoadPath::Direct => Step::Direct(load),
            LoadPath::Staged if begins && batch.ends_pass() => Step::Whole,
            LoadPath::Staged => {
                if begins {
                    self.begin_staging(load).await?;
                }
                Step::Staged(load)
            }
        })
    }

    async fn is_empty(&self) -> Result<bool> {
        let sql = format!("select not exists (select from {})", self.mart.table);
        let row =
            self.session.client.query_one(&sql, &[]).await.map_err(|error| self.session.explain(error))?;
        Ok(row.get(0))
    }

    async fn begin_staging(&mut self, load: Load) -> Result<()> {
        self.loads.clear(&self.session).await?;
        self.loads.last_key = None;
        let table = self.loads.table(load.id);
        self.session.run(&statements::create_load(&self.mart, self.shape()?, &table)).await?;
        let (load, pipeline) = (id(load.id), literal(&self.loads.pipeline.to_string()));
        let told = format!(
            "insert into vitrina.loads (load, pipeline, position, rows) values ({load}, {pipeline}, '{{}}', 0)"
        );
        self.session.run(&told).await
    }

    /// The only batch of its load: merged from the temporary table it was copied to.
    async fn merge_whole(
        &mut self,
        batch: &Batch,
        commit: &Commit,
        care: Care,
        outcome: &mut Outcome,
    ) -> Tried<u64> {
        if batch.rows.num_rows() == 0 && outcome.rejects.is_empty() {
            self.refuse_empty_source().await?;
            return Ok(0);
        }
        let distinct = self.distinct(batch)?;
        outcome.counts.unchanged += distinct.replaced;
        outcome.rejects.extend(distinct.rejected);
        self.put(&distinct.rows, Way::Upsert, care, outcome).await?;
        self.delete_missing(STAGE, commit, outcome).await
    }

    async fn fill_directly(
        &mut self,
        batch: &Batch,
        commit: &Commit,
        care: Care,
        outcome: &mut Outcome,
    ) -> Tried<u64> {
        match self.put(&batch.rows, Way::Direct, care, outcome).await {
            Err(Trouble::Row(row)) if row.code == duplicates::CODE => {
                Err(Trouble::Batch(self.stage_instead(commit).await?))
            }
            other => other.map(|()| 0),
        }
    }

    /// A key came twice: the load starts anew through staging, where that can be told row by row.
    async fn stage_instead(&self, commit: &Commit) -> Result<Error> {
        self.session.run("rollback; begin isolation level read committed").await?;
        let mut checkpoint = commit.from.without_pass();
        checkpoint.load = Some(Load { id: Uuid::now_v7(), path: LoadPath::Staged });
        self.fence.commit(&self.session, "", commit, &checkpoint, &Outcome::default()).await?;
        let key = self.mart.key.join(", ");
        Ok(Error::retry(
            "sink.duplicate_key",
            format!(
                "the query returns several rows for one key ({key}): the load starts anew through staging"
            ),
        ))
    }

    /// One more batch into staging; the last one merges all of them.
    async fn stage(
        &mut self,
        batch: &Batch,
        commit: &Commit,
        load: Load,
        care: Care,
        outcome: &mut Outcome,
    ) -> Tried<u64> {
        let table = self.loads.table(load.id);
        let distinct = self.distinct(batch)?;
        let goes_on = distinct.first.is_some() && distinct.first == self.loads.last_key;
        outcome.rejects.extend(distinct.rejected);
        let mut rows = distinct.rows;
        let removed = if goes_on { self.replace_last(&table, &mut rows, outcome).await? } else { 0 };
        let before = outcome.rejects.len();
        self.put(&rows, Way::Staged(table.clone()), care, outcome).await?;
        let refused = (outcome.rejects.len() - before) as u64;
        let added = (rows.num_rows() as u64).saturating_sub(refused).cast_signed() - removed.cast_signed();
        self.loads.next_key = distinct.last;
        if batch.ends_pass() {
            let staged = self.recorded(load).await?.saturating_add_signed(added);
            return self.merge_load(&table, staged, commit, care, outcome).await;
        }
        self.loads.told = record(load, batch, added);
        Ok(0)
    }

    /// The first row of this batch has the key of the last one before: the newer one counts, or none.
    async fn replace_last(
        &self,
        table: &str,
        rows: &mut arrow_array::RecordBatch,
        outcome: &mut Outcome,
    ) -> Tried<u64> {
        let shape = self.shape()?;
        let key = crate::arrow_text::texts(rows, &self.mart.key, 0)?;
        let same = self.mart.key.iter().zip(&key).filter_map(|(name, text)| {
            let written = shape.written.iter().find(|written| written.column.name == *name)?;
            Some(format!("{} = {}", crate::sql::identifier(name), written.key_of(text)))
        });
        let same = same.collect::<Vec<_>>().join(" and ");
        let removed = self.count_of(&format!("delete from {table} where {same}")).await?;
        if !self.has_order {
            let message = duplicates::message(2, &self.mart.key);
            outcome.rejects.push(crate::rejects::reject(rows, 0, &self.mart.key, duplicates::CODE, message)?);
            *rows = rows.slice(1, rows.num_rows() - 1);
        }
        Ok(removed)
    }

    async fn recorded(&self, load: Load) -> Result<u64> {
        let sql = format!("select rows from vitrina.loads where load = {} for update", id(load.id));
        let row =
            self.session.client.query_opt(&sql, &[]).await.map_err(|error| self.session.explain(error))?;
        row.map(|row| row.get::<_, i64>(0).unsigned_abs()).ok_or_else(staging_gone)
    }

    async fn merge_load(
        &self,
        table: &str,
        staged: u64,
        commit: &Commit,
        care: Care,
        outcome: &mut Outcome,
    ) -> Tried<u64> {
        self.require_all(table, staged).await?;
        if staged == 0 && outcome.rejects.is_empty() {
            self.refuse_empty_source().await?;
        }
        self.session.run(&format!("analyze {table}; set local work_mem = '64MB'")).await?;
        let removed = self.reject_duplicates(table, care, outcome).await?;
        let before = outcome.rejects.len();
        let merged = match care {
            Care::Batch => self.merge(table, Find::ByJoin, "").await?,
            Care::Rows => self.merge_by_halves(table, outcome).await?,
        };
        let refused = removed + (outcome.rejects.len() - before) as u64;
        outcome.counts.inserted += merged.inserted;
        outcome.counts.updated += merged.updated;
        outcome.counts.unchanged += staged.saturating_sub(merged.inserted + merged.updated + refused);
        let deleted = self.delete_missing(table, commit, outcome).await?;
        self.loads.clear(&self.session).await?;
        Ok(deleted)
    }

    /// What the staging holds must be what was recorded: a merge of less would delete good rows.
    async fn require_all(&self, table: &str, staged: u64) -> Result<()> {
        let found = self.figure(&format!("select count(*) from {table}")).await?;
        if found == staged {
            return Ok(());
        }
        Err(Error::fix(
            "sink.staging_lost",
            format!("the staging of this load holds {found} rows, and {staged} were recorded"),
        )
        .hint("nothing was merged; the next run starts the load anew"))
    }

    /// Finds the rows that the mart refuses by halving the staging by where its rows lie.
    async fn merge_by_halves(&self, table: &str, outcome: &mut Outcome) -> Tried<Merged> {
        let sql = format!(
            "select pg_relation_size({}::regclass) / current_setting('block_size')::bigint",
            literal(table)
        );
        let blocks = self.figure(&sql).await?;
        let budget = self.refused.budget(outcome.reject_limit);
        let mut merged = Merged::default();
        let mut halves = vec![(0, blocks * PLACES_A_BLOCK)];
        while let Some((from, upto)) = halves.pop() {
            let condition = format!(" and s.ctid >= '{}' and s.ctid < '{}'", place(from), place(upto));
            self.session.run("savepoint half").await?;
            match self.merge(table, Find::ByJoin, &condition).await {
                Ok(half) => {
                    self.session.run("release half").await?;
                    merged.inserted += half.inserted;
                    merged.updated += half.updated;
                }
                Err(Trouble::Row(row)) => {
                    self.session.run("rollback to half").await?;
                    let middle = from + (upto - from) / 2;
                    if upto - from > 1 {
                        halves.extend([(middle, upto), (from, middle)]);
                    } else {
                        self.reject_staged(table, &[place(from)], row.code, &row.message, outcome).await?;
                    }
                }
                Err(other) => return Err(other),
            }
            if outcome.rejects.len() > budget {
                break;
            }
        }
        Ok(merged)
    }

    async fn delete_missing(&self, loaded: &str, commit: &Commit, outcome: &mut Outcome) -> Tried<u64> {
        let refused = self.refused.keys(outcome);
        let sql = statements::delete_missing(&self.mart, self.shape()?, loaded, &refused);
        outcome.counts.deleted = self.count_of(&sql).await?;
        let before = self.rows_before(commit, outcome).await?;
        self.hold_delete_limit(commit, outcome.counts.deleted, before.unwrap_or(0))?;
        Ok(outcome.counts.deleted)
    }

    /// A source that returns nothing at all is more likely broken than empty.
    async fn refuse_empty_source(&self) -> Result<()> {
        if self.is_empty().await? {
            return Ok(());
        }
        let message = format!("the query returns no rows at all, and {} is not empty", self.mart.name);
        Err(Error::fix("sink.source_empty", message)
            .hint("nothing was deleted; if the source is meant to be empty, empty the mart yourself"))
    }
}

fn record(load: Load, batch: &Batch, added: i64) -> String {
    let position = literal(&json!(batch.to).to_string());
    format!(
        "update vitrina.loads set position = {position}, rows = rows + {added} where load = {}; ",
        id(load.id)
    )
}

fn id(load: Uuid) -> String {
    literal(&load.to_string())
}

fn place(number: u64) -> String {
    format!("({},{})", number / PLACES_A_BLOCK, number % PLACES_A_BLOCK)
}

/// The next attempt finds it gone, and starts the load anew.
fn staging_gone() -> Error {
    Error::retry("sink.staging_gone", "the staging of this load is gone: it starts anew")
}
