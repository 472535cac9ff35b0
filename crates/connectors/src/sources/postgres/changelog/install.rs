//! What the owner of a source applies so that changes of a table are logged: statements to look at, then to run.

use tokio_postgres::Client;
use tokio_postgres::error::SqlState;
use vitrina_core::{Error, Result};

use super::owner::{OUTDATED_SCHEMA, dollar_quoted, drop_outdated, step};
use super::rights::denied;
use super::{Logged, SCHEMA};
use crate::connection::{Connection, End, Session};
use crate::sql::{identifier, literal};

const OBJECTS: &str = include_str!("objects.sql");
/// Of `pg_trigger.tgtype`: insert, delete, update and truncate.
pub(super) const ALL_EVENTS: i32 = 4 | 8 | 16 | 32;

/// A session at a source, to look at what is logged there and to change it.
#[derive(Debug)]
pub struct Desk {
    session: Session,
}

/// A table of a tree of partitions, and what of its changes is logged.
struct Member {
    oid: u32,
    name: String,
    events: i32,
    subscribed: bool,
}

/// A column of a logged table's key.
struct KeyColumn {
    name: String,
    /// Of its type, or of the one that its domain is over.
    base: u32,
    is_domain: bool,
}

/// Built-in types whose cast to text is another text than they are shown by, each with its name: "char", bool, cidr, inet, char(n).
const SHOWN_OTHERWISE: [(u32, &str); 5] =
    [(16, "bool"), (18, "\"char\""), (650, "cidr"), (869, "inet"), (1042, "bpchar")];

impl KeyColumn {
    /// Its text in a row. A cast of the value itself may be a function of whoever owns its type, and the column may have got another type
    /// since, under the same name; the planner evaluates parts of such a function even where it is not reached. So the value is written by its
    /// output function, which none but a superuser can make, and it is that text which is cast, to a built-in type and back, as long as
    /// the value is of it.
    fn text(&self, row: &str) -> String {
        let value = format!("{row}.{}", identifier(&self.name));
        let text = format!("format('%s', {value})");
        let shown = match SHOWN_OTHERWISE.iter().find(|(oid, _)| *oid == self.base) {
            Some((oid, name)) => {
                let is_it = match self.is_domain {
                    false => format!("pg_typeof({value})::oid = {oid}"),
                    true => format!(
                        "exists (select from pg_type t where t.oid = pg_typeof({value})::oid and {oid} in (t.oid, t.typbasetype))"
                    ),
                };
                format!("case when {is_it} then {text}::{name}::text else {text} end")
            }
            None => text,
        };
        format!("case when {value} is not null then {shown} end")
    }
}

/// A logged table as `status` shows it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LoggedTable {
    pub source: String,
    /// All of its triggers are there and fire.
    pub complete: bool,
    pub changes: i64,
}

/// Who follows the log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Consumer {
    pub pipeline: String,
    pub silent_seconds: i64,
    pub dropped: bool,
}

impl Desk {
    pub async fn open(connection: &Connection) -> Result<Self> {
        let session = Session::open(connection, End::Source, "vitrina_log.changelog").await?;
        session.run("set lock_timeout = '2s'").await?;
        Ok(Self { session })
    }

    /// A table by the name that the log knows it by: as SQL reads it, or else as it is shown, without quotes.
    pub async fn logged(&self, table: &str, key: &[String]) -> Result<Logged> {
        let named = "select format('%I.%I', n.nspname, c.relname) from pg_class c join pg_namespace n on n.oid = c.relnamespace";
        let read = format!("{named} where c.oid = to_regclass({})", literal(table));
        let mut found = match self.client().query(&read, &[]).await {
            Err(error) if error.code() == Some(&SqlState::INVALID_NAME) => Vec::new(),
            found => found.map_err(|error| self.explain(error))?,
        };
        if found.is_empty() {
            found = self
                .query(&format!("{named} where n.nspname || '.' || c.relname = {}", literal(table)))
                .await?;
            // Names with dots in them can be shown alike.
            found.truncate(usize::from(found.len() == 1));
        }
        let Some(row) = found.first() else {
            return Err(Error::fix("changelog.table", format!("there is no table {table}")).hint(
                "write it as schema.table, a name with capitals, spaces or dashes in quotes, as in '\"Web Shop\".\"Films\"'; \
                 the login must be allowed to see it",
            ));
        };
        Ok(Logged { table: row.get(0), key: key.to_vec() })
    }

