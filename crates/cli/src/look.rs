//! A saved pipeline, looked at from here without running it.

use std::sync::Arc;

use anyhow::Result;
use vitrina_connectors::{Connections, sinks, sources};
use vitrina_core::{Pipeline, Target};
use vitrina_python::Python;
use vitrina_runner::{Look, View};
use vitrina_store::{Error, PipelineRecord, PipelineRef, Store};

use crate::config::Settings;
use crate::exit::Exit;
use crate::services;

/// What there is to look at, and where from.
pub(crate) struct Viewed<'a> {
    settings: &'a Settings,
    pipeline: Pipeline,
    target: Target,
    connections: Connections,
    sources: sources::Kinds,
    sinks: sinks::Kinds,
    installation: uuid::Uuid,
    python: Option<Arc<Python>>,
}

impl<'a> Viewed<'a> {
    pub(crate) async fn find(pipeline: &str, settings: &'a Settings, store: &Store) -> Result<Self> {
        let found = store.pipeline(&PipelineRef::from(pipeline)).await;
        let PipelineRecord { config: pipeline, .. } = found.map_err(|error| match error {
            Error::NoSuchPipeline(_) => {
                Exit::Usage.fault(format!("{error}\nhint: `vitrina status` lists them"))
            }
            error => error.into(),
        })?;
        let name = pipeline.target_name(&settings.allowed_targets)?;
        let python = match pipeline.python_tasks().is_empty() {
            true => None,
            false => services::start_python(settings).await?,
        };
        Ok(Self {
            settings,
            target: store.target(&name).await?,
            pipeline,
            connections: services::connections(settings),
            sources: sources::Kinds::default(),
            sinks: sinks::Kinds::default(),
            installation: store.installation().await?,
            python,
        })
    }

    pub(crate) async fn look(&self) -> Result<Look<'_>> {
        let view = View {
            connections: &self.connections,
            allowed_targets: &self.settings.allowed_targets,
            sources: &self.sources,
            sinks: &self.sinks,
            max_batch_bytes: self.settings.runner.max_batch_bytes,
            installation: self.installation,
            python: self.python.as_ref(),
        };
        Ok(Look::at(&self.pipeline, self.target.clone(), &view).await?)
    }
}
