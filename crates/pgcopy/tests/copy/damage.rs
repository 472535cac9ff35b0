//! Bytes that no server would send give an error or a flaw, and never a panic.

use arrow_array::Array;
use bytes::{Bytes, BytesMut};
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::Index;
use vitrina_pgcopy::{Column, Decoded, Decoder, Encoder, Error, Flaw, Flawed};

use crate::samples::{batches, columns};
use crate::streams::{TEXT, cuts, decode, encoded, pieces, push, put_row, stream, texts, try_encoded};

/// Bytes of which many are the small numbers that headers are made of.
fn bytes(most: usize) -> impl Strategy<Value = Vec<u8>> {
    vec(prop_oneof![3 => 0..3_u8, 1 => any::<u8>()], 0..most)
}

/// What was decoded can be encoded and comes back, or is a value that Postgres does not take.
fn assert_sound(decoded: &[Decoded]) {
    for Decoded { rows, flawed } in decoded {
        for Flawed { row, column, .. } in flawed {
            assert!(rows.column_by_name(column).expect("a column").is_null(*row));
        }
        if let Ok(bytes) = try_encoded(rows) {
            let again = push(&columns(), &bytes).expect("what was encoded").take().expect("no error before");
            assert!(again.flawed.is_empty());
            for (index, field) in rows.schema().fields().iter().enumerate() {
                assert_eq!(again.rows.column(index), rows.column(index), "column {}", field.name());
            }
        }
    }
}

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
        if let Ok((decoded, _)) = decode(&columns(), pieces(bytes.into(), &cuts), 3, usize::MAX) {
            assert_sound(&decoded);
        }
    }

    #[test]
    fn random_fields_in_a_sound_frame_make_a_row(
        fields in vec(bytes(40), columns().len()),
        cuts in cuts(),
    ) {
        let fields: Vec<_> = fields.iter().map(Vec::as_slice).collect();
        let bytes = Bytes::from(stream(&fields));
        let (decoded, _) = decode(&columns(), pieces(bytes, &cuts), 3, usize::MAX).unwrap();
        prop_assert_eq!(decoded.len(), 1);
        assert_sound(&decoded);
    }

    #[test]
    fn random_bytes_in_place_of_fields_never_panic(bytes in bytes(200), cuts in cuts()) {
        let mut out = BytesMut::new();
        Encoder::header(&mut out);
        out.extend_from_slice(&[0, 2]);
        out.extend_from_slice(&bytes);
        let _ = decode(&texts(), pieces(out.freeze(), &cuts), 3, usize::MAX);
    }

    #[test]
    fn random_bytes_never_panic(bytes in bytes(200), cuts in cuts()) {
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
fn a_decoder_that_failed_gives_nothing_more() {
    let mut decoder = Decoder::new(&texts());
    decoder.push(&stream(&[b"alone"])).unwrap_err();
    assert_eq!(decoder.take().unwrap_err(), Error::Broken);
    assert_eq!(decoder.push(b"").unwrap_err(), Error::Broken);
}

/// The flaw of a field in a column of this type.
fn flaw_of(oid: u32, field: &[u8]) -> Flaw {
    let mut decoder = push(&[Column::new("x", oid)], &stream(&[field])).expect("a sound frame");
    let decoded = decoder.take().expect("no error before");
    assert!(decoded.rows.column(0).is_null(0));
    let [Flawed { row: 0, column, flaw }] = &decoded.flawed[..] else { panic!("{:?}", decoded.flawed) };
    assert_eq!(column, "x");
    *flaw
}

fn words(words: &[i32]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_be_bytes()).collect()
}

#[test]
fn values_that_cannot_be_converted_are_flaws() {
    let (int8, timestamptz, jsonb, numeric, boolean) = (20, 1184, 3802, 1700, 16);
    assert_eq!(flaw_of(int8, b"1234"), Flaw::Length { expected: 8, found: 4 });
    assert_eq!(flaw_of(timestamptz, &(i64::MAX - 1).to_be_bytes()), Flaw::OutOfRange);
    assert_eq!(flaw_of(TEXT, b"\xff"), Flaw::NotUtf8);
    assert_eq!(flaw_of(jsonb, b"\x02{}"), Flaw::Malformed("jsonb"));
    assert_eq!(flaw_of(numeric, b"12.5"), Flaw::Malformed("numeric"));
    assert_eq!(flaw_of(boolean, b"\x02"), Flaw::Malformed("boolean"));
}

