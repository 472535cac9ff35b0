//! Back to the index that readers saw before the last load, in the same fenced step as a load's swap. What they saw until
//! now is kept in its turn, so that going back can be taken back.

use serde_json::Value;
use vitrina_core::{Checkpoint, Error, Result, State};

use super::control::{Control, Previous};
use super::{SearchSink, indexes};

impl SearchSink {
    pub(super) async fn go_back(&mut self, state: &State) -> Result<Checkpoint> {
        let control = self.fence()?.held.control.clone();
        let Some(previous) = self.reachable(control.previous.clone()).await? else {
            return Err(nothing(&self.names.index));
        };
        let current =
            self.live.clone().map(|index| Previous { index, checkpoint: established(&state.checkpoint) });
        self.exchange(&previous.index, &[]).await?;
        let back = Control { live: Some(previous.index.clone()), next: None, previous: current, ..control };
        self.fence_mut()?.replace(back).await?;
        self.live = Some(previous.index);
        // Where nobody knows how far it had come, everything is read again.
        let checkpoint = previous.checkpoint.unwrap_or_default();
        Ok(Checkpoint { decided_by: state.checkpoint.decided_by, ..checkpoint })
    }

    async fn reachable(&self, previous: Option<Previous>) -> Result<Option<Previous>> {
        let Some(previous) = previous else { return Ok(None) };
        Ok(indexes::exists(&self.client, &previous.index).await?.then_some(previous))
    }
}

/// What completed passes have established; nothing where none is known to have.
pub(super) fn established(checkpoint: &Checkpoint) -> Option<Checkpoint> {
    Some(checkpoint.without_pass()).filter(|checkpoint| checkpoint.position.done != Value::Null)
}

fn nothing(index: &str) -> Error {
    Error::fix("sink.nothing_before", format!("nothing is kept of what {index} was before its last load"))
        .hint("one load back is kept, from the second load on")
}
