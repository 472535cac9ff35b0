//! Where is a row? Looked for at source and target by its key.

use std::collections::HashSet;

use async_trait::async_trait;
use serde::Deserialize;
use serde_json::{Value, json};
use vitrina_connectors::reconcile::{self, Looked, LookedColumn, Office, Order};
use vitrina_core::{Checkpoint, Level, Pipeline, PipelineId, ReconcileProgress, Result, Target};
use vitrina_store::{Store, TakenRequest};

use super::{Context, unreadable};

#[derive(Debug, Deserialize)]
struct Question {
    pipeline: Pipeline,
    target: Target,
    /// One text a column of the target's key.
    key: Value,
}

pub(super) async fn answer(context: &Context, taken: &TakenRequest) -> Result<Value> {
    let Question { pipeline, target, key } =
        Question::deserialize(&taken.payload).map_err(|error| unreadable(&error))?;
    let settings = &context.settings;
    let connections = settings.connections.afresh();
    let order = Order {
        id: taken.id,
        owner: taken.owner,
        pipeline: &pipeline,
        target: &target,
        level: Level::Rows,
        keep: 1,
        // Who asks for a row that was refused wants to see it.
        refused: &HashSet::new(),
        refused_before: 0,
        keys: Some(std::slice::from_ref(&key)),
        connections: &connections,
        allowed_targets: &settings.allowed_targets,
        sources: &settings.sources,
        sinks: &settings.sinks,
        installation: taken.installation,
        ledger: &context.store,
        max_batch_bytes: settings.max_batch_bytes,
        changelog_max_age: settings.changelog_max_age.as_secs().try_into().unwrap_or(i64::MAX),
        python: settings.python.as_ref(),
    };
    let office = Files { store: &context.store, pipeline: pipeline.id };
    Ok(told(&reconcile::look(&order, &office).await?, &settings.name))
}

fn told(looked: &Looked, runner: &str) -> Value {
    let column = |column: &LookedColumn| json!({"name": column.name, "source": column.source, "target": column.target, "differs": column.differs});
    json!({
        "runner": runner,
        "key": looked.key,
        "key_columns": looked.key_columns,
        "in_source": looked.in_source,
        "in_target": looked.in_target,
        "fits": looked.fits,
        "in_flight": looked.in_flight,
        "columns": looked.columns.iter().map(column).collect::<Vec<_>>(),
        "touched_at": looked.touched.map(|(at, _)| at),
        "by_meta_store": looked.touched.map(|(_, by_meta_store)| by_meta_store),
        "token": looked.token,
    })
}

struct Files<'a> {
    store: &'a Store,
    pipeline: PipelineId,
}

#[async_trait]
impl Office for Files<'_> {
    async fn checkpoint(&self) -> Result<Checkpoint> {
        Ok(self.store.state(self.pipeline).await?.checkpoint)
    }

    fn note(&self, _: ReconcileProgress) {}
}