    /// What is still to be applied before the table's changes are logged: steps, each a statement. One of a table holds its lock, so
    /// each table has its own.
    pub async fn install(&self, logged: &Logged, reader: &str) -> Result<Vec<String>> {
        let mut objects = Vec::new();
        if !self.has_newest_objects().await? {
            objects.push(OBJECTS.trim_end().trim_end_matches(';').to_owned());
        }
        if !self.may_read(reader).await? {
            self.require_role(reader).await?;
            objects.push(grants(reader));
        }
        let members = self.members(logged).await?;
        let Some(table) = members.first() else {
            return Err(Error::fix("changelog.table", format!("there is no table {}", logged.table)));
        };
        let body = body(logged, &self.key_columns(table.oid, logged).await?);
        if !self.is_registered(logged, table.oid, &body).await? {
            objects.extend([function(logged, &body), keep_to_triggers(logged), register(logged)]);
        }
        let incomplete = members.iter().filter(|member| member.events != ALL_EVENTS);
        let mut steps = vec![objects];
        steps.extend(incomplete.map(|member| triggers(logged, member)));
        steps.push(self.drop_outdated(logged).await?);
        Ok(steps
            .iter()
            .filter(|statements| !statements.is_empty())
            .map(|statements| step(true, statements))
            .collect())
    }

    /// What an older release has left of this table's log, without triggers by then.
    async fn drop_outdated(&self, logged: &Logged) -> Result<Vec<String>> {
        let name = logged.function_name();
        if !self.truth(&format!("select exists ({})", function_oid(OUTDATED_SCHEMA, &name))).await? {
            return Ok(Vec::new());
        }
        Ok(vec![drop_outdated(&name)])
    }

    /// The steps that end the logging of a table: none where there is no such log, of this release or of an older one.
    pub async fn remove(&self, logged: &Logged) -> Result<Vec<String>> {
        let outdated = self.drop_outdated(logged).await?;
        let has_objects = self.has_objects().await?;
        // Who may not read the log is shown the steps: its owner knows.
        let is_known = |tables: Vec<LoggedTable>| tables.iter().any(|table| table.source == logged.source());
        let is_logged = has_objects && self.tables().await.map_or(true, is_known);
        if !is_logged && outdated.is_empty() {
            return Ok(Vec::new());
        }
        let (source, function) = (literal(&logged.source()), logged.function());
        let mut steps = self.drop_travelled(logged).await?;
        for member in &self.members(logged).await? {
            let all = ["insert", "update", "delete", "truncate", "row"];
            steps.push(all.map(|event| drop_trigger(logged, member, event)).to_vec());
        }
        steps.extend(Some(outdated).filter(|outdated| !outdated.is_empty()));
        if has_objects {
            steps.push(vec![
                format!("drop function if exists {function}()"),
                format!("delete from {SCHEMA}.change_sources where source = {source}"),
                format!("delete from {SCHEMA}.change_log where source = {source}"),
            ]);
        }
        Ok(steps.iter().map(|statements| step(false, statements)).collect())
    }

    /// Triggers of this log on tables that had its table's name before: the function cannot go before them.
    async fn drop_travelled(&self, logged: &Logged) -> Result<Vec<Vec<String>>> {
        let sql = format!(
            "select format('drop trigger if exists %I on %I.%I', g.tgname, n.nspname, c.relname)
               from pg_trigger g join pg_class c on c.oid = g.tgrelid join pg_namespace n on n.oid = c.relnamespace
              where g.tgfoid = ({}) and not g.tgisinternal and g.tgparentid = 0 and g.tgrelid <> coalesce(to_regclass({}), 0) order by 1",
            function_oid(SCHEMA, &logged.function_name()),
            literal(&logged.table),
        );
        let of_heirs: Vec<String> =
            self.members(logged).await?.into_iter().map(|member| member.name).collect();
        let statements =
            self.query(&sql).await?.iter().map(|row| row.get::<_, String>(0)).collect::<Vec<_>>();
        let is_of_heir =
            |statement: &String| of_heirs.iter().any(|name| statement.ends_with(&format!(" on {name}")));
        Ok(statements
            .into_iter()
            .filter(|statement| !is_of_heir(statement))
            .map(|statement| vec![statement])
            .collect())
    }

