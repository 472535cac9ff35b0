//! One form of documents on both sides: fields without a value are no fields, the order of names does not matter, and
//! numbers are what a search server takes them for.

use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash, Hasher};

use arrow_array::RecordBatch;
use serde_json::Value;
use serde_json::value::RawValue;
use vitrina_core::{DocumentRules, Result};

use crate::arrow_text::shown_texts;
use crate::sinks::search::checksum::FIELD;

/// Stands for all fields of a document that the pipeline does not write, and for copies of it.
pub(super) const OTHERS: &str = "_source";

/// The columns of a pipeline, with the fields they are written to.
#[derive(Debug, Clone)]
pub(super) struct Fields {
    columns: Vec<(String, String)>,
    key: Vec<String>,
    /// Others write to the same documents.
    partial: bool,
}

/// Its fields as they were written: a value that no number or tree of this process could hold is text all the same.
pub(super) type Document = BTreeMap<String, Box<RawValue>>;

/// A value of a document: what it is to JSON, and its text for people.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct Cell {
    kind: Kind,
    pub(super) text: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Kind {
    Text,
    Number,
    Bool,
    /// An object or an array.
    Tree,
}

pub(super) type Cells = Vec<Option<Cell>>;

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
        own.chain([OTHERS.to_owned()]).collect()
    }

    pub(super) fn field(&self, column: &str) -> Option<&str> {
        self.columns.iter().find(|(name, _)| name == column).map(|(_, field)| field.as_str())
    }

    /// The values of a document, one a name. `None` where none of this pipeline's is there, among those of others.
    pub(super) fn values(&self, mut document: Document) -> Option<Cells> {
        document.remove(FIELD);
        let mut values = Vec::with_capacity(self.columns.len() + 1);
        let mut any = !self.partial;
        for (column, field) in &self.columns {
            let value = document.remove(field).as_deref().and_then(cell);
            any |= value.is_some() && !self.key.contains(column);
            values.push(value);
        }
        document.retain(|_, value| value.get() != "null");
        let others = (!self.partial && !document.is_empty()).then(|| {
            let fields = document.iter().map(|(name, value)| {
                let name = Value::from(name.as_str());
                format!("{name}:{}", json(value))
            });
            format!("{{{}}}", fields.collect::<Vec<_>>().join(","))
        });
        values.push(others.map(|text| Cell { kind: Kind::Tree, text }));
        any.then_some(values)
    }

    /// The values of a row as it was read, one a name.
    pub(super) fn texts(&self, rows: &RecordBatch, row: usize) -> Result<Vec<Option<String>>> {
        let columns: Vec<String> = self.columns.iter().map(|(column, _)| column.clone()).collect();
        let mut values = shown_texts(rows, &columns, row)?;
        values.push(None);
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

/// One text a column, NULL being `None`.
type Texts = Vec<Option<String>>;

/// Both sides of a row as texts. Where only the JSON type differs, a string is shown in its quotes.
pub(super) fn texts_of(source: Option<Cells>, target: Option<Cells>) -> (Option<Texts>, Option<Texts>) {
    let (Some(source), Some(target)) = (&source, &target) else {
        let plain = |cells: Option<Cells>| {
            cells.map(|cells| cells.into_iter().map(|cell| cell.map(|cell| cell.text)).collect())
        };
        return (plain(source), plain(target));
    };
    let shown = |cell: &Option<Cell>, other: &Option<Cell>| {
        let cell = cell.as_ref()?;
        let is_alike = other.as_ref().is_some_and(|other| other.text == cell.text && other.kind != cell.kind);
        match is_alike && cell.kind == Kind::Text {
            true => Some(Value::from(cell.text.as_str()).to_string()),
            false => Some(cell.text.clone()),
        }
    };
    let sides = source.iter().zip(target);
    let (source, target) =
        sides.map(|(source, target)| (shown(source, target), shown(target, source))).unzip();
    (Some(source), Some(target))
}

/// As people read it; `None` for null.
pub(super) fn text(value: &RawValue) -> Option<String> {
    cell(value).map(|cell| cell.text)
}

fn cell(value: &RawValue) -> Option<Cell> {
    let raw = value.get();
    let (kind, text) = match raw.as_bytes().first()? {
        b'n' => return None,
        b'"' => (Kind::Text, serde_json::from_str(raw).unwrap_or_else(|_| raw.to_owned())),
        b't' | b'f' => (Kind::Bool, raw.to_owned()),
        b'{' | b'[' => (Kind::Tree, json(value)),
        _ => (Kind::Number, json(value)),
    };
    Some(Cell { kind, text })
}

/// One form of a value: without spaces, names in order, numbers as doubles. What does not fit into memory like that, a
/// number of hundreds of digits or a tree of hundreds of levels, keeps its own text.
fn json(value: &RawValue) -> String {
    match serde_json::from_str::<Value>(value.get()) {
        Ok(value) => plain(value).to_string(),
        Err(_) => without_spaces(value.get()),
    }
}

/// 1.0 and 1 are the same number.
fn plain(value: Value) -> Value {
    const EXACT: f64 = 9_007_199_254_740_992.0;
    match value {
        Value::Number(number) => match number.as_f64() {
            Some(float) if number.is_f64() && float.fract() == 0.0 && float.abs() < EXACT => {
                Value::from(float as i64)
            }
            _ => Value::Number(number),
        },
        Value::Array(items) => items.into_iter().map(plain).collect(),
        Value::Object(fields) => fields.into_iter().map(|(name, value)| (name, plain(value))).collect(),
        other => other,
    }
}

/// Spaces between the words of JSON mean nothing.
fn without_spaces(raw: &str) -> String {
    let (mut quoted, mut escaped) = (false, false);
    let is_kept = |character: &char| {
        let is_space = !quoted && character.is_ascii_whitespace();
        match character {
            _ if escaped => escaped = false,
            '\\' if quoted => escaped = true,
            '"' => quoted = !quoted,
            _ => {}
        }
        !is_space
    };
    raw.chars().filter(is_kept).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn document(value: &Value) -> Document {
        serde_json::from_str(&value.to_string()).unwrap()
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
        strange.extend(document(&json!({"x": "y"})));
        let values = fields.values(strange).unwrap();
        assert_eq!(values.last().unwrap().as_ref().unwrap().text, r#"{"x":"y"}"#);
    }

    #[test]
    fn where_others_write_too_only_own_fields_count_and_a_document_without_them_is_none() {
        let rules = DocumentRules { partial: true, ..DocumentRules::default() };
        let fields = fields(&rules);
        assert_eq!(fields.values(document(&json!({"id": 1, "rating": 5}))), None);
        assert!(fields.values(document(&json!({"id": 1, "title": "x", "rating": 5}))).is_some());
    }

    #[test]
    fn another_type_of_json_is_another_value_and_is_shown_as_one() {
        let fields = fields(&DocumentRules::default());
        let of = |price: Value| fields.values(document(&json!({"id": 1, "price": price}))).unwrap();
        let values =
            [json!(1), json!("1"), json!(true), json!("true"), json!([1]), json!("[1]"), json!(null)];
        for (place, one) in values.iter().enumerate() {
            for (other_place, other) in values.iter().enumerate() {
                let (source, target) = texts_of(Some(of(one.clone())), Some(of(other.clone())));
                assert_eq!(source == target, place == other_place, "{one} {other}");
            }
        }
        let (source, target) = texts_of(Some(of(json!(1))), Some(of(json!("1"))));
        assert_eq!(
            (source.unwrap()[2].as_deref(), target.unwrap()[2].as_deref()),
            (Some("1"), Some("\"1\""))
        );
        assert_eq!(of(json!([1.0, {"b": 1, "a": 2.0}])), of(json!([1, {"a": 2, "b": 1.0}])));
    }

    #[test]
    fn values_beyond_any_number_or_tree_are_compared_by_their_text() {
        let fields = fields(&DocumentRules::default());
        let of = |price: &str| {
            let document = format!(r#"{{"id": 1, "price": {price}}}"#);
            fields.values(serde_json::from_str(&document).unwrap()).unwrap()
        };
        let deep = |inner: &str| format!("{}{inner}{}", "[ ".repeat(150), "]".repeat(150));
        assert_ne!(of("1e400"), of("1e401"));
        assert_ne!(of(&"9".repeat(401)), of(&"8".repeat(401)));
        assert_eq!(of(&deep("\"a b\"")), of(&deep("  \"a b\" ")));
        assert_ne!(of(&deep("\"a b\"")), of(&deep("\"ab\"")));
    }
}
