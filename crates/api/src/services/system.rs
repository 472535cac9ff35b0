//! How the installation is doing: asked, never assumed.

use std::time::Duration;

use vitrina_store::{Actor, AuditRecord, PythonTaskRecord, RunnerRecord};

use crate::app::App;
use crate::documents::{Health, RunnerPulse};
use crate::error::{Error, Result};

use super::runs::cut;

/// A probe that waits longer is as good as unanswered.
const PATIENCE: Duration = Duration::from_secs(2);

pub(crate) async fn runners(app: &App) -> Result<Vec<RunnerRecord>> {
    Ok(app.store.runners().await?)
}

pub(crate) async fn python_tasks(app: &App) -> Result<Vec<PythonTaskRecord>> {
    Ok(app.store.python_tasks().await?)
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

/// Newest first, and the last one's number where more follow.
pub(crate) async fn audit(
    app: &App,
    before: Option<i64>,
    rows: i64,
) -> Result<(Vec<AuditRecord>, Option<i64>)> {
    let mut records = app.store.audit_rows(before, rows + 1).await?;
    let more = cut(&mut records, rows);
    let next = records.last().filter(|_| more).map(|record| record.id);
    Ok((records, next))
}

/// Can this server answer calls? The meta-store is asked.
pub(crate) async fn ready(app: &App) -> bool {
    living_and_dead(app).await.is_some()
}

/// Reads the runners' heartbeats, which is also the question to the meta-store, and asks the sources.
pub(crate) async fn health(app: &App) -> Health {
    let Some(runners) = living_and_dead(app).await else {
        let away = || "unavailable".into();
        return Health { status: away(), meta_store: away(), sources: Vec::new(), runners: Vec::new() };
    };
    let sources = app.health.sources(&app.rules).await;
    let sound =
        runners.iter().any(|runner| runner.alive) && sources.iter().all(|source| source.problem.is_none());
    let status = if sound { "ok" } else { "degraded" };
    Health {
        status: status.into(),
        meta_store: "ok".into(),
        sources,
        runners: runners.into_iter().map(pulse).collect(),
    }
}

fn pulse(runner: RunnerRecord) -> RunnerPulse {
    let problems = runner.health.into_iter().filter_map(|(name, problem)| Some((name, problem?))).collect();
    RunnerPulse { name: runner.name, alive: runner.alive, problems }
}

async fn living_and_dead(app: &App) -> Option<Vec<RunnerRecord>> {
    let reason = match tokio::time::timeout(PATIENCE, app.store.runners()).await {
        Ok(Ok(runners)) => return Some(runners),
        Ok(Err(error)) => error.to_string(),
        Err(_) => "no answer in time".to_owned(),
    };
    tracing::warn!(reason, "the meta-store does not answer");
    None
}
