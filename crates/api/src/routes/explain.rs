//! What the planner of a source expects of a query.

use axum::Json;

use super::documentation::{BadBody, InvalidSql, NoPipeline, NotJson, SourceAway, TooLarge};
use crate::documents::{Explanation, PreviewQuestion};
use crate::error::Result;
use crate::extract::{Body, PipelinePath, Scoped};
use crate::services::explain;

/// The plan of a saved pipeline's query
///
/// Rows and cost as the source's planner expects them, and how each table is read; the same of a page of an incremental
/// pass. Nothing is run. At most 10 s.
#[utoipa::path(post, path = "/pipelines/{p}/explain", tag = "pipelines", operation_id = "explain_pipeline",
    params(("p" = String, Path, description = "id or name")),
    responses((status = 200, body = Explanation), NoPipeline, InvalidSql, SourceAway))]
pub(super) async fn of_saved(
    Scoped(app): Scoped,
    PipelinePath(reference): PipelinePath,
) -> Result<Json<Explanation>> {
    Ok(Json(explain::of_saved(&app, &reference).await?))
}

/// The plan of a query that is not saved
#[utoipa::path(post, path = "/explain", tag = "pipelines", operation_id = "explain",
    request_body = PreviewQuestion,
    responses((status = 200, body = Explanation), BadBody, TooLarge, NotJson, InvalidSql, SourceAway))]
pub(super) async fn of_unsaved(
    Scoped(app): Scoped,
    Body(PreviewQuestion { pipeline }): Body<PreviewQuestion>,
) -> Result<Json<Explanation>> {
    Ok(Json(explain::of_unsaved(&app, pipeline).await?))
}
