//! Why a pipeline or a reconcile waits.

use jiff::Timestamp;
use serde::Serialize;
use utoipa::ToSchema;

/// Why nobody executes the open run of a pipeline, or requests one that is due.
#[derive(Debug, Clone, Serialize, ToSchema)]
pub(crate) struct Waiting {
    /// Stable, for programs: `runner.none`, `runner.no_connection`, `runner.no_function`, `runner.busy`,
    /// `runner.not_claiming`, `schedule.late`, or the error code that the run was given back with.
    #[schema(example = "runner.no_connection")]
    pub(super) code: String,
    /// For people; may end with a line `hint: …`.
    message: String,
    /// Since when nobody executes it.
    since: Timestamp,
    /// When a run that was given back is tried again.
    until: Option<Timestamp>,
    /// How often in a row it was given back.
    releases: u32,
}

impl From<vitrina_store::Waiting> for Waiting {
    fn from(found: vitrina_store::Waiting) -> Self {
        let vitrina_store::Waiting { code, message, since, until, releases } = found;
        Self { code, message, since, until, releases }
    }
}

/// Why no runner that is alive can take a reconcile.
#[derive(Debug, Clone, Serialize, ToSchema)]
pub(crate) struct Untakeable {
    /// Stable, for programs: `runner.none`, `runner.no_connection` or `runner.no_function`.
    #[schema(example = "runner.none")]
    code: String,
    /// For people; ends with a line `hint: …`.
    message: String,
}

impl From<vitrina_store::Untakeable> for Untakeable {
    fn from(found: vitrina_store::Untakeable) -> Self {
        let vitrina_store::Untakeable { code, message } = found;
        Self { code, message }
    }
}
