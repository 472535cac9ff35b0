//! A backfill by keys: their rows are read again, and the checkpoint stays where it is.

use serde_json::Value;
use vitrina_core::{Batch, Error, Position, Result};

use super::dirty::Page;
use super::pending::Pending;
use super::reader::Reader;
use super::recompute::{Key, Recompute, nothing};

pub(super) struct KeyBackfill {
    pending: Pending,
}

impl KeyBackfill {
    pub(super) fn new(key: &[String], keys: &[Value], mut recompute: Recompute) -> Result<Self> {
        let keys = keys.iter().map(|value| parse(value, key)).collect::<Result<_>>()?;
        let dirty = recompute.take_spelled(keys);
        let mut pending = Pending::new(recompute);
        pending.fill(Page { dirty, end: None, last: true });
        Ok(Self { pending })
    }

    pub(super) async fn read(&mut self, reader: &mut Reader, from: &Position) -> Result<Option<Batch>> {
        let next = self.pending.next(reader).await?;
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
