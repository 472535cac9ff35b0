//! Workers that wait, and new ones where none does.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::task::JoinSet;
use vitrina_core::{Error, Result};

use crate::registry::Registry;
use crate::sdk::Sdk;
use crate::session::Session;
use crate::settings::PythonSettings;
use crate::worker::Worker;

/// Python as this runner has it.
#[derive(Debug)]
pub struct Python {
    pub(crate) settings: PythonSettings,
    sdk: Sdk,
    registry: Registry,
    waiting: Mutex<Vec<Worker>>,
    /// Starts workers that will wait, one after the other.
    filling: Mutex<JoinSet<()>>,
}

impl Python {
    /// Imports the modules once: what cannot be imported is told here, and not by the first run that needs it.
    pub async fn start(settings: PythonSettings) -> Result<Arc<Self>> {
        let sdk = Sdk::lay_out()?;
        let first = Worker::start(&settings, &sdk).await?;
        let registry = first.registry.clone();
        let (waiting, filling) = (Mutex::new(vec![first]), Mutex::default());
        let python = Arc::new(Self { settings, sdk, registry, waiting, filling });
        python.fill();
        Ok(python)
    }

    pub fn registry(&self) -> &Registry {
        &self.registry
    }

    /// How many batches of one run may be worked on at a time.
    pub fn workers_a_run(&self) -> usize {
        self.settings.workers_a_run.max(1)
    }

    pub fn session(self: &Arc<Self>) -> Session {
        Session::new(Arc::clone(self))
    }

    pub(crate) async fn take(self: &Arc<Self>) -> Result<Worker> {
        let waiting = self.waiting().pop();
        self.fill();
        match waiting {
            Some(worker) => Ok(worker),
            None => self.begin().await,
        }
    }

    /// A worker that is tired, or in the middle of something, is replaced; so is one that has kept much: it would be the
    /// next one's memory.
    pub(crate) fn give_back(self: &Arc<Self>, worker: Worker) {
        let is_light = worker.memory() <= self.settings.memory_limit / 2;
        if worker.is_free && is_light && worker.served < self.settings.batches_a_worker {
            let mut waiting = self.waiting();
            if waiting.len() < self.settings.warm {
                waiting.push(worker);
                return;
            }
        }
        drop(worker);
        self.fill();
    }

    /// Code that was changed under a running runner is not what it has told the meta-store of.
    pub(crate) async fn begin(&self) -> Result<Worker> {
        let worker = Worker::start(&self.settings, &self.sdk).await?;
        if worker.registry == self.registry {
            return Ok(worker);
        }
        Err(Error::release(
            "python.changed",
            "the registered Python modules have changed since this runner started",
        )
        .hint("restart the runner: it publishes its functions when it starts"))
    }

    fn fill(self: &Arc<Self>) {
        let mut filling = self.filling.lock().unwrap_or_else(PoisonError::into_inner);
        while filling.try_join_next().is_some() {}
        if !filling.is_empty() || self.waiting().len() >= self.settings.warm {
            return;
        }
        // Whoever fills does not keep the pool: with the pool the filling ends.
        let python = Arc::downgrade(self);
        filling.spawn(async move {
            while let Some(python) = python.upgrade()
                && python.waiting().len() < python.settings.warm
            {
                match python.begin().await {
                    Ok(worker) => python.waiting().push(worker),
                    Err(error) => {
                        tracing::warn!(%error, "no Python worker can be kept warm");
                        return;
                    }
                }
            }
        });
    }

    fn waiting(&self) -> MutexGuard<'_, Vec<Worker>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
