//! A pipeline was deleted, or writes elsewhere: what it has left beside its target and at its source goes too. The target
//! itself stays. Each end is a request of its own, so that one that is away does not keep the other waiting.

use serde::Deserialize;
use serde_json::{Value, json};
use vitrina_connectors::{sinks, sources};
use vitrina_core::{Issued, Ledger, PipelineId, Result, Target, TargetName};
use vitrina_store::{PipelineRef, TakenRequest};

use super::{Context, unreadable};

#[derive(Debug, Deserialize)]
struct Question {
    pipeline: PipelineId,
    /// The leases that it had when it was deleted; none where an older release was asked.
    issued: Option<Issued>,
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

pub(super) async fn answer(context: &Context, taken: &TakenRequest) -> Result<Value> {
    let question = Question::deserialize(&taken.payload).map_err(|error| unreadable(&error))?;
    match &question.end {
        End::Target(target) => beside_target(context, taken, &question, target).await?,
        End::Source(source) => at_source(context, taken, question.pipeline, source).await?,
    }
    Ok(json!({}))
}

async fn beside_target(
    context: &Context,
    taken: &TakenRequest,
    question: &Question,
    target: &Target,
) -> Result<()> {
    let pipeline = question.pipeline;
    let present = present_target(context, pipeline).await?;
    if present.as_ref() == Some(&target.name) {
        // It was sent back there before anybody got to this.
        return Ok(());
    }
    let name: TargetName = target.name.parse()?;
    let mut issued = context.store.issued(&[pipeline]).await?;
    issued.adopts |= question.issued.is_none();
    let left = sinks::Left {
        pipeline,
        deleted: present.is_none(),
        target,
        installation: taken.installation,
        request: (taken.id, taken.owner),
        issued: &issued,
        ledger: &context.store,
        connections: &context.settings.connections,
    };
    context.settings.sinks.of(&name)?.forget(&left).await
}

/// Where it writes now, if it is still there.
async fn present_target(context: &Context, pipeline: PipelineId) -> Result<Option<String>> {
    match context.store.pipeline(&PipelineRef::Id(pipeline)).await {
        Ok(record) => Ok(Some(record.config.effective_target().to_owned())),
        Err(vitrina_store::Error::NoSuchPipeline(_)) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

async fn at_source(
    context: &Context,
    taken: &TakenRequest,
    pipeline: PipelineId,
    source: &Source,
) -> Result<()> {
    let left = sources::Left {
        pipeline,
        source_type: &source.source_type,
        connection: &source.connection,
        installation: taken.installation,
        connections: &context.settings.connections,
    };
    context.settings.sources.forget(&left).await
}
