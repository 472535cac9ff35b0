//! The list of calls: each line is a call, the role it needs, and whether it needs the right to see rows or a token for all
//! pipelines. HTTP only; rules live in `services`.
//!
//! All of it is served under `/api/v1` and, by the same handlers, under the plain paths.

mod completion;
mod config;
mod connections;
mod docs;
mod documentation;
mod events;
mod examples;
mod explain;
mod metrics;
mod pipelines;
mod preview;
mod reconciles;
mod rejects;
mod requests;
mod rows;
mod runs;
pub(crate) mod schema;
mod state;
mod system;
mod targets;
mod ui;

use axum::extract::DefaultBodyLimit;
use axum::middleware::{from_fn, from_fn_with_state};
use axum::routing::get;
use axum::{Extension, Router};
use utoipa::OpenApi;
use utoipa_axum::router::{OpenApiRouter, UtoipaMethodRouter};
use utoipa_axum::routes;
use vitrina_store::Role::{Admin, Operator, Viewer};

use crate::access::Needed;
use crate::app::App;
use crate::error::Error;
use crate::{access, envelope, query};
use documentation::{Document, describe_access, takes_query};

const MAX_BODY_BYTES: usize = 1024 * 1024;
/// Of calls whose body is all that is configured: hundreds of queries.
const MAX_CONFIGURATION_BYTES: usize = 16 * 1024 * 1024;

#[rustfmt::skip] // A table.
fn calls(app: &App) -> OpenApiRouter<App> {
    let needs = |role, call| needed(app, Needed::role(role), call);
    let shows_rows = |role, call| needed(app, Needed { rows: true, ..Needed::role(role) }, call);
    let looks = |role, call| needed(app, Needed { looks: true, ..Needed::role(role) }, call);
    let previews = |role, call| needed(app, Needed { rows: true, looks: true, ..Needed::role(role) }, call);
    let for_all = |role, call| needed(app, Needed { everything: true, ..Needed::role(role) }, call);
    OpenApiRouter::new()
        .routes(needs(Viewer,   routes!(pipelines::list)))       // GET    /pipelines?status=&q=&tag=&target=&sort=&limit=&cursor=
        .routes(needs(Admin,    routes!(pipelines::create)))     // POST   /pipelines
        .routes(needs(Viewer,   routes!(pipelines::show)))       // GET    /pipelines/{p}
        .routes(needs(Admin,    routes!(pipelines::edit)))       // PATCH  /pipelines/{p}
        .routes(needs(Admin,    routes!(pipelines::delete)))     // DELETE /pipelines/{p}
        .routes(needs(Admin,    routes!(pipelines::update_config)))  // POST /pipelines/{p}/update-config
        .routes(needs(Operator, routes!(pipelines::reload)))     // POST   /pipelines/{p}/reload-config
        .routes(looks(Operator, routes!(pipelines::validate_saved))) // POST /pipelines/{p}/validate
        .routes(looks(Operator, routes!(pipelines::validate)))   // POST   /validate
        .routes(previews(Operator, routes!(preview::of_saved)))  // POST   /pipelines/{p}/preview?limit=
        .routes(previews(Operator, routes!(preview::of_unsaved))) // POST   /preview?limit=
        .routes(looks(Operator, routes!(explain::of_saved)))     // POST   /pipelines/{p}/explain
        .routes(looks(Operator, routes!(explain::of_unsaved)))   // POST   /explain
        .routes(shows_rows(Operator, routes!(rows::find)))       // GET    /pipelines/{p}/row?key=
        .routes(needs(Operator, routes!(requests::enable)))      // POST   /pipelines/{p}/enable
        .routes(needs(Operator, routes!(requests::disable)))     // POST   /pipelines/{p}/disable
        .routes(needs(Operator, routes!(requests::run)))         // POST   /pipelines/{p}/run
        .routes(needs(Operator, routes!(requests::pause)))       // POST   /pipelines/{p}/pause
        .routes(needs(Operator, routes!(requests::cancel)))      // POST   /pipelines/{p}/cancel
        .routes(needs(Viewer,   routes!(pipelines::status)))     // GET    /pipelines/{p}/status?wait=
        .routes(needs(Viewer,   routes!(state::show)))           // GET    /pipelines/{p}/state
        .routes(needs(Viewer,   routes!(state::history)))        // GET    /pipelines/{p}/state/history?limit=
        .routes(needs(Operator, routes!(state::edit)))           // PATCH  /pipelines/{p}/state?dry_run=
        .routes(needs(Operator, routes!(state::reset)))          // POST   /pipelines/{p}/state/reset?dry_run=
        .routes(needs(Viewer,   routes!(runs::metrics)))         // GET    /pipelines/{p}/metrics?window=
        .routes(needs(Viewer,   routes!(runs::of_pipeline)))     // GET    /pipelines/{p}/runs?status=&limit=&cursor=
        .routes(needs(Viewer,   routes!(rejects::list)))         // GET    /pipelines/{p}/rejects?code=&limit=&cursor=
        .routes(needs(Operator, routes!(rejects::acknowledge)))  // POST   /pipelines/{p}/rejects/acknowledge
        .routes(needs(Operator, routes!(rejects::discard)))      // POST   /pipelines/{p}/rejects/discard
        .routes(needs(Operator, routes!(rejects::retry)))        // POST   /pipelines/{p}/rejects/retry
        .routes(needs(Operator, routes!(reconciles::request)))   // POST   /pipelines/{p}/reconcile
        .routes(needs(Viewer,   routes!(reconciles::standing)))  // GET    /pipelines/{p}/reconcile
        .routes(needs(Viewer,   routes!(reconciles::of_pipeline))) // GET  /pipelines/{p}/reconciles?limit=&cursor=
        .routes(needs(Viewer,   routes!(reconciles::list)))      // GET    /reconciles?limit=&cursor=
        .routes(needs(Viewer,   routes!(reconciles::show)))      // GET    /reconciles/{id}?wait=
        .routes(needs(Operator, routes!(reconciles::cancel)))    // POST   /reconciles/{id}/cancel
        .routes(shows_rows(Viewer, routes!(reconciles::differences))) // GET  /reconciles/{id}/differences?kind=&format=&limit=&cursor=
        .routes(needs(Operator, routes!(reconciles::repair)))    // POST   /reconciles/{id}/repair?dry_run=
        .routes(needs(Viewer,   routes!(runs::list)))            // GET    /runs?status=&limit=&cursor=
        .routes(needs(Viewer,   routes!(runs::show)))            // GET    /runs/{id}?wait=
        .routes(needs(Viewer,   routes!(runs::batches)))         // GET    /runs/{id}/batches?limit=&cursor=
        .routes(needs(Viewer,   routes!(runs::logs)))            // GET    /runs/{id}/logs?limit=&cursor=&wait=
        .routes(needs(Viewer,   routes!(events::listen)))        // GET    /events?topics=
        .routes(needs(Viewer,   routes!(targets::list)))         // GET    /targets
        .routes(needs(Viewer,   routes!(targets::show)))         // GET    /targets/{t}
        .routes(needs(Operator, routes!(targets::standing)))     // GET    /targets/{t}/standing?pipeline=
        .routes(needs(Admin,    routes!(targets::put)))          // PUT    /targets/{t}
        .routes(needs(Admin,    routes!(targets::delete)))       // DELETE /targets/{t}
        .routes(needs(Viewer,   routes!(connections::list)))     // GET    /connections
        .routes(looks(Operator, routes!(connections::test)))     // POST   /connections/{c}/test
        .routes(needs(Operator, routes!(connections::schema)))   // GET    /connections/{c}/schema
        .routes(needs(Viewer,   routes!(system::runners)))       // GET    /runners
        .routes(needs(Viewer,   routes!(system::python_tasks)))  // GET    /python-tasks
        .routes(for_all(Operator, routes!(system::drain)))       // POST   /runners/{name}/drain
        .routes(looks(Operator, large(routes!(config::plan))))   // POST   /plan
        .routes(needs(Admin,    large(routes!(config::apply))))  // POST   /apply
        .routes(needs(Viewer,   routes!(config::export)))        // GET    /export
        .routes(needs(Viewer,   routes!(config::json_schema)))   // GET    /config.schema.json
        .routes(needs(Admin,    routes!(system::audit)))         // GET    /audit?limit=&cursor=
        .routes(needs(Viewer,   routes!(system::whoami)))        // GET    /whoami
        .routes(needs(Viewer,   routes!(metrics::show)))         // GET    /metrics
        .routes(needs(Viewer,   routes!(documentation::show)))   // GET    /openapi.json
        .routes(routes!(system::health))                         // GET    /health
        .routes(routes!(system::live))                           // GET    /health/live
        .routes(routes!(system::ready))                          // GET    /health/ready
        .routes(routes!(system::version))                        // GET    /version
}