#[test]
fn arrays_that_lists_cannot_hold_are_flaws() {
    let (int4, int4s) = (23, 1007);
    let two_dimensions = words(&[2, 0, int4, 1, 1, 1, 1, 4, 7]);
    assert_eq!(flaw_of(int4s, &two_dimensions), Flaw::Dimensions);
    let from_zero = words(&[1, 0, int4, 1, 0, 4, 7]);
    assert_eq!(flaw_of(int4s, &from_zero), Flaw::Dimensions);
}

#[test]
fn arrays_that_are_cut_off_or_of_other_elements_are_flaws() {
    let (int4, int8, int4s) = (23, 20, 1007);
    let of_others = words(&[0, 0, int8]);
    let cut_off = words(&[1, 0, int4, 2, 1, 4, 7]);
    let too_long = words(&[1, 0, int4, 1, 1, 4, 7, 0]);
    let endless = words(&[1, 0, int4, i32::MAX, 1]);
    let negative = words(&[1, 0, int4, -1, 1]);
    for field in [of_others, cut_off, too_long, endless, negative, vec![0]] {
        assert_eq!(flaw_of(int4s, &field), Flaw::Malformed("array"));
    }
}

#[test]
fn rows_around_a_flaw_are_whole() {
    let columns = [Column::new("names", 1009), Column::new("name", TEXT)];
    let names = |second: &[u8]| [&words(&[1, 0, 25, 2, 1, 1])[..], b"x", &words(&[1]), second].concat();
    let mut out = BytesMut::from(&stream(&[&names(b"y"), b"fine"])[..]);
    put_row(&mut out, &[&names(b"\xff"), b"fine too"]);
    put_row(&mut out, &[&names(b"z"), b"\xff"]);
    let mut decoder = push(&columns, &out).unwrap();
    let Decoded { rows, flawed } = decoder.take().unwrap();
    let flawed: Vec<_> = flawed.iter().map(|flawed| (flawed.row, flawed.column.as_str())).collect();
    assert_eq!(flawed, [(1, "names"), (2, "name")]);
    assert_eq!(rows.slice(0, 1), push(&columns, &encoded(&rows.slice(0, 1))).unwrap().take().unwrap().rows);
    let lists = arrow_array::cast::as_list_array(rows.column(0));
    let texts = |row: usize| arrow_array::cast::as_string_array(&lists.value(row)).clone();
    assert_eq!([texts(0).value(1), texts(2).value(1)], ["y", "z"]);
    assert!(lists.is_null(1) && rows.column(1).is_null(2));
}

#[test]
fn flaws_belong_to_the_batch_that_is_taken() {
    let mut decoder = push(&texts(), &stream(&[b"fine", b"\xff"])).unwrap();
    assert_eq!(decoder.take().unwrap().flawed.len(), 1);
    assert_eq!(decoder.take().unwrap().flawed, []);
}

/// 10 bytes stand for a 1 and 131071 zeros.
const LONG_NUMERIC: &[u8] = &[0, 1, 0x7f, 0xff, 0, 0, 0, 0, 0x03, 0xe8];

#[test]
fn a_numeric_counts_by_its_text_where_that_is_longer() {
    let decoder = push(&[Column::new("price", 1700)], &stream(&[LONG_NUMERIC])).unwrap();
    assert!(decoder.bytes() > 131_072);
}

#[test]
fn what_is_left_of_a_flawed_array_counts() {
    let element = [&words(&[10])[..], LONG_NUMERIC].concat();
    let array = [&words(&[1, 0, 1700, 9, 1])[..], &element.repeat(8)].concat();
    let decoder = push(&[Column::new("prices", 1231)], &stream(&[&array])).unwrap();
    assert!(decoder.bytes() > 8 * 131_072);
}

#[test]
fn rows_without_columns_are_counted() {
    let mut bytes = stream(&[]);
    bytes.extend_from_slice(&[0, 0, 0xff, 0xff]);
    let mut decoder = push(&[], &bytes).unwrap();
    assert!(decoder.is_finished());
    assert_eq!(decoder.take().unwrap().rows.num_rows(), 2);
}
