//! Where rows go. A new sink is one module and one line in `KINDS`.

mod postgres;
pub(crate) mod search;
mod standing;

use std::fmt;
use std::sync::Arc;

use arrow_schema::{FieldRef, Schema};
use async_trait::async_trait;
use uuid::Uuid;
use vitrina_core::{
    AllowedTargets, Destination, Error, Issued, Lease, Ledger, Owner, Pipeline, PipelineId, Result, Sink,
    Target, TargetName,
};

use crate::Connections;
use crate::reconcile::{self, Pair};
pub use standing::{Standing, StandingField};

/// All that a sink needs to know of the run it writes for.
pub struct Order<'a> {
    pub pipeline: &'a Pipeline,
    pub target: &'a Target,
    /// The columns of the rows to come, where no transform may change them.
    pub schema: Option<&'a Schema>,
    pub lease: &'a Lease,
    /// The leases of this pipeline that may be met at the target.
    pub issued: &'a Issued,
    /// The owner before has not given the pipeline back.
    pub takeover: bool,
    pub connections: &'a Connections,
    pub allowed_targets: &'a AllowedTargets,
    /// The meta-store's own id: a mart beside it commits data and checkpoint in one transaction.
    pub installation: Uuid,
    pub ledger: Arc<dyn Ledger>,
}

impl Order<'_> {
    /// The columns by which the query tells which of several rows of one key is the newest.
    fn newest_last(&self) -> Option<Vec<String>> {
        let returns = |key: &String| self.schema.is_none_or(|schema| schema.field_with_name(key).is_ok());
        newest_last(self.pipeline, returns)
    }
}

/// None where the query does not return the cursor.
fn newest_last(pipeline: &Pipeline, returns: impl Fn(&String) -> bool) -> Option<Vec<String>> {
    let cursor = [&pipeline.incremental_key, &pipeline.incremental_id_key];
    let names: Vec<String> = cursor.into_iter().map_while(|name| name.clone().filter(&returns)).collect();
    (!names.is_empty()).then_some(names)
}

impl fmt::Debug for Order<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Order")
            .field("target", &self.target.name)
            .field("lease", &self.lease)
            .finish_non_exhaustive()
    }
}

/// A sink ready to be sealed, and what it has found out of its target.
#[allow(missing_debug_implementations)] // a sink is a session, not a value
pub struct Opened {
    pub sink: Box<dyn Sink>,
    pub destination: Destination,
}

/// A target, and the rows that are meant for it.
#[derive(Debug)]
pub struct Definition<'a> {
    pub name: &'a TargetName,
    pub target: &'a Target,
    pub schema: &'a Schema,
    /// The pipeline whose rows they are; `None` where nobody writes to it.
    pub pipeline: Option<&'a Pipeline>,
    pub connections: &'a Connections,
}

/// A pipeline that was deleted or writes elsewhere by now, and where it has written.
#[derive(Debug)]
pub struct Left<'a> {
    pub pipeline: PipelineId,
    /// It is no more: otherwise what it keeps for all of its targets stays.
    pub deleted: bool,
    pub target: &'a Target,
    pub installation: Uuid,
    /// The request that says so, and who holds it.
    pub request: (Uuid, Owner),
    /// The leases of this pipeline that may be met at the target: what another copy of the meta-store has written is not left.
    pub issued: &'a Issued,
    pub ledger: &'a dyn Ledger,
    pub connections: &'a Connections,
}

/// A target is not made from guesses: a column that only NULL has come in so far may be of any type. `otherwise` says what
/// else can be done.
fn require_types<'a>(
    target: &dyn fmt::Display,
    fields: impl IntoIterator<Item = &'a FieldRef>,
    otherwise: &str,
) -> Result<()> {
    let Some(field) = fields.into_iter().find(|field| vitrina_python::is_untyped(field)) else {
        return Ok(());
    };
    let name = field.name();
    let message = format!(
        "the type of column {name:?} is needed to create {target}, and only NULL has come from the Python function"
    );
    Err(Error::fix("sink.no_type", message)
        .hint(format!("declare it in the function, output={{{name:?}: \"bigint\", ...}}, or {otherwise}")))
}

/// A kind of sink, by the shape of the target's name.
#[async_trait]
pub trait Kind: Sync + Send + fmt::Debug {
    fn serves(&self, target: &TargetName) -> bool;
    async fn open(&self, target: &TargetName, order: &Order<'_>) -> Result<Opened>;
    /// The key that rows of the target are found by: the declared one, where the target itself knows none.
    async fn key(&self, definition: &Definition<'_>) -> Result<Vec<String>> {
        Ok(definition.target.key.clone())
    }
    /// What would have to be done to the target before it can take the rows; nothing where it can.
    async fn lacks(&self, _: &Definition<'_>) -> Result<Vec<String>> {
        Ok(Vec::new())
    }
    /// What somebody has to grant its login before that can make the target, or write to it.
    async fn grants(&self, _: &Definition<'_>) -> Result<Vec<String>> {
        Ok(Vec::new())
    }
    /// What is there, beside what the rows would make of it. Nothing is changed.
    async fn standing(&self, definition: &Definition<'_>) -> Result<Standing> {
        let message = format!("how {} stands cannot be told", definition.name);
        Err(Error::fix("target.unsupported", message))
    }
    /// Removes what a pipeline has left beside its target, and its ownership of it. The target itself stays.
    async fn forget(&self, _: &Left<'_>) -> Result<()> {
        Ok(())
    }
    /// The target beside its source, to be compared.
    async fn pair<'a>(&self, target: &TargetName, _: &'a reconcile::Order<'a>) -> Result<Box<dyn Pair + 'a>> {
        let message = format!("{target} cannot be compared with its source");
        Err(Error::fix("reconcile.unsupported", message))
    }
    /// Does what `lacks` has answered, all or nothing.
    async fn supply(&self, _: &Definition<'_>, _: &[String]) -> Result<()> {
        Ok(())
    }
}

/// The kinds of sinks that a runner can write to.
#[derive(Debug, Clone)]
pub struct Kinds(pub Vec<&'static dyn Kind>);

impl Default for Kinds {
    fn default() -> Self {
        Self(KINDS.to_vec())
    }
}

static KINDS: &[&dyn Kind] = &[&postgres::Postgres, &search::Search];

impl Kinds {
    pub fn of(&self, target: &TargetName) -> Result<&'static dyn Kind> {
        let kind = self.0.iter().find(|kind| kind.serves(target));
        let unknown = || Error::fix("sink.unknown", format!("no sink of this runner writes to {target}"));
        kind.copied().ok_or_else(unknown)
    }

    /// Opens the sink of a pipeline, once its target has passed the fence of `allowed_targets`.
    pub async fn open(&self, order: &Order<'_>) -> Result<Opened> {
        let target = order.pipeline.target_name(order.allowed_targets)?;
        self.of(&target)?.open(&target, order).await
    }
}
