//! One Arrow builder per column, fed with the fields of COPY BINARY rows.

use std::sync::Arc;

use arrow_array::ArrayRef;
use arrow_array::builder::{
    BinaryBuilder, BooleanBuilder, Date32Builder, FixedSizeBinaryBuilder, Float32Builder, Float64Builder,
    Int16Builder, Int32Builder, Int64Builder, IntervalMonthDayNanoBuilder, StringBuilder,
    Time64MicrosecondBuilder, TimestampMicrosecondBuilder,
};

use crate::array::ListBuilder;
use crate::epoch::{date_from_postgres, time_of_day, timestamp_from_postgres};
use crate::{Flaw, Kind, Scalar, interval, jsonb, numeric};

pub(crate) enum Builder {
    Scalar(ScalarBuilder),
    Array(ListBuilder),
}

impl Builder {
    pub(crate) fn new(kind: Kind) -> Self {
        match kind {
            Kind::Scalar(scalar) => Self::Scalar(ScalarBuilder::new(scalar)),
            Kind::AsText => Self::Scalar(ScalarBuilder::new(Scalar::Text)),
            Kind::Array(element) => Self::Array(ListBuilder::new(element)),
        }
    }

    /// Appends one field, `None` being NULL, and answers the bytes it takes beside its slot. A field
    /// with a flaw is not appended; put NULL in its place. The caller keeps a batch's bytes within
    /// `i32::MAX`: Arrow panics beyond.
    pub(crate) fn append(&mut self, field: Option<&[u8]>) -> Result<usize, Flaw> {
        match self {
            Self::Scalar(builder) => builder.append(field),
            Self::Array(builder) => builder.append(field),
        }
    }

    pub(crate) fn append_null(&mut self) -> usize {
        self.append(None).expect("every column takes NULL")
    }

    /// The bytes that every value takes, NULL too.
    pub(crate) fn slot(&self) -> usize {
        match self {
            Self::Scalar(builder) => builder.slot(),
            Self::Array(_) => size_of::<i32>(),
        }
    }

    /// What was appended since the last call.
    pub(crate) fn finish(&mut self) -> ArrayRef {
        match self {
            Self::Scalar(builder) => builder.finish(),
            Self::Array(builder) => builder.finish(),
        }
    }
}

pub(crate) enum ScalarBuilder {
    Bool(BooleanBuilder),
    Int2(Int16Builder),
    Int4(Int32Builder),
    Int8(Int64Builder),
    Float4(Float32Builder),
    Float8(Float64Builder),
    Numeric(StringBuilder),
    Text(StringBuilder),
    Jsonb(StringBuilder),
    Bytea(BinaryBuilder),
    Date(Date32Builder),
    Time(Time64MicrosecondBuilder),
    Timestamp(TimestampMicrosecondBuilder),
    Interval(IntervalMonthDayNanoBuilder),
    Uuid(FixedSizeBinaryBuilder),
}

impl ScalarBuilder {
    pub(crate) fn new(scalar: Scalar) -> Self {
        match scalar {
            Scalar::Bool => Self::Bool(BooleanBuilder::new()),
            Scalar::Int2 => Self::Int2(Int16Builder::new()),
            Scalar::Int4 => Self::Int4(Int32Builder::new()),
            Scalar::Int8 => Self::Int8(Int64Builder::new()),
            Scalar::Float4 => Self::Float4(Float32Builder::new()),
            Scalar::Float8 => Self::Float8(Float64Builder::new()),
            Scalar::Numeric => Self::Numeric(StringBuilder::new()),
            Scalar::Text | Scalar::Varchar | Scalar::Bpchar | Scalar::Name | Scalar::Json => {
                Self::Text(StringBuilder::new())
            }
            Scalar::Jsonb => Self::Jsonb(StringBuilder::new()),
            Scalar::Bytea => Self::Bytea(BinaryBuilder::new()),
            Scalar::Date => Self::Date(Date32Builder::new()),
            Scalar::Time => Self::Time(Time64MicrosecondBuilder::new()),
            Scalar::Timestamp | Scalar::Timestamptz => {
                Self::Timestamp(TimestampMicrosecondBuilder::new().with_data_type(scalar.arrow_type()))
            }
            Scalar::Interval => Self::Interval(IntervalMonthDayNanoBuilder::new()),
            Scalar::Uuid => Self::Uuid(FixedSizeBinaryBuilder::new(16)),
        }
    }

