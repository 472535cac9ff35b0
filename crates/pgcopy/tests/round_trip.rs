//! Properties of the codec alone: what is encoded comes back, however the bytes are cut, and bytes
//! that no server would send give an error and not a panic.

use std::sync::Arc;

use arrow_array::{
    ArrayRef, BinaryArray, BooleanArray, Date32Array, FixedSizeBinaryArray, Float32Array, Float64Array,
    Int16Array, Int32Array, Int64Array, RecordBatch, StringArray, TimestampMicrosecondArray,
};
use arrow_schema::{DataType, Field, Schema};
use bytes::{Bytes, BytesMut};
use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;
use proptest::sample::Index;
use vitrina_pgcopy::{Column, Decoder, Encoder, Error, Flaw, Result, arrow_schema};

const TEXT: u32 = 25;
const DAYS: i32 = 10_957;
const MICROSECONDS: i64 = 946_684_800_000_000;

/// One column of every kind.
fn columns() -> Vec<Column> {
    [16, 21, 23, 20, 700, 701, TEXT, 1700, 17, 1082, 1114, 1184, 2950]
        .into_iter()
        .map(|oid| Column::new(format!("of_{oid}"), oid))
        .collect()
}

fn texts() -> Vec<Column> {
    vec![Column::new("a", TEXT), Column::new("b", TEXT)]
}

/// `rows` values of every kind, a fraction of them NULL.
fn batches() -> impl Strategy<Value = RecordBatch> {
    (0..24_usize).prop_flat_map(|rows| {
        let numbers = (
            array(rows, any::<bool>(), |values| Arc::new(BooleanArray::from(values))),
            array(rows, any::<i16>(), |values| Arc::new(Int16Array::from(values))),
            array(rows, any::<i32>(), |values| Arc::new(Int32Array::from(values))),
            array(rows, any::<i64>(), |values| Arc::new(Int64Array::from(values))),
            array(rows, any::<u32>().prop_map(f32::from_bits), |values| Arc::new(Float32Array::from(values))),
            array(rows, any::<u64>().prop_map(f64::from_bits), |values| Arc::new(Float64Array::from(values))),
        );
        let strings = (
            array(rows, "[^\0]{0,12}", |values| Arc::new(StringArray::from(values))),
            array(rows, "-?[0-9]{1,20}\\.[0-9]{0,9}", |values| Arc::new(StringArray::from(values))),
            array(rows, vec(any::<u8>(), 0..24), |values| Arc::new(BinaryArray::from_iter(values))),
        );
        let others = (
            array(rows, dates(), |values| Arc::new(Date32Array::from(values))),
            array(rows, timestamps(), |values| Arc::new(TimestampMicrosecondArray::from(values))),
            array(rows, timestamps(), |values| {
                Arc::new(TimestampMicrosecondArray::from(values).with_timezone("UTC"))
            }),
            array(rows, any::<[u8; 16]>(), |values| {
                let values = values.into_iter();
                Arc::new(
                    FixedSizeBinaryArray::try_from_sparse_iter_with_size(values, 16).expect("16 bytes each"),
                )
            }),
        );
        (numbers, strings, others).prop_map(|((a, b, c, d, e, f), (g, h, i), (j, k, l, m))| {
            RecordBatch::try_new(arrow_schema(&columns()), vec![a, b, c, d, e, f, g, h, i, j, k, l, m])
                .expect("one array a column")
        })
    })
}

fn array<S: Strategy>(
    rows: usize,
    values: S,
    build: impl Fn(Vec<Option<S::Value>>) -> ArrayRef,
) -> impl Strategy<Value = ArrayRef> {
    vec(option::weighted(0.8, values), rows).prop_map(build)
}

/// All that Postgres can count, infinities often.
fn dates() -> impl Strategy<Value = i32> {
    prop_oneof![Just(i32::MIN), Just(i32::MAX), i32::MIN + DAYS + 1..i32::MAX]
}

fn timestamps() -> impl Strategy<Value = i64> {
    prop_oneof![Just(i64::MIN), Just(i64::MAX), i64::MIN + MICROSECONDS + 1..i64::MAX]
}

/// Where a stream is cut: pieces of these lengths, over and over.
fn cuts() -> impl Strategy<Value = Vec<usize>> {
    vec(1..48_usize, 1..8)
}

fn encoded(batch: &RecordBatch) -> Bytes {
    let mut out = BytesMut::new();
    Encoder::header(&mut out);
    let encoder = Encoder::new(batch.schema()).expect("every kind is known");
    encoder.encode(batch, &mut out).expect("every value fits");
    Encoder::trailer(&mut out);
    out.freeze()
}

