//! Rows that cannot go on: taken out of a batch and kept for people.

use arrow_array::{Array, BooleanArray, RecordBatch};
use arrow_select::filter::filter_record_batch;
use vitrina_core::{Error, Reject, Result};
use vitrina_pgcopy::Flawed;

use crate::arrow_text::{key_json, row_json};

/// A row of a batch as a reject.
pub(crate) fn reject(
    rows: &RecordBatch,
    row: usize,
    key: &[String],
    code: &str,
    message: impl Into<String>,
) -> Result<Reject> {
    let (code, message) = (code.to_owned(), message.into());
    Ok(Reject { key: key_json(rows, key, row)?, code, message, row: row_json(rows, row) })
}

/// Only the rows that `stays` says.
pub(crate) fn keep(rows: &RecordBatch, stays: &[bool]) -> Result<RecordBatch> {
    filter_record_batch(rows, &BooleanArray::from(stays.to_vec()))
        .map_err(|error| Error::defect("rows.filter", &error))
}

/// Rows with a value that could not be converted.
pub(crate) fn without_flawed(
    rows: &mut RecordBatch,
    rejected: &mut Vec<Reject>,
    flawed: &[Flawed],
    key: &[String],
) -> Result<()> {
    if flawed.is_empty() {
        return Ok(());
    }
    let mut stays = vec![true; rows.num_rows()];
    for Flawed { row, column, flaw } in flawed {
        if std::mem::replace(&mut stays[*row], false) {
            rejected.push(reject(rows, *row, key, "row.unreadable", format!("column {column:?}: {flaw}"))?);
        }
    }
    *rows = keep(rows, &stays)?;
    Ok(())
}

/// A row without a whole key has no place in the target.
pub(crate) fn without_null_keys(
    rows: &mut RecordBatch,
    rejected: &mut Vec<Reject>,
    key: &[String],
) -> Result<()> {
    let columns: Vec<_> = key.iter().filter_map(|name| rows.column_by_name(name)).collect();
    if columns.iter().all(|column| column.null_count() == 0) {
        return Ok(());
    }
    let is_whole = |row: usize| columns.iter().all(|column| column.is_valid(row));
    let stays: Vec<bool> = (0..rows.num_rows()).map(is_whole).collect();
    for row in (0..rows.num_rows()).filter(|row| !stays[*row]) {
        let message = format!("its key ({}) is NULL", key.join(", "));
        rejected.push(reject(rows, row, key, "row.null_key", message)?);
    }
    *rows = keep(rows, &stays)?;
    Ok(())
}
