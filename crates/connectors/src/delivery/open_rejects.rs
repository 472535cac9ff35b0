//! Open rejects: which keys are never deleted, which are over, and how many are too many.

use std::collections::{BTreeMap, BTreeSet, HashSet};

use arrow_array::RecordBatch;
use serde_json::Value;
use uuid::Uuid;
use vitrina_core::{Batch, Commit, Counts, Error, Lease, Ledger, OpenReject, Outcome, Reject, Result, Scope};

use crate::arrow_text::key_json;

/// The rejects of a pipeline that are open, by the text of their key.
#[derive(Debug, Default)]
pub(crate) struct OpenRejects {
    open: BTreeMap<String, OpenReject>,
    /// Of these, those that somebody has accepted.
    acknowledged: usize,
    /// Keys that the batch which is being written has rejected, as far as they are counted.
    found: Found,
    /// Those of the batch that is being written.
    last: Vec<Reject>,
}

/// Counts each reject of a batch once, however often it is asked.
#[derive(Debug, Default)]
struct Found {
    keys: HashSet<String>,
    rejects: usize,
}

/// Beyond its limit a run fails anyway; so many more are looked for, to be shown.
const SHOWN_BEYOND_LIMIT: usize = 100;

impl OpenRejects {
    pub(crate) fn of(open: Vec<OpenReject>) -> Self {
        let acknowledged = open.iter().filter(|reject| reject.acknowledged).count();
        let open = open.into_iter().map(|reject| (reject.key.to_string(), reject));
        Self { open: open.collect(), acknowledged, ..Self::default() }
    }

    /// What is known of a batch before it is written.
    pub(crate) fn outcome(&mut self, batch: &Batch, commit: &Commit) -> Outcome {
        self.found = Found::default();
        Outcome {
            counts: Counts { read: batch.rows_read, ..Counts::default() },
            read_ms: commit.timings.read_ms,
            transform_ms: commit.timings.transform_ms,
            reject_limit: match &batch.to {
                Some(_) => commit.reject_limit,
                None => self.limit_of_backfill(commit.reject_limit),
            },
            rejects: batch.rejected.clone(),
            backfilled_to: batch.backfilled_to.clone(),
            load: commit.from.load.map(|load| load.id),
            ..Outcome::default()
        }
    }

    /// No more rows of the batch are refused.
    pub(crate) fn close(&mut self, outcome: &mut Outcome) {
        keep_one_a_key(&mut outcome.rejects);
        outcome.counts.rejected = outcome.rejects.len() as u64;
        keep_unrejected(&mut outcome.closed, &outcome.rejects);
        self.last.clone_from(&outcome.rejects);
    }

    pub(super) fn take_last(&mut self) -> Vec<Reject> {
        std::mem::take(&mut self.last)
    }

    /// Beyond the limit it is pointless to look for more. Errs, with what was found so far to be kept: what is
    /// left of the batch has not been written.
    pub(crate) fn stop_beyond_limit(&mut self, outcome: &Outcome) -> Result<()> {
        let found = self.found.count(&outcome.rejects);
        let limit = usize::try_from(outcome.reject_limit).unwrap_or(usize::MAX);
        if found <= limit.saturating_add(self.acknowledged + SHOWN_BEYOND_LIMIT) {
            return Ok(());
        }
        self.last = outcome.rejects.clone();
        Err(Error::reject_limit("too many rejects"))
    }

    /// A backfill reads rows that were refused before: as many may be refused again.
    fn limit_of_backfill(&self, limit: i64) -> i64 {
        limit.max(i64::try_from(self.open.len()).unwrap_or(i64::MAX))
    }

    /// Keys that must stay in the mart, those of the batch included. A key with a NULL is in no mart.
    pub(crate) fn keys(&self, outcome: &Outcome) -> Vec<Vec<String>> {
        let closed: HashSet<String> = outcome.closed.iter().map(Value::to_string).collect();
        let over = |reject: &&OpenReject| {
            closed.contains(&reject.key.to_string()) || (outcome.close_others && reject.load != outcome.load)
        };
        let open = self.open.values().filter(|reject| !over(reject)).map(|reject| &reject.key);
        open.chain(outcome.rejects.iter().map(|reject| &reject.key)).filter_map(texts).collect()
    }

    /// Open rejects whose key has come through this batch, or is gone from the source.
    pub(crate) fn closed_by(&self, batch: &Batch, key: &[String], outcome: &Outcome) -> Result<Vec<Value>> {
        if self.open.is_empty() {
            return Ok(Vec::new());
        }
        let mut closed = self.among(&batch.rows, key)?;
        if let Scope::Keys(keys) = &batch.scope {
            closed.extend(self.within(keys, key)?);
        }
        keep_unrejected(&mut closed, &outcome.rejects);
        closed.dedup();
        Ok(closed)
    }

