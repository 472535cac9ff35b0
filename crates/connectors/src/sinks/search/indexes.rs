//! Indexes and aliases as the server has them.

use std::collections::{BTreeMap, BTreeSet};

use reqwest::{Method, StatusCode};
use serde::Deserialize;
use serde::de::{DeserializeOwned, IgnoredAny};
use serde_json::{Value, json};
use vitrina_core::{Error, Result};

use super::client::{Client, Reply};
use super::control::encoded;
use super::names::Names;

/// Documents that are looked for with one call.
const AT_ONCE: usize = 500;
/// With the first call, which tells how large they are.
const FIRST: usize = 16;
/// Documents with a routing that one search answers.
const ROUTED: usize = 1000;
/// What an answer should come to.
const ANSWER_BYTES: usize = 4 << 20;

/// What stands under the name that readers search, and the write aliases of this pipeline.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Standing {
    /// Indexes behind the name.
    pub(super) behind: BTreeSet<String>,
    /// An index has the name itself.
    pub(super) concrete: bool,
    /// Write aliases, open and closed ones, each with the index behind it.
    pub(super) doors: BTreeSet<(String, String)>,
}

impl Standing {
    pub(super) async fn look(client: &Client, names: &Names) -> Result<Self> {
        let path = format!(
            "_alias/{},{}?expand_wildcards=all",
            encoded(&names.index),
            pattern(&names.door_pattern())
        );
        let reply = client.call(Method::GET, &path, None).await?;
        // 404 where one of the two is not there; the other one is told all the same.
        if !reply.status.is_success() && reply.status != StatusCode::NOT_FOUND {
            return Err(client.explain(&reply));
        }
        let found: BTreeMap<String, Value> = serde_json::from_slice(&reply.body).unwrap_or_default();
        let mut standing = Self::default();
        for (index, told) in found {
            let Some(aliases) = told.get("aliases").and_then(Value::as_object) else { continue };
            for alias in aliases.keys() {
                if *alias == names.index {
                    standing.behind.insert(index.clone());
                } else if names.is_door(alias) {
                    standing.doors.insert((alias.clone(), index.clone()));
                }
            }
        }
        standing.concrete = standing.behind.is_empty() && exists(client, &names.index).await?;
        Ok(standing)
    }

    /// The index of Vitrina's that readers see.
    pub(super) fn live(&self, names: &Names) -> Option<&String> {
        match self.behind.iter().collect::<Vec<_>>()[..] {
            [one] if names.is_vitrinas(one) => Some(one),
            _ => None,
        }
    }

    /// The one of several behind the name that the control document knows as what readers see: others have been put beside it.
    pub(super) fn live_among_others(&self, known: Option<&String>) -> Option<&String> {
        known.filter(|_| self.behind.len() > 1).and_then(|known| self.behind.get(known))
    }

    /// Indexes behind the name that are not Vitrina's.
    pub(super) fn strangers<'a>(&'a self, names: &'a Names) -> impl Iterator<Item = &'a String> {
        self.behind.iter().filter(|index| !names.is_vitrinas(index))
    }

    /// Something that is not Vitrina's has the name.
    pub(super) fn is_foreign(&self, names: &Names) -> bool {
        self.concrete || (!self.behind.is_empty() && self.live(names).is_none())
    }
}

pub(super) async fn exists(client: &Client, index: &str) -> Result<bool> {
    let reply = client.call(Method::HEAD, &encoded(index), None).await?;
    match reply.status {
        StatusCode::NOT_FOUND => Ok(false),
        status if status.is_success() => Ok(true),
        _ => Err(client.explain(&reply)),
    }
}

/// The concrete indexes of a pattern, hidden ones too.
pub(super) async fn listed(client: &Client, wanted: &str) -> Result<Vec<String>> {
    let path = format!("{}/_alias?expand_wildcards=all", pattern(wanted));
    let found: BTreeMap<String, Value> = client.find(&path).await?.unwrap_or_default();
    Ok(found.into_keys().collect())
}

/// The index behind a name, whatever filter an alias has. Of an alias of several it stays the name.
pub(super) async fn behind(client: &Client, name: &str) -> Result<Option<String>> {
    let mut found = listed(client, name).await?;
    Ok(match found.len() {
        0 => None,
        1 => found.pop(),
        _ => Some(name.to_owned()),
    })
}

/// By its exact name; gone already is as good.
pub(super) async fn delete(client: &Client, index: &str) -> Result<()> {
    let reply = client.call(Method::DELETE, &encoded(index), None).await?;
    match reply.status {
        StatusCode::NOT_FOUND => Ok(()),
        status if status.is_success() => Ok(()),
        _ => Err(client.explain(&reply)),
    }
}

