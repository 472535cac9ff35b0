//! Marts that do not exist yet, made from the described query where their target asks for it.

use arrow_schema::{Field, Fields, Schema};
use vitrina_core::{Error, ErrorKind, Result, Target, TargetName};
use vitrina_pgcopy::Kind;

use super::mart::{Mart, quoted};
use super::own_part::OwnPart;
use super::owners;
use super::shape::Shape;
use crate::connection::{End, Session};
use crate::sinks::{Definition, require_types};
use crate::sql::identifier;

/// Types of extensions and users have higher numbers, and may not exist beside the mart.
const FIRST_USER_OID: u32 = 16_384;

const OTHERWISE: &str = "create the table or the column yourself";

/// The type a mart's column needs for the values of a query's column.
pub(super) fn column_type(field: &Field) -> String {
    let metadata = field.metadata();
    let oid: Option<u32> = metadata.get("pg_oid").and_then(|oid| oid.parse().ok());
    match metadata.get("pg_type") {
        Some(declared) if oid.is_some_and(|oid| oid < FIRST_USER_OID) => declared.clone(),
        // What a function has made may have no type of Postgres yet.
        None => Kind::of_field(field).map_or("text", Kind::postgres_type).to_owned(),
        Some(_) => "text".to_owned(),
    }
}

/// Makes a mart that is not there.
pub(super) async fn mart(
    session: &Session,
    name: &TargetName,
    target: &Target,
    schema: &Schema,
) -> Result<Mart> {
    let statements = statements(session, name, target, schema).await?;
    tracing::info!(target = %name, statement = statements.join("; "), "the mart does not exist and is created");
    let made = supply(session, name, &statements).await;
    // Another run may have made the schema meanwhile, and the table is still to be made.
    match made.is_err() && statements.len() > 1 && missing_schema(session, name).await?.is_none() {
        true => supply(session, name, &statements[1..]).await?,
        false => made?,
    }
    Mart::describe(session, name, target).await?.ok_or_else(|| no_table(name))
}

pub(super) fn no_key(name: &TargetName) -> Error {
    Error::fix("sink.create_key", format!("{name} does not exist, and cannot be created without a key: the source proves none of its rows"))
        .of_kind(ErrorKind::KeyMissing)
        .hint(format!(
            "name the key's columns in the target: `targets: [{{name: {name}, key: [id], create_if_missing: true}}]` in a file for `vitrina apply`, or PUT /targets/{name}; \
             a query of one table that returns its primary key, or that groups by columns which it returns, needs none"
        ))
}

/// Views, sequences and their like have names among the tables.
pub(super) async fn refuse_taken(session: &Session, name: &TargetName) -> Result<()> {
    let TargetName::Postgres { schema, table } = name else { return Ok(()) };
    let sql = "select case c.relkind when 'v' then 'a view' when 'm' then 'a materialized view' when 'S' then 'a sequence'
                      when 'f' then 'a foreign table' when 'c' then 'a type' else 'an index' end
                 from pg_class c join pg_namespace n on n.oid = c.relnamespace
                where n.nspname = $1 and c.relname = $2 and c.relkind not in ('r', 'p')";
    let found =
        session.client.query_opt(sql, &[schema, table]).await.map_err(|error| session.explain(error))?;
    let Some(kind) = found.map(|row| row.get::<_, String>(0)) else { return Ok(()) };
    Err(Error::fix("sink.not_a_table", format!("{name} is {kind}, and rows are written to tables"))
        .hint("give the mart another name, or drop or rename what has this one"))
}

pub(super) fn no_table(name: &TargetName) -> Error {
    Error::fix("sink.no_table", format!("there is no table {name}, or its login may not see it")).hint(
        "`vitrina mart` shows the statement that creates it; its login needs select, insert, update and delete; or set create_if_missing on its target",
    )
}

/// The statements that make the mart, and before it the schema that it is the first of.
async fn statements(
    session: &Session,
    name: &TargetName,
    target: &Target,
    schema: &Schema,
) -> Result<Vec<String>> {
    let table = statement(name, target, schema)?;
    Ok(missing_schema(session, name).await?.into_iter().chain([table]).collect())
}

