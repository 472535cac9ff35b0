//! Verdicts, figures and differences as a person reads them.

use std::collections::BTreeSet;

use serde_json::Value;
use vitrina_api::documents::{Difference, Reconcile, ReconcileFigures, ReconcileSide};
use vitrina_core::Verdict;

use crate::output::{self, fitting, grouped, one_line, seconds};

/// `films differs from its source: …`, and both sides.
pub(crate) fn verdict(reconcile: &Reconcile) -> String {
    let Some(figures) = &reconcile.figures else { return format!("{}: no verdict", reconcile.pipeline) };
    let took = reconcile.duration_ms.map(|took| format!(" in {}", seconds(took))).unwrap_or_default();
    let by = reconcile.level;
    format!(
        "{} {} (by {by}{took})\n\n{}",
        reconcile.pipeline,
        said(reconcile.verdict, figures),
        sides(figures)
    )
}

/// What a repair has come to.
pub(super) fn proof(proof: &Reconcile) -> String {
    match (&proof.figures, proof.verdict) {
        (Some(figures), verdict) => format!("repaired: {} {}", proof.pipeline, said(verdict, figures)),
        (None, _) => format!("{}: no verdict", proof.pipeline),
    }
}

fn said(verdict: Option<Verdict>, figures: &ReconcileFigures) -> String {
    let mut text = match verdict {
        Some(Verdict::Equal) => "is equal to its source".to_owned(),
        Some(Verdict::Differs) if has_differences(figures) => {
            format!("differs from its source: {}", counted(figures))
        }
        Some(Verdict::Differs) if figures.rejected > 0 => {
            "differs from its source: it lacks rows that were refused".to_owned()
        }
        Some(Verdict::Differs) => "differs from its source".to_owned(),
        Some(Verdict::Stale) => {
            format!("is behind its source: {} rows are on their way", grouped(figures.in_flight))
        }
        None => "has no verdict".to_owned(),
    };
    if figures.in_flight > 0 && verdict == Some(Verdict::Differs) {
        text.push_str(&format!("; {} in flight", grouped(figures.in_flight)));
    }
    if figures.rejected > 0 {
        text.push_str(&format!("; {} rejected", grouped(figures.rejected)));
    }
    text
}

/// Rows were found, beside those that were refused.
pub(super) fn has_differences(figures: &ReconcileFigures) -> bool {
    figures.differences() > 0
}

/// `1 missing, 2 extra, 3 different`
fn counted(figures: &ReconcileFigures) -> String {
    let ReconcileFigures { missing, extra, different, capped, .. } = figures;
    let kinds = [(missing, "missing"), (extra, "extra"), (different, "different")];
    let found = kinds.iter().filter(|(rows, _)| **rows > 0);
    let text = found.map(|(rows, kind)| format!("{} {kind}", grouped(**rows))).collect::<Vec<_>>().join(", ");
    if *capped { format!("{text}, and more") } else { text }
}

/// A line for each side: its rows, and the ends of key and cursor.
fn sides(figures: &ReconcileFigures) -> String {
    let both = [("source", &figures.source), ("target", &figures.target)];
    let columns: BTreeSet<&String> = both.iter().flat_map(|(_, side)| side.min.keys()).collect();
    let header = ["side", "rows"].map(str::to_owned).into_iter();
    let header = header.chain(columns.iter().map(|column| one_line(column))).collect();
    let row = |(name, side): (&str, &ReconcileSide)| {
        let ends = columns
            .iter()
            .map(|column| format!("{} … {}", end(side.min.get(*column)), end(side.max.get(*column))));
        [name.to_owned(), grouped(side.rows)].into_iter().chain(ends).collect()
    };
    fitting(&output::wide_table(header, both.into_iter().map(row)))
}

fn end(value: Option<&Option<String>>) -> String {
    value.and_then(Option::as_deref).map_or_else(|| "-".to_owned(), one_line)
}

/// A line for every column that differs, or one where a whole row does.
pub(crate) fn differences(differences: &[Difference]) -> String {
    let header = ["kind", "key", "column", "source", "target"];
    fitting(&output::table(header, differences.iter().flat_map(lines)))
}

fn lines(difference: &Difference) -> Vec<[String; 5]> {
    let begin = || [difference.kind.to_string(), key_text(&difference.key)];
    if difference.columns.is_empty() {
        let [kind, key] = begin();
        return vec![[kind, key, String::new(), String::new(), String::new()]];
    }
    let columns = difference.columns.iter().map(|(column, cells)| {
        let [kind, key] = begin();
        let cell = |text: &Option<String>| text.as_deref().map_or_else(|| "null".to_owned(), one_line);
        [kind, key, one_line(column), cell(&cells.source), cell(&cells.target)]
    });
    columns.collect()
}

/// As `vitrina backfill` takes it: the text alone where the key has one column, else the JSON list.
pub(crate) fn key_text(key: &Value) -> String {
    let alone = key.as_array().filter(|parts| parts.len() == 1).and_then(|parts| parts[0].as_str());
    let plain = |text: &&str| !text.is_empty() && !text.starts_with('[') && !text.contains(char::is_control);
    alone.filter(plain).map_or_else(|| key.to_string(), str::to_owned)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use serde_json::json;
    use vitrina_api::documents::Cells;
    use vitrina_core::DifferenceKind;

    use super::*;

    #[test]
    fn a_key_is_shown_as_it_can_be_asked_for_again() {
        assert_eq!(key_text(&json!(["7"])), "7");
        for whole in [json!(["7", "en"]), json!([null]), json!([""]), json!(["[x"]), json!(["a\nb"])] {
            assert_eq!(key_text(&whole), whole.to_string());
        }
    }

    #[test]
    fn a_row_that_differs_has_a_line_for_every_column_of_it() {
        let cells = |source: Option<&str>, target: Option<&str>| Cells {
            source: source.map(str::to_owned),
            target: target.map(str::to_owned),
        };
        let columns = BTreeMap::from([
            ("n".to_owned(), cells(Some("1"), None)),
            ("title".to_owned(), cells(Some("new\nline"), Some("old"))),
        ]);
        let rows = [
            Difference { kind: DifferenceKind::Missing, key: json!(["1"]), columns: BTreeMap::new() },
            Difference { kind: DifferenceKind::Different, key: json!(["2", "en"]), columns },
        ];
        let wanted = "\
kind       key         column  source    target
missing    1
different  [\"2\",\"en\"]  n       1         null
different  [\"2\",\"en\"]  title   new line  old";
        assert_eq!(differences(&rows), wanted);
    }

    #[test]
    fn a_verdict_says_how_many_rows_differ_and_which_do_not_count() {
        let mut figures = ReconcileFigures::default();
        (figures.missing, figures.different, figures.in_flight, figures.rejected) = (1, 2_000, 3, 4);
        let differs = said(Some(Verdict::Differs), &figures);
        assert_eq!(differs, "differs from its source: 1 missing, 2,000 different; 3 in flight; 4 rejected");
        figures.capped = true;
        assert!(said(Some(Verdict::Differs), &figures).contains("2,000 different, and more"));
        assert_eq!(said(Some(Verdict::Equal), &ReconcileFigures::default()), "is equal to its source");
    }
}
