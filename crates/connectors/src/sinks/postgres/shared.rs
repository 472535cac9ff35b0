//! A run on a mart that several pipelines share: when it may write, and which columns are its own.

use vitrina_core::{Error, ErrorKind, Result, State};

use super::PostgresSink;
use super::own_part::OwnPart;
use crate::sql::literal;

impl PostgresSink {
    /// This run reads everything again where another pipeline has created the mart anew: the next one need not.
    pub(super) async fn clear_emptied(&self, state: State) -> Result<State> {
        if self.is_emptied {
            self.writer.refill(&self.session).await?;
        }
        Ok(state)
    }

    /// Pipelines that share a mart by columns meet in its rows. Either of them would lock rows in an order of its own, by its
    /// deletes first, and a deadlock would end the longer transaction. A turn lasts as long as the merge of a load.
    pub(super) async fn take_turns(&self) -> Result<()> {
        let OwnPart::Columns(_) = &self.mart.own else { return Ok(()) };
        let name = literal(&format!("vitrina.columns {}", self.mart.name));
        let turn = format!("select pg_advisory_xact_lock(hashtextextended({name}, 0))");
        self.session.run(&turn).await.map_err(|error| match error.kind {
            ErrorKind::Locked => {
                let message =
                    format!("another pipeline that shares {} by columns is writing", self.mart.name);
                Error::release("sink.locked", message).caused_by(error)
            }
            _ => error,
        })
    }

    /// The columns that the rows bring are this pipeline's from now on, and those that a run before brought no more.
    pub(super) async fn claim_columns(&mut self) -> Result<()> {
        let OwnPart::Columns(known) = &self.mart.own else { return Ok(()) };
        let known = known.clone();
        let names = self.shape()?.fields.iter().map(|field| field.name().clone());
        let kept = known.iter().filter(|_| self.has_claimed).cloned();
        let own = names.filter(|name| !self.mart.is_key(name)).chain(kept);
        self.mart.own = OwnPart::Columns(Vec::new()).with_columns(own);
        self.mart.require_own_columns()?;
        self.has_claimed = true;
        match &self.mart.own {
            OwnPart::Columns(own) if *own != known => {
                self.writer.claim(&self.session, self.fence.ledger(), own).await
            }
            _ => Ok(()),
        }
    }
}
