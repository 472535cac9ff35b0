//! One form of values on both sides: what is hashed, and what is shown. Values of the source are cast to the mart's type
//! first, as writing them would; so scale, zone and representation are the mart's.

/// How values of a type are brought to one form.
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
    Jsonb,
    /// Everything else, by its text.
    Text,
}

/// How rows are hashed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Hashing {
    /// By the functions of the types: fast, and the same on servers that answer `VECTORS` alike.
    Native,
    /// By md5 of the texts: the same everywhere.
    Portable,
}

/// Releases and machines on which all of these agree hash alike; text is hashed as it is encoded.
pub(super) const VECTORS: &str = "select current_setting('server_encoding') || array[hashint4extended(-42, 7), hashint8extended(1234567890123456, 7),
    hashfloat8extended(1.5, 7), hash_numeric_extended(-1234567.890, 7), hashtextextended('Text' collate \"C\", 7),
    uuid_hash_extended('6a2f41a3-c54c-fce8-32d2-0324e1c32e22', 7), timestamp_hash_extended('2024-02-29 12:34:56.789', 7),
    time_hash_extended('12:34:56.789', 7), jsonb_hash_extended('{\"a\": [1, null, \"x\"], \"b\": {\"c\": true}}', 7)]::text";

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
            3802 => Self::Jsonb,
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

    /// The hash of `value` upon that of what comes before. A NULL stands as some value, and is told from that one.
    fn hash(self, value: &str, before: &str) -> String {
        let before = &format!("({before} # (({value}) is null)::int4)");
        match self {
            Self::Bool => format!("hashint4extended(coalesce(({value})::int4, -1), {before})"),
            Self::Int => format!("hashint4extended(coalesce(({value})::int4, -2147483648), {before})"),
            // That of a bigint folds its two halves into one: the upper one is hashed by itself.
            Self::BigInt => {
                let upper = format!("coalesce((({value}) >> 32)::int4, -2147483648)");
                let whole = format!("coalesce({value}, -9223372036854775808)");
                format!("hashint8extended({whole}, hashint4extended({upper}, {before}))")
            }
            Self::Float => format!("hashfloat8extended(coalesce(({value})::float8, 'NaN'), {before})"),
            Self::Numeric => format!("hash_numeric_extended(coalesce({value}, 'NaN'), {before})"),
            Self::Uuid => {
                let null = "'00000000-0000-0000-0000-000000000000'";
                format!("uuid_hash_extended(coalesce({value}, {null}), {before})")
            }
            Self::Timestamp => format!("timestamp_hash_extended(coalesce({value}, '-infinity'), {before})"),
            Self::Timestamptz => {
                format!(
                    "timestamp_hash_extended(coalesce(({value}) at time zone 'UTC', '-infinity'), {before})"
                )
            }
            Self::Date => {
                format!("timestamp_hash_extended(coalesce(({value})::timestamp, '-infinity'), {before})")
            }
            Self::Time => format!("time_hash_extended(coalesce({value}, '00:00'), {before})"),
            Self::Jsonb => format!("jsonb_hash_extended(coalesce({value}, 'null'), {before})"),
            Self::Text => {
                format!("hashtextextended(coalesce(({value})::text, E'\\x1e') collate \"C\", {before})")
            }
        }
    }

    /// For people, and to be compared: equal values are equal texts.
    pub(super) fn shown(self, value: &str) -> String {
        match self {
            // There is a zero with a sign.
            Self::Float => format!("(({value}) + '0')::text"),
            Self::Numeric => format!("trim_scale({value})::text"),
            _ => format!("({value})::text"),
        }
    }

    /// The smallest or greatest: an order that depends on no collation. Not every type has an aggregate.
    pub(super) fn extreme(self, function: &str, value: &str) -> String {
        match self {
            Self::Bool | Self::Uuid | Self::Jsonb | Self::Text => {
                format!("{function}({} collate \"C\")", self.shown(value))
            }
            _ => self.shown(&format!("{function}({value})")),
        }
    }
}

impl Hashing {
    /// Of a row of such values.
    pub(super) fn row(self, values: &[(Form, String)]) -> String {
        match self {
            Self::Native => {
                values.iter().fold("0::int8".to_owned(), |before, (form, value)| form.hash(value, &before))
            }
            Self::Portable => {
                let text = |(form, value): &(Form, String)| {
                    let text = form.shown(value);
                    format!("coalesce(length({text}) || ':' || {text}, '-')")
                };
                let texts = values.iter().map(text).collect::<Vec<_>>().join(" || ");
                format!("('x' || left(md5(convert_to({texts}, 'UTF8')), 16))::bit(64)::int8")
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_is_hashed_column_upon_column_and_with_its_nulls() {
        let values = [(Form::Int, "q.a".to_owned()), (Form::Text, "q.b".to_owned())];
        assert_eq!(
            Hashing::Native.row(&values),
            "hashtextextended(coalesce((q.b)::text, E'\\x1e') collate \"C\", \
             (hashint4extended(coalesce((q.a)::int4, -2147483648), (0::int8 # ((q.a) is null)::int4)) # ((q.b) is null)::int4))"
        );
    }
}
