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
        let Actor { name: actor, request_id } = actor;
        let subject = format!("pipeline {pipeline}");
        tracing::info!(actor, action, %pipeline, "changed");
        if let Err(error) = self.store.audit(actor, request_id, action, &subject, before, after).await {
            tracing::error!(%error, actor, action, %pipeline, "the audit misses this change");
        }
    }
}
