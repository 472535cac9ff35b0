//! The tables and columns that a login may read, for who writes a query.

use tokio_postgres::Client;

use crate::SESSION;

/// So many at most: an editor completes from them.
pub const MOST_TABLES: usize = 1000;
const MOST_COLUMNS: usize = 20_000;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct VisibleTable {
    pub schema: String,
    pub name: String,
    pub columns: Vec<VisibleColumn>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct VisibleColumn {
    pub name: String,
    pub type_name: String,
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Visible {
    /// By schema and name, each with its columns in their order.
    pub tables: Vec<VisibleTable>,
    /// There are more.
    pub has_more: bool,
}

const COLUMNS: &str = "
with tables as (
    select c.oid, n.nspname, c.relname from pg_class c join pg_namespace n on n.oid = c.relnamespace
     where n.nspname = any ($1) and has_schema_privilege(n.oid, 'usage') and has_any_column_privilege(c.oid, 'select')
       and c.relkind in ('r', 'p', 'v', 'm', 'f')
       -- What a query names is the table, not its parts.
       and not c.relispartition
     order by n.nspname collate \"C\", c.relname collate \"C\" limit $2)
select t.nspname::text, t.relname::text, a.attname::text, format_type(a.atttypid, a.atttypmod)
  from tables t join pg_attribute a on a.attrelid = t.oid and a.attnum > 0 and not a.attisdropped
 where has_column_privilege(t.oid, a.attnum, 'select')
 order by t.nspname collate \"C\", t.relname collate \"C\", a.attnum limit $3";

/// In these schemas. The client must not be in a transaction.
pub async fn visible(client: &Client, schemas: &[String]) -> Result<Visible, tokio_postgres::Error> {
    let begin = format!(
        "begin read only; {SESSION}; set local statement_timeout = '5s'; set local lock_timeout = '2s'"
    );
    client.batch_execute(&begin).await?;
    let (tables, columns) = (limit(MOST_TABLES), limit(MOST_COLUMNS));
    let rows = client.query(COLUMNS, &[&schemas, &tables, &columns]).await;
    client.batch_execute("rollback").await?;
    let mut visible = Visible::default();
    for row in rows? {
        take(&mut visible.tables, &row);
    }
    let columns: usize = visible.tables.iter().map(|table| table.columns.len()).sum();
    visible.has_more = visible.tables.len() > MOST_TABLES || columns > MOST_COLUMNS;
    visible.tables.truncate(MOST_TABLES);
    Ok(visible)
}

/// One more than is wanted tells whether there are more.
fn limit(most: usize) -> i64 {
    i64::try_from(most + 1).unwrap_or(i64::MAX)
}

fn take(tables: &mut Vec<VisibleTable>, row: &tokio_postgres::Row) {
    let (schema, name): (String, String) = (row.get(0), row.get(1));
    let column = VisibleColumn { name: row.get(2), type_name: row.get(3) };
    match tables.last_mut() {
        Some(last) if last.schema == schema && last.name == name => last.columns.push(column),
        _ => tables.push(VisibleTable { schema, name, columns: vec![column] }),
    }
}
