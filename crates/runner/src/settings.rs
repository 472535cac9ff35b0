//! What a runner is configured with.

use std::time::Duration;

use vitrina_connectors::Connections;
use vitrina_core::AllowedTargets;
use vitrina_store::RunnerAbilities;

#[derive(Debug, Clone)]
pub struct RunnerSettings {
    pub name: String,
    pub max_concurrent: usize,
    pub poll_interval: Duration,
    pub lease: Duration,
    pub shutdown_timeout: Duration,
    pub allowed_targets: AllowedTargets,
    pub connections: Connections,
}

impl RunnerSettings {
    pub(crate) fn abilities(&self) -> RunnerAbilities {
        RunnerAbilities {
            name: self.name.clone(),
            connections: self.connections.names(),
            python_tasks: Vec::new(),
        }
    }
}
