//! Parameters of the query string. Unknown ones are errors: a filter or a dry run that is silently
//! ignored does the wrong thing.

use std::time::Duration;

use axum::extract::{FromRequestParts, Query};
use axum::http::request::Parts;
use jiff::Timestamp;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use utoipa::IntoParams;
use vitrina_store::{RejectChoice, RejectCursor};

use crate::error::{Error, Result};
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

/// For calls that take no parameters.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Nothing {}

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

/// Which part of a list.
#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub(crate) struct Slice {
    /// At most so many; all when not given.
    #[param(minimum = 1, maximum = 500)]
    limit: Option<u32>,
    /// `next_cursor` of the page before.
    pub(crate) cursor: Option<String>,
}

impl Slice {
    pub(crate) fn rows(&self) -> Result<usize> {
        match self.limit {
            None => Ok(usize::MAX),
            Some(limit @ 1..=500) => Ok(limit as usize),
            Some(limit) => Err(invalid("limit", &format!("limit is {limit}: 1 to 500"))),
        }
    }
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
        match self.limit {
            limit @ 1..=500 => Ok(limit as usize),
            limit => Err(invalid("limit", &format!("limit is {limit}: 1 to 500"))),
        }
    }

    /// Postgres knows no text with a NUL in it.
    pub(crate) fn choice(&self) -> Result<RejectChoice> {
        match self.code.as_ref().is_some_and(|code| code.contains('\0')) {
            true => Err(invalid("code", "a code has no NUL in it")),
            false => Ok(RejectChoice { code: self.code.clone(), keys: None }),
        }
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
