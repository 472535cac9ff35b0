//! What a deleted pipeline leaves behind: the index that readers see stays, as nobody's.

use std::sync::Arc;

use reqwest::Method;
use serde_json::json;
use vitrina_core::{Error, Result, TargetName};

use super::control::{Control, Controls, Held};
use super::indexes::{self, Standing};
use super::names::Names;
use super::{Client, index};
use crate::sinks::Left;

pub(super) async fn forget(left: &Left<'_>) -> Result<()> {
    let client = Client::of(left.connections.get(&left.target.connection)?)?;
    let target: TargetName = left.target.name.parse()?;
    let names = Names::new(index(&target), left.pipeline);
    // Of either kind: the target may have been described otherwise when it was written to.
    let (shared, alone) = (format!("{}~{}", names.index, left.pipeline), names.index.clone());
    let (shared, alone) = (Controls::new(&client, shared), Controls::new(&client, alone));
    let mut kept = Vec::new();
    if let Some(held) = owned(&shared, left).await? {
        kept.extend(held.control.live);
        shared.remove().await?;
    }
    kept.extend(leave(&alone, left).await?);
    remove_markers(&client, &names).await?;
    close_doors(&client, &names).await?;
    remove_indexes(&client, &names, &kept).await
}

/// The control document, where it is this pipeline's.
async fn owned(controls: &Controls, left: &Left<'_>) -> Result<Option<Held>> {
    let held = controls.read().await?;
    Ok(held.filter(|Held { control, .. }| {
        control.pipeline == Some(left.pipeline) && control.installation == left.installation
    }))
}

/// It is nobody's from now on; answers the index that readers see.
async fn leave(controls: &Controls, left: &Left<'_>) -> Result<Option<String>> {
    let Some(held) = owned(controls, left).await? else { return Ok(None) };
    let nobodys = Control { pipeline: None, next: None, previous: None, ..held.control.clone() };
    match controls.replace(&held, &nobodys).await? {
        Some(held) => Ok(held.control.live),
        None => Err(Error::retry("sink.contended", "somebody else has changed who owns the index")),
    }
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
