//! A load: its batches gather in an unlogged table beside the mart, and its last one merges them all in
//! one transaction: readers see the mart as it was or as it is. An empty mart is filled directly.
//!
//! What the staging holds is told by a row of `vitrina.loads`, unlogged as well: a server crash takes both,
//! and the load starts anew. A position that outlived its rows would make the merge delete good ones.

use serde_json::json;
use uuid::Uuid;
use vitrina_core::{
    Batch, Checkpoint, Commit, Error, ErrorKind, FirstLoad, Load, LoadPath, Outcome, PipelineId, Position,
    Result, Scope, State,
};

use super::PostgresSink;
use super::put::Way;
use super::shape::Shape;
use super::statements::{self, Find, STAGE};
use super::trouble::{Tried, Trouble};
use crate::connection::Session;
use crate::delivery::{OnBadRow, after_load, delete_limit, enter_load};
use crate::sql::literal;

/// The loads of one pipeline, as this sink knows them.
pub(super) struct Loads {
    pipeline: PipelineId,
    /// What is to be told of the staging in the message that commits the batch.
    pub(super) told: String,
    /// The load whose staging has rows: before the first of them nobody knows its columns, and there is none.
    staged: Option<Uuid>,
}

impl Loads {
    pub(super) fn new(pipeline: PipelineId) -> Self {
        Self { pipeline, told: String::new(), staged: None }
    }

    pub(super) fn has_staging(&self, load: Load) -> bool {
        self.staged == Some(load.id)
    }

    pub(super) fn committed(&mut self, batch: &Batch, checkpoint: &Checkpoint) {
        let staged = checkpoint.load.filter(|load| load.path == LoadPath::Staged);
        if let Some(load) = staged.filter(|_| batch.rows.num_rows() > 0) {
            self.staged = Some(load.id);
        }
    }

    pub(super) fn table(&self, load: Uuid) -> String {
        format!("vitrina.{}{}", self.prefix(), &load.simple().to_string()[24..])
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
        session
            .run(&format!("delete from vitrina.loads where pipeline = {pipeline} and load <> pipeline"))
            .await
    }

    /// Whether a crash of the server has emptied an unlogged mart since this was asked first: the answer is a row of a
    /// table that is unlogged as well, under the pipeline's own id. Where nobody has asked before, it may have.
    pub(super) async fn crashed(&self, session: &Session) -> Result<bool> {
        let pipeline = literal(&self.pipeline.to_string());
        let sql = format!(
            "insert into vitrina.loads (load, pipeline, position, rows) values ({pipeline}, {pipeline}, '{{}}', 0) on conflict do nothing"
        );
        let added = session.client.execute(&sql, &[]).await.map_err(|error| session.explain(error))?;
        Ok(added > 0)
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
        on_bad_row: OnBadRow,
        outcome: &mut Outcome,
    ) -> Tried<Checkpoint> {
        let step = self.step(batch, commit).await?;
        let load = match step {
            Step::Whole => Load::begin(LoadPath::Staged),
            Step::Direct(load) | Step::Staged(load) => load,
        };
        enter_load(load, batch, outcome);
        match step {
            Step::Whole => self.merge_whole(batch, commit, on_bad_row, outcome).await?,
            Step::Direct(_) => self.fill_directly(batch, commit, on_bad_row, outcome).await?,
            Step::Staged(load) => self.stage(batch, commit, load, on_bad_row, outcome).await?,
        }
        Ok(after_load(load, batch, commit, self.row_change(outcome))?)
    }

    async fn step(&mut self, batch: &Batch, commit: &Commit) -> Result<Step> {
        let begins = matches!(batch.scope, Scope::Load { begins: true });
        let known = commit.from.load;
        if !begins && known.is_none() {
            // What came before is in no staging.
            return Err(staging_lost("this load was begun without staging"));
        }
        let path = match known {
            // Begun before the mart was shared.
            Some(load) if load.path == LoadPath::Direct && !self.mart.own.is_whole() => {
                return Err(staging_lost("this load was begun without staging, and the mart is shared"));
            }
            Some(load) => load.path,
            // Others may write to a shared mart while it is filled.
            None if commit.first_load == FirstLoad::Direct
                && self.mart.own.is_whole()
                && self.is_empty().await? =>
            {
                LoadPath::Direct
            }
            None => LoadPath::Staged,
        };
        let load = known.unwrap_or_else(|| Load::begin(path));
        Ok(match path {
            LoadPath::Direct => Step::Direct(load),
            LoadPath::Staged if begins && batch.ends_pass() => Step::Whole,
            LoadPath::Staged => {
                if begins {
                    self.begin_staging(load).await?;
                }
                if batch.rows.num_rows() > 0 && !self.loads.has_staging(load) {
                    self.require_staging(load).await?;
                }
                Step::Staged(load)
            }
        })
    }

