//! One form of documents on both sides: fields without a value are no fields, the order of names does not matter, and
//! numbers are what a search server takes them for.

use std::hash::{DefaultHasher, Hash, Hasher};

use arrow_array::RecordBatch;
use serde_json::{Map, Value};
use vitrina_core::{DocumentRules, Result};

use crate::arrow_text::nullable_texts;
use crate::sinks::search::checksum::FIELD;

/// Stands for all fields of a document that the pipeline does not write.
pub(super) const OTHERS: &str = "_source";

/// The columns of a pipeline, with the fields they are written to.
#[derive(Debug, Clone)]
pub(super) struct Fields {
    columns: Vec<(String, String)>,
    key: Vec<String>,
    /// Others write to the same documents.
    partial: bool,
}

pub(super) type Document = Map<String, Value>;

impl Fields {
    pub(super) fn new<'a>(
        columns: impl Iterator<Item = &'a String>,
        rules: &DocumentRules,
        key: &[String],
    ) -> Self {
        let field = |column: &'a String| Some((column.clone(), rules.field(column)?.to_owned()));
        Self { columns: columns.filter_map(field).collect(), key: key.to_vec(), partial: rules.partial }
    }

    /// Names of the values of a row.
    pub(super) fn names(&self) -> Vec<String> {
        let own = self.columns.iter().map(|(column, _)| column.clone());
        own.chain((!self.partial).then(|| OTHERS.to_owned())).collect()
    }

    pub(super) fn field(&self, column: &str) -> Option<&str> {
        self.columns.iter().find(|(name, _)| name == column).map(|(_, field)| field.as_str())
    }

    /// The values of a document, one a name. `None` where none of this pipeline's is there, among those of others.
    pub(super) fn values(&self, mut document: Document) -> Option<Vec<Option<String>>> {
        document.remove(FIELD);
        let mut values = Vec::with_capacity(self.columns.len() + 1);
        let mut any = !self.partial;
        for (column, field) in &self.columns {
            let value = document.remove(field).as_ref().and_then(text);
            any |= value.is_some() && !self.key.contains(column);
            values.push(value);
        }
        if !self.partial {
            document.retain(|_, value| !value.is_null());
            values.push((!document.is_empty()).then(|| Value::Object(document).to_string()));
        }
        any.then_some(values)
    }

    /// The values of a row as it was read, one a name.
    pub(super) fn texts(&self, rows: &RecordBatch, row: usize) -> Result<Vec<Option<String>>> {
        let columns: Vec<String> = self.columns.iter().map(|(column, _)| column.clone()).collect();
        let mut values = nullable_texts(rows, &columns, row)?;
        values.extend((!self.partial).then_some(None));
        Ok(values)
    }

    /// `None` where there is nothing to compare.
    pub(super) fn hash(&self, document: Document) -> Option<u64> {
        self.values(document).map(|values| {
            let mut hasher = DefaultHasher::new();
            values.hash(&mut hasher);
            hasher.finish()
        })
    }
}

/// As people read it. A string stands for itself.
pub(super) fn text(value: &Value) -> Option<String> {
    match value {
        Value::Null => None,
        Value::String(text) => Some(text.clone()),
        Value::Number(number) => Some(plain(number)),
        other => Some(other.to_string()),
    }
}

/// 1.0 and 1 are the same number.
fn plain(number: &serde_json::Number) -> String {
    const EXACT: f64 = 9_007_199_254_740_992.0;
    match number.as_f64() {
        Some(float) if number.is_f64() && float.fract() == 0.0 && float.abs() < EXACT => {
            format!("{float:.0}")
        }
        _ => number.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn document(value: &Value) -> Document {
        value.as_object().unwrap().clone()
    }

    fn fields(rules: &DocumentRules) -> Fields {
        let columns = ["id", "title", "price"].map(str::to_owned);
        Fields::new(columns.iter(), rules, &["id".to_owned()])
    }

    #[test]
    fn a_field_without_a_value_is_no_field_and_a_strange_one_is_told() {
        let fields = fields(&DocumentRules::default());
        let one = document(&json!({"id": 1, "title": null, "price": 1.0}));
        let other = document(&json!({"price": 1, "id": 1}));
        assert_eq!(fields.hash(one.clone()), fields.hash(other));
        let mut strange = one;
        strange.insert("x".to_owned(), json!("y"));
        let values = fields.values(strange).unwrap();
        assert_eq!(values.last().unwrap().as_deref(), Some(r#"{"x":"y"}"#));
    }

    #[test]
    fn where_others_write_too_only_own_fields_count_and_a_document_without_them_is_none() {
        let rules = DocumentRules { partial: true, ..DocumentRules::default() };
        let fields = fields(&rules);
        assert_eq!(fields.values(document(&json!({"id": 1, "rating": 5}))), None);
        assert!(fields.values(document(&json!({"id": 1, "title": "x", "rating": 5}))).is_some());
    }
}
