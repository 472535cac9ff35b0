//! A backfill: rows are read again by their keys, and the checkpoint stays where it is.

use serde_json::Value;
use vitrina_core::{Batch, Error, Position, Result};

use super::dirty::{Dirty, Page};
use super::pending::Pending;
use super::reader::Reader;
use super::recompute::{Key, Recompute, nothing};

pub(super) struct Backfill {
    pending: Pending,
    recompute: Recompute,
}

impl Backfill {
    pub(super) fn new(key: &[String], keys: &[Value], recompute: Recompute) -> Result<Self> {
        let keys = keys.iter().map(|value| parse(value, key));
        let dirty = keys.map(|key| Ok(Dirty { key: key?, at: None })).collect::<Result<_>>()?;
        let mut pending = Pending::default();
        pending.fill(Page { dirty, end: None, last: true });
        Ok(Self { pending, recompute })
    }

    pub(super) async fn read(&mut self, reader: &mut Reader, from: &Position) -> Result<Option<Batch>> {
        let next = self.pending.next(&mut self.recompute, reader).await?;
        Ok(next.recomputed.map(|recomputed| recomputed.batch(nothing(reader, from))))
    }
}

fn parse(value: &Value, key: &[String]) -> Result<Key> {
    let parts = value.as_array().filter(|parts| parts.len() == key.len()).ok_or_else(|| {
        let columns = key.join(", ");
        Error::fix("backfill.key", format!("a key to read again does not have the columns ({columns})"))
    })?;
    Ok(parts
        .iter()
        .map(|part| match part {
            Value::Null => None,
            Value::String(text) => Some(text.clone()),
            other => Some(other.to_string()),
        })
        .collect())
}
