//! Runs, for people and pollers.

use axum::Json;
use axum::extract::State;

use super::documentation::{InvalidRequest, NoPipeline, NoRun};
use crate::app::App;
use crate::error::Result;
use crate::extract::{PipelinePath, RunPath};
use crate::models::{Page, Run, RunDetail};
use crate::query::{Limit, Params, Wait};
use crate::services::runs;

/// A pipeline's runs, newest first
#[utoipa::path(get, path = "/pipelines/{p}/runs", tag = "runs", operation_id = "list_pipeline_runs",
    params(("p" = String, Path, description = "id or name"), Limit),
    responses((status = 200, body = Page<Run>), NoPipeline, InvalidRequest))]
pub(super) async fn of_pipeline(
    State(app): State<App>,
    PipelinePath(reference): PipelinePath,
    Params(limit): Params<Limit>,
) -> Result<Json<Page<Run>>> {
    Ok(Json(Page::whole(runs::of_pipeline(&app, &reference, limit.rows()?).await?)))
}

/// A run with its attempts
///
/// With `wait` the answer comes when the run is closed.
#[utoipa::path(get, path = "/runs/{id}", tag = "runs", operation_id = "get_run",
    params(("id" = Uuid, Path), Wait),
    responses((status = 200, body = RunDetail), NoRun, InvalidRequest))]
pub(super) async fn show(
    State(app): State<App>,
    RunPath(id): RunPath,
    Params(wait): Params<Wait>,
) -> Result<Json<RunDetail>> {
    let (run, attempts) = runs::follow(&app, id, wait.time()?).await?;
    Ok(Json(RunDetail::new(run, attempts)))
}
