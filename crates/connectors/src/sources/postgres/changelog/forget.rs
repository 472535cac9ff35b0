//! A deleted pipeline follows the log no more: what it has not read is not kept for it until it has been silent for too long.

use tokio_postgres::SimpleQueryMessage;
use vitrina_core::{Error, Result};

use crate::connection::{End, Session};
use crate::sources::Left;
use crate::sql::literal;

/// A login that may not look there has followed nothing.
const READABLE: &str = "select exists (select from pg_class c join pg_namespace n on n.oid = c.relnamespace
    where n.nspname = 'vitrina_log' and c.relname = 'change_consumers'
      and has_schema_privilege(n.oid, 'usage') and has_table_privilege(c.oid, 'select'))";
const FORGETS: &str = "select to_regprocedure('vitrina_log.forget_changes(uuid, uuid)') is not null";

pub(in crate::sources::postgres) async fn forget(left: &Left<'_>) -> Result<()> {
    let session =
        Session::open(left.connections.get(left.connection)?, End::Source, "vitrina/forget").await?;
    if !truth(&session, READABLE).await? {
        return Ok(());
    }
    let Some(dropped) = consumer(&session, left).await? else { return Ok(()) };
    if truth(&session, FORGETS).await? {
        return strike_out(&session, left).await;
    }
    if dropped { Ok(()) } else { Err(outdated(left)) }
}

async fn truth(session: &Session, sql: &'static str) -> Result<bool> {
    Ok(session.rows(sql).await?.first().is_some_and(|row| row.get(0)))
}

/// Whether the log has given this pipeline up by itself; none where it does not know it.
async fn consumer(session: &Session, left: &Left<'_>) -> Result<Option<bool>> {
    let (installation, pipeline) = names(left);
    let sql = format!(
        "select dropped from vitrina_log.change_consumers where installation = {installation} and pipeline = {pipeline}"
    );
    let row = session.client.query_opt(&sql, &[]).await.map_err(|error| session.explain(error))?;
    Ok(row.map(|row| row.get(0)))
}

async fn strike_out(session: &Session, left: &Left<'_>) -> Result<()> {
    let (installation, pipeline) = names(left);
    // A reader's sessions begin read-only.
    let sql =
        format!("begin read write; select vitrina_log.forget_changes({installation}, {pipeline}); commit");
    let answers = session.client.simple_query(&sql).await.map_err(|error| session.explain(error))?;
    let alone = answers.iter().any(|answer| match answer {
        SimpleQueryMessage::Row(row) => row.get(0) == Some("0"),
        _ => false,
    });
    if alone {
        tracing::warn!(
            connection = left.connection,
            "nobody follows this source's change log any more, and it grows with every change; `vitrina changelog remove TABLE --key …` ends the logging"
        );
    }
    Ok(())
}

fn names(left: &Left<'_>) -> (String, String) {
    (literal(&left.installation.to_string()), literal(&left.pipeline.to_string()))
}

fn outdated(left: &Left<'_>) -> Error {
    let message = format!(
        "the change log of source {:?} is of an older release and cannot be told that a pipeline is gone: it grows until runner.changelog_max_age has passed",
        left.connection
    );
    Error::fix("changelog.outdated", message)
        .hint("`vitrina changelog install TABLE --key …` of a logged table shows what its owner has to apply")
}