#[derive(Deserialize)]
struct Count {
    count: u64,
    #[serde(rename = "_shards")]
    shards: Shards,
}

/// How much of an index has answered. A shard that is nowhere is not counted as failed.
#[derive(Debug, Deserialize)]
pub(super) struct Shards {
    total: u64,
    successful: u64,
}

impl Shards {
    /// What a part of an index does not tell is not missing.
    pub(super) fn require_all(&self) -> Result<()> {
        if self.successful == self.total {
            return Ok(());
        }
        let message = format!("only {} of {} shards of an index answer", self.successful, self.total);
        Err(Error::release("sink.unavailable", message).hint("see the server's cluster health"))
    }
}

/// A part of it is nowhere.
pub(super) async fn is_red(client: &Client, index: &str) -> Result<bool> {
    let path = format!("_cluster/health/{}?filter_path=status", encoded(index));
    let health: Value = client.get(Method::GET, &path, None).await?;
    Ok(health["status"] == "red")
}

/// Of what is searchable by now.
pub(super) async fn count(client: &Client, index: &str) -> Result<u64> {
    count_of(client, index, &json!({"match_all": {}})).await
}

pub(super) async fn count_of(client: &Client, index: &str, query: &Value) -> Result<u64> {
    let path = format!("{}/_count", encoded(index));
    let counted: Count = client.get(Method::POST, &path, Some(&json!({"query": query}))).await?;
    counted.shards.require_all()?;
    Ok(counted.count)
}

pub(super) async fn refresh(client: &Client, index: &str) -> Result<()> {
    let _: Value = client.get(Method::POST, &format!("{}/_refresh", encoded(index)), None).await?;
    Ok(())
}

/// Tells whether a document is still the one that was read: a write to it changes the number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Deserialize)]
pub(super) struct DocumentState {
    #[serde(rename = "_seq_no")]
    pub(super) seq_no: i64,
    #[serde(rename = "_primary_term")]
    pub(super) primary_term: i64,
}

/// A document that is there; its source where that was asked for.
#[derive(Debug, Deserialize)]
pub(super) struct Found<S> {
    #[serde(rename = "_id")]
    pub(super) id: String,
    #[serde(rename = "_routing")]
    pub(super) routing: Option<String>,
    #[serde(rename = "_version")]
    pub(super) version: Option<i64>,
    #[serde(flatten)]
    pub(super) state: Option<DocumentState>,
    #[serde(rename = "_source")]
    pub(super) source: Option<S>,
    #[serde(default)]
    found: bool,
    error: Option<Value>,
}

/// Those of these documents that are there, as they are now, refreshed or not; `query` says what of them.
pub(super) async fn of_ids<S: DeserializeOwned>(
    client: &Client,
    index: &str,
    query: &str,
    ids: &[String],
) -> Result<Vec<Found<S>>> {
    let (path, mut there) = (format!("{}/_mget{query}", encoded(index)), Vec::new());
    let (mut rest, mut at_once) = (ids, FIRST);
    while !rest.is_empty() {
        let (some, more) = rest.split_at(at_once.min(rest.len()));
        let reply = client.call(Method::POST, &path, Some(&json!({"ids": some}))).await?;
        let bytes = reply.body.len().max(1);
        there.extend(found_in(client, &reply)?);
        (rest, at_once) = (more, (ANSWER_BYTES * some.len() / bytes).clamp(1, (8 * at_once).min(AT_ONCE)));
    }
    Ok(there)
}

/// The same with some of their fields only.
pub(super) async fn fields_of(
    client: &Client,
    index: &str,
    fields: &[&String],
    ids: &[String],
) -> Result<Vec<Found<Value>>> {
    let (path, mut there) = (format!("{}/_mget", encoded(index)), Vec::new());
    for some in ids.chunks(AT_ONCE) {
        let docs: Vec<Value> = some.iter().map(|id| json!({"_id": id, "_source": fields})).collect();
        there.extend(looked_for(client, &path, &json!({"docs": docs})).await?);
    }
    Ok(there)
}

/// Documents of these ids that lie on another shard than their id says, by a routing of their own: a search finds them,
/// and who asks for the id does not. As they are now, of those that can be searched. A routing that leads to the shard of
/// the id leads to the document of the id itself.
pub(super) async fn misplaced<S: DeserializeOwned>(
    client: &Client,
    index: &str,
    ids: &[String],
) -> Result<Vec<Found<S>>> {
    let routed = routed(client, index, ids).await?;
    let of: BTreeSet<String> = routed.iter().map(|(id, _)| id.clone()).collect();
    let of: Vec<String> = of.into_iter().collect();
    // Servers tell the routing with the source, or when they are asked for it.
    let placed = of_ids::<IgnoredAny>(client, index, "?_source=false&stored_fields=_routing", &of).await?;
    let placed: BTreeSet<(String, Option<String>)> =
        placed.into_iter().map(|document| (document.id, document.routing)).collect();
    let (path, mut there) = (format!("{}/_mget", encoded(index)), Vec::new());
    for some in routed.chunks(FIRST) {
        let docs: Vec<Value> =
            some.iter().map(|(id, routing)| json!({"_id": id, "routing": routing})).collect();
        there.extend(looked_for::<S>(client, &path, &json!({"docs": docs})).await?);
    }
    there.retain(|document| !placed.contains(&(document.id.clone(), document.routing.clone())));
    Ok(there)
}

