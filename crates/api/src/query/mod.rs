//! Parameters of the query string. Unknown ones are errors: a filter or a dry run that is silently
//! ignored does the wrong thing.

mod differences;
mod pages;
mod rows;

use std::time::Duration;

use axum::extract::{FromRequestParts, Query, Request};
use axum::http::request::Parts;
use axum::middleware::Next;
use axum::response::Response;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use utoipa::IntoParams;

use crate::error::{Error, Result};
use crate::events::TOPICS;
use crate::problem::Fault;

pub(crate) use differences::{DifferenceSlice, DownloadFormat};
pub(crate) use pages::{
    Followed, Limit, NumberedSlice, PipelineSlice, ReconcileSlice, RejectSlice, RunSlice, cursor_text,
    pipeline_cursor, run_cursor,
};
pub(crate) use rows::RowKey;

#[derive(Debug)]
pub(crate) struct Params<T>(pub(crate) T);

impl<S: Send + Sync, T: DeserializeOwned> FromRequestParts<S> for Params<T> {
    type Rejection = Error;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self> {
        let Query(params) = Query::try_from_uri(&parts.uri).map_err(|rejection| {
            let text = rejection.body_text();
            let detail = text.strip_prefix("Failed to deserialize query string: ").unwrap_or(&text);
            let (name, rule) = detail.split_once(": ").unwrap_or(("", detail));
            invalid(name, rule)
        })?;
        Ok(Self(params))
    }
}

fn invalid(name: &str, rule: &str) -> Error {
    Error::InvalidQuery(Fault::new(name, "query.parameter", rule))
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Nothing {}

/// Around calls that take no parameters.
pub(crate) async fn refuse_any(request: Request, next: Next) -> Result<Response> {
    let (mut parts, body) = request.into_parts();
    Params::<Nothing>::from_request_parts(&mut parts, &()).await?;
    Ok(next.run(Request::from_parts(parts, body)).await)
}

#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub(crate) struct Wait {
    /// How many seconds the answer may take; 0 answers at once.
    #[serde(default)]
    #[param(maximum = 60)]
    wait: u64,
}

impl Wait {
    pub(crate) fn time(&self) -> Result<Duration> {
        match self.wait {
            wait @ 0..=60 => Ok(Duration::from_secs(wait)),
            wait => Err(invalid("wait", &format!("wait is {wait}: 0 to 60 seconds"))),
        }
    }
}

#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub(crate) struct DryRun {
    /// Change nothing, and tell what the call would do.
    #[serde(default)]
    pub(crate) dry_run: bool,
}

/// Beside whose rows a target is looked at.
#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub(crate) struct Writer {
    /// A pipeline that writes to it; left out, the first by name.
    pub(crate) pipeline: Option<String>,
}

/// How much of a query is shown.
#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub(crate) struct Sampled {
    /// At most so many rows.
    #[serde(default = "ten")]
    #[param(minimum = 1, maximum = 100)]
    limit: usize,
}

impl Sampled {
    pub(crate) fn rows(&self) -> Result<usize> {
        match self.limit {
            limit @ 1..=100 => Ok(limit),
            limit => Err(invalid("limit", &format!("limit is {limit}: 1 to 100"))),
        }
    }
}

fn ten() -> usize {
    10
}

/// What a listener wants to hear.
#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub(crate) struct Topics {
    /// Words of `run.status`, `run.progress`, `batch.done`, `pipeline.freshness`, `reconcile.status` and
    /// `reconcile.progress`, separated by commas; left out, all.
    #[param(example = "run.status,run.progress")]
    topics: Option<String>,
}

impl Topics {
    pub(crate) fn words(&self) -> Result<Vec<&'static str>> {
        let Some(topics) = &self.topics else { return Ok(TOPICS.to_vec()) };
        let known = |word: &str| TOPICS.into_iter().find(|topic| *topic == word.trim());
        let words: Option<Vec<&'static str>> = topics.split(',').map(known).collect();
        words.ok_or_else(|| invalid("topics", &format!("topics are words of {}", TOPICS.join(", "))))
    }
}

/// A span of time that ends now.
#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub(crate) struct Window {
    /// A number and `m`, `h` or `d`: minutes, hours or days, a year at most.
    #[serde(default = "a_week")]
    #[param(pattern = "^[1-9][0-9]{0,5}[mhd]$", default = "7d", example = "24h")]
    window: String,
}

impl Window {
    pub(crate) fn seconds(&self) -> Result<i64> {
        const YEAR: i64 = 366 * 86_400;
        let unit = |suffix: &str, seconds: i64| {
            let number = self.window.strip_suffix(suffix).filter(|text| !text.starts_with('0'))?;
            let number = digits(number, 6)?;
            number.checked_mul(seconds).filter(|seconds| (1..=YEAR).contains(seconds))
        };
        let seconds = unit("m", 60).or_else(|| unit("h", 3600)).or_else(|| unit("d", 86_400));
        seconds.ok_or_else(|| invalid("window", "a window is a number and m, h or d, a year at most: 24h"))
    }
}

/// Digits and nothing else: `parse` takes signs too.
pub(crate) fn digits(text: &str, most: usize) -> Option<i64> {
    let plain = (1..=most).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_digit());
    text.parse().ok().filter(|_| plain)
}

fn a_week() -> String {
    "7d".to_owned()
}
