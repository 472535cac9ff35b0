//! A column out of values of JSON.

use std::sync::Arc;

use arrow_array::builder::{
    BinaryBuilder, BooleanBuilder, Date32Builder, FixedSizeBinaryBuilder, Float32Builder, Float64Builder,
    Int16Builder, Int32Builder, Int64Builder, StringBuilder, Time64MicrosecondBuilder,
    TimestampMicrosecondBuilder,
};
use arrow_array::{ArrayRef, ListArray, NullArray};
use arrow_buffer::{NullBuffer, OffsetBuffer};
use arrow_schema::{DataType, Field};
use jiff::Timestamp;
use jiff::civil::{Date, DateTime, Time};
use serde_json::Value;
use serde_json::value::RawValue;
use vitrina_core::values::value;
use vitrina_pgcopy::calendar::{self, MICROSECONDS_PER_DAY};
use vitrina_pgcopy::{Kind, Scalar};

type Taken<T = ()> = std::result::Result<T, String>;

pub(super) enum Builder {
    Null(usize),
    Scalar(Cells),
    List { items: Cells, lengths: Vec<usize>, valid: Vec<bool> },
}

pub(super) enum Cells {
    Bool(BooleanBuilder),
    Int2(Int16Builder),
    Int4(Int32Builder),
    Int8(Int64Builder),
    Float4(Float32Builder),
    Float8(Float64Builder),
    Text(StringBuilder),
    Bytes(BinaryBuilder),
    Date(Date32Builder),
    Time(Time64MicrosecondBuilder),
    Timestamp(TimestampMicrosecondBuilder),
    Timestamptz(TimestampMicrosecondBuilder),
    Uuid(FixedSizeBinaryBuilder),
}

impl Builder {
    pub(super) fn null() -> Self {
        Self::Null(0)
    }

    pub(super) fn of(kind: Kind) -> Self {
        match kind {
            Kind::AsText => Self::Scalar(Cells::Text(StringBuilder::new())),
            Kind::Scalar(scalar) => Self::Scalar(Cells::of(scalar)),
            Kind::Array(scalar) => {
                Self::List { items: Cells::of(scalar), lengths: Vec::new(), valid: Vec::new() }
            }
        }
    }

    /// As it was written: numbers are read to the last digit, which values of JSON are not.
    pub(super) fn append_text(&mut self, text: &str) -> Taken {
        match self {
            Self::Scalar(cells) if cells.is_float() => cells.append_text(text),
            Self::List { items, lengths, valid } if items.is_float() => {
                let values: Option<Vec<&RawValue>> = parsed(text)?;
                lengths.push(values.as_ref().map_or(0, Vec::len));
                valid.push(values.is_some());
                values.into_iter().flatten().try_for_each(|value| items.append_text(value.get()))
            }
            _ => self.append(&parsed(text)?),
        }
    }

    fn append(&mut self, value: &Value) -> Taken {
        match self {
            Self::Null(count) => {
                *count += 1;
                if value.is_null() { Ok(()) } else { Err("it was said to be NULL everywhere".to_owned()) }
            }
            Self::Scalar(cells) => cells.append(value),
            Self::List { items, lengths, valid } => {
                let values = match value {
                    Value::Null => &[][..],
                    Value::Array(values) => values,
                    _ => return Err("it is no list".to_owned()),
                };
                lengths.push(values.len());
                valid.push(!value.is_null());
                values.iter().try_for_each(|value| items.append(value))
            }
        }
    }

    pub(super) fn finish(self) -> ArrayRef {
        match self {
            Self::Null(count) => Arc::new(NullArray::new(count)),
            Self::Scalar(cells) => cells.finish(),
            Self::List { items, lengths, valid } => {
                let items = items.finish();
                let field = Arc::new(Field::new_list_field(items.data_type().clone(), true));
                let nulls = Some(NullBuffer::from(valid));
                Arc::new(ListArray::new(field, OffsetBuffer::from_lengths(lengths), items, nulls))
            }
        }
    }
}

