//! Who owns an index, and what it vouches for: asked before the first write of a lease.

use std::sync::Arc;

use uuid::Uuid;
use vitrina_core::{Checkpoint, Holder, Lease, LoadPath, Position, Result, State};

use super::fence::Fence;
use super::indexes::{self, Standing};
use super::load::refuse_taken;
use super::owner::contended;
use super::write_alias::WriteAliases;
use super::{SearchSink, staged};

impl SearchSink {
    /// The fence as it stands; errs where someone else owns the index, or another copy of the meta-store has acquired it. And
    /// whom a person's decision lets this one take the place of.
    pub(super) async fn hold(&self, lease: &Lease) -> Result<(Fence, Option<Holder>)> {
        let (controls, held) = Box::pin(self.claim(lease)).await?;
        if !self.is_ours(&held.control, lease) {
            return Err(contended());
        }
        let adopted = self.recognize(&held.control, lease).await?;
        let (client, names) = (Arc::clone(&self.client), self.names.clone());
        let aliases = WriteAliases::new(self.target.document.partial);
        Ok((Fence { client, names, controls, lease: *lease, held, aliases }, adopted))
    }

    /// The index may lack what the meta-store's checkpoint says was written: the other copy may have exchanged it for an older
    /// one. Entered before the index is acquired: from then on nothing would tell it again.
    pub(super) async fn read_again(&self, lease: &Lease, holder: Holder, state: State) -> Result<State> {
        tracing::warn!(
            index = self.names.index,
            "another copy of the meta-store has written to the index: everything is read again, as was decided"
        );
        let checkpoint = Checkpoint { decided_by: state.checkpoint.decided_by, ..Checkpoint::default() };
        let state = State { checkpoint, version: state.version + 1 };
        self.ledger.adopt(lease, &state).await?;
        self.ledger.accept(lease, holder).await?;
        Ok(state)
    }

    /// The index of Vitrina's that readers see. Of one that several pipelines write to, one that is not alone is put back under the
    /// name with the next write.
    pub(super) fn seen_by_readers(&self, fence: &Fence, standing: &Standing) -> Option<String> {
        let known = fence.held.control.live.as_ref().filter(|_| !self.target.document.partial);
        standing.live(&self.names).or_else(|| standing.live_among_others(known)).cloned()
    }

    /// Somebody has put another index of ours under the name: what the meta-store knows is of the one that was there. One
    /// that several pipelines write to always has the same name, and a hidden alias for each that has written to it.
    pub(super) fn heed_control(&mut self, fence: &Fence, standing: &Standing) {
        let known = &fence.held.control.live;
        let partial = self.target.document.partial;
        self.moved = self.live.as_ref().is_some_and(|live| match partial {
            true => !standing.doors.iter().any(|(_, index)| index == live),
            // Others beside it are removed by a load, which reads everything.
            false => known.as_ref() != Some(live) || standing.behind.len() > 1,
        });
        if self.moved && !partial && known.is_some() {
            tracing::warn!(
                index = self.names.index,
                "the index was exchanged by somebody else, or has others beside it under its name"
            );
        }
    }

    /// Of an index that several pipelines write to, nothing tells whether it is there while something else has its name too:
    /// its checkpoint counts until that is gone. Nor is any other written to whose readers find something else beside it.
    pub(super) fn refuse_foreign_share(&self, standing: &Standing) -> Result<()> {
        match self.target.document.partial || standing.behind.len() > 1 {
            true => refuse_taken(&self.names, standing, self.target.document.take_over),
            false => Ok(()),
        }
    }

    /// The same, entered where nothing would tell it again: an index that several pipelines write to gets an alias with the first write, and
    /// looks like one that this pipeline has written from then on.
    pub(super) async fn vouched(&self, lease: &Lease, state: State) -> Result<State> {
        let before = state.checkpoint.clone();
        let mut state = self.vouch(state);
        if self.target.document.partial && state.checkpoint != before {
            state.version += 1;
            self.ledger.adopt(lease, &state).await?;
        }
        Ok(state)
    }

    /// What the index vouches for. One that is not there holds nothing, whatever the meta-store knows: everything is read
    /// again.
    fn vouch(&self, state: State) -> State {
        let State { mut checkpoint, version } = state;
        if let Some(load) = staged(&checkpoint)
            && self.made != Some(load.id)
            && (load.made || load.rows > 0)
        {
            tracing::warn!(load = %load.id, "the index of this load is gone: it starts anew");
            checkpoint = checkpoint.without_pass();
        }
        let strange = self.live.is_none() || (self.moved && !checkpoint.edited);
        if strange && holds_rows(&checkpoint) {
            tracing::warn!(
                index = self.names.index,
                "this index was not written by us: everything is read again"
            );
            checkpoint = Checkpoint { decided_by: checkpoint.decided_by, ..Checkpoint::default() };
        }
        State { checkpoint, version }
    }

    /// The open load, where its index is there: it is made when the first rows come.
    pub(super) async fn made_for(&self, state: &State) -> Result<Option<Uuid>> {
        let Some(load) = staged(&state.checkpoint) else { return Ok(None) };
        let exists = indexes::exists(&self.client, &self.names.physical(load.id)).await?;
        Ok(exists.then_some(load.id))
    }
}

/// Something has been read into the index, by a completed pass or by one that writes to it directly.
fn holds_rows(checkpoint: &Checkpoint) -> bool {
    let Position { done, pass, .. } = &checkpoint.position;
    let is_staged = checkpoint.load.is_some_and(|load| load.path == LoadPath::Staged);
    !done.is_null() || (pass.is_some() && !is_staged)
}