    /// One step after the other, each tried again as a whole while a lock is in its way: nothing else waits behind it for long.
    pub async fn apply(&self, steps: &[String]) -> Result<()> {
        const TRIES: u32 = 10;
        self.require_own().await?;
        for step in steps {
            let mut tries = 0;
            while let Err(error) = self.client().batch_execute(step).await {
                // Somebody may have come between.
                self.require_own().await?;
                if !is_lock_timeout(&error) || tries == TRIES {
                    return Err(self.explain(error));
                }
                tries += 1;
                tokio::time::sleep(std::time::Duration::from_millis(200 * u64::from(tries))).await;
            }
        }
        Ok(())
    }

    pub async fn tables(&self) -> Result<Vec<LoggedTable>> {
        if !self.has_objects().await? {
            return Ok(Vec::new());
        }
        self.require_readable().await?;
        let sql = format!(
            "select s.source, coalesce(c.complete, false),
                    (select count(*) from (select from vitrina_log.change_log l where l.source = s.source limit 1000000) counted)
               from vitrina_log.change_sources s left join ({}) as c using (source) order by s.source",
            super::window::SIGNATURES
        );
        let rows = self.query(&sql).await?;
        let table = |row: &tokio_postgres::Row| LoggedTable {
            source: row.get(0),
            complete: row.get(1),
            changes: row.get(2),
        };
        Ok(rows.iter().map(table).collect())
    }

    pub async fn consumers(&self) -> Result<Vec<Consumer>> {
        if !self.has_objects().await? {
            return Ok(Vec::new());
        }
        self.require_readable().await?;
        let sql = "select pipeline::text, extract(epoch from clock_timestamp() - updated_at)::bigint, dropped
                     from vitrina_log.change_consumers order by updated_at";
        let consumer = |row: &tokio_postgres::Row| Consumer {
            pipeline: row.get(0),
            silent_seconds: row.get(1),
            dropped: row.get(2),
        };
        Ok(self.query(sql).await?.iter().map(consumer).collect())
    }

    fn client(&self) -> &Client {
        &self.session.client
    }

    pub(super) async fn query(&self, sql: &str) -> Result<Vec<tokio_postgres::Row>> {
        self.client().query(sql, &[]).await.map_err(|error| self.explain(error))
    }

    fn explain(&self, error: tokio_postgres::Error) -> Error {
        denied(&error).unwrap_or_else(|| self.session.explain(error))
    }

    pub(super) async fn truth(&self, sql: &str) -> Result<bool> {
        Ok(self.query(sql).await?.first().is_some_and(|row| row.get(0)))
    }

    async fn has_objects(&self) -> Result<bool> {
        self.has_function("consume_changes").await
    }

    /// A log of an older release lacks what came later: it is read as it is, and completed by the next installation.
    pub(super) async fn has_all_objects(&self) -> Result<bool> {
        Ok(self.has_objects().await? && self.has_function("forget_changes").await?)
    }

