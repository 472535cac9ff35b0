//! Targets that somebody has described.

use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::{Extension, Json};
use vitrina_store::{Actor, TargetRecord};

use super::documentation::{
    BadHeader, BadState, ConfigMoved, InvalidRequest, InvalidTarget, NoRunnerAnswers, NoTarget, NotJson,
    TargetMoved, TargetOwned, TargetUnusable, TargetUsed, TooLarge, Unanswered,
};
use super::pipelines::etag;
use crate::documents::{Page, TargetConfig, TargetDetail, TargetStanding};
use crate::error::Result;
use crate::extract::{Body, IfMatch, Scoped, TargetPath};
use crate::query::{Params, Writer};
use crate::services::targets;

/// Targets by name
#[utoipa::path(get, path = "/targets", tag = "targets", operation_id = "list_targets",
    responses((status = 200, body = Page<TargetDetail>)))]
pub(super) async fn list(Scoped(app): Scoped) -> Result<Json<Page<TargetDetail>>> {
    Ok(Json(Page::whole(targets::list(&app).await?)))
}

/// A target
#[utoipa::path(get, path = "/targets/{t}", tag = "targets", operation_id = "get_target",
    params(("t" = String, Path, description = "its name, such as analytics.film_dim")),
    responses((status = 200, body = TargetDetail, headers(("etag", description = "its version"))), NoTarget))]
pub(super) async fn show(Scoped(app): Scoped, TargetPath(name): TargetPath) -> Result<Response> {
    Ok(shown(StatusCode::OK, targets::find(&app, &name).await?))
}

/// How a target stands
///
/// A runner looks at it: a table's columns beside those of a pipeline's rows, or an index behind its alias, the one before,
/// and its mapping beside the declared one. Nothing is changed.
#[utoipa::path(get, path = "/targets/{t}/standing", tag = "targets", operation_id = "get_target_standing",
    params(("t" = String, Path, description = "its name, such as analytics.film_dim"), Writer),
    responses((status = 200, body = TargetStanding), NoTarget, TargetUnusable, InvalidRequest, Unanswered, NoRunnerAnswers))]
pub(super) async fn standing(
    Scoped(app): Scoped,
    Extension(actor): Extension<Actor>,
    TargetPath(name): TargetPath,
    Params(Writer { pipeline }): Params<Writer>,
) -> Result<Json<TargetStanding>> {
    Ok(Json(targets::standing(&app, &actor, &name, pipeline.as_deref()).await?))
}

/// Describe a target, or describe it anew
#[utoipa::path(put, path = "/targets/{t}", tag = "targets", operation_id = "put_target",
    params(("t" = String, Path, description = "its name, such as analytics.film_dim"),
           ("if-match" = Option<String>, Header, description = "the etag of the version that is known, or * for any: a target that is new has none")),
    request_body = TargetConfig,
    responses((status = 200, body = TargetDetail, headers(("etag", description = "its version"))),
              (status = 201, description = "it is new", body = TargetDetail, headers(("etag", description = "its version"))),
              BadState, NoTarget, TargetOwned, TargetMoved, TooLarge, NotJson, InvalidTarget))]
pub(super) async fn put(
    Scoped(app): Scoped,
    Extension(actor): Extension<Actor>,
    TargetPath(name): TargetPath,
    version: IfMatch,
    Body(config): Body<TargetConfig>,
) -> Result<Response> {
    let (record, new) = targets::put(&app, &actor, &name, config, version).await?;
    Ok(shown(if new { StatusCode::CREATED } else { StatusCode::OK }, record))
}

/// Forget the description of a target; what it stands for stays as it is
#[utoipa::path(delete, path = "/targets/{t}", tag = "targets", operation_id = "delete_target",
    params(("t" = String, Path, description = "its name, such as analytics.film_dim"),
           ("if-match" = Option<String>, Header, description = "the etag of the version that is known")),
    responses((status = 204), BadHeader, NoTarget, TargetUsed, ConfigMoved))]
pub(super) async fn delete(
    Scoped(app): Scoped,
    Extension(actor): Extension<Actor>,
    TargetPath(name): TargetPath,
    version: IfMatch,
) -> Result<StatusCode> {
    targets::delete(&app, &actor, &name, version.given()).await?;
    Ok(StatusCode::NO_CONTENT)
}

fn shown(status: StatusCode, record: TargetRecord) -> Response {
    (status, [(header::ETAG, etag(record.version))], Json(TargetDetail::from(record))).into_response()
}
