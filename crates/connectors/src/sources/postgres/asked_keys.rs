//! The keys that a backfill names, as people and comparisons write them. One that is no value of its column's type is the
//! key of no row: the source is asked for the others, and the target has nothing to keep under it.

use std::collections::HashSet;

use serde_json::Value;
use vitrina_core::{Error, ErrorKind, Result};

use super::reader::Reader;
use super::recompute::Key;
use crate::sql::{OrderedColumn, literal};

/// Keys that one statement checks.
const AT_ONCE: usize = 1000;

#[derive(Debug, Default)]
pub(super) struct AskedKeys {
    pub(super) keys: Vec<Key>,
    /// Ids of documents that no key of the pipeline makes.
    pub(super) ids: Vec<String>,
}

impl AskedKeys {
    /// A single text in place of a key of several columns is the id of a document, where the target has documents.
    pub(super) fn parse(values: &[Value], key: &[String], takes_ids: bool) -> Result<Self> {
        let mut asked = Self::default();
        for value in values {
            match value.as_array().map(Vec::as_slice) {
                Some([Value::String(id)]) if takes_ids && key.len() > 1 => asked.ids.push(id.clone()),
                Some(parts) if parts.len() == key.len() => asked.keys.push(parts.iter().map(text).collect()),
                _ => return Err(other_columns(key)),
            }
        }
        Ok(asked)
    }

    /// Takes out the keys that no row can have. The query itself is not asked: it may fail by a row's own values.
    pub(super) async fn take_unreadable(
        &mut self,
        columns: &[OrderedColumn],
        reader: &Reader,
    ) -> Result<Vec<Key>> {
        let in_doubt: Vec<Key> = self.keys.iter().filter(|key| !is_plain(columns, key)).cloned().collect();
        if in_doubt.is_empty() {
            return Ok(Vec::new());
        }
        let types = type_names(columns, reader).await?;
        let mut unreadable = HashSet::new();
        let mut left: Vec<&[Key]> = in_doubt.chunks(AT_ONCE).collect();
        while let Some(some) = left.pop() {
            match check(&types, some, reader).await {
                Ok(()) => {}
                Err(error) if !matches!(error.kind, ErrorKind::KeyInvalid | ErrorKind::ValueRefused) => {
                    return Err(error);
                }
                Err(_) if some.len() > 1 => {
                    let (first, second) = some.split_at(some.len() / 2);
                    left.extend([second, first]);
                }
                Err(_) => unreadable.extend(some.iter().cloned()),
            }
        }
        let (without, keys) = self.keys.drain(..).partition(|key| unreadable.contains(key));
        self.keys = keys;
        Ok(without)
    }
}

fn text(part: &Value) -> Option<String> {
    match part {
        Value::Null => None,
        Value::String(text) => Some(text.clone()),
        other => Some(other.to_string()),
    }
}

/// Known to be values without asking.
fn is_plain(columns: &[OrderedColumn], key: &Key) -> bool {
    let part = |(column, text): (&OrderedColumn, &Option<String>)| {
        text.as_deref().is_none_or(|text| column.takes_any_text(text) || column.canonical(text).is_some())
    };
    columns.iter().zip(key).all(part)
}

/// As a cast names them, with their schemas.
async fn type_names(columns: &[OrderedColumn], reader: &Reader) -> Result<Vec<String>> {
    let name = |column: &OrderedColumn| {
        let oid = reader.column(&column.name, "key")?.type_oid;
        Ok(format!("format_type({oid}, null)"))
    };
    let names = columns.iter().map(name).collect::<Result<Vec<_>>>()?.join(", ");
    let row = reader.row(&format!("select {names}")).await?;
    Ok((0..columns.len()).map(|place| row.get(place)).collect())
}

async fn check(types: &[String], keys: &[Key], reader: &Reader) -> Result<()> {
    // No statement can say it, and no text of the database holds it.
    if keys.iter().flatten().flatten().any(|text| text.contains('\0')) {
        return Err(unreadable("a key has a NUL in it"));
    }
    reader.rows(&cast(types, keys)).await.map(drop)
}

/// Fails where one of the texts is no value of its column's type.
fn cast(types: &[String], keys: &[Key]) -> String {
    let row = |key: &Key| {
        let part = |text: &Option<String>| text.as_deref().map_or_else(|| "null".to_owned(), literal);
        format!("({})", key.iter().map(part).collect::<Vec<_>>().join(", "))
    };
    let rows = keys.iter().map(row).collect::<Vec<_>>().join(", ");
    let names: Vec<String> = (0..types.len()).map(|place| format!("c{place}")).collect();
    let cast = |(name, column): (&String, &String)| format!("count(v.{column}::text::{name})");
    let casts = types.iter().zip(&names).map(cast).collect::<Vec<_>>().join(", ");
    format!("select {casts} from (values {rows}) v ({})", names.join(", "))
}

fn other_columns(key: &[String]) -> Error {
    let columns = key.join(", ");
    Error::fix("backfill.key", format!("a key to read again does not have the columns ({columns})"))
}

/// A key that no row can have.
pub(super) fn no_value(columns: &[OrderedColumn]) -> Error {
    let names = columns.iter().map(|column| column.name.as_str()).collect::<Vec<_>>().join(", ");
    unreadable(format!("a key to read is no value of {names}"))
}

fn unreadable(message: impl Into<String>) -> Error {
    Error::fix("source.key", message).of_kind(ErrorKind::KeyInvalid)
}
