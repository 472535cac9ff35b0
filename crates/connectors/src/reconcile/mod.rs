//! Does a target equal its source (R-REC-1)? Both sides are scanned for checksums of ranges of keys, ranges that differ
//! are read row by row, and what differs is looked at again before it is told: rows that have changed meanwhile are on
//! their way, and no difference.
//!
//! Exact by the order of its looks: at the checkpoint, at the target, at the source, and at what the source has to say
//! behind the checkpoint. A row of the target is what the source had at the checkpoint or later; so whatever differs, is
//! not among the keys that the next pass will read, and has not moved since, was not written when it should have been.

mod pair;
mod pending;
mod stream;
mod suspects;

use std::collections::HashSet;
use std::fmt;
use std::sync::Arc;

use async_trait::async_trait;
use uuid::Uuid;
use vitrina_core::{
    AllowedTargets, Checkpoint, Error, Figures, Findings, Lease, LeaseToken, Level, Owner, Pipeline,
    PipelineId, ReconcileProgress, ReconcileStage, Result, Target, Verdict,
};

use crate::{Connections, sinks};
pub use pair::{Differing, Key, Pair, Row};
use pending::Pending;
pub(crate) use stream::{Stream, Wanted};
use suspects::{Now, Suspects};

/// A comparison to be made.
pub struct Order<'a> {
    pub id: Uuid,
    pub pipeline: &'a Pipeline,
    pub target: &'a Target,
    pub level: Level,
    /// So many differences are answered one by one.
    pub keep: usize,
    /// Only these keys are compared, each a JSON array.
    pub keys: Option<&'a [serde_json::Value]>,
    pub connections: &'a Connections,
    pub allowed_targets: &'a AllowedTargets,
    pub sinks: &'a sinks::Kinds,
    pub installation: Uuid,
    pub max_batch_bytes: usize,
    /// In seconds, as runs tell it to a change log.
    pub changelog_max_age: i64,
    pub python: Option<&'a Arc<vitrina_python::Python>>,
}

impl fmt::Debug for Order<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Order").field("id", &self.id).field("level", &self.level).finish_non_exhaustive()
    }
}

impl Order<'_> {
    /// Names its sessions. Whoever takes the pipeline over ends sessions of the pipeline's leases: these are none.
    pub(crate) fn lease(&self) -> Lease {
        Lease { pipeline: PipelineId(self.id), owner: Owner::draw(), token: LeaseToken(0) }
    }
}

/// What a comparison asks of, and tells to, whoever has ordered it.
#[async_trait]
pub trait Office: Send + Sync {
    /// As it is now.
    async fn checkpoint(&self) -> Result<Checkpoint>;
    /// Keys of the open rejects, as JSON.
    async fn rejected(&self) -> Result<HashSet<String>>;
    fn note(&self, progress: ReconcileProgress);
}

/// Rows that differ and are looked at again together.
const CHUNK: usize = 1000;
/// More than so many are not looked at one by one.
const MOST: usize = 200_000;

pub async fn compare(order: &Order<'_>, office: &dyn Office) -> Result<Findings> {
    let name = order.pipeline.target_name(order.allowed_targets)?;
    let mut pair = order.sinks.of(&name)?.pair(&name, order).await?;
    match (order.level, order.keys) {
        (Level::Count, None) => count(order, office, pair.as_mut()).await,
        _ => rows(order, office, pair.as_mut()).await,
    }
}

/// Figures of either side, no row.
async fn count(order: &Order<'_>, office: &dyn Office, pair: &mut dyn Pair) -> Result<Findings> {
    note(office, ReconcileStage::Scan, 0, 1);
    let checkpoint = office.checkpoint().await?;
    let (target, source) = pair.count().await?;
    let is_equal = (target.rows, &target.min, &target.max) == (source.rows, &source.min, &source.max);
    let figures = Figures { source, target, ..Figures::default() };
    let verdict = match is_equal {
        true => Verdict::Equal,
        // Nobody can tell which rows those are; where some are on their way it may be them.
        false if Pending::of(order, &checkpoint, pair).is_any().await? => Verdict::Stale,
        false => Verdict::Differs,
    };
    Ok(Findings { verdict, figures, differences: Vec::new() })
}

async fn rows(order: &Order<'_>, office: &dyn Office, pair: &mut dyn Pair) -> Result<Findings> {
    let mut figures = Figures::default();
    if order.keys.is_none() {
        note(office, ReconcileStage::Scan, 0, 1);
        pair.scan(&mut figures).await?;
    }
    if order.keys.is_none() && figures.differing_ranges == 0 {
        return Ok(Findings { verdict: Verdict::Equal, figures, differences: Vec::new() });
    }
    let checkpoint = office.checkpoint().await?;
    let suspects = look_again(order, office, pair, &mut figures).await?;
    note(office, ReconcileStage::Recheck, 0, suspects.len() as u64);
    let suspects = suspects.without_rejected(&office.rejected().await?, &mut figures);
    let suspects = sift(order, &checkpoint, pair, suspects, &mut figures).await?;
    let differences = suspects.differences(order.keep, &mut figures);
    Ok(Findings { verdict: figures.verdict(), differences, figures })
}

/// The rows that still differ: the target first, the source then.
async fn look_again(
    order: &Order<'_>,
    office: &dyn Office,
    pair: &mut dyn Pair,
    figures: &mut Figures,
) -> Result<Suspects> {
    let mut suspects = Suspects::new(order, pair);
    if let Some(keys) = order.keys {
        let keys: Vec<Key> = keys.iter().map(key_of).collect::<Result<_>>()?;
        for chunk in keys.chunks(CHUNK) {
            suspects.take(pair.rows(chunk).await?);
        }
        figures.rows_read += 2 * keys.len() as u64;
        return Ok(suspects);
    }
    while let Some(found) = pair.differing().await? {
        figures.rows_read += found.rows_read;
        note(office, ReconcileStage::Ranges, found.done, figures.differing_ranges);
        for chunk in found.keys.chunks(CHUNK) {
            suspects.take(pair.rows(chunk).await?);
            figures.rows_read += 2 * chunk.len() as u64;
        }
        if suspects.len() >= MOST {
            figures.capped = true;
            break;
        }
    }
    Ok(suspects)
}

/// What is on its way is told from what is not.
async fn sift(
    order: &Order<'_>,
    checkpoint: &Checkpoint,
    pair: &mut dyn Pair,
    suspects: Suspects,
    figures: &mut Figures,
) -> Result<Suspects> {
    if suspects.len() == 0 {
        return Ok(suspects);
    }
    let pending = Pending::of(order, checkpoint, pair).find(&suspects).await?;
    let suspects = suspects.without_pending(&pending, figures);
    // What has changed again meanwhile may have moved ahead of the pass, and was not met there.
    let mut now = Now::default();
    for chunk in suspects.keys().chunks(CHUNK) {
        now.take(pair.rows(chunk).await?);
    }
    Ok(suspects.without_moved(&now, figures))
}

fn key_of(key: &serde_json::Value) -> Result<Key> {
    let text = |part: &serde_json::Value| part.as_str().map(str::to_owned);
    let parts = key.as_array().and_then(|parts| parts.iter().map(text).collect());
    parts.ok_or_else(|| Error::bug("reconcile.key", "a key to be compared is no array of texts"))
}

fn note(office: &dyn Office, stage: ReconcileStage, done: u64, total: u64) {
    office.note(ReconcileProgress { stage, done, total });
}
