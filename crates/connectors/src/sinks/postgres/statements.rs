//! The SQL of one batch, made once for the columns that a query returns.

use arrow_schema::{Fields, Schema};
use vitrina_core::{Error, KeyRange, Result, Scope};
use vitrina_pgcopy::Encoder;

use super::mart::{Mart, MartColumn};
use crate::sql::{OrderedColumn, compare, identifier};

pub(super) struct Statements {
    fields: Fields,
    pub(super) create_stage: String,
    pub(super) merge: String,
    /// `s."id" = t."id" and …`, staged values cast to the mart's types.
    same_key: String,
}

/// One written column: where it is staged and where it goes.
struct Written<'a> {
    column: &'a MartColumn,
    staged: String,
}

impl Statements {
    pub(super) fn new(mart: &Mart, schema: &Schema, scope: &Scope) -> Result<Self> {
        let types = staged_types(schema)?;
        let written = written(mart, schema, &types)?;
        require_key(mart, schema)?;
        if matches!(scope, Scope::Range(_)) {
            require_same_order(mart, schema)?;
        }
        let same_key = written
            .iter()
            .filter(|written| mart.is_key(&written.column.name))
            .map(|written| format!("{} = t.{}", written.staged, identifier(&written.column.name)))
            .collect::<Vec<_>>()
            .join(" and ");
        Ok(Self {
            fields: schema.fields().clone(),
            create_stage: create_temporary("vitrina_stage", schema, &types),
            merge: merge(mart, &written),
            same_key,
        })
    }

    pub(super) fn columns(&self) -> &Fields {
        &self.fields
    }

    pub(super) fn create_scope(schema: &Schema) -> Result<String> {
        Ok(create_temporary("vitrina_scope", schema, &staged_types(schema)?))
    }

    /// Rows of the mart in a range of keys that the batch covered and did not bring.
    pub(super) fn delete_range(&self, mart: &Mart, range: &KeyRange) -> String {
        let key = mart.ordered_key();
        let after = range.after.as_ref().map(|values| compare(&key, "t", ">", values));
        let upto = range.upto.as_ref().map(|values| compare(&key, "t", "<=", values));
        let unstaged = format!("not exists (select from pg_temp.vitrina_stage s where {})", self.same_key);
        let conditions =
            [after, upto, Some(unstaged)].into_iter().flatten().collect::<Vec<_>>().join(" and ");
        format!("delete from {} t where {conditions}", mart.table)
    }

    /// Rows of the mart whose change key is in the scope and whose key is not in the batch.
    pub(super) fn delete_keys(&self, mart: &Mart, scope: &Schema) -> String {
        let same_change_key = scope
            .fields()
            .iter()
            .map(|field| format!("t.{0}::text is not distinct from c.{0}::text", identifier(field.name())))
            .collect::<Vec<_>>()
            .join(" and ");
        format!(
            "delete from {} t using pg_temp.vitrina_scope c where {same_change_key}
                and not exists (select from pg_temp.vitrina_stage s where {})",
            mart.table, self.same_key
        )
    }
}

fn staged_types(schema: &Schema) -> Result<Vec<&'static str>> {
    let encoder = Encoder::new(std::sync::Arc::new(schema.clone()));
    let encoder = encoder
        .map_err(|error| Error::fix("sink.unwritable", format!("the rows cannot be written: {error}")))?;
    Ok(encoder.column_types())
}

fn create_temporary(table: &str, schema: &Schema, types: &[&str]) -> String {
    let column = |(field, kind): (&std::sync::Arc<arrow_schema::Field>, &&str)| {
        format!("{} {kind}", identifier(field.name()))
    };
    let columns = schema.fields().iter().zip(types).map(column).collect::<Vec<_>>().join(", ");
    format!(
        "drop table if exists pg_temp.{table}; create temporary table {table} ({columns}) on commit delete rows"
    )
}