    async fn is_empty(&self) -> Result<bool> {
        if self.mart.is_to_come {
            return Ok(true);
        }
        let own = self.mart.own.condition("t");
        let sql = format!("select not exists (select from {} t where {own})", self.mart.table);
        let row =
            self.session.client.query_one(&sql, &[]).await.map_err(|error| self.session.explain(error))?;
        Ok(row.get(0))
    }

    async fn begin_staging(&mut self, load: Load) -> Result<()> {
        self.loads.clear(&self.session).await?;
        let (load, pipeline) = (id(load.id), literal(&self.loads.pipeline.to_string()));
        let told = format!(
            "insert into vitrina.loads (load, pipeline, position, rows) values ({load}, {pipeline}, '{{}}', 0)"
        );
        self.session.run(&told).await
    }

    /// Made for the first rows, with their columns.
    async fn require_staging(&mut self, load: Load) -> Result<()> {
        let table = self.loads.table(load.id);
        if self.exists(&table).await? {
            return Ok(());
        }
        let create =
            |with_checks| Ok(statements::create_load(&self.mart, self.shape()?, &table, with_checks));
        self.session.run("savepoint staging").await?;
        if self.session.run(&create(true)?).await.is_err() {
            // A check over the whole row cannot be copied: the merge will hold it.
            self.session.run(&format!("rollback to staging; {}", create(false)?)).await?;
        }
        Ok(())
    }

    async fn exists(&self, table: &str) -> Result<bool> {
        Ok(self.figure(&format!("select count(to_regclass({}))", literal(table))).await? > 0)
    }

    /// The only batch of its load: merged from the temporary table it was copied to.
    async fn merge_whole(
        &mut self,
        batch: &Batch,
        commit: &Commit,
        on_bad_row: OnBadRow,
        outcome: &mut Outcome,
    ) -> Tried<()> {
        let staged = self.put_distinct(batch, &Way::Stage, on_bad_row, outcome).await?;
        self.merge_load(STAGE, staged, commit, on_bad_row, outcome).await
    }

    async fn fill_directly(
        &mut self,
        batch: &Batch,
        commit: &Commit,
        on_bad_row: OnBadRow,
        outcome: &mut Outcome,
    ) -> Tried<()> {
        match self.put(&batch.rows, &Way::Mart, on_bad_row, outcome).await {
            Err(Trouble::Row(row)) if on_bad_row == OnBadRow::Reject && row.is_repeated => {
                Err(Trouble::Batch(self.stage_instead(commit).await?))
            }
            other => other,
        }
    }

    /// A key came twice: the load starts anew through staging, where that can be told row by row.
    async fn stage_instead(&self, commit: &Commit) -> Result<Error> {
        self.session.run("rollback; begin isolation level read committed").await?;
        let mut checkpoint = commit.from.without_pass();
        checkpoint.load = Some(Load::begin(LoadPath::Staged));
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
        on_bad_row: OnBadRow,
        outcome: &mut Outcome,
    ) -> Tried<()> {
        let table = self.loads.table(load.id);
        let added = self.put_distinct(batch, &Way::Load(table.clone()), on_bad_row, outcome).await?;
        if batch.ends_pass() {
            let staged = self.recorded(load).await? + added;
            self.require_all(&table, staged).await?;
            self.require_shape(&table).await?;
            self.merge_load(&table, staged, commit, on_bad_row, outcome).await?;
            return Ok(self.loads.clear(&self.session).await?);
        }
        self.loads.told = record(load, batch, added);
        Ok(())
    }

