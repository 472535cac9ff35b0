//! How far a pipeline has come. It moves only with the data it speaks of, and by compare-and-set.

use serde::{Deserialize, Serialize};
use serde_json::Value;
use uuid::Uuid;

use crate::RunId;
use crate::words::words;

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
}

/// The content of `etl_state.checkpoint`: a position, and the configuration it was made under.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Checkpoint {
    #[serde(default)]
    pub position: Position,
    /// Hash of all that decides what a position means; empty before the first batch.
    #[serde(default)]
    pub config_hash: String,
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
}

impl Checkpoint {
    /// Where to go on under this configuration. A position of another query or key means nothing
    /// here: reading again from the start is slow, skipping rows is wrong.
    pub fn resume(self, config_hash: &str) -> Self {
        if self.config_hash == config_hash {
            return self;
        }
        Self { config_hash: config_hash.to_owned(), ..Self::default() }
    }

    /// The checkpoint after a batch of `run` that led to `position` and deleted this many rows.
    #[must_use]
    pub fn advance(&self, run: RunId, position: Position, deleted: u64, rows_before: Option<u64>) -> Self {
        let config_hash = self.config_hash.clone();
        if position.pass.is_none() {
            return Self { position, config_hash, completed_by: Some(run), ..Self::default() };
        }
        let (deleted, load) = (self.deleted + deleted, self.load);
        Self { position, config_hash, load, deleted, rows_before, completed_by: None }
    }

    /// The same without its open pass: what completed passes established is kept.
    #[must_use]
    pub fn without_pass(&self) -> Self {
        let position = Position { done: self.position.done.clone(), pass: None };
        Self { position, config_hash: self.config_hash.clone(), ..Self::default() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn halfway() -> Position {
        Position { done: Value::Null, pass: Some(json!({"position": ["7"]})) }
    }

    #[test]
    fn a_position_of_another_configuration_is_not_resumed() {
        let checkpoint =
            Checkpoint { position: halfway(), config_hash: "a".into(), deleted: 3, ..Checkpoint::default() };
        assert_eq!(checkpoint.clone().resume("a"), checkpoint);
        assert_eq!(checkpoint.resume("b").position, Position::start());
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
    fn a_checkpoint_nobody_has_written_reads_as_the_start() {
        let checkpoint: Checkpoint = serde_json::from_value(json!({})).unwrap();
        assert_eq!(checkpoint, Checkpoint::default());
    }
}
