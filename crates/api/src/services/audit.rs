//! Who changed what.

use serde_json::Value;
use vitrina_core::PipelineId;

use crate::access::Actor;
use crate::app::App;

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
        let Actor { name: actor, request_id } = actor;
        tracing::info!(actor, action, subject, "changed");
        if let Err(error) = self.store.audit(actor, request_id, action, subject, before, after).await {
            tracing::error!(%error, actor, action, subject, "the audit misses this change");
        }
    }
}
