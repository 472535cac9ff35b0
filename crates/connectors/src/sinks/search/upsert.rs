//! A batch into the index that readers see: its documents, and deletes of what has vanished.

use std::ops::Range;

use arrow_array::RecordBatch;
use futures_util::stream::FuturesUnordered;
use futures_util::{FutureExt, StreamExt};
use serde_json::{Value, json};
use uuid::Uuid;
use vitrina_core::{Batch, Checkpoint, Commit, Counts, Error, ErrorKind, Outcome, Reject, Result, RowChange};

use super::bulk::{Bulk, Sent};
use super::checksum::Checksum;
use super::document::{Documents, id_of_row};
use super::indexes::Standing;
use super::operations::Operations;
use super::versions::{self, Rival};
use super::{SearchSink, control, indexes, load_settings, mapping, reader_aliases};
use crate::delivery::{after_upsert, duplicates};
use crate::rejects::{keep, reject, without_null_keys};

/// Bulks under way at a time: while a server waits for its disk with one, it has others to work on.
const UNDER_WAY: usize = 4;
/// Rows that make a small bulk, by the memory they take here. Each bulk is a wait for the server's disk: the fewer, the better.
const SMALL: usize = 1 << 18;
/// A large one has so many times more.
const LARGER: usize = 8;
/// Of what is left of a batch, one bulk takes such a part.
const SHARE: usize = 3;

/// Where documents go, and as which version.
#[derive(Debug)]
pub(super) struct Route<'a> {
    pub(super) door: &'a str,
    pub(super) index: &'a str,
    pub(super) version: i64,
    /// Documents carry their checksum.
    pub(super) checksum: bool,
}

/// What became of a part of a batch.
#[derive(Debug, Default)]
pub(super) struct Shipped {
    pub(super) counts: Counts,
    rejects: Vec<Reject>,
}

impl SearchSink {
    pub(super) async fn upsert(
        &mut self,
        batch: &Batch,
        commit: &Commit,
        outcome: &mut Outcome,
    ) -> Result<Checkpoint> {
        if self.live.is_none() && batch.columns_unknown {
            return self.pass_by(batch, commit, outcome).await;
        }
        if self.live.is_none() && batch.to.is_none() && !self.target.document.partial {
            return Err(no_index(&self.names.index));
        }
        let live = self.require_live().await?;
        self.require_fields(&live).await?;
        let fitting = self.fitting(batch, &live, outcome).await?;
        let (asked, batch): (&Batch, &Batch) = (batch, &fitting);
        let (rows, ids) = self.distinct(batch, outcome)?;
        outcome.closed = self.rejects.closed_by(batch, &self.key, outcome)?;
        let gone = self.vanished((asked, batch), commit, &live, &ids, outcome).await?;
        let checksum = self.carries_checksum(&live).await?;
        let version = versions::draw(commit.lease.token)?;
        let door = self.fence_mut()?.write_alias(&live).await?;
        let route = Route { door: &door, index: &live, version, checksum };
        if !ids.is_empty() {
            self.send(&route, &rows, &ids, outcome).await?;
        }
        let deletes = self.deletes(gone, route.version, outcome)?;
        let shipped = self.ship(&route, deletes, &rows).await?;
        outcome.counts += shipped.counts;
        self.check_rejects(commit, outcome).await?;
        Ok(self.after(batch, commit, outcome))
    }

    /// Nothing has come, and from an index that is not there nothing vanishes.
    async fn pass_by(&mut self, batch: &Batch, commit: &Commit, outcome: &mut Outcome) -> Result<Checkpoint> {
        self.check_rejects(commit, outcome).await?;
        Ok(self.after(batch, commit, outcome))
    }

    fn after(&self, batch: &Batch, commit: &Commit, outcome: &Outcome) -> Checkpoint {
        let Counts { deleted, inserted, .. } = outcome.counts;
        let change = RowChange { deleted, inserted, rows_before: self.rows_before };
        let (commit, change) = self.counted(commit, change);
        after_upsert(batch, &commit, change)
    }

