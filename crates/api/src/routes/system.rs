//! What the installation says about itself. Probes need no token.

use axum::extract::State;
use axum::http::StatusCode;
use axum::response::Html;
use axum::{Extension, Json};

use super::documentation::{InvalidRequest, NoRunner, RunnerGone};
use vitrina_store::{Actor, TokenInfo};

use crate::app::App;
use crate::documents::{AuditEntry, Caller, Health, Live, Page, PythonTask, Runner, Version};
use crate::error::Result;
use crate::extract::{RunnerPath, Scoped};
use crate::query::{NumberedSlice, Params};
use crate::services::system;

/// For whoever opens the address in a browser; no call of the API.
pub(super) async fn welcome() -> Html<&'static str> {
    Html(include_str!("welcome.html"))
}

/// The runners and what they can run
#[utoipa::path(get, path = "/runners", tag = "system", operation_id = "list_runners",
    responses((status = 200, body = Page<Runner>)))]
pub(super) async fn runners(Scoped(app): Scoped) -> Result<Json<Page<Runner>>> {
    Ok(Json(Page::whole(system::runners(&app).await?)))
}

/// The Python functions that runners have registered
#[utoipa::path(get, path = "/python-tasks", tag = "system", operation_id = "list_python_tasks",
    responses((status = 200, body = Page<PythonTask>)))]
pub(super) async fn python_tasks(Scoped(app): Scoped) -> Result<Json<Page<PythonTask>>> {
    Ok(Json(Page::whole(system::python_tasks(&app).await?)))
}

/// Ask a runner to stop
///
/// It finishes the batches under way and hands its pipelines back; other runners go on with them. Its process ends,
/// unless that serves the API as well.
#[utoipa::path(post, path = "/runners/{name}/drain", tag = "system", operation_id = "drain_runner",
    params(("name" = String, Path, description = "its name")),
    responses((status = 202, body = Runner), NoRunner, RunnerGone))]
pub(super) async fn drain(
    Scoped(app): Scoped,
    Extension(actor): Extension<Actor>,
    RunnerPath(name): RunnerPath,
) -> Result<(StatusCode, Json<Runner>)> {
    let runner = system::drain(&app, &actor, &name).await?;
    Ok((StatusCode::ACCEPTED, Json(runner.into())))
}

/// Who changed what, newest first
#[utoipa::path(get, path = "/audit", tag = "system", operation_id = "list_audit",
    params(NumberedSlice),
    responses((status = 200, body = Page<AuditEntry>), InvalidRequest))]
pub(super) async fn audit(
    Scoped(app): Scoped,
    Params(slice): Params<NumberedSlice>,
) -> Result<Json<Page<AuditEntry>>> {
    let (records, next) = system::audit(&app, slice.after()?, slice.rows()?).await?;
    Ok(Json(Page { next_cursor: next.map(|id| id.to_string()), ..Page::whole(records) }))
}

/// Who am I, and what may I do?
#[utoipa::path(get, path = "/whoami", tag = "system", operation_id = "whoami",
    responses((status = 200, body = Caller)))]
pub(super) async fn whoami(Extension(caller): Extension<TokenInfo>) -> Json<Caller> {
    Json(caller.into())
}

/// How is the installation?
///
/// The meta-store and the sources are asked; of targets and runners the runners' own words are told. Only an
/// installation without its meta-store is 503: what else is wrong is `degraded`.
#[utoipa::path(get, path = "/health", tag = "system", operation_id = "health",
    responses((status = 200, body = Health), (status = 503, description = "the meta-store does not answer", body = Health)))]
pub(super) async fn health(State(app): State<App>) -> (StatusCode, Json<Health>) {
    let health = system::health(&app).await;
    let away = health.status == "unavailable";
    (if away { StatusCode::SERVICE_UNAVAILABLE } else { StatusCode::OK }, Json(health))
}

/// Does this process answer?
#[utoipa::path(get, path = "/health/live", tag = "system", operation_id = "health_live",
    responses((status = 200, body = Live)))]
pub(super) async fn live() -> Json<Live> {
    Json(Live { status: "ok" })
}

/// Can this process serve calls?
#[utoipa::path(get, path = "/health/ready", tag = "system", operation_id = "health_ready",
    responses((status = 200, body = Live), (status = 503, description = "the meta-store does not answer", body = Live)))]
pub(super) async fn ready(State(app): State<App>) -> (StatusCode, Json<Live>) {
    match system::ready(&app).await {
        true => (StatusCode::OK, Json(Live { status: "ok" })),
        false => (StatusCode::SERVICE_UNAVAILABLE, Json(Live { status: "unavailable" })),
    }
}

/// What runs here
#[utoipa::path(get, path = "/version", tag = "system", operation_id = "version",
    responses((status = 200, body = Version)))]
pub(super) async fn version() -> Json<Version> {
    Json(Version { name: "vitrina", version: env!("CARGO_PKG_VERSION") })
}