    /// What an older release has installed may do less than is asked of it now.
    async fn has_newest_objects(&self) -> Result<bool> {
        let bodies = OBJECTS.split("$$").skip(1).step_by(2).map(literal).collect::<Vec<_>>().join(", ");
        // Pasted elsewhere, lines may end otherwise.
        let sql = format!(
            "select bool_and(exists (
                    select from pg_proc p where p.pronamespace = to_regnamespace('{SCHEMA}') and replace(p.prosrc, e'\r', '') = body))
               from unnest(array[{bodies}]) body"
        );
        self.truth(&sql).await
    }

    async fn has_function(&self, name: &str) -> Result<bool> {
        self.truth(&format!("select exists ({})", function_oid(SCHEMA, name))).await
    }

    /// The table and everything that inherits from it, the table first.
    async fn members(&self, logged: &Logged) -> Result<Vec<Member>> {
        let sql = format!(
            "with recursive tree(oid, depth) as (
                 select to_regclass({})::oid, 0 union all select i.inhrelid, depth + 1 from pg_inherits i join tree t on i.inhparent = t.oid)
             select t.oid, format('%I.%I', n.nspname, c.relname),
                    coalesce((select bit_or(g.tgtype::int) & {ALL_EVENTS} from pg_trigger g
                               where g.tgrelid = t.oid and g.tgfoid = ({}) and (g.tgenabled = 'A' or g.tgenabled = 'O' and not r.subscribed)), 0),
                    r.subscribed
               from tree t join pg_class c on c.oid = t.oid join pg_namespace n on n.oid = c.relnamespace,
                    lateral (select exists (select from pg_subscription_rel r where r.srrelid = t.oid)) as r(subscribed) order by t.depth, t.oid",
            literal(&logged.table),
            function_oid(SCHEMA, &logged.function_name()),
        );
        let member = |row: &tokio_postgres::Row| Member {
            oid: row.get(0),
            name: row.get(1),
            events: row.get(2),
            subscribed: row.get(3),
        };
        Ok(self.query(&sql).await?.iter().map(member).collect())
    }

    /// The columns that the log names rows by, with their types.
    async fn key_columns(&self, table: u32, logged: &Logged) -> Result<Vec<KeyColumn>> {
        let columns = logged.key.iter().map(|name| literal(name)).collect::<Vec<_>>().join(", ");
        let sql = format!(
            "select a.attname::text, base.oid, t.typtype = 'd', base.typtype = 'c'
               from pg_attribute a join pg_type t on t.oid = a.atttypid
              cross join lateral (
                    with recursive b(oid) as (
                         select a.atttypid union all select d.typbasetype from b join pg_type d on d.oid = b.oid and d.typtype = 'd')
                    select b.oid, y.typtype from b join pg_type y on y.oid = b.oid and y.typtype <> 'd') base
              where a.attrelid = {table} and a.attnum > 0 and not a.attisdropped and a.attname in ({columns})"
        );
        let column = |row: &tokio_postgres::Row| KeyColumn {
            name: row.get(0),
            base: row.get(1),
            is_domain: row.get(2),
        };
        let rows = self.query(&sql).await?;
        if let Some(row) = rows.iter().find(|row| row.get(3)) {
            let message =
                format!("{} of {} is a row, and no text names it", row.get::<_, String>(0), logged.table);
            return Err(
                Error::fix("changelog.key", message).hint("name columns of the table that are values")
            );
        }
        let found: Vec<KeyColumn> = rows.iter().map(column).collect();
        if found.len() == logged.key.len() {
            return Ok(found);
        }
        let message = format!("{} lacks some of the columns {}", logged.table, logged.key.join(", "));
        Err(Error::fix("changelog.key", message))
    }

    /// With the function that this release would write.
    async fn is_registered(&self, logged: &Logged, table: u32, body: &str) -> Result<bool> {
        if !self.has_objects().await? {
            return Ok(false);
        }
        self.require_readable().await?;
        let source = literal(&logged.source());
        let known = format!(
            "select exists (select from {SCHEMA}.change_sources where source = {source} and relation = {table})"
        );
        let is_current = format!("select ({}) = {}", function_source(&logged.function_name()), literal(body));
        Ok(self.has_function(&logged.function_name()).await?
            && self.truth(&is_current).await?
            && self.truth(&known).await?)
    }
}

/// By the catalog: names cannot be looked up in a schema that the login may not use.
fn function_oid(schema: &str, name: &str) -> String {
    format!(
        "select p.oid from pg_proc p join pg_namespace n on n.oid = p.pronamespace where n.nspname = {} and p.proname = {}",
        literal(schema),
        literal(name)
    )
}

fn function_source(name: &str) -> String {
    format!("select p.prosrc from pg_proc p where p.oid = ({})", function_oid(SCHEMA, name))
}

fn is_lock_timeout(error: &tokio_postgres::Error) -> bool {
    error.code().is_some_and(|state| matches!(state.code(), "55P03" | "40P01"))
}

pub(super) fn grants(reader: &str) -> String {
    let role = identifier(reader);
    format!(
        "grant usage on schema vitrina_log to {role};
grant select on vitrina_log.change_log, vitrina_log.change_sources, vitrina_log.change_consumers, vitrina_log.change_pruned to {role};
grant execute on function vitrina_log.consume_changes(uuid, uuid, text, interval), vitrina_log.forget_changes(uuid, uuid) to {role}"
    )
}

/// Else anybody could put it on a table of their own, and write into the log by that.
fn keep_to_triggers(logged: &Logged) -> String {
    format!("revoke all on function {}() from public", logged.function())
}

