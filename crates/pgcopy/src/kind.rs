//! How a Postgres type travels: in binary if it has a lossless Arrow form, as text if not.
//!
//! Two columns take the same bytes if their kinds are equal and native: what was read as one can be
//! copied straight into the other. Several kinds share an Arrow type (text, numeric, json and jsonb
//! are all Utf8), so a field tells its kind by the `pg_oid` in its metadata.

use std::sync::Arc;

use arrow_schema::{DataType, Field};

use crate::Scalar;

/// Where a field's metadata holds the `pg_type.oid` of its column.
pub(crate) const PG_OID: &str = "pg_oid";

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Kind {
    /// `varchar`, `bpchar` and `name` are `Scalar::Text` here: the same bytes on the wire.
    Scalar(Scalar),
    /// A one-dimensional array. On the wire it names the type of its elements, and the server takes
    /// no other: `varchar[]` is not `text[]` here.
    Array(Scalar),
    /// Everything else: read with `::text`, cast back at the sink.
    AsText,
}

impl Kind {
    /// By `pg_type.oid`.
    pub fn of_oid(oid: u32) -> Self {
        match Scalar::of_oid(oid) {
            Some(Scalar::Varchar | Scalar::Bpchar | Scalar::Name) => Self::Scalar(Scalar::Text),
            Some(scalar) => Self::Scalar(scalar),
            None => Scalar::of_array_oid(oid).map_or(Self::AsText, Self::Array),
        }
    }

    /// By Arrow type alone. `None`: Postgres has nothing like it.
    pub fn of_arrow(data_type: &DataType) -> Option<Self> {
        match data_type {
            DataType::List(item) => Scalar::of_arrow(item.data_type()).map(Self::Array),
            scalar => Scalar::of_arrow(scalar).map(Self::Scalar),
        }
    }

    /// By the field's `pg_oid` if its Arrow type agrees: a transform may have changed the values and
    /// kept the metadata. Else by the Arrow type.
    pub fn of_field(field: &Field) -> Option<Self> {
        let plain = Self::of_arrow(field.data_type())?;
        let described = field.metadata().get(PG_OID).and_then(|oid| oid.parse().ok()).map(Self::of_oid);
        let agrees = |kind: &Self| Self::of_arrow(&kind.arrow_type()) == Some(plain);
        Some(described.filter(agrees).unwrap_or(plain))
    }

    /// Travels in the type's own binary form.
    pub fn is_native(self) -> bool {
        self != Self::AsText
    }

    pub fn arrow_type(self) -> DataType {
        match self {
            Self::Scalar(scalar) => scalar.arrow_type(),
            Self::Array(scalar) => DataType::List(Arc::new(Field::new_list_field(scalar.arrow_type(), true))),
            Self::AsText => DataType::Utf8,
        }
    }

    /// The type a staging column needs to take this kind's bytes.
    pub fn postgres_type(self) -> &'static str {
        match self {
            Self::Scalar(scalar) => scalar.postgres_type(),
            Self::Array(scalar) => scalar.array_type(),
            Self::AsText => Scalar::Text.postgres_type(),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use super::*;

    const TEXT: u32 = 25;
    const NUMERIC: u32 = 1700;
    const INET: u32 = 869;

    fn field(data_type: DataType, oid: u32) -> Field {
        let metadata = HashMap::from([(PG_OID.to_owned(), oid.to_string())]);
        Field::new("x", data_type, true).with_metadata(metadata)
    }

    #[test]
    fn a_field_is_of_its_source_type_where_arrow_shares_one_type() {
        for (oid, kind) in [
            (TEXT, Kind::Scalar(Scalar::Text)),
            (NUMERIC, Kind::Scalar(Scalar::Numeric)),
            (3802, Kind::Scalar(Scalar::Jsonb)),
            (INET, Kind::AsText),
        ] {
            assert_eq!(Kind::of_field(&field(DataType::Utf8, oid)), Some(kind));
        }
        assert_eq!(Kind::of_field(&Field::new("x", DataType::Utf8, true)), Some(Kind::Scalar(Scalar::Text)));
    }

    #[test]
    fn a_field_whose_values_became_another_type_is_of_that_type() {
        let counted = field(DataType::Int64, NUMERIC);
        assert_eq!(Kind::of_field(&counted), Some(Kind::Scalar(Scalar::Int8)));
        assert_eq!(Kind::of_field(&field(DataType::UInt8, NUMERIC)), None);
    }

    #[test]
    fn a_list_is_an_array_of_its_source_type_or_of_its_items() {
        let list = |item| DataType::List(Arc::new(Field::new("element", item, false)));
        let prices = field(list(DataType::Utf8), 1231);
        assert_eq!(Kind::of_field(&prices), Some(Kind::Array(Scalar::Numeric)));
        let counts = Field::new("x", list(DataType::Int32), true);
        assert_eq!(Kind::of_field(&counts), Some(Kind::Array(Scalar::Int4)));
        assert_eq!(Kind::of_field(&Field::new("x", list(list(DataType::Int32)), true)), None);
    }

    #[test]
    fn varchar_takes_the_bytes_of_text_and_an_array_of_it_does_not() {
        let (varchar, varchars, texts) = (1043, 1015, 1009);
        assert_eq!(Kind::of_oid(varchar), Kind::of_oid(TEXT));
        assert_ne!(Kind::of_oid(varchars), Kind::of_oid(texts));
    }

    #[test]
    fn what_travels_as_text_is_not_native() {
        assert!(Kind::of_oid(NUMERIC).is_native());
        assert!(!Kind::of_oid(INET).is_native());
    }
}
