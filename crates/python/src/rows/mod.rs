//! Batches as JSON, one row a line: for functions that see dicts, and need no Arrow.
//!
//! Numbers, booleans and texts are themselves; numeric, json and whatever JSON has no word for travel as strings, so that
//! nothing is rounded on the way.

mod builder;
mod cells;

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::io::Write;

use arrow_array::{Array, ArrayRef, RecordBatch};
use serde_json::Value;
use serde_json::value::RawValue;
use vitrina_core::values::value;
use vitrina_core::{Error, Result};
use vitrina_pgcopy::{Kind, arrow_schema};

use crate::arrow;
use crate::session::Column;
use builder::Builder;

pub(crate) fn write(rows: &RecordBatch) -> Result<Vec<u8>> {
    let schema = rows.schema();
    let names: Vec<String> =
        schema.fields().iter().map(|field| Value::from(field.name().as_str()).to_string()).collect();
    let kinds: Vec<Kind> =
        schema.fields().iter().map(|field| Kind::of_field(field).unwrap_or(Kind::AsText)).collect();
    let mut out = Vec::with_capacity(rows.get_array_memory_size() * 2);
    for row in 0..rows.num_rows() {
        for (place, (column, kind)) in rows.columns().iter().zip(&kinds).enumerate() {
            let before = if place == 0 { '{' } else { ',' };
            let written = write!(out, "{before}{}:", names[place]);
            written.map_err(|error| Error::defect("python.rows", &error))?;
            cells::write(column.as_ref(), *kind, row, &mut out)?;
        }
        out.extend_from_slice(if rows.num_columns() == 0 { b"{}\n" } else { b"}\n" });
    }
    Ok(out)
}

pub(crate) fn read(body: &[u8], columns: &[Column], task: &str) -> Result<RecordBatch> {
    let described: Vec<vitrina_pgcopy::Column> = columns
        .iter()
        .map(|column| vitrina_pgcopy::Column::of_type(&column.name, &column.type_name))
        .collect();
    let mut builders: Vec<Builder> =
        columns.iter().zip(&described).map(|(told, column)| builder_of(told, column)).collect();
    let mut count = 0;
    for line in body.split(|byte| *byte == b'\n').filter(|line| !line.is_empty()) {
        let row: BTreeMap<Cow<'_, str>, &RawValue> = serde_json::from_slice(line).map_err(|error| {
            Error::bug("python.protocol", format!("a row of {task:?}: {}", value(&error.to_string())))
        })?;
        for (builder, column) in builders.iter_mut().zip(columns) {
            let value = row.get(column.name.as_str()).map_or("null", |value| value.get());
            builder.append_text(value).map_err(|reason| unfit(task, column, value, &reason))?;
        }
        count += 1;
    }
    let arrays: Vec<ArrayRef> = builders.into_iter().map(Builder::finish).collect();
    let schema = arrow_schema(&described);
    let fields = schema.fields().iter().zip(&arrays).map(|(field, array)| {
        // An interval stays the text it was, and a column of NULL has no type yet.
        let field = field.as_ref().clone();
        if field.data_type() == array.data_type() {
            return field.into();
        }
        field.with_metadata(Default::default()).with_data_type(array.data_type().clone()).into()
    });
    arrow::batch(fields.collect(), arrays, count)
}

fn builder_of(told: &Column, column: &vitrina_pgcopy::Column) -> Builder {
    match told.type_name.as_str() {
        "null" => Builder::null(),
        _ => Builder::of(column.kind()),
    }
}

