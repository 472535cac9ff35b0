//! Stories that are played again and again while it storms, each with a pipeline and tables of its own. Nobody else writes to
//! these, so a trial knows what its mart must hold, or what a run or a comparison must answer, and says so when it is not.

mod comparison;
mod delete_limit;
mod failed_load;
mod replaced_mart;
mod restored_source;
mod retyped_column;
mod second_writer;
mod stage;
mod widened_numeric;

use anyhow::Result;
use serde_json::{Value, json};
use tokio::time::{Duration, sleep};

use crate::fault_schedule::FaultSchedule;
use crate::pipelines::pipeline;
use crate::probes::Violation;
use crate::rng::Rng;
use crate::storm::Storm;

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Trial {
    /// A source is restored from a backup.
    RestoredSource,
    /// A column of the source gets more digits than the mart has.
    WidenedNumeric,
    /// A second pipeline wants to write to a mart.
    SecondWriter,
    /// A load fails, the source changes, and another load follows.
    FailedLoad,
    /// Most rows of a source are deleted.
    DeleteLimit,
    /// A mart is emptied, or another table takes its place.
    ReplacedMart,
    /// A column gets another type in the middle of a load.
    RetypedColumn,
    /// Differences are planted in a mart, which a comparison must find and a repair must mend.
    Comparison,
}

impl Trial {
    pub const ALL: [Self; 8] = [
        Self::RestoredSource,
        Self::WidenedNumeric,
        Self::SecondWriter,
        Self::FailedLoad,
        Self::DeleteLimit,
        Self::ReplacedMart,
        Self::RetypedColumn,
        Self::Comparison,
    ];

    /// Of its pipeline, its source and its mart.
    pub fn name(self) -> &'static str {
        match self {
            Self::RestoredSource => "restored_source",
            Self::WidenedNumeric => "widened_numeric",
            Self::SecondWriter => "second_writer",
            Self::FailedLoad => "failed_load",
            Self::DeleteLimit => "delete_limit",
            Self::ReplacedMart => "replaced_mart",
            Self::RetypedColumn => "retyped_column",
            Self::Comparison => "comparison",
        }
    }

    /// As it is when the storm begins. No schedule runs it.
    pub(crate) fn pipeline(self, schedule: &FaultSchedule) -> Value {
        let full = json!({"mode": "full", "batch_size": 20});
        let (query, more) = match self {
            Self::RestoredSource => (
                "select id, title, modified from content.restored_source",
                json!({"source_connection": "restored_source", "mode": "incremental", "incremental_key": "modified",
                       "incremental_id_key": "id", "late_window_seconds": 1}),
            ),
            Self::WidenedNumeric => ("select id, amount from content.widened_numeric", full),
            Self::SecondWriter => {
                ("select id, title, version, modified from content.film where id % 2 = 0", full)
            }
            Self::FailedLoad => ("select id, title, n from content.failed_load", full),
            Self::DeleteLimit => (
                "select id, title from content.delete_limit",
                json!({"mode": "incremental", "capture": "changelog", "batch_size": 50, "delete_limit": delete_limit::LIMIT}),
            ),
            Self::ReplacedMart => (
                "select id, title, modified from content.replaced_mart",
                json!({"mode": "incremental", "incremental_key": "modified", "incremental_id_key": "id",
                       "late_window_seconds": 1, "batch_size": 50, "delete_limit": 1.0}),
            ),
            Self::RetypedColumn => ("select id, n from content.retyped_column", full),
            Self::Comparison => ("select id, amount, weight, seen_at, title from content.comparison", full),
        };
        pipeline(self.name(), query, schedule, &[&json!({"schedule_interval": null}), &more])
    }

    async fn play(self, storm: &Storm, rng: &mut Rng) -> Result<Option<Violation>> {
        match self {
            Self::RestoredSource => restored_source::play(storm, rng).await,
            Self::WidenedNumeric => widened_numeric::play(storm).await,
            Self::SecondWriter => second_writer::play(storm).await,
            Self::FailedLoad => failed_load::play(storm, rng).await,
            Self::DeleteLimit => delete_limit::play(storm).await,
            Self::ReplacedMart => replaced_mart::play(storm, rng).await,
            Self::RetypedColumn => retyped_column::play(storm).await,
            Self::Comparison => comparison::play(storm, rng).await,
        }
    }
}

/// A play that a restart of the server breaks off begins anew: each makes its own beginning.
pub(crate) async fn keep_playing(storm: Storm, trial: Trial, mut rng: Rng) -> Result<()> {
    while !storm.over.is_cancelled() {
        let played = tokio::select! {
            () = storm.over.cancelled() => break,
            played = trial.play(&storm, &mut rng) => played,
        };
        match played {
            Ok(violation) => {
                storm.found.lock().expect("no holder panics").extend(violation);
                *storm.tally.lock().expect("no holder panics").trials.entry(trial).or_default() += 1;
            }
            Err(error) if is_of_the_storm(&error) => sleep(Duration::from_millis(200)).await,
            Err(error) => return Err(error.context(format!("trial {}", trial.name()))),
        }
        tokio::select! {
            () = storm.over.cancelled() => break,
            () = sleep(rng.about(Duration::from_millis(500))) => {}
        }
    }
    Ok(())
}

/// The server was away, or a lock was held by the storm.
fn is_of_the_storm(error: &anyhow::Error) -> bool {
    let Some(error) = error.downcast_ref::<tokio_postgres::Error>() else { return false };
    let passes = ["53", "57", "40P01", "55P03"];
    error.code().is_none_or(|state| passes.iter().any(|class| state.code().starts_with(class)))
}
