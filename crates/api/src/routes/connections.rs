//! The servers that pipelines read from and write to.

use axum::{Extension, Json};
use vitrina_store::Actor;

use super::documentation::{NoConnection, NoRunnerAnswers, NotASource, SourceAway, Unanswered};
use crate::documents::{Connection, ConnectionTest, Page, SourceSchema};
use crate::error::Result;
use crate::extract::{ConnectionPath, Scoped};
use crate::services::connections;

/// Connections, without their secrets
#[utoipa::path(get, path = "/connections", tag = "connections", operation_id = "list_connections",
    responses((status = 200, body = Page<Connection>)))]
pub(super) async fn list(Scoped(app): Scoped) -> Result<Json<Page<Connection>>> {
    Ok(Json(Page::whole(connections::list(&app).await?)))
}

/// Let a runner look at a connection
///
/// It opens a session, and looks at what its login may do. What is missing comes as statements to copy.
#[utoipa::path(post, path = "/connections/{c}/test", tag = "connections", operation_id = "test_connection",
    params(("c" = String, Path, description = "its name")),
    responses((status = 200, body = ConnectionTest), NoConnection, Unanswered, NoRunnerAnswers))]
pub(super) async fn test(
    Scoped(app): Scoped,
    Extension(actor): Extension<Actor>,
    ConnectionPath(name): ConnectionPath,
) -> Result<Json<ConnectionTest>> {
    Ok(Json(connections::test(&app, &actor, &name).await?))
}

/// The tables and columns of a source
///
/// Those that the server's login may read in the allowed schemas: what queries can be written with.
#[utoipa::path(get, path = "/connections/{c}/schema", tag = "connections", operation_id = "get_connection_schema",
    params(("c" = String, Path, description = "its name")),
    responses((status = 200, body = SourceSchema), NoConnection, NotASource, SourceAway))]
pub(super) async fn schema(
    Scoped(app): Scoped,
    ConnectionPath(name): ConnectionPath,
) -> Result<Json<SourceSchema>> {
    Ok(Json(connections::schema(&app, &name).await?.into()))
}
