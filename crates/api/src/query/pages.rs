//! Which part of a list, and how a page tells where the next one begins.

use std::time::Duration;

use jiff::Timestamp;
use serde::Deserialize;
use utoipa::IntoParams;
use uuid::Uuid;
use vitrina_core::{RunStatus, Status};
use vitrina_store::{PipelineChoice, PipelineOrder, RejectChoice, RejectCursor, RunCursor};

use super::{Wait, digits, invalid};
use crate::documents::words;
use crate::error::Result;

/// That are searched for.
const MOST_CHARACTERS: usize = 200;

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

/// Which page of reconciles.
#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub(crate) struct ReconcileSlice {
    /// At most so many.
    #[serde(default = "fifty")]
    #[param(minimum = 1, maximum = 500)]
    limit: u32,
    /// `next_cursor` of the page before.
    cursor: Option<String>,
}

impl ReconcileSlice {
    pub(crate) fn rows(&self) -> Result<i64> {
        up_to_500(self.limit)
    }

    pub(crate) fn before(&self) -> Result<Option<Uuid>> {
        let read = |text: &String| {
            text.parse().map_err(|_| invalid("cursor", "this is no next_cursor of reconciles"))
        };
        self.cursor.as_ref().map(read).transpose()
    }
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

pub(super) fn up_to_500(limit: u32) -> Result<i64> {
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
