//! How many rows a query brings, by the planner of its source: asked, and never counted.

use tokio_postgres::{Client, SimpleQueryMessage};

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
    Ok(planned_rows(&planned?))
}

async fn plan(
    client: &Client,
    sql: &str,
    from: Option<From<'_>>,
) -> Result<Vec<SimpleQueryMessage>, tokio_postgres::Error> {
    let condition = match from {
        // The server itself writes the identifier and the literal.
        Some(From { column, value }) => {
            let written = "select format(' where q.%I >= %L', $1::text, $2::text)";
            client.query_one(written, &[&column, &value]).await?.get(0)
        }
        None => String::new(),
    };
    let explain = format!("explain (format json) select * from {}{condition}", wrap(sql));
    client.simple_query(&explain).await
}

fn planned_rows(answer: &[SimpleQueryMessage]) -> Option<u64> {
    let text = answer.iter().find_map(|message| match message {
        SimpleQueryMessage::Row(row) => row.get(0),
        _ => None,
    })?;
    let plan: serde_json::Value = serde_json::from_str(text).ok()?;
    plan[0]["Plan"]["Plan Rows"].as_u64()
}
