//! Sample rows of a query: read only, few, and not for long. Nothing is written, and no transform is applied.

use uuid::Uuid;
use vitrina_core::{Pipeline, PipelineId};
use vitrina_guard::{Sample, SampleLimits};
use vitrina_store::PipelineRef;

use crate::app::App;
use crate::documents::PipelineConfig;
use crate::error::{Error, Result};
use crate::problem::Fault;
use crate::settings::Seat;

use super::checks::{self, Refused};
use super::rules;

pub(crate) async fn of_saved(app: &App, reference: &PipelineRef, rows: usize) -> Result<Sample> {
    let pipeline = app.store.pipeline(reference).await?.config;
    of(app, &pipeline, rows).await
}

pub(crate) async fn of_unsaved(app: &App, config: PipelineConfig, rows: usize) -> Result<Sample> {
    of(app, &draft(app, config)?, rows).await
}

/// A configuration that may still lack much, but says nothing wrong.
pub(super) fn draft(app: &App, config: PipelineConfig) -> Result<Pipeline> {
    let pipeline = config.into_pipeline(PipelineId(Uuid::now_v7()), &app.rules);
    match rules::number_faults(&pipeline) {
        faults if faults.is_empty() => Ok(pipeline),
        faults => Err(Error::InvalidSql(faults)),
    }
}

async fn of(app: &App, pipeline: &Pipeline, rows: usize) -> Result<Sample> {
    let Checked { session, sql, field } = checked(app, pipeline, "preview").await?;
    let limits = SampleLimits { max_rows: rows, ..SampleLimits::default() };
    let sampled = vitrina_guard::sample(&session.client, &sql, &limits).await;
    sampled.map_err(|error| refusal(field, checks::refused(error)))
}

/// A query that may be asked, and a session to ask in.
pub(super) struct Checked {
    pub(super) session: Seat,
    pub(super) sql: String,
    /// Where the query stands.
    pub(super) field: &'static str,
}

/// The guard comes first, whoever has saved the pipeline.
pub(super) async fn checked(app: &App, pipeline: &Pipeline, purpose: &str) -> Result<Checked> {
    let field = checks::query_field(pipeline);
    let fault = |code: &str, rule: &str| Error::InvalidSql(vec![Fault::new(field, code, rule)]);
    let connection = app.rules.source_connections.get(&pipeline.source_connection);
    let connection = connection
        .ok_or_else(|| fault("pipeline.source_connection", "this server does not know the source"))?;
    let sql = pipeline.reader_sql().ok_or_else(|| fault("pipeline.source", "there is no query to ask"))?;
    checks::harmless(pipeline, connection, &sql).await?;
    let session = connection.read(purpose).await.map_err(Error::SourceAway)?;
    checks::plan(&session, &sql, connection).await.map_err(|refused| refusal(field, refused))?;
    Ok(Checked { session, sql, field })
}

pub(super) fn refusal(field: &str, refused: Refused) -> Error {
    match refused {
        Refused::Sql(findings) => {
            Error::InvalidSql(findings.into_iter().map(|finding| rules::fault(field, finding)).collect())
        }
        Refused::Away(reason) => Error::SourceAway(reason),
    }
}
