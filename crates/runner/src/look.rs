//! A pipeline between its source and its target, looked at without running it.

use std::sync::Arc;

use arrow_schema::Schema;
use uuid::Uuid;
use vitrina_connectors::{Connections, sinks, sources, transforms};
use vitrina_core::{AllowedTargets, Lease, LeaseToken, Owner, Pipeline, Result, Source, Target, TargetName};
use vitrina_python::Python;

/// Older than any that a runner holds: looking at a query ends nobody's session.
const OLDEST: LeaseToken = LeaseToken(0);

/// Where to look from.
#[derive(Debug)]
pub struct View<'a> {
    pub connections: &'a Connections,
    pub allowed_targets: &'a AllowedTargets,
    pub sources: &'a sources::Kinds,
    pub sinks: &'a sinks::Kinds,
    pub max_batch_bytes: usize,
    pub installation: Uuid,
    pub python: Option<&'a Arc<Python>>,
}

#[allow(missing_debug_implementations)] // a source is a session, not a value
pub struct Look<'a> {
    pub name: TargetName,
    pub source: Box<dyn Source>,
    /// Of the rows as they come to the target, where that can be told before they do.
    pub schema: Option<Arc<Schema>>,
    target: Target,
    pipeline: &'a Pipeline,
    kind: &'static dyn sinks::Kind,
    connections: &'a Connections,
}

impl<'a> Look<'a> {
    /// The source checks and describes the query.
    pub async fn at(pipeline: &'a Pipeline, target: Target, view: &View<'a>) -> Result<Self> {
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
            python: view.python,
            run_id: String::new(),
            observes: true,
            strict_keys: false,
        };
        let source = view.sources.open(&order).await?;
        let schema = match source.schema() {
            Some(schema) => transforms::columns(&steps(pipeline, view), schema).await?,
            None => None,
        };
        let mut look = Self { name, source, schema, target, pipeline, kind, connections: view.connections };
        look.take_proposed_key().await?;
        Ok(look)
    }

    /// As a run would: where the target names no key and has none itself.
    async fn take_proposed_key(&mut self) -> Result<()> {
        let Some(schema) = self.schema.clone().filter(|_| self.pipeline.python_tasks().is_empty()) else {
            return Ok(());
        };
        let is_index = matches!(self.name, TargetName::Named { .. });
        if !self.target.key.is_empty()
            || !is_index && !self.kind.key(&self.definition(&schema)).await?.is_empty()
        {
            return Ok(());
        }
        if let Some(key) = self.source.propose_key().await? {
            self.target.key = key;
        }
        Ok(())
    }

    /// The target as these rows want it.
    pub fn definition<'b>(&'b self, schema: &'b Schema) -> sinks::Definition<'b> {
        let Self { name, target, pipeline, connections, .. } = self;
        sinks::Definition { name, target, schema, pipeline: Some(pipeline), connections }
    }

    pub fn kind(&self) -> &'static dyn sinks::Kind {
        self.kind
    }
}

fn steps<'a>(pipeline: &'a Pipeline, view: &View<'a>) -> transforms::Order<'a> {
    let mode = pipeline.mode.to_string();
    transforms::Order { pipeline, python: view.python, run_id: String::new(), mode, done: 0 }
}
