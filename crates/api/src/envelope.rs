//! Around every call: its id, its log line, the headers each answer has, and problems as documents.

use axum::extract::{Request, State};
use axum::http::{HeaderMap, HeaderName, HeaderValue, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use tracing::Instrument;
use uuid::Uuid;

use crate::app::App;
use crate::problem::Problem;

const REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");

/// Names a call in the log, the audit and the answer.
#[derive(Debug, Clone)]
pub(crate) struct RequestId(pub(crate) String);

pub(crate) async fn wrap(State(app): State<App>, mut request: Request, next: Next) -> Response {
    let id = request_id(request.headers());
    let span = tracing::info_span!("call", method = %request.method(), path = request.uri().path(), request_id = %id);
    request.extensions_mut().insert(RequestId(id.clone()));
    async {
        let mut response = complete(next.run(request).await, &id);
        mark(response.headers_mut(), &id, app.rules.encrypted);
        tracing::debug!(status = response.status().as_u16(), "answered");
        response
    }
    .instrument(span)
    .await
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

/// A page that wants more than an answer to a program may set a policy of its own.
fn mark(headers: &mut HeaderMap, id: &str, encrypted: bool) {
    let nothing = HeaderValue::from_static("default-src 'none'; frame-ancestors 'none'");
    headers.entry(header::CONTENT_SECURITY_POLICY).or_insert(nothing);
    headers.insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    headers.insert(header::X_FRAME_OPTIONS, HeaderValue::from_static("DENY"));
    headers.insert(header::REFERRER_POLICY, HeaderValue::from_static("no-referrer"));
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    headers.insert("cross-origin-resource-policy", HeaderValue::from_static("same-origin"));
    if encrypted {
        headers.insert(header::STRICT_TRANSPORT_SECURITY, HeaderValue::from_static("max-age=31536000"));
    }
    headers.insert(REQUEST_ID, HeaderValue::from_str(id).expect("an id is visible ASCII"));
}
