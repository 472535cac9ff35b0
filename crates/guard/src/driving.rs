//! The table whose rows tell what has changed: there a cursor pages keys and looks at row versions.

use serde_json::Value;
use tokio_postgres::Client;

use crate::DescribedColumn;
use crate::projection::{Table, is_projection_of};

/// A table by whose rows changes are noticed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ChangeTable {
    pub oid: u32,
    /// Quoted and qualified.
    pub name: String,
    /// In the order they were asked for.
    pub columns: Vec<TableColumn>,
    /// Every row tells which transaction wrote it.
    pub has_versions: bool,
    /// A btree index begins with the columns that were asked for as an order.
    pub indexed: bool,
    /// The query returns every row of it, once, and nothing else.
    pub projected: bool,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TableColumn {
    pub name: String,
    pub type_oid: u32,
    pub type_name: String,
    pub not_null: bool,
    /// No two rows share a value of this column alone.
    pub unique: bool,
}

type Asked<T> = Result<T, tokio_postgres::Error>;

/// The one table that all `wanted` columns of the query are plain columns of; the first `ordered` of them
/// are the order it is read in. `Err` says why there is none.
///
/// A table that the query names twice is none: nobody can tell which of the two a column comes from.
pub async fn driving_table(
    client: &Client,
    sql: &str,
    described: &[DescribedColumn],
    wanted: &[&str],
    ordered: usize,
) -> Asked<Result<ChangeTable, String>> {
    let mut origins = Vec::new();
    for name in wanted {
        let column = described.iter().find(|column| column.name == *name);
        match column.and_then(|column| column.origin) {
            Some(origin) => origins.push(origin),
            None => return Ok(Err(format!("{name} is not a plain column of a table"))),
        }
    }
    let Some(&(oid, _)) = origins.first() else { return Ok(Err("no columns are asked for".to_owned())) };
    if origins.iter().any(|origin| origin.0 != oid) {
        return Ok(Err(format!("{} come from several tables", wanted.join(", "))));
    }
    let numbers: Vec<i16> = origins.iter().map(|origin| origin.1).collect();
    let Some(relation) = Relation::of(client, oid).await? else {
        return Ok(Err("its table is not to be seen".to_owned()));
    };
    let Relation { schema, name, .. } = &relation;
    if references(sql, schema, name) != 1 {
        return Ok(Err(format!("the query names {schema}.{name} more than once")));
    }
    if !matches!(relation.kind.as_str(), "r" | "p") {
        return Ok(Err(format!("{schema}.{name} is no table")));
    }
    if is_foreign(client, oid).await? {
        return Ok(Err(format!("{schema}.{name} has a foreign partition")));
    }
    let table = described_table(client, oid, &numbers, ordered).await?;
    let projected = Table { schema, name, columns: &relation.columns };
    // Of a table and those that inherit from it nobody says that a key comes once.
    let projected = !relation.has_heirs && is_projection_of(sql, &projected);
    Ok(Ok(ChangeTable { projected, ..table }))
}

/// A table by its name, as the one that the query's rows stand for: its columns are those that the query
/// returns under the `wanted` names, or have these names themselves.
pub async fn named_table(
    client: &Client,
    table: &str,
    described: &[DescribedColumn],
    wanted: &[&str],
    ordered: usize,
) -> Asked<Result<ChangeTable, String>> {
    let found = client.query_one("select to_regclass($1)::oid", &[&table]).await?;
    let oid: Option<u32> = found.get(0);
    let sql = "select attname::text, attnum from pg_attribute where attrelid = $1 and attnum > 0 and not attisdropped";
    let names: Vec<(String, i16)> =
        client.query(sql, &[&oid]).await?.iter().map(|row| (row.get(0), row.get(1))).collect();
    let of_table = |wanted: &&str| {
        let returned = described.iter().find(|column| column.name == **wanted);
        let origin = returned.and_then(|column| column.origin).filter(|origin| Some(origin.0) == oid);
        let number = origin.map(|origin| origin.1);
        let plain = names.iter().find(|(name, at)| number.map_or(name == *wanted, |number| *at == number));
        plain.map(|(name, _)| name.clone()).ok_or_else(|| format!("{table} has no column for {wanted}"))
    };
    match wanted.iter().map(of_table).collect::<Result<Vec<String>, String>>() {
        Ok(columns) => {
            let columns: Vec<&str> = columns.iter().map(String::as_str).collect();
            change_table(client, table, &columns, ordered).await
        }
        Err(reason) => Ok(Err(reason)),
    }
}

