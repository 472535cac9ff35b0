//! How the installation is doing: asked, never assumed.

use std::time::Duration;

use vitrina_store::RunnerRecord;

use crate::access::Actor;
use crate::app::App;
use crate::error::{Error, Result};
use crate::models::{Health, RunnerPulse};

/// A probe that waits longer is as good as unanswered.
const PATIENCE: Duration = Duration::from_secs(2);

pub(crate) async fn runners(app: &App) -> Result<Vec<RunnerRecord>> {
    Ok(app.store.runners().await?)
}

/// A runner that is gone hears nothing, and its leases expire by themselves.
pub(crate) async fn drain(app: &App, actor: &Actor, name: &str) -> Result<RunnerRecord> {
    let found = runners(app).await?.into_iter().find(|runner| runner.name == name);
    let runner = found.ok_or_else(|| Error::NoSuchRunner(name.to_owned()))?;
    if !runner.alive {
        return Err(Error::RunnerGone);
    }
    let asked = app.store.request_drain(name).await?.ok_or(Error::RunnerGone)?;
    app.audit_of(actor, "runner.drain", &format!("runner {name}"), None, None).await;
    Ok(asked)
}

/// Reads the runners' heartbeats, which is also the question to the meta-store.
pub(crate) async fn health(app: &App) -> Health {
    match tokio::time::timeout(PATIENCE, app.store.runners()).await {
        Ok(Ok(runners)) => {
            let pulse = |runner: RunnerRecord| RunnerPulse { name: runner.name, alive: runner.alive };
            Health { status: "ok", meta_store: "ok", runners: runners.into_iter().map(pulse).collect() }
        }
        Ok(Err(error)) => unavailable(&error.to_string()),
        Err(_) => unavailable("no answer in time"),
    }
}

fn unavailable(reason: &str) -> Health {
    tracing::warn!(reason, "the meta-store does not answer");
    Health { status: "unavailable", meta_store: "unavailable", runners: Vec::new() }
}
