//! The search sink: Elasticsearch and OpenSearch. Whole documents by versioned bulks through an alias that only the newest
//! owner has; a load fills an index of its own, which readers get in one step.
//!
//! The server has no transactions: a batch is written first and entered in the meta-store then. A batch that was written
//! and not entered is read and written again, as newer versions of the same documents.

mod address;
mod announce;
mod bulk;
mod checksum;
mod client;
mod compare;
mod control;
mod document;
mod fault;
mod fence;
mod forget;
mod indexes;
mod inspect;
mod kept;
mod load;
mod load_settings;
mod lost;
mod made;
mod mapping;
mod mark;
mod names;
mod numbers;
mod operations;
mod owner;
mod reader_aliases;
mod rollback;
mod seal;
mod standing;
pub(crate) mod tested;
mod unknown;
mod upsert;
mod values;
mod vanish;
mod versions;
mod write_alias;

use std::sync::Arc;
use std::time::Duration;

use arrow_schema::Schema;
use async_trait::async_trait;
use serde_json::Value;
use uuid::Uuid;
use vitrina_core::{
    Batch, Checkpoint, Commit, Committed, Destination, Entry, Error, ErrorKind, Issued, Lease, Ledger, Load,
    LoadPath, Outcome, Result, RunId, Scope, Sink, State, Target, TargetName, Written,
};

use super::{Definition, Kind, Left, Opened, Order, require_types};
use crate::delivery::{self, Failure, OnBadRow, OpenRejects, check_reject_limit};
use crate::reconcile::{self, Pair};
use announce::Announced;
pub(crate) use client::Client;
use control::Control;
use fence::Fence;
use indexes::Standing;
use names::Names;

#[derive(Debug)]
pub(super) struct Search;

#[async_trait]
impl Kind for Search {
    fn serves(&self, target: &TargetName) -> bool {
        matches!(target, TargetName::Named { kind, .. } if kind == "es")
    }

    async fn open(&self, target: &TargetName, order: &Order<'_>) -> Result<Opened> {
        let client = Client::of(order.connections.get(&order.target.connection)?)?;
        let key = key(order.target)?;
        let mut sink = SearchSink {
            names: Names::new(index(target), order.lease.pipeline),
            target: order.target.clone(),
            installation: order.installation,
            issued: order.issued.clone(),
            exact: [key.clone(), order.pipeline.change_key.clone()].concat(),
            key,
            takeover: order.takeover,
            ledger: Arc::clone(&order.ledger),
            newest_last: order.newest_last(),
            repeats_keys: order.schema.is_none(),
            buffered: load::Buffered::default(),
            rejects: OpenRejects::default(),
            short_keys: Vec::new(),
            rows_before: None,
            announced: None,
            mapping: None,
            made: None,
            live: None,
            moved: false,
            fence: None,
            client,
        };
        if let Some(schema) = order.schema {
            sink.take_shape(schema)?;
        }
        let destination = Destination { key: sink.key.clone(), server: None, takes_ids: true };
        Ok(Opened { sink: Box::new(sink), destination })
    }

    async fn lacks(&self, definition: &Definition<'_>) -> Result<Vec<String>> {
        inspect::inspect(definition).await.map(|()| Vec::new())
    }

    async fn standing(&self, definition: &Definition<'_>) -> Result<super::Standing> {
        standing::standing(definition).await
    }

    async fn forget(&self, left: &Left<'_>) -> Result<()> {
        forget::forget(left).await
    }

    async fn pair<'a>(
        &self,
        target: &TargetName,
        order: &'a reconcile::Order<'a>,
    ) -> Result<Box<dyn Pair + 'a>> {
        compare::open(target, order).await
    }
}

/// What readers search by.
fn index(target: &TargetName) -> &str {
    match target {
        TargetName::Named { name, .. } => name,
        TargetName::Postgres { table, .. } => table,
    }
}

fn key(target: &Target) -> Result<Vec<String>> {
    if !target.key.is_empty() {
        return Ok(target.key.clone());
    }
    Err(Error::fix("sink.no_key", format!("{} has no key: nothing tells which document a row becomes, and the source proves none of its rows", target.name))
        .of_kind(ErrorKind::KeyMissing)
        .hint("describe the target with the columns of its key: `targets: [{name: es:…, key: [id]}]` in a file for `vitrina apply`, or PUT /targets/es:…; \
               a query of one table that returns its primary key, or that groups by columns which it returns, needs none"))
}

/// Rows without a column of the key would be nobody's documents.
fn require_key(target: &Target, key: &[String], schema: &Schema) -> Result<()> {
    let Some(missing) = key.iter().find(|column| schema.field_with_name(column).is_err()) else {
        return Ok(());
    };
    let message = format!("the rows have no column {missing}, which is in the key of {}", target.name);
    Err(Error::fix("sink.key_missing", message).hint("return it in the query, or change the target's key"))
}

