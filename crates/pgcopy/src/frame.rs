//! The frame of a COPY BINARY stream: header, rows of fields, and arrays inside of fields.

use crate::{Error, Flaw, NULL, Result, SIGNATURE};

/// Postgres allocates no longer string, so it sends no longer row.
pub(crate) const MAX_ROW_BYTES: usize = (1 << 30) - 1;
/// Flags a reader must know; none is in use since Postgres 12 ended row oids.
const CRITICAL_FLAGS: u32 = 0xffff_0000;

pub(crate) fn after_header(input: &[u8]) -> Result<Option<&[u8]>> {
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
pub(crate) fn after_fields(fields: &[u8], count: usize) -> Result<Option<&[u8]>> {
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
pub(crate) fn next_field<'a>(input: &mut &'a [u8]) -> Result<Option<Option<&'a [u8]>>> {
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

pub(crate) fn split<const N: usize>(input: &[u8]) -> Option<([u8; N], &[u8])> {
    input.split_first_chunk().map(|(head, rest)| (*head, rest))
}

/// The length of a field to be sent.
pub(crate) fn length_of(bytes: usize) -> Result<i32, Flaw> {
    i32::try_from(bytes).ok().filter(|_| bytes <= MAX_ROW_BYTES).ok_or(Flaw::TooLong)
}
