//! Stories that are played again and again while it storms, each with a pipeline and tables of its own. Nobody else writes to
//! these, so a trial knows what its mart must hold, or what a run or a comparison must answer, and says so when it is not.

mod archive;
mod price;
mod second;
mod stack;
mod stage;
mod stock;
mod swap;
mod typed;
mod vault;

use anyhow::Result;
use serde_json::{Value, json};
use tokio::time::{Duration, sleep};

use crate::dice::Dice;
use crate::pipelines::pipeline;
use crate::probes::Violation;
use crate::storm::Storm;
use crate::weather::Weather;

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Trial {
    /// A source is restored from a backup.
    Archive,
    /// A column of the source gets more digits than the mart has.
    Price,
    /// A second pipeline wants to write to a mart.
    Second,
    /// A load fails, the source changes, and another load follows.
    Stack,
    /// Most rows of a source are deleted.
    Stock,
    /// A mart is emptied, or another table takes its place.
    Swap,
    /// A column gets another type in the middle of a load.
    Typed,
    /// Differences are planted in a mart, which a comparison must find and a repair must mend.
    Vault,
}

impl Trial {
    pub const ALL: [Self; 8] = [
        Self::Archive,
        Self::Price,
        Self::Second,
        Self::Stack,
        Self::Stock,
        Self::Swap,
        Self::Typed,
        Self::Vault,
    ];

    /// Of its pipeline, its source and its mart.
    pub fn name(self) -> &'static str {
        match self {
            Self::Archive => "archive",
            Self::Price => "price",
            Self::Second => "second",
            Self::Stack => "stack",
            Self::Stock => "stock",
            Self::Swap => "swap",
            Self::Typed => "typed",
            Self::Vault => "vault",
        }
    }

    /// As it is when the storm begins. No schedule runs it.
    pub(crate) fn pipeline(self, weather: &Weather) -> Value {
        let full = json!({"mode": "full", "batch_size": 20});
        let (query, more) = match self {
            Self::Archive => (
                "select id, title, modified from content.archive",
                json!({"source_connection": "archive", "mode": "incremental", "incremental_key": "modified",
                       "incremental_id_key": "id", "late_window_seconds": 1}),
            ),
            Self::Price => ("select id, amount from content.price", full),
            Self::Second => ("select id, title, version, modified from content.film where id % 2 = 0", full),
            Self::Stack => ("select id, title, n from content.stack", full),
            Self::Stock => (
                "select id, title from content.stock",
                json!({"mode": "incremental", "capture": "changelog", "batch_size": 50, "delete_limit": stock::LIMIT}),
            ),
            Self::Swap => (
                "select id, title, modified from content.swap",
                json!({"mode": "incremental", "incremental_key": "modified", "incremental_id_key": "id",
                       "late_window_seconds": 1, "batch_size": 50, "delete_limit": 1.0}),
            ),
            Self::Typed => ("select id, n from content.typed", full),
            Self::Vault => ("select id, amount, weight, seen_at, title from content.vault", full),
        };
        pipeline(self.name(), query, weather, &[&json!({"schedule_interval": null}), &more])
    }

    async fn play(self, storm: &Storm, dice: &mut Dice) -> Result<Option<Violation>> {
        match self {
            Self::Archive => archive::play(storm, dice).await,
            Self::Price => price::play(storm).await,
            Self::Second => second::play(storm).await,
            Self::Stack => stack::play(storm, dice).await,
            Self::Stock => stock::play(storm).await,
            Self::Swap => swap::play(storm, dice).await,
            Self::Typed => typed::play(storm).await,
            Self::Vault => vault::play(storm, dice).await,
        }
    }
}

/// A play that a restart of the server breaks off begins anew: each makes its own beginning.
pub(crate) async fn keep_playing(storm: Storm, trial: Trial, mut dice: Dice) -> Result<()> {
    while !storm.over.is_cancelled() {
        let played = tokio::select! {
            () = storm.over.cancelled() => break,
            played = trial.play(&storm, &mut dice) => played,
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
            () = sleep(dice.about(Duration::from_millis(500))) => {}
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
