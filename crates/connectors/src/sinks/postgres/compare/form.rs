//! Values of a type in the forms that a comparison needs: what is hashed, and the text that decides and is shown.
//!
//! The text decides: it is the same exactly where two values are not distinct. A hash only finds candidates, so what it
//! takes in may tell more apart than the text does, and never less.

/// How values of a type are compared.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Form {
    Bool,
    Int,
    BigInt,
    Float,
    Numeric,
    Uuid,
    Timestamp,
    Timestamptz,
    Date,
    Time,
    Interval,
    Jsonb,
    Numerics,
    Floats,
    /// An array of `char(n)`.
    Padded,
    /// Everything else, by its text.
    Text,
}

/// A numeric that has trailing zeros behind its point, outside of quotes.
const JSON_ZEROS: &str = r#"'("(?:[^"\\]|\\.)*")|(?:([.][0-9]*[1-9])0+|[.]0+)(?![0-9])', '\1\2', 'g'"#;
const ZEROS: &str = r"'([.][0-9]*[1-9])0+(?![0-9])|[.]0+(?![0-9])', '\1', 'g'";

impl Form {
    /// Of a built-in type. Types of extensions and users are not the same on two servers: those go by their text.
    pub(super) const fn of(oid: u32) -> Self {
        match oid {
            16 => Self::Bool,
            21 | 23 => Self::Int,
            20 => Self::BigInt,
            700 | 701 => Self::Float,
            1700 => Self::Numeric,
            2950 => Self::Uuid,
            1114 => Self::Timestamp,
            1184 => Self::Timestamptz,
            1082 => Self::Date,
            1083 => Self::Time,
            1186 => Self::Interval,
            3802 => Self::Jsonb,
            1231 => Self::Numerics,
            1021 | 1022 => Self::Floats,
            1014 => Self::Padded,
            _ => Self::Text,
        }
    }

    /// Its values have an order that all servers share, and ranges of them can be read by an index.
    pub(super) const fn has_ranges(self) -> bool {
        matches!(
            self,
            Self::Int
                | Self::BigInt
                | Self::Numeric
                | Self::Uuid
                | Self::Timestamp
                | Self::Timestamptz
                | Self::Date
        )
    }

    /// For people, and to be compared: values are equal texts exactly where they are not distinct.
    pub(super) fn shown(self, value: &str) -> String {
        match self {
            // There is a zero with a sign.
            Self::Float => format!("(({value}) + '0')::text"),
            Self::Numeric => format!("trim_scale({value})::text"),
            Self::Jsonb => format!("regexp_replace(({value})::text, {JSON_ZEROS})"),
            Self::Numerics => format!("regexp_replace(({value})::text, {ZEROS})"),
            Self::Floats => format!(r"regexp_replace(({value})::text, '([{{,])-0(?=[,}}])', '\10', 'g')"),
            Self::Padded => format!("({value})::text[]::text"),
            // 24 hours are a day, and 30 days a month. Beyond these years it would overflow.
            Self::Interval => format!(
                "case when extract(year from {value}) between -1000000 and 1000000
                      then justify_interval({value}) else {value} end::text"
            ),
            _ => format!("({value})::text"),
        }
    }

    /// What is hashed of a value, computed once.
    pub(super) fn input(self, value: &str) -> String {
        match self {
            Self::Bool => format!("({value})::int4"),
            Self::Int | Self::BigInt | Self::Numeric | Self::Uuid | Self::Timestamp | Self::Time => {
                value.to_owned()
            }
            Self::Float => format!("({value})::float8"),
            Self::Timestamptz => format!("({value}) at time zone 'UTC'"),
            // Not every date is a timestamp.
            Self::Date => format!(
                "case when isfinite({value}) then ({value}) - date '2000-01-01'
                      when ({value}) > date '2000-01-01' then 2147483647
                      when ({value}) is not null then -2147483648 end"
            ),
            Self::Interval | Self::Jsonb | Self::Numerics | Self::Floats | Self::Padded | Self::Text => {
                format!("({value})::text")
            }
        }
    }

    /// The smallest or greatest: an order that depends on no collation. Not every type has an aggregate.
    pub(super) fn extreme(self, function: &str, value: &str) -> String {
        match self {
            Self::Int
            | Self::BigInt
            | Self::Float
            | Self::Numeric
            | Self::Timestamp
            | Self::Timestamptz
            | Self::Date
            | Self::Time
            | Self::Interval => self.shown(&format!("{function}({value})")),
            _ => format!("{function}({} collate \"C\")", self.shown(value)),
        }
    }
}
