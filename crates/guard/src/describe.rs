//! What a query's result looks like, asked of the source without running the query.

use std::collections::BTreeSet;

use tokio_postgres::{Client, Statement};

use crate::refusal::Sent;
use crate::{Finding, SESSION, wrap};

const BEFORE: &str = "select * from ";
/// A lock held by a migration must not hold the one who asks.
pub(crate) const LIMITS: &str = "set local statement_timeout = '10s'; set local lock_timeout = '2s'";

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DescribedColumn {
    pub name: String,
    pub type_oid: u32,
    pub type_name: String,
    pub type_modifier: i32,
    /// Oid of the table and number of the column, where it is a plain column of a table.
    pub origin: Option<(u32, i16)>,
}

#[derive(Debug, thiserror::Error)]
pub enum DescribeError {
    /// The author of the query can mend these.
    #[error("{}", .0.iter().map(Finding::to_string).collect::<Vec<_>>().join("\n"))]
    Sql(Vec<Finding>),
    /// The query may be fine; the source could not say.
    #[error(transparent)]
    Source(#[from] vitrina_core::Error),
}

/// The columns of a query that `check` found clean. The client must not be in a transaction.
pub async fn describe(client: &Client, sql: &str) -> Result<Vec<DescribedColumn>, DescribeError> {
    let sent = Sent { client, sql, before: BEFORE, doing: "describe" };
    let begin = format!("begin read only; {SESSION}; {LIMITS}");
    client.batch_execute(&begin).await.map_err(|error| sent.unanswered(error))?;
    let prepared = client.prepare(&format!("{BEFORE}{}", wrap(sql))).await;
    let ended = client.batch_execute("rollback").await;
    let statement = match prepared {
        Ok(statement) => statement,
        Err(error) => return Err(sent.refused_or_lacking(error).await),
    };
    ended.map_err(|error| sent.unanswered(error))?;
    without_duplicates(sql, described(&statement))
}

/// The same in a transaction of the caller, to be compared with what they were.
pub async fn columns(client: &Client, sql: &str) -> Result<Vec<DescribedColumn>, tokio_postgres::Error> {
    Ok(described(&client.prepare(&format!("{BEFORE}{}", wrap(sql))).await?))
}

impl DescribedColumn {
    /// Of the same name and type, wherever it comes from.
    pub fn is_like(&self, other: &Self) -> bool {
        let of = |column: &Self| (column.name.clone(), column.type_oid, column.type_modifier);
        of(self) == of(other)
    }
}

fn described(statement: &Statement) -> Vec<DescribedColumn> {
    let describe = |column: &tokio_postgres::Column| DescribedColumn {
        name: column.name().to_owned(),
        type_oid: column.type_().oid(),
        type_name: column.type_().name().to_owned(),
        type_modifier: column.type_modifier(),
        origin: column.table_oid().zip(column.column_id()),
    };
    statement.columns().iter().map(describe).collect()
}

fn without_duplicates(
    sql: &str,
    columns: Vec<DescribedColumn>,
) -> Result<Vec<DescribedColumn>, DescribeError> {
    let mut seen = BTreeSet::new();
    let duplicates: BTreeSet<&str> =
        columns.iter().map(|column| column.name.as_str()).filter(|name| !seen.insert(*name)).collect();
    if duplicates.is_empty() {
        return Ok(columns);
    }
    let finding = |name: &&str| {
        Finding::at(sql, 0, "sql.duplicate_column", format!("two columns are called {name}"))
            .hint("give each column a name of its own with AS")
    };
    Err(DescribeError::Sql(duplicates.iter().map(finding).collect()))
}
