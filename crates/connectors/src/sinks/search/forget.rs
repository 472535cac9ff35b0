//! What a deleted pipeline leaves behind: the index that readers see stays, as nobody's.

use std::sync::Arc;

use reqwest::Method;
use serde_json::json;
use vitrina_core::{Result, TargetName};

use super::control::{Control, Controls};
use super::indexes::{self, Standing};
use super::names::Names;
use super::{Client, index};
use crate::sinks::Left;

pub(super) async fn forget(left: &Left<'_>) -> Result<()> {
    let client = Client::of(left.connections.get(&left.target.connection)?)?;
    let target: TargetName = left.target.name.parse()?;
    let names = Names::new(index(&target), left.pipeline);
    let id = match left.target.document.partial {
        true => format!("{}~{}", names.index, left.pipeline),
        false => names.index.clone(),
    };
    let controls = Controls::new(&client, id);
    let mut kept = Vec::new();
    if let Some(held) = controls.read().await?
        && held.control.pipeline == Some(left.pipeline)
        && held.control.installation == left.installation
    {
        kept.extend(held.control.live.clone());
        match left.target.document.partial {
            true => controls.remove().await?,
            false => {
                let nobodys = Control { pipeline: None, next: None, previous: None, ..held.control.clone() };
                controls.replace(&held, &nobodys).await?;
            }
        }
    }
    remove_markers(&client, &names).await?;
    close_doors(&client, &names).await?;
    remove_indexes(&client, &names, &kept).await
}

async fn close_doors(client: &Arc<Client>, names: &Names) -> Result<()> {
    let standing = Standing::look(client, names).await?;
    let close = |(door, index): &(String, String)| json!({"remove": {"index": index, "alias": door}});
    let actions: Vec<_> = standing.doors.iter().map(close).collect();
    if actions.is_empty() {
        return Ok(());
    }
    let reply = client.call(Method::POST, "_aliases", Some(&json!({"actions": actions}))).await?;
    if reply.status.is_success() { Ok(()) } else { Err(client.explain(&reply)) }
}

/// Loads of this pipeline; never what readers see.
async fn remove_indexes(client: &Arc<Client>, names: &Names, kept: &[String]) -> Result<()> {
    let standing = Standing::look(client, names).await?;
    for index in indexes::listed(client, &names.physical_pattern()).await? {
        if names.is_physical(&index) && !kept.contains(&index) && !standing.behind.contains(&index) {
            indexes::delete(client, &index).await?;
        }
    }
    Ok(())
}

/// First: whoever still works for the pipeline changes no aliases any more.
async fn remove_markers(client: &Arc<Client>, names: &Names) -> Result<()> {
    for marker in indexes::listed(client, &names.marker_pattern()).await? {
        if names.is_marker(&marker) {
            indexes::delete(client, &marker).await?;
        }
    }
    Ok(())
}
