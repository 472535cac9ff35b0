//! Sample rows of a query.

use axum::Json;

use super::documentation::{BadBody, InvalidSql, NoPipeline, NotJson, SourceAway, TooLarge};
use crate::documents::{Preview, PreviewQuestion};
use crate::error::Result;
use crate::extract::{Body, PipelinePath, Scoped};
use crate::query::{Params, Sampled};
use crate::services::preview;

/// Sample rows of a saved pipeline's query
///
/// As the source has them, before transforms; nothing is written. At most 10 s and 1 MiB.
#[utoipa::path(post, path = "/pipelines/{p}/preview", tag = "pipelines", operation_id = "preview_pipeline",
    params(("p" = String, Path, description = "id or name"), Sampled),
    responses((status = 200, body = Preview), NoPipeline, InvalidSql, SourceAway))]
pub(super) async fn of_saved(
    Scoped(app): Scoped,
    PipelinePath(reference): PipelinePath,
    Params(sampled): Params<Sampled>,
) -> Result<Json<Preview>> {
    Ok(Json(preview::of_saved(&app, &reference, sampled.rows()?).await?.into()))
}

/// Sample rows of a query that is not saved
#[utoipa::path(post, path = "/preview", tag = "pipelines", operation_id = "preview",
    params(Sampled),
    request_body = PreviewQuestion,
    responses((status = 200, body = Preview), BadBody, TooLarge, NotJson, InvalidSql, SourceAway))]
pub(super) async fn of_unsaved(
    Scoped(app): Scoped,
    Params(sampled): Params<Sampled>,
    Body(PreviewQuestion { pipeline }): Body<PreviewQuestion>,
) -> Result<Json<Preview>> {
    Ok(Json(preview::of_unsaved(&app, pipeline, sampled.rows()?).await?.into()))
}
