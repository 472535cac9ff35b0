//! The Postgres text form of one Arrow value: what positions and keys are made of, and what people see of
//! a row that was refused.

use arrow_array::cast::AsArray;
use arrow_array::types::{
    Date32Type, Float32Type, Float64Type, Int16Type, Int32Type, Int64Type, Time64MicrosecondType,
    TimestampMicrosecondType,
};
use arrow_array::{Array, RecordBatch};
use arrow_schema::{DataType, TimeUnit};
use serde_json::Value;
use vitrina_core::{Error, Result};
use vitrina_pgcopy::calendar::{MICROSECONDS_PER_DAY, civil, infinite_date, infinite_timestamp, time};

/// Longer values are cut: a row that was refused is kept to be looked at.
const SHOWN: usize = 1000;

/// The named columns of one row, in Postgres text form. NULL is an error: it has no place in an order.
pub(crate) fn texts(rows: &RecordBatch, columns: &[String], row: usize) -> Result<Vec<String>> {
    columns.iter().map(|column| text(rows, column, row)).collect()
}

/// The named columns of one row, NULL being `None`.
pub(crate) fn nullable_texts(
    rows: &RecordBatch,
    columns: &[String],
    row: usize,
) -> Result<Vec<Option<String>>> {
    let part = |column: &String| match array(rows, column)?.is_null(row) {
        true => Ok(None),
        false => text(rows, column, row).map(Some),
    };
    columns.iter().map(part).collect()
}

/// The named columns of one row for people: of any type, long ones cut, NULL being `None`.
pub(crate) fn shown_texts(rows: &RecordBatch, columns: &[String], row: usize) -> Result<Vec<Option<String>>> {
    let part = |column: &String| {
        Ok(match shown(array(rows, column)?.as_ref(), row) {
            Value::Null => None,
            Value::String(text) => Some(text),
            list => Some(list.to_string()),
        })
    };
    columns.iter().map(part).collect()
}

/// The named columns of one row as a JSON array of texts, NULL being null.
pub(crate) fn key_json(rows: &RecordBatch, columns: &[String], row: usize) -> Result<Value> {
    let part = |column: &String| match array(rows, column)?.is_null(row) {
        true => Ok(Value::Null),
        false => text(rows, column, row).map(Value::String),
    };
    columns.iter().map(part).collect::<Result<Vec<_>>>().map(Value::Array)
}

/// A row for people: every column as text, long ones cut.
pub(crate) fn row_json(rows: &RecordBatch, row: usize) -> Value {
    let schema = rows.schema();
    let cell = |(field, array): (&std::sync::Arc<arrow_schema::Field>, &arrow_array::ArrayRef)| {
        (field.name().clone(), shown(array.as_ref(), row))
    };
    Value::Object(schema.fields().iter().zip(rows.columns()).map(cell).collect())
}

fn shown(array: &dyn Array, row: usize) -> Value {
    if array.is_null(row) {
        return Value::Null;
    }
    if let Some(list) = array.as_list_opt::<i32>() {
        let items = list.value(row);
        return (0..items.len().min(SHOWN)).map(|item| shown(items.as_ref(), item)).collect();
    }
    let text = value(array, row).unwrap_or_else(|_| "…".to_owned());
    match text.char_indices().nth(SHOWN) {
        Some((end, _)) => format!("{}…", &text[..end]).into(),
        None => text.into(),
    }
}

fn array<'a>(rows: &'a RecordBatch, column: &str) -> Result<&'a arrow_array::ArrayRef> {
    rows.column_by_name(column)
        .ok_or_else(|| Error::bug("source.column", format!("column {column} was not read")))
}

fn text(rows: &RecordBatch, column: &str, row: usize) -> Result<String> {
    let array = array(rows, column)?;
    if array.is_null(row) {
        return Err(Error::fix("source.null_key", format!("column {column} is NULL in a row of the source"))
            .hint("filter such rows out in the query, or choose a column that is never NULL"));
    }
    value(array.as_ref(), row)
}

