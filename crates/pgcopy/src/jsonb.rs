//! `jsonb` on the wire is its text behind a version. Whether a text is JSON is for the server to say.

use bytes::{BufMut, BytesMut};

use crate::Flaw;
use crate::cells::make_room;
use crate::frame::length_of;

const VERSION: u8 = 1;

pub(crate) fn text(field: &[u8]) -> Result<&[u8], Flaw> {
    match field {
        [VERSION, text @ ..] => Ok(text),
        _ => Err(Flaw::Malformed("jsonb")),
    }
}

/// Appends the field of a jsonb with its length.
pub(crate) fn put(text: &[u8], out: &mut BytesMut) -> Result<(), Flaw> {
    make_room(out, text.len());
    out.put_i32(length_of(text.len() + 1)?);
    out.put_u8(VERSION);
    out.put_slice(text);
    Ok(())
}
