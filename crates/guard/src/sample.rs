//! The first rows of a query, for people: as texts, and never more than fits on a page.

use std::time::Duration;

use tokio_postgres::error::SqlState;
use tokio_postgres::{Client, Row};

use crate::refusal::Sent;
use crate::{DescribeError, DescribedColumn, Finding, SESSION, describe, wrap};

#[derive(Debug, Clone, Copy)]
pub struct SampleLimits {
    pub timeout: Duration,
    pub max_rows: usize,
    /// Of all values together.
    pub max_bytes: usize,
    /// Characters of one value.
    pub max_value: usize,
}

impl Default for SampleLimits {
    fn default() -> Self {
        Self { timeout: Duration::from_secs(10), max_rows: 100, max_bytes: 1024 * 1024, max_value: 4096 }
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Sample {
    pub columns: Vec<DescribedColumn>,
    /// One value a column, as Postgres writes it; `None` for NULL.
    pub rows: Vec<Vec<Option<String>>>,
    /// There are rows that are not shown.
    pub has_more: bool,
    /// Some values are shown in part, and end with `…`.
    pub is_cut: bool,
}

/// Text forms must not depend on a role's settings.
pub(crate) const TEXTS: &str =
    "set local datestyle = 'ISO, YMD'; set local timezone = 'UTC'; set local intervalstyle = postgres;
    set local bytea_output = hex; set local extra_float_digits = 1; set local lock_timeout = '2s'";
/// Advisory locks are all that outlives a transaction that is rolled back.
const END: &str = "rollback; select pg_advisory_unlock_all()";
const CUT: char = '…';

/// For a query that `check` and `check_plan` found clean. A query that takes too long is a finding. The client must not
/// be in a transaction.
pub async fn sample(client: &Client, sql: &str, limits: &SampleLimits) -> Result<Sample, DescribeError> {
    let columns = describe(client, sql).await?;
    let select = statement(sql, &columns, limits);
    let sent = Sent { client, sql, before: select.split("(\n").next().unwrap_or_default(), doing: "sample" };
    let timeout = limits.timeout.as_millis();
    let begin = format!("begin read only; {SESSION}; {TEXTS}; set local statement_timeout = {timeout}");
    client.batch_execute(&begin).await.map_err(|error| sent.unanswered(error))?;
    let rows = client.query(&select, &[]).await;
    client.batch_execute(END).await.map_err(|error| sent.unanswered(error))?;
    match rows {
        Ok(rows) => Ok(shown(columns, &rows, limits)),
        Err(error) if error.code() == Some(&SqlState::QUERY_CANCELED) => Err(too_slow(sql, limits)),
        Err(error) => Err(sent.refused(error)),
    }
}

/// The server cuts the values: a gigabyte never leaves it. One row and one character more than is shown tell whether
/// there are more.
fn statement(sql: &str, columns: &[DescribedColumn], limits: &SampleLimits) -> String {
    let names: Vec<String> = (0..columns.len()).map(|place| format!("c{place}")).collect();
    let characters = value_limit(columns, limits) + 1;
    let texts: Vec<String> = names.iter().map(|name| format!("left(q.{name}::text, {characters})")).collect();
    let alias = if names.is_empty() { String::new() } else { format!("({})", names.join(", ")) };
    format!("select {} from {}{alias} limit {}", texts.join(", "), wrap(sql), limits.max_rows + 1)
}

/// So many characters of each value that one row cannot use the room of all.
fn value_limit(columns: &[DescribedColumn], limits: &SampleLimits) -> usize {
    (limits.max_bytes / columns.len().max(1) / 4).clamp(1, limits.max_value)
}

fn shown(columns: Vec<DescribedColumn>, rows: &[Row], limits: &SampleLimits) -> Sample {
    let (most, mut left, mut is_cut) = (value_limit(&columns, limits), limits.max_bytes, false);
    let mut texts: Vec<Vec<Option<String>>> = Vec::new();
    for row in rows.iter().take(limits.max_rows) {
        let values: Vec<Option<String>> = (0..columns.len())
            .map(|place| row.get::<_, Option<&str>>(place).map(|text| cut(text, most)))
            .collect();
        let bytes: usize = values.iter().flatten().map(String::len).sum();
        if bytes > left {
            break;
        }
        left -= bytes;
        is_cut |= (0..columns.len()).any(|place| {
            row.get::<_, Option<&str>>(place).is_some_and(|text| text.chars().nth(most).is_some())
        });
        texts.push(values);
    }
    Sample { columns, has_more: texts.len() < rows.len(), rows: texts, is_cut }
}

fn cut(text: &str, most: usize) -> String {
    match text.char_indices().nth(most) {
        Some((end, _)) => format!("{}{CUT}", &text[..end]),
        None => text.to_owned(),
    }
}

fn too_slow(sql: &str, limits: &SampleLimits) -> DescribeError {
    let message = format!("the query did not answer within {} s", limits.timeout.as_secs());
    let finding = Finding::at(sql, 0, "sql.too_slow", message);
    DescribeError::Sql(vec![finding.hint("a run may take longer; for a look, read less")])
}
