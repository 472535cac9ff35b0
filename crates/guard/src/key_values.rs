//! Can these be values of a query's columns? Asked before a run is requested for them.

use tokio_postgres::Client;

use crate::describe::LIMITS;
use crate::sample::TEXTS;
use crate::{DescribeError, SESSION, describe};

/// A value that its column cannot have.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Misfit {
    /// Which of the keys.
    pub place: usize,
    pub column: String,
    pub type_name: String,
}

/// The name by which a cast reaches a type, where reading its text calls no code of users: a domain's checks may.
const PLAIN_TYPE: &str =
    "select format_type(oid, null), typcollation <> 0 from pg_type where oid = $1 and typtype in ('b', 'e', 'r', 'm')
       and not exists (select from pg_type d where d.oid = pg_type.typelem and d.typtype in ('d', 'c'))";

/// The first of the keys that no row of a query can have, which `check` found clean. Columns that the query does not
/// return are somebody else's to judge. The client must not be in a transaction.
pub async fn misfit(
    client: &Client,
    sql: &str,
    columns: &[String],
    keys: &[Vec<Option<String>>],
) -> Result<Option<Misfit>, DescribeError> {
    let described = describe(client, sql).await?;
    for (number, column) in columns.iter().enumerate() {
        let Some(found) = described.iter().find(|described| described.name == *column) else { continue };
        let row = client.query_opt(PLAIN_TYPE, &[&found.type_oid]).await.map_err(unanswered)?;
        let Some(type_name) = row.map(|row| row.get::<_, String>(0)) else { continue };
        let values: Vec<Option<&str>> =
            keys.iter().map(|key| key.get(number).and_then(Option::as_deref)).collect();
        if let Some(place) = first_unreadable(client, &type_name, &values).await? {
            return Ok(Some(Misfit { place, column: column.clone(), type_name }));
        }
    }
    Ok(None)
}

/// Whether a range of a query's column ends before it begins; a range that cannot be judged does not. The same holds of SQL
/// and client as above.
pub async fn ends_before_it_begins(
    client: &Client,
    sql: &str,
    column: &str,
    (from, to): (&str, &str),
) -> Result<bool, DescribeError> {
    let described = describe(client, sql).await?;
    let Some(found) = described.iter().find(|described| described.name == *column) else { return Ok(false) };
    let row = client.query_opt(PLAIN_TYPE, &[&found.type_oid]).await.map_err(unanswered)?;
    let Some(row) = row else { return Ok(false) };
    let (type_name, is_text): (String, bool) = (row.get(0), row.get(1));
    // A cursor of texts is read in the order of their bytes.
    let order = if is_text { "::text collate \"C\"" } else { "" };
    let compared = format!("select $1::text::{type_name}{order} > $2::text::{type_name}{order}");
    client
        .batch_execute(&format!("begin read only; {SESSION}; {TEXTS}; {LIMITS}"))
        .await
        .map_err(unanswered)?;
    let answer = client.query_one(&compared, &[&from, &to]).await;
    client.batch_execute("rollback").await.map_err(unanswered)?;
    Ok(answer.is_ok_and(|row| row.get::<_, Option<bool>>(0) == Some(true)))
}

/// By halves: one question where all are readable.
async fn first_unreadable(
    client: &Client,
    type_name: &str,
    values: &[Option<&str>],
) -> Result<Option<usize>, DescribeError> {
    if are_readable(client, type_name, values).await? {
        return Ok(None);
    }
    let (mut start, mut end) = (0, values.len());
    while end - start > 1 {
        let middle = start.midpoint(end);
        match are_readable(client, type_name, &values[start..middle]).await? {
            true => start = middle,
            false => end = middle,
        }
    }
    Ok(Some(start))
}

async fn are_readable(
    client: &Client,
    type_name: &str,
    values: &[Option<&str>],
) -> Result<bool, DescribeError> {
    client
        .batch_execute(&format!("begin read only; {SESSION}; {TEXTS}; {LIMITS}"))
        .await
        .map_err(unanswered)?;
    let sql = format!("select count(value::{type_name}) from unnest($1::text[]) value");
    let read = client.query_one(&sql, &[&values]).await;
    client.batch_execute("rollback").await.map_err(unanswered)?;
    match read {
        Ok(_) => Ok(true),
        // A data exception; whatever else went wrong says nothing about the values.
        Err(error) => match error.code() {
            Some(state) if state.code().starts_with("22") => Ok(false),
            Some(_) => Ok(true),
            None => Err(unanswered(error)),
        },
    }
}

fn unanswered(error: tokio_postgres::Error) -> DescribeError {
    vitrina_core::Error::release("source.unavailable", "the source did not answer").caused_by(error).into()
}