/// Those of these ids that documents with a routing have, with their routings.
async fn routed(client: &Client, index: &str, ids: &[String]) -> Result<Vec<(String, String)>> {
    #[derive(Deserialize)]
    struct Page {
        #[serde(rename = "_shards")]
        shards: Shards,
        hits: Hits,
    }
    #[derive(Deserialize)]
    struct Hits {
        hits: Vec<Hit>,
    }
    #[derive(Deserialize)]
    struct Hit {
        #[serde(rename = "_id")]
        id: String,
        #[serde(rename = "_routing")]
        routing: Option<String>,
    }
    let (path, mut found) = (format!("{}/_search", encoded(index)), Vec::new());
    let mut left: Vec<&[String]> = ids.chunks(AT_ONCE).collect();
    while let Some(some) = left.pop() {
        let of_ids = json!([{"ids": {"values": some}}, {"exists": {"field": "_routing"}}]);
        let body = json!({"size": ROUTED, "_source": false, "query": {"bool": {"filter": of_ids}}});
        let page: Page = client.get(Method::POST, &path, Some(&body)).await?;
        page.shards.require_all()?;
        // An id has no more documents than its index has shards.
        if page.hits.hits.len() == ROUTED && some.len() > 1 {
            let (first, second) = some.split_at(some.len() / 2);
            left.extend([second, first]);
            continue;
        }
        found.extend(page.hits.hits.into_iter().filter_map(|hit| Some((hit.id, hit.routing?))));
    }
    Ok(found)
}

async fn looked_for<S: DeserializeOwned>(client: &Client, path: &str, body: &Value) -> Result<Vec<Found<S>>> {
    found_in(client, &client.call(Method::POST, path, Some(body)).await?)
}

fn found_in<S: DeserializeOwned>(client: &Client, reply: &Reply) -> Result<Vec<Found<S>>> {
    #[derive(Deserialize)]
    struct Answer<S> {
        docs: Vec<Found<S>>,
    }
    let answer: Answer<S> = client.read(reply)?;
    if answer.docs.iter().any(|document| document.error.is_some()) {
        return Err(unread());
    }
    Ok(answer.docs.into_iter().filter(|document| document.found).collect())
}

/// Which of these documents are there, with their versions.
pub(super) async fn versions(client: &Client, index: &str, ids: &[String]) -> Result<BTreeMap<String, i64>> {
    let there = of_ids::<IgnoredAny>(client, index, "?_source=false", ids).await?;
    Ok(there.into_iter().filter_map(|document| Some((document.id, document.version?))).collect())
}

/// A document that could not be looked for is not one that is not there.
pub(super) fn unread() -> Error {
    Error::release("sink.unavailable", "some documents could not be looked for")
        .hint("see the server's cluster health")
}

/// Of a new index: no template may have put it where readers look. It is taken away from there, and stays: somebody else
/// may have begun to use it.
pub(super) async fn require_alone(client: &Client, index: &str, known: impl Fn(&str) -> bool) -> Result<()> {
    let found: BTreeMap<String, Value> =
        client.get(Method::GET, &format!("{}/_alias", encoded(index)), None).await?;
    let aliases =
        found.values().filter_map(|told| told["aliases"].as_object()).flat_map(|aliases| aliases.keys());
    let strange: Vec<&String> = aliases.filter(|alias| !known(alias)).collect();
    if strange.is_empty() {
        return Ok(());
    }
    let remove = |alias: &&String| json!({"remove": {"index": index, "alias": alias}});
    let actions: Vec<Value> = strange.iter().map(remove).collect();
    let _: Value = client.get(Method::POST, "_aliases", Some(&json!({"actions": actions}))).await?;
    let names = strange.into_iter().map(String::as_str).collect::<Vec<_>>().join(", ");
    Err(Error::fix("sink.template", format!("a template of the server gives new indexes {names} as aliases"))
        .hint("keep the patterns of index templates away from names that begin with `vitrina-`"))
}

/// A pattern keeps its star.
pub(super) fn pattern(text: &str) -> String {
    encoded(text).replace("%2A", "*")
}
