//! How many rows a query brings, by the planner of its source: asked, and never counted.

use serde_json::Value;
use tokio_postgres::Client;

use crate::explain::explain;
use crate::{SESSION, wrap};

/// Rows whose column is not less than a value, in its text form.
#[derive(Debug, Clone, Copy)]
pub struct From<'a> {
    pub column: &'a str,
    pub value: &'a str,
}

/// For a query that `check` found clean; `None` where the answer is no plan. The client must not be in a
/// transaction.
pub async fn estimate(
    client: &Client,
    sql: &str,
    from: Option<From<'_>>,
) -> Result<Option<u64>, tokio_postgres::Error> {
    let begin = format!("begin read only; {SESSION}; set local statement_timeout = '5s'");
    client.batch_execute(&begin).await?;
    let planned = plan(client, sql, from).await;
    client.batch_execute("rollback").await?;
    Ok(planned?.and_then(|plan| plan["Plan Rows"].as_u64()))
}

async fn plan(
    client: &Client,
    sql: &str,
    from: Option<From<'_>>,
) -> Result<Option<Value>, tokio_postgres::Error> {
    let condition = match from {
        // The server itself writes the identifier and the literal.
        Some(From { column, value }) => {
            let written = "select format(' where q.%I >= %L', $1::text, $2::text)";
            client.query_one(written, &[&column, &value]).await?.get(0)
        }
        None => String::new(),
    };
    explain(client, &format!("select * from {}{condition}", wrap(sql)), 0, false).await
}
