//! Pipelines as they are configured.

use serde_json::json;
use vitrina_core::Pipeline;
use vitrina_store::{PipelineRecord, PipelineRef};

use crate::access::Actor;
use crate::app::App;
use crate::error::{Error, Result};
use crate::models::NewPipeline;

use super::rules;

/// At most `rows` pipelines after the one that `cursor` names, and the cursor of what follows them.
pub(crate) async fn list(
    app: &App,
    rows: usize,
    cursor: Option<&str>,
) -> Result<(Vec<PipelineRecord>, Option<String>)> {
    let mut records = app.store.pipelines().await?;
    // The database's collation may order otherwise, and a cursor must hold when its pipeline is gone.
    records.sort_by(|one, other| one.config.name.cmp(&other.config.name));
    records.retain(|record| cursor.is_none_or(|cursor| record.config.name.as_str() > cursor));
    let more = records.len() > rows;
    records.truncate(rows);
    let next = records.last().filter(|_| more).map(|record| record.config.name.clone());
    Ok((records, next))
}

pub(crate) async fn find(app: &App, reference: &PipelineRef) -> Result<PipelineRecord> {
    Ok(app.store.pipeline(reference).await?)
}

pub(crate) async fn create(app: &App, actor: &Actor, new: NewPipeline) -> Result<PipelineRecord> {
    let pipeline = judge(app, new).await?;
    let record = app.store.create_pipeline(&pipeline).await?;
    app.audit(actor, "pipeline.create", pipeline.id, None, Some(json!(pipeline))).await;
    Ok(record)
}

/// The pipeline to be, when no rule speaks against it. The guard's parser may take its time.
async fn judge(app: &App, new: NewPipeline) -> Result<Pipeline> {
    let rules = app.rules.clone();
    let judged = tokio::task::spawn_blocking(move || {
        let order = new.task_order();
        let pipeline = new.into_pipeline();
        let faults = rules::faults(&pipeline, &order, &rules);
        if faults.is_empty() { Ok(pipeline) } else { Err(Error::InvalidPipeline(faults)) }
    });
    judged.await.map_err(|_| Error::Internal("the rules panicked"))?
}

pub(crate) async fn delete(app: &App, actor: &Actor, reference: &PipelineRef) -> Result<()> {
    let record = app.store.pipeline(reference).await?;
    let id = record.config.id;
    if !app.store.delete_pipeline(id).await? {
        // Active, or deleted by someone else meanwhile, which this look tells.
        app.store.pipeline(&PipelineRef::Id(id)).await?;
        return Err(Error::StillActive);
    }
    app.audit(actor, "pipeline.delete", id, Some(json!(record.config)), None).await;
    Ok(())
}
