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
    pub schemas: &'a [String],
    pub from_public: FromPublic,
}

/// What is taken from everybody in that database, because it cannot be taken from one login alone.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum FromPublic {
    /// The read-only transactions of the sessions are what keeps the login from writing.
    #[default]
    Nothing,
    /// Temporary tables, and new tables in schema public.
    Tables,
    /// And dangerous functions, which every other login that is there is given back.
    Functions,
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
    select c.oid, c.oid::regclass as name, c.relowner::regrole as owner, exists (select from reached r join pg_class t on t.oid = r.oid
             join pg_namespace s on s.oid = t.relnamespace where r.top = c.oid and s.nspname not in (ALLOWED))
        or exists (select from reached r join pg_rewrite w on w.ev_class = r.oid and w.ev_type = '1',
             lateral regexp_matches(w.ev_action::text, ':relid ([1-9][0-9]*)', 'g') m
             where r.top = c.oid and m[1]::bigint < 16384) as leaves
      from pg_class c where c.relnamespace = SCHEMA::regnamespace and c.relkind in ('r', 'p', 'v', 'm', 'f')
  loop
    if found.leaves then
      -- Of another's table, what this session has not granted it cannot take either.
      if has_table_privilege(ROLE, found.oid, 'select') or has_any_column_privilege(ROLE, found.oid, 'select') then
        begin
          execute format('revoke select on %s from %I', found.name, ROLE);
        exception when insufficient_privilege then null;
        end;
        if has_table_privilege(ROLE, found.oid, 'select') then
          raise warning '% reads more than the allowed schemas and stays readable: it belongs to %, who executes: revoke select on % from %;', found.name, found.owner, found.name, quote_ident(ROLE);
        end if;
      end if;
    elsif not has_table_privilege(ROLE, found.oid, 'select') then
      begin
        execute format('grant select on %s to %I', found.name, ROLE);
      exception when insufficient_privilege then null;
      end;
      if not has_table_privilege(ROLE, found.oid, 'select') then
        raise warning '% is not granted: it belongs to %, who executes: grant select on % to %;', found.name, found.owner, found.name, quote_ident(ROLE);
      end if;
    end if;
  end loop;
end $$";

/// A right that is there already, by whomever, needs no grant; one that cannot be granted ends the transaction with the
/// statement that its owner executes.
const USAGE: &str = "do $$ begin
  if not has_schema_privilege(ROLE, SCHEMA::regnamespace, 'usage') then
    begin
      execute format('grant usage on schema %s to %I', SCHEMA, ROLE);
    exception when insufficient_privilege then null;
    end;
    if not has_schema_privilege(ROLE, SCHEMA::regnamespace, 'usage') then
      raise exception 'schema % belongs to %', SCHEMA, (select nspowner::regrole from pg_namespace where oid = SCHEMA::regnamespace)
        using hint = format('let its owner execute first: grant usage on schema %s to %I;', SCHEMA, ROLE);
    end if;
  end if;
end $$";

/// Tables that come later, of every owner of tables there that this session may speak for.
const LATER_TABLES: &str = "do $$ declare maker regrole; begin
  for maker in
    select quote_ident(current_user)::regrole union select c.relowner::regrole from pg_class c
     where c.relnamespace = SCHEMA::regnamespace and c.relkind in ('r', 'p', 'v', 'm', 'f') and pg_has_role(c.relowner, 'usage')
  loop
    execute format('alter default privileges for role %s in schema %s grant select on tables to %I', maker, SCHEMA, ROLE);
  end loop;
end $$";

const CONNECT: &str = "do $$ begin
  if not has_database_privilege(ROLE, current_database(), 'connect') then
    execute format('grant connect on database %I to %I', current_database(), ROLE);
  end if;
end $$";

const TABLES_OF_PUBLIC: &str = "do $$ begin
  execute format('revoke temporary on database %I from public', current_database());
  if to_regnamespace('public') is not null then
    revoke create on schema public from public;
  end if;
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