/// A table by its name, with these columns of it; the first `ordered` of them are the order it is read in.
pub async fn change_table(
    client: &Client,
    table: &str,
    columns: &[&str],
    ordered: usize,
) -> Asked<Result<ChangeTable, String>> {
    let found = client.query_one("select to_regclass($1)::oid", &[&table]).await?;
    let Some(oid) = found.get::<_, Option<u32>>(0) else {
        return Ok(Err(format!("there is no table {table}, or its login may not see it")));
    };
    let sql = "select a.attnum from unnest($2::text[]) with ordinality w(name, n)
                 join pg_attribute a on a.attrelid = $1 and a.attname = w.name and a.attnum > 0 and not a.attisdropped order by w.n";
    let names: Vec<&str> = columns.to_vec();
    let numbers: Vec<i16> = client.query(sql, &[&oid, &names]).await?.iter().map(|row| row.get(0)).collect();
    if numbers.len() < columns.len() {
        return Ok(Err(format!("{table} lacks some of the columns {}", columns.join(", "))));
    }
    if is_foreign(client, oid).await? {
        return Ok(Err(format!("{table} is a foreign table, or has a foreign partition")));
    }
    described_table(client, oid, &numbers, ordered).await.map(Ok)
}

/// Rows of another server have no versions here, and no lock of this one holds them.
async fn is_foreign(client: &Client, oid: u32) -> Asked<bool> {
    let sql = "select exists (select from pg_class c where c.relkind = 'f'
                                 and (c.oid = $1 or c.oid in (select relid from pg_partition_tree($1::oid::regclass))))";
    Ok(client.query_one(sql, &[&oid]).await?.get(0))
}

struct Relation {
    kind: String,
    schema: String,
    name: String,
    columns: Vec<String>,
    /// Other tables inherit from it that are not its partitions.
    has_heirs: bool,
}

impl Relation {
    async fn of(client: &Client, oid: u32) -> Asked<Option<Self>> {
        let sql = "select c.relkind::text, n.nspname::text, c.relname::text, c.relkind = 'r' and c.relhassubclass,
                          array(select attname::text from pg_attribute where attrelid = c.oid and attnum > 0 and not attisdropped)
                     from pg_class c join pg_namespace n on n.oid = c.relnamespace where c.oid = $1";
        let row = client.query_opt(sql, &[&oid]).await?;
        Ok(row.map(|row| Self {
            kind: row.get(0),
            schema: row.get(1),
            name: row.get(2),
            has_heirs: row.get(3),
            columns: row.get(4),
        }))
    }
}

async fn described_table(client: &Client, oid: u32, numbers: &[i16], ordered: usize) -> Asked<ChangeTable> {
    let sql = "select a.attname::text, a.atttypid, format_type(a.atttypid, -1), a.attnotnull,
                      exists (select from pg_index i where i.indrelid = a.attrelid and i.indisunique and i.indisvalid
                                 and i.indpred is null and i.indexprs is null and i.indnkeyatts = 1 and i.indkey[0] = a.attnum)
                 from unnest($2::int2[]) with ordinality w(number, n)
                 join pg_attribute a on a.attrelid = $1 and a.attnum = w.number order by w.n";
    let column = |row: &tokio_postgres::Row| TableColumn {
        name: row.get(0),
        type_oid: row.get(1),
        type_name: row.get(2),
        not_null: row.get(3),
        unique: row.get(4),
    };
    let columns = client.query(sql, &[&oid, &numbers]).await?.iter().map(column).collect();
    let sql = "select format('%I.%I', n.nspname, c.relname), c.relkind::text in ('r', 'p', 'm') and has_column_privilege(c.oid, 'xmin', 'select'),
                      exists (select from pg_index i join pg_class x on x.oid = i.indexrelid join pg_am m on m.oid = x.relam
                               where i.indrelid = c.oid and m.amname = 'btree' and i.indisvalid and i.indpred is null
                                 and i.indnkeyatts >= cardinality($2::int2[])
                                 and array(select i.indkey[n] from generate_series(0, cardinality($2::int2[]) - 1) n order by n) = $2::int2[]
                                 -- Read forwards, or backwards: 3 is descending, NULLs first.
                                 and array(select distinct i.indoption[n] from generate_series(0, cardinality($2::int2[]) - 1) n) in ('{0}', '{3}'))
                 from pg_class c join pg_namespace n on n.oid = c.relnamespace where c.oid = $1";
    let order: Vec<i16> = numbers.iter().take(ordered).copied().collect();
    let row = client.query_one(sql, &[&oid, &order]).await?;
    let (name, has_versions, indexed) = (row.get(0), row.get(1), row.get(2));
    Ok(ChangeTable { oid, name, columns, has_versions, indexed, projected: false })
}

/// How often a query names a table.
fn references(sql: &str, schema: &str, table: &str) -> usize {
    crate::parse::look(sql, |tree| count(tree, schema, table)).unwrap_or(0)
}

fn count(node: &Value, schema: &str, table: &str) -> usize {
    match node {
        Value::Array(items) => items.iter().map(|item| count(item, schema, table)).sum(),
        Value::Object(fields) => {
            let here = node["schemaname"] == schema && node["relname"] == table;
            usize::from(here) + fields.values().map(|value| count(value, schema, table)).sum::<usize>()
        }
        _ => 0,
    }
}
