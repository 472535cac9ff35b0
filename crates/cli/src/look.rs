//! A pipeline between its source and its target, looked at without running it.

use std::sync::Arc;

use anyhow::Result;
use arrow_schema::Schema;
use vitrina_connectors::{Connections, sinks, sources};
use vitrina_core::{Lease, LeaseToken, Owner, PipelineKind, Source, Target, TargetName};
use vitrina_store::{Error, PipelineRecord, PipelineRef, Store};

use crate::config::Settings;
use crate::exit::Exit;
use crate::services;

/// Older than any that a runner holds: looking at a query ends nobody's session.
const OLDEST: LeaseToken = LeaseToken(0);

pub(crate) struct Look {
    pub(crate) name: TargetName,
    pub(crate) source: Box<dyn Source>,
    pub(crate) schema: Arc<Schema>,
    target: Target,
    connections: Connections,
}

impl Look {
    /// The source checks and describes the query.
    pub(crate) async fn at(pipeline: &str, settings: &Settings, store: &Store) -> Result<Self> {
        let found = store.pipeline(&PipelineRef::from(pipeline)).await;
        let PipelineRecord { config: pipeline, .. } = found.map_err(|error| match error {
            Error::NoSuchPipeline(_) => {
                Exit::Usage.fault(format!("{error}\nhint: `vitrina status` lists them"))
            }
            error => error.into(),
        })?;
        if pipeline.kind == PipelineKind::Python {
            return Err(Exit::Refused.fault("only pipelines that read with SQL can be looked at"));
        }
        let name = pipeline.target_name(&settings.allowed_targets)?;
        let target = store.target(&name).await?;
        let connections = services::connections(settings);
        let lease = Lease { pipeline: pipeline.id, owner: Owner::draw(), token: OLDEST };
        let order = sources::Order {
            pipeline: &pipeline,
            mode: pipeline.mode,
            backfill: None,
            max_batch_bytes: settings.runner.max_batch_bytes,
            lease: &lease,
            takeover: false,
            installation: store.installation().await?,
            changelog_max_age: 0,
            connections: &connections,
        };
        let source = sources::open(&order).await?;
        let schema = source.schema();
        Ok(Self { name, source, schema, target, connections })
    }

    pub(crate) fn definition(&self) -> sinks::Definition<'_> {
        let Self { name, target, schema, connections, .. } = self;
        sinks::Definition { name, target, schema, connections }
    }

    pub(crate) fn kind(&self) -> Result<&'static dyn sinks::Kind> {
        Ok(sinks::Kinds::default().of(&self.name)?)
    }
}
