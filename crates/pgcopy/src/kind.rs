//! How a Postgres type travels: the types that have a lossless Arrow form, and text for the rest.

use arrow_schema::{DataType, TimeUnit};

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Kind {
    Bool,
    Int2,
    Int4,
    Int8,
    Float4,
    Float8,
    /// `text`, `varchar`, `bpchar` and `name`: the same bytes on the wire.
    Text,
    Bytea,
    Date,
    Timestamp,
    Timestamptz,
    Uuid,
    /// Everything else: read with `::text`, cast back at the sink.
    AsText,
}

impl Kind {
    /// By `pg_type.oid`; those of built-in types are fixed for all versions.
    pub const fn of_oid(oid: u32) -> Self {
        match oid {
            16 => Self::Bool,
            17 => Self::Bytea,
            20 => Self::Int8,
            21 => Self::Int2,
            23 => Self::Int4,
            19 | 25 | 1042 | 1043 => Self::Text,
            700 => Self::Float4,
            701 => Self::Float8,
            1082 => Self::Date,
            1114 => Self::Timestamp,
            1184 => Self::Timestamptz,
            2950 => Self::Uuid,
            _ => Self::AsText,
        }
    }

    /// An Arrow timestamp with any time zone counts from the epoch in UTC, as `timestamptz` does.
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
            DataType::Timestamp(TimeUnit::Microsecond, None) => Self::Timestamp,
            DataType::Timestamp(TimeUnit::Microsecond, Some(_)) => Self::Timestamptz,
            DataType::FixedSizeBinary(16) => Self::Uuid,
            _ => return None,
        })
    }

    /// How a field travels.
    pub fn of_field(field: &arrow_schema::Field) -> Option<Self> {
        Self::of_arrow(field.data_type())
    }

    /// Travels in the binary form of its own type, not as text.
    pub fn is_native(self) -> bool {
        self != Self::AsText
    }

    pub fn arrow_type(self) -> DataType {
        match self {
            Self::Bool => DataType::Boolean,
            Self::Int2 => DataType::Int16,
            Self::Int4 => DataType::Int32,
            Self::Int8 => DataType::Int64,
            Self::Float4 => DataType::Float32,
            Self::Float8 => DataType::Float64,
            Self::Text | Self::AsText => DataType::Utf8,
            Self::Bytea => DataType::Binary,
            Self::Date => DataType::Date32,
            Self::Timestamp => DataType::Timestamp(TimeUnit::Microsecond, None),
            Self::Timestamptz => DataType::Timestamp(TimeUnit::Microsecond, Some("UTC".into())),
            Self::Uuid => DataType::FixedSizeBinary(16),
        }
    }

    /// The type a staging column needs to take this kind's bytes.
    pub const fn postgres_type(self) -> &'static str {
        match self {
            Self::Bool => "boolean",
            Self::Int2 => "smallint",
            Self::Int4 => "integer",
            Self::Int8 => "bigint",
            Self::Float4 => "real",
            Self::Float8 => "double precision",
            Self::Text | Self::AsText => "text",
            Self::Bytea => "bytea",
            Self::Date => "date",
            Self::Timestamp => "timestamp",
            Self::Timestamptz => "timestamptz",
            Self::Uuid => "uuid",
        }
    }
}
