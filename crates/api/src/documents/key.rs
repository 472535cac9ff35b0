//! The keys of a backfill, read once at the edge: a list of whole keys, each a list of its columns' texts.

use std::fmt;

use serde::de::{Deserializer, Error, SeqAccess, Visitor};
use serde::{Deserialize, Serialize};
use utoipa::openapi::schema::{ArrayBuilder, ObjectBuilder, OneOfBuilder, SchemaType, Type};
use utoipa::openapi::{RefOr, Schema};
use utoipa::{PartialSchema, ToSchema};

/// How many keys one run may read again.
pub(crate) const MOST_KEYS: usize = 10_000;

/// The values of a target's key columns, NULL being `None`. Alone where the key has one column.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(transparent)]
pub struct Key(Vec<Option<String>>);

impl Key {
    pub(crate) fn columns(&self) -> usize {
        self.0.len()
    }

    pub(crate) fn values(&self) -> Vec<Option<String>> {
        self.0.clone()
    }

    /// Its values where none is NULL.
    pub(crate) fn texts(self) -> Option<Vec<String>> {
        self.0.into_iter().collect()
    }
}

impl PartialSchema for Key {
    fn schema() -> RefOr<Schema> {
        let value = |types: &[Type]| ObjectBuilder::new().schema_type(SchemaType::from_iter(types.to_vec()));
        let parts =
            ArrayBuilder::new().items(value(&[Type::String, Type::Integer, Type::Null])).min_items(Some(1));
        OneOfBuilder::new().item(value(&[Type::String, Type::Integer])).item(parts).into()
    }
}

impl ToSchema for Key {}

/// One end of a range of the cursor: a text or a whole number.
pub(crate) struct Bound;

impl PartialSchema for Bound {
    fn schema() -> RefOr<Schema> {
        ObjectBuilder::new().schema_type(SchemaType::from_iter([Type::String, Type::Integer])).into()
    }
}

impl ToSchema for Bound {}

pub(super) fn bound<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<String>, D::Error> {
    let Part(bound) = Deserialize::deserialize(deserializer)?;
    match bound.as_deref() {
        Some(text) if text.trim().is_empty() => {
            Err(D::Error::custom("an end of a range is not empty: leave it out"))
        }
        Some(text) if text.contains('\0') => Err(D::Error::custom("an end of a range has no NUL character")),
        _ => Ok(bound),
    }
}

/// Not empty, and not too many.
pub(super) fn keys<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Vec<Key>>, D::Error> {
    let keys: Option<Vec<Key>> = Deserialize::deserialize(deserializer)?;
    match keys.as_ref().map(Vec::len) {
        Some(0) => Err(D::Error::custom("no keys: name at least one, or leave keys out for a whole run")),
        Some(count) if count > MOST_KEYS => {
            Err(D::Error::custom(format!("{count} keys: a run reads at most {MOST_KEYS} again")))
        }
        _ => Ok(keys),
    }
}

impl<'de> Deserialize<'de> for Key {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(KeyVisitor)
    }
}

struct KeyVisitor;

impl<'de> Visitor<'de> for KeyVisitor {
    type Value = Key;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a text or a whole number, or a list of one value for each column of the key")
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<Key, E> {
        PartVisitor.visit_str(text).map(|Part(part)| Key(vec![part]))
    }

    fn visit_i64<E: Error>(self, number: i64) -> Result<Key, E> {
        self.visit_str(&number.to_string())
    }

    fn visit_u64<E: Error>(self, number: u64) -> Result<Key, E> {
        self.visit_str(&number.to_string())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Key, A::Error> {
        let mut parts = Vec::new();
        while let Some(Part(part)) = list.next_element()? {
            parts.push(part);
        }
        if parts.is_empty() { Err(A::Error::custom("a key has at least one value")) } else { Ok(Key(parts)) }
    }
}

struct Part(Option<String>);

impl<'de> Deserialize<'de> for Part {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(PartVisitor)
    }
}

/// Numbers become their text, as the database would print them. Those with a fraction or more digits than
/// 64 bits hold have lost some by the time they are seen here, so they must come as text.
struct PartVisitor;

impl Visitor<'_> for PartVisitor {
    type Value = Part;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a text, a whole number or null")
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<Part, E> {
        Ok(Part(Some(text.to_owned())))
    }

    fn visit_i64<E: Error>(self, number: i64) -> Result<Part, E> {
        Ok(Part(Some(number.to_string())))
    }

    fn visit_u64<E: Error>(self, number: u64) -> Result<Part, E> {
        Ok(Part(Some(number.to_string())))
    }

    fn visit_unit<E: Error>(self) -> Result<Part, E> {
        Ok(Part(None))
    }
}
