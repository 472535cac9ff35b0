//! Whose the log is. Its functions run with their owner's rights whenever an application writes to a logged table: whoever could
//! replace one of them, or a table that they write to, would run code of his own with these rights.

use vitrina_core::{Error, Result};

use super::SCHEMA;
use super::install::Desk;
use crate::sql::literal;

/// What is wrong with the owners and rights of the log, as a sub-select; NULL where all is well or nothing is installed. Any login
/// may ask.
pub(super) const FAULT: &str = "select min(fault) from (
    select n.oid, n.nspowner from pg_namespace n where n.nspname = 'vitrina_log') log,
    lateral (
        select format('%s may create objects in it', case a.grantee when 0 then 'everybody' else a.grantee::regrole::text end) as fault
          from pg_namespace n, aclexplode(n.nspacl) a where n.oid = log.oid and a.privilege_type = 'CREATE' and a.grantee <> log.nspowner
        union all
        select format('%s belongs to %s, the schema to %s', c.relname, c.relowner::regrole, log.nspowner::regrole)
          from pg_class c where c.relnamespace = log.oid and c.relowner <> log.nspowner
        union all
        select format('%s belongs to %s, the schema to %s', p.proname, p.proowner::regrole, log.nspowner::regrole)
          from pg_proc p where p.pronamespace = log.oid and p.proowner <> log.nspowner
        union all
        select format('%s may execute %s', case a.grantee when 0 then 'everybody' else a.grantee::regrole::text end, p.proname)
          from pg_proc p, aclexplode(coalesce(p.proacl, acldefault('f', p.proowner))) a
         where p.pronamespace = log.oid and p.prorettype = 'trigger'::regtype and a.grantee <> log.nspowner
        union all
        select format('%s may do more than read %s', case b.grantee when 0 then 'everybody' else b.grantee::regrole::text end, c.relname)
          from pg_class c join pg_attribute a on a.attrelid = c.oid, aclexplode(a.attacl) b
         where c.relnamespace = log.oid and b.privilege_type <> 'SELECT' and b.grantee <> log.nspowner
        union all
        select format('%s may do more than read %s', case a.grantee when 0 then 'everybody' else a.grantee::regrole::text end, c.relname)
          from pg_class c, aclexplode(c.relacl) a
         where c.relnamespace = log.oid and a.privilege_type <> 'SELECT' and a.grantee <> log.nspowner) faults";

/// Where an older release kept the log. The login of the marts may own it.
pub(super) const OUTDATED_SCHEMA: &str = "vitrina";
pub(super) const IS_OUTDATED: &str =
    "exists (select from pg_class c join pg_namespace n on n.oid = c.relnamespace
    where n.nspname = 'vitrina' and c.relname = 'change_sources')";

/// Statements that are applied together or not at all, behind a look at whose the log is: one statement of SQL, since psql may be told to
/// go on behind an error, in the same transaction too. The look is behind the creation of the schema, which somebody else may have made
/// while this one waited, and asks for the own one: an older snapshot would not show that of another. Names are looked up in the catalogue
/// first of all: whoever makes a schema of the administrator's name would have functions of his own called here.
pub(super) fn step(makes_schema: bool, statements: &[String]) -> String {
    let create = "if to_regnamespace('vitrina_log') is null then create schema vitrina_log; end if;\n    ";
    let body = format!(
        " declare wrong text; begin
    set local search_path = pg_catalog, pg_temp;
    {}if to_regnamespace('vitrina_log') is not null and not exists (
        select from pg_namespace n join pg_roles r on r.oid = n.nspowner where n.nspname = 'vitrina_log' and r.rolname = current_user) then
        raise exception 'schema vitrina_log belongs to another role than %', current_user
            using hint = 'apply this as its owner, with the right TRIGGER on the table; a schema that nobody you trust has created is to be dropped first';
    end if;
    wrong := ({FAULT});
    if wrong is not null then
        raise exception 'the change log is not its owner''s alone: %', wrong
            using hint = 'revoke that right, or drop what belongs to another role';
    end if;
{};
end ",
        if makes_schema { create } else { "" },
        statements.join(";\n"),
    );
    format!("do {}", dollar_quoted(&body))
}

/// Between marks that are not in the text, so that nothing in it can end it.
pub(super) fn dollar_quoted(text: &str) -> String {
    let mark = (0_usize..).map(|number| format!("$body{number}")).find(|mark| !text.contains(mark.as_str()));
    let mark = mark.unwrap_or_default();
    format!("{mark}${text}{mark}$")
}

/// Drops what an older release has left of a table's log, and the rest once no table is logged there any more. It only drops: whatever
/// else is done to these objects could run what another login has put there. What cannot be dropped is that login's by now, and in
/// nobody's way.
pub(super) fn drop_outdated(function: &str) -> String {
    let tried = |drop: &str| {
        format!(
            "begin
        {drop};
    exception when others then
        raise warning 'what an older release has left in schema vitrina stays there: %', sqlerrm;
    end"
        )
    };
    format!(
        "{};
    if not exists (select from pg_proc p join pg_namespace n on n.oid = p.pronamespace where n.nspname = 'vitrina' and p.proname like 'log\\_%') then
    {};
    end if",
        tried(&format!("drop function if exists {OUTDATED_SCHEMA}.{function}()")),
        tried(
            "drop table if exists vitrina.change_log, vitrina.change_sources, vitrina.change_consumers, vitrina.change_pruned;
        drop function if exists vitrina.consume_changes(uuid, uuid, text, interval), vitrina.forget_changes(uuid, uuid), vitrina.prune_changes(interval)"
        ),
    )
}

impl Desk {
    /// What is wrong with who owns the log here; none where all is well, or nothing is installed.
    pub async fn fault(&self) -> Result<Option<String>> {
        let rows = self.query(FAULT).await?;
        Ok(rows.first().and_then(|row| row.get(0)))
    }

    /// An older release has put a log where other logins may replace it.
    pub async fn is_outdated(&self) -> Result<bool> {
        self.truth(&format!("select {IS_OUTDATED}")).await
    }

    /// Nothing is added to a log that this login does not own, or that others can change.
    pub(super) async fn require_own(&self) -> Result<()> {
        if let Some(fault) = self.fault().await? {
            return Err(unsound(&fault));
        }
        let sql = format!(
            "select n.nspowner::regrole::text, current_user::text from pg_namespace n where n.nspname = {}
                and n.nspowner <> (select oid from pg_roles where rolname = current_user)",
            literal(SCHEMA)
        );
        let Some((owner, user)) = self.query(&sql).await?.first().map(|row| (row.get(0), row.get(1))) else {
            return Ok(());
        };
        let (owner, user): (String, String) = (owner, user);
        let message = format!("schema {SCHEMA} belongs to {owner}, and this login is {user}");
        Err(Error::fix("changelog.owner", message).hint(
            "log in as its owner (--url), who needs the right TRIGGER on the table; a schema that nobody you trust has created is to be dropped first",
        ))
    }
}

pub(super) fn unsound(fault: &str) -> Error {
    let message = format!("the change log in schema {SCHEMA} is not its owner's alone: {fault}");
    Error::fix("changelog.owner", message).hint(
        "its functions run with their owner's rights whenever an application writes: revoke that right, or drop what belongs to another role, and install it again",
    )
}

pub(super) fn outdated() -> Error {
    Error::fix(
        "changelog.outdated_schema",
        format!("the change log is in schema vitrina, where the login of the marts can replace it: it lives in schema {SCHEMA} by now"),
    )
    .hint("`vitrina changelog install TABLE --key …` of each logged table shows what its owner has to apply; the next run makes a full load")
}
