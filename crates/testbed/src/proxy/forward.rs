//! Passing a request on, and its answer back.

use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::header::{self, HeaderMap, HeaderName, HeaderValue};
use hyper::{Method, Request, Response, StatusCode};
use serde_json::Value;

use super::fault::Dropped;

pub(super) type Answer = Response<Full<Bytes>>;

/// Belong to one connection or say how long a body is, which may have changed.
const OF_THE_CONNECTION: [HeaderName; 5] =
    [header::HOST, header::CONNECTION, header::CONTENT_LENGTH, header::TRANSFER_ENCODING, header::EXPECT];

/// A request, read to its end.
#[derive(Debug, Clone)]
pub(super) struct Call {
    pub(super) method: Method,
    /// With its query.
    pub(super) path: String,
    pub(super) headers: HeaderMap,
    pub(super) body: Bytes,
}

impl Call {
    pub(super) async fn read(request: Request<Incoming>) -> Result<Self, Dropped> {
        let (head, body) = request.into_parts();
        let body = body.collect().await.map_err(|_| Dropped)?.to_bytes();
        let path = head.uri.path_and_query().map(ToString::to_string).unwrap_or_default();
        Ok(Self { method: head.method, path, headers: without_connection(head.headers), body })
    }

    /// By what rules know it.
    pub(super) fn line(&self) -> String {
        format!("{} {}", self.method, self.path)
    }

    pub(super) fn is_bulk(&self) -> bool {
        self.path.split('?').next().is_some_and(|path| path.ends_with("/_bulk"))
    }
}

/// A server that does not answer is one that has gone: the caller is dropped too.
pub(super) async fn forward(http: &reqwest::Client, server: &str, call: Call) -> Result<Answer, Dropped> {
    let request = http.request(call.method, format!("{server}{}", call.path)).headers(call.headers);
    let answer = request.body(call.body).send().await.map_err(|_| Dropped)?;
    let (status, headers) = (answer.status(), without_connection(answer.headers().clone()));
    let body = answer.bytes().await.map_err(|_| Dropped)?;
    let mut answer = Response::new(Full::new(body));
    *answer.status_mut() = status;
    *answer.headers_mut() = headers;
    Ok(answer)
}

/// An answer of our own.
pub(super) fn json(status: u16, body: &Value) -> Answer {
    let mut answer = Response::new(Full::from(body.to_string()));
    *answer.status_mut() = StatusCode::from_u16(status).expect("a status of HTTP");
    answer.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    answer
}

fn without_connection(mut headers: HeaderMap) -> HeaderMap {
    for name in OF_THE_CONNECTION {
        headers.remove(name);
    }
    headers
}
