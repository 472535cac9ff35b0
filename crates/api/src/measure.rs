//! What is measured of calls. A route is named by its template: what callers write into a path is no label.

use std::time::Duration;

use axum::extract::{MatchedPath, Request};
use axum::http::{Method, StatusCode};
use vitrina_telemetry::Exposition;

/// The control plane's own: a runner in the same process counts elsewhere.
pub(crate) fn exposition() -> Exposition {
    let exposition = Exposition::new();
    exposition.record(|| {
        metrics::describe_gauge!("vitrina_build_info", "1; its label tells the version of this process");
        metrics::gauge!("vitrina_build_info", "version" => env!("CARGO_PKG_VERSION")).set(1.0);
        metrics::describe_counter!(
            "vitrina_api_failed_logins_total",
            "calls of the API with a token that is not valid"
        );
        metrics::counter!("vitrina_api_failed_logins_total").absolute(0);
        metrics::describe_histogram!(
            "http_server_request_duration_seconds",
            metrics::Unit::Seconds,
            "calls of the API; those that wait for a change take as long as they wait"
        );
    });
    exposition
}

/// What may be told of a call without telling what was in it.
pub(crate) struct Call {
    method: &'static str,
    route: String,
}

impl Call {
    pub(crate) fn of(request: &Request) -> Self {
        let matched = request.extensions().get::<MatchedPath>().map(MatchedPath::as_str);
        // The plain paths are the same calls.
        let route = matched.map(|path| path.strip_prefix("/api/v1").unwrap_or(path));
        Self { method: method(request.method()), route: route.unwrap_or("none").to_owned() }
    }

    pub(crate) fn name(&self) -> String {
        format!("{} {}", self.method, self.route)
    }

    /// Asked all day long by machines: no trace is made of that.
    pub(crate) fn is_probe(&self) -> bool {
        self.route == "/metrics" || self.route.starts_with("/health")
    }

    pub(crate) fn answered(self, exposition: &Exposition, status: StatusCode, took: Duration) {
        let labels = [
            ("route", self.route),
            ("method", self.method.to_owned()),
            ("status", status.as_u16().to_string()),
        ];
        exposition
            .record(|| metrics::histogram!("http_server_request_duration_seconds", &labels).record(took));
    }
}

/// A caller may invent methods.
fn method(method: &Method) -> &'static str {
    let known = ["GET", "POST", "PUT", "PATCH", "DELETE", "HEAD", "OPTIONS"];
    known.into_iter().find(|known| method == *known).unwrap_or("OTHER")
}
