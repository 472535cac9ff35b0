//! Texts that the mart would cut without a word: Postgres drops spaces behind the length of a `varchar(n)` or `char(n)`
//! and refuses everything else that is too long. A row that would lose something is a reject either way.

use arrow_array::{Array, RecordBatch, StringArray};
use vitrina_core::{Batch, Result};

use super::PostgresSink;
use crate::rejects::{keep, reject};

const CODE: &str = "row.too_long";

impl PostgresSink {
    /// The batch without such rows, where there are any.
    pub(super) fn without_cut_texts(&self, batch: &Batch) -> Result<Option<Batch>> {
        let Some(shape) = self.shape.as_ref().filter(|_| batch.rows.num_rows() > 0) else { return Ok(None) };
        let mut cut = vec![None; batch.rows.num_rows()];
        for written in &shape.written {
            if let Some(longest) = written.cuts_behind {
                mark_cut(&batch.rows, &written.column.name, longest, &mut cut);
            }
        }
        if cut.iter().all(Option::is_none) {
            return Ok(None);
        }
        let mut uncut = batch.clone();
        for (row, column) in cut.iter().enumerate() {
            if let Some(column) = column {
                let message = format!("{column} ends with spaces that {} has no room for", self.mart.name);
                uncut.rejected.push(reject(&batch.rows, row, &self.mart.key, CODE, message)?);
            }
        }
        let stays: Vec<bool> = cut.iter().map(Option::is_none).collect();
        uncut.rows = keep(&batch.rows, &stays)?;
        Ok(Some(uncut))
    }
}

fn mark_cut<'a>(rows: &RecordBatch, name: &'a str, longest: usize, cut: &mut [Option<&'a str>]) {
    let column = rows.column_by_name(name).and_then(|column| column.as_any().downcast_ref::<StringArray>());
    let Some(column) = column else { return };
    for (row, cut) in cut.iter_mut().enumerate().filter(|(row, _)| column.is_valid(*row)) {
        let text = column.value(row);
        // Most are short enough by their bytes alone.
        if text.len() > longest && text.ends_with(' ') && text.chars().count() > longest {
            *cut = Some(name);
        }
    }
}
