//! How an index stands: the alias, the index behind it, the one before, and its mapping beside the declared one.

use std::collections::BTreeMap;

use reqwest::Method;
use serde_json::{Map, Value};
use vitrina_core::{PipelineId, Result};

use super::checksum::FIELD;
use super::control::{Controls, encoded};
use super::indexes::{self, Standing as Aliases};
use super::load::name_taken;
use super::names::Names;
use super::{Client, index, key, mapping, require_key};
use crate::sinks::Definition;
use crate::sinks::standing::{Standing, beside};

pub(super) async fn standing(definition: &Definition<'_>) -> Result<Standing> {
    let Definition { name, target, schema, connections } = definition;
    let client = Client::of(connections.get(&target.connection)?)?;
    let names = Names::new(index(name), PipelineId(uuid::Uuid::nil()));
    let aliases = Aliases::look(&client, &names).await?;
    let live = aliases.live(&names).cloned();
    let (rows, mapped) = match &live {
        Some(live) => (Some(indexes::count(&client, live).await?), live_mapping(&client, live).await?),
        None => (None, Value::Null),
    };
    let declared = match (schema.fields().is_empty(), &target.mapping) {
        // Nobody writes to it yet: only what was given is known.
        (true, given) => given.clone().unwrap_or_default(),
        (false, _) => mapping::mapping(target, schema, &key(target)?),
    };
    let taken = aliases.is_foreign(&names) && !target.document.take_over;
    Ok(Standing {
        exists: live.is_some(),
        rows,
        previous: previous(&client, definition).await?,
        index: live,
        fields: beside(&fields(&declared), &fields(&mapped)),
        lacks: Vec::new(),
        problem: match taken {
            true => Some(name_taken(&names, &aliases).to_string()),
            false => unwritable(definition, &declared),
        },
    })
}

/// What a run would say to these rows.
fn unwritable(definition: &Definition<'_>, declared: &Value) -> Option<String> {
    let Definition { target, schema, .. } = definition;
    if schema.fields().is_empty() {
        return None;
    }
    let keyed = key(target).and_then(|key| require_key(target, &key, schema));
    let checked = keyed.and_then(|()| mapping::check_columns(target, declared, schema));
    checked.err().map(|error| error.to_string())
}

/// An index that several pipelines write to is never exchanged.
async fn previous(client: &std::sync::Arc<Client>, definition: &Definition<'_>) -> Result<Option<String>> {
    let controls = Controls::new(client, index(definition.name).to_owned());
    let held = if definition.target.document.partial { None } else { controls.read().await? };
    let Some(previous) = held.and_then(|held| held.control.previous) else { return Ok(None) };
    Ok(indexes::exists(client, &previous.index).await?.then_some(previous.index))
}

async fn live_mapping(client: &Client, index: &str) -> Result<Value> {
    let found: Map<String, Value> =
        client.get(Method::GET, &format!("{}/_mapping", encoded(index)), None).await?;
    let told = found.into_iter().next().map(|(_, told)| told);
    Ok(told.and_then(|mut told| told.get_mut("mappings").map(Value::take)).unwrap_or_default())
}

/// Every field by its path, with all that its mapping says of it, as JSON.
fn fields(mapping: &Value) -> BTreeMap<String, String> {
    let mut found = BTreeMap::new();
    collect(mapping, "", &mut found);
    found
}

fn collect(mapping: &Value, path: &str, found: &mut BTreeMap<String, String>) {
    for (name, field) in mapping["properties"].as_object().into_iter().flatten() {
        if path.is_empty() && name == FIELD {
            continue;
        }
        let path = if path.is_empty() { name.clone() } else { format!("{path}.{name}") };
        match field.get("properties") {
            Some(_) => collect(field, &path, found),
            None => drop(found.insert(path, field.to_string())),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn fields_are_told_by_their_paths_without_the_checksum() {
        let mapping = json!({"dynamic": "strict", "properties": {
            "id": {"type": "long"}, "_vitrina": {"properties": {"low": {"type": "long"}}},
            "director": {"properties": {"name": {"type": "keyword"}}}}});
        let told: Vec<(String, String)> = fields(&mapping).into_iter().collect();
        let expected = [("director.name", r#"{"type":"keyword"}"#), ("id", r#"{"type":"long"}"#)];
        assert_eq!(told, expected.map(|(name, field)| (name.to_owned(), field.to_owned())));
    }
}
