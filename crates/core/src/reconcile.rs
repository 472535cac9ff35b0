//! What a comparison of a target with its source can ask and answer (R-REC-1).

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::words::words;

words! {
    /// How closely the two sides are compared.
    Level, "level" {
        /// Rows, and the smallest and greatest key and cursor.
        Count = "count",
        /// Checksums of all rows, and what differs by its kind.
        Hash = "hash",
        /// The same, and every difference is kept with its columns.
        Rows = "rows",
    }
}

words! {
    /// What a comparison comes to.
    Verdict, "verdict" {
        Equal = "equal",
        /// Rows differ that no run would write by itself.
        Differs = "differs",
        /// All that differs is on its way: the next run writes it.
        Stale = "stale",
    }
}

words! {
    /// How a row differs, seen from the target.
    DifferenceKind, "kind of difference" {
        /// The source has it, the target does not.
        Missing = "missing",
        /// The target has it, the source does not.
        Extra = "extra",
        Different = "different",
    }
}

/// One row that differs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Difference {
    pub kind: DifferenceKind,
    /// JSON array of the key columns' values in Postgres text form.
    pub key: Value,
    /// The columns that differ, where both sides have the row.
    pub columns: BTreeMap<String, Cells>,
}

/// The values of one column on both sides, as text.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Cells {
    pub source: Option<String>,
    pub target: Option<String>,
}

/// One side of a comparison.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SideFigures {
    pub rows: u64,
    /// By column: that of the key and of the cursor.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub min: BTreeMap<String, Option<String>>,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub max: BTreeMap<String, Option<String>>,
    /// When it was looked at, by its own clock.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub as_of: Option<Timestamp>,
}

/// What a comparison has counted.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Figures {
    pub source: SideFigures,
    pub target: SideFigures,
    /// Ranges of keys whose checksums were compared, and how many of them differ.
    pub ranges: u64,
    pub differing_ranges: u64,
    pub missing: u64,
    pub extra: u64,
    pub different: u64,
    /// Differ because they have changed at the source since the checkpoint: the next run writes them.
    pub in_flight: u64,
    /// Rows with an open reject, or as many as this comparison has met that would have one: counted apart, and a target
    /// that lacks one of them differs.
    pub rejected: u64,
    /// Rows that the comparison itself has met and that no row of a target can stand for: without a whole key, or with
    /// values that it cannot hold.
    #[serde(default)]
    pub refused: u64,
    /// More rows differ than were looked at one by one.
    pub capped: bool,
    /// Rows that were read one by one, beside the scan of either side.
    pub rows_read: u64,
    /// The target was compared by what was written to it: what others have changed there since is not seen.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub as_written: bool,
}

impl Figures {
    pub fn differences(&self) -> u64 {
        self.missing + self.extra + self.different
    }

    pub fn count(&mut self, kind: DifferenceKind) {
        match kind {
            DifferenceKind::Missing => self.missing += 1,
            DifferenceKind::Extra => self.extra += 1,
            DifferenceKind::Different => self.different += 1,
        }
    }

    /// By the rows that were compared: those with an open reject are not among them. Where no range differs, no row is on
    /// its way that could account for a row more on one side.
    pub fn verdict(&self) -> Verdict {
        let is_accounted_for = self.differing_ranges > 0 || self.source.rows == self.target.rows;
        match (self.differences() + self.refused, self.in_flight) {
            (0, _) if !is_accounted_for => Verdict::Differs,
            (0, 0) => Verdict::Equal,
            (0, _) => Verdict::Stale,
            _ => Verdict::Differs,
        }
    }
}

/// How far a comparison has come.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReconcileProgress {
    pub stage: ReconcileStage,
    pub done: u64,
    pub total: u64,
}

words! {
    ReconcileStage, "stage" {
        /// Both sides are scanned for their checksums.
        Scan = "scan",
        /// Ranges that differ are read row by row.
        Ranges = "ranges",
        /// Rows that differ are looked at again, and told from those that are on their way.
        Recheck = "recheck",
    }
}

words! {
    /// How far a request for a comparison has come.
    ReconcileStatus, "status" {
        Requested = "REQUESTED",
        Running = "RUNNING",
        Done = "DONE",
        Failed = "FAILED",
        Cancelled = "CANCELLED",
    }
}

words! {
    /// Why it was asked for.
    ReconcileTrigger, "trigger" {
        Manual = "manual",
        Schedule = "schedule",
        /// To prove a repair.
        Repair = "repair",
    }
}

/// What a comparison has found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Findings {
    pub verdict: Verdict,
    pub figures: Figures,
    /// As far as they are kept.
    pub differences: Vec<Difference>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_target_differs_by_what_no_run_would_write_and_is_stale_by_the_rest() {
        let mut figures = Figures::default();
        assert_eq!(figures.verdict(), Verdict::Equal);
        figures.rejected = 2;
        assert_eq!(figures.verdict(), Verdict::Equal);
        assert_eq!(Figures { refused: 1, ..figures.clone() }.verdict(), Verdict::Differs);
        figures.in_flight = 1;
        assert_eq!(figures.verdict(), Verdict::Stale);
        figures.count(DifferenceKind::Extra);
        assert_eq!(figures.verdict(), Verdict::Differs);
        assert_eq!(figures.differences(), 1);
    }

    #[test]
    fn a_target_that_has_a_row_more_than_its_source_and_nothing_that_tells_which_is_not_equal() {
        let mut figures = Figures::default();
        (figures.source.rows, figures.target.rows) = (102, 103);
        assert_eq!(figures.verdict(), Verdict::Differs);
        figures.source.rows = 103;
        assert_eq!(figures.verdict(), Verdict::Equal);
    }
}
