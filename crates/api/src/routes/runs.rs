//! Runs, for people and pollers.

use axum::Json;
use vitrina_store::PipelineRef;

use super::documentation::{InvalidRequest, NoPipeline, NoRun};
use crate::app::App;
use crate::documents::{Batch, LogLine, Page, Run, RunDetail, RunMetrics};
use crate::error::Result;
use crate::extract::{PipelinePath, RunPath, Scoped};
use crate::query::{Followed, NumberedSlice, Params, RunSlice, Wait, Window, run_cursor};
use crate::services::runs;

/// A pipeline's runs, newest first
#[utoipa::path(get, path = "/pipelines/{p}/runs", tag = "runs", operation_id = "list_pipeline_runs",
    params(("p" = String, Path, description = "id or name"), RunSlice),
    responses((status = 200, body = Page<Run>), NoPipeline, InvalidRequest))]
pub(super) async fn of_pipeline(
    Scoped(app): Scoped,
    PipelinePath(reference): PipelinePath,
    Params(slice): Params<RunSlice>,
) -> Result<Json<Page<Run>>> {
    page(&app, Some(&reference), &slice).await
}

/// The runs of all pipelines, newest first
#[utoipa::path(get, path = "/runs", tag = "runs", operation_id = "list_runs",
    params(RunSlice),
    responses((status = 200, body = Page<Run>), InvalidRequest))]
pub(super) async fn list(Scoped(app): Scoped, Params(slice): Params<RunSlice>) -> Result<Json<Page<Run>>> {
    page(&app, None, &slice).await
}

async fn page(app: &App, pipeline: Option<&PipelineRef>, slice: &RunSlice) -> Result<Json<Page<Run>>> {
    let (records, next) = runs::list(app, pipeline, slice.status, slice.after()?, slice.rows()?).await?;
    Ok(Json(Page { next_cursor: next.as_ref().map(run_cursor), ..Page::whole(records) }))
}

/// The committed batches of a run, in their order
#[utoipa::path(get, path = "/runs/{id}/batches", tag = "runs", operation_id = "list_run_batches",
    params(("id" = Uuid, Path), NumberedSlice),
    responses((status = 200, body = Page<Batch>), NoRun, InvalidRequest))]
pub(super) async fn batches(
    Scoped(app): Scoped,
    RunPath(id): RunPath,
    Params(slice): Params<NumberedSlice>,
) -> Result<Json<Page<Batch>>> {
    let (records, next) = runs::batches(&app, id, slice.after()?.unwrap_or(0), slice.rows()?).await?;
    Ok(Json(Page { next_cursor: next.map(|id| id.to_string()), ..Page::whole(records) }))
}

/// What was noticed during a run, in its order
///
/// With `wait` the answer comes as soon as there is a line. `next_cursor` is there as long as more may come: who follows a
/// run asks on until it is null.
#[utoipa::path(get, path = "/runs/{id}/logs", tag = "runs", operation_id = "list_run_logs",
    params(("id" = Uuid, Path), Followed),
    responses((status = 200, body = Page<LogLine>), NoRun, InvalidRequest))]
pub(super) async fn logs(
    Scoped(app): Scoped,
    RunPath(id): RunPath,
    Params(followed): Params<Followed>,
) -> Result<Json<Page<LogLine>>> {
    let (rows, wait) = (followed.rows()?, followed.time()?);
    let (records, next) = runs::logs(&app, id, followed.cursor, rows, wait).await?;
    Ok(Json(Page { next_cursor: next.map(|id| id.to_string()), ..Page::whole(records) }))
}

/// The runs of a pipeline over a window of time, taken together
#[utoipa::path(get, path = "/pipelines/{p}/metrics", tag = "runs", operation_id = "get_pipeline_metrics",
    params(("p" = String, Path, description = "id or name"), Window),
    responses((status = 200, body = RunMetrics), NoPipeline, InvalidRequest))]
pub(super) async fn metrics(
    Scoped(app): Scoped,
    PipelinePath(reference): PipelinePath,
    Params(window): Params<Window>,
) -> Result<Json<RunMetrics>> {
    Ok(Json(runs::metrics(&app, &reference, window.seconds()?).await?))
}

/// A run with its attempts
///
/// With `wait` the answer comes when the run is closed.
#[utoipa::path(get, path = "/runs/{id}", tag = "runs", operation_id = "get_run",
    params(("id" = Uuid, Path), Wait),
    responses((status = 200, body = RunDetail), NoRun, InvalidRequest))]
pub(super) async fn show(
    Scoped(app): Scoped,
    RunPath(id): RunPath,
    Params(wait): Params<Wait>,
) -> Result<Json<RunDetail>> {
    let (run, attempts) = runs::follow(&app, id, wait.time()?).await?;
    Ok(Json(RunDetail::new(run, attempts)))
}
