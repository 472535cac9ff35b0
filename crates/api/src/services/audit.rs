//! Who changed what.

use serde_json::Value;
use vitrina_core::PipelineId;
use vitrina_store::{Actor, Change};

use crate::app::App;
use crate::error::Result;

impl App {
    /// The change is made already: when its row cannot be written, the log keeps it instead.
    pub(super) async fn audit(
        &self,
        actor: &Actor,
        action: &str,
        pipeline: PipelineId,
        before: Option<Value>,
        after: Option<Value>,
    ) {
        self.audit_of(actor, action, &format!("pipeline {pipeline}"), before, after).await;
    }

    pub(super) async fn audit_of(
        &self,
        actor: &Actor,
        action: &str,
        subject: &str,
        before: Option<Value>,
        after: Option<Value>,
    ) {
        tracing::info!(actor = actor.name, action, subject, "changed");
        if let Err(error) = self.store.audit(actor, action, subject, before, after).await {
            tracing::error!(%error, actor = actor.name, action, subject, "the audit misses this change");
        }
    }

    /// Changes of the configuration, with the audit in their transaction.
    pub(super) async fn configure(&self, actor: &Actor, changes: &[Change]) -> Result<()> {
        self.store.configure(changes, actor).await?;
        tracing::info!(actor = actor.name, changes = changes.len(), "configured");
        Ok(())
    }
}
