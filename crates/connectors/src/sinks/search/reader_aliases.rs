//! Aliases that readers use beside the name of an index: those of the target's definition, and those that people have put
//! there. They move with what readers see, in the same call, with their filters and routing.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::{Map, Value, json};
use vitrina_core::{Error, Result, Target};

use super::client::Client;
use super::control::encoded;
use super::indexes::{self, Standing};
use super::names::Names;

/// What an alias says beside its name. That it takes writes is nothing of a reader's.
const CARRIED: [&str; 4] = ["filter", "index_routing", "search_routing", "is_hidden"];

/// Of these, what makes readers find less than there is.
const HIDING: [&str; 3] = ["filter", "index_routing", "search_routing"];

/// The aliases of an index, without those that are written through.
#[derive(Debug, Default)]
struct OfIndex {
    aliases: Map<String, Value>,
    /// Of the target's definition when the index was created.
    declared: Vec<String>,
}

#[derive(Deserialize)]
struct Found {
    #[serde(default)]
    aliases: Map<String, Value>,
    #[serde(default)]
    mappings: Value,
}

/// Aliases of readers by index, of indexes that are there.
async fn of_indexes(
    client: &Client,
    names: &Names,
    indexes: &[&String],
) -> Result<BTreeMap<String, OfIndex>> {
    if indexes.is_empty() {
        return Ok(BTreeMap::new());
    }
    let path = indexes.iter().map(|index| encoded(index)).collect::<Vec<_>>().join(",");
    let path =
        format!("{path}?ignore_unavailable=true&expand_wildcards=all&filter_path=*.aliases,*.mappings._meta");
    let found: BTreeMap<String, Found> = client.find(&path).await?.unwrap_or_default();
    let written = format!("{}~", names.index);
    let of = |Found { mut aliases, mappings }: Found| {
        aliases.retain(|alias, _| !alias.starts_with(&written));
        let declared = mappings.pointer("/_meta/vitrina/aliases").cloned().unwrap_or_default();
        OfIndex { aliases, declared: serde_json::from_value(declared).unwrap_or_default() }
    };
    Ok(found.into_iter().map(|(index, told)| (index, of(told))).collect())
}

/// Of these indexes those that no reader has an alias for.
pub(super) async fn unread(client: &Client, names: &Names, indexes: Vec<String>) -> Result<Vec<String>> {
    let of_indexes = of_indexes(client, names, &indexes.iter().collect::<Vec<_>>()).await?;
    let is_read = |index: &String| of_indexes.get(index).is_some_and(|of| !of.aliases.is_empty());
    Ok(indexes.into_iter().filter(|index| !is_read(index)).collect())
}

/// The actions that give readers `to` by its name and by all other aliases. `gone` are removed in the same call.
pub(super) async fn moving(
    client: &Client,
    target: &Target,
    names: &Names,
    standing: &Standing,
    to: &str,
    gone: &[String],
) -> Result<Vec<Value>> {
    let concrete = standing.concrete.then_some(&names.index);
    let sources: Vec<&String> = standing.behind.iter().chain(concrete).chain(gone).collect();
    let of_indexes = of_indexes(client, names, &sources).await?;
    let of_name = |index: &String| json!({"remove": {"index": index, "alias": names.index}});
    // One that goes takes its aliases with it: the server refuses to remove them as well.
    let stays = standing.behind.iter().filter(|index| *index != to && !gone.contains(index));
    let mut removed: Vec<Value> = stays.map(of_name).collect();
    let mut wanted: BTreeMap<String, Value> = BTreeMap::new();
    wanted.insert(names.index.clone(), json!({}));
    for (alias, rules) in &target.document.aliases {
        wanted.insert(alias.clone(), json!(rules));
    }
    // What readers see comes first: of what they saw before it only what is nowhere else is left.
    for source in sources {
        let Some(OfIndex { aliases, declared }) = of_indexes.get(source) else { continue };
        let is_gone = gone.contains(source) || Some(source) == concrete;
        for (alias, told) in aliases {
            let is_name = *alias == names.index;
            if !is_name && !is_gone && !names.is_vitrinas(source) {
                // Somebody else's index, which stays as it is but for the name.
                continue;
            }
            if !is_name && !is_gone && source != to {
                removed.push(json!({"remove": {"index": source, "alias": alias}}));
            }
            let is_withdrawn = declared.contains(alias) && !target.document.aliases.contains_key(alias);
            let is_declared = target.document.aliases.contains_key(alias);
            if is_withdrawn || is_declared || (!is_name && wanted.contains_key(alias)) {
                continue;
            }
            let carried =
                CARRIED.iter().filter_map(|name| Some(((*name).to_owned(), told.get(*name)?.clone())));
            let carried = Value::Object(carried.collect());
            if !is_name || wanted[alias].as_object().is_some_and(Map::is_empty) {
                wanted.insert(alias.clone(), carried);
            }
        }
    }
    Ok(removed.into_iter().chain(wanted.into_iter().map(|alias| adding(to, alias))).collect())
}

