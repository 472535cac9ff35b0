//! Does a connection work, and what does its login lack?

use std::time::{Duration, Instant};

use tokio_postgres::Row;
use vitrina_core::Result;

use crate::Connection;
use crate::connection::{End, Session};
use crate::sinks::search;

/// What was found at a connection.
#[derive(Debug, Clone)]
pub struct Tested {
    pub connected_in: Duration,
    /// What answers there.
    pub server: String,
    /// Statements that an administrator runs, or rights at a search server.
    pub missing_grants: Vec<String>,
    /// How rights were found out where the server does not tell them.
    pub tried: Option<String>,
}

/// Relations of the schemas, and the schemas themselves, on which the login lacks a right.
const LACKING: &str = "
select format('grant usage on schema %I to %I', n.nspname, current_user)
  from pg_namespace n where n.nspname = any($1) and not has_schema_privilege(n.oid, 'usage')
union all
select format('grant %s on table %I.%I to %I', lower(w.rights), n.nspname, c.relname, current_user)
  from pg_namespace n join pg_class c on c.relnamespace = n.oid
 cross join lateral (
       select string_agg(r, ', ') as rights from unnest($2::text[]) r where not has_table_privilege(c.oid, r)) w
 where n.nspname = any($1) and c.relkind in ('r', 'p', 'v', 'm', 'f') and w.rights is not null
   and not ($3 and {READS_ELSEWHERE})
 order by 1";

impl Connection {
    /// Opens a session and looks at the rights in these schemas: to write for marts, else to read. Of a search server, at
    /// those that loads need, on indexes of these patterns too.
    pub async fn test(&self, schemas: &[String], marts: bool) -> Result<Tested> {
        if self.is_search() {
            return search::tested::test(self, schemas).await;
        }
        let begun = Instant::now();
        let end = if marts { End::Sink } else { End::Source };
        let session = Session::open(self, end, "vitrina/test").await?;
        let connected_in = begun.elapsed();
        let explain = |error| session.explain(error);
        let server = session
            .client
            .query_one("select split_part(version(), ' on ', 1)", &[])
            .await
            .map_err(explain)?;
        let rights: &[&str] = if marts { &["SELECT", "INSERT", "UPDATE", "DELETE"] } else { &["SELECT"] };
        let schemas: Vec<&str> = schemas.iter().map(String::as_str).collect();
        let lacking = LACKING.replace("{READS_ELSEWHERE}", vitrina_guard::READS_ELSEWHERE);
        let lacking = session.client.query(&lacking, &[&schemas, &rights, &!marts]).await.map_err(explain)?;
        let missing_grants = lacking.iter().map(|row: &Row| row.get(0)).collect();
        Ok(Tested { connected_in, server: server.get(0), missing_grants, tried: None })
    }
}