fn large((schemas, paths, handler): UtoipaMethodRouter<App>) -> UtoipaMethodRouter<App> {
    (schemas, paths, handler.layer(DefaultBodyLimit::max(MAX_CONFIGURATION_BYTES)))
}

fn needed(app: &App, needed: Needed, call: UtoipaMethodRouter<App>) -> UtoipaMethodRouter<App> {
    let (schemas, mut paths, mut handler) = call;
    if !takes_query(&mut paths) {
        handler = handler.route_layer(from_fn(query::refuse_any));
    }
    describe_access(&mut paths, needed);
    (schemas, paths, handler.route_layer(from_fn_with_state((app.clone(), needed), access::check)))
}

pub(crate) fn router(app: &App) -> Router {
    let documented = OpenApiRouter::with_openapi(Document::openapi()).nest("/api/v1", calls(app));
    let (versioned, mut document) = documented.split_for_parts();
    completion::complete(&mut document);
    let (plain, _) = calls(app).split_for_parts();
    versioned
        .merge(plain)
        .route("/", get(system::welcome))
        .merge(docs::page(app, &document))
        .merge(ui::pages())
        .fallback(async || Error::NoSuchPath)
        .method_not_allowed_fallback(async || Error::WrongMethod)
        .layer(Extension(documentation::Text::of(&document)))
        .layer(DefaultBodyLimit::max(MAX_BODY_BYTES))
        .layer(from_fn_with_state(app.clone(), envelope::wrap))
        .with_state(app.clone())
}
