//! Record batches to COPY BINARY bytes.

use arrow_array::cast::AsArray;
use arrow_array::types::{
    Date32Type, Float32Type, Float64Type, Int16Type, Int32Type, Int64Type, TimestampMicrosecondType,
};
use arrow_array::{
    Array, ArrayRef, BinaryArray, BooleanArray, FixedSizeBinaryArray, PrimitiveArray, RecordBatch,
    StringArray,
};
use arrow_buffer::NullBuffer;
use arrow_schema::{FieldRef, SchemaRef};
use bytes::{BufMut, BytesMut};

use crate::epoch::{date_to_postgres, timestamp_to_postgres};
use crate::{Error, Flaw, Kind, NULL, Result, SIGNATURE, TRAILER};

/// Writes batches of one schema. A stream is a header, any number of batches and a trailer.
#[derive(Debug, Clone)]
pub struct Encoder {
    schema: SchemaRef,
    kinds: Vec<Kind>,
    field_count: i16,
}

impl Encoder {
    pub fn new(schema: SchemaRef) -> Result<Self> {
        let field_count =
            i16::try_from(schema.fields().len()).map_err(|_| Error::TooManyColumns(schema.fields().len()))?;
        let kind = |field: &FieldRef| {
            Kind::of_arrow(field.data_type()).ok_or_else(|| Error::UnsupportedType {
                column: field.name().clone(),
                data_type: field.data_type().clone(),
            })
        };
        let kinds = schema.fields().iter().map(kind).collect::<Result<_>>()?;
        Ok(Self { schema, kinds, field_count })
    }

    /// The type each staging column must have, in the schema's order.
    pub fn column_types(&self) -> Vec<&'static str> {
        self.kinds.iter().map(|kind| kind.postgres_type()).collect()
    }

    pub fn header(out: &mut BytesMut) {
        out.put_slice(SIGNATURE);
        out.put_u32(0); // flags
        out.put_i32(0); // length of the header extension
    }

    pub fn trailer(out: &mut BytesMut) {
        out.put_i16(TRAILER);
    }

    /// Appends the rows of a batch. An error leaves `out` as it was.
    pub fn encode(&self, batch: &RecordBatch, out: &mut BytesMut) -> Result<()> {
        let cells = self.cells(batch)?;
        let before = out.len();
        let result = (0..batch.num_rows()).try_for_each(|row| self.put_row(&cells, row, out));
        if result.is_err() {
            out.truncate(before);
        }
        result
    }

    fn cells<'a>(&self, batch: &'a RecordBatch) -> Result<Vec<Cells<'a>>> {
        if batch.num_columns() != self.kinds.len() {
            let (found, expected) = (batch.num_columns(), self.kinds.len());
            return Err(Error::OtherColumns(format!("{found} instead of {expected}")));
        }
        for (array, field) in batch.columns().iter().zip(self.schema.fields()) {
            let (name, expected, found) = (field.name(), field.data_type(), array.data_type());
            if found != expected {
                return Err(Error::OtherColumns(format!("\"{name}\" is {found} instead of {expected}")));
            }
        }
        Ok(batch.columns().iter().zip(&self.kinds).map(|(array, kind)| Cells::of(array, *kind)).collect())
    }

    fn put_row(&self, cells: &[Cells<'_>], row: usize, out: &mut BytesMut) -> Result<()> {
        out.put_i16(self.field_count);
        for (index, cells) in cells.iter().enumerate() {
            cells.put(row, out).map_err(|flaw| flaw.of(self.schema.field(index).name()))?;
        }
        Ok(())
    }
}

/// A column of a batch, downcast once for all its rows.
struct Cells<'a> {
    nulls: Option<&'a NullBuffer>,
    values: Values<'a>,
}

impl<'a> Cells<'a> {
    fn of(array: &'a ArrayRef, kind: Kind) -> Self {
        Self { nulls: array.nulls(), values: Values::of(array, kind) }
    }

    fn put(&self, row: usize, out: &mut BytesMut) -> Result<(), Flaw> {
        if self.nulls.is_some_and(|nulls| nulls.is_null(row)) {
            out.put_i32(NULL);
            return Ok(());
        }
        self.values.put(row, out)
    }
}

enum Values<'a> {
    Bool(&'a BooleanArray),
    Int2(&'a PrimitiveArray<Int16Type>),
    Int4(&'a PrimitiveArray<Int32Type>),
    Int8(&'a PrimitiveArray<Int64Type>),
    Float4(&'a PrimitiveArray<Float32Type>),
    Float8(&'a PrimitiveArray<Float64Type>),
    Text(&'a StringArray),
    Bytea(&'a BinaryArray),
    Date(&'a PrimitiveArray<Date32Type>),
    Timestamp(&'a PrimitiveArray<TimestampMicrosecondType>),
    Uuid(&'a FixedSizeBinaryArray),
}

impl<'a> Values<'a> {
    fn of(array: &'a ArrayRef, kind: Kind) -> Self {
        match kind {
            Kind::Bool => Self::Bool(array.as_boolean()),
            Kind::Int2 => Self::Int2(array.as_primitive()),
            Kind::Int4 => Self::Int4(array.as_primitive()),
            Kind::Int8 => Self::Int8(array.as_primitive()),
            Kind::Float4 => Self::Float4(array.as_primitive()),
            Kind::Float8 => Self::Float8(array.as_primitive()),
            Kind::Text | Kind::AsText => Self::Text(array.as_string()),
            Kind::Bytea => Self::Bytea(array.as_binary()),
            Kind::Date => Self::Date(array.as_primitive()),
            Kind::Timestamp | Kind::Timestamptz => Self::Timestamp(array.as_primitive()),
            Kind::Uuid => Self::Uuid(array.as_fixed_size_binary()),
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
            Self::Text(array) => put_field(out, without_nul(array.value(row))?),
            Self::Bytea(array) => put_field(out, array.value(row)),
            Self::Date(array) => put_field(out, &date_to_postgres(array.value(row))?.to_be_bytes()),
            Self::Timestamp(array) => put_field(out, &timestamp_to_postgres(array.value(row))?.to_be_bytes()),
            Self::Uuid(array) => put_field(out, array.value(row)),
        }
        Ok(())
    }
}

fn put_field(out: &mut BytesMut, field: &[u8]) {
    out.put_i32(i32::try_from(field.len()).expect("arrow's 32-bit offsets bound a value's length"));
    out.put_slice(field);
}

fn without_nul(text: &str) -> Result<&[u8], Flaw> {
    let bytes = text.as_bytes();
    if bytes.contains(&0) { Err(Flaw::Nul) } else { Ok(bytes) }
}
