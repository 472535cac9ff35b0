//! Writers of this installation that its meta-store does not know: another copy of it has created them, or it did so itself
//! after the backup that it was restored from. Their place is taken where a person has decided so, and by nobody else.

use std::collections::BTreeMap;

use uuid::Uuid;
use vitrina_core::{Holder, Lease, LeaseToken, PipelineId, Result};

use super::SearchSink;
use super::control::{Control, Controls};
use super::fence::Fence;
use super::indexes;
use super::mark;
use super::names::Names;
use super::owner::{copied, owned, share_id};

impl SearchSink {
    /// Whom this pipeline takes the place of as the only writer. Errs where that is of another installation, or known here.
    pub(super) async fn replaced(&self, control: &Control, lease: &Lease) -> Result<Vec<PipelineId>> {
        let own = control.pipeline.filter(|_| control.installation == self.installation);
        let Some(pipeline) = own else { return Err(owned(&self.names, control)) };
        let present = self.ledger.writing(&[pipeline], &self.target.name, None).await?;
        if !present.is_empty() || self.is_left(pipeline, control.holder()).await? {
            return Err(owned(&self.names, control));
        }
        self.require_decision(control.holder(), lease).await?;
        let mut replaces = control.replaces.clone();
        replaces.push(pipeline);
        Ok(replaces)
    }

    /// The same of those that share the index. Others are none of these: whether they are in the way their caller knows.
    pub(super) async fn unknown_writers(
        &self,
        writers: &BTreeMap<PipelineId, Uuid>,
        lease: &Lease,
    ) -> Result<Vec<PipelineId>> {
        let own = writers.iter().filter(|(id, of)| **of == self.installation && **id != lease.pipeline);
        let mut unknown: Vec<PipelineId> = own.map(|(id, _)| *id).collect();
        if unknown.is_empty() {
            return Ok(unknown);
        }
        let present = self.ledger.writing(&unknown, &self.target.name, None).await?;
        unknown.retain(|pipeline| !present.contains(pipeline));
        let mut decided = Vec::new();
        for pipeline in unknown {
            let share = Controls::new(&self.client, share_id(&self.names, pipeline)).read().await?;
            let nobody = Holder { owner: None, token: LeaseToken(0) };
            let holder = share.map_or(nobody, |held| held.control.holder());
            if !self.is_left(pipeline, holder).await? {
                self.require_decision(holder, lease).await?;
                decided.push(pipeline);
            }
        }
        Ok(decided)
    }

    /// A pipeline of this meta-store that was deleted or writes elsewhere by now: a runner removes what it has left.
    async fn is_left(&self, pipeline: PipelineId, holder: Holder) -> Result<bool> {
        let issued = self.ledger.issued(&[pipeline]).await?;
        Ok(!issued.owners.is_empty() && issued.knows(holder))
    }

    async fn require_decision(&self, holder: Holder, lease: &Lease) -> Result<()> {
        match holder.owner {
            Some(_) => self.recognize_holder(holder, lease).await.map(drop),
            // Of an older release: its lease tells nothing.
            None if self.issued.adopts => Ok(()),
            None => Err(copied(&self.names)),
        }
    }
}

impl Fence {
    /// Pipelines whose place this one has taken write no more and exchange nothing, whichever runner is still at work for them.
    pub(super) async fn shut_out_replaced(&mut self) -> Result<()> {
        let replaced = self.held.control.replaces.clone();
        for pipeline in &replaced {
            let names = Names::new(&self.names.index, *pipeline);
            let installation = self.held.control.installation;
            for marker in mark::deletable_guards(&self.client, &names.marker_pattern(), installation).await? {
                if names.is_marker(&marker) {
                    indexes::delete(&self.client, &marker).await?;
                }
            }
            self.close_all_of(&names).await?;
            Controls::new(&self.client, share_id(&names, *pipeline)).remove().await?;
        }
        if !replaced.is_empty() {
            tracing::warn!(
                index = self.names.index,
                pipelines = replaced.iter().map(ToString::to_string).collect::<Vec<_>>().join(", "),
                "these pipelines of another copy of the meta-store have lost the index, as was decided"
            );
            let control = Control { replaces: Vec::new(), ..self.held.control.clone() };
            self.replace(control).await?;
        }
        Ok(())
    }
}
