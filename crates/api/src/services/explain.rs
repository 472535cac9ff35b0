//! What the planner of a source expects of a query: asked through all layers of the guard, and nothing is run.

use vitrina_core::{Capture, Mode, Pipeline};
use vitrina_guard::{ChangeTable, Pass, Summary};
use vitrina_store::PipelineRef;

use crate::app::App;
use crate::documents::{Explanation, PassPlan, PipelineConfig};
use crate::error::{Error, Result};

use super::checks;
use super::preview::{Checked, checked, draft, refusal};

pub(crate) async fn of_saved(app: &App, reference: &PipelineRef) -> Result<Explanation> {
    let pipeline = app.store.pipeline(reference).await?.config;
    of(app, &pipeline).await
}

pub(crate) async fn of_unsaved(app: &App, config: PipelineConfig) -> Result<Explanation> {
    of(app, &draft(app, config)?).await
}

async fn of(app: &App, pipeline: &Pipeline) -> Result<Explanation> {
    let checked = checked(app, pipeline, "explain").await?;
    let query = summed(&checked, None).await?.into();
    let cursor = cursor(pipeline);
    let incremental = match cursor.is_empty() {
        true => None,
        false => Some(pass(pipeline, &checked, &cursor).await?),
    };
    Ok(Explanation { query, incremental })
}

/// The columns that passes go by; none where a pipeline has no such passes.
fn cursor(pipeline: &Pipeline) -> Vec<&str> {
    let by_cursor = pipeline.mode == Mode::Incremental && pipeline.capture == Capture::Cursor;
    let first = pipeline.incremental_key.as_deref().filter(|_| by_cursor);
    let second = pipeline.incremental_id_key.as_deref().filter(|_| first.is_some());
    first.into_iter().chain(second).collect()
}

async fn pass(pipeline: &Pipeline, checked: &Checked, cursor: &[&str]) -> Result<PassPlan> {
    let (table, reason) = match driving(pipeline, checked, cursor).await? {
        Ok(table) => (Some(table), None),
        Err(reason) => (None, Some(reason)),
    };
    // The table may call the cursor by other names than the query does.
    let columns: Vec<&str> = match &table {
        Some(table) => table.columns.iter().take(cursor.len()).map(|column| column.name.as_str()).collect(),
        None => cursor.to_vec(),
    };
    let name = table.as_ref().map(|table| table.name.as_str());
    let plan = summed(checked, Some(&Pass { table: name, cursor: &columns })).await?.into();
    Ok(PassPlan {
        cursor: cursor.iter().map(|&name| name.to_owned()).collect(),
        indexed: table.as_ref().map(|table| table.indexed),
        table: table.map(|table| table.name),
        reason,
        plan,
    })
}

/// The table that the rows of the query stand for, or why there is none.
async fn driving(
    pipeline: &Pipeline,
    checked: &Checked,
    cursor: &[&str],
) -> Result<Result<ChangeTable, String>> {
    let (client, sql) = (&checked.session.client, &checked.sql);
    let described = vitrina_guard::describe(client, sql).await;
    let described = described.map_err(|error| refusal(checked.field, checks::refused(error)))?;
    let change_key = pipeline.change_key.iter().map(String::as_str);
    let wanted: Vec<&str> = cursor.iter().copied().chain(change_key).collect();
    let found = match pipeline.driving_table() {
        Some(table) => {
            vitrina_guard::named_table(client, sql, table, &described, &wanted, cursor.len()).await
        }
        None => vitrina_guard::driving_table(client, sql, &described, &wanted, cursor.len()).await,
    };
    found.map_err(|_| Error::SourceAway("the source did not describe its table".to_owned()))
}

/// Of the source's text only the SQLSTATE is told.
async fn summed(checked: &Checked, pass: Option<&Pass<'_>>) -> Result<Summary> {
    let summary = vitrina_guard::summary(&checked.session.client, &checked.sql, pass).await;
    let summary = summary.map_err(|error| {
        Error::SourceAway(match error.code() {
            Some(state) => format!("the source refuses to plan the query (SQLSTATE {})", state.code()),
            None => "the connection to the source is lost".to_owned(),
        })
    })?;
    summary.ok_or_else(|| Error::SourceAway("the source answers with no plan".to_owned()))
}
