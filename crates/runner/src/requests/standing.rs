//! How a target stands, beside what one of its pipelines would make of it.

use arrow_schema::Schema;
use serde::Deserialize;
use serde_json::{Value, json};
use vitrina_connectors::sinks::{Definition, Standing, StandingField};
use vitrina_core::{Pipeline, Result, Target, TargetName, is_allowed_target};
use vitrina_store::TakenRequest;

use super::{Context, unreadable};
use crate::look::Look;

#[derive(Debug, Deserialize)]
struct Question {
    target: Target,
    /// None where nobody writes to it.
    pipeline: Option<Pipeline>,
}

pub(super) async fn answer(context: &Context, taken: &TakenRequest) -> Result<Value> {
    let Question { target, pipeline } =
        Question::deserialize(&taken.payload).map_err(|error| unreadable(&error))?;
    let connections = context.settings.connections.afresh();
    let name: TargetName = is_allowed_target(&target.name, &context.settings.allowed_targets)?;
    let schema = match &pipeline {
        Some(pipeline) => columns(context, taken, pipeline, target.clone()).await?,
        None => None,
    };
    let known = schema.unwrap_or_else(Schema::empty);
    let pipeline = pipeline.as_ref();
    let definition =
        Definition { name: &name, target: &target, schema: &known, pipeline, connections: &connections };
    let standing = context.settings.sinks.of(&name)?.standing(&definition).await?;
    Ok(told(&standing, !known.fields().is_empty(), &context.settings.name))
}

/// Of the rows as they come to the target, where that can be told before they do.
async fn columns(
    context: &Context,
    taken: &TakenRequest,
    pipeline: &Pipeline,
    target: Target,
) -> Result<Option<Schema>> {
    let connections = context.settings.connections.afresh();
    let look = Look::at(pipeline, target, &context.view(&connections, taken.installation)).await?;
    Ok(look.schema.as_deref().cloned())
}

fn told(standing: &Standing, compared: bool, runner: &str) -> Value {
    let Standing { exists, rows, index, previous, fields, lacks, problem } = standing;
    // What is not there, or not known, differs from nothing.
    let held = compared && *exists;
    let field = |field: &StandingField| json!({"name": field.name, "declared": field.declared, "live": field.live, "differs": held && field.differs});
    let fields: Vec<Value> = fields.iter().map(field).collect();
    json!({"runner": runner, "exists": exists, "rows": rows, "index": index, "previous": previous, "fields": fields,
           "compared": compared, "lacks": lacks, "problem": problem})
}
