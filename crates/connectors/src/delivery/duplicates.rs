//! Several rows of one key: the last one counts where the pipeline's order tells which that is, and none where it does not.

use std::collections::{HashMap, HashSet};

use arrow_array::{RecordBatch, UInt64Array};
use arrow_row::{RowConverter, Rows, SortField};
use arrow_select::take::take_record_batch;
use vitrina_core::{Error, Reject, Result};

use crate::rejects::{keep, reject};

/// The rows of a batch whose keys come once, and what became of the others.
#[derive(Debug)]
pub(crate) struct Distinct {
    pub(crate) rows: RecordBatch,
    pub(crate) rejected: Vec<Reject>,
    /// Rows that a later one of the same key has replaced.
    pub(crate) replaced: u64,
}

impl Distinct {
    /// The rows as they are.
    pub(crate) fn all(rows: &RecordBatch) -> Self {
        Self { rows: rows.clone(), rejected: Vec::new(), replaced: 0 }
    }
}

pub(crate) const CODE: &str = "row.duplicate_key";

/// `order` are the columns by which the newest row comes last; none where nothing says so.
pub(crate) fn distinct(rows: &RecordBatch, key: &[String], order: Option<&[String]>) -> Result<Distinct> {
    let (count, converted) = (rows.num_rows(), convert(rows, key)?);
    if come_once(&converted) {
        return Ok(Distinct::all(rows));
    }
    let mut places: HashMap<_, Vec<usize>> = HashMap::with_capacity(count);
    for row in 0..count {
        places.entry(converted.row(row)).or_default().push(row);
    }
    let mut stays = vec![true; count];
    let (mut rejected, mut replaced) = (Vec::new(), 0);
    for same in places.into_values().filter(|same| same.len() > 1) {
        same.iter().for_each(|row| stays[*row] = false);
        match (order, same.last()) {
            (Some(order), Some(newest)) if is_newest(rows, &same, order)? => {
                stays[*newest] = true;
                replaced += same.len() as u64 - 1;
            }
            _ => rejected.push(reject(rows, same[0], key, CODE, message(same.len(), key))?),
        }
    }
    Ok(Distinct { rows: keep(rows, &stays)?, rejected, replaced })
}

/// Whether the last of these rows is newer than all others, or the same as those that are as new.
fn is_newest(rows: &RecordBatch, same: &[usize], order: &[String]) -> Result<bool> {
    let order: Vec<String> =
        order.iter().filter(|name| rows.column_by_name(name).is_some()).cloned().collect();
    if order.is_empty() {
        // What transforms have left out told it before.
        return Ok(true);
    }
    let places = UInt64Array::from_iter_values(same.iter().map(|row| *row as u64));
    let same = take_record_batch(rows, &places).map_err(|error| Error::defect("sink.duplicates", &error))?;
    let ages = convert(&same, &order)?;
    let last = ages.num_rows() - 1;
    let as_new: Vec<usize> = (0..last).filter(|row| ages.row(*row) == ages.row(last)).collect();
    if as_new.is_empty() {
        return Ok(true);
    }
    let names: Vec<String> = same.schema().fields().iter().map(|field| field.name().clone()).collect();
    // A type that cannot be compared may differ.
    let Ok(whole) = convert(&same, &names) else { return Ok(false) };
    Ok(as_new.into_iter().all(|row| whole.row(row) == whole.row(last)))
}

/// No key comes twice.
pub(crate) fn are_distinct(rows: &RecordBatch, key: &[String]) -> Result<bool> {
    Ok(come_once(&convert(rows, key)?))
}

fn come_once(keys: &Rows) -> bool {
    let count = keys.num_rows();
    if (1..count).all(|row| keys.row(row - 1) < keys.row(row)) {
        return true;
    }
    let mut seen = HashSet::with_capacity(count);
    (0..count).all(|row| seen.insert(keys.row(row)))
}

pub(crate) fn message(count: usize, key: &[String]) -> String {
    format!(
        "the query returns {count} rows for this key ({}), and no order says which one counts",
        key.join(", ")
    )
}

/// Keys in a form that compares by bytes.
fn convert(rows: &RecordBatch, key: &[String]) -> Result<Rows> {
    let columns: Vec<_> = key.iter().filter_map(|name| rows.column_by_name(name).cloned()).collect();
    let fields = columns.iter().map(|column| SortField::new(column.data_type().clone())).collect();
    let unsortable = |error: arrow_schema::ArrowError| {
        Error::fix("sink.key_type", format!("the key ({}) cannot be compared: {error}", key.join(", ")))
    };
    let converter = RowConverter::new(fields).map_err(unsortable)?;
    converter.convert_columns(&columns).map_err(unsortable)
}
