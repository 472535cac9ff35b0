//! What the owner of a source applies so that changes of a table are logged: statements to look at, then to run.

use tokio_postgres::Client;
use vitrina_core::{Error, Result};

use super::owner::{DROP_OUTDATED, OUTDATED_SCHEMA, REQUIRE_OWNER};
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
    type_name: String,
    /// A type that came with the server, or a domain over one.
    is_built_in: bool,
}

impl KeyColumn {
    /// Its text in a row. A cast may be a function of whoever owns the type: only those of built-in types are called, also where the
    /// column gets another type later; what else there is goes by its output function, which none but a superuser can make.
    fn text(&self, row: &str) -> String {
        let value = format!("{row}.{}", identifier(&self.name));
        let shown = format!("when {value} is not null then format('%s', {value})");
        match self.is_built_in {
            true => format!(
                "case when pg_typeof({value})::oid < 16384 or pg_typeof({value}) = to_regtype({}) then {value}::text {shown} end",
                literal(&self.type_name)
            ),
            false => format!("case {shown} end"),
        }
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

    /// A table by the name that the log knows it by.
    pub async fn logged(&self, table: &str, key: &[String]) -> Result<Logged> {
        let sql = format!(
            "select format('%I.%I', n.nspname, c.relname) from pg_class c join pg_namespace n on n.oid = c.relnamespace where c.oid = to_regclass({})",
            literal(table)
        );
        let found = self.query(&sql).await?;
        let Some(row) = found.first() else {
            return Err(Error::fix("changelog.table", format!("there is no table {table}"))
                .hint("write it as schema.table; the login must be allowed to see it"));
        };
        Ok(Logged { table: row.get(0), key: key.to_vec() })
    }

    /// The statements that are still to be applied before the table's changes are logged.
    pub async fn install(&self, logged: &Logged, reader: &str) -> Result<Vec<String>> {
        let mut statements = Vec::new();
        if !self.has_all_objects().await? {
            statements.push(OBJECTS.trim_end().to_owned());
        }
        if !self.may_read(reader).await? {
            self.require_role(reader).await?;
            statements.push(grants(reader));
        }
        let members = self.members(logged).await?;
        let Some(table) = members.first() else {
            return Err(Error::fix("changelog.table", format!("there is no table {}", logged.table)));
        };
        let columns = self.key_columns(table.oid, logged).await?;
        if !self.is_registered(logged, table.oid).await? {
            statements.extend([function(logged, &columns), keep_to_triggers(logged), register(logged)]);
        }
        let incomplete = members.iter().filter(|member| member.events != ALL_EVENTS);
        statements.extend(incomplete.flat_map(|member| triggers(logged, member)));
        statements.extend(self.drop_outdated(logged).await?);
        if !statements.is_empty() {
            statements.insert(0, REQUIRE_OWNER.to_owned());
        }
        Ok(statements)
    }

    /// What an older release has left of this table's log, without triggers by then.
    async fn drop_outdated(&self, logged: &Logged) -> Result<Vec<String>> {
        let name = logged.function_name();
        if !self.truth(&format!("select exists ({})", function_oid(OUTDATED_SCHEMA, &name))).await? {
            return Ok(Vec::new());
        }
        let drop = format!("drop function if exists {OUTDATED_SCHEMA}.{name}()");
        Ok(vec![drop, DROP_OUTDATED.to_owned()])
    }

    /// The statements that end the logging of a table.
    pub async fn remove(&self, logged: &Logged) -> Result<Vec<String>> {
        let outdated = self.drop_outdated(logged).await?;
        let has_objects = self.has_objects().await?;
        if !has_objects && outdated.is_empty() {
            return Ok(Vec::new());
        }
        let (source, function) = (literal(&logged.source()), logged.function());
        let mut statements = vec![REQUIRE_OWNER.to_owned()];
        for member in &self.members(logged).await? {
            let all = ["insert", "update", "delete", "truncate", "row"];
            statements.extend(all.map(|event| drop_trigger(logged, member, event)));
        }
        statements.extend(outdated);
        if has_objects {
            statements.push(format!("drop function if exists {function}()"));
            statements.push(format!("delete from {SCHEMA}.change_sources where source = {source}"));
            statements.push(format!("delete from {SCHEMA}.change_log where source = {source}"));
        }
        Ok(statements)
    }

    /// One after the other, each tried again while a lock is in its way: nothing else waits behind it for long.
    pub async fn apply(&self, statements: &[String]) -> Result<()> {
        const TRIES: u32 = 10;
        self.require_own().await?;
        for statement in statements {
            let mut tries = 0;
            loop {
                match self.session.client.batch_execute(statement).await {
                    Err(error) if is_lock_timeout(&error) && tries < TRIES => {
                        tries += 1;
                        tokio::time::sleep(std::time::Duration::from_millis(200 * u64::from(tries))).await;
                    }
                    done => break done.map_err(|error| self.explain(error))?,
                }
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
            "with recursive typed(name, type, base) as (
                 select attname, atttypid, atttypid from pg_attribute
                  where attrelid = {table} and attnum > 0 and not attisdropped and attname in ({columns})
                  union all select t.name, t.type, y.typbasetype from typed t join pg_type y on y.oid = t.base and y.typtype = 'd')
             select t.name::text, t.type::regtype::text, t.base < 16384 from typed t join pg_type b on b.oid = t.base and b.typtype <> 'd'"
        );
        let column = |row: &tokio_postgres::Row| KeyColumn {
            name: row.get(0),
            type_name: row.get(1),
            is_built_in: row.get(2),
        };
        let found: Vec<KeyColumn> = self.query(&sql).await?.iter().map(column).collect();
        if found.len() == logged.key.len() {
            return Ok(found);
        }
        let message = format!("{} lacks some of the columns {}", logged.table, logged.key.join(", "));
        Err(Error::fix("changelog.key", message))
    }

    async fn is_registered(&self, logged: &Logged, table: u32) -> Result<bool> {
        if !self.has_objects().await? {
            return Ok(false);
        }
        self.require_readable().await?;
        let source = literal(&logged.source());
        let known = format!(
            "select exists (select from {SCHEMA}.change_sources where source = {source} and relation = {table})"
        );
        Ok(self.has_function(&logged.function_name()).await? && self.truth(&known).await?)
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

/// Settings are pinned: else one key would have several spellings.
fn function(logged: &Logged, columns: &[KeyColumn]) -> String {
    let key = |row: &str| {
        let column = |name: &String| columns.iter().find(|column| column.name == *name);
        let values = logged.key.iter().filter_map(column).map(|column| column.text(row));
        format!("jsonb_build_array({})", values.collect::<Vec<_>>().join(", "))
    };
    let (source, function) = (literal(&logged.source()), logged.function());
    let log = |op: &str, keys: &str| {
        format!(
            "insert into vitrina_log.change_log (source, key, kid, op)
        select {source}, k.key, hashtextextended(k.key::text, 0), '{op}' from ({keys}) k;"
        )
    };
    let (new_row, old_row) = (key("new"), key("old"));
    format!(
        "create or replace function {function}() returns trigger language plpgsql security definer
    set search_path = pg_catalog, pg_temp set datestyle = 'ISO, YMD' set timezone = 'UTC' set intervalstyle = postgres
    set bytea_output = hex set extra_float_digits = 1 as $$
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
end $$",
        log("I", &format!("select {new_row} as key")),
        log("U", &format!("select {old_row} as key union select {new_row}")),
        log("D", &format!("select {old_row} as key")),
        log("I", &format!("select distinct {} as key from new_rows r", key("r"))),
        log("U", &format!("select {} as key from old_rows o union select {} from new_rows n", key("o"), key("n"))),
        log("D", &format!("select distinct {} as key from old_rows r", key("r"))),
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
