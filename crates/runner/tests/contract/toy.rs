//! A sink of one file: tables in memory, without transactions. With one line in the runner's list of sinks it can be
//! written to. Rows go first, then the batch is entered: one whose entry was lost is written again.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard};

use arrow_array::{Array, ArrayRef, Int32Array, RecordBatch, StringArray};
use async_trait::async_trait;
use serde_json::json;
use uuid::Uuid;
use vitrina_connectors::sinks::{Kind, Opened, Order};
use vitrina_core::{
    Batch, Checkpoint, Commit, Counts, Destination, Entry, Error, ErrorKind, Lease, LeaseToken, Ledger, Load,
    LoadPath, OpenReject, Outcome, PipelineId, Reject, Result, RowChange, Scope, Sink, State, TargetName,
    Written,
};
use vitrina_testbed::Fault;

type Key = Vec<String>;
/// Cells as text, by key.
type Rows = BTreeMap<Key, Vec<String>>;

#[derive(Debug, Default)]
pub(crate) struct Table {
    pub(crate) rows: Rows,
    /// The newest owner of every pipeline.
    tokens: BTreeMap<PipelineId, LeaseToken>,
    /// The open load, out of sight.
    load: Option<(Uuid, Rows)>,
}

/// What a test has the tables of its installation do.
#[derive(Debug, Default)]
pub(crate) struct Server {
    pub(crate) tables: BTreeMap<String, Table>,
    pub(crate) requests: usize,
    pub(crate) fault: Option<(usize, Fault)>,
}

/// By installation.
static SERVERS: Mutex<BTreeMap<Uuid, Server>> = Mutex::new(BTreeMap::new());

pub(crate) fn with_server<T>(installation: Uuid, act: impl FnOnce(&mut Server) -> T) -> T {
    act(servers().entry(installation).or_default())
}

fn servers() -> MutexGuard<'static, BTreeMap<Uuid, Server>> {
    SERVERS.lock().unwrap()
}

#[derive(Debug)]
pub(crate) struct Toy;

#[async_trait]
impl Kind for Toy {
    fn serves(&self, target: &TargetName) -> bool {
        matches!(target, TargetName::Named { kind, .. } if kind == "toy")
    }

    async fn open(&self, target: &TargetName, order: &Order<'_>) -> Result<Opened> {
        let key = order.target.key.clone();
        let sink = ToySink {
            installation: order.installation,
            table: target.to_string(),
            key: key.clone(),
            newest_last: order.pipeline.incremental_key.iter().cloned().collect(),
            open: Vec::new(),
            ledger: Arc::clone(&order.ledger),
        };
        Ok(Opened { sink: Box::new(sink), destination: Destination { key, server: None, takes_ids: false } })
    }
}

struct ToySink {
    installation: Uuid,
    table: String,
    key: Vec<String>,
    /// Of several rows of one key the last one counts.
    newest_last: Vec<String>,
    open: Vec<OpenReject>,
    ledger: Arc<dyn Ledger>,
}

#[async_trait]
impl Sink for ToySink {
    async fn seal(&mut self, lease: &Lease, state: State) -> Result<State> {
        self.open = self.ledger.open_rejects(lease).await?;
        let (pipeline, token) = (lease.pipeline, lease.token);
        self.request(|table| {
            let newest = table.tokens.entry(pipeline).or_insert(token);
            *newest = token.max(*newest);
            if *newest == token { Ok(()) } else { Err(Error::lease_lost()) }
        })
        .await?;
        Ok(state)
    }

    async fn write(&mut self, batch: &Batch, commit: &Commit) -> Result<Written> {
        let (rows, mut outcome) = self.sort_out(batch, commit);
        if !outcome.rejects.is_empty() {
            let rejects = self.ledger.keep_rejects(&commit.lease, &outcome).await?;
            // A backfill reads rows that were refused before: as many may be refused again.
            let open = if batch.to.is_none() { self.open.len() } else { 0 };
            if rejects > u64::try_from(commit.reject_limit).unwrap_or(0).max(open as u64) {
                return Err(Error::reject_limit("too many rows were refused"));
            }
        }
        let mut checkpoint = self.put(batch, commit, rows, &mut outcome).await?;
        if batch.to.is_none() && commit.from.load.is_some() {
            checkpoint = commit.from.without_pass();
        }
        let entry = Entry {
            lease: &commit.lease,
            from_version: commit.from_version,
            checkpoint: &checkpoint,
            outcome: &outcome,
        };
        let committed = self.ledger.commit(&entry).await?;
        self.open = self.ledger.open_rejects(&commit.lease).await?;
        let counts = outcome.counts;
        Ok(Written { counts, checkpoint, version: committed.version, interrupted: committed.interrupted })
    }

