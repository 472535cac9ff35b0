//! Pipelines: listed, created, shown, deleted, and how they stand.

use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::{Extension, Json};

use super::documentation::{
    BadBody, BadHeader, BadState, CannotEdit, ConfigMoved, InvalidPipeline, InvalidRequest, NameTaken,
    NoPipeline, NotJson, StillActive, TooLarge,
};
use serde_json::{Map, Value};
use vitrina_store::{Actor, PipelineRecord};

use crate::documents::{
    Page, PipelineConfig, PipelineConfigPatch, PipelineDetail, PipelineStatus, PipelineSummary, Question,
    Reloaded, SavedPipeline, Verdict,
};
use crate::error::Result;
use crate::extract::{Body, IfMatch, OptionalBody, PipelinePath, Scoped};
use crate::query::{DryRun, Params, PipelineSlice, Wait};
use crate::services::pipelines::Saved;
use crate::services::{pipelines, runs};

/// Pipelines, by name or as asked for
#[utoipa::path(get, path = "/pipelines", tag = "pipelines", operation_id = "list_pipelines",
    params(PipelineSlice),
    responses((status = 200, body = Page<PipelineSummary>), InvalidRequest))]
pub(super) async fn list(
    Scoped(app): Scoped,
    Params(slice): Params<PipelineSlice>,
) -> Result<impl IntoResponse> {
    let page = app.lookups.pipelines(app.store.scope(), slice.choice()?).await?;
    Ok(([(header::CONTENT_TYPE, "application/json")], page))
}

/// Create a pipeline
///
/// All broken rules are reported at once, those of the SQL guard with line and column. The query is described at its
/// source. With `dry_run` nothing is saved, and the answer is that of POST /validate. `warnings` name what its runs would
/// wait for: connections and Python functions that no living runner has.
#[utoipa::path(post, path = "/pipelines", tag = "pipelines", operation_id = "create_pipeline",
    params(DryRun),
    request_body = PipelineConfig,
    responses(
        (status = 200, description = "a dry run", body = Verdict),
        (status = 201, body = SavedPipeline, headers(
            ("location", description = "the pipeline"), ("etag", description = "its version"))),
        BadBody, NameTaken, TooLarge, NotJson, InvalidPipeline))]
pub(super) async fn create(
    Scoped(app): Scoped,
    Extension(actor): Extension<Actor>,
    Params(DryRun { dry_run }): Params<DryRun>,
    Body(config): Body<PipelineConfig>,
) -> Result<Response> {
    if dry_run {
        return Ok(Json(pipelines::forecast(&app, &actor, config).await?).into_response());
    }
    let Saved { record, warnings } = pipelines::create(&app, &actor, config).await?;
    let location = format!("/api/v1/pipelines/{}", record.config.id);
    let headers = [(header::LOCATION, location), (header::ETAG, etag(record.version))];
    let saved = SavedPipeline { pipeline: record.into(), warnings };
    Ok((StatusCode::CREATED, headers, Json(saved)).into_response())
}

/// A pipeline with all of its configuration
#[utoipa::path(get, path = "/pipelines/{p}", tag = "pipelines", operation_id = "get_pipeline",
    params(("p" = String, Path, description = "id or name")),
    responses((status = 200, body = PipelineDetail, headers(("etag", description = "its version"))), NoPipeline))]
pub(super) async fn show(Scoped(app): Scoped, PipelinePath(reference): PipelinePath) -> Result<Response> {
    let record = pipelines::find(&app, &reference).await?;
    Ok(shown(record))
}

fn shown(record: PipelineRecord) -> Response {
    ([(header::ETAG, etag(record.version))], Json(PipelineDetail::from(record))).into_response()
}

fn saved(Saved { record, warnings }: Saved) -> Response {
    let etag = etag(record.version);
    ([(header::ETAG, etag)], Json(SavedPipeline { pipeline: record.into(), warnings })).into_response()
}

/// Change a pipeline
///
/// A merge-patch (RFC 7396): fields that it names change, null sets back to the default, lists are replaced. While a run
/// is requested or active only name, description, tags, enabled, schedule, batch_size and limits may change. A caller who names
/// the version that it has seen, by `if-match`, changes only that one.
#[utoipa::path(patch, path = "/pipelines/{p}", tag = "pipelines", operation_id = "edit_pipeline",
    params(("p" = String, Path, description = "id or name"),
           ("if-match" = Option<String>, Header, description = "the etag of the version that is known; without it, or with *, any")),
    request_body(content = PipelineConfigPatch, content_type = "application/merge-patch+json"),
    responses((status = 200, body = SavedPipeline, headers(("etag", description = "its version"))),
              BadState, NoPipeline, CannotEdit, ConfigMoved, TooLarge, NotJson, InvalidPipeline))]
