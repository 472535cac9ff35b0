//! A backfill reads rows again, and leaves the checkpoint where it is.

use serde::{Deserialize, Serialize};
use serde_json::Value;

/// What a backfill reads again.
#[derive(Debug, Clone, PartialEq)]
pub enum Backfill {
    /// Each a JSON array of the values of the target's key columns.
    Keys(Vec<Value>),
    Range(CursorRange),
}

impl Backfill {
    /// As a run stores it.
    pub fn of(keys: Option<Vec<Value>>, range: Option<CursorRange>) -> Option<Self> {
        keys.map(Self::Keys).or(range.map(Self::Range))
    }

    /// All up to here has been written.
    pub fn go_on_from(&mut self, at: &[String]) {
        if let Self::Range(range) = self {
            range.at = Some(at.to_vec());
        }
    }
}

/// Rows with `from <= incremental_key < to`. Where one end is missing, it is that of the rows there are.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CursorRange {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub from: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub to: Option<String>,
    /// The cursor that all rows have been written up to, so that a run that is paused or dies need not begin anew.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub at: Option<Vec<String>>,
}

impl CursorRange {
    /// However far it has come.
    pub fn is_as_asked(&self, other: &Self) -> bool {
        (&self.from, &self.to) == (&other.from, &other.to)
    }
}
