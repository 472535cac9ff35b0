//! How far a pipeline has come. It moves only with the data it speaks of, and by compare-and-set.

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use uuid::Uuid;

use crate::words::words;
use crate::{Error, Mode, Result, RunId};

/// How far a source has been read: what completed passes established, and the pass that is open.
/// Both are opaque to all but the source that made them.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Position {
    #[serde(default, skip_serializing_if = "Value::is_null")]
    pub done: Value,
    /// Dropped by a cancel; everything else goes on with it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pass: Option<Value>,
}

impl Position {
    /// Nothing has been read yet.
    pub fn start() -> Self {
        Self::default()
    }
}

words! {
    /// How the rows of a load reach the mart.
    LoadPath, "path" {
        /// Straight into a mart that was empty when the load began: readers see it grow.
        Direct = "direct",
        /// Into a staging table beside the mart, and from there all at once.
        Staged = "staged",
    }
}

/// A load under way: it outlives runs, pauses and runners.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Load {
    pub id: Uuid,
    pub path: LoadPath,
    /// What it holds so far, where only the checkpoint counts that.
    #[serde(default, skip_serializing_if = "is_none")]
    pub rows: u64,
    /// There is a place for its rows, which may be gone by now.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub made: bool,
}

#[allow(clippy::trivially_copy_pass_by_ref)] // as serde calls it
fn is_none(rows: &u64) -> bool {
    *rows == 0
}

impl Load {
    pub fn begin(path: LoadPath) -> Self {
        Self { id: Uuid::now_v7(), path, rows: 0, made: false }
    }
}

words! {
    /// What a person wants of a checkpoint that was made under another configuration.
    Decision, "checkpoint" {
        /// Go on from what completed passes established.
        Keep = "keep",
        /// Read everything from the start.
        Reset = "reset",
    }
}

/// Versions of Python functions, by their names.
pub type Code = BTreeMap<String, String>;

/// A run that goes on from a checkpoint, and the configuration it works under.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Resumption {
    pub run: RunId,
    pub mode: Mode,
    pub decision: Option<Decision>,
    pub config_hash: String,
    /// The target's key as it was found there.
    pub key: Vec<String>,
    /// Of the functions that its rows go through.
    pub code: Code,
}

/// The content of `etl_state.checkpoint`: a position, and the configuration it was made under.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Checkpoint {
    #[serde(default)]
    pub position: Position,
    /// Hash of all that decides what a position means; empty before the first batch.
    #[serde(default)]
    pub config_hash: String,
    /// The target's key as it was found there; empty when unknown.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub key: Vec<String>,
    /// Of the functions that its rows went through; empty when there are none, or unknown.
    #[serde(default, skip_serializing_if = "Code::is_empty")]
    pub code: Code,
    /// When the open pass was opened, by the meta-store's clock; whoever goes on with it keeps that.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub opened_at: Option<Timestamp>,
    /// When the last completed pass was opened: what the source had committed before is in the target.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub as_of: Option<Timestamp>,
    /// The open load, as the sink began it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub load: Option<Load>,
    /// Rows the open pass has deleted from the target so far.
    #[serde(default)]
    pub deleted: u64,
    /// Rows the target had when the open pass began: what its delete limit is a share of.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rows_before: Option<u64>,
    /// The run whose last batch ended the pass: whoever takes that run over has nothing left to read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub completed_by: Option<RunId>,
    /// The run whose decision about the checkpoint was carried out: it is not carried out twice.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub decided_by: Option<RunId>,
    /// Written by a person's will and not yet known beside the target: it counts, whatever stands there.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub edited: bool,
}

impl Checkpoint {
    /// Where a run goes on. A position of another query or key says nothing about these rows: a run that
    /// builds on it asks first, one that reads everything anyway begins anew.
    pub fn resume(self, by: &Resumption) -> Result<Self> {
        if let Some(decision) = by.decision.filter(|_| self.decided_by != Some(by.run)) {
            return Ok(self.decide(decision, by));
        }
        let asked = match self.is_of_another(&by.config_hash, &by.key) {
            true => Err(Error::config_changed()),
            false => self.require_code(&by.code),
        };
        match (asked, by.mode) {
            (Ok(()), _) => Ok(self.under(by)),
            (Err(_), Mode::Full) => Ok(Self { decided_by: self.decided_by, ..Self::default() }.under(by)),
            (Err(asked), Mode::Incremental) => Err(asked),
        }
    }

