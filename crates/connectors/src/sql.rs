//! The one writer of identifiers and literals: COPY takes no parameters. Everything that reaches SQL
//! as text goes through here.

/// An identifier, always quoted.
pub(crate) fn identifier(name: &str) -> String {
    format!("\"{}\"", name.replace('"', "\"\""))
}

/// A string literal that every session reads alike: what `standard_conforming_strings` says is of no matter, since statements are also
/// printed for sessions of others.
pub(crate) fn literal(text: &str) -> String {
    debug_assert!(!text.contains('\0'), "Postgres text holds no NUL");
    let quoted = text.replace('\'', "''");
    if text.contains('\\') { format!(" E'{}'", quoted.replace('\\', "\\\\")) } else { format!("'{quoted}'") }
}

/// How a column of a query is ordered and compared. Types without an order of their own that all servers
/// share go by the bytes of their text, whatever the collation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct OrderedColumn {
    pub(crate) name: String,
    as_text: bool,
    type_name: String,
}

/// Numbers, times, uuid, bytea and boolean. A float is read back from its shortest exact text.
pub(crate) const fn orders_by_itself(oid: u32) -> bool {
    matches!(oid, 16 | 17 | 20 | 21 | 23 | 26 | 700 | 701 | 1082 | 1083 | 1114 | 1184 | 1700 | 2950)
}

impl OrderedColumn {
    pub(crate) fn new(name: &str, oid: u32, type_name: &str) -> Self {
        Self { name: name.to_owned(), as_text: !orders_by_itself(oid), type_name: type_name.to_owned() }
    }

    /// The column as an expression of `alias`.
    pub(crate) fn expression(&self, alias: &str) -> String {
        let column = format!("{alias}.{}", identifier(&self.name));
        if self.as_text { format!("({column}::text collate \"C\")") } else { column }
    }

    pub(crate) fn type_name(&self) -> &str {
        &self.type_name
    }

    /// An expression as a value of the column.
    pub(crate) fn cast(&self, expression: &str) -> String {
        format!("({expression})::{}", self.type_name)
    }

    /// A value of the column, from its text form.
    pub(crate) fn value(&self, text: &str) -> String {
        if self.as_text { literal(text) } else { format!("{}::{}", literal(text), self.type_name) }
    }
}

impl OrderedColumn {
    /// A value as Postgres writes it, where that can be told without asking.
    pub(crate) fn canonical(&self, text: &str) -> Option<String> {
        match self.type_name.as_str() {
            "int2" => text.trim().parse::<i16>().ok().map(|number| number.to_string()),
            "int4" => text.trim().parse::<i32>().ok().map(|number| number.to_string()),
            "int8" => text.trim().parse::<i64>().ok().map(|number| number.to_string()),
            "uuid" => text.parse::<uuid::Uuid>().ok().map(|id| id.to_string()),
            _ => None,
        }
    }

    /// Equal values are written alike.
    pub(crate) fn has_one_spelling(&self) -> bool {
        let types =
            ["bool", "bytea", "date", "int2", "int4", "int8", "oid", "timestamp", "timestamptz", "uuid"];
        types.contains(&self.type_name.as_str())
    }

    /// Every text is one of its values, but for a NUL.
    pub(crate) fn takes_any_text(&self, text: &str) -> bool {
        matches!(self.type_name.as_str(), "text" | "varchar" | "bpchar" | "citext" | "name")
            && !text.contains('\0')
    }

    /// Its values are arrays, of which Postgres has no array type: they cannot be written as one value.
    pub(crate) fn is_array(&self) -> bool {
        self.type_name.starts_with('_')
    }

    /// Values of the column as one array.
    pub(crate) fn values<'a>(&self, texts: impl Iterator<Item = &'a str>) -> String {
        let array = literal(&array(texts));
        if self.as_text { array } else { format!("{array}::{}[]", self.type_name) }
    }
}

/// An array as Postgres reads it from text.
pub(crate) fn array<'a>(texts: impl Iterator<Item = &'a str>) -> String {
    let mut array = String::from("{");
    for (place, text) in texts.enumerate() {
        array.push_str(if place == 0 { "\"" } else { ",\"" });
        for character in text.chars() {
            if matches!(character, '"' | '\\') {
                array.push('\\');
            }
            array.push(character);
        }
        array.push('"');
    }
    array + "}"
}

/// `a, b` of an alias, for ORDER BY and row comparison.
pub(crate) fn expressions(columns: &[OrderedColumn], alias: &str) -> String {
    columns.iter().map(|column| column.expression(alias)).collect::<Vec<_>>().join(", ")
}

/// `a is null or b is null`, `a desc, b desc` and the like.
pub(crate) fn conditions(columns: &[OrderedColumn], alias: &str, test: &str, joint: &str) -> String {
    columns
        .iter()
        .map(|column| format!("{} {test}", column.expression(alias)))
        .collect::<Vec<_>>()
        .join(joint)
}

/// `(a, b) > ('1', '2')`; `operator` is one of ours, never text from outside.
pub(crate) fn compare(
    columns: &[OrderedColumn],
    alias: &str,
    operator: &'static str,
    values: &[String],
) -> String {
    let right =
        columns.iter().zip(values).map(|(column, value)| column.value(value)).collect::<Vec<_>>().join(", ");
    format!("({}) {operator} ({right})", expressions(columns, alias))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quotes_are_doubled_in_identifiers_and_literals() {
        assert_eq!(identifier("a\"b"), "\"a\"\"b\"");
        assert_eq!(literal("O'Hara '"), "'O''Hara '''");
        assert_eq!(literal("O'Hara \\ '"), " E'O''Hara \\\\ '''");
    }

    #[test]
    fn text_is_compared_by_bytes_and_numbers_by_value() {
        let columns = [OrderedColumn::new("name", 25, "text"), OrderedColumn::new("id", 20, "bigint")];
        let sql = compare(&columns, "q", ">", &["Ann".to_owned(), "7".to_owned()]);
        assert_eq!(sql, "((q.\"name\"::text collate \"C\"), q.\"id\") > ('Ann', '7'::bigint)");
    }
}
