//! The web UI: files that the build has embedded. They are the same for everyone and hold no data, so they need no token;
//! all that the UI shows comes by calls that do.
//!
//! Assets have their content's hash in their names and may be kept for ever. Every other path under `/ui` is the one page,
//! whose script reads the path.

use axum::Router;
use axum::extract::Path;
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::{Html, IntoResponse, Response};
use axum::routing::get;

use crate::app::App;
use crate::error::Error;
use crate::sight::AsBuilt;

/// Scripts and styles of this server only, none of them inline.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; font-src 'self'; \
                      connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'";
const FOR_EVER: &str = "public, max-age=31536000, immutable";
const ASK_AGAIN: &str = "no-cache";

struct File {
    name: &'static str,
    plain: &'static [u8],
    gzip: Option<&'static [u8]>,
}

static FILES: &[File] = include!(concat!(env!("OUT_DIR"), "/ui.rs"));

pub(super) fn pages() -> Router<App> {
    let show = async |headers: HeaderMap| file("index.html", &headers);
    Router::new()
        .route("/ui", get(show))
        .route("/ui/{*path}", get(show))
        .route("/ui/licenses.md", get(async |headers: HeaderMap| file("licenses.md", &headers)))
        .route("/ui/assets/{*name}", get(async |path, headers: HeaderMap| asset(path, &headers)))
}

fn file(name: &str, headers: &HeaderMap) -> Response {
    match find(name) {
        Some(file) => file.answer(headers, ASK_AGAIN),
        None => (StatusCode::NOT_FOUND, Html(include_str!("no_ui.html"))).into_response(),
    }
}

fn asset(Path(name): Path<String>, headers: &HeaderMap) -> Response {
    match find(&format!("assets/{name}")) {
        Some(file) => file.answer(headers, FOR_EVER),
        None => Error::NoSuchPath.into_response(),
    }
}

fn find(name: &str) -> Option<&'static File> {
    FILES.iter().find(|file| file.name == name)
}

impl File {
    /// Byte for byte as it was built: a compressed file has anything in it.
    fn answer(&self, asked: &HeaderMap, caching: &'static str) -> Response {
        let gzip = self.gzip.filter(|_| takes_gzip(asked));
        let mut answer = gzip.unwrap_or(self.plain).into_response();
        answer.extensions_mut().insert(AsBuilt);
        let headers = answer.headers_mut();
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(self.kind()));
        headers.insert(header::CACHE_CONTROL, HeaderValue::from_static(caching));
        headers.insert(header::CONTENT_SECURITY_POLICY, HeaderValue::from_static(POLICY));
        headers.insert(header::VARY, HeaderValue::from_static("accept-encoding"));
        if gzip.is_some() {
            headers.insert(header::CONTENT_ENCODING, HeaderValue::from_static("gzip"));
        }
        answer
    }

    fn kind(&self) -> &'static str {
        match self.name.rsplit('.').next() {
            Some("html") => "text/html; charset=utf-8",
            Some("js") => "text/javascript; charset=utf-8",
            Some("css") => "text/css; charset=utf-8",
            Some("svg") => "image/svg+xml",
            Some("md") => "text/markdown; charset=utf-8",
            _ => "application/octet-stream",
        }
    }
}

/// Browsers name it plainly; whoever weighs encodings gets the plain file.
fn takes_gzip(headers: &HeaderMap) -> bool {
    let accepted = headers.get(header::ACCEPT_ENCODING).and_then(|value| value.to_str().ok()).unwrap_or("");
    accepted.split(',').any(|encoding| encoding.trim() == "gzip")
}
