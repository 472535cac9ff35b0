//! Proof that a runner owns a pipeline. Every write names it, and rolls back when it no longer holds.

use std::fmt;

use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::PipelineId;

/// Grows with every claim of a pipeline; the greatest one is the only one that may write.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct LeaseToken(pub i64);

impl fmt::Display for LeaseToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// Drawn at random for every claim, so that equal tokens of a restored meta-store still differ.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Owner(pub Uuid);

impl Owner {
    pub fn draw() -> Self {
        Self(Uuid::new_v4())
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Lease {
    pub pipeline: PipelineId,
    pub owner: Owner,
    pub token: LeaseToken,
}

impl Lease {
    /// Names the sessions that work under this lease, so that a takeover can end them.
    /// Postgres cuts names at 63 bytes and loses Cyrillic: ids only.
    pub fn application_name(&self) -> String {
        format!("vitrina/{}/{}", self.pipeline, self.token)
    }
}
