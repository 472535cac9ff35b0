//! Configuration as code.

use axum::http::header;
use axum::response::IntoResponse;
use axum::{Extension, Json};
use serde_json::Value;
use vitrina_store::Actor;

use super::documentation::{
    BadBody, CannotApply, ConfigMoved, InvalidConfiguration, InvalidRequest, NotJson, TooLarge,
};
use super::schema;
use crate::documents::{Applied, Configuration, Order, Plan};
use crate::error::Result;
use crate::extract::{Body, Scoped};
use crate::services::plans;

/// What applying a configuration would change
///
/// All findings at once. Nothing is saved.
#[utoipa::path(post, path = "/plan", tag = "config", operation_id = "plan",
    request_body = Configuration,
    responses((status = 200, body = Plan), BadBody, TooLarge, NotJson, InvalidRequest))]
pub(super) async fn plan(
    Scoped(app): Scoped,
    Body(configuration): Body<Configuration>,
) -> Result<Json<Plan>> {
    Ok(Json(plans::plan(&app, configuration).await?))
}

/// Apply a plan that was seen
///
/// All of it in one transaction, or nothing where the plan is another one by now.
#[utoipa::path(post, path = "/apply", tag = "config", operation_id = "apply",
    request_body = Order,
    responses((status = 200, body = Applied), BadBody, CannotApply, ConfigMoved, TooLarge, NotJson, InvalidConfiguration))]
pub(super) async fn apply(
    Scoped(app): Scoped,
    Extension(actor): Extension<Actor>,
    Body(Order { configuration, plan_hash }): Body<Order>,
) -> Result<Json<Applied>> {
    let changes = plans::apply(&app, &actor, configuration, &plan_hash).await?;
    Ok(Json(Applied { changes }))
}

/// All that is configured, as a file would say it
///
/// Without what is as by default. Applied, it changes nothing.
#[utoipa::path(get, path = "/export", tag = "config", operation_id = "export",
    responses((status = 200, body = Configuration)))]
pub(super) async fn export(Scoped(app): Scoped) -> Result<Json<Value>> {
    Ok(Json(plans::export(&app).await?))
}

/// The JSON Schema of configuration files
#[utoipa::path(get, path = "/config.schema.json", tag = "config", operation_id = "config_schema",
    responses((status = 200, description = "JSON Schema 2020-12", content_type = "application/schema+json")))]
pub(super) async fn json_schema() -> impl IntoResponse {
    ([(header::CONTENT_TYPE, "application/schema+json")], schema::of_files().to_string())
}