/// Without the value: errors are shown, and rows are not theirs to show.
fn unfit(task: &str, column: &Column, value: &str, reason: &str) -> Error {
    let Column { name, type_name } = column;
    let kind = match value.as_bytes().first() {
        Some(b'"') => "a string",
        Some(b'[') => "a list",
        Some(b'{') => "an object",
        Some(b't' | b'f') => "a boolean",
        _ => "a number",
    };
    Error::fix(
        "python.contract",
        format!("python task {task:?} returns {kind} for {name:?} that is no {type_name}: {reason}"),
    )
    .hint("declare the column's type as output of the function, or convert the value")
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow_array::types::Int32Type;
    use arrow_array::{
        BinaryArray, BooleanArray, Date32Array, FixedSizeBinaryArray, Float64Array, Int32Array, Int64Array,
        ListArray, StringArray, Time64MicrosecondArray, TimestampMicrosecondArray,
    };

    use super::*;

    fn column(name: &str, type_name: &str, array: impl Array + 'static) -> (Column, ArrayRef) {
        (Column { name: name.to_owned(), type_name: type_name.to_owned() }, Arc::new(array))
    }

    fn batch(columns: &[(Column, ArrayRef)]) -> RecordBatch {
        let described: Vec<_> = columns
            .iter()
            .map(|(column, _)| vitrina_pgcopy::Column::of_type(&column.name, &column.type_name))
            .collect();
        RecordBatch::try_new(
            arrow_schema(&described),
            columns.iter().map(|(_, array)| array.clone()).collect(),
        )
        .unwrap()
    }

    fn columns() -> Vec<(Column, ArrayRef)> {
        let id = uuid::Uuid::from_u128(7).into_bytes();
        let ids =
            FixedSizeBinaryArray::try_from_sparse_iter_with_size([Some(id), None].into_iter(), 16).unwrap();
        let moment = 1_714_564_800_123_456;
        vec![
            column("id", "uuid", ids),
            column("seen", "boolean", BooleanArray::from(vec![Some(true), None])),
            column("votes", "integer", Int32Array::from(vec![Some(-3), None])),
            column("total", "bigint", Int64Array::from(vec![Some(i64::MAX), None])),
            column(
                "rating",
                "double precision",
                Float64Array::from(vec![Some(31.245_270_191_439_438), Some(f64::NAN)]),
            ),
            column("price", "numeric", StringArray::from(vec![Some("1.00"), None])),
            column("title", "text", StringArray::from(vec![Some("a \"b\"\nc"), None])),
            column("raw", "bytea", BinaryArray::from(vec![Some(b"\x00\xff".as_slice()), None])),
            column("day", "date", Date32Array::from(vec![Some(-1), None])),
            column("hour", "time", Time64MicrosecondArray::from(vec![Some(45_296_000_001), None])),
            column("local", "timestamp", TimestampMicrosecondArray::from(vec![Some(moment), None])),
            column(
                "at",
                "timestamptz",
                TimestampMicrosecondArray::from(vec![Some(moment), None]).with_timezone("UTC"),
            ),
            column("more", "jsonb", StringArray::from(vec![Some(r#"{"a": 1}"#), None])),
            column(
                "marks",
                "integer[]",
                ListArray::from_iter_primitive::<Int32Type, _, _>([Some(vec![Some(1), None]), None]),
            ),
        ]
    }

    #[test]
    fn rows_come_back_as_they_went() {
        let columns = columns();
        let rows = batch(&columns);
        let told: Vec<Column> = columns.into_iter().map(|(column, _)| column).collect();
        let back = read(&write(&rows).unwrap(), &told, "same").unwrap();
        assert_eq!(back.schema(), rows.schema());
        for (place, field) in rows.schema().fields().iter().enumerate() {
            let (back, was) = (format!("{:?}", back.column(place)), format!("{:?}", rows.column(place)));
            assert_eq!(back, was, "{}", field.name());
        }
    }

    #[test]
    fn rows_are_written_so_that_nothing_is_rounded() {
        let lines = String::from_utf8(write(&batch(&columns())).unwrap()).unwrap();
        let first: Value = serde_json::from_str(lines.lines().next().unwrap()).unwrap();
        assert_eq!(first["id"], "00000000-0000-0000-0000-000000000007");
        assert_eq!((&first["total"], &first["price"]), (&i64::MAX.into(), &"1.00".into()));
        assert_eq!(
            (&first["at"], &first["local"]),
            (&"2024-05-01T12:00:00.123456Z".into(), &"2024-05-01T12:00:00.123456".into())
        );
        assert_eq!(
            (&first["raw"], &first["day"], &first["hour"]),
            (&"00ff".into(), &"1969-12-31".into(), &"12:34:56.000001".into())
        );
        assert_eq!(first["more"], r#"{"a": 1}"#);
        let second: Value = serde_json::from_str(lines.lines().nth(1).unwrap()).unwrap();
        assert_eq!((&second["rating"], &second["id"]), (&"NaN".into(), &Value::Null));
    }

    #[test]
    fn a_value_that_is_not_of_its_type_is_told_by_column_and_not_by_value() {
        let told = [Column { name: "votes".to_owned(), type_name: "integer".to_owned() }];
        for value in [r#""secret""#, "4294967296", "1.5", "[1]"] {
            let error = read(format!("{{\"votes\": {value}}}\n").as_bytes(), &told, "count").unwrap_err();
            assert_eq!(error.code, "python.contract");
            let said = error.to_string();
            assert!(said.contains("votes") && said.contains("integer") && !said.contains("secret"), "{said}");
        }
    }

    #[test]
    fn a_column_of_nothing_but_nulls_has_no_type_yet_and_an_interval_stays_text() {
        let told =
            ["null", "interval"].map(|kind| Column { name: kind.to_owned(), type_name: kind.to_owned() });
        let rows = read(b"{\"null\": null, \"interval\": \"1 day\"}\n{}\n", &told, "any").unwrap();
        assert_eq!(
            (rows.num_rows(), rows.column(0).null_count() + rows.column(0).logical_null_count()),
            (2, 2)
        );
        assert_eq!(rows.column(1).data_type(), &arrow_schema::DataType::Utf8);
    }

    #[test]
    fn rows_without_columns_are_still_counted() {
        assert_eq!(read(b"{}\n{}\n{}\n", &[], "any").unwrap().num_rows(), 3);
    }
}
