//! A batch into the index that readers see: its documents, and deletes of what has vanished.

use arrow_array::RecordBatch;
use serde_json::json;
use uuid::Uuid;
use vitrina_core::{Batch, Checkpoint, Commit, Error, LoadPath, Outcome, Result};

use super::bulk::{Bulk, Operations, Sent};
use super::document::{Documents, id_of_row};
use super::versions::{self, Rival};
use super::{SearchSink, control, indexes, mapping};
use crate::rejects::{reject, without_null_keys};
use crate::sinks::duplicates;

impl SearchSink {
    pub(super) async fn upsert(
        &mut self,
        batch: &Batch,
        commit: &Commit,
        outcome: &mut Outcome,
    ) -> Result<Checkpoint> {
        let live = self.require_live(batch).await?;
        let version = versions::draw(commit.lease.token)?;
        let rows = self.distinct(batch, outcome)?;
        let mut operations = self.operations(&rows, version, outcome)?;
        outcome.closed = self.refused.closed_by(batch, &self.key, outcome)?;
        self.vanish(batch, commit, &live, version, &rows, &mut operations, outcome).await?;
        let door = self.door()?;
        self.send(&door, &live, version, operations, &rows, outcome).await?;
        self.hold_rejects(commit, outcome).await?;
        let deleted = outcome.counts.deleted;
        Ok(match &batch.to {
            Some(to) => commit.from.advance(commit.run, to.clone(), deleted, self.passed.before),
            // What a load has gathered is older than what the backfill has just written: it starts anew.
            None if commit.from.load.is_some_and(|load| load.path == LoadPath::Staged) => {
                commit.from.without_pass()
            }
            None => commit.from.clone(),
        })
    }

    /// The rows whose keys come once.
    pub(super) fn distinct(&self, batch: &Batch, outcome: &mut Outcome) -> Result<RecordBatch> {
        let mut rows = batch.rows.clone();
        without_null_keys(&mut rows, &mut outcome.rejects, &self.key)?;
        let distinct = duplicates::distinct(&rows, &self.key, self.has_order)?;
        outcome.counts.unchanged += distinct.replaced;
        outcome.rejects.extend(distinct.rejected);
        Ok(distinct.rows)
    }

    pub(super) fn operations(
        &self,
        rows: &RecordBatch,
        version: i64,
        outcome: &mut Outcome,
    ) -> Result<Operations> {
        let documents = Documents::new(rows, &self.target, self.mapping()?)?;
        let mut operations = Operations::default();
        for row in 0..rows.num_rows() {
            let id = match id_of_row(rows, &self.key, row)? {
                Ok(id) => id,
                Err(reason) => {
                    outcome.rejects.push(reject(rows, row, &self.key, "row.document_id", reason)?);
                    continue;
                }
            };
            let write = |out: &mut Vec<u8>| documents.write(row, out);
            let added = match self.target.document.partial {
                true => operations.update(id, Some(row), true, write),
                false => operations.index(id, version, Some(row), write),
            };
            if let Err(reason) = added {
                outcome.rejects.push(reject(rows, row, &self.key, "row.unwritable", reason)?);
            }
        }
        Ok(operations)
    }

    /// Sends them and notes what became of them; answers how many documents are there now.
    pub(super) async fn send(
        &self,
        door: &str,
        index: &str,
        version: i64,
        operations: Operations,
        rows: &RecordBatch,
        outcome: &mut Outcome,
    ) -> Result<()> {
        if operations.len() == 0 {
            return Ok(());
        }
        outcome.counts.bytes += operations.bytes();
        let (operations, sent) = match (Bulk { client: &self.client, door }).send(operations).await {
            Err(error) if error.code == "sink.shut_out" => return Err(self.shut_out(error).await),
            sent => sent?,
        };
        self.settle_conflicts(index, version, &operations, &sent).await?;
        let settled = sent.conflicts.len() as u64;
        outcome.counts.inserted += sent.created;
        outcome.counts.updated += sent.updated + settled;
        outcome.counts.deleted += sent.deleted;
        for (place, fault) in sent.refused {
            let (code, message) = fault.of_row();
            if let Some(row) = operations.row(place) {
                outcome.rejects.push(reject(rows, row, &self.key, code, message)?);
            }
        }
        Ok(())
    }

    /// A version in the way is done if it is ours; else somebody else writes here.
    async fn settle_conflicts(
        &self,
        index: &str,
        version: i64,
        operations: &Operations,
        sent: &Sent,
    ) -> Result<()> {
        if sent.conflicts.is_empty() {
            return Ok(());
        }
        let ids: Vec<String> =
            sent.conflicts.iter().map(|(place, _)| operations.id(*place).to_owned()).collect();
        let now = indexes::versions(&self.client, index, &ids).await?;
        for (place, told) in &sent.conflicts {
            match versions::rival(versions::found(&now, operations.id(*place), *told), version) {
                Rival::Own => {}
                Rival::Newer => {
                    self.fence()?.confirm().await?;
                    return Err(foreign(&self.names.index));
                }
                Rival::Foreign => return Err(foreign(&self.names.index)),
            }
        }
        Ok(())
    }

    /// The door is gone: another owner has closed it, or a person has.
    async fn shut_out(&self, error: Error) -> Error {
        match self.fence() {
            Ok(fence) => fence.confirm().await.err().unwrap_or(error),
            Err(error) => error,
        }
    }

    /// The index that readers see; made where nothing has been written yet.
    async fn require_live(&mut self, batch: &Batch) -> Result<String> {
        if let Some(live) = &self.live {
            return Ok(live.clone());
        }
        self.refuse_foreign().await?;
        let physical = match self.target.document.partial {
            true => self.names.shared(),
            false => self.names.physical(Uuid::now_v7()),
        };
        let mapping = mapping::mapping(&self.target, &batch.rows.schema(), &self.exact);
        let body = json!({"settings": mapping::settings(&self.target, false), "mappings": mapping});
        control::create_alone(&self.client, &physical, &body).await?;
        let door = self.door()?;
        let (index, wanted) = (self.names.index.clone(), physical.clone());
        let fence = self.fence_mut()?;
        let actions = vec![
            json!({"add": {"index": physical, "alias": index}}),
            json!({"add": {"index": physical, "alias": door, "is_hidden": true}}),
        ];
        fence.change(actions, |now| now.behind.contains(&wanted) && now.has_door(&door, &wanted)).await?;
        let control = control::Control { live: Some(physical.clone()), ..fence.held.control.clone() };
        fence.replace(control).await?;
        self.live = Some(physical.clone());
        Ok(physical)
    }
}

fn foreign(index: &str) -> Error {
    Error::fix(
        "sink.foreign_writer",
        format!("someone else writes to index {index}: a document has a version that is not Vitrina's"),
    )
    .hint("an index has one writer; run in mode full to load it anew")
}
