//! Is this SQL a single harmless SELECT on allowed schemas? (R-SEC-1, DESIGN §9)
//!
//! The verdict is the real Postgres grammar's, and it holds for sessions under `SESSION`: there an
//! unqualified function, type or operator is the built-in one. The reader's grants stand behind it.

mod connect;
mod describe;
mod driving;
mod estimate;
mod explain;
mod finding;
mod functions;
mod grants;
mod key_column;
mod key_values;
mod keyed;
mod marked;
mod parse;
mod plan;
mod projection;
mod proposed_key;
mod reading;
mod refusal;
mod relations;
mod rights;
mod rules;
mod sample;
mod secret;
mod summary;
mod table;
mod unique;
mod visible;
mod walk;
mod work;
mod wrap;

pub use connect::{Driver, Unconnected, address, connect};
pub use describe::{DescribeError, DescribedColumn, columns, describe};
pub use driving::{ChangeTable, TableColumn, are_spelled_alike, change_table, driving_table, named_table};
pub use estimate::{From, estimate};
pub use finding::Finding;
pub use grants::{FromPublic, Grant, ReaderLogin, literal, quoted, reader_grants, reader_settings};
pub use key_values::{Misfit, ends_before_it_begins, misfit};
pub use keyed::check_keyed;
pub use marked::marked;
pub use plan::check_plan;
pub use proposed_key::proposed_key;
pub use reading::{Reading, shown_address};
pub use relations::relations;
pub use rights::READS_ELSEWHERE;
pub use sample::{Sample, SampleLimits, sample};
pub use secret::Secret;
pub use summary::{LARGE_TABLE, Pass, Scan, Summary, summary};
pub use table::check_table;
pub use visible::{MOST_TABLES, Visible, VisibleColumn, VisibleTable, visible};
pub use wrap::wrap;

/// Longer SQL is refused before anything looks at it.
pub const MAX_BYTES: usize = 16 * 1024;

/// What a transaction must set before it runs checked SQL; otherwise the server may read the text
/// differently than the guard did. Named, the schema of temporary objects is searched last; unnamed, first. With row
/// security off a policy raises an error instead of hiding rows.
pub const SESSION: &str = "set local search_path = pg_catalog, pg_temp; set local row_security = off;
    set local standard_conforming_strings = on";

/// All that is wrong with a query; empty means clean.
pub fn check(sql: &str, allowed_schemas: &[String]) -> Vec<Finding> {
    parse::inspect(sql, allowed_schemas, 0)
}

/// The same for the `keys` query of a watched table, which takes the changed keys as `$1`.
pub fn check_watch(sql: &str, allowed_schemas: &[String]) -> Vec<Finding> {
    parse::inspect(sql, allowed_schemas, 1)
}
