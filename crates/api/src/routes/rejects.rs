//! Rows that were refused, and what a person does about them.

use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::{Extension, Json};

use super::documentation::{BadBody, CannotRetry, InvalidRequest, NoPipeline, NotJson, TooLarge};
use vitrina_store::Actor;

use crate::documents::{Reject, RejectOrder, Rejects, RejectsChanged, RetryAccepted};
use crate::error::Result;
use crate::extract::{OptionalBody, PipelinePath, Scoped};
use crate::query::{Params, RejectSlice, cursor_text};
use crate::services::rejects;
use crate::sight::SeesRows;

/// Rows of a pipeline that were refused, newest first, and their reasons
///
/// Keys, rows and values in messages are `…` for who has not the right to see rows.
#[utoipa::path(get, path = "/pipelines/{p}/rejects", tag = "rejects", operation_id = "list_rejects",
    params(("p" = String, Path, description = "id or name"), RejectSlice),
    responses((status = 200, body = Rejects), NoPipeline, InvalidRequest))]
pub(super) async fn list(
    Scoped(app): Scoped,
    Extension(sees_rows): Extension<SeesRows>,
    PipelinePath(reference): PipelinePath,
    Params(slice): Params<RejectSlice>,
) -> Result<Json<Rejects>> {
    let (choice, after) = (slice.choice()?, slice.after()?);
    let (records, next, groups) =
        rejects::list(&app, &reference, &choice, after.as_ref(), slice.rows()?).await?;
    Ok(Json(Rejects {
        items: records.into_iter().map(|record| Reject::new(record, sees_rows)).collect(),
        next_cursor: next.as_ref().map(cursor_text),
        groups: groups.into_iter().map(Into::into).collect(),
    }))
}

/// Let runs pass with these rejects
///
/// They stay, are read again whenever their rows are, and no longer count against `reject_limit`.
#[utoipa::path(post, path = "/pipelines/{p}/rejects/acknowledge", tag = "rejects", operation_id = "acknowledge_rejects",
    params(("p" = String, Path, description = "id or name")),
    request_body = Option<RejectOrder>,
    responses((status = 200, body = RejectsChanged), BadBody, NoPipeline, TooLarge, NotJson, InvalidRequest))]
pub(super) async fn acknowledge(
    Scoped(app): Scoped,
    Extension(actor): Extension<Actor>,
    PipelinePath(reference): PipelinePath,
    OptionalBody(order): OptionalBody<RejectOrder>,
) -> Result<Json<RejectsChanged>> {
    let rejects = rejects::acknowledge(&app, &actor, &reference, &order.into()).await?;
    Ok(Json(RejectsChanged { rejects }))
}

/// Forget these rejects
///
/// Neither source nor target changes. A row that is refused again comes back.
#[utoipa::path(post, path = "/pipelines/{p}/rejects/discard", tag = "rejects", operation_id = "discard_rejects",
    params(("p" = String, Path, description = "id or name")),
    request_body = Option<RejectOrder>,
    responses((status = 200, body = RejectsChanged), BadBody, NoPipeline, TooLarge, NotJson, InvalidRequest))]
pub(super) async fn discard(
    Scoped(app): Scoped,
    Extension(actor): Extension<Actor>,
    PipelinePath(reference): PipelinePath,
    OptionalBody(order): OptionalBody<RejectOrder>,
) -> Result<Json<RejectsChanged>> {
    let rejects = rejects::discard(&app, &actor, &reference, &order.into()).await?;
    Ok(Json(RejectsChanged { rejects }))
}

/// Read the rows of these rejects again
///
/// A run over their keys, after the one that may be active: it reads the source as it is by then, and
/// leaves the checkpoint alone.
#[utoipa::path(post, path = "/pipelines/{p}/rejects/retry", tag = "rejects", operation_id = "retry_rejects",
    params(("p" = String, Path, description = "id or name")),
    request_body = Option<RejectOrder>,
    responses((status = 202, body = RetryAccepted, headers(("location", description = "the run"))),
              BadBody, NoPipeline, CannotRetry, TooLarge, NotJson, InvalidRequest))]
pub(super) async fn retry(
    Scoped(app): Scoped,
    Extension(actor): Extension<Actor>,
    PipelinePath(reference): PipelinePath,
    OptionalBody(order): OptionalBody<RejectOrder>,
) -> Result<Response> {
    let accepted = rejects::retry(&app, &actor, &reference, &order.into()).await?;
    let location = format!("/api/v1/runs/{}", accepted.run.run_id);
    Ok((StatusCode::ACCEPTED, [(header::LOCATION, location)], Json(accepted)).into_response())
}
