//! Which differences of a reconcile, and in which form.

use axum::http::{HeaderMap, header};
use serde::Deserialize;
use utoipa::{IntoParams, ToSchema};
use vitrina_core::DifferenceKind;

use super::pages::up_to_500;
use super::{digits, invalid};
use crate::documents::words;
use crate::error::Result;

#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub(crate) struct DifferenceSlice {
    /// Only those of this kind.
    #[param(value_type = Option<words::DifferenceKind>)]
    pub(crate) kind: Option<DifferenceKind>,
    /// `ndjson` or `csv` downloads all of them; left out, the header `accept` decides, and a page comes as JSON where
    /// that names neither.
    #[param(inline)]
    format: Option<DownloadFormat>,
    /// At most so many on a page: 50 when not given. A download is always whole.
    #[param(minimum = 1, maximum = 500)]
    limit: Option<u32>,
    /// `next_cursor` of the page before.
    #[param(pattern = "^[0-9]{1,9}$")]
    cursor: Option<String>,
}

/// How all differences are written one after the other.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub(crate) enum DownloadFormat {
    Ndjson,
    Csv,
}

impl DownloadFormat {
    pub(crate) const fn media_type(self) -> &'static str {
        match self {
            Self::Ndjson => "application/x-ndjson",
            Self::Csv => "text/csv; charset=utf-8",
        }
    }

    pub(crate) const fn extension(self) -> &'static str {
        match self {
            Self::Ndjson => "ndjson",
            Self::Csv => "csv",
        }
    }
}

impl DifferenceSlice {
    pub(crate) fn rows(&self) -> Result<i64> {
        up_to_500(self.limit.unwrap_or(50))
    }

    pub(crate) fn after(&self) -> Result<i32> {
        let Some(text) = &self.cursor else { return Ok(0) };
        let number = digits(text, 9).and_then(|number| i32::try_from(number).ok());
        number.ok_or_else(|| invalid("cursor", "this is no next_cursor of differences"))
    }

    /// The form of a download, where one is asked for.
    pub(crate) fn download(&self, headers: &HeaderMap) -> Result<Option<DownloadFormat>> {
        let Some(format) = self.format.or_else(|| accepted(headers)) else { return Ok(None) };
        for (name, given) in [("limit", self.limit.is_some()), ("cursor", self.cursor.is_some())] {
            if given {
                return Err(invalid(name, "a download is whole: leave limit and cursor out"));
            }
        }
        Ok(Some(format))
    }
}

/// The first media type of the header that is a download's.
fn accepted(headers: &HeaderMap) -> Option<DownloadFormat> {
    let accept = headers.get(header::ACCEPT)?.to_str().ok()?;
    accept.split(',').find_map(|media| match media.split(';').next().unwrap_or_default().trim() {
        "application/x-ndjson" => Some(DownloadFormat::Ndjson),
        "text/csv" => Some(DownloadFormat::Csv),
        _ => None,
    })
}
