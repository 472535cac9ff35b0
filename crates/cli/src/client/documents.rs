//! What the API takes and answers, as far as the commands read it.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use uuid::Uuid;
use vitrina_core::{Mode, OnActive, RunStatus, Status};

#[derive(Debug, Deserialize)]
pub(crate) struct Page<T> {
    pub(crate) items: Vec<T>,
}

#[derive(Debug, Deserialize)]
pub(crate) struct Pipeline {
    pub(crate) name: String,
    pub(crate) status: Status,
    pub(crate) enabled: bool,
    pub(crate) mode: Mode,
    pub(crate) target: String,
    pub(crate) last_run: Option<Run>,
}

#[derive(Debug, Deserialize)]
pub(crate) struct PipelineStatus {
    pub(crate) name: String,
    pub(crate) status: Status,
    pub(crate) enabled: bool,
    pub(crate) cancel_requested: bool,
    pub(crate) pending: bool,
    pub(crate) retry_at: Option<Timestamp>,
    pub(crate) last_run: Option<Run>,
}

#[derive(Debug, Deserialize)]
pub(crate) struct Run {
    pub(crate) id: Uuid,
    pub(crate) status: RunStatus,
    pub(crate) mode: Mode,
    pub(crate) trigger: String,
    pub(crate) requested_at: Timestamp,
    pub(crate) started_at: Option<Timestamp>,
    pub(crate) duration_ms: Option<u64>,
    pub(crate) rows_read: u64,
    pub(crate) rows_written: u64,
    pub(crate) rows_unchanged: u64,
    pub(crate) rows_deleted: u64,
    pub(crate) rows_rejected: u64,
    pub(crate) error: Option<String>,
}

/// What a run is asked for with.
#[derive(Debug, Default, Serialize)]
pub(crate) struct Order {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) mode: Option<Mode>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) on_active: Option<OnActive>,
}

#[derive(Debug, Deserialize)]
pub(crate) struct Accepted {
    pub(crate) run_id: Uuid,
    pub(crate) status: RunStatus,
    /// The request waits for the end of `run_id`.
    pub(crate) pending: bool,
}

#[derive(Debug, Deserialize)]
pub(crate) struct Health {
    pub(crate) meta_store: String,
    pub(crate) runners: Vec<RunnerPulse>,
}

#[derive(Debug, Deserialize)]
pub(crate) struct RunnerPulse {
    pub(crate) alive: bool,
}
