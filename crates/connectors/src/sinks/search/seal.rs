//! Who owns an index, and what it vouches for: asked before the first write of a lease.

use std::sync::Arc;

use uuid::Uuid;
use vitrina_core::{Checkpoint, Error, Lease, LeaseToken, LoadPath, Position, Result, State};

use super::control::{Control, Controls, Held};
use super::fence::Fence;
use super::indexes::{self, Standing};
use super::load::refuse_taken;
use super::names::Names;
use super::{SearchSink, control_id, staged};

impl SearchSink {
    /// The fence as it stands; errs where someone else owns the index.
    pub(super) async fn hold(&self, lease: &Lease) -> Result<Fence> {
        let controls = Controls::new(&self.client, control_id(&self.target, &self.names, lease));
        let first = Control {
            target: self.names.index.clone(),
            installation: self.installation,
            pipeline: Some(lease.pipeline),
            token: lease.token,
            live: None,
            next: None,
            previous: None,
            writer: None,
            back: None,
            fields: Vec::new(),
        };
        let held = controls.read_or_create(&first).await?;
        let control = &held.control;
        let (client, names) = (Arc::clone(&self.client), self.names.clone());
        let is_mine = control.pipeline == Some(lease.pipeline) && control.installation == self.installation;
        if is_mine && control.token > lease.token {
            return Err(Error::lease_lost());
        }
        let held = match control.pipeline {
            // Its owner was deleted: the index stays, and is anybody's.
            None => self.inherit(&controls, &held, first).await?,
            Some(_) if is_mine => held,
            Some(_) => return Err(owned(&self.names, control)),
        };
        Ok(Fence { client, names, controls, lease: *lease, held })
    }

    async fn inherit(&self, controls: &Controls, held: &Held, heir: Control) -> Result<Held> {
        // It knows nothing of the index that readers see: that is somebody else's work.
        if let Some(held) = controls.replace(held, &heir).await? {
            return Ok(held);
        }
        // Another one was faster.
        match controls.read().await? {
            Some(now) if now.control.pipeline.is_some() => Err(owned(&self.names, &now.control)),
            _ => Err(Error::retry("sink.contended", "somebody else has changed who owns the index")),
        }
    }

    /// Somebody has put another index of ours under the name: what the meta-store knows is of the one that was there. One
    /// that several pipelines write to always has the same name, and a door for each that has written to it.
    pub(super) fn heed_control(&mut self, fence: &Fence, standing: &Standing) {
        let known = &fence.held.control.live;
        let partial = self.target.document.partial;
        self.moved = self.live.as_ref().is_some_and(|live| match partial {
            true => !standing.doors.iter().any(|(_, index)| index == live),
            false => known.as_ref() != Some(live),
        });
        if self.moved && !partial && known.is_some() {
            tracing::warn!(index = self.names.index, "the index was exchanged by somebody else");
        }
    }

    /// Of an index that several pipelines write to, nothing tells whether it is there while something else has its name too:
    /// its checkpoint counts until that is gone.
    pub(super) fn refuse_foreign_share(&self, standing: &Standing) -> Result<()> {
        match self.target.document.partial {
            true => refuse_taken(&self.names, standing, self.target.document.take_over),
            false => Ok(()),
        }
    }

    /// The same, entered where nothing would tell it again: an index that several pipelines write to gets a door below, and
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

    pub(super) fn doors(&self, token: LeaseToken, state: &State) -> Vec<(String, String)> {
        let live = self.live.iter().map(|live| (self.names.door(token), live.clone()));
        let load = staged(&state.checkpoint)
            .filter(|load| self.made == Some(load.id))
            .map(|load| (self.names.load_door(token, load.id), self.names.physical(load.id)));
        live.chain(load).collect()
    }
}

/// Something has been read into the index, by a completed pass or by one that writes to it directly.
fn holds_rows(checkpoint: &Checkpoint) -> bool {
    let Position { done, pass } = &checkpoint.position;
    let is_staged = checkpoint.load.is_some_and(|load| load.path == LoadPath::Staged);
    !done.is_null() || (pass.is_some() && !is_staged)
}

fn owned(names: &Names, control: &Control) -> Error {
    let owner = control.pipeline.map(|owner| owner.to_string()).unwrap_or_default();
    Error::fix(
        "sink.owned",
        format!("index {} is written by pipeline {owner} of installation {}", names.index, control.installation),
    )
    .hint("an index has one writer: delete that pipeline, write to another index, or let both write their own fields (document: {partial: true})")
}
