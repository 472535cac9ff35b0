//! The shapes that travel. One model for the API, the CLI's JSON and the UI.

mod key;
mod new_pipeline;
mod pipeline;
mod reject;
mod run;
mod state;
mod system;
mod task;
mod watch;
mod words;

use serde::Serialize;
use utoipa::ToSchema;

pub(crate) use key::{Key, MOST_KEYS};
pub(crate) use new_pipeline::NewPipeline;
pub(crate) use pipeline::{PipelineDetail, PipelineStatus, PipelineSummary};
pub(crate) use reject::{RejectOrder, Rejects, RejectsChanged, RetryAccepted};
pub(crate) use run::{Reason, Run, RunAccepted, RunDetail, RunOrder};
pub(crate) use state::{
    CheckpointVersion, NewPosition, PipelineState, StateAnswer, StateEdit, StateForecast,
};
pub(crate) use system::{Health, Live, Runner, RunnerPulse, Version};
pub(crate) use task::Task;
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
