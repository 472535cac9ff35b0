//! One-dimensional arrays as Arrow lists.
//!
//! Binary: number of dimensions, whether there are NULLs, the elements' type; then for every dimension
//! its length and lower bound, then the elements framed as fields are. An empty array has no dimension.

use std::mem;
use std::ops::Range;
use std::sync::Arc;

use arrow_array::{ArrayRef, ListArray};
use arrow_buffer::{NullBufferBuilder, OffsetBuffer};
use arrow_schema::{Field, FieldRef};
use bytes::{BufMut, BytesMut};

use crate::builder::ScalarBuilder;
use crate::frame::{length_of, next_field, split};
use crate::{Flaw, Scalar};

/// What an array may take in Arrow, where a numeric or a NULL can be longer than on the wire. One
/// element on top, and a batch that was not yet full below, still fit 32-bit offsets.
const MAX_ARRAY_BYTES: usize = (1 << 30) - (1 << 18);
const MALFORMED: Flaw = Flaw::Malformed("array");
const LOWER_BOUND: i32 = 1;

pub(crate) struct ListBuilder {
    element: Scalar,
    field: FieldRef,
    items: ScalarBuilder,
    /// What the items of the current array take. Those of a flawed one stay behind, in the range of the
    /// NULL that stands for it.
    item_bytes: usize,
    offsets: Vec<i32>,
    nulls: NullBufferBuilder,
}

impl ListBuilder {
    pub(crate) fn new(element: Scalar) -> Self {
        Self {
            element,
            field: Arc::new(Field::new_list_field(element.arrow_type(), true)),
            items: ScalarBuilder::new(element),
            item_bytes: 0,
            offsets: vec![0],
            nulls: NullBufferBuilder::new(0),
        }
    }

    pub(crate) fn append(&mut self, field: Option<&[u8]>) -> Result<usize, Flaw> {
        if let Some(field) = field {
            self.append_items(field)?;
        }
        self.offsets.push(i32::try_from(self.items.len()).expect("the caller bounds a batch's bytes"));
        self.nulls.append(field.is_some());
        Ok(mem::take(&mut self.item_bytes))
    }

    fn append_items(&mut self, field: &[u8]) -> Result<(), Flaw> {
        let (count, mut rest) = elements(field, self.element)?;
        for _ in 0..count {
            let item = next_field(&mut rest).ok().flatten().ok_or(MALFORMED)?;
            self.item_bytes += self.items.append(item)? + self.items.slot();
            if self.item_bytes > MAX_ARRAY_BYTES {
                return Err(Flaw::TooLong);
            }
        }
        if rest.is_empty() { Ok(()) } else { Err(MALFORMED) }
    }

    pub(crate) fn finish(&mut self) -> ArrayRef {
        let offsets = OffsetBuffer::new(mem::replace(&mut self.offsets, vec![0]).into());
        Arc::new(ListArray::new(self.field.clone(), offsets, self.items.finish(), self.nulls.finish()))
    }
}

/// How many elements an array has, and their bytes.
fn elements(field: &[u8], element: Scalar) -> Result<(usize, &[u8]), Flaw> {
    let (dimensions, rest) = word(field)?;
    let (_has_nulls, rest) = word(rest)?;
    let (oid, rest) = word(rest)?;
    if oid.cast_unsigned() != element.oid() {
        return Err(MALFORMED);
    }
    match dimensions {
        0 => Ok((0, rest)),
        1 => {
            let (length, rest) = word(rest)?;
            let (lower_bound, rest) = word(rest)?;
            let length = usize::try_from(length).map_err(|_| MALFORMED)?;
            if lower_bound == LOWER_BOUND { Ok((length, rest)) } else { Err(Flaw::Dimensions) }
        }
        _ => Err(Flaw::Dimensions),
    }
}

fn word(bytes: &[u8]) -> Result<(i32, &[u8]), Flaw> {
    let (word, rest) = split(bytes).ok_or(MALFORMED)?;
    Ok((i32::from_be_bytes(word), rest))
}

/// Appends the field of an array with its length; `put_element` appends a field of one element and
/// answers whether it is NULL.
pub(crate) fn put(
    element: Scalar,
    items: Range<usize>,
    out: &mut BytesMut,
    put_element: impl Fn(usize, &mut BytesMut) -> Result<bool, Flaw>,
) -> Result<(), Flaw> {
    let start = out.len();
    let dimensions = i32::from(!items.is_empty());
    out.put_i32(0); // the length, once it is known
    out.put_i32(dimensions);
    out.put_i32(0); // whether there are NULLs, likewise
    out.put_u32(element.oid());
    if dimensions > 0 {
        out.put_i32(length_of(items.len())?);
        out.put_i32(LOWER_BOUND);
    }
    let mut has_nulls = false;
    for item in items {
        has_nulls |= put_element(item, out)?;
    }
    let bytes = length_of(out.len() - start - size_of::<i32>())?;
    out[start..][..4].copy_from_slice(&bytes.to_be_bytes());
    out[start + 8..][..4].copy_from_slice(&i32::from(has_nulls).to_be_bytes());
    Ok(())
}
