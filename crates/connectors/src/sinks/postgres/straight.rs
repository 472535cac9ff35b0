//! The batches in the middle of a load, which need no look at what is there: BEGIN, rows and commit travel
//! without waiting for each other's answers. Small batches cost little more than their rows.

use std::time::Instant;

use arrow_array::RecordBatch;
use tokio::join;
use vitrina_core::{Batch, Commit, Load, LoadPath, Result, Scope, Written};

use super::load::record;
use super::put::Way;
use super::trouble::{Tried, Trouble};
use super::{PostgresSink, begin};
use crate::delivery::{self, millis};

impl PostgresSink {
    /// `None` where the batch must be looked at on its way; nothing is sent then. A row that is refused
    /// takes the transaction with it: the commit behind it fails as well.
    pub(super) async fn write_straight(&mut self, batch: &Batch, commit: &Commit) -> Tried<Option<Written>> {
        let started = Instant::now();
        let Some(load) = under_way(batch, commit) else { return Ok(None) };
        let way = match load.path {
            // How many of the rows triggers leave out is known when they have been copied.
            LoadPath::Direct if self.mart.has_triggers || !self.mart.own.is_whole() => return Ok(None),
            LoadPath::Direct => Way::Mart,
            LoadPath::Staged if !self.loads.has_staging(load) => return Ok(None),
            LoadPath::Staged => Way::Load(self.loads.table(load.id)),
        };
        let Some(rows) = self.plain_rows(batch, &way)? else { return Ok(None) };
        let count = rows.num_rows() as u64;
        let Some((into, rows)) = self.straight(&way, &rows)? else { return Ok(None) };
        let Some(to) = batch.to.clone() else { return Ok(None) };

        let statement = self.copy_statement(&into).await?;
        let refused = |error| Trouble::of(&self.session, error);
        let (begun, copying) = join!(self.session.run(begin(batch)), self.start_copy(&statement));
        begun?;
        let mut outcome = self.rejects.outcome(batch, commit);
        let (mut last, copied) = self.send_all(&statement, copying?, &rows).await?;
        outcome.counts.bytes = copied.bytes;
        if way == Way::Mart {
            outcome.counts.inserted = count;
        }
        outcome.write_ms = millis(started);
        let told = if way == Way::Mart { String::new() } else { record(load, batch, count) };
        let checkpoint = commit.advance(to, self.row_change(&outcome));
        let committing = self.fence.commit(&self.session, &told, commit, &checkpoint, &outcome);
        let (copied, committed) = join!(last.as_mut().finish(), committing);
        copied.map_err(refused)?;
        let committed = committed?;
        Ok(Some(delivery::written(&outcome, checkpoint, committed)))
    }

    /// The rows if none of them needs care. In a mart that was empty its own index tells duplicates.
    fn plain_rows(&self, batch: &Batch, way: &Way) -> Result<Option<RecordBatch>> {
        if *way == Way::Mart {
            return Ok(Some(batch.rows.clone()));
        }
        let distinct = self.distinct(batch)?;
        Ok((distinct.rejected.is_empty() && distinct.replaced == 0).then_some(distinct.rows))
    }
}

fn under_way(batch: &Batch, commit: &Commit) -> Option<Load> {
    let plain = batch.rejected.is_empty() && batch.rows.num_rows() > 0;
    let within = commit.from.position.pass.is_some() && !batch.ends_pass();
    commit.from.load.filter(|_| plain && within && matches!(batch.scope, Scope::Load { .. }))
}
