//! What was deleted from a target of late: the delete limit is held against all of it, not against one attempt.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

/// Seconds that one slot of recent deletes stands for.
const SLOT: i64 = 300;
/// Slots that count: an hour, and what is left of the oldest one.
const SLOTS: i64 = 12;

/// Kept with the checkpoint. A pass that completes moves its deletes into the slots of the last hour; one that fails, is
/// cancelled or dropped leaves them where they are.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Deletes {
    /// Rows that were deleted since the last pass that completed, by whichever attempts and runs.
    #[serde(default)]
    pub deleted: u64,
    /// Rows that these attempts have added to the target.
    #[serde(default, skip_serializing_if = "is_zero")]
    inserted: u64,
    /// Rows that the target had before the first of these deletes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rows_before: Option<u64>,
    /// A batch whose deletes were about to be made, and may have been: only a target without transactions has one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    deleting: Option<Deleting>,
    /// Passes that completed within the last hour, oldest first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    recent_deletes: Vec<Slot>,
}

/// Deletes that were announced.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
struct Deleting {
    rows: u64,
    /// Tells whether the same deletes are announced again.
    digest: u64,
}

/// Number of the slot since the epoch, the most rows that the target had before deletes of it, deleted, inserted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
struct Slot(i64, u64, u64, u64);

/// What a batch has done to the number of a target's rows.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct RowChange {
    pub deleted: u64,
    pub inserted: u64,
    /// Rows that the target had before the first deletes that are counted now, where anything was deleted.
    pub rows_before: Option<u64>,
}

/// What the delete limit is held against.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Share {
    pub deletes: u64,
    /// All rows that the target had.
    pub of: u64,
}

impl Share {
    pub fn is_within(&self, limit: f64) -> bool {
        self.deletes == 0 || self.deletes as f64 <= limit * self.of as f64
    }
}

#[allow(clippy::trivially_copy_pass_by_ref)] // as serde calls it
fn is_zero(rows: &u64) -> bool {
    *rows == 0
}

impl Deletes {
    /// The same with the deletes of one more batch, before they are made. Rows that the attempts have brought make no
    /// room for deletes; those that passes of the last hour have brought do, as rows that come and go would soon be more
    /// than the target ever had.
    pub fn share(&self, deleting: u64, rows_before: u64, now: Timestamp) -> Share {
        if deleting == 0 {
            return Share { deletes: 0, of: rows_before };
        }
        let recent = self.recent(now);
        let lost = recent.iter().fold(0, |lost: u64, slot| (lost + slot.2).saturating_sub(slot.3));
        let most = recent.iter().map(|slot| slot.1).max().unwrap_or(0);
        Share { deletes: self.certain() + lost + deleting, of: rows_before.max(most) }
    }

    /// Behind a batch.
    #[must_use]
    pub fn add(&self, change: RowChange) -> Self {
        let rows_before = self.rows_before.or(change.rows_before.filter(|_| change.deleted > 0));
        Self {
            deleted: self.certain() + change.deleted,
            inserted: self.inserted + change.inserted,
            rows_before,
            deleting: None,
            recent_deletes: self.recent_deletes.clone(),
        }
    }

    /// Deletes that are about to be made, `digest` being of their keys. Those that were announced before and are not these
    /// may have been made: they count.
    #[must_use]
    pub fn announce(&self, rows: u64, digest: u64, rows_before: u64) -> Self {
        let rows_before = self.rows_before.or(Some(rows_before));
        let deleting = Some(Deleting { rows, digest });
        Self { deleted: self.certain(), deleting, rows_before, ..self.clone() }
    }

    /// What was announced may have been made.
    fn certain(&self) -> u64 {
        self.deleted + self.deleting.map_or(0, |deleting| deleting.rows)
    }

    /// These very deletes were announced by an attempt before. They count once: how many, or `None`.
    pub fn announced(&self, digest: u64) -> Option<u64> {
        self.deleting.filter(|deleting| deleting.digest == digest).map(|deleting| deleting.rows)
    }

