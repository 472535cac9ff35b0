//! What a deleted pipeline leaves behind: the index that readers see stays, as nobody's.

use std::sync::Arc;

use reqwest::Method;
use serde_json::json;
use vitrina_core::{Error, Result, TargetName};

use super::control::{Control, Controls};
use super::indexes::{self, Standing};
use super::names::Names;
use super::owner::{contended, share_id};
use super::{Client, index, mark, reader_aliases};
use crate::sinks::Left;

pub(super) async fn forget(left: &Left<'_>) -> Result<()> {
    let client = Client::of(left.connections.get(&left.target.connection)?)?;
    let target: TargetName = left.target.name.parse()?;
    let names = Names::new(index(&target), left.pipeline);
    // Of either kind: the target may have been described otherwise when it was written to.
    let share = Controls::new(&client, share_id(&names, left.pipeline));
    let alone = Controls::new(&client, names.index.clone());
    let (shared, owned) = (share.read().await?, alone.read().await?);
    for held in [&shared, &owned].into_iter().flatten() {
        if !is_left(&names, &held.control, left)? {
            return Ok(());
        }
    }
    let mut kept = Vec::new();
    if let Some(held) = shared.filter(|held| is_of(&held.control, left)) {
        kept.extend(held.control.live);
        share.remove().await?;
    }
    let before = leave(&alone, &names, left).await?;
    kept.extend(before.as_ref().and_then(|control| control.live.clone()));
    let previous = before.and_then(|control| control.previous).map(|previous| previous.index);
    remove_markers(&client, &names, left).await?;
    close_doors(&client, &names).await?;
    remove_indexes(&client, &names, &kept, previous, left).await
}

fn is_of(control: &Control, left: &Left<'_>) -> bool {
    control.pipeline == Some(left.pipeline) && control.installation == left.installation
}

/// What another installation has for a pipeline of this id stays: one of the two is a copy of the other. Errs where that was
/// written by another copy of this meta-store.
fn is_left(names: &Names, control: &Control, left: &Left<'_>) -> Result<bool> {
    let is_known = left.issued.adopts || left.issued.knows(control.holder());
    match is_of(control, left) {
        true if is_known => Ok(true),
        true => Err(Error::installation_copied(&format!("index {}", names.index))),
        false => {
            let writer = control.writers.get(&left.pipeline);
            let named = writer
                .copied()
                .or(control.pipeline.filter(|id| *id == left.pipeline).map(|_| control.installation));
            Ok(named.is_none_or(|installation| installation == left.installation))
        }
    }
}

/// The index is unowned from now on, or shared by one less; answers the control document as it was.
async fn leave(controls: &Controls, names: &Names, left: &Left<'_>) -> Result<Option<Control>> {
    let Some(held) = controls.read().await? else { return Ok(None) };
    is_left(names, &held.control, left)?;
    let mut after = held.control.clone();
    if is_of(&held.control, left) {
        after = Control { pipeline: None, owner: None, next: None, previous: None, ..after };
    } else if after.writers.get(&left.pipeline) == Some(&left.installation) {
        after.writers.remove(&left.pipeline);
    } else {
        return Ok(None);
    }
    match controls.replace(&held, &after).await? {
        Some(_) => Ok(Some(held.control)),
        None => Err(contended()),
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

/// Loads of this pipeline; never what readers see, nor what is not proved to be of this installation. `previous` was named
/// by its control document.
async fn remove_indexes(
    client: &Arc<Client>,
    names: &Names,
    kept: &[String],
    previous: Option<String>,
    left: &Left<'_>,
) -> Result<()> {
    let standing = Standing::look(client, names).await?;
    let created = mark::created_by(client, &names.physical_pattern(), left.installation).await?;
    let created = created.into_iter().chain(previous).collect();
    for index in reader_aliases::unread(client, names, created).await? {
        if names.is_physical(&index) && !kept.contains(&index) && !standing.behind.contains(&index) {
            indexes::delete(client, &index).await?;
        }
    }
    Ok(())
}

/// First: whoever still works for the pipeline changes no aliases any more.
async fn remove_markers(client: &Arc<Client>, names: &Names, left: &Left<'_>) -> Result<()> {
    for marker in mark::deletable_guards(client, &names.marker_pattern(), left.installation).await? {
        if names.is_marker(&marker) {
            indexes::delete(client, &marker).await?;
        }
    }
    Ok(())
}
