//! How an index stands: the alias, the index behind it, the one before, and its mapping beside the declared one.

use std::collections::BTreeMap;

use reqwest::Method;
use serde_json::{Map, Value};
use vitrina_core::{PipelineId, Result};

use super::checksum::FIELD;
use super::control::{Controls, encoded};
use super::indexes::{self, Standing as Aliases};
use super::load::refuse_taken;
use super::names::Names;
use super::{Client, index, key, mapping, require_key};
use crate::sinks::Definition;
use crate::sinks::standing::{Standing, beside};

pub(super) async fn standing(definition: &Definition<'_>) -> Result<Standing> {
    let Definition { name, target, schema, connections, .. } = definition;
    let client = Client::of(connections.get(&target.connection)?)?;
    let names = Names::new(index(name), PipelineId(uuid::Uuid::nil()));
    let aliases = Aliases::look(&client, &names).await?;
    let live = aliases.live(&names).cloned();
    let declared = match (schema.fields().is_empty(), &target.mapping) {
        // Nobody writes to it yet: only what was given is known.
        (true, given) => given.clone().unwrap_or_default(),
        (false, _) => mapping::mapping(target, schema, &key(target)?),
    };
    let said = fields(&declared);
    let (rows, found) = match &live {
        Some(live) => (Some(indexes::count(&client, live).await?), live_fields(&client, live, &said).await?),
        None => (None, Fields::new()),
    };
    let taken = refuse_taken(&names, &aliases, definition.target.document.take_over).err();
    // A field that nobody declared can only be somebody else's doing, unless there are other pipelines to bring it.
    let whole = !target.document.partial && declared["dynamic"] == "strict";
    Ok(Standing {
        exists: live.is_some(),
        rows,
        previous: previous(&client, definition).await?,
        index: live,
        fields: beside(&texts(&said), &texts(&found), whole),
        lacks: Vec::new(),
        problem: match taken {
            Some(taken) => Some(taken.with_values()),
            None => unwritable(definition, &declared),
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
    checked.err().map(|error| error.with_values())
}

/// An index that several pipelines write to is never exchanged.
async fn previous(client: &std::sync::Arc<Client>, definition: &Definition<'_>) -> Result<Option<String>> {
    let controls = Controls::new(client, index(definition.name).to_owned());
    let held = if definition.target.document.partial { None } else { controls.read().await? };
    let Some(previous) = held.and_then(|held| held.control.previous) else { return Ok(None) };
    Ok(indexes::exists(client, &previous.index).await?.then_some(previous.index))
}

/// The fields of an index, in the words of those that were `declared` wherever they mean the same: a server leaves out what is
/// as by default, and writes numbers its own way.
async fn live_fields(client: &Client, index: &str, declared: &Fields) -> Result<Fields> {
    let index = encoded(index);
    let (plain, explicit) =
        (format!("{index}/_mapping"), format!("{index}/_mapping/field/*?include_defaults=true"));
    let (plain, explicit) = tokio::join!(mapping_of(client, &plain), mapping_of(client, &explicit));
    let (mut live, explicit) = (fields(&plain?), explicit?);
    for (name, field) in &mut live {
        let told = explicit[name]["mapping"].as_object().and_then(|told| told.values().next());
        let told = told.unwrap_or(field);
        if let Some(said) = declared.get(name).filter(|said| holds(told, said) && holds(said, field)) {
            *field = said.clone();
        }
    }
    Ok(live)
}

async fn mapping_of(client: &Client, path: &str) -> Result<Value> {
    let found: Map<String, Value> = client.get(Method::GET, path, None).await?;
    let told = found.into_iter().next().map(|(_, told)| told);
    Ok(told.and_then(|mut told| told.get_mut("mappings").map(Value::take)).unwrap_or_default())
}

/// All that `part` says is said by `all`, too.
fn holds(all: &Value, part: &Value) -> bool {
    match (all, part) {
        (Value::Object(all), Value::Object(part)) => {
            part.iter().all(|(name, part)| all.get(name).is_some_and(|all| holds(all, part)))
        }
        (all, part) => all == part || unquoted(all) == unquoted(part),
    }
}

/// 256 and "256" are the same to a server.
fn unquoted(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

/// By path, each with what the mapping says of it and not of the fields below it.
type Fields = BTreeMap<String, Value>;

/// Stands for the index as a whole: whether its mapping is strict, say.
const WHOLE: &str = "*";

fn fields(mapping: &Value) -> Fields {
    let mut found = Fields::new();
    collect(mapping, "", &mut found);
    found
}

fn collect(mapping: &Value, path: &str, found: &mut Fields) {
    let mut own = mapping.as_object().cloned().unwrap_or_default();
    let below = own.remove("properties");
    if below.is_some() && own.get("type").is_some_and(|name| name == "object") {
        // Servers do not repeat what the fields below it tell.
        own.remove("type");
    }
    if path.is_empty() {
        forget_our_note(&mut own);
    }
    if !own.is_empty() || (below.is_none() && !path.is_empty()) {
        found.insert(if path.is_empty() { WHOLE } else { path }.to_owned(), Value::Object(own));
    }
    for (name, field) in below.as_ref().and_then(Value::as_object).into_iter().flatten() {
        match path {
            "" if name == FIELD => {}
            "" => collect(field, name, found),
            path => collect(field, &format!("{path}.{name}"), found),
        }
    }
}

/// Vitrina's own, beside those of others: nobody declares it.
fn forget_our_note(whole: &mut Map<String, Value>) {
    let Some(notes) = whole.get_mut("_meta").and_then(Value::as_object_mut) else { return };
    notes.remove("vitrina");
    if notes.is_empty() {
        whole.remove("_meta");
    }
}

fn texts(fields: &Fields) -> BTreeMap<String, String> {
    fields.iter().map(|(name, field)| (name.clone(), field.to_string())).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn fields_are_told_by_their_paths_without_the_checksum() {
        let mapping = json!({"dynamic": "strict", "_meta": {"vitrina": {"checksum": 1}}, "properties": {
            "id": {"type": "long"}, "_vitrina": {"properties": {"low": {"type": "long"}}},
            "genres": {"type": "nested", "properties": {"name": {"type": "keyword"}}},
            "director": {"type": "object", "properties": {"name": {"type": "keyword"}}}}});
        let told: Vec<(String, String)> = texts(&fields(&mapping)).into_iter().collect();
        let expected = [
            ("*", r#"{"dynamic":"strict"}"#),
            ("director.name", r#"{"type":"keyword"}"#),
            ("genres", r#"{"type":"nested"}"#),
            ("genres.name", r#"{"type":"keyword"}"#),
            ("id", r#"{"type":"long"}"#),
        ];
        assert_eq!(told, expected.map(|(name, field)| (name.to_owned(), field.to_owned())));
    }
}
