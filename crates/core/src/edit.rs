//! What may change in a pipeline, and when (R-CFG-5). The store asks here under the lock of the pipeline's row.

use serde_json::{Map, Value};

use crate::{Pipeline, Status};

/// A run works on the configuration as it was when it was asked for. These may change under it all the same: they name
/// the pipeline, set its pace or bound it.
const ANYTIME: [&str; 12] = [
    "name",
    "description",
    "tags",
    "enabled",
    "schedule_interval",
    "full_schedule",
    "batch_size",
    "delete_limit",
    "reject_limit",
    "freshness_limit_seconds",
    "reconcile_schedule",
    "on_change",
];

/// Fields that have to wait for the end of the run.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the pipeline is {status}: {} cannot change under a run", .fields.join(", "))]
pub struct Locked {
    pub status: Status,
    pub fields: Vec<String>,
}

impl Pipeline {
    /// The fields in which another configuration differs, as the API calls them.
    pub fn differences(&self, other: &Self) -> Vec<String> {
        let (mine, others) = (fields(self), fields(other));
        let differs =
            |(name, value): (&String, &Value)| (others.get(name) != Some(value)).then(|| name.clone());
        mine.iter()
            .filter_map(differs)
            .map(|name| if name == "plan" { "tasks".to_owned() } else { name })
            .collect()
    }

    /// The fields that change, if all of them may in this status.
    pub fn edit(&self, after: &Self, status: Status) -> Result<Vec<String>, Locked> {
        let changed = self.differences(after);
        let waits = |name: &&String| status.is_active() && !ANYTIME.contains(&name.as_str());
        let locked: Vec<String> = changed.iter().filter(waits).cloned().collect();
        if locked.is_empty() { Ok(changed) } else { Err(Locked { status, fields: locked }) }
    }
}

/// A pipeline is a struct of plain values.
fn fields(pipeline: &Pipeline) -> Map<String, Value> {
    match serde_json::to_value(pipeline) {
        Ok(Value::Object(fields)) => fields,
        _ => Map::new(),
    }
}
