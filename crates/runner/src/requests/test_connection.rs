//! Does a connection work, and may its login do what pipelines need?

use serde::Deserialize;
use serde_json::{Value, json};
use vitrina_core::Result;

use super::{Desk, unreadable};

#[derive(Debug, Deserialize)]
struct Question {
    connection: String,
}

pub(super) async fn answer(desk: &Desk, payload: &Value) -> Result<Value> {
    let Question { connection } = Question::deserialize(payload).map_err(|error| unreadable(&error))?;
    let connection = desk.settings.connections.get(&connection)?;
    let runner = &desk.settings.name;
    let marts = connection.name == "marts";
    let schemas = match marts {
        true => written_schemas(&desk.settings.allowed_targets.0),
        false => connection.allowed_schemas.clone(),
    };
    Ok(match connection.test(&schemas, marts).await {
        Ok(tested) => json!({"ok": tested.missing_grants.is_empty(), "runner": runner,
            "connect_ms": u64::try_from(tested.connected_in.as_millis()).unwrap_or(u64::MAX), "server": tested.server,
            "problem": (!tested.missing_grants.is_empty()).then_some("the login lacks rights"),
            "missing_grants": tested.missing_grants}),
        Err(error) => json!({"ok": false, "runner": runner, "connect_ms": null, "server": null,
            "problem": error.to_string(), "missing_grants": []}),
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
