//! The columns of a batch, downcast once for all rows, and their fields in COPY BINARY.

use arrow_array::cast::AsArray;
use arrow_array::types::{
    Date32Type, Float32Type, Float64Type, Int16Type, Int32Type, Int64Type, IntervalMonthDayNanoType,
    Time64MicrosecondType, TimestampMicrosecondType,
};
use arrow_array::{
    Array, ArrayRef, BinaryArray, BooleanArray, FixedSizeBinaryArray, PrimitiveArray, StringArray,
};
use arrow_buffer::NullBuffer;
use bytes::{BufMut, BytesMut};

use crate::epoch::{date_to_postgres, time_of_day, timestamp_to_postgres};
use crate::frame::length_of;
use crate::{Flaw, Kind, NULL, Scalar, array, interval, jsonb, numeric};

pub(crate) struct Cells<'a> {
    nulls: Option<&'a NullBuffer>,
    values: Values<'a>,
}

impl<'a> Cells<'a> {
    /// The array must have the kind's Arrow type.
    pub(crate) fn of(array: &'a ArrayRef, kind: Kind) -> Self {
        let values = match kind {
            Kind::Scalar(scalar) => Values::Scalar(ScalarValues::of(array, scalar)),
            Kind::AsText => Values::Scalar(ScalarValues::of(array, Scalar::Text)),
            Kind::Array(element) => Values::array(array, element),
        };
        Self { nulls: array.nulls(), values }
    }

    pub(crate) fn put(&self, row: usize, out: &mut BytesMut) -> Result<(), Flaw> {
        if put_null(self.nulls, row, out) {
            return Ok(());
        }
        self.values.put(row, out)
    }
}

enum Values<'a> {
    Scalar(ScalarValues<'a>),
    Array { element: Scalar, offsets: &'a [i32], nulls: Option<&'a NullBuffer>, items: ScalarValues<'a> },
}

impl<'a> Values<'a> {
    fn array(array: &'a ArrayRef, element: Scalar) -> Self {
        let list = array.as_list::<i32>();
        let items = list.values();
        Self::Array {
            element,
            offsets: list.value_offsets(),
            nulls: items.nulls(),
            items: ScalarValues::of(items, element),
        }
    }

    fn put(&self, row: usize, out: &mut BytesMut) -> Result<(), Flaw> {
        match self {
            Self::Scalar(values) => values.put(row, out),
            Self::Array { element, offsets, nulls, items } => {
                let range = offsets[row] as usize..offsets[row + 1] as usize;
                array::put(*element, range, out, |item, out| {
                    let is_null = put_null(*nulls, item, out);
                    if !is_null {
                        items.put(item, out)?;
                    }
                    Ok(is_null)
                })
            }
        }
    }
}

enum ScalarValues<'a> {
    Bool(&'a BooleanArray),
    Int2(&'a PrimitiveArray<Int16Type>),
    Int4(&'a PrimitiveArray<Int32Type>),
    Int8(&'a PrimitiveArray<Int64Type>),
    Float4(&'a PrimitiveArray<Float32Type>),
    Float8(&'a PrimitiveArray<Float64Type>),
    Numeric(&'a StringArray),
    Text(&'a StringArray),
    Jsonb(&'a StringArray),
    Bytea(&'a BinaryArray),
    Date(&'a PrimitiveArray<Date32Type>),
    Time(&'a PrimitiveArray<Time64MicrosecondType>),
    Timestamp(&'a PrimitiveArray<TimestampMicrosecondType>),
    Interval(&'a PrimitiveArray<IntervalMonthDayNanoType>),
    Uuid(&'a FixedSizeBinaryArray),
}

impl<'a> ScalarValues<'a> {
    fn of(array: &'a ArrayRef, scalar: Scalar) -> Self {
        match scalar {
            Scalar::Bool => Self::Bool(array.as_boolean()),
            Scalar::Int2 => Self::Int2(array.as_primitive()),
            Scalar::Int4 => Self::Int4(array.as_primitive()),
            Scalar::Int8 => Self::Int8(array.as_primitive()),
            Scalar::Float4 => Self::Float4(array.as_primitive()),
            Scalar::Float8 => Self::Float8(array.as_primitive()),
            Scalar::Numeric => Self::Numeric(array.as_string()),
            Scalar::Text | Scalar::Varchar | Scalar::Bpchar | Scalar::Name | Scalar::Json => {
                Self::Text(array.as_string())
            }
            Scalar::Jsonb => Self::Jsonb(array.as_string()),
            Scalar::Bytea => Self::Bytea(array.as_binary()),
            Scalar::Date => Self::Date(array.as_primitive()),
            Scalar::Time => Self::Time(array.as_primitive()),
            Scalar::Timestamp | Scalar::Timestamptz => Self::Timestamp(array.as_primitive()),
            Scalar::Interval => Self::Interval(array.as_primitive()),
            Scalar::Uuid => Self::Uuid(array.as_fixed_size_binary()),
        }
    }

    fn put(&self, row: usize, out: &mut BytesMut) -> Result<(), Flaw> {
        match self {
            Self::Bool(array) => put_field(out, &[u8::from(array.value(row))]),
            Self::Int2(array) => put_field(out, &array.value(row).to_be_bytes()),
            Self::Int4(array) => put_field(out, &array.value(row).to_be_bytes()),
            Self::Int8(array) => put_field(out, &array.value(row).to_be_bytes()),
            Self::Float4(array) => put_field(out, &array.value(row).to_be_bytes()),
            Self::Float8(array) => put_field(out, &array.value(row).to_be_bytes()),
            Self::Numeric(array) => numeric::put(array.value(row), out),
            Self::Text(array) => put_field(out, without_nul(array.value(row))?),
            Self::Jsonb(array) => jsonb::put(without_nul(array.value(row))?, out),
            Self::Bytea(array) => put_field(out, array.value(row)),
            Self::Date(array) => put_field(out, &date_to_postgres(array.value(row))?.to_be_bytes()),
            Self::Time(array) => put_field(out, &time_of_day(array.value(row))?.to_be_bytes()),
            Self::Timestamp(array) => put_field(out, &timestamp_to_postgres(array.value(row))?.to_be_bytes()),
            Self::Interval(array) => put_field(out, &interval::to_postgres(array.value(row))?),
            Self::Uuid(array) => put_field(out, array.value(row)),
        }
    }
}

fn put_null(nulls: Option<&NullBuffer>, row: usize, out: &mut BytesMut) -> bool {
    let is_null = nulls.is_some_and(|nulls| nulls.is_null(row));
    if is_null {
        out.put_i32(NULL);
    }
    is_null
}

fn put_field(out: &mut BytesMut, field: &[u8]) -> Result<(), Flaw> {
    make_room(out, field.len());
    out.put_i32(length_of(field.len())?);
    out.put_slice(field);
    Ok(())
}

/// With room for what follows a large value: a buffer that grows for a few bytes more copies all it has.
pub(crate) fn make_room(out: &mut BytesMut, bytes: usize) {
    const LARGE: usize = 1 << 20;
    if bytes > LARGE {
        out.reserve(bytes + LARGE);
    }
}

fn without_nul(text: &str) -> Result<&[u8], Flaw> {
    let bytes = text.as_bytes();
    if bytes.contains(&0) { Err(Flaw::Nul) } else { Ok(bytes) }
}
