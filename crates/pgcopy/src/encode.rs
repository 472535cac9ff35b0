//! Record batches to COPY BINARY bytes.

use arrow_array::RecordBatch;
use arrow_schema::{FieldRef, SchemaRef};
use bytes::{BufMut, BytesMut};

use crate::cells::Cells;
use crate::{Error, Kind, Result, SIGNATURE, TRAILER};

/// Writes batches of one schema, each column as its field's `Kind`. A stream is a header, any number of batches and a trailer.
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
            Kind::of_field(field).ok_or_else(|| Error::UnsupportedType {
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
