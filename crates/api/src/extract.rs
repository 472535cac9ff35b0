//! Parts of a request, read once at the edge. What cannot be read is the caller's error, never ours.

use std::convert::Infallible;

use axum::body::Bytes;
use axum::extract::{FromRequest, FromRequestParts, Path, Request};
use axum::http::request::Parts;
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::IntoResponse;
use serde::de::{DeserializeOwned, IgnoredAny};
use tracing::Span;
use vitrina_store::{PipelineRef, Scope, TokenInfo};
use vitrina_telemetry::TraceParent;

use crate::app::App;
use crate::error::Error;
use crate::problem::Fault;
use crate::query::digits;

/// The application as its caller sees it: whatever it finds is within the scope of the token. Who takes the application by
/// `State`, or answers a call without a token, finds no pipeline at all.
#[derive(Debug)]
pub(crate) struct Scoped(pub(crate) App);

impl FromRequestParts<App> for Scoped {
    type Rejection = Infallible;

    async fn from_request_parts(parts: &mut Parts, app: &App) -> Result<Self, Infallible> {
        let caller = parts.extensions.get::<TokenInfo>();
        let scope = caller.map_or(Scope::NOTHING, |caller| caller.scope.clone());
        Ok(Self(App { store: app.store.within(scope), ..app.clone() }))
    }
}

/// A JSON body.
#[derive(Debug)]
pub(crate) struct Body<T>(pub(crate) T);

impl<S: Send + Sync, T: DeserializeOwned> FromRequest<S> for Body<T> {
    type Rejection = Error;

    async fn from_request(request: Request, state: &S) -> Result<Self, Error> {
        let (headers, bytes) = read(request, state).await?;
        parse(&headers, &bytes).map(Self)
    }
}

/// A JSON body that may be left out.
#[derive(Debug)]
pub(crate) struct OptionalBody<T>(pub(crate) T);

impl<S: Send + Sync, T: DeserializeOwned + Default> FromRequest<S> for OptionalBody<T> {
    type Rejection = Error;

    async fn from_request(request: Request, state: &S) -> Result<Self, Error> {
        let (headers, bytes) = read(request, state).await?;
        if bytes.is_empty() {
            return Ok(Self(T::default()));
        }
        parse(&headers, &bytes).map(Self)
    }
}

async fn read<S: Send + Sync>(request: Request, state: &S) -> Result<(HeaderMap, Bytes), Error> {
    let headers = request.headers().clone();
    let bytes = Bytes::from_request(request, state).await.map_err(|rejection| {
        match rejection.into_response().status() {
            StatusCode::PAYLOAD_TOO_LARGE => Error::BodyTooLarge,
            _ => Error::UnreadableBody,
        }
    })?;
    Ok((headers, bytes))
}

fn parse<T: DeserializeOwned>(headers: &HeaderMap, bytes: &[u8]) -> Result<T, Error> {
    if !is_json(headers) {
        return Err(Error::NotJson);
    }
    check_json(bytes)?;
    let mut reader = serde_json::Deserializer::from_slice(bytes);
    let value = serde_path_to_error::deserialize(&mut reader)
        .map_err(|error| Error::InvalidBody(fault(error.inner(), pointer(error.path()), "body.field")))?;
    if has_nul(bytes) {
        let place =
            serde_json::from_slice(bytes).ok().and_then(|body| nul_pointer(&body)).unwrap_or_default();
        let message = "a text contains the character NUL, which Postgres cannot store";
        return Err(Error::InvalidBody(Fault::new(place, "body.nul", message)));
    }
    Ok(value)
}

/// A document that was put together here.
pub(crate) fn read_value<T: DeserializeOwned>(document: serde_json::Value) -> Result<T, Error> {
    serde_path_to_error::deserialize(document).map_err(|error| {
        let message = error.inner().to_string();
        Error::InvalidBody(Fault::new(pointer(error.path()), "body.field", &plain(&message)))
    })
}

