//! What the checkpoint of a cursor says: what completed passes established, and the pass that is open.

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::json;
use vitrina_core::Position;

use crate::sources::postgres::opening::Server;

/// What completed passes established.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct Done {
    pub(super) opened_at: Timestamp,
    #[serde(flatten)]
    pub(super) reached: Reached,
    /// The watched tables, by name.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub(super) watched: BTreeMap<String, Reached>,
    /// The source as it was when the last pass opened: nothing that an earlier transaction wrote is new.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) server: Option<Server>,
}

/// How far one table, or the query, has been read.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct Reached {
    /// The greatest cursor that was visible when the last pass opened.
    pub(super) bound: Option<Vec<String>>,
    /// Earlier passes, oldest first: where a cursor that is no time starts again.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(super) earlier: Vec<Opened>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct Opened {
    pub(super) bound: Vec<String>,
    pub(super) opened_at: Timestamp,
}

/// The open pass. `done` stays as it was until the pass ends, and says where its reading began.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct Pass {
    kind: String,
    pub(super) opened_at: Timestamp,
    #[serde(default)]
    pub(super) server: Option<Server>,
    /// In what was read before, only rows of this transaction and later ones can be new.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) since: Option<u64>,
    #[serde(flatten)]
    pub(super) way: Way,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub(super) watched: BTreeMap<String, Way>,
}

/// The way that a pass goes through one table, or the query.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub(super) struct Way {
    pub(super) bound: Option<Vec<String>>,
    #[serde(default)]
    pub(super) position: Option<Vec<String>>,
    /// All that was read before has been looked at: the position is behind it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(super) above: bool,
    #[serde(default)]
    pub(super) finished: bool,
}

const KIND: &str = "cursor";

impl Done {
    pub(super) fn of(position: &Position) -> Option<Self> {
        serde_json::from_value(position.done.clone()).ok()
    }
}

impl Pass {
    pub(super) fn new(opened: Done, since: Option<u64>, first: bool) -> Self {
        let way = |reached: Reached| Way { bound: reached.bound, ..Way::default() };
        // The first pass reads all rows there are, whatever else has changed.
        let watch = |reached: Reached| Way { finished: first, ..way(reached) };
        let watched = opened.watched.into_iter().map(|(table, reached)| (table, watch(reached)));
        Self {
            kind: KIND.to_owned(),
            opened_at: opened.opened_at,
            server: opened.server,
            since,
            way: way(opened.reached),
            watched: watched.collect(),
        }
    }

    /// The pass that a checkpoint left open, if a cursor has left it.
    pub(super) fn of(position: &Position) -> Option<Self> {
        let pass = position.pass.clone().and_then(|pass| serde_json::from_value::<Self>(pass).ok());
        pass.filter(|pass| pass.kind == KIND)
    }

    pub(super) fn is_finished(&self) -> bool {
        self.way.finished && self.watched.values().all(|way| way.finished)
    }

    pub(super) fn halfway(&self, from: &Position) -> Position {
        Position { pass: Some(json!(self)), ..from.clone() }
    }
}
