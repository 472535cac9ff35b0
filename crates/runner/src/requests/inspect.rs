//! What a pipeline will meet at its source and its target, looked at before it runs.

use arrow_schema::Schema;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use vitrina_connectors::sinks;
use vitrina_core::{Advice, Destination, Error, Pipeline, Result, Target};
use vitrina_store::TakenRequest;

use super::{Context, unreadable};
use crate::look::Look;

#[derive(Debug, Deserialize)]
struct Question {
    pipeline: Pipeline,
    target: Target,
}

#[derive(Debug, Serialize)]
struct Answer {
    checks: Vec<Check>,
}

#[derive(Debug, Serialize)]
struct Check {
    code: &'static str,
    severity: &'static str,
    field: &'static str,
    detail: String,
    hint: Option<String>,
}

pub(super) async fn answer(context: &Context, taken: &TakenRequest) -> Result<Value> {
    let Question { pipeline, target } =
        Question::deserialize(&taken.payload).map_err(|error| unreadable(&error))?;
    let mut checks = Vec::new();
    if let Err(error) = inspect(context, taken, &pipeline, target, &mut checks).await {
        checks.push(Check::of(&error));
    }
    serde_json::to_value(Answer { checks }).map_err(|error| unreadable(&error))
}

/// What was found before an error stays found.
async fn inspect(
    context: &Context,
    taken: &TakenRequest,
    pipeline: &Pipeline,
    target: Target,
    checks: &mut Vec<Check>,
) -> Result<()> {
    let connections = context.settings.connections.afresh();
    let mut look = Look::at(pipeline, target, &context.view(&connections, taken.installation)).await?;
    checks.push(match &look.schema {
        Some(schema) => takes(look.kind(), look.definition(schema), pipeline).await?,
        None => Check::new(
            "target.unseen",
            "ok",
            "/target_table",
            "which columns its Python functions return shows when they run: the target was not compared"
                .to_owned(),
        ),
    });
    let unknown = Schema::empty();
    let (kind, definition) = (look.kind(), look.definition(&unknown));
    checks.extend(lacks_rights(kind, &definition).await?);
    let key = kind.key(&definition).await?;
    look.source.begin(&Destination { key, server: None, takes_ids: false }).await?;
    checks.extend(look.source.advise().await?.into_iter().map(Check::from));
    Ok(())
}

async fn takes(
    kind: &dyn sinks::Kind,
    definition: sinks::Definition<'_>,
    pipeline: &Pipeline,
) -> Result<Check> {
    let (name, lacks) = (definition.name, kind.lacks(&definition).await?);
    if lacks.is_empty() {
        return Ok(Check::new("target.takes", "ok", "/target_table", format!("{name} takes the rows")));
    }
    let is_made = |statement: &String| statement.starts_with("create table ");
    if definition.target.create_if_missing && lacks.iter().any(is_made) {
        let detail = format!("{name} does not exist: its first run creates it");
        return Ok(Check::new("target.created", "ok", "/target_table", detail));
    }
    let detail = format!("{name} does not exist, or lacks columns");
    let hint = Some(format!("`vitrina mart {}` executes: {}", pipeline.name, lacks.join("; ")));
    Ok(Check { hint, ..Check::new("target.lacks", "warning", "/target_table", detail) })
}

/// What a run would fail with, asked before there is one.
async fn lacks_rights(kind: &dyn sinks::Kind, definition: &sinks::Definition<'_>) -> Result<Option<Check>> {
    let grants = kind.grants(definition).await?;
    if grants.is_empty() {
        return Ok(None);
    }
    let (name, connection) = (definition.name, &definition.target.connection);
    let detail = format!("the login of connection {connection} lacks rights that runs need at {name}");
    let hint = Some(format!("let an owner execute: {}", grants.join("; ")));
    Ok(Some(Check { hint, ..Check::new("target.rights", "error", "/target_table", detail) }))
}

impl Check {
    fn new(code: &'static str, severity: &'static str, field: &'static str, detail: String) -> Self {
        Self { code, severity, field, detail, hint: None }
    }

    fn of(error: &Error) -> Self {
        let field = if error.code.starts_with("sink") || error.code.starts_with("target") {
            "/target_table"
        } else {
            ""
        };
        let (message, hint) = error.told();
        Self { hint: hint.map(str::to_owned), ..Self::new(error.code, "error", field, message.to_owned()) }
    }
}

impl From<Advice> for Check {
    fn from(advice: Advice) -> Self {
        let severity = if advice.warning { "warning" } else { "ok" };
        Self { hint: advice.hint, ..Self::new("source.advice", severity, "", advice.message) }
    }
}