    async fn recorded(&self, load: Load) -> Result<u64> {
        let sql = format!("select rows from vitrina.loads where load = {} for update", id(load.id));
        let row =
            self.session.client.query_opt(&sql, &[]).await.map_err(|error| self.session.explain(error))?;
        row.map(|row| row.get::<_, i64>(0).unsigned_abs()).ok_or_else(staging_gone)
    }

    async fn merge_load(
        &mut self,
        table: &str,
        staged: u64,
        commit: &Commit,
        on_bad_row: OnBadRow,
        outcome: &mut Outcome,
    ) -> Tried<()> {
        if staged == 0 {
            return Ok(self.refuse_empty_source().await?);
        }
        self.require_columns(table).await?;
        self.take_turns().await?;
        self.session.run(&format!("analyze {table}; set local work_mem = '64MB'")).await?;
        let removed = self.reject_duplicates(table, on_bad_row, outcome).await?;
        let shape = self.shape()?;
        let delete =
            [false, true].map(|sparing| statements::delete_missing(&self.mart, shape, table, sparing));
        self.delete(delete, commit, outcome).await?;
        self.merge(table, Find::ByJoin, staged - removed.min(staged), on_bad_row, outcome).await
    }

    /// What was gathered in a column that the last rows do not have would be left out for all rows.
    async fn require_columns(&self, table: &str) -> Result<()> {
        let names: Vec<&str> = self.shape()?.fields.iter().map(|field| field.name().as_str()).collect();
        let sql = format!(
            "select string_agg(attname, ', ' order by attnum) from pg_attribute
              where attrelid = {}::regclass and attnum > 0 and not attisdropped and attname <> all ($1)",
            literal(table)
        );
        let row = self.session.client.query_one(&sql, &[&names]).await;
        let left_out: Option<String> = row.map_err(|error| self.session.explain(error))?.get(0);
        let Some(left_out) = left_out else { return Ok(()) };
        let message = format!("this load has gathered {left_out}, which its last rows do not have");
        Err(Error::fix("sink.load_columns", message)
            .hint("have all batches return the same columns, and run with checkpoint `reset`"))
    }

    /// A load that was gone on with and has brought nothing more is merged with the columns that it has gathered.
    async fn require_shape(&mut self, table: &str) -> Result<()> {
        if self.shape.is_some() || !self.exists(table).await? {
            return Ok(());
        }
        let sql = format!(
            "select attname::text from pg_attribute where attrelid = {}::regclass and attnum > 0 and not attisdropped",
            literal(table)
        );
        let rows = self.session.client.query(&sql, &[]).await.map_err(|error| self.session.explain(error))?;
        let names: Vec<String> = rows.iter().map(|row| row.get(0)).collect();
        self.shape = Some(Shape::gathered(&self.mart, &names)?);
        Ok(())
    }

    /// What the staging holds must be what was recorded: a merge of less would delete good rows.
    async fn require_all(&self, table: &str, staged: u64) -> Result<()> {
        let found = match self.exists(table).await? {
            true => self.figure(&format!("select count(*) from {table}")).await?,
            false => 0,
        };
        if found == staged {
            return Ok(());
        }
        Err(staging_lost(&format!("the staging of this load holds {found} rows, and {staged} were recorded")))
    }

    /// A source that returns nothing at all is more likely broken than empty.
    async fn refuse_empty_source(&self) -> Result<()> {
        if self.is_empty().await? {
            return Ok(());
        }
        Err(delete_limit::source_is_empty(&self.mart.name))
    }
}

pub(super) fn record(load: Load, batch: &Batch, added: u64) -> String {
    let position = literal(&json!(batch.to).to_string());
    format!(
        "update vitrina.loads set position = {position}, rows = rows + {added} where load = {}; ",
        id(load.id)
    )
}

fn id(load: Uuid) -> String {
    literal(&load.to_string())
}

/// The pass is dropped with this error.
fn staging_lost(message: &str) -> Error {
    Error::fix("sink.staging_lost", message)
        .of_kind(ErrorKind::PassInvalid)
        .hint("nothing was merged; the next run starts the load anew")
}

/// The next attempt finds it gone, and starts the load anew.
fn staging_gone() -> Error {
    Error::retry("sink.staging_gone", "the staging of this load is gone: it starts anew")
}