fn written<'a>(mart: &'a Mart, schema: &Schema, types: &[&str]) -> Result<Vec<Written<'a>>> {
    let one = |(field, staged_type): (&std::sync::Arc<arrow_schema::Field>, &&str)| {
        let column = mart.column(field.name(), "column of the query")?;
        let staged = column.of_staged(&format!("s.{}", identifier(field.name())), staged_type);
        Ok(Written { column, staged })
    };
    schema.fields().iter().zip(types).map(one).collect()
}

fn require_key(mart: &Mart, schema: &Schema) -> Result<()> {
    let missing = mart.key_names().into_iter().find(|name| schema.column_with_name(name).is_none());
    missing.map_or(Ok(()), |name| {
        Err(Error::fix(
            "sink.missing_key",
            format!("the query returns no column {name:?}, which is in the key of {}", mart.table),
        ))
    })
}

/// A range of keys must mean the same rows at the source and in the mart.
fn require_same_order(mart: &Mart, schema: &Schema) -> Result<()> {
    for name in mart.key_names() {
        let column = mart.column(&name, "key column")?;
        let source = schema.field_with_name(&name).ok().and_then(|field| field.metadata().get("pg_oid"));
        let Some(source) = source.and_then(|oid| oid.parse::<u32>().ok()) else { continue };
        if column.rounds || !OrderedColumn::ranges_agree(source, column.oid) {
            let message = format!(
                "key column {name:?} of {} has type {}, and the query returns another or one that cannot be paged by",
                mart.table, column.full_type
            );
            return Err(Error::fix("sink.key_type", message).hint(
                "a key is smallint, integer, bigint, uuid, text, varchar, bytea, boolean, date, timestamp, timestamptz or \
                 numeric, without precision, and of the same type on both sides: cast it in the query or change the mart",
            ));
        }
    }
    Ok(())
}

/// Rewrites only rows whose written columns differ in their binary image: `is distinct from` fails
/// on json and calls 1.0 and 1.00 equal, so that a repair would never converge.
fn merge(mart: &Mart, written: &[Written<'_>]) -> String {
    let touch = mart
        .touch_column
        .as_deref()
        .filter(|touch| written.iter().all(|written| written.column.name != *touch));
    let mut columns: Vec<String> = written.iter().map(|written| identifier(&written.column.name)).collect();
    let mut values: Vec<String> = written.iter().map(|written| written.staged.clone()).collect();
    let rest: Vec<String> = written
        .iter()
        .filter(|written| !mart.is_key(&written.column.name))
        .map(|written| identifier(&written.column.name))
        .collect();
    let mut assignments: Vec<String> = rest.iter().map(|name| format!("{name} = excluded.{name}")).collect();
    if let Some(touch) = touch {
        columns.push(identifier(touch));
        values.push("now()".to_owned());
        assignments.push(format!("{} = now()", identifier(touch)));
    }
    let key = mart.key_names().iter().map(|name| identifier(name)).collect::<Vec<_>>().join(", ");
    let image = |alias: &str| {
        let columns = rest.iter().map(|name| format!("{alias}.{name}")).collect::<Vec<_>>().join(", ");
        format!("row({columns})::record")
    };
    let on_conflict = if rest.is_empty() {
        "do nothing".to_owned()
    } else {
        format!("do update set {} where {} *<> {}", assignments.join(", "), image("t"), image("excluded"))
    };
    format!(
        "with merged as (
            insert into {} as t ({}) select {} from pg_temp.vitrina_stage s order by {}
            on conflict ({key}) {on_conflict}
            returning (t.xmax = 0) as inserted)
         select count(*) filter (where inserted), count(*) filter (where not inserted) from merged",
        mart.table,
        columns.join(", "),
        values.join(", "),
        mart.key_names().iter().map(|name| format!("s.{}", identifier(name))).collect::<Vec<_>>().join(", "),
    )
}
