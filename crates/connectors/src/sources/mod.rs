//! Where rows come from. A new source is one module and one line in `KINDS`.

mod postgres;

pub use postgres::changelog;

use async_trait::async_trait;
use uuid::Uuid;
use vitrina_core::{Backfill, Error, Lease, Mode, Pipeline, Result, Source};

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
}

/// A kind of source, by the word of `source_type`.
#[async_trait]
trait Kind: Sync {
    fn source_type(&self) -> &'static str;
    async fn open(&self, order: &Order<'_>) -> Result<Box<dyn Source>>;
}

static KINDS: &[&dyn Kind] = &[&postgres::Postgres];

pub async fn open(order: &Order<'_>) -> Result<Box<dyn Source>> {
    let wanted = order.pipeline.source_type.as_str();
    let Some(kind) = KINDS.iter().find(|kind| kind.source_type() == wanted) else {
        let known = KINDS.iter().map(|kind| kind.source_type()).collect::<Vec<_>>().join(", ");
        return Err(Error::fix(
            "source.unknown_type",
            format!("unknown source_type {wanted:?}: one of {known}"),
        ));
    };
    kind.open(order).await
}
