//! Who may write to an index. One document says so for everybody: for the one pipeline that writes whole documents, for
//! those that share it by fields, and for other installations.

use std::collections::BTreeMap;

use uuid::Uuid;
use vitrina_core::values::other_pipeline;
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
                true => Box::pin(self.claim_share(&index, found, lease)).await?,
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
                Some(_) => return self.claim_of_unknown(index, held, lease).await,
                None => {}
            }
        }
        let mut writers = self.writers(index, found.as_ref()).await?;
        let shared = writers.get(&lease.pipeline) == Some(&self.installation);
        if shared {
            writers.remove(&lease.pipeline);
        }
        let replaces = self.unknown_writers(&writers, lease).await?;
        if let Some((pipeline, installation)) = writers.iter().find(|(id, _)| !replaces.contains(id)) {
            return Err(is_shared(&self.names, *pipeline, *installation));
        }
        let mut first = Control { replaces: replaces.clone(), ..self.first(lease) };
        let own = Controls::new(&self.client, share_id(&self.names, lease.pipeline));
        // It has written some of the fields until now: whoever still does so for it has to be fenced.
        if let Some(before) = if shared { own.read().await? } else { None } {
            self.recognize(&before.control, lease).await?;
            let replaces = [replaces, before.control.replaces.clone()].concat();
            first =
                Control { pipeline: Some(lease.pipeline), fields: Vec::new(), replaces, ..before.control };
        }
        let held = moved(index, found.as_ref(), &first).await?;
        if shared && held.is_some() {
            own.remove().await?;
        }
        Ok(held.map(|held| (index.clone(), held)))
    }

    /// In the place of a pipeline that this meta-store does not know. What that knew of the index says nothing to this one.
    async fn claim_of_unknown(
        &self,
        index: &Controls,
        held: &Held,
        lease: &Lease,
    ) -> Result<Option<(Controls, Held)>> {
        let before = &held.control;
        let replaces = self.replaced(before, lease).await?;
        let control = Control {
            pipeline: Some(lease.pipeline),
            live: None,
            previous: None,
            back: None,
            replaces,
            ..before.clone()
        };
        Ok(index.replace(held, &control).await?.map(|held| (index.clone(), held)))
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
        let (whole, foreign) = match whole {
            Some(control) if !self.is_ours(&control, lease) => (None, Some(control)),
            other => (other, None),
        };
        let mut replaces = match &foreign {
            Some(control) => self.replaced(control, lease).await?,
            None => Vec::new(),
        };
        if let Some(control) = &whole {
            self.recognize(control, lease).await?;
            replaces.extend(&control.replaces);
        }
        let own = Controls::new(&self.client, share_id(&self.names, lease.pipeline));
        let named = before.as_ref().filter(|control| control.pipeline.is_none());
        let named = named.and_then(|control| control.writers.get(&lease.pipeline));
        if named == Some(&self.installation) {
            let held = own.read_or_create(&self.first(lease)).await?;
            return Ok(Some((own, held)));
        }
        // Refused before anything is written: neither document is this pipeline's yet.
        let mut writers = self.writers(index, found.as_ref()).await?;
        let known = own.read().await?;
        let installation = known.as_ref().map(|held| &held.control.installation);
        let others = [named, writers.get(&lease.pipeline), installation].into_iter().flatten();
        if let Some(other) = others.copied().find(|other| *other != self.installation) {
            return Err(is_shared_by_original(&self.names, lease.pipeline, other));
        }
        if let Some(held) = &known {
            self.recognize(&held.control, lease).await?;
        }
        replaces.extend(self.unknown_writers(&writers, lease).await?);
        // First: what it has noted as the only writer of the index.
        let first = whole
            .map_or_else(|| self.first(lease), |control| Control { previous: None, back: None, ..control });
        let Some(held) = self.create_share(&own, known, Control { replaces, ..first }).await? else {
            return Ok(None);
        };
        writers.retain(|writer, _| !held.control.replaces.contains(writer));
        writers.insert(lease.pipeline, self.installation);
        let before = before.unwrap_or_else(|| self.first(lease));
        let shared = Control { pipeline: None, owner: None, writers, replaces: Vec::new(), ..before };
        let moved = moved(index, found.as_ref(), &shared).await?;
        Ok(moved.map(|_| (own, held)))
    }

    /// The document of a pipeline that shares the index, which is there or not. `None` where somebody else has moved it.
    async fn create_share(
        &self,
        own: &Controls,
        known: Option<Held>,
        first: Control,
    ) -> Result<Option<Held>> {
        match known {
            None => Ok(Some(own.create(&first).await?)),
            Some(held) if first.replaces.is_empty() => Ok(Some(held)),
            Some(held) => {
                let control = Control { replaces: first.replaces, ..held.control.clone() };
                own.replace(&held, &control).await
            }
        }
    }

    /// Errs where another copy of the meta-store has acquired the index since. Answers whom a person's decision lets this one
    /// take the place of.
    pub(super) async fn recognize(&self, control: &Control, lease: &Lease) -> Result<Option<Holder>> {
        self.recognize_holder(control.holder(), lease).await
    }

    pub(super) async fn recognize_holder(&self, holder: Holder, lease: &Lease) -> Result<Option<Holder>> {
        if self.issued.covers(lease, Some(holder)) {
            return Ok(None);
        }
        match self.ledger.recognize(lease, Some(holder)).await? {
            Recognized::Issued => Ok(None),
            Recognized::Adopted => Ok(Some(holder)),
            Recognized::Unknown => Err(copied(&self.names)),
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
            replaces: Vec::new(),
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

pub(super) fn copied(names: &Names) -> Error {
    Error::installation_copied(&format!("index {}", names.index))
}

pub(super) fn owned(names: &Names, control: &Control) -> Error {
    let owner = control.pipeline.map(|owner| other_pipeline(&owner.to_string())).unwrap_or_default();
    Error::fix(
        "sink.owned",
        format!("index {} is written by pipeline {owner} of installation {}", names.index, control.installation),
    )
    .hint("an index has one writer: delete that pipeline, write to another index, or let both write their own fields (document: {partial: true})")
}

fn is_shared(names: &Names, pipeline: PipelineId, installation: Uuid) -> Error {
    let message = format!(
        "index {} is shared by fields: pipeline {} of installation {installation} writes some of them",
        names.index,
        other_pipeline(&pipeline.to_string())
    );
    Error::fix("sink.owned", message)
        .hint("write to another index, delete the pipelines that share it, or write only own fields to it as well (document: {partial: true})")
}

/// A copy of a meta-store has the same pipelines, and a document of each.
fn is_shared_by_original(names: &Names, pipeline: PipelineId, installation: Uuid) -> Error {
    let message = format!(
        "index {} is shared by fields, and the ones of pipeline {pipeline} are written by the same pipeline of installation {installation}, which this meta-store is a copy of",
        names.index
    );
    Error::fix("sink.owned", message).hint(
        "write to another index; or, to share this one, delete the pipeline here and create it anew, so that it gets an id of its own, with fields that the other does not write",
    )
}
