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
        select format('%s may do more than read %s', case a.grantee when 0 then 'everybody' else a.grantee::regrole::text end, c.relname)
          from pg_class c, aclexplode(c.relacl) a
         where c.relnamespace = log.oid and a.privilege_type <> 'SELECT' and a.grantee <> log.nspowner) faults";

/// Where an older release kept the log. The login of the marts may own it.
pub(super) const OUTDATED_SCHEMA: &str = "vitrina";
pub(super) const IS_OUTDATED: &str =
    "exists (select from pg_class c join pg_namespace n on n.oid = c.relnamespace
    where n.nspname = 'vitrina' and c.relname = 'change_sources')";

/// The first of the statements that an owner applies: all that follow belong to whoever executes them.
pub(super) const REQUIRE_OWNER: &str = "do $$ begin
    if exists (select from pg_namespace where nspname = 'vitrina_log' and nspowner <> (select oid from pg_roles where rolname = current_user)) then
        raise exception 'schema vitrina_log belongs to another role than %', current_user
            using hint = 'apply this as its owner, with the right TRIGGER on the table; a schema that nobody you trust has created is to be dropped first';
    end if;
end $$";

/// Drops what an older release has left, once no table is logged there any more. It only drops: whatever else is done to these tables
/// could run what another login has put there.
pub(super) const DROP_OUTDATED: &str = "do $$ begin
    if not exists (select from pg_proc p join pg_namespace n on n.oid = p.pronamespace where n.nspname = 'vitrina' and p.proname like 'log\\_%') then
        drop table if exists vitrina.change_log, vitrina.change_sources, vitrina.change_consumers, vitrina.change_pruned;
        drop function if exists vitrina.consume_changes(uuid, uuid, text, interval), vitrina.forget_changes(uuid, uuid), vitrina.prune_changes(interval);
    end if;
end $$";

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