    async fn clear(&mut self) -> Result<()> {
        with_server(self.installation, |server| {
            server.tables.entry(self.table.clone()).or_default().load = None;
        });
        Ok(())
    }
}

impl ToySink {
    /// A request to the server of these tables, which may meet a fault.
    async fn request<T>(&self, act: impl FnOnce(&mut Table) -> Result<T>) -> Result<T> {
        let fault = with_server(self.installation, |server| {
            server.requests += 1;
            let nth = server.requests;
            server.fault.take_if(|(at, _)| *at == nth).map_or(Fault::Pass, |(_, fault)| fault)
        });
        if let Fault::Hold(gate) = &fault {
            gate.enter().await;
        }
        let done = with_server(self.installation, |server| {
            act(server.tables.entry(self.table.clone()).or_default())
        });
        match fault {
            Fault::Hold(gate) => gate.leave(),
            Fault::DropReply => {
                return Err(Error::release("sink.connection_lost", "the answer of the toy is lost"));
            }
            Fault::HoldReply(gate) => {
                gate.enter().await;
                gate.leave();
            }
            _ => {}
        }
        done
    }

    /// The rows that can be written, and what became of the others.
    fn sort_out(&self, batch: &Batch, commit: &Commit) -> (Rows, Outcome) {
        let keys = cells(&batch.rows, &self.key);
        let mut copies = BTreeMap::<&Key, usize>::new();
        keys.iter().for_each(|key| *copies.entry(key).or_default() += 1);
        let mut rows = Rows::new();
        let mut outcome = Outcome {
            counts: Counts { read: batch.rows_read, ..Counts::default() },
            reject_limit: i64::MAX,
            rejects: batch.rejected.clone(),
            backfilled_to: batch.backfilled_to.clone(),
            load: commit.from.load.map(|load| load.id),
            close_others: batch.ends_pass() && matches!(batch.scope, Scope::Load { .. }),
            ..Outcome::default()
        };
        for (key, row) in keys.iter().zip(cells(&batch.rows, &[])) {
            if row.contains(&"x".to_owned()) {
                outcome.rejects.push(reject(key, "row.refused"));
            } else if copies[key] > 1 && !self.tells_newest(batch, key) {
                outcome.rejects.push(reject(key, "row.duplicate_key"));
            } else if rows.insert(key.clone(), row).is_some() {
                outcome.counts.unchanged += 1;
            }
        }
        let mut seen = BTreeSet::new();
        outcome.rejects.retain(|reject| seen.insert(reject.key.to_string()));
        outcome.counts.rejected = outcome.rejects.len() as u64;
        let is_over = |open: &&OpenReject| {
            let comes = rows.keys().any(|key| json!(key) == open.key);
            let in_scope = match &batch.scope {
                Scope::Keys(scope) => cells(scope, &self.key).iter().any(|key| json!(key) == open.key),
                Scope::Load { .. } | Scope::Nothing => false,
            };
            (comes || in_scope) && !seen.contains(&open.key.to_string())
        };
        outcome.closed = self.open.iter().filter(is_over).map(|open| open.key.clone()).collect();
        (rows, outcome)
    }

    /// The last row of a key is newer than the others, or the same.
    fn tells_newest(&self, batch: &Batch, key: &Key) -> bool {
        let ages = cells(&batch.rows, &self.newest_last);
        let rows = cells(&batch.rows, &[]);
        let own = cells(&batch.rows, &self.key).into_iter().zip(ages.iter().zip(&rows));
        let own: Vec<_> = own.filter(|(own, _)| own == key).map(|(_, row)| row).collect();
        let (newest, row) = own[own.len() - 1];
        !self.newest_last.is_empty() && own.iter().all(|(age, other)| *age != newest || *other == row)
    }

    async fn put(
        &self,
        batch: &Batch,
        commit: &Commit,
        rows: Rows,
        outcome: &mut Outcome,
    ) -> Result<Checkpoint> {
        let refused = self.refused(outcome);
        self.request(|table| {
            if table.tokens.get(&commit.lease.pipeline) != Some(&commit.lease.token) {
                return Err(Error::lease_lost());
            }
            match &batch.scope {
                Scope::Load { .. } => put_load(table, batch, commit, rows, &refused, outcome),
                Scope::Keys(scope) => {
                    let scope: BTreeSet<Key> = cells(scope, &self.key).into_iter().collect();
                    let goes =
                        |key: &Key| scope.contains(key) && !rows.contains_key(key) && !refused.contains(key);
                    let gone: Vec<Key> = table.rows.keys().filter(|key| goes(key)).cloned().collect();
                    merge(table, batch, commit, rows, &gone, outcome)
                }
                Scope::Nothing => merge(table, batch, commit, rows, &[], outcome),
            }
        })
        .await
    }

