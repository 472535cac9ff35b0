//! The data plane. Read it top-down: the manager keeps the runner alive and turning, the dispatcher
//! claims pipelines, the executor takes one batch after another from source to checkpoint.

mod conclusion;
mod counters;
mod dispatcher;
mod events;
mod exclusive_slot;
mod executor;
mod heartbeat;
mod look;
mod manager;
mod read_ahead;
mod reconciles;
mod requests;
mod retention;
mod run_log;
mod session_reaper;
mod settings;
mod untaken;

pub use counters::describe as describe_metrics;
pub use look::{Look, View};
pub use manager::Runner;
pub use run_log::{RunLog, RunLogLayer};
pub use settings::RunnerSettings;
