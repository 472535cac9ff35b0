//! How far a pipeline has come: its checkpoint, what it has been, and what a person makes of it.

use axum::http::header;
use axum::response::{IntoResponse, Response};
use axum::{Extension, Json};
use vitrina_store::{Actor, PipelineRef, StateRecord};

use super::documentation::{
    BadState, CannotChangeState, InvalidRequest, InvalidState, NoIfMatch, NoPipeline, NotJson, StateMoved,
    TooLarge,
};
use super::pipelines::etag;
use crate::app::App;
use crate::documents::{CheckpointVersion, Page, PipelineState, StateAnswer, StateEdit};
use crate::error::{Error, Result};
use crate::extract::{Body, IfMatch, PipelinePath, Scoped};
use crate::query::{DryRun, Limit, Params};
use crate::services::state::{self, Wish};

/// How far a pipeline has come: its checkpoint
#[utoipa::path(get, path = "/pipelines/{p}/state", tag = "pipelines", operation_id = "get_pipeline_state",
    params(("p" = String, Path, description = "id or name")),
    responses((status = 200, body = PipelineState, headers(("etag", description = "its version"))), NoPipeline))]
pub(super) async fn show(Scoped(app): Scoped, PipelinePath(reference): PipelinePath) -> Result<Response> {
    Ok(answer(state::show(&app, &reference).await?))
}

/// What completed passes had established, whenever it has changed, newest first
#[utoipa::path(get, path = "/pipelines/{p}/state/history", tag = "pipelines", operation_id = "list_pipeline_states",
    params(("p" = String, Path, description = "id or name"), Limit),
    responses((status = 200, body = Page<CheckpointVersion>), NoPipeline, InvalidRequest))]
pub(super) async fn history(
    Scoped(app): Scoped,
    PipelinePath(reference): PipelinePath,
    Params(limit): Params<Limit>,
) -> Result<Json<Page<CheckpointVersion>>> {
    Ok(Json(Page::whole(state::history(&app, &reference, limit.rows()?).await?)))
}

/// Let the next run go on from elsewhere
///
/// From a position, or from a version of the history. An open pass is dropped. With `dry_run` nothing changes,
/// and the answer tells how many rows would be read again.
#[utoipa::path(patch, path = "/pipelines/{p}/state", tag = "pipelines", operation_id = "edit_pipeline_state",
    params(("p" = String, Path, description = "id or name"), DryRun,
           ("if-match" = Option<String>, Header, description = "the etag of the state that is known; needed unless it is a dry run")),
    request_body = StateEdit,
    responses((status = 200, body = StateAnswer, headers(("etag", description = "its version, when it has changed"))),
              BadState, NoPipeline, CannotChangeState, StateMoved, TooLarge, NotJson, InvalidState, NoIfMatch))]
pub(super) async fn edit(
    Scoped(app): Scoped,
    Extension(actor): Extension<Actor>,
    PipelinePath(reference): PipelinePath,
    Params(DryRun { dry_run }): Params<DryRun>,
    version: IfMatch,
    Body(edit): Body<StateEdit>,
) -> Result<Response> {
    change(&app, &actor, &reference, Wish::Edit(edit), version, dry_run).await
}

/// Let the next run read everything from the start
///
/// With `dry_run` nothing changes, and the answer tells how many rows that is.
#[utoipa::path(post, path = "/pipelines/{p}/state/reset", tag = "pipelines", operation_id = "reset_pipeline_state",
    params(("p" = String, Path, description = "id or name"), DryRun,
           ("if-match" = Option<String>, Header, description = "the etag of the state that is known; needed unless it is a dry run")),
    responses((status = 200, body = StateAnswer, headers(("etag", description = "its version, when it has changed"))),
              BadState, NoPipeline, CannotChangeState, StateMoved, InvalidRequest, NoIfMatch))]
pub(super) async fn reset(
    Scoped(app): Scoped,
    Extension(actor): Extension<Actor>,
    PipelinePath(reference): PipelinePath,
    Params(DryRun { dry_run }): Params<DryRun>,
    version: IfMatch,
) -> Result<Response> {
    change(&app, &actor, &reference, Wish::Reset, version, dry_run).await
}

async fn change(
    app: &App,
    actor: &Actor,
    reference: &PipelineRef,
    wish: Wish,
    version: IfMatch,
    dry_run: bool,
) -> Result<Response> {
    if dry_run {
        let forecast = state::forecast(app, reference, wish, version.given()).await?;
        return Ok(Json(StateAnswer::Forecast(forecast)).into_response());
    }
    // A checkpoint is never changed unseen.
    let version = version.given().ok_or(Error::NoIfMatch)?;
    Ok(answer(state::change(app, actor, reference, wish, version).await?))
}

fn answer(state: StateRecord) -> Response {
    let etag = etag(state.version);
    ([(header::ETAG, etag)], Json(StateAnswer::Changed(state.into()))).into_response()
}