pub(super) async fn edit(
    Scoped(app): Scoped,
    Extension(actor): Extension<Actor>,
    PipelinePath(reference): PipelinePath,
    version: IfMatch,
    Body(patch): Body<Map<String, Value>>,
) -> Result<Response> {
    Ok(saved(pipelines::edit(&app, &actor, &reference, &patch, version.given()).await?))
}

/// Change a pipeline, in whatever version it is
///
/// As PATCH, without the need to name a version.
#[utoipa::path(post, path = "/pipelines/{p}/update-config", tag = "pipelines", operation_id = "update_pipeline_config",
    params(("p" = String, Path, description = "id or name"),
           ("if-match" = Option<String>, Header, description = "the etag of the version that is known")),
    request_body = PipelineConfigPatch,
    responses((status = 200, body = SavedPipeline, headers(("etag", description = "its version"))),
              BadState, NoPipeline, CannotEdit, ConfigMoved, TooLarge, NotJson, InvalidPipeline))]
pub(super) async fn update_config(
    Scoped(app): Scoped,
    Extension(actor): Extension<Actor>,
    PipelinePath(reference): PipelinePath,
    version: IfMatch,
    Body(patch): Body<Map<String, Value>>,
) -> Result<Response> {
    Ok(saved(pipelines::edit(&app, &actor, &reference, &patch, version.given()).await?))
}

/// Look at the configuration again
///
/// Validates it, makes a new version of it that runners use from their next claim, and answers what has changed since
/// the newest run was asked for.
#[utoipa::path(post, path = "/pipelines/{p}/reload-config", tag = "pipelines", operation_id = "reload_pipeline_config",
    params(("p" = String, Path, description = "id or name")),
    responses((status = 200, body = Reloaded), NoPipeline, InvalidPipeline))]
pub(super) async fn reload(
    Scoped(app): Scoped,
    Extension(actor): Extension<Actor>,
    PipelinePath(reference): PipelinePath,
) -> Result<Json<Reloaded>> {
    let (record, changed_since_last_run) = pipelines::reload(&app, &actor, &reference).await?;
    Ok(Json(Reloaded { pipeline: record.into(), changed_since_last_run }))
}

/// Delete a pipeline with its history
#[utoipa::path(delete, path = "/pipelines/{p}", tag = "pipelines", operation_id = "delete_pipeline",
    params(("p" = String, Path, description = "id or name"),
           ("if-match" = Option<String>, Header, description = "the etag of the version that is known")),
    responses((status = 204), BadHeader, NoPipeline, StillActive, ConfigMoved))]
pub(super) async fn delete(
    Scoped(app): Scoped,
    Extension(actor): Extension<Actor>,
    PipelinePath(reference): PipelinePath,
    version: IfMatch,
) -> Result<StatusCode> {
    pipelines::delete(&app, &actor, &reference, version.given()).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// Check a saved pipeline
///
/// All findings at once: the rules, the guard, what the source says of the query, and what a runner sees at the target.
/// A body is a merge-patch that is looked at and not saved.
#[utoipa::path(post, path = "/pipelines/{p}/validate", tag = "pipelines", operation_id = "validate_pipeline",
    params(("p" = String, Path, description = "id or name")),
    request_body = Option<PipelineConfigPatch>,
    responses((status = 200, body = Verdict), BadBody, NoPipeline, TooLarge, NotJson, InvalidRequest))]
pub(super) async fn validate_saved(
    Scoped(app): Scoped,
    Extension(actor): Extension<Actor>,
    PipelinePath(reference): PipelinePath,
    OptionalBody(patch): OptionalBody<Map<String, Value>>,
) -> Result<Json<Verdict>> {
    Ok(Json(pipelines::validate_saved(&app, &actor, &reference, &patch).await?))
}

/// Check a pipeline that is not saved
#[utoipa::path(post, path = "/validate", tag = "pipelines", operation_id = "validate",
    request_body = Question,
    responses((status = 200, body = Verdict), BadBody, TooLarge, NotJson, InvalidRequest))]
pub(super) async fn validate(
    Scoped(app): Scoped,
    Extension(actor): Extension<Actor>,
    Body(Question { pipeline, target }): Body<Question>,
) -> Result<Json<Verdict>> {
    Ok(Json(pipelines::validate(&app, &actor, pipeline, target).await?))
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
    Scoped(app): Scoped,
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
