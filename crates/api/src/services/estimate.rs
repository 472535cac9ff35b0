//! How many rows a source would have to read again: asked of its planner, read only, and not for long.

use std::time::Duration;

use tokio::time::timeout;
use vitrina_core::{Capture, Checkpoint, Mode, Pipeline};
use vitrina_guard::From;

use crate::SourceConnection;
use crate::app::App;

const PATIENCE: Duration = Duration::from_secs(5);

/// The rows that a run from this checkpoint on would read, or why nobody can say.
pub(super) async fn rows(app: &App, pipeline: &Pipeline, checkpoint: &Checkpoint) -> Result<u64, String> {
    let connection = app.rules.source_connections.get(&pipeline.source_connection);
    let connection = connection.ok_or("this server has no connection to the source")?;
    let sql = pipeline.reader_sql().ok_or("the source is no query")?;
    let bound = bound(pipeline, checkpoint)?;
    if !vitrina_guard::check(&sql, &connection.allowed_schemas).is_empty() {
        return Err("the query is not one that may be asked".to_owned());
    }
    let from = pipeline.incremental_key.as_deref().zip(bound.as_deref());
    let from = from.map(|(column, value)| From { column, value });
    let asked = timeout(PATIENCE, ask(connection, &sql, from)).await;
    asked.unwrap_or_else(|_| Err("the source does not answer within 5 s".to_owned()))
}

/// Where a cursor would start; `None` is the beginning.
fn bound(pipeline: &Pipeline, checkpoint: &Checkpoint) -> Result<Option<String>, String> {
    let done = &checkpoint.position.done;
    if pipeline.mode == Mode::Full || done.is_null() {
        return Ok(None);
    }
    match pipeline.capture {
        Capture::Cursor => Ok(done["bound"][0].as_str().map(str::to_owned)),
        Capture::Changelog => Err("a planner does not know what a change log holds".to_owned()),
    }
}

/// Of the source's text only the SQLSTATE is told.
async fn ask(connection: &SourceConnection, sql: &str, from: Option<From<'_>>) -> Result<u64, String> {
    let session = connection.read("estimate").await?;
    let rows =
        vitrina_guard::estimate(&session.client, sql, from).await.map_err(|error| match error.code() {
            Some(state) => format!("the source refuses to plan the query (SQLSTATE {})", state.code()),
            None => "the connection to the source is lost".to_owned(),
        })?;
    rows.ok_or_else(|| "the source answers with no plan".to_owned())
}
