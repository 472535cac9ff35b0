//! How older owners are fenced, and how aliases that readers use are changed by nobody but the newest.
//!
//! All writing goes through a write alias of the lease (`write_alias.rs`). A call that exchanges indexes also removes a
//! marker, an empty index that its token has made: a takeover deletes the markers of others first, and a call without its
//! marker changes nothing.
//!
//! A marker is made, and then the control document is looked at again: if it is unmoved, every later takeover will find
//! the marker; if not, this owner is not the newest.

use std::sync::Arc;

use reqwest::Method;
use serde_json::{Value, json};
use vitrina_core::{Error, Lease, Result};

use super::client::Client;
use super::control::{Back, Control, Controls, Held, encoded};
use super::indexes::{self, Standing};
use super::mark::{self, Mark};
use super::names::Names;
use super::write_alias::WriteAliases;

/// Markers that are tried before a server is given up.
const MARKERS: usize = 4;

#[derive(Debug)]
pub(super) struct Fence {
    pub(super) client: Arc<Client>,
    pub(super) names: Names,
    pub(super) controls: Controls,
    pub(super) lease: Lease,
    pub(super) held: Held,
    pub(super) aliases: WriteAliases,
}

impl Fence {
    /// Makes this token the newest: nobody else exchanges indexes from here on. Write aliases of others stay open until
    /// `close_left`.
    pub(super) async fn shut_out(&mut self) -> Result<()> {
        let control = Control { writer: None, ..self.held.control.clone() };
        self.replace(control.acquired_by(&self.lease)).await?;
        let (pattern, installation) = (self.names.marker_pattern(), self.held.control.installation);
        for marker in mark::deletable_guards(&self.client, &pattern, installation).await? {
            if self.names.is_marker(&marker) {
                indexes::delete(&self.client, &marker).await?;
            }
        }
        self.shut_out_replaced().await
    }

    /// From here on requests may be on their way that nobody waits for. `back`: what is known of going back, which whoever
    /// writes makes a thing of the past.
    pub(super) async fn begin_writing(&mut self, back: Option<Back>) -> Result<()> {
        let token = Some(self.lease.token);
        if self.held.control.writer == token {
            return Ok(());
        }
        let control = Control { writer: token, back, ..self.held.control.clone() };
        self.replace(control.acquired_by(&self.lease)).await
    }

    /// All that was sent has been answered.
    pub(super) async fn end_writing(&mut self) -> Result<()> {
        let ended = self.ended().await;
        self.note_end(ended)
    }

    /// The write alias is closed, and then the control document says so. Answers that.
    pub(super) async fn ended(&self) -> Result<Held> {
        if self.held.control.writer.is_none() {
            return Ok(self.held.clone());
        }
        self.close_open().await?;
        self.replaced(&Control { writer: None, ..self.held.control.clone() }).await
    }

    pub(super) fn note_end(&mut self, ended: Result<Held>) -> Result<()> {
        self.closed_open(ended.is_ok());
        self.held = ended?;
        Ok(())
    }

    /// Changes aliases in one step, as long as nobody has taken over. `done` tells from what is there whether a call whose
    /// answer was lost has happened.
    pub(super) async fn change(
        &mut self,
        mut actions: Vec<Value>,
        done: impl Fn(&Standing) -> bool,
    ) -> Result<Standing> {
        let marker = self.mark().await?;
        actions.insert(0, json!({"remove_index": {"index": marker}}));
        let reply = self.client.once(Method::POST, "_aliases", Some(&json!({"actions": actions}))).await;
        let standing = Standing::look(&self.client, &self.names).await?;
        if done(&standing) {
            return Ok(standing);
        }
        self.confirm().await?;
        match reply {
            Ok(reply) if !reply.status.is_success() => Err(self.client.explain(&reply)),
            Ok(_) => {
                Err(Error::retry("sink.aliases", "the search server has not changed its aliases in time"))
            }
            Err(lost) => Err(lost),
        }
    }