    /// The same while a load goes on: what readers see is without the others until it has ended.
    pub(crate) fn closed_in_load(
        &self,
        load: Uuid,
        batch: &Batch,
        key: &[String],
        outcome: &Outcome,
    ) -> Result<Vec<Value>> {
        let of_load =
            |key: &Value| self.open.get(&key.to_string()).is_some_and(|open| open.load == Some(load));
        let mut closed = self.closed_by(batch, key, outcome)?;
        closed.retain(of_load);
        Ok(closed)
    }

    /// Those whose change key is in the scope: their rows have come, or are gone.
    fn within(&self, scope: &RecordBatch, key: &[String]) -> Result<Vec<Value>> {
        let columns: Vec<String> = scope.schema().fields().iter().map(|field| field.name().clone()).collect();
        let places: Option<Vec<usize>> =
            columns.iter().map(|name| key.iter().position(|column| column == name)).collect();
        // Of a change key outside of the key nobody can tell whose it is.
        let Some(places) = places else { return Ok(Vec::new()) };
        let scope = (0..scope.num_rows()).map(|row| Ok(key_json(scope, &columns, row)?.to_string()));
        let scope: HashSet<String> = scope.collect::<Result<_>>()?;
        let part = |reject: &&OpenReject| {
            let parts = places.iter().map(|place| reject.key[*place].clone()).collect();
            scope.contains(&Value::Array(parts).to_string())
        };
        Ok(self.open.values().filter(part).map(|reject| reject.key.clone()).collect())
    }

    fn among(&self, rows: &RecordBatch, key: &[String]) -> Result<Vec<Value>> {
        let mut found = Vec::new();
        for row in 0..rows.num_rows() {
            let key = key_json(rows, key, row)?;
            if self.open.contains_key(&key.to_string()) {
                found.push(key);
            }
        }
        Ok(found)
    }

    pub(crate) fn committed(&mut self, outcome: &Outcome) {
        if outcome.close_others {
            self.open.clear();
        }
        for key in &outcome.closed {
            self.open.remove(&key.to_string());
        }
        for reject in &outcome.rejects {
            let new = OpenReject { key: reject.key.clone(), acknowledged: false, load: None };
            self.open.entry(reject.key.to_string()).or_insert(new).load = outcome.load;
        }
        self.acknowledged = self.open.values().filter(|reject| reject.acknowledged).count();
    }
}

impl Found {
    /// How many keys there are among these; those that were counted before come first.
    fn count(&mut self, rejects: &[Reject]) -> usize {
        let new = rejects.get(self.rejects..).unwrap_or_default();
        self.keys.extend(new.iter().map(|reject| reject.key.to_string()));
        self.rejects = rejects.len();
        self.keys.len()
    }
}

/// Keys that came through and of which no row was rejected.
fn keep_unrejected(keys: &mut Vec<Value>, rejects: &[Reject]) {
    let rejected: HashSet<String> = rejects.iter().map(|reject| reject.key.to_string()).collect();
    keys.retain(|key| !rejected.contains(&key.to_string()));
}

fn texts(key: &Value) -> Option<Vec<String>> {
    key.as_array()?.iter().map(|part| part.as_str().map(str::to_owned)).collect()
}

/// Names the first reject by what is wrong with it, never by its values.
pub(super) fn limit_error(rejects: &[Reject], commit: &Commit) -> Error {
    let first = rejects.first().map(|reject| format!("; the first: {} ({})", reject.message, reject.code));
    let message = format!(
        "{} rows of this batch were rejected, and reject_limit is {}{}",
        rejects.len(),
        commit.reject_limit,
        first.unwrap_or_default()
    );
    Error::reject_limit(message)
}

/// Where the limit could not undo what is about to become true: the rejects are kept before, and counted.
pub(crate) async fn check_reject_limit(ledger: &dyn Ledger, lease: &Lease, outcome: &Outcome) -> Result<()> {
    if outcome.rejects.is_empty() {
        return Ok(());
    }
    let open = ledger.keep_rejects(lease, outcome).await?;
    match i64::try_from(open).unwrap_or(i64::MAX) > outcome.reject_limit {
        true => Err(Error::reject_limit("too many rejects")),
        false => Ok(()),
    }
}

/// A key is one reject, however many of its rows were refused.
fn keep_one_a_key(rejects: &mut Vec<Reject>) {
    let mut seen = BTreeSet::new();
    rejects.retain(|reject| seen.insert(reject.key.to_string()));
}