fn value(array: &dyn Array, row: usize) -> Result<String> {
    Ok(match array.data_type() {
        DataType::Boolean => array.as_boolean().value(row).to_string(),
        DataType::Int16 => array.as_primitive::<Int16Type>().value(row).to_string(),
        DataType::Int32 => array.as_primitive::<Int32Type>().value(row).to_string(),
        DataType::Int64 => array.as_primitive::<Int64Type>().value(row).to_string(),
        DataType::Float32 => float(array.as_primitive::<Float32Type>().value(row)),
        DataType::Float64 => float(array.as_primitive::<Float64Type>().value(row)),
        DataType::Utf8 => array.as_string::<i32>().value(row).to_owned(),
        DataType::Binary => hex(array.as_binary::<i32>().value(row)),
        DataType::FixedSizeBinary(16) => uuid(array.as_fixed_size_binary().value(row)),
        DataType::Date32 => date(array.as_primitive::<Date32Type>().value(row)),
        DataType::Time64(TimeUnit::Microsecond) => {
            time(array.as_primitive::<Time64MicrosecondType>().value(row))
        }
        DataType::Timestamp(TimeUnit::Microsecond, zone) => {
            timestamp(array.as_primitive::<TimestampMicrosecondType>().value(row), zone.is_some())
        }
        other => return Err(Error::fix("source.key_type", format!("a value of type {other} has no order"))),
    })
}

/// Infinity is written out on the other side.
fn float<T: std::fmt::Display + Into<f64> + Copy>(number: T) -> String {
    let wide: f64 = number.into();
    match wide.is_infinite() {
        true if wide > 0.0 => "Infinity".to_owned(),
        true => "-Infinity".to_owned(),
        false => number.to_string(),
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold("\\x".to_owned(), |text, byte| text + &format!("{byte:02x}"))
}

fn uuid(bytes: &[u8]) -> String {
    uuid::Uuid::from_slice(bytes).map(|uuid| uuid.to_string()).unwrap_or_default()
}

fn date(days: i32) -> String {
    if let Some(text) = infinite_date(days) {
        return text.to_owned();
    }
    let (date, era) = day(days.into());
    format!("{date}{era}")
}

fn timestamp(microseconds: i64, with_zone: bool) -> String {
    if let Some(text) = infinite_timestamp(microseconds) {
        return text.to_owned();
    }
    let days = microseconds.div_euclid(MICROSECONDS_PER_DAY);
    let of_day = time(microseconds.rem_euclid(MICROSECONDS_PER_DAY));
    let (date, era) = day(days);
    format!("{date} {of_day}{}{era}", if with_zone { "+00" } else { "" })
}

/// The date so many days after the beginning of 1970, and what stands behind years before Christ: the calendar of
/// Postgres has no year 0.
fn day(days: i64) -> (String, &'static str) {
    let (year, month, day) = civil(days);
    let (year, era) = if year > 0 { (year, "") } else { (1 - year, " BC") };
    (format!("{year:04}-{month:02}-{day:02}"), era)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_keep_their_microseconds_and_their_infinities() {
        assert_eq!(timestamp(1_700_000_000_123_456, true), "2023-11-14 22:13:20.123456+00");
        assert_eq!(timestamp(i64::MAX, true), "infinity");
        assert_eq!(date(19_675), "2023-11-14");
        assert_eq!(date(i32::MIN), "-infinity");
    }

    #[test]
    fn dates_have_a_text_in_every_year_that_postgres_knows() {
        assert_eq!(date(-719_162), "0001-01-01");
        assert_eq!(date(-719_163), "0001-12-31 BC");
        assert_eq!(date(-2_440_588), "4714-11-24 BC");
        assert_eq!(date(2_145_031_948), "5874868-01-01");
        assert_eq!(date(11_016), "2000-02-29");
        assert_eq!(timestamp(i64::MAX - 1, false), "294247-01-10 04:00:54.775806");
        assert_eq!(timestamp(-62_167_219_200_000_001, true), "0002-12-31 23:59:59.999999+00 BC");
    }

    #[test]
    fn bytes_are_written_in_hex() {
        assert_eq!(hex(&[0, 255]), "\\x00ff");
    }
}