/// Asked beforehand: serde calls a number in place of a word bad syntax, and takes an array for the
/// fields of a struct.
fn check_json(json: &[u8]) -> Result<(), Error> {
    // What is no JSON has no fields to point at.
    serde_json::from_slice::<IgnoredAny>(json)
        .map_err(|error| Error::BadJson(fault(&error, String::new(), "body.syntax")))?;
    if json.trim_ascii_start().starts_with(b"{") {
        return Ok(());
    }
    Err(Error::InvalidBody(Fault::new("", "body.field", "the body must be a JSON object")))
}

/// JSON can spell the one character that Postgres cannot store: an escape that no backslash escapes.
fn has_nul(json: &[u8]) -> bool {
    let mut rest = json;
    while let Some(at) = rest.iter().position(|byte| *byte == b'\\') {
        if rest[at..].starts_with(br"\u0000") {
            return true;
        }
        rest = rest.get(at + 2..).unwrap_or_default();
    }
    false
}

/// The first text with a NUL in it. A key of a map is pointed at by its map.
fn nul_pointer(value: &serde_json::Value) -> Option<String> {
    use serde_json::Value;
    let below = |part: &str, value| Some(format!("/{}{}", escaped(part), nul_pointer(value)?));
    match value {
        Value::String(text) => text.contains('\0').then(String::new),
        Value::Array(items) => {
            items.iter().enumerate().find_map(|(place, item)| below(&place.to_string(), item))
        }
        Value::Object(fields) => fields.iter().find_map(|(name, value)| match name.contains('\0') {
            true => Some(String::new()),
            false => below(name, value),
        }),
        _ => None,
    }
}

/// As a JSON pointer writes a part of its path.
fn escaped(part: &str) -> String {
    part.replace('~', "~0").replace('/', "~1")
}

fn is_json(headers: &HeaderMap) -> bool {
    let given = headers.get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let essence = given.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
    essence == "application/json" || (essence.starts_with("application/") && essence.ends_with("+json"))
}

fn fault(error: &serde_json::Error, pointer: String, code: &str) -> Fault {
    let message = error.to_string();
    let detail = plain(message.split(" at line ").next().unwrap_or_default());
    let place = |number: usize| u32::try_from(number).unwrap_or(u32::MAX);
    Fault::new(pointer, code, &detail).at(place(error.line()), place(error.column()))
}

/// serde names the types of this code; a caller knows objects and words.
fn plain(message: &str) -> String {
    for (name, kind) in [("struct", "an object"), ("enum", "a word")] {
        if let Some((said, _)) = message.rsplit_once(&format!(", expected {name} ")) {
            return format!("{said}, expected {kind}");
        }
    }
    message.to_owned()
}

fn pointer(path: &serde_path_to_error::Path) -> String {
    use serde_path_to_error::Segment;
    let segments = path.iter().filter_map(|segment| match segment {
        Segment::Seq { index } => Some(index.to_string()),
        Segment::Map { key } => Some(escaped(key)),
        Segment::Enum { variant } => Some(variant.clone()),
        Segment::Unknown => None,
    });
    segments.map(|segment| format!("/{segment}")).collect()
}

/// `{p}`: a pipeline's id or name.
#[derive(Debug)]
pub(crate) struct PipelinePath(pub(crate) PipelineRef);

impl<S: Send + Sync> FromRequestParts<S> for PipelinePath {
    type Rejection = Error;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Error> {
        let text = segment(parts, state).await;
        // Postgres knows no text with a NUL in it: there cannot be such a pipeline.
        match text.filter(|text| !text.contains('\0')) {
            Some(text) => Ok(Self(PipelineRef::from(text.as_str()))),
            None => Err(Error::NoSuchPipeline("of this name".to_owned())),
        }
    }
}

/// `{id}` of a run.
#[derive(Debug)]
pub(crate) struct RunPath(pub(crate) vitrina_core::RunId);

impl<S: Send + Sync> FromRequestParts<S> for RunPath {
    type Rejection = Error;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Error> {
        let text = segment(parts, state).await.unwrap_or_default();
        let id = text.parse().map_err(|_| Error::NoSuchRun(format!("{text:?}")))?;
        Ok(Self(vitrina_core::RunId(id)))
    }
}