impl Cells {
    fn of(scalar: Scalar) -> Self {
        match scalar.arrow_type() {
            DataType::Boolean => Self::Bool(BooleanBuilder::new()),
            DataType::Int16 => Self::Int2(Int16Builder::new()),
            DataType::Int32 => Self::Int4(Int32Builder::new()),
            DataType::Int64 => Self::Int8(Int64Builder::new()),
            DataType::Float32 => Self::Float4(Float32Builder::new()),
            DataType::Float64 => Self::Float8(Float64Builder::new()),
            DataType::Binary => Self::Bytes(BinaryBuilder::new()),
            DataType::Date32 => Self::Date(Date32Builder::new()),
            DataType::Time64(_) => Self::Time(Time64MicrosecondBuilder::new()),
            DataType::Timestamp(_, None) => Self::Timestamp(TimestampMicrosecondBuilder::new()),
            DataType::Timestamp(_, zone) => {
                Self::Timestamptz(TimestampMicrosecondBuilder::new().with_timezone_opt(zone))
            }
            DataType::FixedSizeBinary(_) => Self::Uuid(FixedSizeBinaryBuilder::new(16)),
            // An interval stays the text that the target will read.
            _ => Self::Text(StringBuilder::new()),
        }
    }

    fn is_float(&self) -> bool {
        matches!(self, Self::Float4(_) | Self::Float8(_))
    }

    fn append_text(&mut self, text: &str) -> Taken {
        match (self, text.parse::<f64>()) {
            (Self::Float8(builder), Ok(number)) => builder.append_value(number),
            (Self::Float4(builder), Ok(_)) => {
                builder.append_value(text.parse().map_err(|_| "it is no number")?);
            }
            (cells, _) => cells.append(&parsed(text)?)?,
        }
        Ok(())
    }

    fn append(&mut self, value: &Value) -> Taken {
        let is_null = value.is_null();
        macro_rules! append {
            ($builder:expr, $value:expr) => {
                match is_null {
                    true => $builder.append_null(),
                    false => $builder.append_value($value?),
                }
            };
        }
        match self {
            Self::Bool(builder) => {
                append!(builder, value.as_bool().ok_or_else(|| "it is neither true nor false".to_owned()));
            }
            Self::Int2(builder) => append!(builder, integer(value)),
            Self::Int4(builder) => append!(builder, integer(value)),
            Self::Int8(builder) => append!(builder, integer(value)),
            #[allow(clippy::cast_possible_truncation)] // a real is what fits into one
            Self::Float4(builder) => append!(builder, float(value).map(|number| number as f32)),
            Self::Float8(builder) => append!(builder, float(value)),
            Self::Text(builder) => append!(builder, text(value)),
            Self::Bytes(builder) => append!(builder, text(value).and_then(bytes)),
            Self::Date(builder) => append!(builder, text(value).and_then(date)),
            Self::Time(builder) => append!(builder, text(value).and_then(time)),
            Self::Timestamp(builder) => append!(builder, text(value).and_then(local)),
            Self::Timestamptz(builder) => append!(builder, text(value).and_then(moment)),
            Self::Uuid(builder) if is_null => builder.append_null(),
            Self::Uuid(builder) => {
                let uuid = uuid::Uuid::parse_str(text(value)?).map_err(|error| told(&error))?;
                builder.append_value(uuid.as_bytes()).map_err(|error| told(&error))?;
            }
        }
        Ok(())
    }

    fn finish(self) -> ArrayRef {
        match self {
            Self::Bool(mut builder) => Arc::new(builder.finish()),
            Self::Int2(mut builder) => Arc::new(builder.finish()),
            Self::Int4(mut builder) => Arc::new(builder.finish()),
            Self::Int8(mut builder) => Arc::new(builder.finish()),
            Self::Float4(mut builder) => Arc::new(builder.finish()),
            Self::Float8(mut builder) => Arc::new(builder.finish()),
            Self::Text(mut builder) => Arc::new(builder.finish()),
            Self::Bytes(mut builder) => Arc::new(builder.finish()),
            Self::Date(mut builder) => Arc::new(builder.finish()),
            Self::Time(mut builder) => Arc::new(builder.finish()),
            Self::Timestamp(mut builder) | Self::Timestamptz(mut builder) => Arc::new(builder.finish()),
            Self::Uuid(mut builder) => Arc::new(builder.finish()),
        }
    }
}

