//! Does a target equal its source (R-REC-1)? Both sides are scanned for checksums of ranges of keys, ranges that differ
//! are read row by row, and what differs is looked at again before it is told: rows that have changed meanwhile are on
//! their way, and no difference.
//!
//! Exact by the order of its looks: at the checkpoint, at the target, at the source, and at what the source has to say
//! behind the checkpoint. A row of the target is what the source had at the checkpoint or later; so whatever differs, is
//! not among the keys that the next pass will read, and has not moved since, was not written when it should have been.

mod look;
mod pair;
mod pending;
mod stream;
mod suspects;

use std::collections::{BTreeMap, HashSet};
use std::fmt;
use std::sync::Arc;

use async_trait::async_trait;
use serde_json::json;
use uuid::Uuid;
use vitrina_core::{
    AllowedTargets, Backfill, Checkpoint, Difference, DifferenceKind, Error, ErrorKind, Figures, Findings,
    Lease, LeaseToken, Ledger, Level, Mode, Owner, Pipeline, PipelineId, ReconcileProgress, ReconcileStage,
    Result, Target, Verdict,
};

use crate::{Connections, sinks, sources};
pub(crate) use look::no_key;
pub use look::{Looked, LookedColumn, look};
pub(crate) use pair::Portion;
pub use pair::{Differing, Key, Mark, Pair, Row, Seen};
use pending::{Found, Pending};
pub(crate) use stream::{Stream, Wanted};
use suspects::{Now, Suspects};

/// A comparison to be made.
pub struct Order<'a> {
    /// The comparison or request that it is made for, and who holds that.
    pub id: Uuid,
    pub owner: Owner,
    pub pipeline: &'a Pipeline,
    pub target: &'a Target,
    pub level: Level,
    /// So many differences are answered one by one.
    pub keep: usize,
    /// Keys of open rejects, as JSON: told of elsewhere, and not compared.
    pub refused: &'a HashSet<String>,
    /// Only these keys are compared, each a JSON array: what another comparison has found.
    pub keys: Option<&'a [serde_json::Value]>,
    /// Rows that the other comparison has met and that no target can hold: they are not among the keys.
    pub refused_before: u64,
    pub connections: &'a Connections,
    pub allowed_targets: &'a AllowedTargets,
    pub sources: &'a sources::Kinds,
    pub sinks: &'a sinks::Kinds,
    pub installation: Uuid,
    pub ledger: &'a dyn Ledger,
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

    /// The pipeline's source, only looked at.
    pub(crate) fn source<'b>(
        &'b self,
        lease: &'b Lease,
        mode: Mode,
        backfill: Option<&'b Backfill>,
    ) -> sources::Order<'b> {
        sources::Order {
            pipeline: self.pipeline,
            mode,
            backfill,
            max_batch_bytes: self.max_batch_bytes,
            lease,
            takeover: false,
            installation: self.installation,
            changelog_max_age: self.changelog_max_age,
            connections: self.connections,
            python: self.python,
            run_id: self.id.to_string(),
            observes: true,
            strict_keys: false,
        }
    }
}

/// What a comparison asks of, and tells to, whoever has ordered it.
#[async_trait]
pub trait Office: Send + Sync {
    /// As it is now.
    async fn checkpoint(&self) -> Result<Checkpoint>;
    fn note(&self, progress: ReconcileProgress);
}

/// More than so many are not looked at one by one.
const MOST: usize = 200_000;
/// How often a checkpoint is waited for that still says what is on its way.
const ATTEMPTS: usize = 3;

pub async fn compare(order: &Order<'_>, office: &dyn Office) -> Result<Findings> {
    let name = order.pipeline.target_name(order.allowed_targets)?;
    let mut pair = order.sinks.of(&name)?.pair(&name, order).await?;
    let comparison = Comparison { order, office };
    match (order.level, order.keys) {
        (Level::Count, None) => comparison.count(pair.as_mut()).await,
        _ => comparison.rows(pair.as_mut()).await,
    }
}

struct Comparison<'a> {
    order: &'a Order<'a>,
    office: &'a dyn Office,
}