/// What every session of the login begins with, and how many there may be at once.
pub fn reader_settings(role: &str, max_connections: u32) -> Vec<Grant> {
    let name = quoted(role);
    let settings = SETTINGS
        .iter()
        .map(|(setting, value)| anywhere(format!("alter role {name} set {setting} = {value}")));
    let limit = anywhere(format!("alter role {name} connection limit {max_connections}"));
    settings.chain([limit]).collect()
}

/// What the login may do, once it is there, in the database of the session. Repeatable: after new views have come, for
/// instance.
pub fn reader_grants(login: &ReaderLogin<'_>) -> Vec<Grant> {
    let ReaderLogin { role, schemas, from_public } = *login;
    let mut all = Vec::new();
    if from_public != FromPublic::Nothing {
        all.push(anywhere(TABLES_OF_PUBLIC.to_owned()));
    }
    all.push(anywhere(filled(CONNECT, "", schemas, role)));
    all.extend(schemas.iter().flat_map(|schema| of_schema(schema, schemas, role)));
    if from_public == FromPublic::Functions {
        all.push(anywhere(filled(STRICT, "", schemas, role)));
    }
    all
}

fn of_schema(schema: &str, schemas: &[String], role: &str) -> [Grant; 3] {
    [USAGE, TABLE_BY_TABLE, LATER_TABLES].map(|template| Grant {
        schema: Some(schema.to_owned()),
        sql: filled(template, schema, schemas, role),
    })
}

/// In one pass: a name that is filled in may itself contain a word of the template.
fn filled(template: &str, schema: &str, schemas: &[String], role: &str) -> String {
    let allowed: Vec<String> = schemas.iter().map(|schema| literal(schema)).collect();
    let words =
        [("SCHEMA", literal(&quoted(schema))), ("ALLOWED", allowed.join(", ")), ("ROLE", literal(role))];
    let (mut text, mut rest) = (String::new(), template);
    let next = |rest: &str| {
        let found = words.iter().filter_map(|(word, value)| Some((rest.find(word)?, *word, value.as_str())));
        found
            .min_by_key(|(place, ..)| *place)
            .map(|(place, word, value)| (place, word.len(), value.to_owned()))
    };
    while let Some((place, length, value)) = next(rest) {
        text.push_str(&rest[..place]);
        text.push_str(&value);
        rest = &rest[place + length..];
    }
    text + rest
}

fn anywhere(sql: String) -> Grant {
    Grant { schema: None, sql }
}

/// Words that are no names without quotes.
const RESERVED: &str = " all analyse analyze and any array as asc asymmetric authorization binary both case cast check collate \
    collation column concurrently constraint create cross current_catalog current_date current_role current_schema current_time \
    current_timestamp current_user default deferrable desc distinct do else end except false fetch for foreign freeze from full \
    grant group having ilike in initially inner intersect into is isnull join lateral leading left like limit localtime \
    localtimestamp natural not notnull null offset on only or order outer overlaps placing primary references returning \
    right select session_user similar some symmetric system_user table tablesample then to trailing true union unique user using \
    variadic verbose when where window with ";

/// A name as SQL writes it.
pub fn quoted(name: &str) -> String {
    let plain = name.starts_with(|c: char| c.is_ascii_lowercase() || c == '_')
        && name.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_')
        && !RESERVED.contains(&format!(" {name} "));
    if plain { name.to_owned() } else { format!("\"{}\"", name.replace('"', "\"\"")) }
}

/// A text as SQL writes it, inside of `$$` too.
pub fn literal(text: &str) -> String {
    let escaped = text.replace('\\', r"\\").replace('\'', "''").replace('$', r"\x24");
    format!("e'{escaped}'")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_schema_may_be_named_as_a_word_of_the_template() {
        let name = "ROLE of $$ SCHEMA's \\ ALLOWED";
        let sql = filled("grant SCHEMA, ALLOWED to ROLE", name, &[name.to_owned()], "reader");
        let written = r"ROLE of \x24\x24 SCHEMA''s \\ ALLOWED";
        assert_eq!(sql, format!("grant e'\"{written}\"', e'{written}' to e'reader'"));
    }
}
