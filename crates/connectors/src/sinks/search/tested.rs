//! Does a search server answer, which one is it, and may the login do there what loads and updates do?
//!
//! A server that can tell is asked. Of others, rights become known only by using them: on a hidden index that is
//! there for a moment.

use std::collections::BTreeMap;
use std::time::Instant;

use reqwest::{Method, StatusCode};
use serde::Deserialize;
use serde_json::{Value, json};
use uuid::Uuid;
use vitrina_core::Result;

use super::client::{Client, foreign};
use crate::{Connection, Tested};

/// Whatever Vitrina makes at a server is named so.
const OURS: &str = "vitrina-*";
/// In the words of Elasticsearch. `manage` has aliases, settings and refreshes in it.
const RIGHTS: [&str; 6] = ["create_index", "index", "delete", "read", "manage", "delete_index"];

#[derive(Debug, Deserialize)]
struct Greeting {
    version: Version,
}

#[derive(Debug, Deserialize)]
struct Version {
    number: String,
    distribution: Option<String>,
}

/// What answers there.
pub(crate) async fn greet(connection: &Connection) -> Result<String> {
    Ok(greeted(&*Client::of(connection)?).await?.name())
}

/// `indexes`: patterns of what pipelines may write to.
pub(crate) async fn test(connection: &Connection, indexes: &[String]) -> Result<Tested> {
    let begun = Instant::now();
    let client = Client::of(connection)?;
    let server = greeted(&client).await?.name();
    let connected_in = begun.elapsed();
    let (missing_grants, tried) = match told_rights(&client, indexes).await? {
        Some(missing) => (missing, None),
        None => tried_rights(&client).await?,
    };
    Ok(Tested { connected_in, server, missing_grants, tried })
}

async fn greeted(client: &Client) -> Result<Greeting> {
    let reply = client.hello().await?;
    match reply.status.is_success() {
        true => client.read(&reply),
        false if reply.status == StatusCode::NOT_FOUND => Err(foreign(client.name())),
        false => Err(client.explain(&reply)),
    }
}

impl Greeting {
    fn name(&self) -> String {
        let Version { number, distribution } = &self.version;
        match distribution.as_deref() {
            Some("opensearch") => format!("OpenSearch {number}"),
            Some(other) => format!("{other} {number}"),
            None => format!("Elasticsearch {number}"),
        }
    }
}

/// `None` where the server knows no such question.
async fn told_rights(client: &Client, indexes: &[String]) -> Result<Option<Vec<String>>> {
    #[derive(Deserialize)]
    struct Told {
        index: BTreeMap<String, BTreeMap<String, bool>>,
    }
    // Whatever is written to `films` is written through aliases such as `films~…`.
    let doors = indexes.iter().filter(|name| !name.ends_with('*')).map(|name| format!("{name}~*"));
    let names: Vec<String> =
        [OURS.to_owned()].into_iter().chain(indexes.iter().cloned()).chain(doors).collect();
    let question = json!({"index": [{"names": names, "privileges": RIGHTS}]});
    let reply = client.call(Method::POST, "_security/user/_has_privileges", Some(&question)).await?;
    if !reply.status.is_success() {
        return Ok(None);
    }
    let told: Told = client.read(&reply)?;
    let lacking = |(names, rights): (&String, &BTreeMap<String, bool>)| {
        let rights: Vec<&str> =
            RIGHTS.into_iter().filter(|right| rights.get(*right) != Some(&true)).collect();
        (!rights.is_empty()).then(|| format!("{} on {names}", rights.join(", ")))
    };
    Ok(Some(told.index.iter().filter_map(lacking).collect()))
}

/// What was refused of the calls that a load makes, and a word on what was done.
async fn tried_rights(client: &Client) -> Result<(Vec<String>, Option<String>)> {
    let index = format!("vitrina-trial-{}", Uuid::new_v4().simple());
    let (mut missing, mut tried) = (Vec::new(), Vec::new());
    for Call { right, method, path, body } in calls(&index) {
        let reply = client.call(method, &path, Some(&body).filter(|body| !body.is_null())).await?;
        tried.push(right);
        match reply.status {
            StatusCode::FORBIDDEN | StatusCode::UNAUTHORIZED => missing.push(format!("{right} on {OURS}")),
            // A call that was repeated finds its work done.
            StatusCode::NOT_FOUND if right.starts_with("delete") => {}
            status if status.is_success() => {}
            _ => {
                client.once(Method::DELETE, &index, None).await.ok();
                return Err(client.explain(&reply));
            }
        }
        if right == "create_index" && !missing.is_empty() {
            break;
        }
    }
    let told = format!("the server does not tell rights; tried on index {index}: {}", tried.join(", "));
    Ok((missing, Some(told)))
}

struct Call {
    right: &'static str,
    method: Method,
    path: String,
    body: Value,
}

/// The last one takes the index away again.
fn calls(index: &str) -> Vec<Call> {
    let hidden =
        json!({"settings": {"index": {"hidden": true, "number_of_shards": 1, "number_of_replicas": 0}}});
    let door =
        json!({"actions": [{"add": {"index": index, "alias": format!("{index}~1"), "is_hidden": true}}]});
    let call = |right, method, path, body| Call { right, method, path, body };
    vec![
        call("create_index", Method::PUT, index.to_owned(), hidden),
        call("manage", Method::POST, "_aliases".to_owned(), door),
        call("index", Method::PUT, format!("{index}/_doc/1"), json!({})),
        call("read", Method::POST, format!("{index}/_mget"), json!({"ids": ["1"]})),
        call("delete", Method::DELETE, format!("{index}/_doc/1"), Value::Null),
        call("delete_index", Method::DELETE, index.to_owned(), Value::Null),
    ]
}
