//! What a login lacks to read or install the log, told as what to execute and as whom.

use tokio_postgres::error::SqlState;
use vitrina_core::{Error, Result};

use super::SCHEMA;
use super::install::{Desk, grants};
use crate::sql::literal;

/// By the catalog: names cannot be looked up in a schema that the login may not use. NULL where something is missing.
const MAY_READ: &str = "select coalesce(bool_and(has_schema_privilege(r.oid, n.oid, 'usage') and may), false) from pg_namespace n
      join pg_roles r on r.rolname = ROLE,
      lateral (select has_table_privilege(r.oid, c.oid, 'select') from pg_class c
                where c.relnamespace = n.oid and c.relname in ('change_log', 'change_sources', 'change_consumers', 'change_pruned')
                union all select has_function_privilege(r.oid, p.oid, 'execute') from pg_proc p
                where p.pronamespace = n.oid and p.proname in ('consume_changes', 'forget_changes')) as rights(may)
     where n.nspname = 'vitrina_log'";

/// To look at the log its tables are enough: the functions are for those who follow it.
const MAY_LOOK: &str = "select coalesce(bool_and(has_schema_privilege(n.oid, 'usage') and has_table_privilege(c.oid, 'select')), false)
      from pg_namespace n join pg_class c on c.relnamespace = n.oid
     where n.nspname = 'vitrina_log' and c.relname in ('change_log', 'change_sources', 'change_consumers')";

impl Desk {
    pub(super) async fn may_read(&self, reader: &str) -> Result<bool> {
        // What is not there yet cannot be asked about.
        if !self.has_all_objects().await? {
            return Ok(false);
        }
        self.truth(&MAY_READ.replace("ROLE", &literal(reader))).await
    }

    /// Grants are given to roles that are there.
    pub(super) async fn require_role(&self, reader: &str) -> Result<()> {
        let sql = format!("select exists (select from pg_roles where rolname = {})", literal(reader));
        if self.truth(&sql).await? {
            return Ok(());
        }
        Err(Error::fix("changelog.reader", format!("there is no role {reader:?} that could read the log"))
            .hint("`vitrina roles` creates the login that pipelines read with; --reader names another one"))
    }

    /// None where this login may read the log, or none is installed; else what its owner executes.
    pub async fn lacking(&self) -> Result<Option<String>> {
        let who = "select current_user::text";
        let Some(login) = self.query(who).await?.first().map(|row| row.get::<_, String>(0)) else {
            return Ok(None);
        };
        // An older log lacks a function: it is told where it is installed again.
        if !self.has_all_objects().await? || self.may_read(&login).await? {
            return Ok(None);
        }
        Ok(Some(grants(&login)))
    }

    /// Before the log's own tables are read.
    pub(super) async fn require_readable(&self) -> Result<()> {
        if self.truth(MAY_LOOK).await? {
            return Ok(());
        }
        let Some(grants) = self.lacking().await? else { return Ok(()) };
        let owner = format!(
            "select nspowner::regrole::text, current_user::text from pg_namespace where nspname = {}",
            literal(SCHEMA)
        );
        let found = self.query(&owner).await?;
        let (owner, login) = found.first().map(|row| (row.get(0), row.get(1))).unwrap_or_default();
        let (owner, login): (String, String) = (owner, login);
        let message = format!("there is a change log, of {owner}, and login {login} may not read it");
        Err(Error::fix("changelog.grants", message).hint(format!("let {owner} execute: {grants};")))
    }
}

/// A refusal for want of rights, with as whom it would be none.
pub(super) fn denied(error: &tokio_postgres::Error) -> Option<Error> {
    // The reader's sessions begin read-only.
    let refusals = [SqlState::INSUFFICIENT_PRIVILEGE, SqlState::READ_ONLY_SQL_TRANSACTION];
    let said = error.as_db_error().filter(|said| refusals.contains(said.code()))?;
    let message = format!("this login may not do that: {}", said.message());
    Some(Error::fix("changelog.rights", message).hint(
        "log in as the owner of the table, with --url or VITRINA_CHANGELOG_URL, and with the right to create schemas: \
         `grant create on database … to …`; or let that owner execute the statements that are printed without --apply",
    ))
}
