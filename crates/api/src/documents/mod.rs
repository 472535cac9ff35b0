//! The documents of the API: what it answers and takes. The command line reads and writes the same types; fields that a
//! later server adds are passed over by it.

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

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

pub use check::{Check, Severity, Verdict};
pub use connection::{Connection, ConnectionFinding, ConnectionTest};
pub use key::Key;
pub use pipeline::{Freshness, PipelineStatus, PipelineSummary};
pub use plan::{Action, Applied, ConfigurationPart, Effect, FieldChange, Plan, PlannedChange};
pub use preview::{Preview, PreviewColumn};
pub use reconcile::{
    Cells, DeleteLimit, Difference, LastReconcile, Reconcile, ReconcileFigures, ReconcileOrder,
    ReconcileProgress, ReconcileSide, Repair, RepairAccepted, Standing, StandingLinks,
};
pub use reject::{Reject, RejectGroup, RejectOrder, Rejects, RejectsChanged, RetryAccepted};
pub use row::{
    LastWrite, MarkedBy, Row, RowBackfill, RowColumn, RowLook, RowProblem, RowReconcile, RowState,
    WriteUnknown,
};
pub use run::{LogLine, Range, Run, RunAccepted, RunOrder};
pub use state::{CheckpointVersion, PipelineState, StateForecast};
pub use system::{AuditEntry, Health, PythonTask, Runner, RunnerPulse, SourcePulse};
pub use target::TargetDetail;
pub use waiting::{Untakeable, Waiting};

pub(crate) use check::Question;
pub(crate) use config::{PipelineConfig, PipelineConfigPatch, TargetConfig};
pub(crate) use connection::SourceSchema;
pub(crate) use explain::{Explanation, PassPlan};
pub(crate) use key::MOST_KEYS;
pub(crate) use pipeline::{PipelineDetail, Reloaded, SavedPipeline};
pub(crate) use plan::{Configuration, NamedTarget, Order};
pub(crate) use preview::PreviewQuestion;
pub(crate) use run::{Batch, Reason, RunDetail, RunMetrics};
pub(crate) use state::{NewPosition, StateAnswer, StateEdit};
pub(crate) use system::{Caller, Live, Version};
pub(crate) use target::{Document, SharedTarget, TargetStanding};
pub(crate) use task::Task;
pub(crate) use watch::Watch;

/// One page of a list.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub struct Page<T> {
    pub items: Vec<T>,
    /// Where the next page begins; null on the last one.
    pub next_cursor: Option<String>,
}

impl<T> Page<T> {
    pub(crate) fn whole<R: Into<T>>(records: Vec<R>) -> Self {
        Self { items: records.into_iter().map(Into::into).collect(), next_cursor: None }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_client_passes_over_what_a_later_server_adds_and_does_without_what_may_be_missing() {
        let target = json!({
            "name": "es:films", "connection": "search", "key": ["id"], "create_if_missing": true, "later": 1,
            "document": {"later": true}, "shared": {"by": "later"}, "pipelines": ["films"], "version": 1,
            "created_at": "2024-05-01T00:00:00Z", "updated_at": "2024-05-01T00:00:00Z",
        });
        let target: TargetDetail = serde_json::from_value(target).unwrap();
        assert_eq!(target.pipelines, ["films"]);
        let last = json!({
            "id": uuid::Uuid::nil(), "level": "hash", "verdict": "equal", "differences": 0, "missing": 0,
            "extra": 0, "different": 0, "in_flight": 0, "rejected": 0, "later": {},
            "finished_at": "2024-05-01T00:00:00Z",
        });
        let last: LastReconcile = serde_json::from_value(last).unwrap();
        assert!(!last.outdated);
    }

    #[test]
    fn a_request_of_a_client_says_only_what_was_asked_for() {
        assert_eq!(json!(RunOrder::default()), json!({}));
        assert_eq!(
            json!(RejectOrder { code: Some("row.check".to_owned()), ids: None }),
            json!({"code": "row.check"})
        );
        let order: RunOrder = serde_json::from_value(json!({"keys": ["7", ["8"]], "resume": true})).unwrap();
        assert_eq!(json!(order), json!({"keys": [["7"], ["8"]], "resume": true}));
    }
}
