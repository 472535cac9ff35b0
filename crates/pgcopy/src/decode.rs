//! COPY BINARY bytes, in chunks of any size, to record batches of a chosen size.

use std::fmt;
use std::mem;

use arrow_array::{RecordBatch, RecordBatchOptions};
use arrow_schema::SchemaRef;
use bytes::{Buf, Bytes, BytesMut};

use crate::builder::Builder;
use crate::{Column, Error, NULL, Result, SIGNATURE, TRAILER, arrow_schema};

/// Postgres allocates no longer string, so it sends no longer row.
const MAX_ROW_BYTES: usize = (1 << 30) - 1;
/// With one more row on top, Arrow's 32-bit offsets still suffice.
const MAX_BATCH_BYTES: usize = 1 << 30;
/// Flags a reader must know; none is in use since Postgres 12 ended row oids.
const CRITICAL_FLAGS: u32 = 0xffff_0000;

/// Collects rows until they are taken. An error ends it: what it holds is then lost.
pub struct Decoder {
    schema: SchemaRef,
    builders: Vec<Builder>,
    stage: Stage,
    /// Bytes that came with a chunk and do not make a whole row yet.
    rest: BytesMut,
    rows: usize,
    bytes: usize,
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
        Self {
            schema: arrow_schema(columns),
            builders: columns.iter().map(|column| Builder::new(column.kind())).collect(),
            stage: Stage::Header,
            rest: BytesMut::new(),
            rows: 0,
            bytes: 0,
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

    /// Size of those rows on the wire.
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
    pub fn take(&mut self) -> Result<RecordBatch> {
        if self.stage == Stage::Broken {
            return Err(Error::Broken);
        }
        let arrays = self.builders.iter_mut().map(Builder::finish).collect();
        let options = RecordBatchOptions::new().with_row_count(Some(mem::take(&mut self.rows)));
        self.bytes = 0;
        Ok(RecordBatch::try_new_with_options(self.schema.clone(), arrays, &options)
            .expect("builders have the schema's types and one value a row"))
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
        self.append(&mut fields)?;
        self.rows += 1;
        self.bytes += input.len() - rest.len();
        *input = rest;
        Ok(true)
    }

    fn append(&mut self, fields: &mut &[u8]) -> Result<()> {
        for (index, builder) in self.builders.iter_mut().enumerate() {
            let field = next_field(fields)?.expect("after_fields saw the whole row");
            builder.append(field).map_err(|flaw| flaw.of(self.schema.field(index).name()))?;
        }
        Ok(())
    }

    /// A row may be half appended by now: nothing here is to be taken any more.
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

fn after_header(input: &[u8]) -> Result<Option<&[u8]>> {
    let known = input.len().min(SIGNATURE.len());
    if input[..known] != SIGNATURE[..known] {
        return Err(Error::Malformed("it does not begin with the signature of COPY BINARY"));
    }
    let Some((flags, rest)) = input.get(SIGNATURE.len()..).and_then(split) else { return Ok(None) };
    if u32::from_be_bytes(flags) & CRITICAL_FLAGS != 0 {
        return Err(Error::Malformed("its header has flags that are not known"));
    }
    let Some((length, rest)) = split(rest) else { return Ok(None) };
    let length = usize::try_from(i32::from_be_bytes(length))
        .map_err(|_| Error::Malformed("its header extension has a negative length"))?;
    Ok(rest.get(length..))
}

/// What follows a row, or `None` when the row is not complete.
fn after_fields(fields: &[u8], count: usize) -> Result<Option<&[u8]>> {
    let mut rest = fields;
    for _ in 0..count {
        if next_field(&mut rest)?.is_none() {
            return Ok(None);
        }
        if fields.len() - rest.len() > MAX_ROW_BYTES {
            return Err(Error::Malformed("a row is longer than postgres can send"));
        }
    }
    Ok(Some(rest))
}

/// The outer `None` is a field that is not complete, the inner one a NULL.
fn next_field<'a>(input: &mut &'a [u8]) -> Result<Option<Option<&'a [u8]>>> {
    let Some((length, rest)) = split(input) else { return Ok(None) };
    let length = i32::from_be_bytes(length);
    if length == NULL {
        *input = rest;
        return Ok(Some(None));
    }
    let length = usize::try_from(length).map_err(|_| Error::Malformed("a field has a negative length"))?;
    if length > MAX_ROW_BYTES {
        return Err(Error::Malformed("a field is longer than postgres can send"));
    }
    let Some((field, rest)) = rest.split_at_checked(length) else { return Ok(None) };
    *input = rest;
    Ok(Some(Some(field)))
}

fn split<const N: usize>(input: &[u8]) -> Option<([u8; N], &[u8])> {
    input.split_first_chunk().map(|(head, rest)| (*head, rest))
}