    /// Before a batch that counts what was announced.
    #[must_use]
    pub fn settled(&self) -> Self {
        Self { deleting: None, ..self.clone() }
    }

    /// The pass has completed.
    #[must_use]
    pub fn complete(&self, now: Timestamp) -> Self {
        let mut recent = self.recent(now);
        if self.deleted > 0 || (self.inserted > 0 && !recent.is_empty()) {
            let (number, rows) = (slot(now), self.rows_before.unwrap_or(0));
            match recent.last_mut().filter(|last| last.0 == number) {
                Some(Slot(_, most, deleted, inserted)) => {
                    *most = (*most).max(rows);
                    *deleted += self.deleted;
                    *inserted += self.inserted;
                }
                None => recent.push(Slot(number, rows, self.deleted, self.inserted)),
            }
        }
        Self { recent_deletes: recent, ..Self::default() }
    }

    fn recent(&self, now: Timestamp) -> Vec<Slot> {
        let oldest = slot(now) - SLOTS;
        self.recent_deletes.iter().filter(|slot| slot.0 >= oldest).copied().collect()
    }
}

fn slot(now: Timestamp) -> i64 {
    now.as_second().div_euclid(SLOT)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(minute: i64) -> Timestamp {
        Timestamp::from_second(1_800_000_000 + minute * 60).unwrap()
    }

    fn change(deleted: u64, inserted: u64) -> RowChange {
        RowChange { deleted, inserted, rows_before: Some(1000) }
    }

    fn share(deletes: &Deletes, deleting: u64, minute: i64) -> u64 {
        deletes.share(deleting, 1000, at(minute)).deletes
    }

    #[test]
    fn attempts_add_up_until_a_pass_completes_and_passes_until_an_hour_is_over() {
        let failed = Deletes::default().add(change(100, 50));
        assert_eq!(share(&failed, 1, 0), 101, "what came meanwhile makes no room");
        assert_eq!(share(&failed, 0, 0), 0);
        let passed = failed.add(change(20, 0)).complete(at(0));
        assert_eq!((passed.deleted, share(&passed, 1, 59)), (0, 71), "less what the pass brought");
        assert_eq!(share(&passed, 1, 66), 1, "an hour later");
        let grown = passed.add(change(0, 500)).complete(at(10)).add(change(30, 0)).complete(at(20));
        assert_eq!(share(&grown, 1, 30), 31, "rows that came before make no room for deletes after them");
    }

    #[test]
    fn an_hour_is_kept_in_a_few_slots() {
        let seconds =
            (0..7200).map(|second| at(0).checked_add(jiff::SignedDuration::from_secs(second)).unwrap());
        let busy = seconds.fold(Deletes::default(), |busy, now| busy.add(change(1, 1)).complete(now));
        assert!(busy.recent_deletes.len() <= 13, "{}", busy.recent_deletes.len());
        assert_eq!(share(&busy, 1, 120), 1);
    }

    #[test]
    fn deletes_that_were_announced_count_once_if_they_are_the_same_and_twice_if_they_are_not() {
        let announced = Deletes::default().announce(10, 7, 1000);
        assert_eq!((announced.announced(7), announced.announced(8)), (Some(10), None));
        assert_eq!(share(&announced, 5, 0), 15, "others");
        assert_eq!(announced.add(change(5, 0)).deleted, 15);
        assert_eq!(share(&announced.settled(), 10, 0), 10, "the same");
        assert_eq!(announced.settled().add(change(10, 0)).deleted, 10);
        assert_eq!(announced.announce(5, 8, 1000).deleted, 10);
    }

    #[test]
    fn a_checkpoint_of_an_older_release_counts_its_open_pass() {
        let old: Deletes = serde_json::from_str(r#"{"deleted": 3, "rows_before": 9}"#).unwrap();
        assert_eq!(old, Deletes::default().add(RowChange { deleted: 3, inserted: 0, rows_before: Some(9) }));
    }
}
