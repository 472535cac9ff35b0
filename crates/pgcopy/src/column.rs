//! The described columns of a query, and what follows from them: a select list and an Arrow schema.

use std::collections::HashMap;
use std::sync::Arc;

use arrow_schema::{Field, Schema, SchemaRef};

use crate::kind::PG_OID;
use crate::{Kind, Scalar};

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Column {
    pub name: String,
    /// The source's `pg_type.oid`.
    pub oid: u32,
}

impl Column {
    pub fn new(name: impl Into<String>, oid: u32) -> Self {
        Self { name: name.into(), oid }
    }

    /// By the name of its type; one without an Arrow form travels as text.
    pub fn of_type(name: impl Into<String>, type_name: &str) -> Self {
        Self::new(name, Scalar::oid_of_name(type_name).unwrap_or_else(|| Scalar::Text.oid()))
    }

    pub fn kind(&self) -> Kind {
        Kind::of_oid(self.oid)
    }

    fn field(&self) -> Field {
        let metadata = HashMap::from([(PG_OID.to_owned(), self.oid.to_string())]);
        Field::new(&self.name, self.kind().arrow_type(), true).with_metadata(metadata)
    }

    fn select_item(&self) -> String {
        let name = quoted(&self.name);
        match self.kind() {
            Kind::AsText => format!("{name}::text as {name}"),
            _ => name,
        }
    }
}

/// Every field is nullable and carries the source's type in its metadata as `pg_oid`.
pub fn arrow_schema(columns: &[Column]) -> SchemaRef {
    Arc::new(Schema::new(columns.iter().map(Column::field).collect::<Vec<_>>()))
}

/// What to select so that a decoder of the same columns understands the answer. Text forms follow
/// the session's settings (`DateStyle`, `IntervalStyle`, `extra_float_digits`, …): pin them on both
/// sides.
pub fn select_list(columns: &[Column]) -> String {
    columns.iter().map(Column::select_item).collect::<Vec<_>>().join(", ")
}

fn quoted(name: &str) -> String {
    format!("\"{}\"", name.replace('"', "\"\""))
}

#[cfg(test)]
mod tests {
    use arrow_schema::DataType;

    use super::*;

    const INT8: u32 = 20;
    const NUMERIC: u32 = 1700;
    const INET: u32 = 869;

    #[test]
    fn a_type_without_an_arrow_form_is_selected_as_text_under_its_own_name() {
        let columns = [Column::new("id", INT8), Column::new("price", NUMERIC), Column::new("host", INET)];
        assert_eq!(select_list(&columns), r#""id", "price", "host"::text as "host""#);
    }

    #[test]
    fn a_column_is_found_by_the_name_that_its_kind_gives() {
        for oid in [16, 21, 701, 25, 1184, 2950, 3802, 1009, 2951] {
            assert_eq!(Column::of_type("x", Kind::of_oid(oid).postgres_type()), Column::new("x", oid));
        }
        assert_eq!(Column::of_type("x", "inet").kind(), Kind::of_oid(25));
    }

    #[test]
    fn a_quote_in_a_name_is_doubled() {
        assert_eq!(select_list(&[Column::new(r#"a"b"#, INT8)]), r#""a""b""#);
    }

    #[test]
    fn a_field_is_nullable_and_names_its_source_type() {
        let schema = arrow_schema(&[Column::new("price", NUMERIC)]);
        let field = schema.field(0);
        assert_eq!(field.data_type(), &DataType::Utf8);
        assert!(field.is_nullable());
        assert_eq!(field.metadata()["pg_oid"], "1700");
    }
}
