//! What the logins may do where they have to, each lack with the statement that mends it.

use std::collections::BTreeSet;

use sqlx::postgres::PgRow;
use sqlx::{PgConnection, Row};
use vitrina_core::{AllowedTargets, TargetName};
use vitrina_guard::{READS_ELSEWHERE, quoted};
use vitrina_store::{PipelineChoice, Store};

use super::{Report, Verdict};
use crate::exit;

/// More tables than these are counted.
const SHOWN: usize = 5;

/// Schemas that pipelines may read: are they there, and may the login read what is in them?
pub(super) async fn of_source(
    name: &str,
    schemas: &[String],
    session: &mut PgConnection,
    report: &mut Report,
) {
    let check = format!("source {name}");
    let found = match readable(session, schemas).await {
        Ok(found) => found,
        Err(error) => return report.fail(&check, &exit::told(&error)),
    };
    let missing: Vec<&str> =
        found.iter().filter(|schema| !schema.exists).map(|schema| schema.name.as_str()).collect();
    if !missing.is_empty() {
        let verdict = if missing.len() == found.len() { Verdict::Fail } else { Verdict::Warn };
        let others = others(session).await.unwrap_or_default();
        let variable = format!("VITRINA_CONNECTIONS_{}_ALLOWED_SCHEMAS", name.to_uppercase());
        let hint = match others.as_str() {
            "" => format!(
                "connections.{name}.allowed_schemas, or {variable}, names those that pipelines read; its login may read none"
            ),
            others => format!(
                "connections.{name}.allowed_schemas names those that pipelines read, and is content,ugc unless it is set; its login may read {others}: set {variable}='{others}'"
            ),
        };
        let message = format!(
            "its database has no schema {}, which pipelines may read\nhint: {hint}",
            missing.join(", ")
        );
        report.add(verdict, &check, &message);
    }
    let there: Vec<&Readable> = found.iter().filter(|schema| schema.exists).collect();
    let grants: Vec<String> = there.iter().flat_map(|schema| schema.grants.clone()).collect();
    if !grants.is_empty() {
        let unread: Vec<String> = there.iter().flat_map(|schema| schema.unread.clone()).collect();
        let none = there.iter().all(|schema| schema.tables == 0);
        let verdict = if none { Verdict::Fail } else { Verdict::Warn };
        let message = format!(
            "its login may not read {}\nhint: if pipelines shall, let an owner execute: {}",
            few(&unread),
            few_statements(&grants)
        );
        report.add(verdict, &check, &message);
    }
    let tables: i64 = there.iter().map(|schema| schema.tables).sum();
    if tables > 0 {
        let schemas: Vec<&str> = there.iter().map(|schema| schema.name.as_str()).collect();
        report.add(
            Verdict::Ok,
            &check,
            &format!("its login may read {tables} tables of {}", schemas.join(", ")),
        );
    }
}

struct Readable {
    name: String,
    exists: bool,
    /// That the login may read.
    tables: i64,
    unread: Vec<String>,
    grants: Vec<String>,
}

