//! Where rows come from. A new source is one module and one line in `KINDS`.

pub(crate) mod postgres;
mod python;

pub use postgres::changelog;

use std::fmt;
use std::sync::Arc;

use async_trait::async_trait;
use uuid::Uuid;
use vitrina_core::{Backfill, Error, Lease, Mode, Pipeline, PipelineId, Result, Source};

use crate::Connections;

/// All that a source needs to know of the run it reads for.
#[derive(Debug)]
pub struct Order<'a> {
    pub pipeline: &'a Pipeline,
    pub mode: Mode,
    /// Rows to read again, instead of a pass.
    pub backfill: Option<&'a Backfill>,
    /// Bounds the memory of a batch, whatever `batch_size` says.
    pub max_batch_bytes: usize,
    pub lease: &'a Lease,
    /// Another runner may have left sessions behind.
    pub takeover: bool,
    /// The meta-store's own id: under it a source knows who follows its change log.
    pub installation: Uuid,
    /// In seconds: a follower of a change log that is silent for longer is not waited for.
    pub changelog_max_age: i64,
    pub connections: &'a Connections,
    /// Where this runner has one.
    pub python: Option<&'a Arc<vitrina_python::Python>>,
    pub run_id: String,
    /// Nothing is committed to: the source is told nothing, and keeps no place for it.
    pub observes: bool,
    /// A key of the backfill that is no value of its column's type is an error, and not a row that is not there.
    pub strict_keys: bool,
}

/// A deleted pipeline, and where it has read.
#[derive(Debug)]
pub struct Left<'a> {
    pub pipeline: PipelineId,
    pub source_type: &'a str,
    pub connection: &'a str,
    pub installation: Uuid,
    pub connections: &'a Connections,
}

/// A kind of source, by the word of `source_type`.
#[async_trait]
pub trait Kind: Sync + Send + fmt::Debug {
    fn source_type(&self) -> &'static str;
    async fn open(&self, order: &Order<'_>) -> Result<Box<dyn Source>>;
    /// Removes what a deleted pipeline has left at its source.
    async fn forget(&self, _: &Left<'_>) -> Result<()> {
        Ok(())
    }
}

/// The kinds of sources that a runner can read from.
#[derive(Debug, Clone)]
pub struct Kinds(pub Vec<&'static dyn Kind>);

impl Default for Kinds {
    fn default() -> Self {
        Self(KINDS.to_vec())
    }
}

static KINDS: &[&dyn Kind] = &[&postgres::Postgres, &python::Python];

impl Kinds {
    pub async fn open(&self, order: &Order<'_>) -> Result<Box<dyn Source>> {
        self.of(&order.pipeline.source_type)?.open(order).await
    }

    /// Of a type that nobody can read nothing is left.
    pub async fn forget(&self, left: &Left<'_>) -> Result<()> {
        match self.of(left.source_type) {
            Ok(kind) => kind.forget(left).await,
            Err(_) => Ok(()),
        }
    }

    fn of(&self, source_type: &str) -> Result<&'static dyn Kind> {
        let unknown = || {
            let known = self.0.iter().map(|kind| kind.source_type()).collect::<Vec<_>>().join(", ");
            Error::fix("source.unknown_type", format!("unknown source_type {source_type:?}: one of {known}"))
        };
        self.0.iter().find(|kind| kind.source_type() == source_type).copied().ok_or_else(unknown)
    }
}
