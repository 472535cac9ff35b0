//! The plan of a query in a few figures, for people: what the planner expects it to cost, and how it gets at its tables.

use serde_json::Value;
use tokio_postgres::Client;

use crate::describe::LIMITS;
use crate::explain::explain;
use crate::{SESSION, wrap};

/// Reading a table whole matters from so many rows on.
pub const LARGE_TABLE: u64 = 100_000;
/// Rows of a page, as a pass reads them.
const PAGE: usize = 10_000;

#[derive(Debug, Clone, PartialEq)]
pub struct Summary {
    /// That the planner expects.
    pub rows: u64,
    /// In the planner's own units.
    pub cost: f64,
    pub scans: Vec<Scan>,
}

/// How a table is read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Scan {
    /// With its schema.
    pub table: String,
    /// As the planner calls it: `Seq Scan`, `Index Scan`.
    pub way: String,
    pub index: Option<String>,
    /// Expected to come of it.
    pub rows: u64,
    /// Rows of the table by its statistics; `None` where it was never analyzed.
    pub table_rows: Option<u64>,
}

impl Scan {
    /// A large table is read whole.
    pub fn is_costly(&self) -> bool {
        self.way == "Seq Scan" && self.table_rows.is_some_and(|rows| rows >= LARGE_TABLE)
    }
}

/// What an incremental pass reads: the rows behind its cursor, in the order of that.
#[derive(Debug, Clone, Copy)]
pub struct Pass<'a> {
    /// The table that the rows of the query stand for, quoted and qualified; `None` is the query itself.
    pub table: Option<&'a str>,
    pub cursor: &'a [&'a str],
}

type Asked<T> = Result<T, tokio_postgres::Error>;

/// For a query that `check` and `check_plan` found clean; `None` where the answer is no plan. The client must not be in a
/// transaction.
pub async fn summary(client: &Client, sql: &str, pass: Option<&Pass<'_>>) -> Asked<Option<Summary>> {
    client.batch_execute(&format!("begin read only; {SESSION}; {LIMITS}")).await?;
    let summed = sum_up(client, sql, pass).await;
    client.batch_execute("rollback").await?;
    summed
}

async fn sum_up(client: &Client, sql: &str, pass: Option<&Pass<'_>>) -> Asked<Option<Summary>> {
    let (select, parameters) = match pass {
        None => (format!("select * from {}", wrap(sql)), 0),
        Some(pass) => (behind(client, sql, pass).await?, pass.cursor.len()),
    };
    let Some(plan) = explain(client, &select, parameters, true).await? else { return Ok(None) };
    let mut scans = Vec::new();
    collect(&plan, &mut scans);
    let sizes = sizes(client, &scans).await?;
    let scan = |(found, table_rows): (Found, Option<u64>)| Scan {
        table: format!("{}.{}", found.schema, found.table),
        way: found.way,
        index: found.index,
        rows: found.rows,
        table_rows,
    };
    Ok(Some(Summary {
        rows: plan["Plan Rows"].as_u64().unwrap_or_default(),
        cost: plan["Total Cost"].as_f64().unwrap_or_default(),
        scans: scans.into_iter().zip(sizes).map(scan).collect(),
    }))
}

/// The server itself writes the identifiers. The values come with each page: a plan that serves any of them is asked for.
async fn behind(client: &Client, sql: &str, pass: &Pass<'_>) -> Asked<String> {
    let written = "select string_agg(format('q.%I', name), ', ' order by n) from unnest($1::text[]) with ordinality c(name, n)";
    let cursor: String = client.query_one(written, &[&pass.cursor]).await?.get(0);
    let values = (1..=pass.cursor.len()).map(|number| format!("${number}")).collect::<Vec<_>>().join(", ");
    let relation = pass.table.map_or_else(|| wrap(sql), |table| format!("{table} q"));
    Ok(format!(
        "select {cursor} from {relation} where ({cursor}) > ({values}) order by {cursor} limit {PAGE}"
    ))
}

struct Found {
    schema: String,
    table: String,
    way: String,
    index: Option<String>,
    rows: u64,
}

fn collect(node: &Value, found: &mut Vec<Found>) {
    let text = |field: &str| node[field].as_str().map(str::to_owned);
    let below = node["Plans"].as_array().map(Vec::as_slice).unwrap_or_default();
    if let Some(table) = text("Relation Name") {
        let bitmap = || below.iter().find_map(|child| child["Index Name"].as_str().map(str::to_owned));
        found.push(Found {
            schema: text("Schema").unwrap_or_default(),
            table,
            way: text("Node Type").unwrap_or_default(),
            index: text("Index Name").or_else(bitmap),
            rows: node["Plan Rows"].as_u64().unwrap_or_default(),
        });
    }
    below.iter().for_each(|child| collect(child, found));
}

/// By the statistics, in the order of the scans.
async fn sizes(client: &Client, scans: &[Found]) -> Asked<Vec<Option<u64>>> {
    let schemas: Vec<&str> = scans.iter().map(|scan| scan.schema.as_str()).collect();
    let tables: Vec<&str> = scans.iter().map(|scan| scan.table.as_str()).collect();
    let sql =
        "select c.reltuples::int8 from unnest($1::text[], $2::text[]) with ordinality w(schema, name, n)
                 left join pg_namespace s on s.nspname = w.schema
                 left join pg_class c on c.relnamespace = s.oid and c.relname = w.name order by w.n";
    let rows = client.query(sql, &[&schemas, &tables]).await?;
    // Never analyzed is less than none.
    Ok(rows
        .iter()
        .map(|row| row.get::<_, Option<i64>>(0).and_then(|rows| u64::try_from(rows).ok()))
        .collect())
}
