//! OpenAPI 3.1 out of the code: what the handlers do not say themselves.

use std::collections::BTreeMap;
use std::sync::Arc;

use axum::Extension;
use axum::http::header;
use axum::response::IntoResponse;
use utoipa::openapi::path::{Operation, ParameterIn, PathItem, Paths};
use utoipa::openapi::security::{HttpAuthScheme, HttpBuilder, SecurityRequirement, SecurityScheme};
use utoipa::openapi::{ContentBuilder, Ref, RefOr, Response, ResponseBuilder};
use utoipa::{IntoResponses, Modify, OpenApi};

use crate::access::Needed;
use crate::problem::{CONTENT_TYPE, Problem};

#[derive(Debug, OpenApi)]
#[openapi(
    info(
        title = "Vitrina",
        description = "Keeps Postgres marts and search indexes true to the Postgres services they come from. \
                       Every path is also served without /api/v1. Errors are RFC 9457 problems with a stable code.",
        license(name = "Apache-2.0", identifier = "Apache-2.0")
    ),
    components(schemas(Problem)),
    modifiers(&Bearer)
)]
pub(super) struct Document;

struct Bearer;

impl Modify for Bearer {
    fn modify(&self, document: &mut utoipa::openapi::OpenApi) {
        let scheme = HttpBuilder::new().scheme(HttpAuthScheme::Bearer).build();
        let components = document.components.get_or_insert_default();
        components.add_security_scheme("token", SecurityScheme::Http(scheme));
    }
}

/// What a role means for a call: it needs a token, and may be refused.
pub(super) fn describe_access(paths: &mut Paths, needed: Needed) {
    for item in paths.paths.values_mut() {
        operations(item).for_each(|operation| describe(operation, needed));
    }
}

pub(super) fn operations(item: &mut PathItem) -> impl Iterator<Item = &mut Operation> {
    [&mut item.get, &mut item.post, &mut item.put, &mut item.patch, &mut item.delete].into_iter().flatten()
}

pub(super) fn takes_query(paths: &mut Paths) -> bool {
    let mut parameters = paths
        .paths
        .values_mut()
        .flat_map(operations)
        .flat_map(|operation| operation.parameters.iter().flatten());
    parameters.any(|parameter| matches!(parameter, RefOr::T(parameter) if matches!(parameter.parameter_in, ParameterIn::Query)))
}

fn describe(operation: &mut Operation, needed: Needed) {
    let rows = if needed.rows { " Needs the right to see rows." } else { "" };
    let scope = if needed.everything { " Needs a token for all pipelines." } else { "" };
    let needs = format!("Needs the role {}.{rows}{scope}", needed.role.as_str());
    let said = operation.description.take().map(|text| format!("{text}\n\n{needs}"));
    operation.description = said.or(Some(needs));
    operation.security = Some(vec![SecurityRequirement::new::<_, [&str; 0], &str>("token", [])]);
    for (status, response) in [
        InvalidRequest::responses(),
        Unauthorized::responses(),
        Forbidden::responses(),
        TooMany::responses(),
        Broken::responses(),
        Away::responses(),
    ]
    .into_iter()
    .flatten()
    {
        operation.responses.responses.entry(status).or_insert(response);
    }
}

macro_rules! problems {
    ($($name:ident = $status:literal $codes:literal),+ $(,)?) => { $(
        #[derive(Debug)]
        pub(super) struct $name;

        impl IntoResponses for $name {
            fn responses() -> BTreeMap<String, RefOr<Response>> {
                BTreeMap::from([($status.to_owned(), problem($codes))])
            }
        }
    )+ };
}

