//! Where did this row go?

use axum::{Extension, Json};
use vitrina_store::Actor;

use super::documentation::{InvalidRequest, NoPipeline};
use crate::documents::Row;
use crate::error::Result;
use crate::extract::{PipelinePath, Scoped};
use crate::query::{Params, RowKey};
use crate::services::rows;

/// Where a row is
///
/// A runner looks for it at source and target; beside that stands what is known of it here: its reject, its difference in
/// the last reconcile, and who wrote it. Where no runner can look, the answer says so and tells the rest.
#[utoipa::path(get, path = "/pipelines/{p}/row", tag = "pipelines", operation_id = "find_row",
    params(("p" = String, Path, description = "id or name"), RowKey),
    responses((status = 200, body = Row), NoPipeline, InvalidRequest))]
pub(super) async fn find(
    Scoped(app): Scoped,
    Extension(actor): Extension<Actor>,
    PipelinePath(reference): PipelinePath,
    Params(key): Params<RowKey>,
) -> Result<Json<Row>> {
    Ok(Json(rows::find(&app, &actor, &reference, key.parts()?).await?))
}