fn parsed<'a, T: serde::Deserialize<'a>>(text: &'a str) -> Taken<T> {
    serde_json::from_str(text).map_err(|error| told(&error))
}

fn text(value: &Value) -> Taken<&str> {
    value.as_str().ok_or_else(|| "it is no string".to_owned())
}

fn integer<T: TryFrom<i64>>(value: &Value) -> Taken<T> {
    let number = value.as_i64().ok_or_else(|| "it is no whole number of 64 bits".to_owned())?;
    T::try_from(number).map_err(|_| "it is too large".to_owned())
}

fn float(value: &Value) -> Taken<f64> {
    match value {
        Value::Number(number) => number.as_f64().ok_or_else(|| "it is no number".to_owned()),
        Value::String(word) if word == "NaN" => Ok(f64::NAN),
        Value::String(word) if word == "Infinity" => Ok(f64::INFINITY),
        Value::String(word) if word == "-Infinity" => Ok(f64::NEG_INFINITY),
        _ => Err("it is no number".to_owned()),
    }
}

fn bytes(text: &str) -> Taken<Vec<u8>> {
    let digit = |byte: u8| char::from(byte).to_digit(16).and_then(|digit| u8::try_from(digit).ok());
    let pairs = text.as_bytes().chunks(2).map(|pair| match pair {
        [high, low] => Some(digit(*high)? << 4 | digit(*low)?),
        _ => None,
    });
    pairs.collect::<Option<Vec<u8>>>().ok_or_else(|| "these are no hex digits".to_owned())
}

/// Libraries quote the value that they cannot read.
fn told(error: &impl ToString) -> String {
    value(&error.to_string())
}

fn date(text: &str) -> Taken<i32> {
    match text {
        "infinity" => Ok(i32::MAX),
        "-infinity" => Ok(i32::MIN),
        _ => i32::try_from(day(text)?).map_err(|_| "it is out of range".to_owned()),
    }
}

/// Days since 1970, of years that are beyond this library as well.
fn day(text: &str) -> Taken<i64> {
    let error = match text.parse::<Date>() {
        Ok(date) => return Ok(date.duration_since(Date::constant(1970, 1, 1)).as_hours() / 24),
        Err(error) => told(&error),
    };
    let far = || {
        let (year, rest) = text.get(1..)?.split_once('-').map(|(year, rest)| (&text[..=year.len()], rest))?;
        let (month, day) = rest.split_once('-')?;
        calendar::days(year.parse().ok()?, month.parse().ok()?, day.parse().ok()?)
    };
    far().ok_or(error)
}

fn time(text: &str) -> Taken<i64> {
    if text == "24:00:00" {
        return Ok(MICROSECONDS_PER_DAY);
    }
    let time: Time = text.parse().map_err(|error| told(&error))?;
    i64::try_from(time.duration_since(Time::midnight()).as_micros())
        .map_err(|_| "it is out of range".to_owned())
}

fn local(text: &str) -> Taken<i64> {
    match text {
        "infinity" | "-infinity" => moment(text),
        _ => {
            let error = match text.parse::<DateTime>() {
                Ok(local) => {
                    let since = local.duration_since(DateTime::constant(1970, 1, 1, 0, 0, 0, 0));
                    return i64::try_from(since.as_micros()).map_err(|_| "it is out of range".to_owned());
                }
                Err(error) => told(&error),
            };
            let (date, clock) = text.split_once('T').ok_or(error)?;
            let days = day(date)?.checked_mul(MICROSECONDS_PER_DAY);
            let micros = days.zip(Some(time(clock)?)).and_then(|(days, rest)| days.checked_add(rest));
            micros.ok_or_else(|| "it is out of range".to_owned())
        }
    }
}

fn moment(text: &str) -> Taken<i64> {
    match text {
        "infinity" => Ok(i64::MAX),
        "-infinity" => Ok(i64::MIN),
        // The last day that Python knows is beyond the last moment of this library, but not beyond its last day.
        _ => {
            match (text.parse::<Timestamp>(), text.strip_suffix('Z').or_else(|| text.strip_suffix("+00:00")))
            {
                (Ok(moment), _) => Ok(moment.as_microsecond()),
                (Err(_), Some(text)) => local(text),
                (Err(error), None) => Err(told(&error)),
            }
        }
    }
}
