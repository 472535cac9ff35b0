//! Properties of the codec alone: what is encoded comes back, however the bytes are cut.

use std::sync::Arc;

use arrow_array::types::Int32Type;
use arrow_array::{
    ArrayRef, IntervalMonthDayNanoArray, ListArray, RecordBatch, StringArray, Time64MicrosecondArray,
};
use arrow_buffer::IntervalMonthDayNano;
use arrow_schema::{DataType, Field, IntervalUnit, Schema, TimeUnit};
use bytes::BytesMut;
use proptest::prelude::*;
use proptest::sample::Index;
use vitrina_pgcopy::{Column, Decoded, Decoder, Encoder, Error, Flaw, arrow_schema};

use crate::samples::{batches, columns};
use crate::streams::{TEXT, cuts, decode, encoded, pieces, push, texts};

fn intact(rows: RecordBatch) -> Decoded {
    Decoded { rows, flawed: Vec::new() }
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
        prop_assert_eq!(decoder.take().unwrap(), intact(batch));
    }

    #[test]
    fn batches_are_cut_at_exactly_the_wanted_rows(batch in batches(), cuts in cuts(), max_rows in 1..9_usize) {
        let pieces = pieces(encoded(&batch), &cuts);
        let (taken, decoder) = decode(&columns(), pieces, max_rows, usize::MAX).unwrap();
        prop_assert!(decoder.is_finished());
        let expected: Vec<_> = (0..batch.num_rows())
            .step_by(max_rows)
            .map(|from| intact(batch.slice(from, max_rows.min(batch.num_rows() - from))))
            .collect();
        prop_assert_eq!(taken, expected);
    }

    #[test]
    fn the_row_that_reaches_the_byte_limit_is_the_last_of_its_batch(batch in batches(), max_bytes in 0..600_usize) {
        let (taken, _) = decode(&columns(), vec![encoded(&batch)], usize::MAX, max_bytes).unwrap();
        prop_assert_eq!(taken.iter().map(|taken| taken.rows.num_rows()).sum::<usize>(), batch.num_rows());
        for Decoded { rows: taken, .. } in taken {
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
    let columns = [16, 20, 701, TEXT, 1043, 1700, 1083, 1184, 1186, 3802, 869, 1009, 1015, 1231]
        .map(|oid| Column::new(format!("of_{oid}"), oid));
    let encoder = Encoder::new(arrow_schema(&columns)).unwrap();
    let expected = [
        "boolean",
        "bigint",
        "double precision",
        "text",
        "text",
        "numeric",
        "time",
        "timestamptz",
        "interval",
        "jsonb",
        "text",
        "text[]",
        "varchar[]",
        "numeric[]",
    ];
    assert_eq!(encoder.column_types(), expected);
}

/// What an encoder says of one value.
fn flaw_of(field: Field, value: ArrayRef) -> Flaw {
    let schema = Arc::new(Schema::new(vec![field]));
    let batch =
        RecordBatch::try_new(schema.clone(), vec![value]).expect("the field has the type of the value");
    match Encoder::new(schema).expect("the kind is known").encode(&batch, &mut BytesMut::new()) {
        Err(Error::Value { flaw, .. }) => flaw,
        other => panic!("{other:?} instead of a flaw"),
    }
}

#[test]
fn values_that_postgres_does_not_take_are_refused() {
    let price = arrow_schema(&[Column::new("price", 1700)]).field(0).clone();
    assert_eq!(flaw_of(price, Arc::new(StringArray::from(vec!["12,5"]))), Flaw::NotNumeric);
    let time = Field::new("at", DataType::Time64(TimeUnit::Microsecond), true);
    let late = Time64MicrosecondArray::from(vec![86_400_000_001]);
    assert_eq!(flaw_of(time, Arc::new(late)), Flaw::OutOfRange);
    let length = Field::new("length", DataType::Interval(IntervalUnit::MonthDayNano), true);
    let nanosecond = IntervalMonthDayNanoArray::from(vec![IntervalMonthDayNano::new(0, 0, 1)]);
    assert_eq!(flaw_of(length, Arc::new(nanosecond)), Flaw::Precision);
}

#[test]
fn a_slice_of_lists_is_encoded_alone() {
    let lists = [Some(vec![Some(1)]), None, Some(vec![None, Some(2)]), Some(vec![])];
    let lists = ListArray::from_iter_primitive::<Int32Type, _, _>(lists);
    let schema = arrow_schema(&[Column::new("counts", 1007)]);
    let batch = RecordBatch::try_new(schema, vec![Arc::new(lists)]).unwrap().slice(1, 2);
    let mut decoder = push(&[Column::new("counts", 1007)], &encoded(&batch)).unwrap();
    assert_eq!(decoder.take().unwrap(), intact(batch));
}
