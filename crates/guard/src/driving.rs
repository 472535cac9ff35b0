//! The table whose rows tell what has changed: there a cursor pages keys and looks at row versions.

use serde_json::Value;
use tokio_postgres::Client;

use crate::DescribedColumn;
use crate::key_column::{BaseColumn, Casts, columns_behind};
use crate::projection::{Table, is_projection_of};
use crate::unique::TELLS_ROWS_APART;

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

/// A table by its name, as the one that the query's rows stand for: its columns are those that the query returns under the
/// `wanted` names. Of an order, whose columns lead to rows of the table alone, and of what the query does not return, it is
/// the columns that have these names themselves.
pub async fn named_table(
    client: &Client,
    sql: &str,
    table: &str,
    described: &[DescribedColumn],
    wanted: &[&str],
    ordered: usize,
) -> Asked<Result<ChangeTable, String>> {
    let found = client.query_one("select to_regclass($1)::oid", &[&table]).await?;
    let Some(oid) = found.get::<_, Option<u32>>(0) else { return Ok(Err(no_table(table))) };
    let mut columns = Vec::new();
    for (place, wanted) in wanted.iter().enumerate() {
        match named_column(client, sql, oid, described, wanted, place < ordered).await? {
            Some(column) => columns.push(column),
            None if described.iter().any(|column| column.name == *wanted) && place >= ordered => {
                return Ok(Err(format!(
                    "{wanted} is no column of {table} in the query, nor equal to one: a changed row of {table} would not tell which row of the query it is"
                )));
            }
            None => return Ok(Err(format!("{table} has no column for {wanted}"))),
        }
    }
    let columns: Vec<&str> = columns.iter().map(String::as_str).collect();
    change_table(client, table, &columns, ordered).await
}

async fn named_column(
    client: &Client,
    sql: &str,
    table: u32,
    described: &[DescribedColumn],
    wanted: &str,
    is_order: bool,
) -> Asked<Option<String>> {
    let attributes = "select a.attname::text, a.attnum, a.atttypid in (20, 21, 23), n.nspname::text, c.relname::text
                        from pg_attribute a join pg_class c on c.oid = a.attrelid join pg_namespace n on n.oid = c.relnamespace
                       where a.attrelid = $1 and a.attnum > 0 and not a.attisdropped";
    let rows = client.query(attributes, &[&table]).await?;
    let find = |is_meant: &dyn Fn(&str, i16, bool) -> bool| {
        let row = rows.iter().find(|row| is_meant(row.get(0), row.get(1), row.get(2)));
        row.map(|row| row.get::<_, String>(0))
    };
    let returned = described.iter().find(|column| column.name == wanted);
    let origin = match returned.and_then(|column| column.origin) {
        Some(origin) if origin.0 != table => behind_views(client, origin).await?,
        origin => origin,
    };
    if let Some((_, number)) = origin.filter(|origin| origin.0 == table) {
        return Ok(find(&|_, at, _| at == number));
    }
    if is_order || returned.is_none() {
        return Ok(find(&|name, _, _| name == wanted));
    }
    let Some(row) = rows.first() else { return Ok(None) };
    let (schema, table): (&str, &str) = (row.get(3), row.get(4));
    let behind = columns_behind(sql, wanted);
    if !are_told_apart(client, &behind).await? {
        return Ok(None);
    }
    let own = behind.iter().filter(|column| column.schema == schema && column.table == table);
    // Without a cast or an equality the source itself has told which column it is.
    let mut own = own.filter(|column| column.by_equality || column.casts != Casts::default());
    Ok(own.find_map(|column| {
        find(&|name, _, is_integer| name == column.column && (is_integer || !column.casts.to_integer))
    }))
}

/// Values that these columns call equal are one value in any of them, and one text: columns of one type, of those whose equality is
/// that of their texts. A folding collation, `citext`, padded texts, numbers with a point, and times beside dates call more equal.
async fn are_told_apart(client: &Client, columns: &[BaseColumn]) -> Asked<bool> {
    if columns.iter().all(|column| !column.by_equality) {
        return Ok(true);
    }
    let sql = "select t.oid, coalesce(l.collisdeterministic, true)
                 from unnest($1::text[], $2::text[], $3::text[]) w(schema, name, attribute)
                 join pg_namespace n on n.nspname = w.schema join pg_class c on c.relnamespace = n.oid and c.relname = w.name
                 join pg_attribute a on a.attrelid = c.oid and a.attname = w.attribute and a.attnum > 0 and not a.attisdropped
                 join pg_type y on y.oid = a.atttypid join pg_type t on t.oid = coalesce(nullif(y.typbasetype, 0), y.oid)
                 left join pg_collation l on l.oid = a.attcollation";
    let of = |part: fn(&BaseColumn) -> &str| columns.iter().map(part).collect::<Vec<&str>>();
    let (schemas, tables, names) =
        (of(|column| &column.schema), of(|column| &column.table), of(|column| &column.column));
    let rows = client.query(sql, &[&schemas, &tables, &names]).await?;
    let is_deterministic = rows.iter().all(|row| row.get(1));
    let types: Vec<u32> = rows.iter().map(|row| row.get(0)).collect();
    let is_of_one = KINDS.iter().any(|kind| types.iter().all(|oid| kind.contains(oid)));
    Ok(is_deterministic && is_of_one && rows.len() == columns.len())
}

/// Whether an equal value of the one type is the same text as of the other.
pub fn are_spelled_alike(one: u32, other: u32) -> bool {
    one == other || KINDS.iter().any(|kind| kind.contains(&one) && kind.contains(&other))
}

/// Whole numbers, texts, uuid, dates, times without and with a zone, truths, bytes.
const KINDS: [&[u32]; 8] = [&[20, 21, 23], &[25, 1043], &[2950], &[1082], &[1114], &[1184], &[16], &[17]];

/// The column of a table that is behind a view's, however many views there are between them.
async fn behind_views(client: &Client, mut origin: (u32, i16)) -> Asked<Option<(u32, i16)>> {
    let sql = "select pg_get_viewdef(oid) from pg_class where oid = $1 and relkind = 'v'";
    for _ in 0..MAX_VIEWS {
        let Some(view) = client.query_opt(sql, &[&origin.0]).await? else { return Ok(Some(origin)) };
        let definition: String = view.get(0);
        let described = crate::describe::columns(client, definition.trim_end().trim_end_matches(';')).await?;
        let column = usize::try_from(origin.1 - 1).ok().and_then(|place| described.get(place)?.origin);
        match column {
            Some(column) => origin = column,
            None => return Ok(None),
        }
    }
    Ok(None)
}

const MAX_VIEWS: usize = 16;

fn no_table(table: &str) -> String {
    format!("there is no table {table}, or its login may not see it")
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
        return Ok(Err(no_table(table)));
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
    let sql = format!(
        "select a.attname::text, a.atttypid, format_type(a.atttypid, -1), a.attnotnull,
                exists (select from pg_index i where i.indrelid = a.attrelid and {TELLS_ROWS_APART}
                           and i.indnkeyatts = 1 and i.indkey[0] = a.attnum)
           from unnest($2::int2[]) with ordinality w(number, n)
           join pg_attribute a on a.attrelid = $1 and a.attnum = w.number order by w.n"
    );
    let column = |row: &tokio_postgres::Row| TableColumn {
        name: row.get(0),
        type_oid: row.get(1),
        type_name: row.get(2),
        not_null: row.get(3),
        unique: row.get(4),
    };
    let columns = client.query(&sql, &[&oid, &numbers]).await?.iter().map(column).collect();
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
