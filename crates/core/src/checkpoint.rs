//! How far a pipeline has come. It moves only with the data it speaks of, and by compare-and-set.

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use uuid::Uuid;

use crate::words::words;
use crate::{Deletes, Error, Mode, Result, RowChange, RunId};

/// How far a source has been read: what completed passes established, and the pass that is open.
/// Both are opaque to all but the source that made them.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Position {
    #[serde(default, skip_serializing_if = "Value::is_null")]
    pub done: Value,
    /// Dropped by a cancel; everything else goes on with it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pass: Option<Value>,
    /// The latest moment of the source that rows have come from, also of a pass that was given up.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub seen: Option<u64>,
    /// The target may hold rows that the source does not have: only a load finds those. It stays so until one has come to its end.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub anew: bool,
}

impl Position {
    /// Nothing has been read yet.
    pub fn start() -> Self {
        Self::default()
    }

    pub fn is_start(&self) -> bool {
        Self { anew: false, ..self.clone() } == Self::start()
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

words! {
    /// The same, answered in advance for every change that is still to come.
    OnChange, "on_change" {
        /// A person is asked.
        Ask = "ask",
        Keep = "keep",
        Reset = "reset",
    }
}

impl OnChange {
    pub const fn decision(self) -> Option<Decision> {
        match self {
            Self::Ask => None,
            Self::Keep => Some(Decision::Keep),
            Self::Reset => Some(Decision::Reset),
        }
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
    /// Where the run itself says nothing.
    pub on_change: OnChange,
    pub config_hash: String,
    /// The target's key as it was found there.
    pub key: Vec<String>,
    /// Of the functions that its rows go through.
    pub code: Code,
    /// Of the rows as they are read; empty when unknown.
    pub columns: Vec<String>,
    /// The run continues a load that another run left open, if that was opened at this moment or later.
    pub continues_since: Option<Timestamp>,
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
    /// Of the rows as they were read; empty when unknown.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub columns: Vec<String>,
    /// When the open pass was opened, by the meta-store's clock; whoever goes on with it keeps that.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub opened_at: Option<Timestamp>,
    /// The run that opened the open pass, or continued it last.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub opened_by: Option<RunId>,
    /// When the last completed pass was opened: what the source had committed before is in the target.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub as_of: Option<Timestamp>,
    /// The open load, as the sink began it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub load: Option<Load>,
    /// What was deleted from the target of late. A person who changes the checkpoint consents to it; a run that
    /// decides to keep it does not.
    #[serde(flatten)]
    pub deletes: Deletes,
    /// The run whose last batch ended the pass: whoever takes that run over has nothing left to read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub completed_by: Option<RunId>,
    /// The run whose decision about the checkpoint was carried out: it is not carried out twice.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub decided_by: Option<RunId>,
    /// Written by a person's will and not yet known beside the target: it counts, whatever stands there.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub edited: bool,
    /// The target was one that a crash of its server empties, whatever it is by now.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub unlogged: bool,
    /// The table that its rows are in: another one of the same name may hold none of them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mart: Option<MartTable>,
    /// The last batch left rows of this pipeline in a mart: where there are none, somebody has emptied it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub filled: bool,
}

/// A table as its server numbers it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct MartTable {
    pub database: u32,
    pub table: u32,
}

impl Checkpoint {
    /// The rows that were written are in another table. In a database that was restored elsewhere every table has another number:
    /// that counts only where everything is read again anyway.
    pub fn is_in_another_table(&self, now: MartTable) -> bool {
        self.mart.is_some_and(|before| match self.position.is_start() {
            true => now != before,
            false => now.database == before.database && now.table != before.table,
        })
    }

    /// Where a run goes on. A position of another query or key says nothing about these rows: a run that
    /// builds on it asks first, one that reads everything anyway begins anew.
    pub fn resume(self, by: &Resumption) -> Result<Self> {
        self.require_key(by)?;
        if let Some(decision) = by.decision.filter(|_| self.decided_by != Some(by.run)) {
            return Ok(self.decide(decision, by));
        }
        let asked = match self.is_of_another(&by.config_hash, &by.key) {
            true if self.has_other_key(&by.key) => Err(Error::key_changed(&self.key, &by.key)),
            true => Err(Error::config_changed()),
            false => self.require_code(&by.code).and_then(|()| self.require_columns(&by.columns)),
        };
        match (asked, by.mode) {
            (Ok(()), _) => Ok(self.without_load_of_another_run(by).under(by)),
            (Err(_), Mode::Full) => {
                let (decided_by, deletes) = (self.decided_by, self.deletes.clone());
                Ok(Self { decided_by, deletes, ..self.start() }.under(by))
            }
            (Err(asked), Mode::Incremental) => match by.on_change.decision() {
                Some(decision) => Ok(self.decide(decision, by)),
                None => Err(asked),
            },
        }
    }

    /// What another run has loaded shows its source as it was then, and the rest would show it as it is now: rows that changed
    /// or left meanwhile would be wrong in a load that succeeds. An open incremental pass has no such limit: it deletes only
    /// what it has read, and what changes behind its position is read by the next pass.
    fn without_load_of_another_run(self, by: &Resumption) -> Self {
        let is_load = self.load.is_some() || by.mode == Mode::Full;
        let is_open = self.position.pass.is_some();
        let is_own = self.opened_by == Some(by.run);
        let is_continued = by.continues_since.is_some_and(|since| self.opened_at >= Some(since));
        match is_load && is_open && !is_own && !is_continued {
            true => self.without_pass(),
            false => self,
        }
    }

    /// Rows under another key are other rows: those that are there would stay beside them. So a checkpoint is not kept
    /// for a target with this key.
    pub fn refuse_to_keep(&self, decision: Option<Decision>, key: &[String]) -> Option<Error> {
        let refused =
            decision == Some(Decision::Keep) && self.has_other_key(key) && !self.position.is_start();
        refused.then(|| Error::key_changed(&self.key, key))
    }

    fn require_key(&self, by: &Resumption) -> Result<()> {
        let decision = by.decision.or_else(|| by.on_change.decision());
        let is_new = by.mode == Mode::Incremental && self.decided_by != Some(by.run);
        self.refuse_to_keep(decision.filter(|_| is_new), &by.key).map_or(Ok(()), Err)
    }

    /// An empty one is unknown.
    fn has_other_key(&self, key: &[String]) -> bool {
        !self.key.is_empty() && !key.is_empty() && self.key != key
    }

    /// Rows of the target would depend on which code happened to write them.
    pub fn require_code(&self, code: &Code) -> Result<()> {
        let changed: Vec<&str> = self
            .code
            .iter()
            .filter(|(name, version)| code.get(*name).is_some_and(|now| now != *version))
            .map(|(name, _)| name.as_str())
            .collect();
        match changed.is_empty() || self.position.is_start() {
            true => Ok(()),
            false => Err(Error::code_changed(&changed)),
        }
    }

    /// A query may bring more columns though nobody has changed it, by `*`: rows that were read before lack them in the target.
    fn require_columns(&self, columns: &[String]) -> Result<()> {
        let is_new = |column: &&String| !self.columns.contains(column);
        let new: Vec<&str> = columns.iter().filter(is_new).map(String::as_str).collect();
        match new.is_empty() || self.columns.is_empty() || self.position.is_start() {
            true => Ok(()),
            false => Err(Error::columns_added(&new)),
        }
    }

    /// Made under another configuration. An empty hash or key is unknown, and where nothing has been read
    /// there is nothing to ask about.
    pub fn is_of_another(&self, config_hash: &str, key: &[String]) -> bool {
        let other_hash = !self.config_hash.is_empty() && self.config_hash != config_hash;
        (other_hash || self.has_other_key(key)) && !self.position.is_start()
    }

    /// As a person writes it. It is theirs whatever was there; a decision of a run is not carried out again.
    /// Nobody can vouch for what the target holds until the next pass has ended.
    #[must_use]
    pub fn edit(&self, position: Position) -> Self {
        let position = Position { anew: self.position.anew, ..position };
        Self { position, edited: true, as_of: None, deletes: Deletes::default(), ..self.without_pass() }
    }

    /// The start, under whichever configuration comes next.
    #[must_use]
    pub fn reset(&self) -> Self {
        Self { decided_by: self.decided_by, edited: true, ..self.start() }
    }

    /// The same for a table that holds what somebody else has left there.
    #[must_use]
    pub fn load_anew(&self, mart: Option<MartTable>) -> Self {
        let position = Position { anew: true, ..Position::start() };
        Self { position, mart, ..self.reset() }
    }

    /// Nothing has been read yet. What the target holds is as it was: rows under this key, in this table. If there may be any, some
    /// may have left the source since, which a pass behind a cursor would not notice.
    #[must_use]
    pub fn start(&self) -> Self {
        let anew = self.position.anew || !self.position.is_start();
        let position = Position { anew, ..Position::start() };
        Self { position, key: self.key.clone(), mart: self.mart, ..Self::default() }
    }

    /// What was there before, with the configuration it was made under.
    #[must_use]
    pub fn restore(&self, earlier: &Self) -> Self {
        let (decided_by, earlier) = (self.decided_by, earlier.without_pass());
        let (mart, filled) = (self.mart, self.filled);
        let position = Position { anew: self.position.anew, ..earlier.position.clone() };
        Self { position, decided_by, edited: true, deletes: Deletes::default(), mart, filled, ..earlier }
    }

    /// A person has decided what it is worth under a configuration that they have just changed.
    #[must_use]
    pub fn decided(&self, decision: Decision, config_hash: String) -> Self {
        match decision {
            // Those that the query brings by then are asked about no more.
            Decision::Keep => Self { config_hash, edited: true, columns: Vec::new(), ..self.without_pass() },
            Decision::Reset => self.reset(),
        }
    }

    fn decide(&self, decision: Decision, by: &Resumption) -> Self {
        let decided = match decision {
            Decision::Keep => self.without_pass(),
            Decision::Reset => self.start(),
        };
        Self { decided_by: Some(by.run), edited: true, ..decided.under(by) }
    }

    fn under(self, by: &Resumption) -> Self {
        // Of the rows that are there under another key, a pass from the start deletes none.
        let anew = self.position.anew || (self.position.is_start() && self.has_other_key(&by.key));
        // Those that nobody could tell this time are as they were.
        let columns = if by.columns.is_empty() { self.columns } else { by.columns.clone() };
        Self {
            config_hash: by.config_hash.clone(),
            key: by.key.clone(),
            code: by.code.clone(),
            columns,
            position: Position { anew, ..self.position },
            ..self
        }
    }

    /// Before `run` reads anything: a new pass is opened `now`, one that was left open keeps its opening.
    #[must_use]
    pub fn open_pass(self, run: RunId, now: Timestamp) -> Self {
        let opened_at = self.position.pass.as_ref().map_or(Some(now), |_| self.opened_at);
        Self { opened_at, opened_by: Some(run), ..self }
    }

    /// The checkpoint after a batch of `run` that led to `position` and changed the number of the target's rows.
    #[must_use]
    pub fn advance(&self, run: RunId, position: Position, change: RowChange, now: Timestamp) -> Self {
        let deletes = self.deletes.add(change);
        let next = Self { position, deletes, ..self.without_pass() };
        if next.position.pass.is_none() {
            let deletes = next.deletes.complete(now);
            let as_of = self.opened_at.or(self.as_of);
            return Self { completed_by: Some(run), as_of, deletes, ..next };
        }
        let (load, opened_at, opened_by) = (self.load, self.opened_at, self.opened_by);
        Self { load, opened_at, opened_by, ..next }
    }

    /// The same without its open pass: what completed passes established is kept, and what the open one has deleted.
    #[must_use]
    pub fn without_pass(&self) -> Self {
        Self {
            position: Position { pass: None, ..self.position.clone() },
            config_hash: self.config_hash.clone(),
            key: self.key.clone(),
            code: self.code.clone(),
            columns: self.columns.clone(),
            as_of: self.as_of,
            decided_by: self.decided_by,
            deletes: self.deletes.clone(),
            unlogged: self.unlogged,
            mart: self.mart,
            filled: self.filled,
            ..Self::default()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn halfway() -> Position {
        Position { pass: Some(json!({"position": ["7"]})), ..Position::default() }
    }

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    /// By a batch, of nine rows.
    fn deleting(deleted: u64) -> RowChange {
        RowChange { deleted, inserted: 0, rows_before: Some(9) }
    }

    fn deleted(rows: u64) -> Deletes {
        Deletes::default().add(deleting(rows))
    }

    fn established() -> Checkpoint {
        let position = Position { done: json!({"bound": ["5"]}), ..halfway() };
        Checkpoint {
            position,
            config_hash: "a".into(),
            key: vec!["id".into()],
            deletes: deleted(3),
            ..Checkpoint::default()
        }
    }

    fn run(mode: Mode, decision: Option<Decision>, config_hash: &str, key: &str) -> Resumption {
        let key = vec![key.to_owned()];
        let config_hash = config_hash.into();
        let run = RunId(Uuid::max());
        Resumption {
            run,
            mode,
            decision,
            on_change: OnChange::Ask,
            config_hash,
            key,
            code: Code::new(),
            columns: Vec::new(),
            continues_since: None,
        }
    }

    #[test]
    fn a_run_goes_on_only_under_the_configuration_of_its_checkpoint() {
        let goes_on = established().resume(&run(Mode::Incremental, None, "a", "id"));
        assert_eq!(goes_on.unwrap(), established());
        for (hash, key, code) in [("b", "id", "config_changed"), ("a", "film_id", "key_changed")] {
            let asks = established().resume(&run(Mode::Incremental, None, hash, key)).unwrap_err();
            assert_eq!(asks.code, format!("checkpoint.{code}"));
            let anew = established().resume(&run(Mode::Full, None, hash, key)).unwrap();
            assert!(anew.position.is_start() && anew.position.anew, "{key}: {:?}", anew.position);
            assert_eq!((anew.config_hash.as_str(), anew.deletes), (hash, deleted(3)));
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
        assert!(anew.position.is_start() && anew.position.anew);
        assert_eq!(anew.code["slug"], "2");
        let keep = Resumption { decision: Some(Decision::Keep), ..by(Mode::Incremental, "2") };
        let kept = made.resume(&keep).unwrap();
        assert_eq!((kept.position.done, kept.code), (established().position.done, keep.code));
    }

    #[test]
    fn a_query_that_brings_more_columns_than_before_asks_and_one_with_fewer_does_not() {
        let by = |columns: &[&str]| Resumption {
            columns: columns.iter().map(|name| (*name).to_owned()).collect(),
            ..run(Mode::Incremental, None, "a", "id")
        };
        let made = established().resume(&by(&["id", "title"])).unwrap();
        assert_eq!(made.clone().resume(&by(&["title", "id"])).unwrap().columns, ["title", "id"]);
        assert_eq!(made.clone().resume(&by(&[])).unwrap().columns, ["id", "title"], "nobody could tell");
        made.clone().resume(&by(&["id"])).unwrap();
        let asked = made.clone().resume(&by(&["id", "title", "year"])).unwrap_err();
        assert!(asked.code == "checkpoint.columns_added" && asked.to_string().contains("year"), "{asked}");
        let kept = Resumption { decision: Some(Decision::Keep), ..by(&["id", "title", "year"]) };
        made.clone().resume(&kept).unwrap().resume(&by(&["id", "title", "year"])).unwrap();
        let decided = made.decided(Decision::Keep, "a".to_owned());
        decided.resume(&by(&["id", "title", "year"])).expect("it came with the change that brings them");
    }

    #[test]
    fn a_checkpoint_is_not_kept_for_rows_under_another_key() {
        let keep = |mode, key| run(mode, Some(Decision::Keep), "b", key);
        let refused = established().resume(&keep(Mode::Incremental, "film_id")).unwrap_err();
        assert!(
            refused.code == "checkpoint.key_changed" && refused.to_string().contains("(film_id)"),
            "{refused}"
        );
        let same = established().resume(&keep(Mode::Incremental, "id")).unwrap();
        assert!(!same.position.is_start() && !same.position.anew);
        established().resume(&keep(Mode::Full, "film_id")).unwrap();
        established().reset().resume(&keep(Mode::Incremental, "film_id")).expect("there is nothing to keep");
    }

    #[test]
    fn rows_under_another_key_are_loaded_anew_whoever_has_reset_the_checkpoint() {
        let other = run(Mode::Incremental, Some(Decision::Reset), "b", "film_id");
        let always = Resumption { decision: None, on_change: OnChange::Reset, ..other.clone() };
        let asked = Resumption { decision: None, ..other.clone() };
        let decided = established().decided(Decision::Reset, "b".to_owned());
        for anew in [
            established().resume(&other).unwrap(),
            established().resume(&always).unwrap(),
            established().reset().resume(&asked).unwrap(),
            decided.resume(&asked).unwrap(),
        ] {
            assert_eq!(anew.position, Position { anew: true, ..Position::start() });
            assert!(anew.position.is_start());
        }
    }

    #[test]
    fn whoever_edits_a_checkpoint_says_nothing_of_the_table_that_its_rows_are_in() {
        let table = MartTable { database: 1, table: 2 };
        let mart = Some(table);
        let known = Checkpoint { mart, filled: true, ..established() };
        for edited in [known.edit(halfway()), known.restore(&established())] {
            assert_eq!((edited.mart, edited.filled), (mart, true));
        }
        let in_another = |checkpoint: &Checkpoint, database| {
            checkpoint.is_in_another_table(MartTable { database, table: 3 })
        };
        assert!(in_another(&known, 1) && !in_another(&known, 2), "it may have been restored there");
        assert!(in_another(&known.reset(), 2));
        assert!(!known.is_in_another_table(table) && !Checkpoint::default().is_in_another_table(table));
    }

    #[test]
    fn a_target_that_has_to_be_loaded_anew_has_to_be_until_a_load_has_come_to_its_end() {
        let reset = run(Mode::Incremental, Some(Decision::Reset), "a", "id");
        let full = run(Mode::Full, None, "b", "id");
        let anew = established().load_anew(None);
        let read = Checkpoint { config_hash: "a".into(), ..anew.restore(&established()) };
        for left in [
            anew.reset(),
            anew.edit(halfway()),
            anew.restore(&established()),
            anew.decided(Decision::Reset, "a".into()),
            anew.decided(Decision::Keep, "a".into()),
            anew.clone().resume(&reset).unwrap(),
            read.clone().resume(&reset).unwrap(),
            read.resume(&full).unwrap(),
        ] {
            assert!(left.position.anew, "{left:?}");
            assert!(left.without_pass().position.anew);
        }
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
        assert_eq!(kept.position, Position { done: json!({"bound": ["5"]}), ..Position::default() });
        assert_eq!(kept.deletes, deleted(3), "which says nothing of deletes");
        let reset = run(Mode::Incremental, Some(Decision::Reset), "a", "id");
        let anew = established().resume(&reset).unwrap();
        let start = Position { anew: true, ..Position::start() };
        assert_eq!((&anew.position, &anew.deletes), (&start, &Deletes::default()));
        let further = anew.advance(reset.run, halfway(), RowChange::default(), at(0));
        assert_eq!(further.clone().resume(&reset).unwrap(), further, "a takeover goes on");
        assert!(!further.edited);
    }

    #[test]
    fn deletes_are_counted_until_a_pass_ends_whatever_becomes_of_this_one() {
        let run = RunId(uuid::Uuid::nil());
        let opened = Checkpoint::default().advance(run, halfway(), deleting(2), at(0));
        let dropped = opened.without_pass().advance(run, halfway(), deleting(3), at(1));
        let counted = (dropped.deletes.deleted, dropped.deletes.rows_before, dropped.completed_by);
        assert_eq!(counted, (5, Some(9), None));
        let ended = dropped.advance(run, Position::start(), deleting(1), at(2));
        let counted = (ended.deletes.deleted, ended.deletes.rows_before, ended.completed_by);
        assert_eq!(counted, (0, None, Some(run)));
        for consented in [dropped.reset(), dropped.edit(Position::start()), dropped.restore(&dropped)] {
            assert_eq!(consented.deletes, Deletes::default());
        }
    }

    #[test]
    fn the_watermark_is_the_opening_of_the_last_completed_pass() {
        let run = RunId(Uuid::nil());
        let none = RowChange::default();
        let open = Checkpoint::default().open_pass(run, at(1)).advance(run, halfway(), none, at(4));
        assert_eq!((open.opened_at, open.as_of), (Some(at(1)), None));
        let resumed = open.open_pass(run, at(2));
        assert_eq!(resumed.opened_at, Some(at(1)), "a pass that is gone on with keeps its opening");
        let ended = resumed.advance(run, Position::start(), none, at(4));
        assert_eq!((ended.opened_at, ended.as_of), (None, Some(at(1))));
        let next = ended.open_pass(run, at(3)).advance(run, halfway(), none, at(4));
        assert_eq!((next.opened_at, next.as_of), (Some(at(3)), Some(at(1))));
        assert_eq!((next.without_pass().opened_at, next.without_pass().as_of), (None, Some(at(1))));
        assert_eq!((next.edit(Position::start()).as_of, next.reset().as_of), (None, None));
    }

    #[test]
    fn a_load_of_another_run_is_continued_only_by_a_run_that_resumes_it_in_time() {
        let (first, by) = (RunId(Uuid::nil()), run(Mode::Full, None, "a", "id"));
        let unread = Checkpoint { position: Position::default(), ..established() };
        let left = unread.open_pass(first, at(5)).advance(first, halfway(), RowChange::default(), at(6));
        assert_eq!((left.opened_by, left.opened_at), (Some(first), Some(at(5))));
        let anew = left.clone().resume(&by).unwrap();
        assert_eq!((anew.position.pass, anew.opened_by), (None, None));
        let same_run = left.clone().resume(&Resumption { run: first, ..by.clone() }).unwrap();
        assert_eq!(same_run.position, left.position);
        for (since, continues) in [(5, true), (6, false)] {
            let asked = Resumption { continues_since: Some(at(since)), ..by.clone() };
            assert_eq!(left.clone().resume(&asked).unwrap().position.pass.is_some(), continues, "{since}");
        }
        let incremental = Resumption { mode: Mode::Incremental, ..by };
        assert_eq!(left.clone().resume(&incremental).unwrap().position, left.position, "no load is open");
        let load = Checkpoint { load: Some(Load::begin(LoadPath::Staged)), ..left };
        assert_eq!(load.resume(&incremental).unwrap().position.pass, None);
    }

    #[test]
    fn a_checkpoint_nobody_has_written_reads_as_the_start() {
        let checkpoint: Checkpoint = serde_json::from_value(json!({})).unwrap();
        assert_eq!(checkpoint, Checkpoint::default());
    }
}