    /// Rows of the target would depend on which code happened to write them.
    pub fn require_code(&self, code: &Code) -> Result<()> {
        let changed: Vec<&str> = self
            .code
            .iter()
            .filter(|(name, version)| code.get(*name).is_some_and(|now| now != *version))
            .map(|(name, _)| name.as_str())
            .collect();
        match changed.is_empty() || self.position == Position::start() {
            true => Ok(()),
            false => Err(Error::code_changed(&changed)),
        }
    }

    /// Made under another configuration. An empty hash or key is unknown, and where nothing has been read
    /// there is nothing to ask about.
    pub fn is_of_another(&self, config_hash: &str, key: &[String]) -> bool {
        let other_hash = !self.config_hash.is_empty() && self.config_hash != config_hash;
        let other_key = !self.key.is_empty() && !key.is_empty() && self.key != key;
        (other_hash || other_key) && self.position != Position::start()
    }

    /// As a person writes it. It is theirs whatever was there; a decision of a run is not carried out again.
    /// Nobody can vouch for what the target holds until the next pass has ended.
    #[must_use]
    pub fn edit(&self, position: Position) -> Self {
        Self { position, edited: true, as_of: None, ..self.without_pass() }
    }

    /// The start, under whichever configuration comes next.
    #[must_use]
    pub fn reset(&self) -> Self {
        Self { decided_by: self.decided_by, edited: true, ..Self::default() }
    }

    /// What was there before, with the configuration it was made under.
    #[must_use]
    pub fn restore(&self, earlier: &Self) -> Self {
        Self { decided_by: self.decided_by, edited: true, ..earlier.without_pass() }
    }

    fn decide(&self, decision: Decision, by: &Resumption) -> Self {
        let decided = match decision {
            Decision::Keep => self.without_pass(),
            Decision::Reset => Self::default(),
        };
        Self { decided_by: Some(by.run), edited: true, ..decided.under(by) }
    }

    fn under(self, by: &Resumption) -> Self {
        Self { config_hash: by.config_hash.clone(), key: by.key.clone(), code: by.code.clone(), ..self }
    }

    /// Before anything is read: a new pass is opened `now`, one that was left open keeps its opening.
    #[must_use]
    pub fn open_pass(self, now: Timestamp) -> Self {
        let opened_at = self.position.pass.as_ref().map_or(Some(now), |_| self.opened_at);
        Self { opened_at, ..self }
    }

    /// The checkpoint after a batch of `run` that led to `position` and deleted this many rows.
    #[must_use]
    pub fn advance(&self, run: RunId, position: Position, deleted: u64, rows_before: Option<u64>) -> Self {
        let next = Self { position, ..self.without_pass() };
        if next.position.pass.is_none() {
            return Self { completed_by: Some(run), as_of: self.opened_at.or(self.as_of), ..next };
        }
        let (load, opened_at) = (self.load, self.opened_at);
        Self { load, opened_at, deleted: self.deleted + deleted, rows_before, ..next }
    }