impl Comparison<'_> {
    /// Figures of either side, no row.
    async fn count(&self, pair: &mut dyn Pair) -> Result<Findings> {
        self.note(ReconcileStage::Scan, 0, 1);
        let checkpoint = self.office.checkpoint().await?;
        let (target, source) = pair.count().await?;
        let is_equal = (target.rows, &target.min, &target.max) == (source.rows, &source.min, &source.max);
        let refused = pair.refused();
        let figures =
            Figures { source, target, refused, rejected: self.rejected(refused), ..Figures::default() };
        let verdict = match is_equal {
            _ if refused > 0 || self.lacks_refused(pair).await? => Verdict::Differs,
            true => Verdict::Equal,
            // Nobody can tell which rows those are; where some are on their way it may be them.
            false if Pending::of(self.order, &checkpoint, pair).is_any().await? => Verdict::Stale,
            false => Verdict::Differs,
        };
        Ok(Findings { verdict, figures, differences: Vec::new() })
    }

    async fn rows(&self, pair: &mut dyn Pair) -> Result<Findings> {
        let mut figures = Figures { refused: self.order.refused_before, ..Figures::default() };
        if self.order.keys.is_none() {
            self.note(ReconcileStage::Scan, 0, 1);
            pair.scan(&mut figures).await?;
            figures.refused = pair.refused();
        }
        figures.rejected = self.rejected(figures.refused);
        if self.order.keys.is_none() && figures.differing_ranges == 0 {
            let verdict = self.verdict(pair, &figures).await?;
            return Ok(Findings { verdict, figures, differences: Vec::new() });
        }
        let mut checkpoint = self.office.checkpoint().await?;
        let mut suspects = self.look_again(pair, &mut figures).await?;
        let nowhere = std::mem::take(&mut suspects.nowhere);
        self.note(ReconcileStage::Recheck, 0, suspects.len() as u64);
        let mut pending = self.pending(&checkpoint, pair, &suspects).await?;
        for _ in 0..ATTEMPTS {
            // What the log said of an older checkpoint may be pruned by now: a newer one is asked of the same rows.
            let now = self.office.checkpoint().await?;
            if pending.as_ref().is_some_and(|found| !found.is_load()) || now.position == checkpoint.position {
                break;
            }
            checkpoint = now;
            suspects = self.look_at(pair, &suspects.keys()).await?;
            pending = self.pending(&checkpoint, pair, &suspects).await?;
        }
        let pending = pending.ok_or_else(pruned)?;
        let suspects = suspects.without_pending(&pending, &mut figures);
        let now = self.look_once_more(pair, &suspects).await?;
        let mut differences = suspects.differences(now, self.order.keep, &mut figures);
        if self.order.keys.is_none() && figures.verdict() != Verdict::Differs {
            differences.extend(self.counted_again(pair, nowhere, &mut figures).await?);
        }
        Ok(Findings { verdict: self.verdict(pair, &figures).await?, differences, figures })
    }

    /// Those with an open reject, and those that have none and would.
    fn rejected(&self, refused: u64) -> u64 {
        refused.max(self.order.refused.len() as u64)
    }

    /// What a scan has counted and nobody has when asked for it is gone meanwhile. Unless the next scan counts it again, and
    /// more in the target than the source has: then it is there, wherever it is, and is nothing of the source's.
    async fn counted_again(
        &self,
        pair: &mut dyn Pair,
        nowhere: HashSet<Key>,
        figures: &mut Figures,
    ) -> Result<Vec<Difference>> {
        if nowhere.is_empty() {
            return Ok(Vec::new());
        }
        let mut counted = Figures::default();
        pair.scan(&mut counted).await?;
        if counted.target.rows <= counted.source.rows {
            return Ok(Vec::new());
        }
        let mut again = Vec::new();
        while let Some(found) = pair.differing().await? {
            again.extend(found.keys.into_iter().filter(|key| nowhere.contains(key)));
        }
        let still = self.look_at(pair, &again).await?.nowhere;
        figures.extra += still.len() as u64;
        let kept = if self.order.level == Level::Rows { self.order.keep } else { 0 };
        let extra =
            |key: &Key| Difference { kind: DifferenceKind::Extra, key: json!(key), columns: BTreeMap::new() };
        Ok(still.iter().take(kept).map(extra).collect())
    }

    /// Rows that were refused are counted apart; yet a target that lacks them is not equal.
    async fn verdict(&self, pair: &mut dyn Pair, figures: &Figures) -> Result<Verdict> {
        match figures.verdict() {
            Verdict::Differs => Ok(Verdict::Differs),
            _ if self.lacks_refused(pair).await? => Ok(Verdict::Differs),
            verdict => Ok(verdict),
        }
    }

    /// Is a row that was refused not in the target as the source has it now? Also where only some keys are compared: they
    /// were all that differed, and so the verdict is one on the whole target.
    async fn lacks_refused(&self, pair: &mut dyn Pair) -> Result<bool> {
        let refused: Vec<&String> = self.order.refused.iter().collect();
        let keys: Vec<Key> = refused.iter().filter_map(|key| serde_json::from_str(key).ok()).collect();
        // No target has a row without a whole key.
        if keys.len() < refused.len() {
            return Ok(true);
        }
        let mut rest = keys.as_slice();
        while let Some(some) = portion(&mut rest, pair) {
            match pair.rows(some).await {
                Ok(rows) if rows.iter().all(|row| row.source == row.target) => {}
                Ok(_) => return Ok(true),
                // The target's types cannot hold what the source has.
                Err(error) if error.is_refused() => return Ok(true),
                Err(error) => return Err(error),
            }
        }
        Ok(false)
    }

    /// The rows that still differ: the target first, the source then.
    async fn look_again(&self, pair: &mut dyn Pair, figures: &mut Figures) -> Result<Suspects> {
        if let Some(keys) = self.order.keys {
            let keys: Vec<Key> = keys.iter().map(key_of).collect::<Result<_>>()?;
            figures.rows_read += 2 * keys.len() as u64;
            return self.look_at(pair, &keys).await;
        }
        let mut suspects = Suspects::new(self.order, pair);
        while let Some(found) = pair.differing().await? {
            figures.rows_read += found.rows_read + 2 * found.keys.len() as u64;
            self.note(ReconcileStage::Ranges, found.done, figures.differing_ranges);
            suspects.extend(self.look_at(pair, &found.keys).await?);
            if suspects.len() >= MOST {
                figures.capped = true;
                break;
            }
        }
        Ok(suspects)
    }

    async fn look_at(&self, pair: &mut dyn Pair, keys: &[Key]) -> Result<Suspects> {
        let mut suspects = Suspects::new(self.order, pair);
        let is_told = |key: &&Key| !self.order.refused.contains(&json!(key).to_string());
        let keys: Vec<Key> = keys.iter().filter(is_told).cloned().collect();
        let mut rest = keys.as_slice();
        while let Some(some) = portion(&mut rest, pair) {
            suspects.take(pair.rows(some).await?);
        }
        Ok(suspects)
    }

    /// Which of them the next pass will read; `None` where the source could not tell any more.
    async fn pending(
        &self,
        checkpoint: &Checkpoint,
        pair: &dyn Pair,
        suspects: &Suspects,
    ) -> Result<Option<Found>> {
        if suspects.len() == 0 {
            return Ok(Some(Found::default()));
        }
        match Pending::of(self.order, checkpoint, pair).find(suspects).await {
            Err(error) if error.kind == ErrorKind::ChangesPruned => Ok(None),
            found => found.map(Some),
        }
    }

    /// What has changed again meanwhile may have moved ahead of the pass, and was not met there.
    async fn look_once_more(&self, pair: &mut dyn Pair, suspects: &Suspects) -> Result<Now> {
        let mut now = Now::new(self.order, pair);
        let keys = suspects.keys();
        let mut rest = keys.as_slice();
        while let Some(some) = portion(&mut rest, pair) {
            now.take(pair.rows(some).await?);
        }
        Ok(now)
    }

    fn note(&self, stage: ReconcileStage, done: u64, total: u64) {
        self.office.note(ReconcileProgress { stage, done, total });
    }
}

/// The next keys that may be asked for together.
fn portion<'a>(rest: &mut &'a [Key], pair: &dyn Pair) -> Option<&'a [Key]> {
    let (some, more) = rest.split_at(pair.at_once().min(rest.len()));
    *rest = more;
    (!some.is_empty()).then_some(some)
}

/// Runs were faster than the comparison, each time.
fn pruned() -> Error {
    Error::retry("reconcile.pruned", "changes were pruned from the change log while rows were compared")
}

fn key_of(key: &serde_json::Value) -> Result<Key> {
    let text = |part: &serde_json::Value| part.as_str().map(str::to_owned);
    let parts = key.as_array().and_then(|parts| parts.iter().map(text).collect());
    parts.ok_or_else(|| Error::bug("reconcile.key", "a key to be compared is no array of texts"))
}
