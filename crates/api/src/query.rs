//! Parameters of the query string. Unknown ones are errors: a filter or a dry run that is silently
//! ignored does the wrong thing.

use std::time::Duration;

use axum::extract::{FromRequestParts, Query, Request};
use axum::http::request::Parts;
use axum::middleware::Next;
use axum::response::Response;
use jiff::Timestamp;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use utoipa::IntoParams;
use vitrina_core::{RunStatus, Status};
use vitrina_store::{PipelineChoice, PipelineOrder, RejectChoice, RejectCursor, RunCursor};

use crate::error::{Error, Result};
use crate::events::TOPICS;
use crate::models::words;
use crate::problem::Fault;

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
pub(crate) struct Limit {
    /// At most so many.
    #[serde(default = "fifty")]
    #[param(minimum = 1, maximum = 1000)]
    limit: u32,
}

impl Limit {
    pub(crate) fn rows(&self) -> Result<u32> {
        match self.limit {
            limit @ 1..=1000 => Ok(limit),
            limit => Err(invalid("limit", &format!("limit is {limit}: 1 to 1000"))),
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

/// That are searched for.
const MOST_CHARACTERS: usize = 200;

/// Which pipelines, in which order, and which page of them.
#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub(crate) struct PipelineSlice {
    #[param(value_type = Option<words::Status>)]
    status: Option<Status>,
    /// Part of a name or description, in any case.
    #[param(max_length = 200)] // MOST_CHARACTERS
    q: Option<String>,
    tag: Option<String>,
    /// Where the rows go.
    #[param(example = "analytics.film_dim")]
    target: Option<String>,
    /// `name`, `status`, `updated_at` or `last_run_at`, with `-` before it for the other direction.
    #[serde(default = "by_name")]
    #[param(pattern = "^-?(name|status|updated_at|last_run_at)$", default = "name")]
    sort: String,
    /// At most so many.
    #[serde(default = "fifty")]
    #[param(minimum = 1, maximum = 500)]
    limit: u32,
    /// `next_cursor` of the page before, with the same sort.
    cursor: Option<String>,
}

impl PipelineSlice {
    pub(crate) fn choice(self) -> Result<PipelineChoice> {
        let limit = up_to_500(self.limit)?;
        for (name, text) in
            [("q", &self.q), ("tag", &self.tag), ("target", &self.target), ("cursor", &self.cursor)]
        {
            storable(name, text.as_deref())?;
        }
        if self.q.as_deref().is_some_and(|q| q.chars().count() > MOST_CHARACTERS) {
            return Err(invalid("q", &format!("q has at most {MOST_CHARACTERS} characters")));
        }
        let (word, descending) = match self.sort.strip_prefix('-') {
            Some(word) => (word, true),
            None => (self.sort.as_str(), false),
        };
        let order = match word {
            "name" => PipelineOrder::Name,
            "status" => PipelineOrder::Status,
            "updated_at" => PipelineOrder::UpdatedAt,
            "last_run_at" => PipelineOrder::LastRunAt,
            _ => {
                return Err(invalid(
                    "sort",
                    "sort is name, status, updated_at or last_run_at, or - and one of them",
                ));
            }
        };
        let after = self.cursor.as_deref().map(read_pipeline_cursor).transpose()?;
        let Self { status, q, tag, target, .. } = self;
        Ok(PipelineChoice { status, q, tag, target, order, descending, after, limit: Some(limit) })
    }
}

/// Names of pipelines hold no `~`.
pub(crate) fn pipeline_cursor(key: &str, name: &str) -> String {
    format!("{name}~{key}")
}

fn read_pipeline_cursor(text: &str) -> Result<(String, String)> {
    let parts = text.split_once('~').map(|(name, key)| (key.to_owned(), name.to_owned()));
    parts.ok_or_else(|| invalid("cursor", "this is no next_cursor of pipelines"))
}

/// Which runs, and which page of them.
#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub(crate) struct RunSlice {
    #[param(value_type = Option<words::RunStatus>)]
    pub(crate) status: Option<RunStatus>,
    /// At most so many.
    #[serde(default = "fifty")]
    #[param(minimum = 1, maximum = 500)]
    limit: u32,
    /// `next_cursor` of the page before.
    cursor: Option<String>,
}

impl RunSlice {
    pub(crate) fn rows(&self) -> Result<i64> {
        up_to_500(self.limit)
    }

