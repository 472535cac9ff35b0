//! What the demo leaves at search servers, remembered in its directory, so that `--clean` can remove it: an index whose
//! owner is gone would be refused to the next demo.

use std::fs;
use std::path::Path;

use anyhow::Result;
use reqwest::Method;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use sqlx::{Connection, PgConnection};
use vitrina_cinema::INDEX_PIPELINES;

use super::Server;
use crate::commands::demo::stand;
use crate::output::say;

const FILE: &str = "indexes.json";
/// Where the sink notes who owns an index, a document each.
const CONTROL: &str = "vitrina-control";

#[derive(Debug, Default, Serialize, Deserialize)]
struct Leftovers {
    /// Of the meta-store that owns the indexes.
    installation: String,
    /// URLs, with their passwords.
    servers: Vec<String>,
}

/// Before the first index is made.
pub(super) async fn note(directory: &Path, meta_store: &str, server: &Server) -> Result<()> {
    let mut connection = PgConnection::connect(meta_store).await?;
    let installation =
        sqlx::query_scalar("select etl.installation_id()::text").fetch_one(&mut connection).await?;
    connection.close().await?;
    let mut servers = read(directory).servers;
    servers.retain(|known| known != server.written());
    servers.push(server.written().to_owned());
    let text = serde_json::to_string(&Leftovers { installation, servers })?;
    stand::write_private(&directory.join(FILE), &text)
}

fn read(directory: &Path) -> Leftovers {
    let text = fs::read_to_string(directory.join(FILE)).unwrap_or_default();
    serde_json::from_str(&text).unwrap_or_default()
}

/// A server that is away keeps what it has: that is told, and nothing else depends on it.
pub(in crate::commands::demo) async fn remove(directory: &Path) {
    let Leftovers { installation, servers } = read(directory);
    for written in servers {
        let Ok(server) = Server::at("ELASTICSEARCH_URL", &written) else { continue };
        match remove_all(&server, &installation).await {
            Ok(0) => {}
            Ok(indexes) => say(&format!("removed {indexes} indexes at {}", server.shown())),
            Err(_) => say(&format!("the demo's indexes stay at {}, which does not answer", server.shown())),
        }
    }
}

async fn remove_all(server: &Server, installation: &str) -> Result<usize> {
    let mut removed = 0;
    for (_, text) in INDEX_PIPELINES {
        let index = text.split("- name: es:").nth(1).and_then(|rest| rest.split_whitespace().next());
        removed += remove_index(server, index.unwrap_or_default(), installation).await?;
    }
    Ok(removed)
}

/// Only what this demo's own pipeline has made, each by its exact name.
async fn remove_index(server: &Server, index: &str, installation: &str) -> Result<usize> {
    let (_, held) = server.call(Method::GET, &[CONTROL, "_doc", index], None).await?;
    let control = &held["_source"];
    let Some(pipeline) = control["pipeline"].as_str().filter(|_| control["installation"] == installation)
    else {
        return Ok(0);
    };
    let digits = pipeline.replace('-', "");
    let tail = digits.get(24..).unwrap_or(&digits);
    let prefixes = [format!("vitrina-{index}-{tail}-"), format!("vitrina-marker-{index}-{tail}-")];
    let mut removed = 0;
    // What readers see may be an index that another pipeline had left, and this one has taken.
    let (_, behind) = server.call(Method::GET, &["_alias", index], None).await?;
    for name in behind.as_object().into_iter().flat_map(|behind| behind.keys()) {
        if name.starts_with(&format!("vitrina-{index}-"))
            && !name.starts_with(&prefixes[0])
            && is_created_by(server, name, installation).await?
        {
            removed += usize::from(server.call(Method::DELETE, &[name], None).await?.0.is_success());
        }
    }
    for prefix in prefixes {
        let pattern = format!("{prefix}*");
        let found = server.ask(Method::GET, &[&pattern, "_alias?expand_wildcards=all"], None).await?;
        for name in found.as_object().into_iter().flat_map(|found| found.keys()) {
            // What follows is the number of a load or a token, and nothing else.
            if name
                .strip_prefix(&prefix)
                .is_some_and(|rest| rest.bytes().all(|byte| byte.is_ascii_hexdigit()))
                && is_created_by(server, name, installation).await?
            {
                server.ask(Method::DELETE, &[name], None).await?;
                removed += 1;
            }
        }
    }
    server.call(Method::DELETE, &[CONTROL, "_doc", index], None).await.map(|_: (_, Value)| removed)
}

/// As the mark in its mapping says.
async fn is_created_by(server: &Server, index: &str, installation: &str) -> Result<bool> {
    let (_, found) = server.call(Method::GET, &[index, "_mapping"], None).await?;
    Ok(found[index]["mappings"]["_meta"]["vitrina"]["installation"] == installation)
}
