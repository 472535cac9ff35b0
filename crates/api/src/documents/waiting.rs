//! Why a pipeline or a reconcile waits.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// Why nobody executes the open run of a pipeline, or requests one that is due.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct Waiting {
    /// Stable, for programs: `runner.none`, `runner.no_connection`, `runner.no_function`, `runner.busy`,
    /// `runner.not_claiming`, `schedule.late`, or the error code that the run was given back with.
    #[schema(example = "runner.no_connection")]
    pub(super) code: String,
    /// For people; may end with a line `hint: …`.
    pub message: String,
    /// Since when nobody executes it.
    pub since: Timestamp,
    /// When a run that was given back is tried again.
    pub until: Option<Timestamp>,
    /// How often in a row it was given back.
    pub releases: u32,
}

impl Waiting {
    /// What there is to say, and what to do about it.
    pub fn parts(&self) -> (&str, Option<&str>) {
        match self.message.split_once("\nhint: ") {
            Some((detail, hint)) => (detail, Some(hint)),
            None => (&self.message, None),
        }
    }
}

impl From<vitrina_store::Waiting> for Waiting {
    fn from(found: vitrina_store::Waiting) -> Self {
        let vitrina_store::Waiting { code, message, since, until, releases } = found;
        Self { code, message, since, until, releases }
    }
}

/// Why no runner that is alive can take a reconcile.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct Untakeable {
    /// Stable, for programs: `runner.none`, `runner.no_connection` or `runner.no_function`.
    #[schema(example = "runner.none")]
    pub code: String,
    /// For people; ends with a line `hint: …`.
    pub message: String,
}

impl From<vitrina_store::Untakeable> for Untakeable {
    fn from(found: vitrina_store::Untakeable) -> Self {
        let vitrina_store::Untakeable { code, message } = found;
        Self { code, message }
    }
}
