//! The third layer: the login that reads sources, as SQL for the administrator of a source.
//!
//! It holds where the first two have failed, so it relies on neither: the login has no right to write anything, reads
//! the allowed schemas table by table, and begins every session read-only, under timeouts, with nothing but built-in
//! objects in its search path. What PUBLIC may do it may do too, see docs/decisions/0013.

/// A statement for an administrator.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Grant {
    /// The statement needs this schema to be there.
    pub schema: Option<String>,
    pub sql: String,
}

/// The login that reads, and what it may read.
#[derive(Debug, Clone, Copy)]
pub struct ReaderLogin<'a> {
    pub role: &'a str,
    pub database: &'a str,
    pub schemas: &'a [String],
    /// Takes dangerous functions from PUBLIC, and gives them to every other login that is there.
    pub strict: bool,
}

/// What a session of this login begins with, whoever opens it.
const SETTINGS: [(&str, &str); 6] = [
    ("default_transaction_read_only", "on"),
    ("search_path", "pg_catalog"),
    ("row_security", "off"),
    ("statement_timeout", "'1h'"),
    ("lock_timeout", "'30s'"),
    ("idle_in_transaction_session_timeout", "'10min'"),
];

/// Tables, and views as long as all that they read is in the allowed schemas: what a view reads it reads with the
/// rights of its owner. A view that has come to read more loses what it was granted. On system tables a view depends
/// without a record of it, so for those its parsed definition is asked.
const TABLE_BY_TABLE: &str = "do $$ declare found record; begin
  for found in
    with recursive reached as (
      select oid as top, oid from pg_class where relnamespace = SCHEMA::regnamespace
      union
      select r.top, d.refobjid from reached r join pg_class v on v.oid = r.oid and v.relkind = 'v'
        join pg_rewrite w on w.ev_class = v.oid and w.ev_type = '1'
        join pg_depend d on d.classid = 'pg_rewrite'::regclass and d.objid = w.oid
                        and d.refclassid = 'pg_class'::regclass and d.refobjid <> v.oid
    )
    select c.oid::regclass as name, exists (select from reached r join pg_class t on t.oid = r.oid
             join pg_namespace s on s.oid = t.relnamespace where r.top = c.oid and s.nspname not in (ALLOWED))
        or exists (select from reached r join pg_rewrite w on w.ev_class = r.oid and w.ev_type = '1',
             lateral regexp_matches(w.ev_action::text, ':relid ([1-9][0-9]*)', 'g') m
             where r.top = c.oid and m[1]::bigint < 16384) as leaves
      from pg_class c where c.relnamespace = SCHEMA::regnamespace and c.relkind in ('r', 'p', 'v', 'm', 'f')
  loop
    if found.leaves then
      execute format('revoke select on %s from %I', found.name, ROLE);
    else
      execute format('grant select on %s to %I', found.name, ROLE);
    end if;
  end loop;
end $$";

/// Functions that sleep, lock, notify, cancel, keep large objects, run SQL from text or connect elsewhere, and all of
/// the allowed schemas. Not `pg_terminate_backend`: by it a runner ends sessions that a lost one has left behind.
const STRICT: &str = "do $$ declare function regprocedure; login name; begin
  for function in
    select p.oid::regprocedure from pg_proc p join pg_namespace s on s.oid = p.pronamespace
     where p.prokind = 'f' and has_function_privilege(ROLE, p.oid, 'execute')
       and (s.nspname in (ALLOWED) or p.proname like 'dblink%'
            or s.nspname = 'pg_catalog' and p.proname ~
               '^(pg_sleep|pg_(try_)?advisory_(xact_)?lock|pg_notify$|pg_cancel_backend$|pg_export_snapshot$|lo_|lo(read|write)$|ts_stat$|(query|cursor|table|schema|database)_to_xml)')
  loop
    execute format('revoke execute on function %s from public, %I', function, ROLE);
    for login in select rolname from pg_roles where rolcanlogin and not rolsuper and rolname <> ROLE loop
      execute format('grant execute on function %s to %I', function, login);
    end loop;
  end loop;
end $$";

/// What the login may do, once it is there. Repeatable: after new views have come, for instance.
pub fn reader_grants(login: &ReaderLogin<'_>) -> Vec<Grant> {
    let ReaderLogin { role, database, schemas, strict } = *login;
    let (name, database) = (quoted(role), quoted(database));
    let mut all: Vec<Grant> = SETTINGS
        .iter()
        .map(|(setting, value)| anywhere(format!("alter role {name} set {setting} = {value}")))
        .collect();
    // Nobody can take from one login what all have: temporary tables and new tables in public.
    all.push(anywhere(format!("revoke temporary on database {database} from public")));
    all.push(anywhere("revoke create on schema public from public".to_owned()));
    all.push(anywhere(format!("grant connect on database {database} to {name}")));
    all.extend(schemas.iter().flat_map(|schema| of_schema(schema, schemas, role)));
    if strict {
        all.push(anywhere(filled(STRICT, "", schemas, role)));
    }
    all
}

fn of_schema(schema: &str, schemas: &[String], role: &str) -> Vec<Grant> {
    let (name, reader) = (quoted(schema), quoted(role));
    let statements = [
        format!("grant usage on schema {name} to {reader}"),
        filled(TABLE_BY_TABLE, schema, schemas, role),
        format!("alter default privileges in schema {name} grant select on tables to {reader}"),
    ];
    statements.into_iter().map(|sql| Grant { schema: Some(schema.to_owned()), sql }).collect()
}

fn filled(template: &str, schema: &str, schemas: &[String], role: &str) -> String {
    let allowed: Vec<String> = schemas.iter().map(|schema| literal(schema)).collect();
    template
        .replace("SCHEMA", &literal(&quoted(schema)))
        .replace("ALLOWED", &allowed.join(", "))
        .replace("ROLE", &literal(role))
}

fn anywhere(sql: String) -> Grant {
    Grant { schema: None, sql }
}

/// A name as SQL writes it.
pub fn quoted(name: &str) -> String {
    let plain = name.starts_with(|c: char| c.is_ascii_lowercase() || c == '_')
        && name.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_');
    if plain { name.to_owned() } else { format!("\"{}\"", name.replace('"', "\"\"")) }
}

/// Inside of `$$` too.
fn literal(text: &str) -> String {
    let escaped = text.replace('\\', r"\\").replace('\'', "''").replace('$', r"\x24");
    format!("e'{escaped}'")
}
