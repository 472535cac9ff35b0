//! One value of a column as JSON.

use std::io::Write;

use arrow_array::Array;
use arrow_array::cast::AsArray;
use arrow_array::types::{
    Date32Type, Float32Type, Float64Type, Int16Type, Int32Type, Int64Type, IntervalMonthDayNanoType,
    Time64MicrosecondType, TimestampMicrosecondType,
};
use jiff::SignedDuration;
use jiff::civil::{Date, Time};
use vitrina_core::{Error, Result};
use vitrina_pgcopy::{Kind, Scalar};

/// A time may be the end of its day.
pub(super) const DAY: i64 = 86_400_000_000;
/// The days after which the calendar repeats itself, and its years.
pub(super) const CYCLE: i64 = 146_097;
pub(super) const YEARS: i64 = 400;

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
        Scalar::Date => quoted(date(array.as_primitive::<Date32Type>().value(row))?, out),
        Scalar::Time => quoted(time(array.as_primitive::<Time64MicrosecondType>().value(row))?, out),
        Scalar::Timestamp => {
            let microseconds = array.as_primitive::<TimestampMicrosecondType>().value(row);
            quoted(moment(microseconds)?.trim_end_matches('Z'), out)
        }
        Scalar::Timestamptz => {
            quoted(moment(array.as_primitive::<TimestampMicrosecondType>().value(row))?, out)
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

/// Infinite ones are the extremes of their type.
fn date(days: i32) -> Result<String> {
    match days {
        i32::MAX => Ok("infinity".to_owned()),
        i32::MIN => Ok("-infinity".to_owned()),
        days => day(days.into()),
    }
}

/// The calendar repeats itself: Postgres knows years that this library does not.
fn day(days: i64) -> Result<String> {
    let since = SignedDuration::from_hours(24 * days.rem_euclid(CYCLE));
    let date = Date::constant(1970, 1, 1).checked_add(since).map_err(out_of_range)?;
    let year = i64::from(date.year()) + YEARS * days.div_euclid(CYCLE);
    let (month, day) = (date.month(), date.day());
    Ok(match year {
        0..=9999 => format!("{year:04}-{month:02}-{day:02}"),
        _ => format!("{year:+07}-{month:02}-{day:02}"),
    })
}

fn time(microseconds: i64) -> Result<String> {
    if microseconds == DAY {
        return Ok("24:00:00".to_owned());
    }
    let time = Time::midnight().checked_add(SignedDuration::from_micros(microseconds));
    time.map(|time| time.to_string()).map_err(out_of_range)
}

fn moment(microseconds: i64) -> Result<String> {
    match microseconds {
        i64::MAX => Ok("infinity".to_owned()),
        i64::MIN => Ok("-infinity".to_owned()),
        _ => {
            let (days, rest) = (microseconds.div_euclid(DAY), microseconds.rem_euclid(DAY));
            Ok(format!("{}T{}Z", day(days)?, time(rest)?))
        }
    }
}

#[allow(clippy::needless_pass_by_value)] // as map_err hands it over
fn out_of_range(error: jiff::Error) -> Error {
    Error::fix("python.rows", format!("a time is beyond what Python knows: {error}"))
        .hint("filter such rows out in the query, or cast the column to text there")
}