/// `{id}` of a reconcile.
#[derive(Debug)]
pub(crate) struct ReconcilePath(pub(crate) uuid::Uuid);

impl<S: Send + Sync> FromRequestParts<S> for ReconcilePath {
    type Rejection = Error;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Error> {
        let text = segment(parts, state).await.unwrap_or_default();
        text.parse().map(Self).map_err(|_| Error::NoSuchReconcile(format!("{text:?}")))
    }
}

macro_rules! names {
    ($($(#[$about:meta])* $name:ident => $missing:ident),+ $(,)?) => { $(
        $(#[$about])*
        #[derive(Debug)]
        pub(crate) struct $name(pub(crate) String);

        impl<S: Send + Sync> FromRequestParts<S> for $name {
            type Rejection = Error;

            async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Error> {
                // Postgres knows no text with a NUL in it: there cannot be such a thing.
                let name = segment(parts, state).await.filter(|name| !name.contains('\0'));
                name.map(Self).ok_or_else(|| Error::$missing("of this name".to_owned()))
            }
        }
    )+ };
}

names! {
    /// `{name}` of a runner.
    RunnerPath => NoSuchRunner,
    /// `{t}`: the name of a target.
    TargetPath => NoSuchTarget,
    /// `{c}`: the name of a connection.
    ConnectionPath => NoSuchConnection,
}

async fn segment<S: Send + Sync>(parts: &mut Parts, state: &S) -> Option<String> {
    Path::<String>::from_request_parts(parts, state).await.ok().map(|Path(text)| text)
}

/// The `Idempotency-Key` header.
#[derive(Debug)]
pub(crate) struct IdempotencyKey(pub(crate) Option<String>);

impl<S: Send + Sync> FromRequestParts<S> for IdempotencyKey {
    type Rejection = Error;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Error> {
        let Some(value) = parts.headers.get("idempotency-key") else { return Ok(Self(None)) };
        match value.to_str() {
            Ok(key) if (1..=255).contains(&key.len()) && !key.contains('\t') => {
                Ok(Self(Some(key.to_owned())))
            }
            _ => Err(Error::InvalidHeader("idempotency-key has 1 to 255 visible ASCII characters")),
        }
    }
}

/// The trace that a run shall go on with: this call's own where it is traced, else what the header `traceparent` says.
#[derive(Debug)]
pub(crate) struct CallersTrace(pub(crate) Option<String>);

impl<S: Send + Sync> FromRequestParts<S> for CallersTrace {
    type Rejection = Infallible;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Infallible> {
        let trace = TraceParent::of_span(&Span::current()).or_else(|| traceparent(&parts.headers));
        Ok(Self(trace.map(|trace| trace.to_string())))
    }
}

/// A header that is not as the standard has it is as good as none.
pub(crate) fn traceparent(headers: &HeaderMap) -> Option<TraceParent> {
    headers.get("traceparent")?.to_str().ok()?.trim().parse().ok()
}

/// The `If-Match` header: the version that a change is about.
#[derive(Debug)]
pub(crate) enum IfMatch {
    /// Left out.
    Missing,
    /// `*`: whatever is there.
    Any,
    Version(i64),
}

impl IfMatch {
    pub(crate) fn given(self) -> Option<i64> {
        if let Self::Version(version) = self { Some(version) } else { None }
    }
}

impl<S: Send + Sync> FromRequestParts<S> for IfMatch {
    type Rejection = Error;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Error> {
        let Some(value) = parts.headers.get(header::IF_MATCH) else { return Ok(Self::Missing) };
        let text = value.to_str().unwrap_or_default().trim();
        if text == "*" {
            return Ok(Self::Any);
        }
        let version = text.strip_prefix('"').and_then(|text| text.strip_suffix('"')).unwrap_or(text);
        digits(version, 18)
            .map(Self::Version)
            .ok_or(Error::InvalidHeader("if-match is one etag of this thing, or *"))
    }
}