async fn missing_schema(session: &Session, name: &TargetName) -> Result<Option<String>> {
    let TargetName::Postgres { schema, .. } = name else { return Ok(None) };
    let sql = "select exists (select from pg_namespace where nspname = $1)";
    let found = session.client.query_one(sql, &[schema]).await.map_err(|error| session.explain(error))?;
    Ok((!found.get::<_, bool>(0)).then(|| format!("create schema if not exists {}", identifier(schema))))
}

/// The statement that makes the mart.
pub(super) fn statement(name: &TargetName, target: &Target, schema: &Schema) -> Result<String> {
    if target.key.is_empty() {
        return Err(no_key(name));
    }
    if let Some(missing) = target.key.iter().find(|key| schema.field_with_name(key).is_err()) {
        return Err(Error::fix(
            "sink.missing_key",
            format!("the query returns no column {missing:?}, which is in the key of {name}"),
        ));
    }
    require_types(name, schema.fields(), OTHERWISE)?;
    let column = |field: &std::sync::Arc<Field>| {
        let not_null = if target.key.contains(field.name()) { " not null" } else { "" };
        format!("{} {}{not_null}", identifier(field.name()), column_type(field))
    };
    let mut lines: Vec<String> = schema.fields().iter().map(column).collect();
    if let Some(touch) = target.touch_column.as_ref().filter(|touch| schema.field_with_name(touch).is_err()) {
        lines.push(format!("{} timestamptz", identifier(touch)));
    }
    let key = target.key.iter().map(|name| identifier(name)).collect::<Vec<_>>().join(", ");
    lines.push(format!("primary key ({key})"));
    Ok(format!("create table if not exists {} (\n    {}\n)", quoted(name)?, lines.join(",\n    ")))
}

/// The statements that would let the mart take the rows: its table, or the columns it has not got.
pub(super) async fn lacks(session: &Session, definition: &Definition<'_>) -> Result<Vec<String>> {
    let Definition { name, target, schema, .. } = definition;
    let Some(mart) = Mart::describe(session, name, target).await? else {
        return statements(session, name, target, schema).await;
    };
    let missing = schema.fields().iter().filter(|field| !mart.has(field.name()));
    let missing: Fields = missing.cloned().collect();
    require_types(name, &missing, OTHERWISE)?;
    let missing: Vec<String> = missing.iter().map(|field| add_column(&mart, field)).collect();
    if missing.is_empty() {
        // What else is wrong no statement of ours can mend: it is told as a run would tell it.
        Shape::new(&mart, schema)?.require_whole(&mart)?;
        require_own_part(session, definition, mart).await?;
    }
    Ok(missing)
}

/// Of a mart that is shared, what the pipeline writes must be its own.
async fn require_own_part(session: &Session, definition: &Definition<'_>, mut mart: Mart) -> Result<()> {
    let Some(pipeline) = definition.pipeline else { return Ok(()) };
    let names = definition.schema.fields().iter().map(|field| field.name().clone());
    let own = names.filter(|name| !mart.is_key(name));
    mart.own = OwnPart::of(pipeline, definition.target)?.with_columns(own);
    mart.require_own_part(session).await?;
    mart.require_own_columns()?;
    match &mart.own {
        OwnPart::Columns(own) => owners::refuse_overlap(session, &mart.name, pipeline, own).await,
        OwnPart::Whole | OwnPart::Rows { .. } => Ok(()),
    }
}

pub(super) fn add_column(mart: &Mart, field: &Field) -> String {
    format!("alter table {} add column {} {}", mart.name, identifier(field.name()), column_type(field))
}

pub(super) async fn session(definition: &Definition<'_>) -> Result<Session> {
    let connection = definition.connections.get(&definition.target.connection)?;
    Session::open(connection, End::Sink, "vitrina/mart").await
}

/// All statements, or none of them.
pub(super) async fn supply(session: &Session, name: &TargetName, statements: &[String]) -> Result<()> {
    let together = statements.join(";\n");
    session.run(&together).await.map_err(|error| match error.is_refused() {
        true => Error::fix("sink.cannot_create", format!("{name} cannot be created or altered: {error}"))
            .hint(format!("let its owner execute it, or grant the right to:\n{together}")),
        false => error,
    })
}
