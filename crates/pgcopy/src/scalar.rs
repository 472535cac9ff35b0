//! The built-in types that have a lossless Arrow form. Where a form is not the obvious one:
//!
//! - `numeric` is Utf8, as Postgres writes it: Decimal128 has no NaN and no infinities, and fixes the
//!   scale, so that 1.0 and 1.00 would be one.
//! - `json` and `jsonb` are Utf8.
//! - `interval` is Interval(MonthDayNano). One that nanoseconds cannot count is a flaw.

use arrow_schema::{DataType, IntervalUnit, TimeUnit};

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Scalar {
    Bool,
    Int2,
    Int4,
    Int8,
    Float4,
    Float8,
    Numeric,
    Text,
    Varchar,
    Bpchar,
    Name,
    Bytea,
    Date,
    Time,
    Timestamp,
    Timestamptz,
    Interval,
    Uuid,
    Json,
    Jsonb,
}

/// What `pg_type` says of a scalar; the oids of built-in types are fixed for all versions.
struct Catalog {
    scalar: Scalar,
    oid: u32,
    array_oid: u32,
    name: &'static str,
    array_name: &'static str,
}

const fn row(
    scalar: Scalar,
    oid: u32,
    array_oid: u32,
    name: &'static str,
    array_name: &'static str,
) -> Catalog {
    Catalog { scalar, oid, array_oid, name, array_name }
}

/// In the order of `Scalar`.
static CATALOG: [Catalog; 20] = [
    row(Scalar::Bool, 16, 1000, "boolean", "boolean[]"),
    row(Scalar::Int2, 21, 1005, "smallint", "smallint[]"),
    row(Scalar::Int4, 23, 1007, "integer", "integer[]"),
    row(Scalar::Int8, 20, 1016, "bigint", "bigint[]"),
    row(Scalar::Float4, 700, 1021, "real", "real[]"),
    row(Scalar::Float8, 701, 1022, "double precision", "double precision[]"),
    row(Scalar::Numeric, 1700, 1231, "numeric", "numeric[]"),
    row(Scalar::Text, 25, 1009, "text", "text[]"),
    row(Scalar::Varchar, 1043, 1015, "varchar", "varchar[]"),
    row(Scalar::Bpchar, 1042, 1014, "bpchar", "bpchar[]"),
    row(Scalar::Name, 19, 1003, "name", "name[]"),
    row(Scalar::Bytea, 17, 1001, "bytea", "bytea[]"),
    row(Scalar::Date, 1082, 1182, "date", "date[]"),
    row(Scalar::Time, 1083, 1183, "time", "time[]"),
    row(Scalar::Timestamp, 1114, 1115, "timestamp", "timestamp[]"),
    row(Scalar::Timestamptz, 1184, 1185, "timestamptz", "timestamptz[]"),
    row(Scalar::Interval, 1186, 1187, "interval", "interval[]"),
    row(Scalar::Uuid, 2950, 2951, "uuid", "uuid[]"),
    row(Scalar::Json, 114, 199, "json", "json[]"),
    row(Scalar::Jsonb, 3802, 3807, "jsonb", "jsonb[]"),
];

impl Scalar {
    pub fn of_oid(oid: u32) -> Option<Self> {
        CATALOG.iter().find(|row| row.oid == oid).map(|row| row.scalar)
    }

    pub fn of_array_oid(oid: u32) -> Option<Self> {
        CATALOG.iter().find(|row| row.array_oid == oid).map(|row| row.scalar)
    }

    /// Of a type or an array of it.
    pub(crate) fn oid_of_name(name: &str) -> Option<u32> {
        let of_row = |row: &Catalog| match name {
            name if name == row.name => Some(row.oid),
            name if name == row.array_name => Some(row.array_oid),
            _ => None,
        };
        CATALOG.iter().find_map(of_row)
    }

    /// The plainest type of an Arrow type: Utf8 alone is text. An Arrow timestamp with any time zone
    /// counts from the epoch in UTC, as `timestamptz` does.
    pub fn of_arrow(data_type: &DataType) -> Option<Self> {
        Some(match data_type {
            DataType::Boolean => Self::Bool,
            DataType::Int16 => Self::Int2,
            DataType::Int32 => Self::Int4,
            DataType::Int64 => Self::Int8,
            DataType::Float32 => Self::Float4,
            DataType::Float64 => Self::Float8,
            DataType::Utf8 => Self::Text,
            DataType::Binary => Self::Bytea,
            DataType::Date32 => Self::Date,
            DataType::Time64(TimeUnit::Microsecond) => Self::Time,
            DataType::Timestamp(TimeUnit::Microsecond, None) => Self::Timestamp,
            DataType::Timestamp(TimeUnit::Microsecond, Some(_)) => Self::Timestamptz,
            DataType::Interval(IntervalUnit::MonthDayNano) => Self::Interval,
            DataType::FixedSizeBinary(16) => Self::Uuid,
            _ => return None,
        })
    }

    pub fn arrow_type(self) -> DataType {
        match self {
            Self::Bool => DataType::Boolean,
            Self::Int2 => DataType::Int16,
            Self::Int4 => DataType::Int32,
            Self::Int8 => DataType::Int64,
            Self::Float4 => DataType::Float32,
            Self::Float8 => DataType::Float64,
            Self::Numeric | Self::Json | Self::Jsonb => DataType::Utf8,
            Self::Text | Self::Varchar | Self::Bpchar | Self::Name => DataType::Utf8,
            Self::Bytea => DataType::Binary,
            Self::Date => DataType::Date32,
            Self::Time => DataType::Time64(TimeUnit::Microsecond),
            Self::Timestamp => DataType::Timestamp(TimeUnit::Microsecond, None),
            Self::Timestamptz => DataType::Timestamp(TimeUnit::Microsecond, Some("UTC".into())),
            Self::Interval => DataType::Interval(IntervalUnit::MonthDayNano),
            Self::Uuid => DataType::FixedSizeBinary(16),
        }
    }

    pub fn oid(self) -> u32 {
        self.catalog().oid
    }

    pub(crate) fn postgres_type(self) -> &'static str {
        self.catalog().name
    }

    pub(crate) fn array_type(self) -> &'static str {
        self.catalog().array_name
    }

    fn catalog(self) -> &'static Catalog {
        &CATALOG[self as usize]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_catalog_is_in_the_order_of_the_scalars() {
        for (index, row) in CATALOG.iter().enumerate() {
            assert_eq!(row.scalar as usize, index);
            assert_eq!(Scalar::of_oid(row.oid), Some(row.scalar));
            assert_eq!(Scalar::of_array_oid(row.array_oid), Some(row.scalar));
        }
    }
}