    pub(crate) fn after(&self) -> Result<Option<RunCursor>> {
        let Some(text) = &self.cursor else { return Ok(None) };
        let cursor = text.split_once('~').and_then(|(time, id)| {
            let requested_at: Timestamp = time.parse().ok()?;
            let id = vitrina_core::RunId(id.parse().ok()?);
            (requested_at >= Timestamp::UNIX_EPOCH).then_some(RunCursor { requested_at, id })
        });
        cursor.map(Some).ok_or_else(|| invalid("cursor", "this is no next_cursor of runs"))
    }
}

pub(crate) fn run_cursor(cursor: &RunCursor) -> String {
    format!("{}~{}", cursor.requested_at, cursor.id)
}

/// A page of a list whose rows have growing numbers.
#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub(crate) struct NumberedSlice {
    /// At most so many.
    #[serde(default = "fifty")]
    #[param(minimum = 1, maximum = 500)]
    limit: u32,
    /// `next_cursor` of the page before.
    #[param(pattern = "^[0-9]{1,18}$")]
    cursor: Option<String>,
}

impl NumberedSlice {
    pub(crate) fn after(&self) -> Result<Option<i64>> {
        let number = |text: &String| {
            digits(text, 18).ok_or_else(|| invalid("cursor", "this is no next_cursor of this list"))
        };
        self.cursor.as_ref().map(number).transpose()
    }

    pub(crate) fn rows(&self) -> Result<i64> {
        up_to_500(self.limit)
    }
}

/// A page of a list that may still grow.
#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub(crate) struct Followed {
    /// At most so many.
    #[serde(default = "fifty")]
    #[param(minimum = 1, maximum = 500)]
    limit: u32,
    /// `next_cursor` of the page before.
    #[param(value_type = Option<String>)]
    pub(crate) cursor: Option<i64>,
    /// How many seconds the answer may take; 0 answers at once.
    #[serde(default)]
    #[param(maximum = 60)]
    wait: u64,
}

impl Followed {
    pub(crate) fn rows(&self) -> Result<i64> {
        up_to_500(self.limit)
    }

    pub(crate) fn time(&self) -> Result<Duration> {
        Wait { wait: self.wait }.time()
    }
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
    /// Words of `run.status`, `run.progress`, `batch.done` and `pipeline.freshness`, separated by commas; left out, all.
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

fn up_to_500(limit: u32) -> Result<i64> {
    match limit {
        1..=500 => Ok(i64::from(limit)),
        limit => Err(invalid("limit", &format!("limit is {limit}: 1 to 500"))),
    }
}

/// Postgres knows no text with a NUL in it.
fn storable(name: &str, text: Option<&str>) -> Result<()> {
    match text.is_some_and(|text| text.contains('\0')) {
        true => Err(invalid(name, "there is no NUL in a text")),
        false => Ok(()),
    }
}

fn by_name() -> String {
    "name".to_owned()
}

fn a_week() -> String {
    "7d".to_owned()
}

/// Which rejects of a pipeline.
#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub(crate) struct RejectSlice {
    /// Only those of this reason.
    code: Option<String>,
    /// At most so many.
    #[serde(default = "fifty")]
    #[param(minimum = 1, maximum = 500)]
    limit: u32,
    /// `next_cursor` of the page before.
    cursor: Option<String>,
}

impl RejectSlice {
    pub(crate) fn rows(&self) -> Result<usize> {
        up_to_500(self.limit).map(|rows| usize::try_from(rows).unwrap_or(usize::MAX))
    }

    pub(crate) fn choice(&self) -> Result<RejectChoice> {
        storable("code", self.code.as_deref())?;
        Ok(RejectChoice { code: self.code.clone(), keys: None })
    }

    pub(crate) fn after(&self) -> Result<Option<RejectCursor>> {
        let Some(text) = &self.cursor else { return Ok(None) };
        let cursor =
            read_cursor(text).ok_or_else(|| invalid("cursor", "this is no next_cursor of rejects"))?;
        Ok(Some(cursor))
    }
}

pub(crate) fn cursor_text(cursor: &RejectCursor) -> String {
    format!("{}~{}", cursor.rejected_at, cursor.key_hash)
}

fn read_cursor(text: &str) -> Option<RejectCursor> {
    let (time, hash) = text.split_once('~')?;
    let rejected_at: Timestamp = time.parse().ok()?;
    let is_hash = hash.len() == 32 && hash.bytes().all(|byte| byte.is_ascii_hexdigit());
    // Before our era the database spells times another way.
    let usable = is_hash && rejected_at >= Timestamp::UNIX_EPOCH;
    usable.then(|| RejectCursor { rejected_at, key_hash: hash.to_owned() })
}

fn fifty() -> u32 {
    50
}
