//! Who may write to an index. One document says so for everybody: for the one pipeline that writes whole documents, for
//! those that share it by fields, and for other installations.

use std::collections::BTreeMap;

use uuid::Uuid;
use vitrina_core::{Error, Holder, Lease, PipelineId, Recognized, Result};

use super::SearchSink;
use super::control::{Control, Controls, Held};
use super::names::Names;

/// Times that others may move the document while it is claimed.
const CLAIMS: usize = 8;

impl SearchSink {
    /// The control document that holds this pipeline's lease; errs where someone else owns the index.
    pub(super) async fn claim(&self, lease: &Lease) -> Result<(Controls, Held)> {
        let index = Controls::new(&self.client, self.names.index.clone());
        for _ in 0..CLAIMS {
            let found = index.read().await?;
            let claimed = match self.target.document.partial {
                true => self.claim_share(&index, found, lease).await?,
                false => self.claim_whole(&index, found, lease).await?,
            };
            if let Some(claimed) = claimed {
                return Ok(claimed);
            }
        }
        Err(contended())
    }

    /// All of its documents. `None` where somebody else has moved the document meanwhile.
    async fn claim_whole(
        &self,
        index: &Controls,
        found: Option<Held>,
        lease: &Lease,
    ) -> Result<Option<(Controls, Held)>> {
        if let Some(held) = &found {
            match held.control.pipeline {
                Some(_) if self.is_ours(&held.control, lease) => {
                    // Recognized by whoever holds it.
                    return Ok(Some((index.clone(), held.clone())));
                }
                Some(_) => return Err(owned(&self.names, &held.control)),
                None => {}
            }
        }
        let mut writers = self.writers(index, found.as_ref()).await?;
        let shared = writers.remove(&lease.pipeline).is_some_and(|owner| owner == self.installation);
        if let Some((pipeline, installation)) = writers.first_key_value() {
            return Err(is_shared(&self.names, *pipeline, *installation));
        }
        let mut first = self.first(lease);
        let own = Controls::new(&self.client, share_id(&self.names, lease.pipeline));
        // It has written some of the fields until now: whoever still does so for it has to be fenced.
        if let Some(before) = if shared { own.read().await? } else { None } {
            self.recognize(&before.control, lease).await?;
            first = Control { pipeline: Some(lease.pipeline), fields: Vec::new(), ..before.control };
        }
        let held = moved(index, found.as_ref(), &first).await?;
        if shared && held.is_some() {
            own.remove().await?;
        }
        Ok(held.map(|held| (index.clone(), held)))
    }

    /// Some of the fields of its documents.
    async fn claim_share(
        &self,
        index: &Controls,
        found: Option<Held>,
        lease: &Lease,
    ) -> Result<Option<(Controls, Held)>> {
        let before = found.as_ref().map(|held| held.control.clone());
        let whole = before.clone().filter(|control| control.pipeline.is_some());
        if let Some(control) = whole.as_ref().filter(|control| !self.is_ours(control, lease)) {
            return Err(owned(&self.names, control));
        }
        if let Some(control) = &whole {
            self.recognize(control, lease).await?;
        }
        let named = before.as_ref().is_some_and(|control| {
            control.pipeline.is_none() && control.writers.get(&lease.pipeline) == Some(&self.installation)
        });
        let own = Controls::new(&self.client, share_id(&self.names, lease.pipeline));
        if named {
            let held = own.read_or_create(&self.first(lease)).await?;
            return Ok(Some((own, held)));
        }
        // First: what it has noted as the only writer of the index.
        let first = whole
            .map_or_else(|| self.first(lease), |control| Control { previous: None, back: None, ..control });
        let held = own.read_or_create(&first).await?;
        self.recognize(&held.control, lease).await?;
        let mut writers = self.writers(index, found.as_ref()).await?;
        writers.insert(lease.pipeline, self.installation);
        let before = before.unwrap_or_else(|| self.first(lease));
        let shared = Control { pipeline: None, owner: None, writers, ..before };
        let moved = moved(index, found.as_ref(), &shared).await?;
        Ok(moved.map(|_| (own, held)))
    }

    /// Errs where another copy of the meta-store has acquired the index since. Answers whom a person's decision lets this one
    /// take the place of.
    pub(super) async fn recognize(&self, control: &Control, lease: &Lease) -> Result<Option<Holder>> {
        let holder = control.holder();
        if self.issued.covers(lease, Some(holder)) {
            return Ok(None);
        }
        match self.ledger.recognize(lease, Some(holder)).await? {
            Recognized::Issued => Ok(None),
            Recognized::Adopted => Ok(Some(holder)),
            Recognized::Unknown => Err(Error::installation_copied(&format!("index {}", self.names.index))),
        }
    }

    /// Who shares the index by fields, also for an older release.
    async fn writers(&self, index: &Controls, found: Option<&Held>) -> Result<BTreeMap<PipelineId, Uuid>> {
        match found.map(|held| &held.control.writers).filter(|writers| !writers.is_empty()) {
            Some(writers) => Ok(writers.clone()),
            None => index.unnamed_writers().await,
        }
    }

    pub(super) fn is_ours(&self, control: &Control, lease: &Lease) -> bool {
        control.pipeline == Some(lease.pipeline) && control.installation == self.installation
    }

    /// Knows nothing of an index that readers see: that is somebody else's work.
    fn first(&self, lease: &Lease) -> Control {
        Control {
            target: self.names.index.clone(),
            installation: self.installation,
            pipeline: Some(lease.pipeline),
            writers: BTreeMap::new(),
            token: lease.token,
            owner: Some(lease.owner),
            live: None,
            next: None,
            previous: None,
            writer: None,
            back: None,
            fields: Vec::new(),
        }
    }
}

/// Where a pipeline that shares an index keeps its lease.
pub(super) fn share_id(names: &Names, pipeline: PipelineId) -> String {
    format!("{}~{pipeline}", names.index)
}

async fn moved(index: &Controls, found: Option<&Held>, control: &Control) -> Result<Option<Held>> {
    match found {
        Some(held) => index.replace(held, control).await,
        None => Ok(Some(index.create(control).await?).filter(|held| held.control == *control)),
    }
}

pub(super) fn contended() -> Error {
    Error::retry("sink.contended", "somebody else has changed who owns the index")
}

fn owned(names: &Names, control: &Control) -> Error {
    let owner = control.pipeline.map(|owner| owner.to_string()).unwrap_or_default();
    Error::fix(
        "sink.owned",
        format!("index {} is written by pipeline {owner} of installation {}", names.index, control.installation),
    )
    .hint("an index has one writer: delete that pipeline, write to another index, or let both write their own fields (document: {partial: true})")
}

fn is_shared(names: &Names, pipeline: PipelineId, installation: Uuid) -> Error {
    let message = format!(
        "index {} is shared by fields: pipeline {pipeline} of installation {installation} writes some of them",
        names.index
    );
    Error::fix("sink.owned", message)
        .hint("write to another index, delete the pipelines that share it, or write only own fields to it as well (document: {partial: true})")
}
