//! Is the target equal to its source? Asked, followed, told by rows, and repaired.

use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::{Extension, Json};
use vitrina_store::{Actor, PipelineRef};

use super::documentation::{
    BadBody, CannotCancelReconcile, CannotRepair, InvalidRequest, NoPipeline, NoReconcile, NotJson, TooLarge,
};
use crate::app::App;
use crate::documents::{Difference, Page, Reconcile, ReconcileOrder, Repair, RepairAccepted, Standing};
use crate::error::Result;
use crate::extract::{OptionalBody, PipelinePath, ReconcilePath, Scoped};
use crate::query::{DifferenceSlice, DownloadFormat, DryRun, Params, ReconcileSlice, Wait};
use crate::services::{download, reconciles};

/// Compare a target with its source
///
/// The reconcile exists from the answer on and can be followed at once; a runner makes it, and the pipeline may run
/// meanwhile. One that is open and compares no less is joined.
#[utoipa::path(post, path = "/pipelines/{p}/reconcile", tag = "reconciles", operation_id = "reconcile_pipeline",
    params(("p" = String, Path, description = "id or name")),
    request_body = Option<ReconcileOrder>,
    responses((status = 202, body = Reconcile, headers(("location", description = "the reconcile"))),
              BadBody, NoPipeline, TooLarge, NotJson, InvalidRequest))]
pub(super) async fn request(
    Scoped(app): Scoped,
    Extension(actor): Extension<Actor>,
    PipelinePath(reference): PipelinePath,
    OptionalBody(order): OptionalBody<ReconcileOrder>,
) -> Result<Response> {
    let record = reconciles::request(&app, &actor, &reference, &order).await?;
    let location = format!("/api/v1/reconciles/{}", record.id);
    let accepted = Json(Reconcile::from(record));
    Ok((StatusCode::ACCEPTED, [(header::LOCATION, location)], accepted).into_response())
}

/// The last verdict on a target
///
/// `verdict` is null where it was never compared; `links` says how to ask for it.
#[utoipa::path(get, path = "/pipelines/{p}/reconcile", tag = "reconciles", operation_id = "get_pipeline_reconcile",
    params(("p" = String, Path, description = "id or name")),
    responses((status = 200, body = Standing), NoPipeline))]
pub(super) async fn standing(
    Scoped(app): Scoped,
    PipelinePath(reference): PipelinePath,
) -> Result<Json<Standing>> {
    Ok(Json(reconciles::standing(&app, &reference).await?))
}

/// A pipeline's reconciles, newest first
#[utoipa::path(get, path = "/pipelines/{p}/reconciles", tag = "reconciles", operation_id = "list_pipeline_reconciles",
    params(("p" = String, Path, description = "id or name"), ReconcileSlice),
    responses((status = 200, body = Page<Reconcile>), NoPipeline, InvalidRequest))]
pub(super) async fn of_pipeline(
    Scoped(app): Scoped,
    PipelinePath(reference): PipelinePath,
    Params(slice): Params<ReconcileSlice>,
) -> Result<Json<Page<Reconcile>>> {
    page(&app, Some(&reference), &slice).await
}

/// The reconciles of all pipelines, newest first
#[utoipa::path(get, path = "/reconciles", tag = "reconciles", operation_id = "list_reconciles",
    params(ReconcileSlice),
    responses((status = 200, body = Page<Reconcile>), InvalidRequest))]
pub(super) async fn list(
    Scoped(app): Scoped,
    Params(slice): Params<ReconcileSlice>,
) -> Result<Json<Page<Reconcile>>> {
    page(&app, None, &slice).await
}

async fn page(
    app: &App,
    pipeline: Option<&PipelineRef>,
    slice: &ReconcileSlice,
) -> Result<Json<Page<Reconcile>>> {
    let (records, next) = reconciles::list(app, pipeline, slice.before()?, slice.rows()?).await?;
    Ok(Json(Page { next_cursor: next.map(|id| id.to_string()), ..Page::whole(records) }))
}

