//! Pipelines: listed, created, shown, deleted, and how they stand.

use axum::extract::State;
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::{Extension, Json};

use super::documentation::{
    BadBody, InvalidPipeline, InvalidRequest, NameTaken, NoPipeline, NotJson, StillActive, TooLarge,
};
use crate::access::Actor;
use crate::app::App;
use crate::error::Result;
use crate::extract::{Body, PipelinePath};
use crate::models::{NewPipeline, Page, PipelineDetail, PipelineStatus, PipelineSummary};
use crate::query::{Nothing, Params, Slice, Wait};
use crate::services::{pipelines, runs};

/// Pipelines by name
#[utoipa::path(get, path = "/pipelines", tag = "pipelines", operation_id = "list_pipelines",
    params(Slice),
    responses((status = 200, body = Page<PipelineSummary>), InvalidRequest))]
pub(super) async fn list(
    State(app): State<App>,
    Params(slice): Params<Slice>,
) -> Result<Json<Page<PipelineSummary>>> {
    let (records, next_cursor) = pipelines::list(&app, slice.rows()?, slice.cursor.as_deref()).await?;
    Ok(Json(Page { next_cursor, ..Page::whole(records) }))
}

/// Create a pipeline
///
/// All broken rules are reported at once, those of the SQL guard with line and column.
#[utoipa::path(post, path = "/pipelines", tag = "pipelines", operation_id = "create_pipeline",
    request_body = NewPipeline,
    responses(
        (status = 201, body = PipelineDetail, headers(
            ("location", description = "the pipeline"), ("etag", description = "its version"))),
        BadBody, NameTaken, TooLarge, NotJson, InvalidPipeline))]
pub(super) async fn create(
    State(app): State<App>,
    Extension(actor): Extension<Actor>,
    Params(Nothing {}): Params<Nothing>,
    Body(new): Body<NewPipeline>,
) -> Result<Response> {
    let record = pipelines::create(&app, &actor, new).await?;
    let location = format!("/api/v1/pipelines/{}", record.config.id);
    let headers = [(header::LOCATION, location), (header::ETAG, etag(record.version))];
    Ok((StatusCode::CREATED, headers, Json(PipelineDetail::from(record))).into_response())
}

/// A pipeline with all of its configuration
#[utoipa::path(get, path = "/pipelines/{p}", tag = "pipelines", operation_id = "get_pipeline",
    params(("p" = String, Path, description = "id or name")),
    responses((status = 200, body = PipelineDetail, headers(("etag", description = "its version"))), NoPipeline))]
pub(super) async fn show(State(app): State<App>, PipelinePath(reference): PipelinePath) -> Result<Response> {
    let record = pipelines::find(&app, &reference).await?;
    Ok(([(header::ETAG, etag(record.version))], Json(PipelineDetail::from(record))).into_response())
}

/// Delete a pipeline with its history
#[utoipa::path(delete, path = "/pipelines/{p}", tag = "pipelines", operation_id = "delete_pipeline",
    params(("p" = String, Path, description = "id or name")),
    responses((status = 204), NoPipeline, StillActive))]
pub(super) async fn delete(
    State(app): State<App>,
    Extension(actor): Extension<Actor>,
    PipelinePath(reference): PipelinePath,
) -> Result<StatusCode> {
    pipelines::delete(&app, &actor, &reference).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// How a pipeline stands
///
/// With `wait` the answer comes when the status changes: from the one that `If-None-Match` names,
/// else from the one at the time of the call.
#[utoipa::path(get, path = "/pipelines/{p}/status", tag = "pipelines", operation_id = "get_pipeline_status",
    params(("p" = String, Path, description = "id or name"), Wait,
           ("if-none-match" = Option<String>, Header, description = "the etag of the status that is known")),
    responses((status = 200, body = PipelineStatus, headers(("etag"))),
              (status = 304, description = "still as If-None-Match says"), NoPipeline, InvalidRequest))]
pub(super) async fn status(
    State(app): State<App>,
    PipelinePath(reference): PipelinePath,
    Params(wait): Params<Wait>,
    headers: HeaderMap,
) -> Result<Response> {
    let known = headers.get(header::IF_NONE_MATCH).and_then(|value| value.to_str().ok());
    let status = runs::status(&app, &reference, wait.time()?, known).await?;
    let etag = status.etag();
    if known == Some(etag.as_str()) {
        return Ok((StatusCode::NOT_MODIFIED, [(header::ETAG, etag)]).into_response());
    }
    Ok(([(header::ETAG, etag)], Json(status)).into_response())
}

pub(super) fn etag(version: i64) -> String {
    format!("\"{version}\"")
}
