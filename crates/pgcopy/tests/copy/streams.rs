//! Making and reading streams of COPY BINARY.

use arrow_array::RecordBatch;
use bytes::{Bytes, BytesMut};
use proptest::collection::vec;
use proptest::prelude::*;
use vitrina_pgcopy::{Column, Decoded, Decoder, Encoder, Result};

pub(crate) const TEXT: u32 = 25;

pub(crate) fn texts() -> Vec<Column> {
    vec![Column::new("a", TEXT), Column::new("b", TEXT)]
}

/// Where a stream is cut: pieces of these lengths, over and over.
pub(crate) fn cuts() -> impl Strategy<Value = Vec<usize>> {
    vec(1..48_usize, 1..8)
}

pub(crate) fn encoded(batch: &RecordBatch) -> Bytes {
    try_encoded(batch).expect("every value fits")
}

pub(crate) fn try_encoded(batch: &RecordBatch) -> Result<Bytes> {
    let mut out = BytesMut::new();
    Encoder::header(&mut out);
    let encoder = Encoder::new(batch.schema()).expect("every kind is known");
    encoder.encode(batch, &mut out)?;
    Encoder::trailer(&mut out);
    Ok(out.freeze())
}

pub(crate) fn pieces(mut bytes: Bytes, cuts: &[usize]) -> Vec<Bytes> {
    let mut pieces = Vec::new();
    for cut in cuts.iter().cycle() {
        if bytes.is_empty() {
            break;
        }
        pieces.push(bytes.split_to(bytes.len().min(*cut)));
    }
    pieces
}

/// As a source reads: whole batches, then what is left.
pub(crate) fn decode(
    columns: &[Column],
    pieces: Vec<Bytes>,
    max_rows: usize,
    max_bytes: usize,
) -> Result<(Vec<Decoded>, Decoder)> {
    let mut decoder = Decoder::new(columns);
    let mut batches = Vec::new();
    for mut piece in pieces {
        while decoder.push_until(&mut piece, max_rows, max_bytes)? {
            batches.push(decoder.take()?);
        }
        assert!(piece.is_empty(), "a piece is used up before the next one");
    }
    if decoder.rows() > 0 {
        batches.push(decoder.take()?);
    }
    Ok((batches, decoder))
}

/// A header, and one row of the given fields.
pub(crate) fn stream(fields: &[&[u8]]) -> Vec<u8> {
    let mut out = BytesMut::new();
    Encoder::header(&mut out);
    put_row(&mut out, fields);
    out.to_vec()
}

pub(crate) fn put_row(out: &mut BytesMut, fields: &[&[u8]]) {
    out.extend_from_slice(&i16::try_from(fields.len()).expect("few fields").to_be_bytes());
    for field in fields {
        out.extend_from_slice(&i32::try_from(field.len()).expect("a short field").to_be_bytes());
        out.extend_from_slice(field);
    }
}

pub(crate) fn push(columns: &[Column], bytes: &[u8]) -> Result<Decoder> {
    let mut decoder = Decoder::new(columns);
    decoder.push(bytes)?;
    Ok(decoder)
}