    /// The rows whose keys come once and make an id, and these.
    pub(super) fn distinct(
        &self,
        batch: &Batch,
        outcome: &mut Outcome,
    ) -> Result<(RecordBatch, Vec<String>)> {
        let mut rows = batch.rows.clone();
        without_null_keys(&mut rows, &mut outcome.rejects, &self.key)?;
        let distinct = duplicates::distinct(&rows, &self.key, self.newest_last.as_deref())?;
        outcome.counts.unchanged += distinct.replaced;
        outcome.rejects.extend(distinct.rejected);
        let rows = distinct.rows;
        let (mut ids, mut stays) = (Vec::with_capacity(rows.num_rows()), vec![true; rows.num_rows()]);
        for (row, stays) in stays.iter_mut().enumerate() {
            match id_of_row(&rows, &self.key, row)? {
                Ok(id) => ids.push(id),
                Err(reason) => {
                    outcome.rejects.push(reject(&rows, row, &self.key, "row.document_id", reason)?);
                    *stays = false;
                }
            }
        }
        let rows = if ids.len() == rows.num_rows() { rows } else { keep(&rows, &stays)? };
        Ok((rows, ids))
    }

    /// In parts: while the server works on some, the next is made.
    pub(super) async fn send(
        &self,
        route: &Route<'_>,
        rows: &RecordBatch,
        ids: &[String],
        outcome: &mut Outcome,
    ) -> Result<()> {
        let documents = Documents::new(rows, &self.target, self.mapping()?)?;
        let mut shipping = FuturesUnordered::new();
        for part in parts(rows) {
            if shipping.len() == UNDER_WAY {
                take(shipping.next().await, outcome)?;
            }
            let (mut operations, mut rejects) = (Operations::default(), Vec::new());
            self.add(&documents, rows, ids, part, route, &mut operations, &mut rejects)?;
            shipping.push(async move {
                let mut shipped = self.ship(route, operations, rows).await?;
                shipped.rejects.extend(rejects);
                Ok(shipped)
            });
            // It leaves before the next is made, which keeps this thread busy.
            take(shipping.next().now_or_never().flatten(), outcome)?;
            tokio::task::yield_now().await;
        }
        while let Some(shipped) = shipping.next().await {
            take(Some(shipped), outcome)?;
        }
        Ok(())
    }

    #[allow(clippy::too_many_arguments)] // all of it is the part
    fn add(
        &self,
        documents: &Documents<'_>,
        rows: &RecordBatch,
        ids: &[String],
        part: Range<usize>,
        route: &Route<'_>,
        operations: &mut Operations,
        rejects: &mut Vec<Reject>,
    ) -> Result<()> {
        for row in part {
            let id = ids[row].clone();
            let write = |out: &mut Vec<u8>| documents.write(row, out);
            let write_checked = |out: &mut Vec<u8>| {
                let start = out.len();
                documents.write(row, out)?;
                if route.checksum {
                    Checksum::of(&ids[row], &out[start..]).add_to(out);
                }
                Ok(())
            };
            let added = match self.target.document.partial {
                true if documents.has_object(row) => operations.update_objects(id, row, write),
                true => operations.update(id, Some(row), true, write),
                false => operations.index(id, route.version, Some(row), write_checked),
            };
            if let Err(reason) = added {
                let reason = match documents.culprit(row) {
                    Some(column) => format!("{column}: {reason}"),
                    None => reason.to_owned(),
                };
                rejects.push(reject(rows, row, &self.key, "row.unwritable", &reason)?);
            }
        }
        Ok(())
    }

    pub(super) async fn ship(
        &self,
        route: &Route<'_>,
        operations: Operations,
        rows: &RecordBatch,
    ) -> Result<Shipped> {
        let mut shipped = Shipped::default();
        if operations.len() == 0 {
            return Ok(shipped);
        }
        shipped.counts.bytes = operations.bytes();
        let bulk = Bulk { client: &self.client, door: route.door };
        let (operations, sent) = match bulk.send(operations).await {
            Err(error) if error.kind == ErrorKind::WriteAliasClosed => {
                return Err(self.shut_out(error).await);
            }
            sent => sent?,
        };
        self.settle_conflicts(route, &operations, &sent).await?;
        shipped.counts.inserted = sent.created;
        shipped.counts.updated = sent.updated + sent.conflicts.len() as u64;
        shipped.counts.deleted = sent.deleted;
        for (place, fault) in sent.refused {
            let (code, message) = fault.of_row();
            if let Some(row) = operations.row(place) {
                shipped.rejects.push(reject(rows, row, &self.key, code, message)?);
            }
        }
        Ok(shipped)
    }

