//! Settings of an index while a load fills it: nobody searches it, and it has no copies. What the target or a template of
//! the server has given it instead is noted in the index, and given back at the end of the load.

use std::collections::BTreeMap;

use reqwest::Method;
use serde::Deserialize;
use serde_json::{Map, Value, json};
use vitrina_core::{Result, Target};

use super::client::Client;
use super::control::encoded;
use super::mapping;

/// What outlives a delete must outlive whoever may still send the old document.
const GC_DELETES: &str = "24h";
/// Settings that a load sets aside.
const ASIDE: [&str; 3] = ["refresh_interval", "number_of_replicas", "auto_expand_replicas"];

#[derive(Debug, Default, Deserialize)]
struct Found {
    #[serde(default)]
    settings: Settings,
    #[serde(default)]
    mappings: Value,
}

#[derive(Debug, Default, Deserialize)]
struct Settings {
    #[serde(default)]
    index: Map<String, Value>,
}

async fn of_index(client: &Client, index: &str) -> Result<Found> {
    let found: BTreeMap<String, Found> = client.get(Method::GET, &encoded(index), None).await?;
    Ok(found.into_values().next().unwrap_or_default())
}

/// Of an index that was just created. Noted first: whoever goes on after an interruption finds the note, or settings that
/// nobody has changed yet.
pub(super) async fn set_aside(client: &Client, index: &str) -> Result<()> {
    let Found { settings: Settings { index: settings }, mut mappings } = of_index(client, index).await?;
    if mappings.pointer("/_meta/vitrina/settings").is_none() {
        let noted: Map<String, Value> = ASIDE
            .iter()
            .map(|name| ((*name).to_owned(), settings.get(*name).cloned().unwrap_or_default()))
            .collect();
        mappings["_meta"]["vitrina"]["settings"] = Value::Object(noted);
        let note = json!({"_meta": mappings["_meta"]});
        put(client, index, "_mapping", &note).await?;
    }
    let mut loading =
        json!({"refresh_interval": "-1", "number_of_replicas": 0, "auto_expand_replicas": false});
    if !settings.contains_key("gc_deletes") {
        loading["gc_deletes"] = json!(GC_DELETES);
    }
    put(client, index, "_settings", &json!({"index": loading})).await
}

/// What the load has set aside. An older release has not noted it: then as the target says.
pub(super) async fn to_give_back(client: &Client, index: &str, target: &Target) -> Result<Value> {
    let Found { settings: Settings { index: settings }, mappings } = of_index(client, index).await?;
    let mut settled = match mappings.pointer("/_meta/vitrina/settings") {
        Some(noted) => json!({"index": noted}),
        None => mapping::settled(target),
    };
    if !settings.contains_key("gc_deletes") {
        settled["index"]["gc_deletes"] = json!(GC_DELETES);
    }
    Ok(settled)
}

/// Ingest pipelines of an index change documents after their checksums were made. Where there is no index, none does.
pub(super) async fn alters_documents(client: &Client, index: &str) -> Result<bool> {
    let path = format!("{}/_settings?ignore_unavailable=true", encoded(index));
    let found: BTreeMap<String, Found> = client.get(Method::GET, &path, None).await?;
    let is_set = |found: &Found| {
        let pipelines =
            ["default_pipeline", "final_pipeline"].iter().filter_map(|name| found.settings.index.get(*name));
        pipelines.into_iter().any(|pipeline| pipeline != "_none")
    };
    Ok(found.values().any(is_set))
}

/// Of an index that is written to from the start.
pub(super) async fn remember_deletes(client: &Client, index: &str) -> Result<()> {
    match of_index(client, index).await?.settings.index.contains_key("gc_deletes") {
        true => Ok(()),
        false => put(client, index, "_settings", &json!({"index": {"gc_deletes": GC_DELETES}})).await,
    }
}

async fn put(client: &Client, index: &str, what: &str, body: &Value) -> Result<()> {
    client.get::<Value>(Method::PUT, &format!("{}/{what}", encoded(index)), Some(body)).await.map(drop)
}
