//! What the planner of a source expects of a query.

use serde::Serialize;
use utoipa::ToSchema;
use vitrina_guard::{Scan, Summary};

/// How a query will be read.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Explanation {
    /// The whole query, as a full load reads it.
    pub(crate) query: QueryPlan,
    /// A page of an incremental pass by its cursor; null where there is none.
    pub(crate) incremental: Option<PassPlan>,
}

#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct QueryPlan {
    /// Rows that the planner expects.
    rows: u64,
    /// In the planner's own units; `runner.max_query_cost` is in the same.
    cost: f64,
    scans: Vec<TableScan>,
}

impl From<Summary> for QueryPlan {
    fn from(summary: Summary) -> Self {
        let Summary { rows, cost, scans } = summary;
        Self { rows, cost, scans: scans.into_iter().map(TableScan::from).collect() }
    }
}

/// How a table is read.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct TableScan {
    #[schema(example = "content.film_work")]
    table: String,
    /// As the planner calls it.
    #[schema(example = "Seq Scan")]
    way: String,
    index: Option<String>,
    /// Rows that the planner expects of it.
    rows: u64,
    /// Rows of the table by its statistics; null where it was never analyzed.
    table_rows: Option<u64>,
    /// A table of 100,000 rows or more is read whole.
    costly: bool,
}

impl From<Scan> for TableScan {
    fn from(scan: Scan) -> Self {
        let costly = scan.is_costly();
        let Scan { table, way, index, rows, table_rows } = scan;
        Self { table, way, index, rows, table_rows, costly }
    }
}

/// What an incremental pass reads, page by page.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct PassPlan {
    /// The columns of the cursor.
    pub(crate) cursor: Vec<String>,
    /// The table that the rows of the query stand for: keys are read there, and the query by those keys.
    pub(crate) table: Option<String>,
    /// Why there is no such table: the query itself is read behind the cursor.
    pub(crate) reason: Option<String>,
    /// An index of the table begins with the cursor; null where the query itself is read.
    pub(crate) indexed: Option<bool>,
    pub(crate) plan: QueryPlan,
}