struct SearchSink {
    client: Arc<Client>,
    names: Names,
    target: Target,
    installation: Uuid,
    /// The leases that may be met at the index.
    issued: Issued,
    key: Vec<String>,
    /// Columns that documents are found by.
    exact: Vec<String>,
    takeover: bool,
    ledger: Arc<dyn Ledger>,
    /// Of several rows of one key the last one counts.
    newest_last: Option<Vec<String>>,
    /// A transform may bring a key in several batches of a load.
    repeats_keys: bool,
    buffered: load::Buffered,
    rejects: OpenRejects,
    /// Which parts of a key are numbers that the index holds in their shortest form.
    short_keys: Vec<bool>,
    /// Documents that the index had before the deletes that count, once they are known.
    rows_before: Option<u64>,
    /// Deletes of the batch that is being written.
    announced: Option<Announced>,
    /// Made for the columns of the rows.
    mapping: Option<(Schema, Value)>,
    /// The load whose index is there: it is made when the columns of its rows are known.
    made: Option<Uuid>,
    /// The index that readers see.
    live: Option<String>,
    /// It is not the one that this pipeline has written.
    moved: bool,
    /// From the first `seal` on.
    fence: Option<Fence>,
}

/// A commit does not wait longer for a search server that it does not need.
const HEARS: Duration = Duration::from_secs(1);

#[async_trait]
impl Sink for SearchSink {
    async fn seal(&mut self, lease: &Lease, state: State) -> Result<State> {
        let (fence, standing) = tokio::join!(self.hold(lease), Standing::look(&self.client, &self.names));
        let ((mut fence, adopted), mut standing) = (fence?, standing?);
        let is_adopted = adopted.is_some();
        let state = match adopted {
            Some(holder) => self.read_again(lease, holder, state).await?,
            None => state,
        };
        let control = &fence.held.control;
        let unfinished = control.writer.is_some_and(|writer| writer != lease.token)
            || control.next.is_some()
            || !control.replaces.is_empty();
        // Of an earlier attempt of this lease, too, requests may have been left behind.
        let unended = control.writer.is_some();
        let takeover = std::mem::take(&mut self.takeover) || unfinished || is_adopted;
        if takeover {
            fence.shut_out().await?;
        }
        // Whoever is shut out may have changed it until then, as may one that has noted its end between the two looks.
        if takeover || fence.held.control.live.as_ref() != standing.live(&self.names) {
            standing = Standing::look(&self.client, &self.names).await?;
        }
        self.finish_swap(&mut fence, &standing).await?;
        self.live = self.seen_by_readers(&fence, &standing);
        self.heed_control(&fence, &standing);
        self.refuse_foreign_share(&standing)?;
        if self.moved && state.checkpoint.edited && !self.target.document.partial {
            // A person vouches for it, from now on.
            let control = Control { live: self.live.clone(), ..fence.held.control.clone() };
            fence.replace(control).await?;
        }
        if self.target.document.partial {
            self.client.known.forget(&self.names.index);
        }
        self.made = self.made_for(&state).await?;
        let state = self.vouched(lease, state).await?;
        fence.note_aliases(&standing);
        if takeover || unended {
            fence.sweep().await?;
            fence.close_left().await?;
        }
        self.fence = Some(fence);
        self.rejects = OpenRejects::of(self.ledger.open_rejects(lease).await?);
        Ok(state)
    }

    async fn write(&mut self, batch: &Batch, commit: &Commit) -> Result<Written> {
        delivery::deliver(self, batch, commit).await
    }

    async fn roll_back(&mut self, run: RunId, state: &State) -> Result<()> {
        let fence = self.fence_mut()?;
        fence.begin_writing(fence.held.control.back.clone()).await?;
        self.go_back(run, state).await
    }

    async fn close(&mut self) -> Result<()> {
        self.fence_mut()?.end_writing().await
    }

    async fn clear(&mut self) -> Result<()> {
        self.clear_loads().await
    }
}

#[async_trait]
impl delivery::Target for SearchSink {
    fn rejects(&mut self) -> &mut OpenRejects {
        &mut self.rejects
    }

    fn ledger(&self) -> &dyn Ledger {
        self.ledger.as_ref()
    }

