//! One value of a column as JSON.

use std::io::Write;

use arrow_array::Array;
use arrow_array::cast::AsArray;
use arrow_array::types::{
    Date32Type, Float32Type, Float64Type, Int16Type, Int32Type, Int64Type, IntervalMonthDayNanoType,
    Time64MicrosecondType, TimestampMicrosecondType,
};
use jiff::SignedDuration;
use vitrina_core::{Error, Result};
use vitrina_pgcopy::calendar::{MICROSECONDS_PER_DAY, civil, infinite_date, infinite_timestamp, time};
use vitrina_pgcopy::{Kind, Scalar};

pub(super) fn write(array: &dyn Array, kind: Kind, row: usize, out: &mut Vec<u8>) -> Result<()> {
    if array.is_null(row) {
        out.extend_from_slice(b"null");
        return Ok(());
    }
    match kind {
        Kind::AsText => text(array.as_string::<i32>().value(row), out),
        Kind::Scalar(of) => scalar(array, of, row, out),
        Kind::Array(of) => {
            let items = array.as_list::<i32>().value(row);
            out.push(b'[');
            for item in 0..items.len() {
                if item > 0 {
                    out.push(b',');
                }
                write(items.as_ref(), Kind::Scalar(of), item, out)?;
            }
            out.push(b']');
            Ok(())
        }
    }
}

fn scalar(array: &dyn Array, of: Scalar, row: usize, out: &mut Vec<u8>) -> Result<()> {
    match of {
        Scalar::Bool => shown(array.as_boolean().value(row), out),
        Scalar::Int2 => shown(array.as_primitive::<Int16Type>().value(row), out),
        Scalar::Int4 => shown(array.as_primitive::<Int32Type>().value(row), out),
        Scalar::Int8 => shown(array.as_primitive::<Int64Type>().value(row), out),
        Scalar::Float4 => float(array.as_primitive::<Float32Type>().value(row), out),
        Scalar::Float8 => float(array.as_primitive::<Float64Type>().value(row), out),
        Scalar::Text | Scalar::Varchar | Scalar::Bpchar | Scalar::Name => {
            text(array.as_string::<i32>().value(row), out)
        }
        Scalar::Numeric | Scalar::Json | Scalar::Jsonb => text(array.as_string::<i32>().value(row), out),
        Scalar::Bytea => {
            let bytes = array.as_binary::<i32>().value(row);
            quoted(bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>(), out)
        }
        Scalar::Uuid => {
            let uuid = uuid::Uuid::from_slice(array.as_fixed_size_binary().value(row));
            quoted(uuid.unwrap_or_default(), out)
        }
        Scalar::Date => quoted(date(array.as_primitive::<Date32Type>().value(row)), out),
        Scalar::Time => quoted(time(array.as_primitive::<Time64MicrosecondType>().value(row)), out),
        Scalar::Timestamp => {
            let microseconds = array.as_primitive::<TimestampMicrosecondType>().value(row);
            quoted(moment(microseconds).trim_end_matches('Z'), out)
        }
        Scalar::Timestamptz => {
            quoted(moment(array.as_primitive::<TimestampMicrosecondType>().value(row)), out)
        }
        Scalar::Interval => {
            let interval = array.as_primitive::<IntervalMonthDayNanoType>().value(row);
            let seconds = SignedDuration::from_nanos(interval.nanoseconds).as_secs_f64();
            quoted(format!("{} months {} days {seconds} seconds", interval.months, interval.days), out)
        }
    }
}

fn shown(value: impl std::fmt::Display, out: &mut Vec<u8>) -> Result<()> {
    write!(out, "{value}").map_err(|error| Error::defect("python.rows", &error))
}

fn quoted(value: impl std::fmt::Display, out: &mut Vec<u8>) -> Result<()> {
    shown(format_args!("\"{value}\""), out)
}

fn text(value: &str, out: &mut Vec<u8>) -> Result<()> {
    serde_json::to_writer(out, value).map_err(|error| Error::defect("python.rows", &error))
}

/// Python's own words for what JSON has none for.
fn float<T: std::fmt::Display + Into<f64> + Copy>(number: T, out: &mut Vec<u8>) -> Result<()> {
    let wide: f64 = number.into();
    match wide {
        wide if wide.is_nan() => quoted("NaN", out),
        f64::INFINITY => quoted("Infinity", out),
        f64::NEG_INFINITY => quoted("-Infinity", out),
        _ => shown(number, out),
    }
}

fn date(days: i32) -> String {
    infinite_date(days).map_or_else(|| day(days.into()), str::to_owned)
}

/// As ISO 8601 has it, with a sign and six digits where four do not hold the year.
fn day(days: i64) -> String {
    let (year, month, day) = civil(days);
    match year {
        0..=9999 => format!("{year:04}-{month:02}-{day:02}"),
        _ => format!("{year:+07}-{month:02}-{day:02}"),
    }
}

fn moment(microseconds: i64) -> String {
    if let Some(text) = infinite_timestamp(microseconds) {
        return text.to_owned();
    }
    let days = microseconds.div_euclid(MICROSECONDS_PER_DAY);
    format!("{}T{}Z", day(days), time(microseconds.rem_euclid(MICROSECONDS_PER_DAY)))
}
