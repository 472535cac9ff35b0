//! Does a connection work, and may its login do what pipelines need?

use serde::Deserialize;
use serde_json::{Value, json};
use vitrina_core::Result;

use super::{Context, unreadable};

#[derive(Debug, Deserialize)]
struct Question {
    connection: String,
}

pub(super) async fn answer(context: &Context, payload: &Value) -> Result<Value> {
    let Question { connection } = Question::deserialize(payload).map_err(|error| unreadable(&error))?;
    let connection = context.settings.connections.get(&connection)?;
    let runner = &context.settings.name;
    let marts = connection.name == "marts";
    let allowed = &context.settings.allowed_targets.0;
    let names = match marts {
        _ if connection.is_search() => written_indexes(allowed),
        true => written_schemas(allowed),
        false => connection.allowed_schemas.clone(),
    };
    Ok(match connection.test(&names, marts).await {
        Ok(tested) => json!({"ok": tested.missing_grants.is_empty(), "runner": runner,
            "connect_ms": u64::try_from(tested.connected_in.as_millis()).unwrap_or(u64::MAX), "server": tested.server,
            "problem": (!tested.missing_grants.is_empty()).then_some("the login lacks rights"),
            "missing_grants": tested.missing_grants, "tried": tested.tried}),
        Err(error) => json!({"ok": false, "runner": runner, "connect_ms": null, "server": null,
            "problem": error.to_string(), "missing_grants": [], "tried": null}),
    })
}

/// The schemas of `analytics.*` and its like.
fn written_schemas(allowed: &[String]) -> Vec<String> {
    let schema = |pattern: &String| pattern.split_once('.').map(|(schema, _)| schema.to_owned());
    let mut schemas: Vec<String> =
        allowed.iter().filter(|pattern| !pattern.contains(':')).filter_map(schema).collect();
    schemas.sort();
    schemas.dedup();
    schemas
}

/// The indexes of `es:films*` and its like. Of `es:*` nobody has all.
fn written_indexes(allowed: &[String]) -> Vec<String> {
    let patterns = allowed.iter().filter_map(|pattern| pattern.strip_prefix("es:"));
    patterns.filter(|pattern| *pattern != "*").map(str::to_owned).collect()
}
