//! Do the indexes equal their source? The installed queries are recomputed in one snapshot, and every row is looked for as
//! a document.

use anyhow::Result;
use jiff::Timestamp;
use reqwest::Method;
use serde_json::{Value, json};
use sqlx::{AssertSqlSafe, Connection, PgConnection};
use vitrina_cinema::INDEX_PIPELINES;

use super::Server;
use crate::output::grouped;

/// Documents that are asked for at a time.
const PAGE: i64 = 1000;

/// The field in which a document carries the checksum of its row.
const CHECKSUM: &str = "_vitrina";

/// An index beside the query of its pipeline.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Check {
    target: String,
    documents: u64,
    /// Only the query has them.
    missing: u64,
    /// Only the index has them.
    extra: u64,
    different: u64,
}

impl Check {
    pub(super) fn is_equal(&self) -> bool {
        self.missing == 0 && self.extra == 0 && self.different == 0
    }

    pub(super) fn verdict(&self) -> String {
        let Self { target, documents, missing, extra, different } = self;
        let documents = grouped(*documents);
        match self.is_equal() {
            true => format!("{target}: {documents} documents, equal to its source"),
            false => format!(
                "{target}: {documents} documents, DIFFERS: {missing} missing, {extra} extra, {different} different"
            ),
        }
    }
}

pub(super) async fn verify(url: &str, server: &Server) -> Result<Vec<Check>> {
    let mut connection = PgConnection::connect(url).await?;
    let mut snapshot = connection.begin_with("begin isolation level repeatable read, read only").await?;
    let mut checks = Vec::new();
    for (pipeline, _) in INDEX_PIPELINES {
        let query = "select p.target_table, quote_ident(t.key[1]), p.source_query from etl.etl_pipelines p
                       join etl.etl_targets t on t.name = p.target_table where p.name = $1";
        let (target, key, query): (String, String, String) =
            sqlx::query_as(query).bind(pipeline).fetch_one(&mut *snapshot).await?;
        let rows = format!(
            "declare source no scroll cursor for select {key}::text, to_jsonb(q)::text from (\n{query}\n) q"
        );
        sqlx::raw_sql(AssertSqlSafe(rows)).execute(&mut *snapshot).await?;
        checks.push(compare(&mut snapshot, server, target).await?);
        sqlx::raw_sql("close source").execute(&mut *snapshot).await?;
    }
    snapshot.rollback().await?;
    connection.close().await?;
    Ok(checks)
}

async fn compare(snapshot: &mut PgConnection, server: &Server, target: String) -> Result<Check> {
    let index = target.trim_start_matches("es:").to_owned();
    server.ask(Method::POST, &[&index, "_refresh"], None).await?;
    let counted = server.ask(Method::GET, &[&index, "_count"], None).await?;
    let mut check =
        Check { target, documents: counted["count"].as_u64().unwrap_or_default(), ..Check::default() };
    let mut found = 0;
    loop {
        let page = format!("fetch {PAGE} from source");
        let rows: Vec<(String, String)> =
            sqlx::query_as(AssertSqlSafe(page)).fetch_all(&mut *snapshot).await?;
        if rows.is_empty() {
            check.extra = check.documents.saturating_sub(found);
            return Ok(check);
        }
        let ids: Vec<&String> = rows.iter().map(|(id, _)| id).collect();
        let answer = server.ask(Method::POST, &[&index, "_mget"], Some(&json!({"ids": ids}))).await?;
        let documents = answer["docs"].as_array().map(Vec::as_slice).unwrap_or_default();
        // They come in the order they were asked for.
        for ((_, row), document) in rows.iter().zip(documents) {
            found += u64::from(document["found"] == true);
            match document.get("_source").map(without_checksum) {
                None => check.missing += 1,
                Some(source) if !same(&source, &serde_json::from_str(row)?) => check.different += 1,
                Some(_) => {}
            }
        }
    }
}

/// The sink adds one field to what a row says; this proof looks at the values themselves.
fn without_checksum(document: &Value) -> Value {
    let mut document = document.clone();
    document.as_object_mut().map(|fields| fields.remove(CHECKSUM));
    document
}

/// As JSON of the sink and as JSON of Postgres: a moment has two spellings, and a number several.
fn same(document: &Value, row: &Value) -> bool {
    match (document, row) {
        (Value::Object(document), Value::Object(row)) => {
            document.len() == row.len()
                && document
                    .iter()
                    .all(|(field, value)| row.get(field).is_some_and(|other| same(value, other)))
        }
        (Value::Array(document), Value::Array(row)) => {
            document.len() == row.len() && document.iter().zip(row).all(|(one, other)| same(one, other))
        }
        (Value::Number(document), Value::Number(row)) => document.as_f64() == row.as_f64(),
        (Value::String(document), Value::String(row)) => document == row || is_same_moment(document, row),
        _ => document == row,
    }
}

fn is_same_moment(one: &str, other: &str) -> bool {
    let moment = |text: &str| text.parse::<Timestamp>().ok();
    moment(one).is_some_and(|one| moment(other) == Some(one))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_moment_and_a_number_are_the_same_in_every_spelling() {
        let document =
            json!({"at": "2024-02-29T09:30:00.5Z", "rating": 8.5, "genres": ["War"], "none": null});
        let row =
            json!({"at": "2024-02-29T12:30:00.5+03:00", "rating": 8.50, "genres": ["War"], "none": null});
        assert!(same(&document, &row));
    }

    #[test]
    fn other_values_other_orders_and_other_fields_are_not_the_same() {
        for (document, row) in [
            (json!({"a": 1}), json!({"a": 2})),
            (json!({"a": 1}), json!({"a": 1, "b": null})),
            (json!({"a": ["x", "y"]}), json!({"a": ["y", "x"]})),
            (json!({"a": "2024-02-29"}), json!({"a": "2024-03-01"})),
            (json!({"a": null}), json!({"a": ""})),
        ] {
            assert!(!same(&document, &row), "{document} {row}");
        }
    }
}
