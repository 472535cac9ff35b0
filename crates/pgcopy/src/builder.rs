//! One Arrow builder per column, fed with the fields of COPY BINARY rows.

use std::sync::Arc;

use arrow_array::ArrayRef;
use arrow_array::builder::{
    BinaryBuilder, BooleanBuilder, Date32Builder, FixedSizeBinaryBuilder, Float32Builder, Float64Builder,
    Int16Builder, Int32Builder, Int64Builder, StringBuilder, TimestampMicrosecondBuilder,
};

use crate::epoch::{date_from_postgres, timestamp_from_postgres};
use crate::{Flaw, Kind};

pub(crate) enum Builder {
    Bool(BooleanBuilder),
    Int2(Int16Builder),
    Int4(Int32Builder),
    Int8(Int64Builder),
    Float4(Float32Builder),
    Float8(Float64Builder),
    Text(StringBuilder),
    Bytea(BinaryBuilder),
    Date(Date32Builder),
    Timestamp(TimestampMicrosecondBuilder),
    Uuid(FixedSizeBinaryBuilder),
}

impl Builder {
    pub(crate) fn new(kind: Kind) -> Self {
        match kind {
            Kind::Bool => Self::Bool(BooleanBuilder::new()),
            Kind::Int2 => Self::Int2(Int16Builder::new()),
            Kind::Int4 => Self::Int4(Int32Builder::new()),
            Kind::Int8 => Self::Int8(Int64Builder::new()),
            Kind::Float4 => Self::Float4(Float32Builder::new()),
            Kind::Float8 => Self::Float8(Float64Builder::new()),
            Kind::Text | Kind::AsText => Self::Text(StringBuilder::new()),
            Kind::Bytea => Self::Bytea(BinaryBuilder::new()),
            Kind::Date => Self::Date(Date32Builder::new()),
            Kind::Timestamp | Kind::Timestamptz => {
                Self::Timestamp(TimestampMicrosecondBuilder::new().with_data_type(kind.arrow_type()))
            }
            Kind::Uuid => Self::Uuid(FixedSizeBinaryBuilder::new(16)),
        }
    }

    /// Appends one field, `None` being NULL. The caller keeps a batch's bytes within `i32::MAX`:
    /// text and binary builders panic beyond.
    pub(crate) fn append(&mut self, field: Option<&[u8]>) -> Result<(), Flaw> {
        match self {
            Self::Bool(builder) => builder.append_option(field.map(boolean).transpose()?),
            Self::Int2(builder) => builder.append_option(number(field, i16::from_be_bytes)?),
            Self::Int4(builder) => builder.append_option(number(field, i32::from_be_bytes)?),
            Self::Int8(builder) => builder.append_option(number(field, i64::from_be_bytes)?),
            Self::Float4(builder) => builder.append_option(number(field, f32::from_be_bytes)?),
            Self::Float8(builder) => builder.append_option(number(field, f64::from_be_bytes)?),
            Self::Text(builder) => builder.append_option(field.map(text).transpose()?),
            Self::Bytea(builder) => builder.append_option(field),
            Self::Date(builder) => {
                let days = number(field, i32::from_be_bytes)?;
                builder.append_option(days.map(date_from_postgres).transpose()?);
            }
            Self::Timestamp(builder) => {
                let microseconds = number(field, i64::from_be_bytes)?;
                builder.append_option(microseconds.map(timestamp_from_postgres).transpose()?);
            }
            Self::Uuid(builder) => match field.map(fixed::<16>).transpose()? {
                Some(uuid) => builder.append_value(uuid).expect("a uuid has the builder's 16 bytes"),
                None => builder.append_null(),
            },
        }
        Ok(())
    }

    /// What was appended since the last call.
    pub(crate) fn finish(&mut self) -> ArrayRef {
        match self {
            Self::Bool(builder) => Arc::new(builder.finish()),
            Self::Int2(builder) => Arc::new(builder.finish()),
            Self::Int4(builder) => Arc::new(builder.finish()),
            Self::Int8(builder) => Arc::new(builder.finish()),
            Self::Float4(builder) => Arc::new(builder.finish()),
            Self::Float8(builder) => Arc::new(builder.finish()),
            Self::Text(builder) => Arc::new(builder.finish()),
            Self::Bytea(builder) => Arc::new(builder.finish()),
            Self::Date(builder) => Arc::new(builder.finish()),
            Self::Timestamp(builder) => Arc::new(builder.finish()),
            Self::Uuid(builder) => Arc::new(builder.finish()),
        }
    }
}

fn boolean(field: &[u8]) -> Result<bool, Flaw> {
    match fixed(field)? {
        [0] => Ok(false),
        [1] => Ok(true),
        _ => Err(Flaw::Boolean),
    }
}

fn text(field: &[u8]) -> Result<&str, Flaw> {
    std::str::from_utf8(field).map_err(|_| Flaw::NotUtf8)
}

fn number<const N: usize, T>(field: Option<&[u8]>, read: fn([u8; N]) -> T) -> Result<Option<T>, Flaw> {
    Ok(field.map(fixed).transpose()?.map(read))
}

fn fixed<const N: usize>(field: &[u8]) -> Result<[u8; N], Flaw> {
    field.try_into().map_err(|_| Flaw::Length { expected: N, found: field.len() })
}
