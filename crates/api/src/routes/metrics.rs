use axum::http::header;
use axum::response::IntoResponse;
use vitrina_telemetry::CONTENT_TYPE;

use crate::error::Error;
use crate::extract::Scoped;
use crate::services::gauges;

/// Metrics for Prometheus: of this process, and of all pipelines and runners
#[utoipa::path(get, path = "/metrics", tag = "system", operation_id = "metrics",
    responses((status = 200, body = String, content_type = "text/plain", description = "in the text form of Prometheus")))]
pub(super) async fn show(Scoped(app): Scoped) -> Result<impl IntoResponse, Error> {
    let page = gauges::page(&app).await?;
    Ok(([(header::CONTENT_TYPE, CONTENT_TYPE)], page))
}
