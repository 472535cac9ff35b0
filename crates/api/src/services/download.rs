//! All differences of a reconcile as one file, read page by page: however many there are, one page is in memory.

use std::borrow::Cow;

use axum::body::{Body, Bytes};
use futures_util::stream::{self, StreamExt, TryStreamExt};
use uuid::Uuid;
use vitrina_core::DifferenceKind;
use vitrina_store::{Error, Store};

use crate::documents::Difference;
use crate::query::DownloadFormat;

const PAGE: i64 = 500;
const HEADER: &str = "kind,key,column,source,target\n";

/// A file that ends early breaks off, so that nobody takes it for whole. So does one whose pipeline leaves the scope.
pub(crate) fn differences(
    store: Store,
    id: Uuid,
    kind: Option<DifferenceKind>,
    format: DownloadFormat,
) -> Body {
    let head = (format == DownloadFormat::Csv).then(|| Ok(Bytes::from_static(HEADER.as_bytes())));
    let pages = stream::try_unfold(0, move |after| {
        let store = store.clone();
        async move {
            if store.reconcile(id).await?.is_none() {
                return Err(Error::NoSuchPipeline("of this reconcile".to_owned()));
            }
            let found = store.differences(id, kind, after, PAGE).await?;
            let Some((last, _)) = found.last() else { return Ok(None) };
            let last = *last;
            let written: Result<String, Error> =
                found.into_iter().map(|(_, difference)| line(&difference.into(), format)).collect();
            Ok(Some((Bytes::from(written?), last)))
        }
    });
    let told =
        pages.inspect_err(|error: &Error| tracing::error!(%error, "a download of differences breaks off"));
    Body::from_stream(stream::iter(head).chain(told))
}

fn line(difference: &Difference, format: DownloadFormat) -> Result<String, Error> {
    match format {
        DownloadFormat::Ndjson => Ok(serde_json::to_string(difference)? + "\n"),
        DownloadFormat::Csv => Ok(csv(difference)),
    }
}

/// A line for every column that differs, or one where a whole row does. Null is an empty cell, an empty text a quoted one,
/// as Postgres writes them.
fn csv(difference: &Difference) -> String {
    let begin = format!("{},{}", difference.kind, cell(Some(&difference.key.to_string())));
    if difference.columns.is_empty() {
        return format!("{begin},,,\n");
    }
    let lines = difference.columns.iter().map(|(column, cells)| {
        let [source, target] = [&cells.source, &cells.target].map(|text| cell(text.as_deref()));
        format!("{begin},{},{source},{target}\n", cell(Some(column)))
    });
    lines.collect()
}

/// What a spreadsheet would take for a formula begins with an apostrophe, which it takes for the mark of a text. Numbers
/// stay what they are.
fn without_formula(text: &str) -> Cow<'_, str> {
    let is_formula =
        text.starts_with(['=', '+', '-', '@', '\t', '\r', '|', '%']) && text.parse::<f64>().is_err();
    if is_formula { Cow::Owned(format!("'{text}")) } else { Cow::Borrowed(text) }
}

fn cell(text: Option<&str>) -> String {
    match text.map(without_formula) {
        None => String::new(),
        Some(text) if text.is_empty() || text.contains([',', '"', '\n', '\r']) => {
            format!("\"{}\"", text.replace('"', "\"\""))
        }
        Some(text) => text.into_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::cell;

    #[test]
    fn a_cell_tells_null_from_nothing_and_keeps_quotes_and_lines() {
        let cells = [None, Some(""), Some("plain"), Some("a,b"), Some("say \"hi\""), Some("two\nlines")];
        let written = ["", "\"\"", "plain", "\"a,b\"", "\"say \"\"hi\"\"\"", "\"two\nlines\""];
        assert_eq!(cells.map(cell), written);
    }

    #[test]
    fn a_cell_is_no_formula_for_a_spreadsheet_and_a_number_stays_one() {
        let cells =
            ["=1+1", "@SUM(A1)", "+cmd|' /C calc'!A0", "-2+3", "\t=1", "-2.50", "+1e5", "a=b", "=\"x\""];
        let written = [
            "'=1+1",
            "'@SUM(A1)",
            "'+cmd|' /C calc'!A0",
            "'-2+3",
            "'\t=1",
            "-2.50",
            "+1e5",
            "a=b",
            "\"'=\"\"x\"\"\"",
        ];
        assert_eq!(cells.map(|text| cell(Some(text))), written);
    }
}
