//! What the reader's login lacks to read the tables that a query names, as statements for whoever may grant.

use tokio_postgres::error::SqlState;

use crate::DescribeError;
use crate::plan::References;
use crate::refusal::Sent;

/// Of a relation `c`: it is a view that reads something outside of the schemas `$1`. Whoever may read it reads that too, with the
/// rights of its owner: no grant on it is proposed.
pub const READS_ELSEWHERE: &str = "c.relkind = 'v' and exists (
    with recursive reached as (
      select c.oid as oid
      union
      select d.refobjid from reached r join pg_class v on v.oid = r.oid and v.relkind = 'v'
        join pg_rewrite w on w.ev_class = v.oid and w.ev_type = '1'
        join pg_depend d on d.classid = 'pg_rewrite'::regclass and d.objid = w.oid
                        and d.refclassid = 'pg_class'::regclass and d.refobjid <> v.oid)
    select from reached r join pg_class t on t.oid = r.oid join pg_namespace s on s.oid = t.relnamespace
     where s.nspname <> all ($1))";

/// Rights on some columns are rights too: which of them the query needs the server has said.
const LACKING: &str = "
select distinct format('grant usage on schema %I to %I', n.nspname, current_user), 1
  from pg_namespace n where n.nspname = any ($1) and not has_schema_privilege(n.oid, 'usage')
union all
select distinct format('grant select on table %I.%I to %I', n.nspname, c.relname, current_user), 2
  from unnest($1::text[], $2::text[]) w (schema, name)
  join pg_namespace n on n.nspname = w.schema join pg_class c on c.relnamespace = n.oid and c.relname = w.name
 where not has_any_column_privilege(c.oid, 'select')
 order by 2, 1";

impl Sent<'_> {
    /// The same as `refused`, and where a right was lacking, the grant that gives it. The client must not be in a
    /// transaction.
    pub(crate) async fn refused_or_lacking(&self, error: tokio_postgres::Error) -> DescribeError {
        let is_lacking = error.code() == Some(&SqlState::INSUFFICIENT_PRIVILEGE);
        let refused = self.refused(error);
        match refused {
            DescribeError::Sql(findings) if is_lacking => {
                let grants = self.lacking().await.unwrap_or_default().join("; ");
                let hint = format!("let an owner execute: {grants}");
                let with_hint = |finding: crate::Finding| match grants.is_empty() {
                    true => finding,
                    false => finding.hint(&hint),
                };
                DescribeError::Sql(findings.into_iter().map(with_hint).collect())
            }
            refused => refused,
        }
    }

    /// `None` where the source does not say: that something is lacking is known already.
    async fn lacking(&self) -> Option<Vec<String>> {
        let tables = References::of(self.sql)?.tables;
        let (schemas, names): (Vec<&str>, Vec<&str>) =
            tables.iter().map(|table| (table.schema.as_str(), table.name.as_str())).unzip();
        let rows = self.client.query(LACKING, &[&schemas, &names]).await.ok()?;
        Some(rows.iter().map(|row| row.get(0)).collect())
    }
}
