//! Bytes that no server would send give an error or a flaw, and never a panic.

use bytes::BytesMut;
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::Index;
use vitrina_pgcopy::{Column, Decoder, Encoder, Error, Flaw};

use crate::samples::{batches, columns};
use crate::streams::{cuts, decode, encoded, pieces, push, stream, texts};

proptest! {
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