    /// The same without its open pass: what completed passes established is kept.
    #[must_use]
    pub fn without_pass(&self) -> Self {
        Self {
            position: Position { done: self.position.done.clone(), pass: None },
            config_hash: self.config_hash.clone(),
            key: self.key.clone(),
            code: self.code.clone(),
            as_of: self.as_of,
            decided_by: self.decided_by,
            ..Self::default()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn halfway() -> Position {
        Position { done: Value::Null, pass: Some(json!({"position": ["7"]})) }
    }

    fn established() -> Checkpoint {
        let position = Position { done: json!({"bound": ["5"]}), ..halfway() };
        Checkpoint {
            position,
            config_hash: "a".into(),
            key: vec!["id".into()],
            deleted: 3,
            ..Checkpoint::default()
        }
    }

    fn run(mode: Mode, decision: Option<Decision>, config_hash: &str, key: &str) -> Resumption {
        let key = vec![key.to_owned()];
        let config_hash = config_hash.into();
        Resumption { run: RunId(Uuid::max()), mode, decision, config_hash, key, code: Code::new() }
    }

    #[test]
    fn a_run_goes_on_only_under_the_configuration_of_its_checkpoint() {
        let goes_on = established().resume(&run(Mode::Incremental, None, "a", "id"));
        assert_eq!(goes_on.unwrap(), established());
        for (hash, key) in [("b", "id"), ("a", "film_id")] {
            let asks = established().resume(&run(Mode::Incremental, None, hash, key)).unwrap_err();
            assert_eq!(asks.code, "checkpoint.config_changed");
            let anew = established().resume(&run(Mode::Full, None, hash, key)).unwrap();
            assert_eq!(
                (anew.position, anew.config_hash.as_str(), anew.deleted),
                (Position::start(), hash, 0)
            );
        }
    }

    #[test]
    fn a_run_goes_on_only_with_the_code_of_its_checkpoint() {
        let by = |mode, version: &str| {
            let code = Code::from([("slug".to_owned(), version.to_owned())]);
            Resumption { code, ..run(mode, None, "a", "id") }
        };
        let made = established().resume(&by(Mode::Incremental, "1")).unwrap();
        assert_eq!(made.code["slug"], "1", "an older release has kept none");
        assert_eq!(made.clone().resume(&by(Mode::Incremental, "1")).unwrap(), made);
        assert_eq!(made.without_pass().code, made.code);
        let asks = made.clone().resume(&by(Mode::Incremental, "2")).unwrap_err();
        assert!(asks.code == "checkpoint.code_changed" && asks.to_string().contains("slug"), "{asks}");
        let anew = made.clone().resume(&by(Mode::Full, "2")).unwrap();
        assert_eq!((anew.position, anew.code["slug"].as_str()), (Position::start(), "2"));
        let keep = Resumption { decision: Some(Decision::Keep), ..by(Mode::Incremental, "2") };
        let kept = made.resume(&keep).unwrap();
        assert_eq!((kept.position.done, kept.code), (established().position.done, keep.code));
    }

    #[test]
    fn what_is_unknown_or_empty_is_not_different() {
        let old = Checkpoint { key: Vec::new(), ..established() };
        assert_eq!(old.resume(&run(Mode::Incremental, None, "a", "id")).unwrap(), established());
        let unread = Checkpoint { position: Position::start(), ..established() };
        assert_eq!(unread.resume(&run(Mode::Incremental, None, "b", "id")).unwrap().config_hash, "b");
    }

    #[test]
    fn a_decision_is_carried_out_once_a_run() {
        let keep = run(Mode::Incremental, Some(Decision::Keep), "b", "id");
        let kept = established().resume(&keep).unwrap();
        assert_eq!(kept.position, Position { done: json!({"bound": ["5"]}), pass: None });
        let reset = run(Mode::Incremental, Some(Decision::Reset), "a", "id");
        let anew = established().resume(&reset).unwrap();
        assert_eq!((&anew.position, anew.deleted), (&Position::start(), 0));
        let further = anew.advance(reset.run, halfway(), 0, None);
        assert_eq!(further.clone().resume(&reset).unwrap(), further, "a takeover goes on");
        assert!(!further.edited);
    }

    #[test]
    fn deletes_are_counted_until_the_pass_ends() {
        let run = RunId(uuid::Uuid::nil());
        let opened =
            Checkpoint::default().advance(run, halfway(), 2, Some(9)).advance(run, halfway(), 3, Some(9));
        assert_eq!((opened.deleted, opened.rows_before, opened.completed_by), (5, Some(9), None));
        let ended = opened.advance(run, Position::start(), 1, Some(9));
        assert_eq!((ended.deleted, ended.rows_before, ended.completed_by), (0, None, Some(run)));
    }

    #[test]
    fn the_watermark_is_the_opening_of_the_last_completed_pass() {
        let run = RunId(Uuid::nil());
        let at = |second| Timestamp::from_second(second).unwrap();
        let open = Checkpoint::default().open_pass(at(1)).advance(run, halfway(), 0, None);
        assert_eq!((open.opened_at, open.as_of), (Some(at(1)), None));
        let resumed = open.open_pass(at(2));
        assert_eq!(resumed.opened_at, Some(at(1)), "a pass that is gone on with keeps its opening");
        let ended = resumed.advance(run, Position::start(), 0, None);
        assert_eq!((ended.opened_at, ended.as_of), (None, Some(at(1))));
        let next = ended.open_pass(at(3)).advance(run, halfway(), 0, None);
        assert_eq!((next.opened_at, next.as_of), (Some(at(3)), Some(at(1))));
        assert_eq!((next.without_pass().opened_at, next.without_pass().as_of), (None, Some(at(1))));
        assert_eq!((next.edit(Position::start()).as_of, next.reset().as_of), (None, None));
    }

    #[test]
    fn a_checkpoint_nobody_has_written_reads_as_the_start() {
        let checkpoint: Checkpoint = serde_json::from_value(json!({})).unwrap();
        assert_eq!(checkpoint, Checkpoint::default());
    }
}