    /// Keys that keep the row they have.
    fn refused(&self, outcome: &Outcome) -> BTreeSet<Key> {
        let of_load = |open: &&OpenReject| !outcome.close_others || open.load == outcome.load;
        let open = self.open.iter().filter(of_load).map(|open| &open.key);
        let open = open.filter(|key| !outcome.closed.contains(*key));
        let keys = open.chain(outcome.rejects.iter().map(|reject| &reject.key));
        keys.map(|key| serde_json::from_value(key.clone()).unwrap()).collect()
    }
}

/// Rows gather out of sight, and are shown at the end of the load.
fn put_load(
    table: &mut Table,
    batch: &Batch,
    commit: &Commit,
    rows: Rows,
    refused: &BTreeSet<Key>,
    outcome: &mut Outcome,
) -> Result<Checkpoint> {
    let load = commit.from.load.unwrap_or_else(|| Load::begin(LoadPath::Staged));
    if commit.from.load.is_none() {
        table.load = Some((load.id, Rows::new()));
    }
    let Some((_, staged)) = table.load.as_mut().filter(|(id, _)| *id == load.id) else {
        return Err(invalid("sink.staging_lost", "the rows of the load are gone"));
    };
    staged.extend(rows);
    outcome.load = Some(load.id);
    if !batch.ends_pass() {
        for reject in &outcome.rejects {
            staged.remove(&serde_json::from_value::<Key>(reject.key.clone()).unwrap());
        }
        let to = batch.to.clone().unwrap_or_default();
        return Ok(Checkpoint { load: Some(load), ..commit.advance(to, RowChange::default()) });
    }
    let staged = staged.clone();
    if staged.is_empty() && !table.rows.is_empty() {
        return Err(invalid("sink.source_empty", "the source brings no rows, and the table has some"));
    }
    let goes = |key: &Key| !staged.contains_key(key) && !refused.contains(key);
    let gone: Vec<Key> = table.rows.keys().filter(|key| goes(key)).cloned().collect();
    // Kept until another load begins: where the entry of this batch is lost, it comes again.
    merge(table, batch, commit, staged, &gone, outcome)
}

fn merge(
    table: &mut Table,
    batch: &Batch,
    commit: &Commit,
    rows: Rows,
    gone: &[Key],
    outcome: &mut Outcome,
) -> Result<Checkpoint> {
    let before = commit.from.deletes.rows_before.unwrap_or(table.rows.len() as u64 + commit.backfill_deleted);
    let deleted = gone.len() as u64;
    if !commit.share(deleted, before).is_within(commit.delete_limit) {
        return Err(invalid("sink.delete_limit", "too many rows would be deleted"));
    }
    gone.iter().for_each(|key| drop(table.rows.remove(key)));
    let counts = &mut outcome.counts;
    counts.deleted = deleted;
    for (key, row) in rows {
        match table.rows.insert(key, row.clone()) {
            None => counts.inserted += 1,
            Some(old) if old == row => counts.unchanged += 1,
            Some(_) => counts.updated += 1,
        }
    }
    let change = RowChange { deleted, inserted: counts.inserted, rows_before: Some(before) };
    Ok(batch.to.clone().map_or_else(|| commit.from.clone(), |to| commit.advance(to, change)))
}

/// The pass is dropped with it.
fn invalid(code: &'static str, message: &str) -> Error {
    Error::fix(code, message).of_kind(ErrorKind::PassInvalid)
}

fn reject(key: &Key, code: &str) -> Reject {
    let (code, message) = (code.to_owned(), "the toy does not take it".to_owned());
    Reject { key: json!(key), code, message, row: json!({}) }
}

/// The cells of these columns, or of all.
fn cells(rows: &RecordBatch, columns: &[String]) -> Vec<Vec<String>> {
    let schema = rows.schema();
    let wanted = |name: &String| columns.is_empty() || columns.contains(name);
    let named = rows.columns().iter().zip(schema.fields());
    let wanted: Vec<_> = named.filter(|(_, field)| wanted(field.name())).map(|(column, _)| column).collect();
    let row = |row| wanted.iter().map(|column| cell(column, row)).collect();
    (0..rows.num_rows()).map(row).collect()
}

fn cell(column: &ArrayRef, row: usize) -> String {
    let (column, any) = (column.slice(row, 1), column.data_type());
    let text = column.as_any().downcast_ref::<StringArray>().map(|column| column.value(0).to_owned());
    let number = || column.as_any().downcast_ref::<Int32Array>().map(|column| column.value(0).to_string());
    text.or_else(number).unwrap_or_else(|| format!("{any} {column:?}"))
}
