//! Pipelines as they are configured: found, created, edited, deleted, validated.

use serde_json::{Map, Value};
use uuid::Uuid;
use vitrina_core::{Pipeline, PipelineId, Status, TargetName};
use vitrina_store::{Actor, Change, Error as StoreError, PipelineRecord, PipelineRef, Scope};

use crate::app::App;
use crate::documents::{Check, PipelineConfig, TargetConfig, Verdict};
use crate::error::{Error, Result};
use crate::extract::read_value;

use super::checks;

/// How often an edit that names no version begins anew because of somebody else's.
const ATTEMPTS: usize = 5;

pub(crate) async fn find(app: &App, reference: &PipelineRef) -> Result<PipelineRecord> {
    Ok(app.store.pipeline(reference).await?)
}

pub(crate) async fn create(app: &App, actor: &Actor, config: PipelineConfig) -> Result<Saved> {
    let id = new_id();
    app.store.scope().check(&config.tags)?;
    let pipeline = checks::examine(app, config, id).await?.sound()?;
    app.configure(actor, &[Change::CreatePipeline(pipeline)]).await?;
    saved(app, id).await
}

/// A pipeline as it is now, and what its runs would wait for.
#[derive(Debug)]
pub(crate) struct Saved {
    pub(crate) record: PipelineRecord,
    pub(crate) warnings: Vec<Check>,
}

async fn saved(app: &App, id: PipelineId) -> Result<Saved> {
    let record = find(app, &PipelineRef::Id(id)).await?;
    let warnings = checks::untakeable(app, &record.config, None).await?.into_iter().collect();
    Ok(Saved { record, warnings })
}

/// A merge-patch (RFC 7396): what it names changes, null sets back to the default, and the rest stays. `version` is the
/// one that the caller has seen; without one the newest counts.
pub(crate) async fn edit(
    app: &App,
    actor: &Actor,
    reference: &PipelineRef,
    patch: &Map<String, Value>,
    version: Option<i64>,
) -> Result<Saved> {
    for _ in 0..ATTEMPTS {
        let before = find(app, reference).await?;
        if let Some(seen) = version.filter(|seen| *seen != before.version) {
            tracing::debug!(seen, current = before.version, "an edit of an older version");
            return Err(StoreError::VersionMoved { current: before.version }.into());
        }
        let id = before.config.id;
        let after = patched(app, before.config, patch).await?;
        let change = Change::EditPipeline { after, version: before.version };
        match app.configure(actor, &[change]).await {
            Err(Error::Store(error)) if version.is_none() && is_race(&error) => {}
            edited => {
                edited?;
                return saved(app, id).await;
            }
        }
    }
    Err(StoreError::Unanswered.into())
}

fn is_race(error: &StoreError) -> bool {
    matches!(error, StoreError::VersionMoved { .. })
}

/// What an edit would save, when nothing speaks against it.
async fn patched(app: &App, before: Pipeline, patch: &Map<String, Value>) -> Result<Pipeline> {
    let after = merged(before.clone(), patch)?;
    app.store.scope().check(&after.tags)?;
    let settled = after.clone().into_pipeline(before.id, &app.rules);
    // What does not speak of source or target may change although these are broken: above all, a pipeline is disabled.
    if before.edit(&settled, Status::Running).is_ok() {
        return checks::judged(app, after, &before).await?.sound();
    }
    checks::examine(app, after, before.id).await?.sound()
}

fn merged(before: Pipeline, patch: &Map<String, Value>) -> Result<PipelineConfig> {
    let written = serde_json::to_value(PipelineConfig::from(before));
    let mut document = written.map_err(|_| Error::Internal("a configuration cannot be written"))?;
    for (field, value) in patch {
        match value {
            Value::Null => document.as_object_mut().map(|fields| fields.remove(field)),
            value => document.as_object_mut().map(|fields| fields.insert(field.clone(), value.clone())),
        };
    }
    read_value(document)
}

pub(crate) async fn delete(
    app: &App,
    actor: &Actor,
    reference: &PipelineRef,
    version: Option<i64>,
) -> Result<()> {
    let id = find(app, reference).await?.config.id;
    app.configure(actor, &[Change::DeletePipeline { id, version }]).await
}

/// A configuration that is not saved.
pub(crate) async fn validate(
    app: &App,
    actor: &Actor,
    config: PipelineConfig,
    target: Option<TargetConfig>,
) -> Result<Verdict> {
    let name = config.clone().into_pipeline(new_id(), &app.rules).effective_target().parse::<TargetName>();
    // A name that is none is found by the rules.
    let target = target.zip(name.ok()).map(|(target, name)| target.into_target(&name));
    Ok(checks::examine_deeply(app, actor, config, target, new_id()).await?.into())
}

/// What creating it would find.
pub(crate) async fn forecast(app: &App, actor: &Actor, config: PipelineConfig) -> Result<Verdict> {
    // One name is one pipeline, whoever sees it: creating it would say the same.
    let all = app.store.within(Scope::EVERYTHING);
    let taken = all.pipeline(&PipelineRef::Name(config.name.clone())).await.is_ok();
    let found = taken.then(|| checks::name_taken("", &config.name));
    let mut checks = checks::examine_deeply(app, actor, config, None, new_id()).await?;
    checks.retain(|check| Some(&check.code) != found.as_ref().map(|taken| &taken.code));
    checks.extend(found);
    Ok(checks.into())
}

/// A saved one, with what a patch would change in it.
pub(crate) async fn validate_saved(
    app: &App,
    actor: &Actor,
    reference: &PipelineRef,
    patch: &Map<String, Value>,
) -> Result<Verdict> {
    let saved = find(app, reference).await?.config;
    let id = saved.id;
    Ok(checks::examine_deeply(app, actor, merged(saved, patch)?, None, id).await?.into())
}

/// Looks at the configuration again, makes a new version of it, and answers in which fields it differs from what the
/// newest run worked on.
pub(crate) async fn reload(
    app: &App,
    actor: &Actor,
    reference: &PipelineRef,
) -> Result<(PipelineRecord, Option<Vec<String>>)> {
    let saved = find(app, reference).await?.config;
    let (id, config) = (saved.id, PipelineConfig::from(saved));
    checks::examine(app, config, id).await?.sound()?;
    let record = app.store.raise_version(id).await?;
    let last = app.store.last_snapshot(id).await?;
    app.audit(actor, "pipeline.reload", id, None, None).await;
    let changed = last.map(|last| last.differences(&record.config));
    Ok((record, changed))
}

fn new_id() -> PipelineId {
    PipelineId(Uuid::now_v7())
}
