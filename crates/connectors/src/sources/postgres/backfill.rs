//! A backfill: rows are read again by their keys, and the checkpoint stays where it is.

use serde_json::Value;
use vitrina_core::{Batch, Error, Position, Result};

use super::reader::Reader;
use super::recompute::{Key, Recompute, nothing};

pub(super) struct Backfill {
    keys: Vec<Key>,
    /// Keys that have been read.
    done: usize,
    recompute: Recompute,
}

impl Backfill {
    pub(super) fn new(key: &[String], keys: &[Value], recompute: Recompute) -> Result<Self> {
        let keys = keys.iter().map(|value| parse(value, key)).collect::<Result<_>>()?;
        Ok(Self { keys, done: 0, recompute })
    }

    pub(super) async fn read(&mut self, reader: &mut Reader, from: &Position) -> Result<Option<Batch>> {
        let rest = &self.keys[self.done..];
        if rest.is_empty() {
            return Ok(None);
        }
        let recomputed = self.recompute.read(rest, reader).await?;
        self.done += recomputed.keys;
        Ok(Some(recomputed.batch(nothing(reader, from))))
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
