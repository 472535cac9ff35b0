//! The key of a query's rows, where nobody has named one: columns of the result of which the query and its table prove that no
//! two rows share their values. Nothing is guessed: of rows with an equal key only one would be written.

use serde_json::Value;
use tokio_postgres::Client;

use crate::DescribedColumn;
use crate::rules::text;
use crate::unique::TELLS_ROWS_APART;

type Asked<T> = Result<T, tokio_postgres::Error>;

/// None where nothing proves one. Only for SQL that `check` found clean.
pub async fn proposed_key(
    client: &Client,
    sql: &str,
    described: &[DescribedColumn],
) -> Asked<Option<Vec<String>>> {
    let Some(Some(shape)) = crate::parse::look(sql, Shape::of) else { return Ok(None) };
    if returns_sets(client, &shape.functions).await? {
        return Ok(None);
    }
    match shape.rows {
        Rows::Groups(places) => {
            let name = |place: &usize| described.get(*place).map(|column| column.name.clone());
            Ok(places.iter().map(name).collect())
        }
        Rows::Table { schema, name } => key_of_table(client, &schema, &name, described).await,
    }
}

/// What makes the rows of a query.
struct Shape {
    rows: Rows,
    /// Functions that the result's columns call: one that returns a set would make several rows of one.
    functions: Vec<String>,
}

enum Rows {
    /// One for each group: the places of the result's columns that it groups by.
    Groups(Vec<usize>),
    /// At most one for each row of a table.
    Table { schema: String, name: String },
}

impl Shape {
    fn of(tree: &Value) -> Option<Self> {
        let select = tree["node"]["SelectStmt"].as_object()?;
        let is_there = |part: &str| select.get(part).is_some_and(|part| !is_nothing(part));
        if ["distinct_clause", "values_lists", "larg", "rarg"].into_iter().any(is_there) {
            return None;
        }
        let columns = select.get("target_list")?.as_array()?;
        let from = select.get("from_clause")?.as_array()?;
        let table = match from.as_slice() {
            [one] => one["node"]["RangeVar"].as_object(),
            _ => None,
        };
        let mut functions = Vec::new();
        columns.iter().for_each(|column| called(column, &mut functions));
        let rows = match select.get("group_clause").and_then(Value::as_array).filter(|by| !by.is_empty()) {
            Some(by) => Rows::Groups(groups(by, columns, table.is_some())?),
            None if is_there("having_clause") => return None,
            None => {
                let table = table?;
                let part = |name: &str| text(&table[name]).to_owned();
                // What has no schema is a name of the query itself.
                let is_table = table["inh"] == Value::Bool(true) && !part("schemaname").is_empty();
                is_table.then(|| Rows::Table { schema: part("schemaname"), name: part("relname") })?
            }
        };
        Some(Self { rows, functions })
    }
}

fn is_nothing(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Array(items) => items.is_empty(),
        _ => false,
    }
}

/// Each is a place of a column, or the column itself; none where one is neither, as a name that may be the table's or the
/// result's.
fn groups(by: &[Value], columns: &[Value], of_one_table: bool) -> Option<Vec<usize>> {
    let expressions: Vec<&Value> =
        columns.iter().map(|column| &column["node"]["ResTarget"]["val"]["node"]).collect();
    if expressions.iter().any(|expression| is_star(expression)) {
        return None;
    }
    let place = |group: &Value| {
        let group = &group["node"];
        if group.get("GroupingSet").is_some() {
            return None;
        }
        if let Some(number) = group["AConst"]["val"]["Ival"]["ival"].as_u64() {
            return usize::try_from(number).ok()?.checked_sub(1).filter(|place| *place < columns.len());
        }
        expressions.iter().position(|expression| is_same(group, expression, of_one_table))
    };
    by.iter().map(place).collect()
}

fn is_same(one: &Value, other: &Value, of_one_table: bool) -> bool {
    let last =
        |node: &Value| node["ColumnRef"]["fields"].as_array().and_then(|fields| fields.last().cloned());
    match (last(one), last(other)) {
        // `r.id` and `id` are one column where there is one table.
        (Some(one), Some(other)) if of_one_table => without_places(&one) == without_places(&other),
        _ => without_places(one) == without_places(other),
    }
}

fn is_star(expression: &Value) -> bool {
    let fields = expression["ColumnRef"]["fields"].as_array();
    fields.is_some_and(|fields| fields.iter().any(|field| field["node"].get("AStar").is_some()))
}

fn without_places(node: &Value) -> Value {
    match node {
        Value::Object(fields) => {
            let kept = fields.iter().filter(|(name, _)| *name != "location");
            Value::Object(kept.map(|(name, value)| (name.clone(), without_places(value))).collect())
        }
        Value::Array(items) => Value::Array(items.iter().map(without_places).collect()),
        other => other.clone(),
    }
}

/// Not those of sub-queries, which have rows of their own.
fn called(node: &Value, functions: &mut Vec<String>) {
    match node {
        Value::Object(fields) => {
            if let Some(name) = fields.get("FuncCall").and_then(|call| call["funcname"].as_array()?.last()) {
                functions.push(text(&name["node"]["String"]["sval"]).to_owned());
            }
            let inner = fields.iter().filter(|(name, _)| *name != "SubLink");
            inner.for_each(|(_, value)| called(value, functions));
        }
        Value::Array(items) => items.iter().for_each(|item| called(item, functions)),
        _ => {}
    }
}

async fn returns_sets(client: &Client, functions: &[String]) -> Asked<bool> {
    if functions.is_empty() {
        return Ok(false);
    }
    let sql = "select exists (select from pg_catalog.pg_proc where proname = any ($1) and proretset)";
    Ok(client.query_one(sql, &[&functions]).await?.get(0))
}

/// Its primary key, or another unique one that is never null, where the query returns it as it is.
async fn key_of_table(
    client: &Client,
    schema: &str,
    name: &str,
    described: &[DescribedColumn],
) -> Asked<Option<Vec<String>>> {
    let sql = format!(
        "select c.oid, i.indkey::int2[] from pg_catalog.pg_class c
                 join pg_catalog.pg_namespace n on n.oid = c.relnamespace
                 join pg_catalog.pg_index i on i.indrelid = c.oid
                where n.nspname = $1 and c.relname = $2 and c.relkind in ('r', 'p') and {TELLS_ROWS_APART}
                  and i.indnkeyatts = i.indnatts
                  and not exists (select from pg_catalog.pg_attribute a
                                   where a.attrelid = c.oid and a.attnum = any (i.indkey) and not a.attnotnull)
                order by i.indisprimary desc, i.indnkeyatts, i.indexrelid"
    );
    let columns_of = |row: &tokio_postgres::Row| {
        let (oid, numbers): (u32, Vec<i16>) = (row.get(0), row.get(1));
        let column = |number: &i16| described.iter().find(|column| column.origin == Some((oid, *number)));
        numbers
            .iter()
            .map(|number| column(number).map(|column| column.name.clone()))
            .collect::<Option<Vec<_>>>()
    };
    Ok(client.query(&sql, &[&schema, &name]).await?.iter().find_map(columns_of))
}