async fn readable(session: &mut PgConnection, schemas: &[String]) -> sqlx::Result<Vec<Readable>> {
    let query = format!("
        select s.name, n.oid is not null,
               count(c.oid) filter (where may_use and has_table_privilege(c.oid, 'select')),
               coalesce(array_agg(s.name || '.' || c.relname order by c.relname)
                        filter (where c.oid is not null and not (may_use and has_table_privilege(c.oid, 'select'))), '{{}}')
                   || case when n.oid is not null and not may_use and count(c.oid) = 0 then array['schema ' || s.name] else '{{}}' end,
               case when n.oid is not null and not may_use then array[format('grant usage on schema %I to %I', s.name, current_user)] else '{{}}' end
               || coalesce(array_agg(format('grant select on %I.%I to %I', s.name, c.relname, current_user) order by c.relname)
                           filter (where not has_table_privilege(c.oid, 'select')), '{{}}')
          from unnest($1) s(name) left join pg_namespace n on n.nspname = s.name
          cross join lateral (select coalesce(has_schema_privilege(n.oid, 'usage'), false)) as u(may_use)
          left join pg_class c on c.relnamespace = n.oid and c.relkind in ('r', 'p', 'v', 'm', 'f') and not c.relispartition
               and not ({READS_ELSEWHERE})
         group by s.name, n.oid, may_use order by s.name");
    let readable = |row: &PgRow| -> sqlx::Result<Readable> {
        let (name, exists, tables) = (row.try_get(0)?, row.try_get(1)?, row.try_get(2)?);
        Ok(Readable { name, exists, tables, unread: row.try_get(3)?, grants: row.try_get(4)? })
    };
    sqlx::query(sqlx::AssertSqlSafe(query))
        .bind(schemas)
        .fetch_all(session)
        .await?
        .iter()
        .map(readable)
        .collect()
}

/// Schemas with tables that the login may read.
async fn others(session: &mut PgConnection) -> sqlx::Result<String> {
    let query = "select coalesce(string_agg(distinct n.nspname::text, ','), '')
                   from pg_class c join pg_namespace n on n.oid = c.relnamespace
                  where c.relkind in ('r', 'p', 'v', 'm', 'f') and n.nspname !~ '^pg_'
                    and n.nspname not in ('information_schema', 'etl', 'auth', 'vitrina', 'vitrina_log')
                    and has_schema_privilege(n.oid, 'usage') and has_table_privilege(c.oid, 'select')";
    sqlx::query_scalar(query).fetch_one(session).await
}

/// Any number of sessions could leave none to others.
pub(super) async fn connection_limit(name: &str, session: &mut PgConnection, report: &mut Report) {
    let query = "select case when rolconnlimit < 0 and not rolsuper then format('%I', rolname) end from pg_roles where rolname = current_user";
    if let Ok(Some(role)) = sqlx::query_scalar::<_, Option<String>>(query).fetch_one(session).await {
        report.add(
            Verdict::Info,
            &format!("source {name}"),
            &format!(
                "its login may open any number of sessions\nhint: alter role {role} connection limit {}",
                crate::roles::READER_CONNECTIONS
            ),
        );
    }
}

/// What the login of the services must be able to use of the meta-store.
pub(super) async fn of_meta_store(session: &mut PgConnection, report: &mut Report) {
    let query = "
        select array_agg(lacking) from (
            select format('grant usage on schema etl to %I', current_user) as lacking
              from pg_namespace where nspname = 'etl' and not has_schema_privilege(oid, 'usage')
            union all
            select format('grant select on all tables in schema etl to %I', current_user)
             where exists (select from pg_class where relnamespace = to_regnamespace('etl') and relkind in ('r', 'p', 'v')
                              and not has_table_privilege(oid, 'select'))) lacks";
    if let Ok(Some(lacking)) = sqlx::query_scalar::<_, Option<Vec<String>>>(query).fetch_one(session).await {
        report.fail(
            "meta-store",
            &format!(
                "its login may not use schema etl: it lacks {}\nhint: let the owner of the database run what `vitrina roles` prints, after `vitrina migrate`",
                lacking.join("; ")
            ),
        );
    }
}

/// Schemas where marts are, or shall be: may the login write, and make what is missing?
pub(super) async fn of_marts(
    allowed: &AllowedTargets,
    store: &Store,
    session: &mut PgConnection,
    report: &mut Report,
) {
    for schema in schemas_of_marts(allowed, store).await {
        match lacking(session, &schema).await {
            Ok((verdict, message)) => report.add(verdict, "marts", &message),
            Err(error) => report.fail("marts", &exit::told(&error)),
        }
    }
}

/// Those that targets may be in, and those that they are in.
async fn schemas_of_marts(allowed: &AllowedTargets, store: &Store) -> BTreeSet<String> {
    let pipelines = store.listings(&PipelineChoice::default()).await.unwrap_or_default();
    let used = pipelines.into_iter().map(|pipeline| pipeline.target);
    let allowed = allowed.0.iter().map(|pattern| pattern.replace('*', "x"));
    let schema = |name: String| match name.parse() {
        Ok(TargetName::Postgres { schema, .. }) => Some(schema),
        _ => None,
    };
    used.chain(allowed).filter_map(schema).collect()
}

async fn lacking(session: &mut PgConnection, schema: &str) -> sqlx::Result<(Verdict, String)> {
    let query = "
        select n.oid is not null, has_database_privilege(current_database(), 'create'), format('%I', current_user),
               coalesce(has_schema_privilege(n.oid, 'usage'), false), coalesce(has_schema_privilege(n.oid, 'create'), false),
               array(select format('%I.%I', n.nspname, c.relname) from pg_class c
                      where c.relnamespace = n.oid and c.relkind in ('r', 'p') and not c.relispartition
                        and exists (select from unnest(array['select', 'insert', 'update', 'delete']) r where not has_table_privilege(c.oid, r))
                      order by c.relname)
          from (values ($1)) s(name) left join pg_namespace n on n.nspname = s.name";
    let (exists, may_create_schemas, login, usage, create, unwritten): (
        bool,
        bool,
        String,
        bool,
        bool,
        Vec<String>,
    ) = sqlx::query_as(query).bind(schema).fetch_one(session).await?;
    let name = quoted(schema);
    let grant = format!("grant usage, create on schema {name} to {login}");
    Ok(match (exists, usage, create) {
        (false, ..) if may_create_schemas => {
            (Verdict::Ok, format!("schema {schema} is not there yet: the first mart creates it"))
        }
        (false, ..) => (
            Verdict::Fail,
            format!(
                "there is no schema {schema}, and their login may not create it\nhint: let the owner of the database execute: create schema {name}; {grant}"
            ),
        ),
        (true, false, _) => (
            Verdict::Fail,
            format!("their login may not use schema {schema}\nhint: let its owner execute: {grant}"),
        ),
        (true, true, _) if !unwritten.is_empty() => {
            let grants: Vec<String> = unwritten
                .iter()
                .map(|mart| format!("grant select, insert, update, delete on {mart} to {login}"))
                .collect();
            (
                Verdict::Warn,
                format!(
                    "their login may not write {}\nhint: if they are marts, let their owner execute: {}",
                    few(&unwritten),
                    few_statements(&grants)
                ),
            )
        }
        (true, true, false) => (
            Verdict::Warn,
            format!(
                "their login may create no marts in schema {schema}, only write those that are there\nhint: let its owner execute: {grant}"
            ),
        ),
        (true, true, true) => (Verdict::Ok, format!("they can be written and created in schema {schema}")),
    })
}

fn few(names: &[String]) -> String {
    match names {
        [shown @ .., _] if names.len() > SHOWN => {
            format!("{} and {} more", shown[..SHOWN].join(", "), names.len() - SHOWN)
        }
        names => names.join(", "),
    }
}

fn few_statements(statements: &[String]) -> String {
    match statements {
        [.., _] if statements.len() > SHOWN => {
            format!(
                "{}; … and {} more, or all of them by `vitrina roles`",
                statements[..SHOWN].join("; "),
                statements.len() - SHOWN
            )
        }
        statements => statements.join("; "),
    }
}