/// A reconcile: how far it has come, or its verdict
///
/// With `wait` the answer comes when it has ended.
#[utoipa::path(get, path = "/reconciles/{id}", tag = "reconciles", operation_id = "get_reconcile",
    params(("id" = Uuid, Path), Wait),
    responses((status = 200, body = Reconcile), NoReconcile, InvalidRequest))]
pub(super) async fn show(
    Scoped(app): Scoped,
    ReconcilePath(id): ReconcilePath,
    Params(wait): Params<Wait>,
) -> Result<Json<Reconcile>> {
    Ok(Json(reconciles::follow(&app, id, wait.time()?).await?.into()))
}

/// End a reconcile
///
/// One that waits ends at once, one that runs as soon as its runner hears of it.
#[utoipa::path(post, path = "/reconciles/{id}/cancel", tag = "reconciles", operation_id = "cancel_reconcile",
    params(("id" = Uuid, Path)),
    responses((status = 202, body = Reconcile), NoReconcile, CannotCancelReconcile))]
pub(super) async fn cancel(
    Scoped(app): Scoped,
    Extension(actor): Extension<Actor>,
    ReconcilePath(id): ReconcilePath,
) -> Result<(StatusCode, Json<Reconcile>)> {
    let record = reconciles::cancel(&app, &actor, id).await?;
    Ok((StatusCode::ACCEPTED, Json(record.into())))
}

/// The rows that differ, in the order of their keys
///
/// They are kept at level `rows`. A page of them as JSON, or with `format` all of them as a file: `ndjson` has one row a
/// line, `csv` one column of a row a line.
#[utoipa::path(get, path = "/reconciles/{id}/differences", tag = "reconciles", operation_id = "list_differences",
    params(("id" = Uuid, Path), DifferenceSlice),
    responses((status = 200, content((Page<Difference> = "application/json"), (String = "application/x-ndjson"), (String = "text/csv"))),
              NoReconcile, InvalidRequest))]
pub(super) async fn differences(
    Scoped(app): Scoped,
    ReconcilePath(id): ReconcilePath,
    headers: HeaderMap,
    Params(slice): Params<DifferenceSlice>,
) -> Result<Response> {
    let kind = slice.kind;
    if let Some(format) = slice.download(&headers)? {
        reconciles::find(&app, id).await?;
        let file = download::differences(app.store.clone(), id, kind, format);
        return Ok((as_file(id, format), file).into_response());
    }
    let (items, next) = reconciles::differences(&app, id, kind, slice.after()?, slice.rows()?).await?;
    Ok(Json(Page { items, next_cursor: next.map(|number| number.to_string()) }).into_response())
}

fn as_file(id: uuid::Uuid, format: DownloadFormat) -> [(header::HeaderName, String); 2] {
    let name = format!("attachment; filename=\"differences-{id}.{}\"", format.extension());
    [(header::CONTENT_TYPE, format.media_type().to_owned()), (header::CONTENT_DISPOSITION, name)]
}

/// Repair what a reconcile has found
///
/// A run over exactly the rows that differ, after the one that may be active: it reads them at the source as they are by
/// then, writes those that are missing or different, and deletes those that the source does not have, within the
/// pipeline's `delete_limit`. The rows are compared again when it has ended. With `dry_run` nothing is asked for, and the
/// answer tells what the repair would do: look at that first.
#[utoipa::path(post, path = "/reconciles/{id}/repair", tag = "reconciles", operation_id = "repair_reconcile",
    params(("id" = Uuid, Path), DryRun),
    responses((status = 200, description = "a dry run", body = Repair),
              (status = 202, body = RepairAccepted, headers(("location", description = "the run"))),
              NoReconcile, CannotRepair, InvalidRequest))]
pub(super) async fn repair(
    Scoped(app): Scoped,
    Extension(actor): Extension<Actor>,
    ReconcilePath(id): ReconcilePath,
    Params(DryRun { dry_run }): Params<DryRun>,
) -> Result<Response> {
    if dry_run {
        return Ok(Json(reconciles::forecast(&app, id).await?).into_response());
    }
    let accepted = reconciles::repair(&app, &actor, id).await?;
    let location = format!("/api/v1/runs/{}", accepted.run.run_id);
    Ok((StatusCode::ACCEPTED, [(header::LOCATION, location)], Json(accepted)).into_response())
}