    /// Removes indexes in one step, as long as nobody has taken over.
    pub(super) async fn remove(&mut self, indexes: &[String]) -> Result<()> {
        if indexes.is_empty() {
            return Ok(());
        }
        let mut actions = vec![json!({"remove_index": {"index": self.mark().await?}})];
        actions.extend(indexes.iter().map(|index| json!({"remove_index": {"index": index}})));
        let reply = self.client.once(Method::POST, "_aliases", Some(&json!({"actions": actions}))).await?;
        if !reply.status.is_success() {
            return Err(self.client.explain(&reply));
        }
        self.removed(indexes);
        Ok(())
    }

    /// Makes a marker, and looks whether it counts. One whose creation has no answer may still come: it is not used.
    async fn mark(&self) -> Result<String> {
        let (installation, pipeline) = (self.held.control.installation, self.lease.pipeline);
        let hidden = json!({
            "settings": {"index": {"hidden": true, "number_of_shards": 1, "number_of_replicas": 0}},
            "mappings": Mark { installation, pipeline, load: None }.put_on(json!({})),
        });
        let mut lost = None;
        for _ in 0..MARKERS {
            let marker = self.names.marker(&self.lease);
            match self.client.once(Method::PUT, &encoded(&marker), Some(&hidden)).await {
                Ok(reply) if reply.status.is_success() => {
                    if let Err(error) = indexes::require_alone(&self.client, &marker, |_| false).await {
                        indexes::delete(&self.client, &marker).await?;
                        return Err(error);
                    }
                    self.confirm().await?;
                    return Ok(marker);
                }
                Ok(reply) if !reply.fault().is_some_and(|fault| fault.passes()) => {
                    return Err(self.client.explain(&reply));
                }
                Ok(reply) => lost = Some(self.client.explain(&reply)),
                Err(error) => lost = Some(error),
            }
        }
        Err(lost.unwrap_or_else(|| Error::retry("sink.marker", "no marker could be made")))
    }

    /// Still the newest owner.
    pub(super) async fn confirm(&self) -> Result<()> {
        let now = self.controls.read().await?;
        if now.as_ref().is_some_and(|now| {
            now.control.holder() == self.held.control.holder()
                && now.control.pipeline == self.held.control.pipeline
        }) {
            return Ok(());
        }
        match now {
            Some(now) if now.control.token > self.held.control.token => Err(Error::lease_lost()),
            _ => Err(meddled(&self.names)),
        }
    }

    pub(super) async fn replace(&mut self, control: Control) -> Result<()> {
        self.held = self.replaced(&control).await?;
        Ok(())
    }

    async fn replaced(&self, control: &Control) -> Result<Held> {
        if let Some(held) = self.controls.replace(&self.held, control).await? {
            return Ok(held);
        }
        // Where nobody has taken over, an older owner has woken and noted something: the next attempt shuts it out.
        self.confirm().await?;
        Err(Error::retry("sink.contended", "an older owner of the index has come back"))
    }

    /// What deletes have created under the name of a write alias that was gone: they do not ask whether it is an alias.
    pub(super) async fn sweep(&self) -> Result<()> {
        for stray in indexes::listed(&self.client, &self.names.door_pattern()).await? {
            if !self.names.is_door(&stray) {
                continue;
            }
            if !mark::is_empty(&self.client, &stray).await? {
                return Err(in_the_way(&stray));
            }
            tracing::warn!(index = stray, "an index in place of an alias, left by an older owner: removed");
            indexes::delete(&self.client, &stray).await?;
        }
        Ok(())
    }
}

/// A delete leaves no documents: somebody else has written these.
fn in_the_way(index: &str) -> Error {
    Error::fix("sink.name_taken", format!("index {index} has the name of a write alias, and documents"))
        .hint("it was left as it is; move its documents elsewhere and delete it")
}

pub(super) fn meddled(names: &Names) -> Error {
    Error::fix(
        "sink.control_lost",
        format!("the control document of {} is gone or belongs to someone else", names.index),
    )
    .hint("it lives in the index vitrina-control; run in mode full to load the index anew")
}
