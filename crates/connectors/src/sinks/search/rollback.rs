//! Back to the index that readers saw before the last load, in the same fenced step as a load's swap. What they saw until
//! now is kept in its turn, so that going back can be taken back.

use serde_json::Value;
use vitrina_core::{Checkpoint, Error, Result, RunId, State};

use super::control::{Back, Control, Previous};
use super::{SearchSink, indexes};

impl SearchSink {
    pub(super) async fn go_back(&mut self, run: RunId, state: &State) -> Result<Checkpoint> {
        let control = self.fence()?.held.control.clone();
        let done =
            control.back.clone().filter(|back| back.run == run && self.live.as_ref() == Some(&back.to.index));
        if let Some(Back { to, .. }) = done {
            return Ok(restored(to, state));
        }
        let Some(to) = self.reachable(control.previous.clone()).await? else {
            return Err(nothing(&self.names.index));
        };
        let back = Some(Back { run, to: to.clone() });
        self.fence_mut()?.replace(Control { back: back.clone(), ..control.clone() }).await?;
        self.exchange(&to.index, &[]).await?;
        let current = established(&state.checkpoint);
        let previous =
            self.live.replace(to.index.clone()).map(|index| Previous { index, checkpoint: current });
        let (live, control) = (Some(to.index.clone()), self.fence()?.held.control.clone());
        self.fence_mut()?.replace(Control { live, next: None, previous, back, ..control }).await?;
        Ok(restored(to, state))
    }

    async fn reachable(&self, previous: Option<Previous>) -> Result<Option<Previous>> {
        let Some(previous) = previous else { return Ok(None) };
        Ok(indexes::exists(&self.client, &previous.index).await?.then_some(previous))
    }
}

/// Where nobody knows how far it had come, everything is read again.
fn restored(to: Previous, state: &State) -> Checkpoint {
    Checkpoint { decided_by: state.checkpoint.decided_by, ..to.checkpoint.unwrap_or_default() }
}

/// What completed passes have established; nothing where none is known to have.
pub(super) fn established(checkpoint: &Checkpoint) -> Option<Checkpoint> {
    Some(checkpoint.without_pass()).filter(|checkpoint| checkpoint.position.done != Value::Null)
}

fn nothing(index: &str) -> Error {
    Error::fix("sink.nothing_before", format!("nothing is kept of what {index} was before its last load"))
        .hint("one load back is kept, from the second load on")
}
