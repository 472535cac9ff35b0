//! Values of rows as JSON. Dates are ISO 8601, numbers keep every digit they have, json columns become objects, arrays arrays;
//! what JSON has no word for is told and makes the row a reject.

use std::io::Write;

use arrow_array::cast::AsArray;
use arrow_array::types::{
    Date32Type, Float32Type, Float64Type, Int16Type, Int32Type, Int64Type, IntervalMonthDayNanoType,
    Time64MicrosecondType, TimestampMicrosecondType,
};
use arrow_array::{
    Array, BinaryArray, BooleanArray, FixedSizeBinaryArray, ListArray, PrimitiveArray, StringArray,
};
use arrow_schema::{DataType, TimeUnit};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use jiff::Timestamp;
use jiff::civil::Date;
use uuid::Uuid;
use vitrina_pgcopy::{Kind, Scalar};

/// Why a value cannot be written.
pub(super) type Unwritable = &'static str;

/// How text is meant.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Text {
    String,
    /// Digits, as Postgres writes a numeric.
    Number,
    /// A JSON document.
    Json,
    /// An address as Postgres writes one, for a field `ip`.
    Address,
    /// A point as Postgres writes one, for a field `geo_point`.
    Point,
}

/// The values of one column, in the type they have.
#[derive(Debug)]
pub(super) enum Cells<'a> {
    Bool(&'a BooleanArray),
    Short(&'a PrimitiveArray<Int16Type>),
    Int(&'a PrimitiveArray<Int32Type>),
    Long(&'a PrimitiveArray<Int64Type>),
    Float(&'a PrimitiveArray<Float32Type>),
    Double(&'a PrimitiveArray<Float64Type>),
    Text(&'a StringArray, Text),
    Bytes(&'a BinaryArray),
    Uuid(&'a FixedSizeBinaryArray),
    Date(&'a PrimitiveArray<Date32Type>),
    Time(&'a PrimitiveArray<Time64MicrosecondType>),
    Timestamp(&'a PrimitiveArray<TimestampMicrosecondType>, bool),
    Interval(&'a PrimitiveArray<IntervalMonthDayNanoType>),
    List(&'a ListArray, Box<Cells<'a>>),
    /// As JSON strings, where the mapping asks for that.
    Quoted(Box<Cells<'a>>),
}

impl<'a> Cells<'a> {
    /// `None` for a type that no column of a query has.
    pub(super) fn of(array: &'a dyn Array, kind: Kind, quoted: bool) -> Option<Self> {
        if let (Some(list), Kind::Array(item)) = (array.as_list_opt::<i32>(), kind) {
            let items = Self::of(list.values().as_ref(), Kind::Scalar(item), quoted)?;
            return Some(Self::List(list, Box::new(items)));
        }
        let text = match kind {
            Kind::Scalar(Scalar::Numeric) => Text::Number,
            Kind::Scalar(Scalar::Json | Scalar::Jsonb) => Text::Json,
            _ => Text::String,
        };
        let cells = match array.data_type() {
            DataType::Boolean => Self::Bool(array.as_boolean()),
            DataType::Int16 => Self::Short(array.as_primitive()),
            DataType::Int32 => Self::Int(array.as_primitive()),
            DataType::Int64 => Self::Long(array.as_primitive()),
            DataType::Float32 => Self::Float(array.as_primitive()),
            DataType::Float64 => Self::Double(array.as_primitive()),
            DataType::Utf8 if quoted && text != Text::Number => {
                return Some(Self::Text(array.as_string(), Text::String));
            }
            DataType::Utf8 => Self::Text(array.as_string(), text),
            DataType::Binary => Self::Bytes(array.as_binary()),
            DataType::FixedSizeBinary(16) => Self::Uuid(array.as_fixed_size_binary()),
            DataType::Date32 => Self::Date(array.as_primitive()),
            DataType::Time64(TimeUnit::Microsecond) => Self::Time(array.as_primitive()),
            DataType::Timestamp(TimeUnit::Microsecond, zone) => {
                Self::Timestamp(array.as_primitive(), zone.is_some())
            }
            DataType::Interval(_) => Self::Interval(array.as_primitive()),
            _ => return None,
        };
        let number = matches!(
            cells,
            Self::Bool(_)
                | Self::Short(_)
                | Self::Int(_)
                | Self::Long(_)
                | Self::Float(_)
                | Self::Double(_)
                | Self::Text(_, Text::Number)
        );
        Some(if quoted && number { Self::Quoted(Box::new(cells)) } else { cells })
    }

    /// Text in the form that a field of this type takes.
    pub(super) fn fitting(self, field: Option<&str>) -> Self {
        match (self, field) {
            (Self::Text(array, Text::String), Some("ip")) => Self::Text(array, Text::Address),
            (Self::Text(array, Text::String), Some("geo_point")) => Self::Text(array, Text::Point),
            (cells, _) => cells,
        }
    }

    fn array(&self) -> &dyn Array {
        match self {
            Self::Bool(array) => *array,
            Self::Short(array) => *array,
            Self::Int(array) => *array,
            Self::Long(array) => *array,
            Self::Float(array) => *array,
            Self::Double(array) => *array,
            Self::Text(array, _) => *array,
            Self::Bytes(array) => *array,
            Self::Uuid(array) => *array,
            Self::Date(array) => *array,
            Self::Time(array) => *array,
            Self::Timestamp(array, _) => *array,
            Self::Interval(array) => *array,
            Self::List(array, _) => *array,
            Self::Quoted(cells) => cells.array(),
        }
    }

    /// Of a json column, with keys that may be others tomorrow. A point has always the same two.
    pub(super) fn is_json_object(&self, row: usize) -> bool {
        let Self::Text(array, Text::Json) = self else { return false };
        array.is_valid(row) && array.value(row).trim_ascii_start().starts_with('{')
    }

    pub(super) fn write(&self, row: usize, out: &mut Vec<u8>) -> Result<(), Unwritable> {
        if self.array().is_null(row) {
            out.extend_from_slice(b"null");
            return Ok(());
        }
        match self {
            Self::Bool(array) => json(out, &array.value(row)),
            Self::Short(array) => json(out, &array.value(row)),
            Self::Int(array) => json(out, &array.value(row)),
            Self::Long(array) => json(out, &array.value(row)),
            Self::Float(array) => json(out, &finite(array.value(row), f32::is_finite)?),
            Self::Double(array) => json(out, &finite(array.value(row), f64::is_finite)?),
            Self::Text(array, Text::String) => json(out, array.value(row)),
            Self::Text(array, Text::Number) => number(out, array.value(row))?,
            Self::Text(array, Text::Json) => document(out, array.value(row)),
            Self::Text(array, Text::Address) => json(out, host(array.value(row))),
            Self::Text(array, Text::Point) => point(out, array.value(row))?,
            Self::Bytes(array) => json(out, &STANDARD.encode(array.value(row))),
            Self::Uuid(array) => {
                let uuid = Uuid::from_slice(array.value(row)).unwrap_or_default();
                print(out, format_args!("\"{uuid}\""));
            }
            Self::Date(array) => date(out, array.value(row))?,
            Self::Time(array) => time(out, array.value(row)),
            Self::Timestamp(array, zoned) => timestamp(out, array.value(row), *zoned)?,
            Self::Interval(array) => {
                let interval = array.value(row);
                let (months, days, micros) = (interval.months, interval.days, interval.nanoseconds / 1000);
                print(out, format_args!("\"P{months}M{days}DT{}S\"", seconds(micros)));
            }
            Self::List(array, items) => list(out, array, items, row)?,
            Self::Quoted(cells) => {
                out.push(b'"');
                cells.write(row, out)?;
                out.push(b'"');
            }
        }
        Ok(())
    }
}

/// Into memory: nothing can go wrong.
fn json<T: serde::Serialize + ?Sized>(out: &mut Vec<u8>, value: &T) {
    drop(serde_json::to_writer(out, value));
}

fn print(out: &mut Vec<u8>, text: std::fmt::Arguments<'_>) {
    drop(out.write_fmt(text));
}

fn finite<T>(number: T, is_finite: impl Fn(T) -> bool) -> Result<T, Unwritable>
where
    T: Copy,
{
    if is_finite(number) { Ok(number) } else { Err("NaN and infinities have no place in JSON") }
}

/// As Postgres writes it, which is how JSON does: with every digit.
fn number(out: &mut Vec<u8>, digits: &str) -> Result<(), Unwritable> {
    let plain =
        digits.bytes().all(|byte| byte.is_ascii_digit() || matches!(byte, b'-' | b'.' | b'e' | b'E' | b'+'));
    if !plain {
        return Err("NaN and infinities have no place in JSON");
    }
    out.extend_from_slice(digits.as_bytes());
    Ok(())
}

/// A single address has a mask as a text, which a field `ip` does not take; one of a network stays as it is, and is refused.
fn host(text: &str) -> &str {
    let mask = if text.contains(':') { "/128" } else { "/32" };
    text.strip_suffix(mask).unwrap_or(text)
}

/// `(longitude,latitude)`; what is written otherwise may be a form that the server knows.
fn point(out: &mut Vec<u8>, text: &str) -> Result<(), Unwritable> {
    let inner = text.strip_prefix('(').and_then(|text| text.strip_suffix(')'));
    let Some((longitude, latitude)) = inner.and_then(|text| text.split_once(',')) else {
        json(out, text);
        return Ok(());
    };
    out.extend_from_slice(b"{\"lat\":");
    number(out, latitude)?;
    out.extend_from_slice(b",\"lon\":");
    number(out, longitude)?;
    out.push(b'}');
    Ok(())
}

/// A document on one line: a line break in JSON stands between its words, never inside them.
fn document(out: &mut Vec<u8>, text: &str) {
    let start = out.len();
    out.extend_from_slice(text.as_bytes());
    for byte in &mut out[start..] {
        if matches!(*byte, b'\n' | b'\r') {
            *byte = b' ';
        }
    }
}

fn list(out: &mut Vec<u8>, array: &ListArray, items: &Cells<'_>, row: usize) -> Result<(), Unwritable> {
    let offsets = array.value_offsets();
    let (start, end) = (offsets[row] as usize, offsets[row + 1] as usize);
    out.push(b'[');
    for item in start..end {
        if item > start {
            out.push(b',');
        }
        items.write(item, out)?;
    }
    out.push(b']');
    Ok(())
}

const OUT_OF_RANGE: Unwritable = "a date outside of the years 1 to 9999 has no place in an index";

fn date(out: &mut Vec<u8>, days: i32) -> Result<(), Unwritable> {
    let epoch = Date::constant(1970, 1, 1);
    let span = jiff::Span::new().try_days(days).map_err(|_| OUT_OF_RANGE)?;
    let date = epoch.checked_add(span).ok().filter(|date| date.year() > 0).ok_or(OUT_OF_RANGE)?;
    print(out, format_args!("\"{date}\""));
    Ok(())
}

fn timestamp(out: &mut Vec<u8>, micros: i64, zoned: bool) -> Result<(), Unwritable> {
    // The last day of the year 9999, which often stands for no end, is no instant in every time zone.
    let civil = match Timestamp::from_microsecond(micros) {
        Ok(instant) => jiff::tz::Offset::UTC.to_datetime(instant),
        Err(_) => jiff::tz::Offset::UTC
            .to_datetime(Timestamp::UNIX_EPOCH)
            .checked_add(jiff::SignedDuration::from_micros(micros))
            .map_err(|_| OUT_OF_RANGE)?,
    };
    if civil.year() < 1 {
        return Err(OUT_OF_RANGE);
    }
    print(out, format_args!("\"{civil}{}\"", if zoned { "Z" } else { "" }));
    Ok(())
}

fn time(out: &mut Vec<u8>, micros: i64) {
    let minutes = micros / 60_000_000;
    let rest = micros % 60_000_000;
    let pad = if rest < 10_000_000 { "0" } else { "" };
    print(out, format_args!("\"{:02}:{:02}:{pad}{}\"", minutes / 60, minutes % 60, seconds(rest)));
}

/// With as many digits behind the point as there are.
fn seconds(micros: i64) -> String {
    let (sign, micros) = (if micros < 0 { "-" } else { "" }, micros.unsigned_abs());
    let (whole, fraction) = (micros / 1_000_000, micros % 1_000_000);
    match fraction {
        0 => format!("{sign}{whole}"),
        fraction => format!("{sign}{whole}.{fraction:06}").trim_end_matches('0').to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow_array::builder::{Int64Builder, ListBuilder};
    use arrow_array::{ArrayRef, Date32Array, Float64Array, Int64Array, TimestampMicrosecondArray};

    use super::*;

    fn written(array: &ArrayRef, kind: Kind, quoted: bool) -> Vec<Result<String, Unwritable>> {
        let cells = Cells::of(array.as_ref(), kind, quoted).unwrap();
        let one = |row| {
            let mut out = Vec::new();
            cells.write(row, &mut out).map(|()| String::from_utf8(out).unwrap())
        };
        (0..array.len()).map(one).collect()
    }

    fn plain(array: impl Array + 'static, kind: Kind) -> Vec<Result<String, Unwritable>> {
        let array: ArrayRef = Arc::new(array);
        written(&array, kind, false)
    }

    #[test]
    fn numbers_keep_their_digits_and_become_text_where_the_mapping_asks() {
        let digits: ArrayRef =
            Arc::new(StringArray::from(vec!["12345678901234567890.10", "NaN", "-Infinity"]));
        let numeric = Kind::Scalar(Scalar::Numeric);
        let told = written(&digits, numeric, false);
        assert_eq!(told[0].as_deref(), Ok("12345678901234567890.10"));
        assert!(told[1].is_err() && told[2].is_err());
        let texts = written(&digits, numeric, true);
        assert_eq!(texts[0].as_deref(), Ok("\"12345678901234567890.10\""));
        assert!(texts[1].is_err() && texts[2].is_err(), "no number, however it is written");
        let long: ArrayRef = Arc::new(Int64Array::from(vec![i64::MAX]));
        assert_eq!(
            written(&long, Kind::Scalar(Scalar::Int8), false)[0].as_deref(),
            Ok("9223372036854775807")
        );
        assert_eq!(
            written(&long, Kind::Scalar(Scalar::Int8), true)[0].as_deref(),
            Ok("\"9223372036854775807\"")
        );
    }

    #[test]
    fn what_json_has_no_word_for_is_told() {
        let floats =
            plain(Float64Array::from(vec![0.1, f64::NAN, f64::INFINITY]), Kind::Scalar(Scalar::Float8));
        assert_eq!(floats[0].as_deref(), Ok("0.1"));
        assert!(floats[1].is_err() && floats[2].is_err());
    }

    #[test]
    fn dates_are_iso_8601_to_the_microsecond() {
        let zoned =
            TimestampMicrosecondArray::from(vec![1_700_000_000_123_456, i64::MAX, 253_402_300_799_999_999])
                .with_timezone("UTC");
        let told = plain(zoned, Kind::Scalar(Scalar::Timestamptz));
        assert_eq!(told[0].as_deref(), Ok("\"2023-11-14T22:13:20.123456Z\""));
        assert!(told[1].is_err(), "infinity");
        assert_eq!(told[2].as_deref(), Ok("\"9999-12-31T23:59:59.999999Z\""));
        let civil = plain(TimestampMicrosecondArray::from(vec![0]), Kind::Scalar(Scalar::Timestamp));
        assert_eq!(civil[0].as_deref(), Ok("\"1970-01-01T00:00:00\""));
        let date = plain(Date32Array::from(vec![19_675]), Kind::Scalar(Scalar::Date));
        assert_eq!(date[0].as_deref(), Ok("\"2023-11-14\""));
    }

    #[test]
    fn empty_arrays_stay_empty_and_null_is_null() {
        let mut list = ListBuilder::new(Int64Builder::new());
        list.append_value([Some(1), None]);
        list.append_value([]);
        list.append_null();
        let told = plain(list.finish(), Kind::Array(Scalar::Int8));
        assert_eq!(told, [Ok("[1,null]".to_owned()), Ok("[]".to_owned()), Ok("null".to_owned())]);
    }

    #[test]
    fn addresses_and_points_take_the_form_of_their_fields() {
        let written = |text: &str, field: &str| {
            let array: ArrayRef = Arc::new(StringArray::from(vec![text]));
            let cells = Cells::of(array.as_ref(), Kind::AsText, false).unwrap().fitting(Some(field));
            let mut out = Vec::new();
            cells.write(0, &mut out).map(|()| String::from_utf8(out).unwrap())
        };
        assert_eq!(written("10.1.2.3/32", "ip").unwrap(), r#""10.1.2.3""#);
        assert_eq!(written("::1/128", "ip").unwrap(), r#""::1""#);
        assert_eq!(written("10.0.0.0/8", "ip").unwrap(), r#""10.0.0.0/8""#);
        assert_eq!(written("10.1.2.3/32", "keyword").unwrap(), r#""10.1.2.3/32""#);
        assert_eq!(written("(37.6,-55.7)", "geo_point").unwrap(), r#"{"lat":-55.7,"lon":37.6}"#);
        assert_eq!(written("u09t", "geo_point").unwrap(), r#""u09t""#);
        assert!(written("(NaN,1)", "geo_point").is_err());
    }

    #[test]
    fn a_document_fits_on_one_line() {
        let json = plain(StringArray::from(vec!["{\n \"a\\n\": 1\r\n}"]), Kind::Scalar(Scalar::Json));
        assert_eq!(json[0].as_deref(), Ok("{  \"a\\n\": 1  }"));
    }
}
