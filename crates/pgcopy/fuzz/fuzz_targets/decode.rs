//! Any bytes, cut anywhere, give an error or rows, and rows that can be encoded come back the same.
//!
//! The first byte of the input is the length of the pieces the rest is cut into; the second chooses
//! whether a sound header is put before it, and the columns: one pair of types after the other.
//! Run as `Cargo.toml` says; a find is kept in `artifacts/decode`.
#![no_main]

use bytes::{Bytes, BytesMut};
use libfuzzer_sys::fuzz_target;
use vitrina_pgcopy::{Column, Decoded, Decoder, Encoder, Result};

/// Every native type, its array, and one that travels as text.
const OIDS: [u32; 41] = [
    16, 21, 23, 20, 700, 701, 1700, 25, 1043, 1042, 19, 17, 1082, 1083, 1114, 1184, 1186, 2950, 114, 3802, //
    1000, 1005, 1007, 1016, 1021, 1022, 1231, 1009, 1015, 1014, 1003, 1001, 1182, 1183, 1115, 1185, 1187,
    2951, 199, 3807, 869,
];

fuzz_target!(|input: &[u8]| {
    let [cut, choice, bytes @ ..] = input else { return };
    let columns = columns(*choice);
    let stream = stream(*choice, bytes);
    let Ok(decoded) = decode(&columns, &stream, usize::from(*cut).max(1)) else { return };
    decoded.iter().for_each(|decoded| assert_comes_back(&columns, decoded));
});

fn columns(choice: u8) -> Vec<Column> {
    let first = usize::from(choice >> 1) % OIDS.len();
    let second = (first + 20) % OIDS.len();
    vec![Column::new("a", OIDS[first]), Column::new("b", OIDS[second])]
}

fn stream(choice: u8, bytes: &[u8]) -> Bytes {
    let mut stream = BytesMut::new();
    if choice & 1 == 0 {
        Encoder::header(&mut stream);
    }
    stream.extend_from_slice(bytes);
    stream.freeze()
}

fn decode(columns: &[Column], stream: &Bytes, cut: usize) -> Result<Vec<Decoded>> {
    let mut decoder = Decoder::new(columns);
    let mut decoded = Vec::new();
    for piece in stream.chunks(cut) {
        let mut piece = stream.slice_ref(piece);
        while decoder.push_until(&mut piece, 3, 1 << 16)? {
            decoded.push(decoder.take()?);
        }
    }
    decoded.push(decoder.take()?);
    Ok(decoded)
}

fn assert_comes_back(columns: &[Column], decoded: &Decoded) {
    let rows = &decoded.rows;
    let mut out = BytesMut::new();
    Encoder::header(&mut out);
    let encoder = Encoder::new(rows.schema()).expect("a decoder's schema is known to an encoder");
    // Postgres does not take every value that Arrow holds: text with a NUL, the year 300000.
    if encoder.encode(rows, &mut out).is_err() {
        return;
    }
    Encoder::trailer(&mut out);
    let again = decode(columns, &out.freeze(), usize::MAX).expect("what was encoded can be decoded");
    let again = again.iter().map(|decoded| &decoded.rows).collect::<Vec<_>>();
    let mut from = 0;
    for part in again {
        assert_eq!(*part, rows.slice(from, part.num_rows()));
        from += part.num_rows();
    }
    assert_eq!(from, rows.num_rows());
}
