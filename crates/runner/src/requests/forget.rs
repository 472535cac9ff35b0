//! A pipeline was deleted, or writes elsewhere: what it has left beside its target and at its source goes too. The target
//! itself stays. Each end is a request of its own, so that one that is away does not keep the other waiting.

use serde::Deserialize;
use serde_json::{Value, json};
use vitrina_connectors::{sinks, sources};
use vitrina_core::{PipelineId, Result, Target, TargetName};
use vitrina_store::PipelineRef;

use super::{Desk, unreadable};

#[derive(Debug, Deserialize)]
struct Question {
    pipeline: PipelineId,
    #[serde(flatten)]
    end: End,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "lowercase")]
enum End {
    Target(Box<Target>),
    Source(Source),
}

#[derive(Debug, Deserialize)]
struct Source {
    #[serde(rename = "type")]
    source_type: String,
    connection: String,
}

pub(super) async fn answer(desk: &Desk, payload: &Value) -> Result<Value> {
    let Question { pipeline, end } = Question::deserialize(payload).map_err(|error| unreadable(&error))?;
    match end {
        End::Target(target) => beside_target(desk, pipeline, &target).await?,
        End::Source(source) => at_source(desk, pipeline, &source).await?,
    }
    Ok(json!({}))
}

async fn beside_target(desk: &Desk, pipeline: PipelineId, target: &Target) -> Result<()> {
    if writes_to(desk, pipeline, target).await? {
        return Ok(());
    }
    let name: TargetName = target.name.parse()?;
    let left = sinks::Left {
        pipeline,
        target,
        installation: desk.installation,
        connections: &desk.settings.connections,
    };
    desk.settings.sinks.of(&name)?.forget(&left).await
}

/// It was sent back there before anybody got to this.
async fn writes_to(desk: &Desk, pipeline: PipelineId, target: &Target) -> Result<bool> {
    match desk.store.pipeline(&PipelineRef::Id(pipeline)).await {
        Ok(record) => Ok(record.config.effective_target() == target.name),
        Err(vitrina_store::Error::NoSuchPipeline(_)) => Ok(false),
        Err(error) => Err(error.into()),
    }
}

async fn at_source(desk: &Desk, pipeline: PipelineId, source: &Source) -> Result<()> {
    let left = sources::Left {
        pipeline,
        source_type: &source.source_type,
        connection: &source.connection,
        installation: desk.installation,
        connections: &desk.settings.connections,
    };
    sources::forget(&left).await
}
