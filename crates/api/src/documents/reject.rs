//! Rejects: listed, and chosen to do something about them.

use jiff::Timestamp;
use serde::de::{Deserializer, Error};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use utoipa::ToSchema;
use uuid::Uuid;
use vitrina_core::values::{MASK, masked_document};
use vitrina_store::{RejectChoice, RejectGroup as GroupRecord, RejectRecord};

use super::RunAccepted;
use crate::sight::SeesRows;

/// A page of rejects, and all reasons there are.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub struct Rejects {
    /// Newest first.
    pub items: Vec<Reject>,
    /// Where the next page begins; null on the last one.
    pub next_cursor: Option<String>,
    /// By reason, the most frequent first; whatever page and `code` were asked for.
    pub groups: Vec<RejectGroup>,
}

/// A row that was refused, and whose key has neither succeeded nor left the source since.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub struct Reject {
    /// What it is chosen by; made from its key, and `…` for who may not see rows.
    pub id: String,
    /// The values of the target's key columns in Postgres text form; `…` for who may not see rows.
    #[schema(value_type = Vec<Option<String>>)]
    pub key: Value,
    pub code: String,
    pub message: String,
    /// The row as it was read, for people to look at. Nothing is ever written from here.
    #[schema(value_type = Object)]
    pub row: Value,
    /// The run that met it last.
    pub run_id: Uuid,
    pub rejected_at: Timestamp,
    /// Since then it does not count against the pipeline's `reject_limit`.
    pub acknowledged_at: Option<Timestamp>,
}

impl Reject {
    /// Who may not see rows is shown that there is one, and the names of its columns.
    pub(crate) fn new(record: RejectRecord, SeesRows(sees_rows): SeesRows) -> Self {
        let seen = |document| if sees_rows { document } else { masked_document(document) };
        Self {
            id: if sees_rows { record.key_hash } else { MASK.to_owned() },
            key: seen(record.key),
            code: record.code,
            message: record.message,
            row: seen(record.row),
            run_id: record.run_id.0,
            rejected_at: record.rejected_at,
            acknowledged_at: record.acknowledged_at,
        }
    }
}

/// Rejects that share a reason.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub struct RejectGroup {
    pub code: String,
    pub rejects: i64,
    /// How many of them are acknowledged.
    pub acknowledged: i64,
    pub first_rejected_at: Timestamp,
    pub last_rejected_at: Timestamp,
}

impl From<GroupRecord> for RejectGroup {
    fn from(record: GroupRecord) -> Self {
        let GroupRecord { code, rejects, acknowledged, first_rejected_at, last_rejected_at } = record;
        Self { code, rejects, acknowledged, first_rejected_at, last_rejected_at }
    }
}

/// Which rejects are meant: all of the pipeline's when nothing is given.
#[derive(Debug, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct RejectOrder {
    /// Only those of this reason.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub code: Option<String>,
    /// Only these.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "ids")]
    #[schema(min_items = 1)]
    pub ids: Option<Vec<String>>,
}

/// An empty list would mean none, and is more likely a mistake for all.
fn ids<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Vec<String>>, D::Error> {
    let ids: Option<Vec<String>> = Deserialize::deserialize(deserializer)?;
    match ids.as_ref().is_some_and(Vec::is_empty) {
        true => Err(D::Error::custom("no ids: name at least one, or leave ids out for all rejects")),
        false => Ok(ids),
    }
}

impl From<RejectOrder> for RejectChoice {
    fn from(order: RejectOrder) -> Self {
        Self { code: order.code, keys: order.ids }
    }
}

#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub struct RejectsChanged {
    /// How many they were.
    pub rejects: u64,
}

/// The run that reads the keys of rejects again.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub struct RetryAccepted {
    #[serde(flatten)]
    pub run: RunAccepted,
    /// How many it reads again.
    pub rejects: u64,
    /// Others were chosen too: a run reads at most 10,000 again, the oldest first.
    pub more: bool,
}