    pub(crate) fn append(&mut self, field: Option<&[u8]>) -> Result<usize, Flaw> {
        match self {
            Self::Bool(builder) => builder.append_option(field.map(boolean).transpose()?),
            Self::Int2(builder) => builder.append_option(number(field, i16::from_be_bytes)?),
            Self::Int4(builder) => builder.append_option(number(field, i32::from_be_bytes)?),
            Self::Int8(builder) => builder.append_option(number(field, i64::from_be_bytes)?),
            Self::Float4(builder) => builder.append_option(number(field, f32::from_be_bytes)?),
            Self::Float8(builder) => builder.append_option(number(field, f64::from_be_bytes)?),
            Self::Numeric(builder) => return append_numeric(builder, field),
            Self::Text(builder) => return append_text(builder, field),
            Self::Jsonb(builder) => return append_text(builder, field.map(jsonb::text).transpose()?),
            Self::Bytea(builder) => {
                builder.append_option(field);
                return Ok(field.map_or(0, <[u8]>::len));
            }
            Self::Date(builder) => {
                let days = number(field, i32::from_be_bytes)?;
                builder.append_option(days.map(date_from_postgres).transpose()?);
            }
            Self::Time(builder) => {
                let microseconds = number(field, i64::from_be_bytes)?;
                builder.append_option(microseconds.map(time_of_day).transpose()?);
            }
            Self::Timestamp(builder) => {
                let microseconds = number(field, i64::from_be_bytes)?;
                builder.append_option(microseconds.map(timestamp_from_postgres).transpose()?);
            }
            Self::Interval(builder) => {
                let interval = field.map(fixed).transpose()?;
                builder.append_option(interval.map(interval::from_postgres).transpose()?);
            }
            Self::Uuid(builder) => match field.map(fixed::<16>).transpose()? {
                Some(uuid) => builder.append_value(uuid).expect("a uuid has the builder's 16 bytes"),
                None => builder.append_null(),
            },
        }
        Ok(0)
    }

    pub(crate) fn slot(&self) -> usize {
        match self {
            Self::Bool(_) => 1,
            Self::Int2(_) => 2,
            Self::Int4(_) | Self::Float4(_) | Self::Date(_) => 4,
            Self::Int8(_) | Self::Float8(_) | Self::Time(_) | Self::Timestamp(_) => 8,
            Self::Interval(_) | Self::Uuid(_) => 16,
            Self::Numeric(_) | Self::Text(_) | Self::Jsonb(_) | Self::Bytea(_) => size_of::<i32>(),
        }
    }

    pub(crate) fn len(&self) -> usize {
        use arrow_array::builder::ArrayBuilder;
        match self {
            Self::Bool(builder) => builder.len(),
            Self::Int2(builder) => builder.len(),
            Self::Int4(builder) => builder.len(),
            Self::Int8(builder) => builder.len(),
            Self::Float4(builder) => builder.len(),
            Self::Float8(builder) => builder.len(),
            Self::Numeric(builder) | Self::Text(builder) | Self::Jsonb(builder) => builder.len(),
            Self::Bytea(builder) => builder.len(),
            Self::Date(builder) => builder.len(),
            Self::Time(builder) => builder.len(),
            Self::Timestamp(builder) => builder.len(),
            Self::Interval(builder) => builder.len(),
            Self::Uuid(builder) => builder.len(),
        }
    }

    pub(crate) fn finish(&mut self) -> ArrayRef {
        match self {
            Self::Bool(builder) => Arc::new(builder.finish()),
            Self::Int2(builder) => Arc::new(builder.finish()),
            Self::Int4(builder) => Arc::new(builder.finish()),
            Self::Int8(builder) => Arc::new(builder.finish()),
            Self::Float4(builder) => Arc::new(builder.finish()),
            Self::Float8(builder) => Arc::new(builder.finish()),
            Self::Numeric(builder) | Self::Text(builder) | Self::Jsonb(builder) => Arc::new(builder.finish()),
            Self::Bytea(builder) => Arc::new(builder.finish()),
            Self::Date(builder) => Arc::new(builder.finish()),
            Self::Time(builder) => Arc::new(builder.finish()),
            Self::Timestamp(builder) => Arc::new(builder.finish()),
            Self::Interval(builder) => Arc::new(builder.finish()),
            Self::Uuid(builder) => Arc::new(builder.finish()),
        }
    }
}

fn append_text(builder: &mut StringBuilder, field: Option<&[u8]>) -> Result<usize, Flaw> {
    let text = field.map(std::str::from_utf8).transpose().map_err(|_| Flaw::NotUtf8)?;
    builder.append_option(text);
    Ok(text.map_or(0, str::len))
}

fn append_numeric(builder: &mut StringBuilder, field: Option<&[u8]>) -> Result<usize, Flaw> {
    let Some(field) = field else {
        builder.append_null();
        return Ok(0);
    };
    let length = numeric::write_text(field, builder)?;
    builder.append_value(""); // ends the text just written
    Ok(length)
}

fn boolean(field: &[u8]) -> Result<bool, Flaw> {
    match fixed(field)? {
        [0] => Ok(false),
        [1] => Ok(true),
        _ => Err(Flaw::Malformed("boolean")),
    }
}

fn number<const N: usize, T>(field: Option<&[u8]>, read: fn([u8; N]) -> T) -> Result<Option<T>, Flaw> {
    Ok(field.map(fixed).transpose()?.map(read))
}

fn fixed<const N: usize>(field: &[u8]) -> Result<[u8; N], Flaw> {
    field.try_into().map_err(|_| Flaw::Length { expected: N, found: field.len() })
}