fn register(logged: &Logged) -> String {
    let key = logged.key.iter().map(|name| literal(name)).collect::<Vec<_>>().join(", ");
    format!(
        "insert into vitrina_log.change_sources (source, relation, key, function) values ({}, {}::regclass, array[{key}], {})
on conflict (source) do update set relation = excluded.relation, installed_at = now()",
        literal(&logged.source()),
        literal(&logged.table),
        literal(&logged.function()),
    )
}

/// What the function does. Names of tables, columns and types are in it, which need not be those of a friend.
fn body(logged: &Logged, columns: &[KeyColumn]) -> String {
    let key = |row: &str| {
        let column = |name: &String| columns.iter().find(|column| column.name == *name);
        let values = logged.key.iter().filter_map(column).map(|column| column.text(row));
        format!("jsonb_build_array({})", values.collect::<Vec<_>>().join(", "))
    };
    let source = literal(&logged.source());
    let log = |op: &str, keys: &str| {
        format!(
            "insert into vitrina_log.change_log (source, key, kid, op)
        select {source}, k.key, hashtextextended(k.key::text, 0), '{op}' from ({keys}) k;"
        )
    };
    let (new_row, old_row) = (key("new"), key("old"));
    format!(
        "
begin
    if tg_op = 'TRUNCATE' then
        insert into vitrina_log.change_log (source, key, kid, op) values ({source}, '[]', 0, 'T');
    elsif tg_level = 'ROW' and tg_op = 'INSERT' then
        {}
    elsif tg_level = 'ROW' and tg_op = 'UPDATE' then
        {}
    elsif tg_level = 'ROW' then
        {}
    elsif tg_op = 'INSERT' then
        {}
    elsif tg_op = 'UPDATE' then
        {}
    else
        {}
    end if;
    return null;
end ",
        log("I", &format!("select {new_row} as key")),
        log("U", &format!("select {old_row} as key union select {new_row}")),
        log("D", &format!("select {old_row} as key")),
        log("I", &format!("select distinct {} as key from new_rows r", key("r"))),
        log(
            "U",
            &format!("select {} as key from old_rows o union select {} from new_rows n", key("o"), key("n"))
        ),
        log("D", &format!("select distinct {} as key from old_rows r", key("r"))),
    )
}

/// Settings are pinned: else one key would have several spellings, and whoever writes to the table could have these texts read as others.
fn function(logged: &Logged, body: &str) -> String {
    format!(
        "create or replace function {}() returns trigger language plpgsql security definer
    set search_path = pg_catalog, pg_temp set standard_conforming_strings = on set datestyle = 'ISO, YMD' set timezone = 'UTC' set intervalstyle = postgres
    set bytea_output = hex set extra_float_digits = 1 as {}",
        logged.function(),
        dollar_quoted(body),
    )
}

fn drop_trigger(logged: &Logged, member: &Member, event: &str) -> String {
    format!("drop trigger if exists {} on {}", logged.trigger(event), member.name)
}

/// Statement triggers do not fire for what logical replication applies: a subscribed table logs row by row.
fn triggers(logged: &Logged, member: &Member) -> Vec<String> {
    let (table, function) = (&member.name, logged.function());
    let create = |event: &str, what: &str| {
        let name = logged.trigger(event);
        let always = if member.subscribed {
            format!(";\nalter table {table} enable always trigger {name}")
        } else {
            String::new()
        };
        format!(
            "drop trigger if exists {name} on {table};\ncreate trigger {name} after {what} execute function {function}(){always}"
        )
    };
    if member.subscribed {
        // A subscription may have come after the table's first triggers.
        let statements = ["insert", "update", "delete"].map(|event| drop_trigger(logged, member, event));
        let rows = [
            create("row", &format!("insert or update or delete on {table} for each row")),
            create("truncate", &format!("truncate on {table} for each statement")),
        ];
        return statements.into_iter().chain(rows).collect();
    }
    vec![
        create("insert", &format!("insert on {table} referencing new table as new_rows for each statement")),
        create(
            "update",
            &format!(
                "update on {table} referencing old table as old_rows new table as new_rows for each statement"
            ),
        ),
        create("delete", &format!("delete on {table} referencing old table as old_rows for each statement")),
        create("truncate", &format!("truncate on {table} for each statement")),
    ]
}
