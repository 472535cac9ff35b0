//! Back to the index that readers saw before the last load, in the same fenced step as a load's swap. What they saw until
//! now is kept in its turn, so that going back can be taken back.

use serde_json::Value;
use vitrina_core::{Checkpoint, Deletes, Error, Result, RunId, State};

use super::control::{Back, Control, Previous};
use super::{SearchSink, indexes};

impl SearchSink {
    pub(super) async fn go_back(&mut self, run: RunId, state: &State) -> Result<()> {
        let control = self.fence()?.held.control.clone();
        let begun = control.back.clone().filter(|back| back.run == run || back.open);
        if let Some(back) = begun.filter(|back| self.live.as_ref() == Some(&back.to.index)) {
            // It had happened, and its answer was lost.
            self.adopt(&back.to, state).await?;
            let back = Some(Back { run, open: false, ..back });
            return self.fence_mut()?.replace(Control { back, ..control }).await;
        }
        let Some(to) = self.reachable(control.previous.clone()).await? else {
            return Err(nothing(&self.names.index));
        };
        let back = Back { run, to: to.clone(), open: true };
        self.fence_mut()?.replace(Control { back: Some(back.clone()), ..control }).await?;
        // First: an older checkpoint of a newer index has rows read again, a newer one of an older index would lose them.
        self.adopt(&to, state).await?;
        self.exchange(&to.index, &[]).await?;
        let current = established(&state.checkpoint);
        let previous =
            self.live.replace(to.index.clone()).map(|index| Previous { index, checkpoint: current });
        let (live, control) = (Some(to.index), self.fence()?.held.control.clone());
        let back = Some(Back { open: false, ..back });
        self.fence_mut()?.replace(Control { live, next: None, previous, back, ..control }).await
    }

    async fn adopt(&self, to: &Previous, state: &State) -> Result<()> {
        let restored = State { checkpoint: restored(to.clone(), state), version: state.version + 1 };
        self.ledger.adopt(&self.fence()?.lease, &restored).await
    }

    async fn reachable(&self, previous: Option<Previous>) -> Result<Option<Previous>> {
        let Some(previous) = previous else { return Ok(None) };
        Ok(indexes::exists(&self.client, &previous.index).await?.then_some(previous))
    }
}

/// Where nobody knows how far it had come, everything is read again.
fn restored(to: Previous, state: &State) -> Checkpoint {
    let (decided_by, deletes) = (state.checkpoint.decided_by, Deletes::default());
    Checkpoint { decided_by, deletes, ..to.checkpoint.unwrap_or_default() }
}

/// What completed passes have established; nothing where none is known to have.
pub(super) fn established(checkpoint: &Checkpoint) -> Option<Checkpoint> {
    Some(checkpoint.without_pass()).filter(|checkpoint| checkpoint.position.done != Value::Null)
}

fn nothing(index: &str) -> Error {
    Error::fix("sink.nothing_before", format!("nothing is kept of what {index} was before its last load"))
        .hint("one load back is kept, from the second load on")
}
