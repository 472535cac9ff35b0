//! A pipeline was deleted: what it has left beside its target goes too. The target itself stays.

use serde::Deserialize;
use serde_json::{Value, json};
use vitrina_connectors::sinks;
use vitrina_core::{PipelineId, Result, Target, TargetName};

use super::{Desk, unreadable};

#[derive(Debug, Deserialize)]
struct Question {
    pipeline: PipelineId,
    target: Target,
}

pub(super) async fn answer(desk: &Desk, payload: &Value) -> Result<Value> {
    let Question { pipeline, target } = Question::deserialize(payload).map_err(|error| unreadable(&error))?;
    let name: TargetName = target.name.parse()?;
    let left = sinks::Left {
        pipeline,
        target: &target,
        installation: desk.installation,
        connections: &desk.settings.connections,
    };
    desk.settings.sinks.of(&name)?.forget(&left).await?;
    Ok(json!({}))
}
