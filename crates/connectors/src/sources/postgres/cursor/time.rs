//! What a cursor's values can be compared with, and where its next pass starts again.

use jiff::{SignedDuration, Timestamp};
use vitrina_core::{Error, Result};

use super::checkpoint::{Done, Opened, Reached};
use crate::sql::literal;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// timestamptz
    Absolute,
    /// timestamp and date: the writer's zone is unknown, so its clock may be that of any zone.
    Local,
    /// Integers and numeric say nothing of time.
    Number,
}

impl Kind {
    /// Times and numbers grow with new rows; free text and random ids do not.
    pub(super) fn of(column: &str, type_oid: u32, type_name: &str) -> Result<Self> {
        match type_oid {
            1184 => Ok(Self::Absolute),
            1082 | 1114 => Ok(Self::Local),
            20 | 21 | 23 | 1700 => Ok(Self::Number),
            _ => {
                let message = format!("incremental_key {column:?} has type {type_name}");
                Err(Error::fix("pipeline.cursor_type", message).hint(
                    "use a timestamp, timestamptz, date, integer or numeric column that grows with every change",
                ))
            }
        }
    }

    /// Where reading starts again, as SQL of the cursor's type: `late_window` before whichever is earlier, the
    /// greatest cursor of the last pass or its opening. Rows stamped before their commit, or ahead of the clock,
    /// are met again. `None` is the beginning.
    pub(super) fn start(self, done: &Done, reached: &Reached, late_window: SignedDuration) -> Option<String> {
        let bound = reached.bound.as_ref()?;
        let margin = match self {
            Self::Absolute => "interval '0'",
            Self::Local => "interval '14 hours'",
            Self::Number => {
                let opened = window_ago(done.opened_at, &reached.earlier, late_window)?;
                return Some(literal(&opened.bound[0]));
            }
        };
        Some(format!(
            "(least({}::timestamptz, {}::timestamptz - {margin}) - {} * interval '1 second')",
            literal(&bound[0]),
            literal(&done.opened_at.to_string()),
            late_window.as_secs()
        ))
    }

    /// Numbers need the openings of one window, at about ten to the window; times need none.
    pub(super) fn remember(
        self,
        opened_at: Timestamp,
        reached: Reached,
        late_window: SignedDuration,
    ) -> Vec<Opened> {
        let (Self::Number, Some(bound)) = (self, reached.bound) else { return Vec::new() };
        let newest = Opened { bound, opened_at };
        let mut earlier = reached.earlier;
        let step = late_window / 10;
        if earlier.last().is_none_or(|last| newest.opened_at.duration_since(last.opened_at) >= step) {
            earlier.push(newest.clone());
        }
        let old_enough = |pass: &Opened| newest.opened_at.duration_since(pass.opened_at) >= late_window;
        let needed = earlier.iter().rposition(old_enough);
        earlier.split_off(needed.unwrap_or(0))
    }
}

/// The newest pass that opened at least the window before the last completed one did.
fn window_ago(opened_at: Timestamp, earlier: &[Opened], late_window: SignedDuration) -> Option<&Opened> {
    earlier.iter().rev().find(|pass| opened_at.duration_since(pass.opened_at) >= late_window)
}
