//! Numbers by which documents are found: 1 and 1.00 are one number to the database, and have to be one text in an index.
//! An index that an older release has created holds them as they came, until its next load.

use std::borrow::Cow;
use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::{Array, ArrayRef, RecordBatch, StringArray};
use arrow_schema::{DataType, Schema};
use serde_json::{Value, json};
use vitrina_core::{Batch, Error, Outcome, Result, Scope};
use vitrina_pgcopy::{Kind, Scalar};

use super::SearchSink;

/// Those of these columns that hold numbers of any scale.
pub(super) fn numeric(schema: &Schema, columns: &[String]) -> Vec<String> {
    let is_numeric = |column: &&String| {
        let field = schema.field_with_name(column).ok();
        field.and_then(Kind::of_field) == Some(Kind::Scalar(Scalar::Numeric))
    };
    columns.iter().filter(is_numeric).cloned().collect()
}

/// The rows with these columns in their shortest form.
pub(super) fn shortest(rows: &RecordBatch, columns: &[String]) -> Result<RecordBatch> {
    let schema = rows.schema();
    let column = |(field, array): (&Arc<arrow_schema::Field>, &ArrayRef)| -> ArrayRef {
        if !columns.contains(field.name()) || *array.data_type() != DataType::Utf8 {
            return Arc::clone(array);
        }
        let texts = array.as_string::<i32>();
        let short: StringArray = texts.iter().map(|text| text.map(short)).collect();
        Arc::new(short)
    };
    let arrays = schema.fields().iter().zip(rows.columns()).map(column).collect();
    RecordBatch::try_new(schema, arrays).map_err(|error| Error::defect("rows.numbers", &error))
}

/// Without zeros behind the last digit of a fraction.
fn short(number: &str) -> &str {
    let is_plain = |byte: u8| byte.is_ascii_digit() || matches!(byte, b'-' | b'.');
    match number.contains('.') && number.bytes().all(is_plain) {
        true => number.trim_end_matches('0').trim_end_matches('.'),
        false => number,
    }
}

/// Notes in a mapping that its index holds them so, beside what others note there.
pub(super) fn noted(mut mapping: Value) -> Value {
    if !mapping["_meta"].is_object() {
        mapping["_meta"] = json!({});
    }
    if !mapping["_meta"]["vitrina"].is_object() {
        mapping["_meta"]["vitrina"] = json!({});
    }
    mapping["_meta"]["vitrina"]["short_numbers"] = json!(true);
    mapping
}

pub(super) fn is_noted(mapping: &Value) -> bool {
    mapping.pointer("/_meta/vitrina/short_numbers") == Some(&json!(true))
}

impl SearchSink {
    /// The batch as this index holds its numbers.
    pub(super) async fn fitting<'a>(
        &mut self,
        batch: &'a Batch,
        index: &str,
        outcome: &mut Outcome,
    ) -> Result<Cow<'a, Batch>> {
        let columns = numeric(&batch.rows.schema(), &self.exact);
        let short = !columns.is_empty() && self.made_behind(index).await?.short_numbers;
        self.short_keys = match short {
            true => self.key.iter().map(|column| columns.contains(column)).collect(),
            false => Vec::new(),
        };
        if !short {
            return Ok(Cow::Borrowed(batch));
        }
        for reject in &mut outcome.rejects {
            self.shorten(&mut reject.key);
        }
        let scope = match &batch.scope {
            Scope::Keys(scope) => Scope::Keys(shortest(scope, &columns)?),
            other => other.clone(),
        };
        Ok(Cow::Owned(Batch { rows: shortest(&batch.rows, &columns)?, scope, ..batch.clone() }))
    }

    fn shorten(&self, key: &mut Value) {
        for (part, is_number) in key.as_array_mut().into_iter().flatten().zip(&self.short_keys) {
            if let (Value::String(text), true) = (&mut *part, is_number) {
                *part = Value::from(short(text));
            }
        }
    }

    /// A key in texts, of a row that may have been refused before the index was created anew.
    pub(super) fn short_key(&self, key: &[String]) -> Vec<String> {
        let is_number = |place: usize| self.short_keys.get(place).copied().unwrap_or_default();
        let part = |(place, text): (usize, &String)| {
            if is_number(place) { short(text).to_owned() } else { text.clone() }
        };
        key.iter().enumerate().map(part).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_that_differ_by_their_scale_alone_have_one_text() {
        for (number, expected) in [
            ("1.00", "1"),
            ("1", "1"),
            ("100", "100"),
            ("-2.50", "-2.5"),
            ("0.00", "0"),
            ("10.010", "10.01"),
            ("NaN", "NaN"),
        ] {
            assert_eq!(short(number), expected);
        }
    }
}
