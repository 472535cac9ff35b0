//! What the login of a mart lacks to make it and to write to it, as statements for whoever may grant.

use vitrina_core::{Result, TargetName};

use super::create;
use crate::sinks::Definition;

/// $1 and $2 name the mart, $3 says that a run makes it where it is missing. Rights on columns are rights too.
const LACKING: &str = "
with mart as (
    select n.oid as schema, c.oid as mart
      from (values (1)) one
      left join pg_namespace n on n.nspname = $1
      left join pg_class c on c.relnamespace = n.oid and c.relname = $2 and c.relkind in ('r', 'p'))
select format('grant create on database %I to %I', current_database(), current_user)
  from mart where schema is null and $3 and not has_database_privilege(current_database(), 'create')
union all
select format('grant %s on schema %I to %I', string_agg(lower(r), ', '), $1, current_user)
  from mart, unnest(case when mart is null then array['USAGE', 'CREATE'] else array['USAGE'] end) r
 where schema is not null and (mart is not null or $3) and not has_schema_privilege(schema, r)
having count(*) > 0
union all
select format('grant %s on table %I.%I to %I', string_agg(lower(r), ', '), $1, $2, current_user)
  from mart, unnest(array['SELECT', 'INSERT', 'UPDATE', 'DELETE']) r
 where mart is not null and not has_table_privilege(mart, r)
   and not (r <> 'DELETE' and has_any_column_privilege(mart, r))
having count(*) > 0";

pub(super) async fn grants(definition: &Definition<'_>) -> Result<Vec<String>> {
    let Definition { name: TargetName::Postgres { schema, table }, target, .. } = definition else {
        return Ok(Vec::new());
    };
    let session = create::session(definition).await?;
    let asked = session.client.query(LACKING, &[schema, table, &target.create_if_missing]).await;
    let lacking = asked.map_err(|error| session.explain(error))?;
    Ok(lacking.iter().map(|row| row.get(0)).collect())
}
