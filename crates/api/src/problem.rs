//! What a client is told when a call fails: RFC 9457, with a stable code for programs.

use axum::Json;
use axum::http::{HeaderName, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde::Serialize;
use utoipa::ToSchema;

pub(crate) const CONTENT_TYPE: &str = "application/problem+json";

#[derive(Debug, Clone, Serialize, ToSchema)]
pub(crate) struct Problem {
    /// `urn:vitrina:problem:` and the code.
    r#type: String,
    /// The status in words.
    title: String,
    #[serde(serialize_with = "as_number")]
    #[schema(value_type = u16)]
    status: StatusCode,
    /// Stable, for programs.
    #[schema(example = "pipeline.not_found")]
    pub(crate) code: &'static str,
    pub(crate) detail: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    hint: Option<String>,
    /// All that is wrong with the request, at once.
    errors: Vec<Fault>,
    /// The version that is there now, where the call was about another one; also in the header `etag`.
    #[serde(skip_serializing_if = "Option::is_none")]
    current_version: Option<i64>,
    /// The plan as it would be now, where the call was about another one.
    #[serde(skip_serializing_if = "Option::is_none")]
    plan_hash: Option<String>,
    /// Names this call in the server's log.
    request_id: String,
    #[serde(skip)]
    header: Option<(HeaderName, HeaderValue)>,
}

/// One thing that is wrong with a request.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, ToSchema)]
pub(crate) struct Fault {
    /// Where in the body, as a JSON pointer; for a query parameter its name.
    pub(crate) pointer: String,
    pub(crate) code: String,
    pub(crate) detail: String,
    /// Where in the text (of the SQL, or of the body), counted from 1.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) line: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) column: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) hint: Option<String>,
}

impl Fault {
    /// `message` may end with a `hint: …` line, as messages of this house do.
    pub(crate) fn new(pointer: impl Into<String>, code: impl Into<String>, message: &str) -> Self {
        let (detail, hint) = split_hint(message);
        Self { pointer: pointer.into(), code: code.into(), detail, line: None, column: None, hint }
    }

    #[must_use]
    pub(crate) fn at(mut self, line: u32, column: u32) -> Self {
        (self.line, self.column) = (Some(line), Some(column));
        self
    }
}

impl Problem {
    pub(crate) fn new(status: StatusCode, code: &'static str, message: &str) -> Self {
        let (detail, hint) = split_hint(message);
        Self {
            r#type: format!("urn:vitrina:problem:{code}"),
            title: status.canonical_reason().unwrap_or("Error").to_owned(),
            status,
            code,
            detail,
            hint,
            errors: Vec::new(),
            current_version: None,
            plan_hash: None,
            request_id: String::new(),
            header: None,
        }
    }

    #[must_use]
    pub(crate) fn hint(mut self, hint: &str) -> Self {
        self.hint = Some(hint.to_owned());
        self
    }

    #[must_use]
    pub(crate) fn errors(mut self, errors: Vec<Fault>) -> Self {
        self.errors = errors;
        self
    }

    /// What cannot be a header is left out.
    #[must_use]
    pub(crate) fn header(mut self, name: HeaderName, value: &str) -> Self {
        self.header = HeaderValue::from_str(value).ok().map(|value| (name, value));
        self
    }

    #[must_use]
    pub(crate) fn current(mut self, version: i64) -> Self {
        self.current_version = Some(version);
        self.header(header::ETAG, &format!("\"{version}\""))
    }

    #[must_use]
    pub(crate) fn plan_hash(mut self, hash: String) -> Self {
        self.plan_hash = Some(hash);
        self
    }

    #[must_use]
    pub(crate) fn of_request(mut self, request_id: &str) -> Self {
        request_id.clone_into(&mut self.request_id);
        self
    }
}

impl IntoResponse for Problem {
    fn into_response(mut self) -> Response {
        let (status, header) = (self.status, self.header.take());
        let mut response = (status, Json(self)).into_response();
        response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static(CONTENT_TYPE));
        if let Some((name, value)) = header {
            response.headers_mut().insert(name, value);
        }
        response
    }
}

fn split_hint(message: &str) -> (String, Option<String>) {
    match message.split_once("\nhint: ") {
        Some((detail, hint)) => (detail.to_owned(), Some(hint.to_owned())),
        None => (message.to_owned(), None),
    }
}

fn as_number<S: serde::Serializer>(status: &StatusCode, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_u16(status.as_u16())
}
