//! How a mart stands: its columns beside those of the query.

use std::collections::BTreeMap;

use vitrina_core::Result;

use super::create::{self, column_type};
use super::mart::Mart;
use super::own_part::OwnPart;
use crate::connection::Session;
use crate::sinks::Definition;
use crate::sinks::standing::{Standing, beside};
use crate::sql::literal;

pub(super) async fn standing(definition: &Definition<'_>) -> Result<Standing> {
    let Definition { name, target, schema, .. } = definition;
    let session = create::session(definition).await?;
    let mart = Mart::describe(&session, name, target).await?;
    let declared: BTreeMap<String, String> =
        schema.fields().iter().map(|field| (field.name().clone(), column_type(field))).collect();
    let columns = mart.iter().flat_map(|mart| &mart.columns);
    let live = columns.map(|column| (column.name.clone(), column.full_type.clone())).collect();
    let rows = match &mart {
        Some(mart) => rows(&session, mart, definition).await?,
        None => None,
    };
    // Where nobody writes to it, it lacks nothing.
    let lacks = match schema.fields().is_empty() {
        true => Ok(Vec::new()),
        false => create::lacks(&session, definition).await,
    };
    let (lacks, problem) = match lacks {
        Ok(lacks) => (lacks, None),
        Err(error) => (Vec::new(), Some(error.with_values())),
    };
    // A table may have columns of its own.
    let fields = beside(&declared, &live, false);
    Ok(Standing { exists: mart.is_some(), rows, index: None, previous: None, fields, lacks, problem })
}

/// By the statistics, of all parts together; `None` where it was never analyzed. The own rows of a pipeline that shares the
/// mart no statistics tell: they are counted.
async fn rows(session: &Session, mart: &Mart, definition: &Definition<'_>) -> Result<Option<u64>> {
    if let Some(pipeline) = definition.pipeline.filter(|_| definition.target.shared.is_some()) {
        let names = definition.schema.fields().iter().map(|field| field.name().clone());
        let own = names.filter(|name| !mart.is_key(name) && mart.has(name));
        let own = OwnPart::of(pipeline, definition.target)?.with_columns(own);
        let sql = format!("select count(*) from {} t where {}", mart.table, own.condition("t"));
        let row = session.client.query_one(&sql, &[]).await.map_err(|error| session.explain(error))?;
        return Ok(u64::try_from(row.get::<_, i64>(0)).ok());
    }
    let sql = format!(
        "select sum(reltuples)::int8 from pg_class
          where oid in (select relid from pg_partition_tree({0}::regclass) union select {0}::regclass)
            and relkind = 'r' and reltuples >= 0",
        literal(&mart.table)
    );
    let row = session.client.query_one(&sql, &[]).await.map_err(|error| session.explain(error))?;
    Ok(row.get::<_, Option<i64>>(0).and_then(|rows| u64::try_from(rows).ok()))
}
