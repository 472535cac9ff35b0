//! COPY BINARY bytes, in chunks of any size, to record batches of a chosen size.

use std::fmt;
use std::mem;

use arrow_array::{RecordBatch, RecordBatchOptions};
use arrow_schema::SchemaRef;
use bytes::{Buf, Bytes, BytesMut};

use crate::builder::Builder;
use crate::frame::{after_fields, after_header, next_field, split};
use crate::{Column, Error, Flaw, Result, TRAILER, arrow_schema};

/// With one more row on top, Arrow's 32-bit offsets still suffice.
const MAX_BATCH_BYTES: usize = 1 << 30;

/// Collects rows until they are taken. A value that cannot be converted is noted and NULL for now. Bytes
/// that do not keep to the frame are an error, which ends the decoder: what it holds is then lost.
pub struct Decoder {
    schema: SchemaRef,
    builders: Vec<Builder>,
    /// What a row takes whose values are all NULL.
    slots: usize,
    stage: Stage,
    /// Bytes that came with a chunk and do not make a whole row yet.
    rest: BytesMut,
    rows: usize,
    bytes: usize,
    flawed: Vec<Flawed>,
}

/// All rows that were waiting.
#[derive(Debug, Clone, PartialEq)]
pub struct Decoded {
    pub rows: RecordBatch,
    /// The values among the rows that are NULL only because they could not be converted.
    pub flawed: Vec<Flawed>,
}

/// A value that could not be converted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Flawed {
    /// Counted from the batch's first row.
    pub row: usize,
    pub column: String,
    pub flaw: Flaw,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    Header,
    Rows,
    Finished,
    Broken,
}

impl Decoder {
    pub fn new(columns: &[Column]) -> Self {
        let builders: Vec<_> = columns.iter().map(|column| Builder::new(column.kind())).collect();
        Self {
            schema: arrow_schema(columns),
            slots: builders.iter().map(Builder::slot).sum(),
            builders,
            stage: Stage::Header,
            rest: BytesMut::new(),
            rows: 0,
            bytes: 0,
            flawed: Vec::new(),
        }
    }

    /// The schema of every batch taken.
    pub fn schema(&self) -> &SchemaRef {
        &self.schema
    }

    /// Complete rows waiting to be taken.
    pub fn rows(&self) -> usize {
        self.rows
    }

    /// What those rows take on the wire or decoded, whichever is more.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// The end of the data was seen. A stream that ends earlier was cut off.
    pub fn is_finished(&self) -> bool {
        self.stage == Stage::Finished
    }

    /// Decodes all of a chunk.
    pub fn push(&mut self, mut chunk: &[u8]) -> Result<()> {
        if self.feed(&mut chunk, usize::MAX, usize::MAX)? {
            return Err(self.fail(Error::Full));
        }
        Ok(())
    }

    /// Decodes a chunk up to a full batch. `true`: a batch is full; take it and call again with what
    /// is left of the chunk, even if that is nothing. `false`: the chunk is used up; go on with the
    /// next one. A batch is full at `max_rows`, or with the row that reaches `max_bytes`, and has
    /// one row at least.
    pub fn push_until(&mut self, chunk: &mut Bytes, max_rows: usize, max_bytes: usize) -> Result<bool> {
        let mut left = chunk.as_ref();
        let full = self.feed(&mut left, max_rows, max_bytes)?;
        let used = chunk.len() - left.len();
        chunk.advance(used);
        Ok(full)
    }

    /// All complete rows that are waiting.
    pub fn take(&mut self) -> Result<Decoded> {
        if self.stage == Stage::Broken {
            return Err(Error::Broken);
        }
        let arrays = self.builders.iter_mut().map(Builder::finish).collect();
        let options = RecordBatchOptions::new().with_row_count(Some(mem::take(&mut self.rows)));
        self.bytes = 0;
        let rows = RecordBatch::try_new_with_options(self.schema.clone(), arrays, &options)
            .expect("builders have the schema's types and one value a row");
        Ok(Decoded { rows, flawed: mem::take(&mut self.flawed) })
    }

    fn feed(&mut self, chunk: &mut &[u8], max_rows: usize, max_bytes: usize) -> Result<bool> {
        let max_bytes = max_bytes.min(MAX_BATCH_BYTES);
        if self.rest.is_empty() {
            let full = self.decode(chunk, max_rows, max_bytes)?;
            if !full {
                self.rest.extend_from_slice(mem::take(chunk));
            }
            return Ok(full);
        }
        let mut rest = mem::take(&mut self.rest);
        rest.extend_from_slice(mem::take(chunk));
        let mut left = &rest[..];
        let full = self.decode(&mut left, max_rows, max_bytes)?;
        let used = rest.len() - left.len();
        rest.advance(used);
        self.rest = rest;
        Ok(full)
    }

    fn decode(&mut self, input: &mut &[u8], max_rows: usize, max_bytes: usize) -> Result<bool> {
        loop {
            if self.rows > 0 && (self.rows >= max_rows || self.bytes >= max_bytes) {
                return Ok(true);
            }
            if !self.step(input).map_err(|error| self.fail(error))? {
                return Ok(false);
            }
        }
    }

    /// Decodes the next thing of the stream; `false` when its bytes are not all there.
    fn step(&mut self, input: &mut &[u8]) -> Result<bool> {
        match self.stage {
            Stage::Header => self.read_header(input),
            Stage::Rows => self.read_row(input),
            Stage::Finished if input.is_empty() => Ok(false),
            Stage::Finished => Err(Error::Malformed("bytes after the end")),
            Stage::Broken => Err(Error::Broken),
        }
    }

    fn read_header(&mut self, input: &mut &[u8]) -> Result<bool> {
        let Some(rest) = after_header(input)? else { return Ok(false) };
        *input = rest;
        self.stage = Stage::Rows;
        Ok(true)
    }

    fn read_row(&mut self, input: &mut &[u8]) -> Result<bool> {
        let Some((count, mut fields)) = split(input).map(|(count, rest)| (i16::from_be_bytes(count), rest))
        else {
            return Ok(false);
        };
        if count == TRAILER {
            *input = fields;
            self.stage = Stage::Finished;
            return Ok(true);
        }
        if usize::try_from(count) != Ok(self.builders.len()) {
            return Err(Error::FieldCount { expected: self.builders.len(), found: count });
        }
        let Some(rest) = after_fields(fields, self.builders.len())? else { return Ok(false) };
        let decoded = self.append(&mut fields)?;
        self.rows += 1;
        self.bytes += decoded.max(input.len() - rest.len());
        *input = rest;
        Ok(true)
    }

    /// Appends a row and answers the bytes it takes decoded.
    fn append(&mut self, fields: &mut &[u8]) -> Result<usize> {
        let mut bytes = self.slots;
        for (index, builder) in self.builders.iter_mut().enumerate() {
            let field = next_field(fields)?.expect("after_fields saw the whole row");
            bytes += match builder.append(field) {
                Ok(bytes) => bytes,
                Err(flaw) => {
                    let column = self.schema.field(index).name().clone();
                    self.flawed.push(Flawed { row: self.rows, column, flaw });
                    size_of::<Flawed>() + builder.append_null()
                }
            };
        }
        Ok(bytes)
    }

    fn fail(&mut self, error: Error) -> Error {
        self.stage = Stage::Broken;
        error
    }
}

impl fmt::Debug for Decoder {
    /// Without the rows: they belong in no log.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Decoder")
            .field("stage", &self.stage)
            .field("rows", &self.rows)
            .field("bytes", &self.bytes)
            .finish_non_exhaustive()
    }
}
