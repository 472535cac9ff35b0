//! Whether reading in pages costs the source about as much as reading once, by its own planner.

use serde_json::Value;
use vitrina_core::Result;

use super::reader::Reader;
use crate::sql::{OrderedColumn, compare, expressions};

/// Pages may cost this much more than one stream: they hold no snapshot and no transaction between batches.
const WORTH: f64 = 1.2;

/// What makes every page compute the rows of other pages as well.
const WHOLE: [&str; 7] = ["Aggregate", "Group", "WindowAgg", "Sort", "Hash Join", "Merge Join", "SetOp"];

struct Plan {
    cost: f64,
    rows: f64,
    /// Some step needs all of its input before its first row, or reads past what is asked for.
    whole: bool,
}

/// Looks at a page in the middle of the key: the first one is cheap even where every later page would
/// compute the query anew, up to where it begins.
pub(super) async fn pages_are_cheap(reader: &Reader, key: &[OrderedColumn]) -> Result<bool> {
    let Some(middle) = middle(reader, key).await? else { return Ok(false) };
    let order = expressions(key, "q");
    let stream = explain(reader, &format!("order by {order}")).await?;
    let after = compare(&key[..1], "q", ">", &[middle]);
    let tail = format!("where {after} order by {order} fetch first {} rows with ties", reader.page_rows());
    let page = explain(reader, &tail).await?;
    let pages = (stream.rows / reader.page_rows() as f64).ceil().max(1.0);
    Ok(!page.whole && page.cost * pages <= stream.cost * WORTH)
}

/// How many rows the planner expects.
pub(super) async fn rows(reader: &Reader, tail: &str) -> Result<u64> {
    Ok(explain(reader, tail).await?.rows as u64)
}

/// A key from the middle, as the statistics of its table know it.
async fn middle(reader: &Reader, key: &[OrderedColumn]) -> Result<Option<String>> {
    let Some((table, column)) = reader.column(&key[0].name, "key")?.origin else { return Ok(None) };
    let sql = format!(
        "select bounds[array_length(bounds, 1) / 2 + 1] from (
            select s.histogram_bounds::text::text[] as bounds
              from pg_stats s join pg_class c on c.oid = {table} join pg_namespace n on n.oid = c.relnamespace
              join pg_attribute a on a.attrelid = c.oid and a.attnum = {column}
             where s.schemaname = n.nspname and s.tablename = c.relname and s.attname = a.attname and not s.inherited) known"
    );
    let rows = reader.rows(&sql).await?;
    Ok(rows.first().and_then(|row| row.get(0)))
}

async fn explain(reader: &Reader, tail: &str) -> Result<Plan> {
    let text = reader.text(&format!("explain (format json) {}", reader.select(tail))).await?;
    let plan: Value = serde_json::from_str(&text).unwrap_or_default();
    let figure = |name: &str| plan[0]["Plan"][name].as_f64().unwrap_or(f64::MAX);
    Ok(Plan { cost: figure("Total Cost"), rows: figure("Plan Rows"), whole: is_whole(&plan[0]["Plan"]) })
}

fn is_whole(node: &Value) -> bool {
    let kind = node["Node Type"].as_str().unwrap_or_default();
    let below = node["Plans"].as_array().map(Vec::as_slice).unwrap_or_default();
    WHOLE.contains(&kind) || below.iter().any(is_whole)
}