fn pieces(mut bytes: Bytes, cuts: &[usize]) -> Vec<Bytes> {
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
fn decode(
    columns: &[Column],
    pieces: Vec<Bytes>,
    max_rows: usize,
    max_bytes: usize,
) -> Result<(Vec<RecordBatch>, Decoder)> {
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
fn stream(fields: &[&[u8]]) -> Vec<u8> {
    let mut out = BytesMut::new();
    Encoder::header(&mut out);
    out.extend_from_slice(&i16::try_from(fields.len()).expect("few fields").to_be_bytes());
    for field in fields {
        out.extend_from_slice(&i32::try_from(field.len()).expect("a short field").to_be_bytes());
        out.extend_from_slice(field);
    }
    out.to_vec()
}

fn push(columns: &[Column], bytes: &[u8]) -> Result<Decoder> {
    let mut decoder = Decoder::new(columns);
    decoder.push(bytes)?;
    Ok(decoder)
}

proptest! {
    #[test]
    fn every_kind_survives_the_round_trip_however_the_bytes_are_cut(batch in batches(), cuts in cuts()) {
        let mut decoder = Decoder::new(&columns());
        for piece in pieces(encoded(&batch), &cuts) {
            decoder.push(&piece).unwrap();
        }
        prop_assert!(decoder.is_finished());
        prop_assert_eq!(decoder.rows(), batch.num_rows());
        prop_assert_eq!(decoder.take().unwrap(), batch);
    }

    #[test]
    fn batches_are_cut_at_exactly_the_wanted_rows(batch in batches(), cuts in cuts(), max_rows in 1..9_usize) {
        let pieces = pieces(encoded(&batch), &cuts);
        let (taken, decoder) = decode(&columns(), pieces, max_rows, usize::MAX).unwrap();
        prop_assert!(decoder.is_finished());
        let expected: Vec<_> = (0..batch.num_rows())
            .step_by(max_rows)
            .map(|from| batch.slice(from, max_rows.min(batch.num_rows() - from)))
            .collect();
        prop_assert_eq!(taken, expected);
    }

    #[test]
    fn the_row_that_reaches_the_byte_limit_is_the_last_of_its_batch(batch in batches(), max_bytes in 0..600_usize) {
        let (taken, _) = decode(&columns(), vec![encoded(&batch)], usize::MAX, max_bytes).unwrap();
        prop_assert_eq!(taken.iter().map(RecordBatch::num_rows).sum::<usize>(), batch.num_rows());
        for taken in taken {
            let without_last = taken.slice(0, taken.num_rows() - 1);
            let empty = encoded(&batch.slice(0, 0)).len();
            prop_assert!(taken.num_rows() == 1 || encoded(&without_last).len() - empty < max_bytes);
        }
    }

    #[test]
    fn a_stream_that_is_cut_off_is_not_finished(batch in batches(), cuts in cuts(), end in any::<Index>()) {
        let mut bytes = encoded(&batch);
        bytes.truncate(end.index(bytes.len()));
        let (_, decoder) = decode(&columns(), pieces(bytes, &cuts), 3, usize::MAX).unwrap();
        prop_assert!(!decoder.is_finished());
    }

    #[test]
    fn damaged_bytes_never_panic(
        batch in batches(),
        cuts in cuts(),
        damage in vec((any::<Index>(), any::<u8>()), 1..6),
    ) {
        let mut bytes = encoded(&batch).to_vec();
        for (at, byte) in damage {
            let at = at.index(bytes.len());
            bytes[at] = byte;
        }
        let _ = decode(&columns(), pieces(bytes.into(), &cuts), 3, usize::MAX);
    }

    #[test]
    fn random_bytes_in_place_of_fields_never_panic(bytes in vec(any::<u8>(), 0..200), cuts in cuts()) {
        let mut out = BytesMut::new();
        Encoder::header(&mut out);
        out.extend_from_slice(&[0, 2]);
        out.extend_from_slice(&bytes);
        let _ = decode(&texts(), pieces(out.freeze(), &cuts), 3, usize::MAX);
    }

    #[test]
    fn random_bytes_never_panic(bytes in vec(any::<u8>(), 0..200), cuts in cuts()) {
        let _ = decode(&texts(), pieces(bytes.into(), &cuts), 3, usize::MAX);
    }
}

#[test]
fn bytes_without_the_signature_are_refused_at_once() {
    assert!(matches!(push(&texts(), b"id,name"), Err(Error::Malformed(_))));
}

#[test]
fn a_header_extension_is_skipped() {
    let mut bytes = b"PGCOPY\n\xff\r\n\0\0\0\0\0\0\0\0\x03abc".to_vec();
    bytes.extend_from_slice(&stream(&[b"x", b"y"])[19..]);
    assert_eq!(push(&texts(), &bytes).unwrap().rows(), 1);
}

#[test]
fn unknown_critical_flags_are_refused() {
    let bytes = b"PGCOPY\n\xff\r\n\0\0\x01\0\0\0\0\0\0";
    assert!(matches!(push(&texts(), bytes), Err(Error::Malformed(_))));
}

#[test]
fn a_row_with_other_fields_than_described_is_refused() {
    let error = push(&texts(), &stream(&[b"x"])).unwrap_err();
    assert_eq!(error, Error::FieldCount { expected: 2, found: 1 });
}

#[test]
fn bytes_after_the_end_are_refused() {
    let mut bytes = stream(&[b"x", b"y"]);
    bytes.extend_from_slice(&[0xff, 0xff, 0]);
    assert!(matches!(push(&texts(), &bytes), Err(Error::Malformed(_))));
}

#[test]
fn a_value_of_the_wrong_length_names_its_column() {
    let error = push(&[Column::new("id", 20)], &stream(&[b"1234"])).unwrap_err();
    assert_eq!(error.to_string(), "column \"id\": a value of 4 bytes where its type has 8");
}

#[test]
fn a_timestamp_arrow_cannot_count_is_an_error() {
    let bytes = stream(&[&(i64::MAX - 1).to_be_bytes()]);
    let error = push(&[Column::new("seen", 1184)], &bytes).unwrap_err();
    assert_eq!(error, Error::Value { column: "seen".into(), flaw: Flaw::OutOfRange });
}

#[test]
fn a_decoder_that_failed_gives_nothing_more() {
    let mut decoder = Decoder::new(&texts());
    let error = decoder.push(&stream(&[b"fine", b"\xff"])).unwrap_err();
    assert_eq!(error, Error::Value { column: "b".into(), flaw: Flaw::NotUtf8 });
    assert_eq!(decoder.take().unwrap_err(), Error::Broken);
    assert_eq!(decoder.push(b"").unwrap_err(), Error::Broken);
}

#[test]
fn rows_without_columns_are_counted() {
    let mut bytes = stream(&[]);
    bytes.extend_from_slice(&[0, 0, 0xff, 0xff]);
    let mut decoder = push(&[], &bytes).unwrap();
    assert!(decoder.is_finished());
    assert_eq!(decoder.take().unwrap().num_rows(), 2);
}

#[test]
fn text_with_a_nul_is_refused_and_leaves_the_bytes_as_they_were() {
    let schema = Arc::new(Schema::new(vec![Field::new("title", DataType::Utf8, true)]));
    let titles = StringArray::from(vec!["fine", "not\0fine"]);
    let batch = RecordBatch::try_new(schema.clone(), vec![Arc::new(titles)]).unwrap();
    let mut out = BytesMut::from("before");
    let error = Encoder::new(schema).unwrap().encode(&batch, &mut out).unwrap_err();
    assert_eq!(error, Error::Value { column: "title".into(), flaw: Flaw::Nul });
    assert_eq!(out, "before");
}

#[test]
fn an_arrow_type_without_a_postgres_form_names_its_column() {
    let schema = Arc::new(Schema::new(vec![Field::new("small", DataType::UInt8, true)]));
    let error = Encoder::new(schema).unwrap_err();
    let expected = Error::UnsupportedType { column: "small".into(), data_type: DataType::UInt8 };
    assert_eq!(error, expected);
}

#[test]
fn a_batch_of_another_schema_is_refused() {
    let encoder = Encoder::new(arrow_schema(&texts())).unwrap();
    let other = arrow_schema(&[Column::new("a", TEXT), Column::new("b", 20)]);
    let error = encoder.encode(&RecordBatch::new_empty(other), &mut BytesMut::new()).unwrap_err();
    assert_eq!(error, Error::OtherColumns("\"b\" is Int64 instead of Utf8".into()));
}

#[test]
fn staging_columns_have_the_types_that_take_the_bytes() {
    let encoder = Encoder::new(arrow_schema(&columns())).unwrap();
    let expected = [
        "boolean",
        "smallint",
        "integer",
        "bigint",
        "real",
        "double precision",
        "text",
        "text",
        "bytea",
        "date",
        "timestamp",
        "timestamptz",
        "uuid",
    ];
    assert_eq!(encoder.column_types(), expected);
}