    /// Unlike in a table, other rows of a batch may be there by then; a load is seen by nobody.
    fn reject_limit_hint(&self) -> &'static str {
        "of an increment other rows may be in the index by now, of a load none is; look at the rejects, then mend the rows at the source, acknowledge the rejects or raise reject_limit, and run again"
    }

    async fn prepare(&mut self, batch: &Batch) -> Result<Option<Batch>> {
        if !batch.columns_unknown {
            self.take_shape(&batch.rows.schema())?;
        }
        self.fence_mut()?.begin_writing(None).await?;
        self.note_fields().await?;
        self.announced = None;
        Ok(None)
    }

    async fn write(
        &mut self,
        batch: &Batch,
        commit: &Commit,
        _: OnBadRow,
        outcome: &mut Outcome,
    ) -> Result<Checkpoint, Failure> {
        Ok(match &batch.scope {
            Scope::Load { begins } => self.write_load(batch, *begins, commit, outcome).await?,
            Scope::Keys(_) | Scope::Nothing if self.is_first_pass(batch, commit) => {
                self.write_load(batch, commit.from.load.is_none(), commit, outcome).await?
            }
            Scope::Keys(_) | Scope::Nothing => self.upsert(batch, commit, outcome).await?,
        })
    }

    async fn commit(
        &mut self,
        batch: &Batch,
        commit: &Commit,
        checkpoint: &Checkpoint,
        outcome: &Outcome,
    ) -> Result<Committed> {
        let from_version = self.announced.map_or(commit.from_version, |announced| announced.version);
        let entry = Entry { lease: &commit.lease, from_version, checkpoint, outcome };
        match batch.ends_pass() {
            true => self.commit_last(&entry).await,
            false => self.ledger.commit(&entry).await,
        }
    }
}

impl SearchSink {
    fn fence(&self) -> Result<&Fence> {
        self.fence.as_ref().ok_or_else(unsealed)
    }

    fn fence_mut(&mut self) -> Result<&mut Fence> {
        self.fence.as_mut().ok_or_else(unsealed)
    }

    /// Checks the columns of the rows against the mapping.
    fn take_shape(&mut self, schema: &Schema) -> Result<()> {
        if self.mapping.as_ref().is_some_and(|(known, _)| known.fields() == schema.fields()) {
            return Ok(());
        }
        require_key(&self.target, &self.key, schema)?;
        let mapping = mapping::mapping(&self.target, schema, &self.exact);
        mapping::check_columns(&self.target, &mapping, schema)?;
        self.mapping = Some((schema.clone(), mapping));
        Ok(())
    }

    /// Whoever writes to this index next, knowing no columns yet, has to know which fields of a document are its own.
    async fn note_fields(&mut self) -> Result<()> {
        let Some((schema, _)) = self.mapping.as_ref().filter(|_| self.target.document.partial) else {
            return Ok(());
        };
        let rules = &self.target.document;
        let fields = schema.fields().iter().filter_map(|column| rules.field(column.name()));
        let fields: Vec<String> = fields.map(str::to_owned).collect();
        let fence = self.fence_mut()?;
        if fence.held.control.fields == fields {
            return Ok(());
        }
        let control = Control { fields, ..fence.held.control.clone() };
        fence.replace(control).await
    }

    /// An index that an older release has made has no place for it.
    async fn carries_checksum(&self, index: &str) -> Result<bool> {
        match checksum::is_wanted(&self.target) {
            true => Ok(self.made_behind(index).await?.checksum),
            false => Ok(false),
        }
    }

    /// The mapping that an index is created with.
    fn whole_mapping(&self) -> Result<Value> {
        let mapping = self.mapping()?.clone();
        if let Some((schema, _)) = self.mapping.as_ref().filter(|_| self.target.mapping.is_none()) {
            let made =
                schema.fields().iter().filter(|column| self.target.document.field(column.name()).is_some());
            require_types(&self.target.name, made, "give the target a mapping")?;
        }
        let mut mapping = numbers::noted(mapping);
        mapping["_meta"]["vitrina"]["key"] = serde_json::json!(self.key);
        Ok(if checksum::is_wanted(&self.target) { checksum::mapped(mapping) } else { mapping })
    }

    fn mapping(&self) -> Result<&Value> {
        let shape = self.mapping.as_ref().map(|(_, mapping)| mapping);
        shape.ok_or_else(|| Error::bug("sink.shape", "rows are written before their columns are known"))
    }

    /// Nothing is on its way any more, which the index is told meanwhile. A server that does not hear is told by `close`.
    async fn commit_last(&mut self, entry: &Entry<'_>) -> Result<Committed> {
        let ended = tokio::time::timeout(HEARS, self.fence()?.ended());
        let (committed, ended) = tokio::join!(self.ledger.commit(entry), ended);
        if let Ok(ended) = ended {
            self.fence_mut()?.note_end(ended).ok();
        }
        committed
    }

    /// Errs before anything becomes true that too many rejects forbid.
    async fn check_rejects(&mut self, commit: &Commit, outcome: &mut Outcome) -> Result<()> {
        self.rejects.close(outcome);
        check_reject_limit(self.ledger.as_ref(), &commit.lease, outcome).await
    }
}

/// The open load that has an index of its own.
fn staged(checkpoint: &Checkpoint) -> Option<Load> {
    let open = checkpoint.load.filter(|load| load.path == LoadPath::Staged);
    open.filter(|_| checkpoint.position.pass.is_some())
}

fn unsealed() -> Error {
    Error::bug("sink.unsealed", "a batch is written before the sink was sealed")
}