/// A further name of the target that is an index or an alias of somebody else's: their readers would find these documents
/// among their own. Who declares it for another index too means it so.
pub(super) async fn refuse_names_of_others(client: &Client, target: &Target, names: &Names) -> Result<()> {
    for alias in target.document.aliases.keys() {
        let mut others = indexes::listed(client, alias).await?;
        others.retain(|index| !names.is_vitrinas(index));
        let of_indexes = of_indexes(client, names, &others.iter().collect::<Vec<_>>()).await?;
        let declares = |index: &String| of_indexes.get(index).is_some_and(|of| of.declared.contains(alias));
        if let Some(other) = others.iter().find(|index| !declares(index)) {
            return Err(named(names, alias, other));
        }
    }
    Ok(())
}

fn named(names: &Names, alias: &str, other: &String) -> Error {
    let index = &names.index;
    let what = match alias == other {
        true => format!("{alias} is an index itself"),
        false => format!("alias {alias} is on index {other}"),
    };
    Error::fix("sink.alias_taken", format!("index {index} cannot be given the further name {alias}: {what}, which is not of {index}, and its readers would find the documents of both"))
        .hint("nothing was changed; choose another name in document.aliases, or take the alias away from there")
}

/// A filter or a routing that somebody else has put on the name, for an index of their own. Laid over another one it hides
/// documents that readers should find; left out it may show what it was there to hide. So nobody decides but a person.
pub(super) async fn refuse_rules_of_others(
    client: &Client,
    names: &Names,
    standing: &Standing,
) -> Result<()> {
    if standing.strangers(names).next().is_none() && standing.behind.len() < 2 {
        return Ok(());
    }
    let of_indexes = of_indexes(client, names, &standing.behind.iter().collect::<Vec<_>>()).await?;
    let mut own: Option<Value> = None;
    for (index, of_index) in &of_indexes {
        let rules = rules(of_index.aliases.get(&names.index));
        let is_own = names.is_vitrinas(index);
        let differs = is_own && own.as_ref().is_some_and(|before| *before != rules);
        if differs || (!is_own && rules != json!({})) {
            return Err(ruled(names, index, &rules));
        }
        if is_own {
            own = Some(rules);
        }
    }
    Ok(())
}

/// What an alias hides of an index.
fn rules(told: Option<&Value>) -> Value {
    let mut rules = told.cloned().unwrap_or_else(|| json!({}));
    if let Some(rules) = rules.as_object_mut() {
        rules.retain(|name, _| HIDING.contains(&name.as_str()));
    }
    rules
}

fn ruled(names: &Names, index: &str, rules: &Value) -> Error {
    let name = &names.index;
    let without = json!({"actions": [{"remove": {"index": index, "alias": name}}, {"add": {"index": index, "alias": name}}]});
    Error::fix("sink.alias_rules", format!("alias {name} shows a part of index {index} only, by {rules}: it is not known which documents of a new index readers may see"))
        .hint(format!(
            "nothing was changed; if they may see all, take the rules off the name: POST _aliases {without}. Put a filter that is still needed on a further name (document.aliases), or on this one once it is Vitrina's: loads carry it over"
        ))
}

/// The aliases that a new index has from the start, where nothing is exchanged for it.
pub(super) fn first(target: &Target, names: &Names, index: &str) -> Vec<Value> {
    let own = std::iter::once((names.index.clone(), json!({})));
    let declared = target.document.aliases.iter().map(|(alias, rules)| (alias.clone(), json!(rules)));
    own.chain(declared).map(|alias| adding(index, alias)).collect()
}

fn adding(index: &str, (alias, mut options): (String, Value)) -> Value {
    options["index"] = json!(index);
    options["alias"] = json!(alias);
    json!({"add": options})
}

/// The mapping of an index that notes which aliases are the target's.
pub(super) fn noted(target: &Target, mut mapping: Value) -> Value {
    if !target.document.aliases.is_empty() {
        mapping["_meta"]["vitrina"]["aliases"] = target.document.aliases.keys().cloned().collect();
    }
    mapping
}
