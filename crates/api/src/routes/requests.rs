//! What a person or an orchestrator asks of a pipeline. A runner acts on it.

use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::{Extension, Json};
use vitrina_core::{Event, Status};

use super::documentation::{
    BadBody, BadRun, CannotCancel, CannotPause, CannotRun, InvalidRequest, InvalidRun, NoPipeline, NotJson,
    TooLarge,
};
use vitrina_store::{Actor, PipelineListing, PipelineRecord};

use crate::documents::{PipelineStatus, Reason, RunAccepted, RunOrder};
use crate::error::Result;
use crate::extract::{CallersTrace, IdempotencyKey, OptionalBody, PipelinePath, Scoped};
use crate::services::requests::{self, Beside};

/// Let a pipeline run again
#[utoipa::path(post, path = "/pipelines/{p}/enable", tag = "requests", operation_id = "enable_pipeline",
    params(("p" = String, Path, description = "id or name")),
    responses((status = 200, body = PipelineStatus), NoPipeline))]
pub(super) async fn enable(
    Scoped(app): Scoped,
    Extension(actor): Extension<Actor>,
    PipelinePath(reference): PipelinePath,
) -> Result<Json<PipelineStatus>> {
    let done = requests::change(&app, &actor, &reference, Event::Enable, None).await?;
    Ok(Json(status_of(done.pipeline)))
}

/// Let a pipeline run no more
///
/// A requested run is cancelled, an active one pauses after its batch.
#[utoipa::path(post, path = "/pipelines/{p}/disable", tag = "requests", operation_id = "disable_pipeline",
    params(("p" = String, Path, description = "id or name")),
    responses((status = 200, body = PipelineStatus), NoPipeline))]
pub(super) async fn disable(
    Scoped(app): Scoped,
    Extension(actor): Extension<Actor>,
    PipelinePath(reference): PipelinePath,
) -> Result<Json<PipelineStatus>> {
    let done = requests::change(&app, &actor, &reference, Event::Disable, None).await?;
    Ok(Json(status_of(done.pipeline)))
}

/// Ask for a run
///
/// The run exists from the answer on and can be followed at once. The same Idempotency-Key is
/// answered with the same run. While another run is active, a request joins it only where it is empty
/// or asks for the same; a backfill of other keys uses `on_active` `after`.
#[utoipa::path(post, path = "/pipelines/{p}/run", tag = "requests", operation_id = "run_pipeline",
    params(("p" = String, Path, description = "id or name"),
           ("idempotency-key" = Option<String>, Header, description = "1 to 255 visible ASCII characters"),
           ("traceparent" = Option<String>, Header, description = "the caller's trace, which the run goes on with")),
    request_body = Option<RunOrder>,
    responses((status = 202, body = RunAccepted, headers(("location", description = "the run"))),
              BadRun, NoPipeline, CannotRun, TooLarge, NotJson, InvalidRun))]
pub(super) async fn run(
    Scoped(app): Scoped,
    Extension(actor): Extension<Actor>,
    PipelinePath(reference): PipelinePath,
    IdempotencyKey(idempotency_key): IdempotencyKey,
    CallersTrace(traceparent): CallersTrace,
    OptionalBody(order): OptionalBody<RunOrder>,
) -> Result<Response> {
    let beside = Beside { idempotency_key, traceparent };
    let accepted = Box::pin(requests::run(&app, &actor, &reference, order, beside)).await?;
    let location = format!("/api/v1/runs/{}", accepted.run_id);
    Ok((StatusCode::ACCEPTED, [(header::LOCATION, location)], Json(accepted)).into_response())
}

/// Pause after the batch under way
#[utoipa::path(post, path = "/pipelines/{p}/pause", tag = "requests", operation_id = "pause_pipeline",
    params(("p" = String, Path, description = "id or name")),
    request_body = Option<Reason>,
    responses((status = 200, description = "it was paused already", body = PipelineStatus),
              (status = 202, body = PipelineStatus),
              BadBody, NoPipeline, CannotPause, TooLarge, NotJson, InvalidRequest))]
pub(super) async fn pause(
    Scoped(app): Scoped,
    Extension(actor): Extension<Actor>,
    PipelinePath(reference): PipelinePath,
    OptionalBody(Reason { reason }): OptionalBody<Reason>,
) -> Result<(StatusCode, Json<PipelineStatus>)> {
    let done = requests::change(&app, &actor, &reference, Event::Pause, reason.as_deref()).await?;
    let was_paused = done.before.status == Status::Paused;
    let status = if was_paused { StatusCode::OK } else { StatusCode::ACCEPTED };
    Ok((status, Json(status_of(done.pipeline))))
}

/// Cancel the active run, or set a paused or failed pipeline back to IDLE
#[utoipa::path(post, path = "/pipelines/{p}/cancel", tag = "requests", operation_id = "cancel_pipeline",
    params(("p" = String, Path, description = "id or name")),
    request_body = Option<Reason>,
    responses((status = 202, body = PipelineStatus),
              BadBody, NoPipeline, CannotCancel, TooLarge, NotJson, InvalidRequest))]
pub(super) async fn cancel(
    Scoped(app): Scoped,
    Extension(actor): Extension<Actor>,
    PipelinePath(reference): PipelinePath,
    OptionalBody(Reason { reason }): OptionalBody<Reason>,
) -> Result<(StatusCode, Json<PipelineStatus>)> {
    let done = requests::change(&app, &actor, &reference, Event::Cancel, reason.as_deref()).await?;
    Ok((StatusCode::ACCEPTED, Json(status_of(done.pipeline))))
}

fn status_of(record: PipelineRecord) -> PipelineStatus {
    PipelineStatus::from(&PipelineListing::from(record))
}
