//! The shapes that travel. One model for the API, the CLI's JSON and the UI.

mod check;
mod config;
mod connection;
mod explain;
mod key;
mod pipeline;
mod plan;
mod preview;
mod reconcile;
mod reject;
mod row;
mod run;
mod state;
mod system;
mod target;
mod task;
mod waiting;
mod watch;
pub(crate) mod words;

use serde::Serialize;
use utoipa::ToSchema;

pub(crate) use check::{Check, Question, Severity, Verdict};
pub(crate) use config::{PipelineConfig, PipelineConfigPatch, TargetConfig};
pub(crate) use connection::{Connection, ConnectionFinding, ConnectionTest, SourceSchema};
pub(crate) use explain::{Explanation, PassPlan};
pub(crate) use key::{Key, MOST_KEYS};
pub(crate) use pipeline::{PipelineDetail, PipelineStatus, PipelineSummary, Reloaded, SavedPipeline};
pub(crate) use plan::{
    Action, Applied, Configuration, Effect, FieldChange, NamedTarget, Order, Plan, PlannedChange,
};
pub(crate) use preview::{Preview, PreviewQuestion};
pub(crate) use reconcile::{
    DeleteLimit, Difference, LastReconcile, Reconcile, ReconcileOrder, Repair, RepairAccepted, Standing,
};
pub(crate) use reject::{Reject, RejectOrder, Rejects, RejectsChanged, RetryAccepted};
pub(crate) use row::{
    LastWrite, MarkedBy, Row, RowBackfill, RowColumn, RowLook, RowProblem, RowReconcile, RowState,
    WriteUnknown,
};
pub(crate) use run::{Batch, LogLine, Reason, Run, RunAccepted, RunDetail, RunMetrics, RunOrder};
pub(crate) use state::{
    CheckpointVersion, NewPosition, PipelineState, StateAnswer, StateEdit, StateForecast,
};
pub(crate) use system::{
    AuditEntry, Caller, Health, Live, PythonTask, Runner, RunnerPulse, SourcePulse, Version,
};
pub(crate) use target::{Document, SharedTarget, TargetDetail, TargetStanding};
pub(crate) use task::Task;
pub(crate) use waiting::{Untakeable, Waiting};
pub(crate) use watch::Watch;

/// One page of a list.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Page<T> {
    pub(crate) items: Vec<T>,
    /// Where the next page begins; null on the last one.
    pub(crate) next_cursor: Option<String>,
}

impl<T> Page<T> {
    pub(crate) fn whole<R: Into<T>>(records: Vec<R>) -> Self {
        Self { items: records.into_iter().map(Into::into).collect(), next_cursor: None }
    }
}
