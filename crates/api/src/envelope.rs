//! Around every call: its id, its span and log line, how long it took, the headers each answer has, and problems as
//! documents.

use std::time::Instant;

use axum::extract::{Request, State};
use axum::http::{HeaderMap, HeaderName, HeaderValue, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use tracing::field::Empty;
use tracing::{Instrument, Span};
use uuid::Uuid;
use vitrina_telemetry::{continue_trace, trace_id};

use crate::app::App;
use crate::extract::traceparent;
use crate::measure::Call;
use crate::problem::Problem;
use crate::sight::{self, SeesOthers, SeesRows};

const REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");

/// Names a call in the log, the audit and the answer.
#[derive(Debug, Clone)]
pub(crate) struct RequestId(pub(crate) String);

pub(crate) async fn wrap(State(app): State<App>, mut request: Request, next: Next) -> Response {
    let started = Instant::now();
    let call = Call::of(&request);
    let id = request_id(request.headers());
    let span = span(&request, &call, &id);
    request.extensions_mut().insert(RequestId(id.clone()));
    let response = async {
        let response = next.run(request).await;
        let sees_rows = response.extensions().get().copied().unwrap_or(SeesRows(false));
        let sees_others = response.extensions().get().copied().unwrap_or(SeesOthers(false));
        let mut response = sight::resolve(complete(response, &id), sees_rows, sees_others).await;
        mark(response.headers_mut(), &id, app.rules.encrypted);
        let status = response.status().as_u16();
        Span::current().record("http.response.status_code", status);
        tracing::debug!(status, "answered");
        response
    };
    let response = response.instrument(span).await;
    call.answered(&app.exposition, response.status(), started.elapsed());
    response
}

/// A part of the caller's trace, where the call names one.
fn span(request: &Request, call: &Call, id: &str) -> Span {
    if call.is_probe() {
        return tracing::debug_span!("call", method = %request.method(), path = request.uri().path(), request_id = %id);
    }
    let span = tracing::info_span!(
        "call",
        method = %request.method(),
        path = request.uri().path(),
        request_id = %id,
        trace_id = Empty,
        otel.name = call.name(),
        otel.kind = "server",
        http.response.status_code = Empty,
    );
    if let Some(caller) = traceparent(request.headers()) {
        continue_trace(&span, &caller);
    }
    if let Some(id) = trace_id(&span) {
        span.record("trace_id", id);
    }
    span
}

/// The caller's own id, where it can be logged as it is; else a new one.
fn request_id(headers: &HeaderMap) -> String {
    let plain = |id: &&str| (1..=128).contains(&id.len()) && id.bytes().all(|byte| byte.is_ascii_graphic());
    let given = headers.get(REQUEST_ID).and_then(|value| value.to_str().ok()).filter(plain);
    given.map_or_else(|| Uuid::now_v7().to_string(), str::to_owned)
}

/// A problem travels as an extension until here, where the request's id is known. Headers that were
/// set on its way, such as `allow`, stay.
fn complete(mut response: Response, id: &str) -> Response {
    let Some(problem) = response.extensions_mut().remove::<Problem>() else { return response };
    let mut document = problem.of_request(id).into_response();
    for (name, value) in response.headers() {
        if name != header::CONTENT_LENGTH {
            document.headers_mut().entry(name).or_insert_with(|| value.clone());
        }
    }
    document
}

/// A page that wants more than an answer to a program may set a policy of its own, and say that it may be kept.
fn mark(headers: &mut HeaderMap, id: &str, encrypted: bool) {
    let nothing = HeaderValue::from_static("default-src 'none'; frame-ancestors 'none'");
    headers.entry(header::CONTENT_SECURITY_POLICY).or_insert(nothing);
    headers.insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    headers.insert(header::X_FRAME_OPTIONS, HeaderValue::from_static("DENY"));
    headers.insert(header::REFERRER_POLICY, HeaderValue::from_static("no-referrer"));
    headers.entry(header::CACHE_CONTROL).or_insert(HeaderValue::from_static("no-store"));
    headers.insert("cross-origin-resource-policy", HeaderValue::from_static("same-origin"));
    if encrypted {
        headers.insert(header::STRICT_TRANSPORT_SECURITY, HeaderValue::from_static("max-age=31536000"));
    }
    headers.insert(REQUEST_ID, HeaderValue::from_str(id).expect("an id is visible ASCII"));
}
