//! A pipeline between its source and its target, looked at without running it.

use std::sync::Arc;

use arrow_schema::Schema;
use uuid::Uuid;
use vitrina_connectors::{Connections, sinks, sources};
use vitrina_core::{
    AllowedTargets, Error, Lease, LeaseToken, Owner, Pipeline, PipelineKind, Result, Source, Target,
    TargetName,
};

/// Older than any that a runner holds: looking at a query ends nobody's session.
const OLDEST: LeaseToken = LeaseToken(0);

/// Where to look from.
#[derive(Debug)]
pub struct View<'a> {
    pub connections: &'a Connections,
    pub allowed_targets: &'a AllowedTargets,
    pub sinks: &'a sinks::Kinds,
    pub max_batch_bytes: usize,
    pub installation: Uuid,
}

#[allow(missing_debug_implementations)] // a source is a session, not a value
pub struct Look<'a> {
    pub name: TargetName,
    pub source: Box<dyn Source>,
    pub schema: Arc<Schema>,
    target: Target,
    kind: &'static dyn sinks::Kind,
    connections: &'a Connections,
}

impl<'a> Look<'a> {
    /// The source checks and describes the query.
    pub async fn at(pipeline: &Pipeline, target: Target, view: &View<'a>) -> Result<Self> {
        if pipeline.kind == PipelineKind::Python {
            let message = "only pipelines that read with SQL can be looked at";
            return Err(Error::fix("pipeline.python", message));
        }
        let name = pipeline.target_name(view.allowed_targets)?;
        let kind = view.sinks.of(&name)?;
        let lease = Lease { pipeline: pipeline.id, owner: Owner::draw(), token: OLDEST };
        let order = sources::Order {
            pipeline,
            mode: pipeline.mode,
            backfill: None,
            max_batch_bytes: view.max_batch_bytes,
            lease: &lease,
            takeover: false,
            installation: view.installation,
            changelog_max_age: 0,
            connections: view.connections,
        };
        let source = sources::open(&order).await?;
        let schema = source.schema();
        Ok(Self { name, source, schema, target, kind, connections: view.connections })
    }

    pub fn definition(&self) -> sinks::Definition<'_> {
        let Self { name, target, schema, connections, .. } = self;
        sinks::Definition { name, target, schema, connections }
    }

    pub fn kind(&self) -> &'static dyn sinks::Kind {
        self.kind
    }
}
