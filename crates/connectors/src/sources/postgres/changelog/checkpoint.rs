//! What the checkpoint of a change log says: the snapshot that has been read up to, and the window that is open.

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use vitrina_core::Position;

use crate::sources::postgres::origins::Origins;

/// The source at one moment: all that is visible in the snapshot has been read.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Moment {
    pub(super) kind: Kind,
    pub(super) snapshot: Snapshot,
    pub(super) opened_at: Timestamp,
    /// The server and its history.
    pub(super) server: String,
    /// The oid of the database: a server may have a copy of it beside it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) database: Option<u32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) origins: Option<Origins>,
    /// The triggers that log, by source: others may have missed something.
    pub(super) triggers: BTreeMap<String, String>,
    /// The source's last word to this consumer.
    pub(super) receipt: i64,
}

/// Tells a position of the change log from all others.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Kind {
    #[default]
    Changelog,
}

/// The window that is being read.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct Pass {
    kind: Kind,
    pub(super) upto: Moment,
    /// Which of the logged tables is being read.
    #[serde(default)]
    pub(super) at: usize,
    pub(super) position: Option<Vec<String>>,
}

/// `xmin:xmax:xip,…`
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub(super) struct Snapshot {
    pub(super) text: String,
    pub(super) xmin: u64,
    pub(super) xmax: u64,
    pub(super) running: Vec<u64>,
}

impl Moment {
    pub(super) fn new(
        snapshot: Snapshot,
        opened_at: Timestamp,
        server: String,
        database: u32,
        triggers: BTreeMap<String, String>,
    ) -> Self {
        let database = Some(database);
        Self {
            kind: Kind::Changelog,
            snapshot,
            opened_at,
            server,
            database,
            origins: None,
            triggers,
            receipt: 0,
        }
    }

    pub(super) fn of(position: &Position) -> Option<Self> {
        serde_json::from_value(position.done.clone()).ok()
    }
}

impl Pass {
    pub(super) fn new(upto: Moment) -> Self {
        Self { kind: Kind::Changelog, upto, at: 0, position: None }
    }

    pub(super) fn of(position: &Position) -> Option<Self> {
        serde_json::from_value(position.pass.clone()?).ok()
    }
}

impl TryFrom<String> for Snapshot {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        let unreadable = || format!("{text:?} is no snapshot");
        let number = |part: &str| part.parse::<u64>().map_err(|_| unreadable());
        let [xmin, xmax, running] = text.split(':').collect::<Vec<_>>()[..] else { return Err(unreadable()) };
        let running =
            running.split(',').filter(|part| !part.is_empty()).map(number).collect::<Result<_, _>>()?;
        let (xmin, xmax) = (number(xmin)?, number(xmax)?);
        Ok(Self { xmin, xmax, running, text })
    }
}

impl From<Snapshot> for String {
    fn from(snapshot: Snapshot) -> Self {
        snapshot.text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_snapshot_is_read_from_its_text() {
        let snapshot = Snapshot::try_from("10:20:10,14,15".to_owned()).unwrap();
        assert_eq!((snapshot.xmin, snapshot.xmax, snapshot.running), (10, 20, vec![10, 14, 15]));
        assert_eq!(Snapshot::try_from("10:10:".to_owned()).unwrap().running, Vec::<u64>::new());
        assert!(Snapshot::try_from("10".to_owned()).is_err());
    }

    #[test]
    fn a_position_of_a_cursor_is_none_of_a_change_log() {
        let cursor = serde_json::json!({"bound": ["1"], "opened_at": "2026-01-01T00:00:00Z"});
        assert_eq!(Moment::of(&Position { done: cursor, ..Position::default() }), None);
    }
}