    /// A version in the way is done if it is ours; else somebody else writes here.
    async fn settle_conflicts(&self, route: &Route<'_>, operations: &Operations, sent: &Sent) -> Result<()> {
        if sent.conflicts.is_empty() {
            return Ok(());
        }
        let ids: Vec<String> =
            sent.conflicts.iter().map(|(place, _)| operations.id(*place).to_owned()).collect();
        let now = indexes::versions(&self.client, route.index, &ids).await?;
        for (place, told) in &sent.conflicts {
            match versions::rival(versions::found(&now, operations.id(*place), *told), route.version) {
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

    /// The write alias is closed or gone: by another owner, or by a person.
    async fn shut_out(&self, error: Error) -> Error {
        match self.fence() {
            Ok(fence) => fence.confirm().await.err().unwrap_or(error),
            Err(error) => error,
        }
    }

    /// The index that readers see; made where nothing has been written yet.
    async fn require_live(&mut self) -> Result<String> {
        if let Some(live) = &self.live {
            return Ok(live.clone());
        }
        self.refuse_foreign().await?;
        let physical = match self.target.document.partial {
            true => self.names.shared(),
            false => self.names.physical(Uuid::now_v7()),
        };
        let mapping = self.mark(None)?.put_on(reader_aliases::noted(&self.target, self.whole_mapping()?));
        let body = json!({"settings": mapping::settings(&self.target), "mappings": mapping});
        let of_others = format!("{}~", self.names.index);
        let known = |alias: &str| {
            self.target.document.partial && (alias == self.names.index || alias.starts_with(&of_others))
        };
        control::create_alone(&self.client, &physical, &body, known).await?;
        load_settings::remember_deletes(&self.client, &physical).await?;
        let wanted = physical.clone();
        let actions = self.naming(&physical).await?;
        let fence = self.fence_mut()?;
        fence.change(actions, |now| now.behind.contains(&wanted) && now.behind.len() == 1).await?;
        let control = control::Control { live: Some(physical.clone()), ..fence.held.control.clone() };
        fence.replace(control).await?;
        self.live = Some(physical.clone());
        Ok(physical)
    }
}

impl SearchSink {
    /// What gives readers a new index by its name, which something else may have: then that may be replaced.
    async fn naming(&self, physical: &str) -> Result<Vec<Value>> {
        let standing = Standing::look(&self.client, &self.names).await?;
        if !standing.is_foreign(&self.names) {
            return Ok(reader_aliases::first(&self.target, &self.names, physical));
        }
        let mut actions = Vec::new();
        if standing.concrete {
            actions.push(json!({"remove_index": {"index": self.names.index}}));
        }
        let (client, target) = (&self.client, &self.target);
        actions.extend(reader_aliases::moving(client, target, &self.names, &standing, physical, &[]).await?);
        Ok(actions)
    }
}

fn take(shipped: Option<Result<Shipped>>, outcome: &mut Outcome) -> Result<()> {
    let Some(Shipped { counts, rejects }) = shipped.transpose()? else { return Ok(()) };
    outcome.counts += counts;
    outcome.rejects.extend(rejects);
    Ok(())
}

fn parts(rows: &RecordBatch) -> Vec<Range<usize>> {
    let (count, bulks) = (rows.num_rows(), rows.get_array_memory_size().div_ceil(SMALL));
    runs(count, count.div_ceil(bulks.max(1)))
}

/// Runs of rows, small ones first and last: the server has soon something to do, and all of its cores up to the end.
fn runs(count: usize, small: usize) -> Vec<Range<usize>> {
    let small = small.max(1);
    let (mut runs, mut start) = (Vec::new(), 0);
    while start < count {
        let left = count - start;
        let size = (start + small).min(left / SHARE).clamp(small, LARGER * small).min(left);
        runs.push(start..start + size);
        start += size;
    }
    runs
}

/// Readers would take a few rows for all of them.
fn no_index(index: &str) -> Error {
    Error::fix("sink.no_index", format!("there is no index {index} yet that single rows could be written to"))
        .hint("run the pipeline first: a load makes the index, with these rows in it")
}

fn foreign(index: &str) -> Error {
    Error::fix(
        "sink.foreign_writer",
        format!("someone else writes to index {index}: a document has a version that is not Vitrina's"),
    )
    .hint("an index has one writer; run in mode full to load it anew")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_and_the_last_bulks_of_a_batch_are_small_and_hold_every_row_once() {
        let sizes: Vec<usize> = runs(10_000, 313).iter().map(Range::len).collect();
        assert_eq!(sizes.iter().sum::<usize>(), 10_000);
        assert_eq!(sizes[..4], [313, 626, 1252, 2504]);
        assert!(sizes[sizes.len() - 2..].iter().all(|size| *size <= 313), "{sizes:?}");
        assert!(runs(10_000, 313).windows(2).all(|pair| pair[0].end == pair[1].start));
        assert_eq!(runs(2, 1), [0..1, 1..2]);
        assert_eq!(runs(10, 10).len(), 1, "a small batch is one bulk");
        assert_eq!(runs(0, 0), []);
    }
}
