//! Rows as documents, and keys as their ids.

use arrow_array::{Array, RecordBatch};
use serde_json::Value;
use vitrina_core::{Error, Result, Target};
use vitrina_pgcopy::Kind;

use super::mapping;
use super::values::{Cells, Unwritable};
use crate::arrow_text::texts;

/// The longest id that the servers take, in bytes.
const LONGEST_ID: usize = 512;

/// The columns of a batch, ready to be written.
pub(super) struct Documents<'a> {
    fields: Vec<Column<'a>>,
}

struct Column<'a> {
    name: String,
    /// The name of its field, as it stands before a value.
    label: Vec<u8>,
    cells: Cells<'a>,
}

impl<'a> Documents<'a> {
    pub(super) fn new(rows: &'a RecordBatch, target: &Target, mapping: &Value) -> Result<Self> {
        let schema = rows.schema();
        let mut fields = Vec::new();
        for (place, column) in schema.fields().iter().enumerate() {
            let Some(name) = target.document.field(column.name()) else { continue };
            let kind = Kind::of_field(column).ok_or_else(|| unknown_type(column.name()))?;
            let field = mapping::type_of(mapping, name);
            let array: &'a dyn Array = rows.column(place).as_ref();
            let cells = Cells::of(array, kind, field.is_some_and(mapping::is_text));
            let cells = cells.ok_or_else(|| unknown_type(column.name()))?.fitting(field);
            let mut label = if fields.is_empty() { Vec::new() } else { vec![b','] };
            drop(serde_json::to_writer(&mut label, name));
            label.push(b':');
            fields.push(Column { name: column.name().clone(), label, cells });
        }
        Ok(Self { fields })
    }

    /// Leaves `out` as it was where the row cannot be written.
    pub(super) fn write(&self, row: usize, out: &mut Vec<u8>) -> Result<(), Unwritable> {
        let start = out.len();
        out.push(b'{');
        for Column { label, cells, .. } in &self.fields {
            out.extend_from_slice(label);
            if let Err(reason) = cells.write(row, out) {
                out.truncate(start);
                return Err(reason);
            }
        }
        out.push(b'}');
        Ok(())
    }

    /// A value of the row is a JSON object.
    pub(super) fn has_object(&self, row: usize) -> bool {
        self.fields.iter().any(|column| column.cells.is_json_object(row))
    }

    /// The column whose value keeps a row from being written.
    pub(super) fn culprit(&self, row: usize) -> Option<&str> {
        let unwritable = |column: &&Column<'_>| column.cells.write(row, &mut Vec::new()).is_err();
        self.fields.iter().find(unwritable).map(|column| column.name.as_str())
    }
}

fn unknown_type(column: &str) -> Error {
    Error::fix("sink.column_type", format!("column {column} is of a type that has no form in JSON"))
        .hint("cast it in the query, or omit it in the target's document rules")
}

/// The id of the document of a key, in the text of its columns.
pub(super) fn id(key: &[String]) -> Result<String, Unwritable> {
    let id = match key {
        [one] => one.clone(),
        several => {
            let part = |text: &String| text.replace('\\', "\\\\").replace(':', "\\:");
            several.iter().map(part).collect::<Vec<_>>().join(":")
        }
    };
    match id.len() {
        0 => Err("its key is empty, and a document needs an id"),
        1..=LONGEST_ID => Ok(id),
        _ => Err("its key is longer than the 512 bytes that an id may have"),
    }
}

pub(super) fn id_of_row(
    rows: &RecordBatch,
    key: &[String],
    row: usize,
) -> Result<Result<String, Unwritable>> {
    Ok(id(&texts(rows, key, row)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(parts: &[&str]) -> Vec<String> {
        parts.iter().map(|part| (*part).to_owned()).collect()
    }

    #[test]
    fn ids_of_different_keys_differ() {
        assert_eq!(id(&key(&["7:8"])).unwrap(), "7:8");
        assert_eq!(id(&key(&["a", "b"])).unwrap(), "a:b");
        assert_ne!(id(&key(&["a:b", "c"])), id(&key(&["a", "b:c"])));
        assert_ne!(id(&key(&["a\\", "b"])), id(&key(&["a", "\\b"])));
    }

    #[test]
    fn a_key_that_is_empty_or_too_long_has_no_id() {
        assert!(id(&key(&[""])).is_err());
        assert!(id(&key(&[&"x".repeat(513)])).is_err());
        assert!(id(&key(&[&"x".repeat(512)])).is_ok());
    }
}