problems! {
    BadBody = "400" "`request.json`, `request.body`",
    BadRun = "400" "`request.json`, `request.body`, `request.header`",
    Unauthorized = "401" "`access.unauthorized`",
    Forbidden = "403" "`access.forbidden`, `access.rows`, `access.scope`, `access.host`, `access.origin`",
    NoPipeline = "404" "`pipeline.not_found`",
    NoRun = "404" "`run.not_found`",
    NoReconcile = "404" "`reconcile.not_found`",
    CannotCancelReconcile = "409" "`reconcile.ended`",
    CannotRepair = "409" "`reconcile.not_done`, `reconcile.equal`, `reconcile.not_kept`, `reconcile.delete_limit`, `backfill.python`, `pipeline.disabled`, `pipeline.pending`, `pipeline.pausing`, `pipeline.cancelling`",
    NoRunner = "404" "`runner.not_found`",
    RunnerGone = "409" "`runner.gone`",
    NameTaken = "409" "`pipeline.name_taken`, `target.owned`",
    StillActive = "409" "`pipeline.active`",
    BadState = "400" "`request.json`, `request.body`, `request.header`",
    BadHeader = "400" "`request.header`",
    CannotEdit = "409" "`pipeline.locked` with the fields that have to wait in `errors`, `pipeline.name_taken`, `target.owned`",
    ConfigMoved = "412" "`config.version_moved`, with `current_version`",
    TargetMoved = "412" "`config.version_moved` with `current_version`, `target.missing`",
    NoTarget = "404" "`target.not_found`",
    NoConnection = "404" "`connection.not_found`",
    NotASource = "409" "`connection.not_a_source`",
    CannotApply = "409" "`plan.moved` with `plan_hash`, `pipeline.locked`, `pipeline.active`, `pipeline.name_taken`, `target.used`, `target.owned`",
    InvalidConfiguration = "422" "`config.invalid` with all broken rules in `errors`, `request.invalid`",
    InvalidSql = "422" "`sql.invalid` with all findings in `errors`, `request.invalid`",
    SourceAway = "502" "`source.unavailable`",
    Listeners = "503" "`events.full`, `meta_store.unavailable`",
    TargetUsed = "409" "`target.used`",
    TargetOwned = "409" "`target.owned`: it would not be shared any more, and has several writers",
    TargetUnusable = "409" "`target.unusable`",
    InvalidTarget = "422" "`target.invalid`, `request.invalid`",
    TooMany = "429" "`rate.limited`, `access.slowed`",
    Unanswered = "502" "`runner.unanswered`",
    NoRunnerAnswers = "503" "`runner.none`, `runner.waits`, `meta_store.unavailable`",
    CannotChangeState = "409" "`pipeline.active`",
    InvalidState = "422" "`request.invalid`, `state.no_such_version`",
    StateMoved = "412" "`state.version_moved`",
    NoIfMatch = "428" "`request.if_match`",
    CannotRun = "409" "`pipeline.disabled`, `pipeline.active`, `pipeline.pending`, `pipeline.pausing`, `pipeline.cancelling`, `pipeline.config_changed`, `pipeline.code_changed`, `idempotency_key.reused`",
    CannotRetry = "409" "`rejects.none`, `pipeline.disabled`, `pipeline.pending`, `pipeline.pausing`, `pipeline.cancelling`",
    CannotPause = "409" "`pipeline.failed`",
    CannotCancel = "409" "`pipeline.idle`",
    TooLarge = "413" "`request.too_large`",
    NotJson = "415" "`request.media_type`",
    InvalidPipeline = "422" "`pipeline.invalid` with all broken rules in `errors`, `request.invalid`",
    InvalidRequest = "422" "`request.invalid`",
    InvalidRun = "422" "`pipeline.incremental_key`, `request.invalid`",
    Broken = "500" "`internal`",
    Away = "503" "`meta_store.unavailable`, `pipeline.busy`, `access.changed`",
}

fn problem(codes: &str) -> RefOr<Response> {
    let schema = ContentBuilder::new().schema(Some(Ref::from_schema_name("Problem"))).build();
    ResponseBuilder::new().description(codes).content(CONTENT_TYPE, schema).build().into()
}

/// The document, written once.
#[derive(Debug, Clone)]
pub(super) struct Text(Arc<str>);

impl Text {
    pub(super) fn of(document: &utoipa::openapi::OpenApi) -> Self {
        Self(document.to_pretty_json().expect("a document of plain values can be written").into())
    }
}

/// This document
#[utoipa::path(get, path = "/openapi.json", tag = "system", operation_id = "openapi",
    responses((status = 200, description = "OpenAPI 3.1", content_type = "application/json")))]
pub(super) async fn show(Extension(Text(text)): Extension<Text>) -> impl IntoResponse {
    ([(header::CONTENT_TYPE, "application/json")], text.to_string())
}
