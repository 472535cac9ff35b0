//! What speaks against writing rows to an index, looked at before a pipeline runs.

use vitrina_core::{PipelineId, Result};

use super::indexes::Standing;
use super::load::refuse_taken;
use super::names::Names;
use super::{Client, index, key, mapping, require_key};
use crate::sinks::Definition;

/// Errs with the first thing that does. Nothing has to be done at the server beforehand: a load makes its index.
pub(super) async fn inspect(definition: &Definition<'_>) -> Result<()> {
    let Definition { name, target, schema, connections, .. } = definition;
    let key = key(target)?;
    require_key(target, &key, schema)?;
    let derived = mapping::mapping(target, schema, &key);
    mapping::check_columns(target, &derived, schema)?;
    let client = Client::of(connections.get(&target.connection)?)?;
    let names = Names::new(index(name), PipelineId(uuid::Uuid::nil()));
    let standing = Standing::look(&client, &names).await?;
    refuse_taken(&names, &standing, target.document.take_over)
}
