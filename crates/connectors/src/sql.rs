//! The one writer of identifiers and literals: COPY takes no parameters. Everything that reaches SQL
//! as text goes through here.

/// An identifier, always quoted.
pub(crate) fn identifier(name: &str) -> String {
    format!("\"{}\"", name.replace('"', "\"\""))
}

/// A string literal. Needs `standard_conforming_strings = on`, which every session pins.
pub(crate) fn literal(text: &str) -> String {
    debug_assert!(!text.contains('\0'), "Postgres text holds no NUL");
    format!("'{}'", text.replace('\'', "''"))
}

/// How a column is ordered and compared on both sides of a pipeline. Text orders by bytes, whatever the
/// collations of source and mart.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct OrderedColumn {
    pub(crate) name: String,
    as_text: bool,
    type_name: String,
}

/// `name`, `text` and `varchar`. Not `char(n)`, whose padding compares in its own way.
pub(crate) const fn is_text(oid: u32) -> bool {
    matches!(oid, 19 | 25 | 1043)
}

impl OrderedColumn {
    pub(crate) fn new(name: &str, oid: u32, type_name: &str) -> Self {
        Self { name: name.to_owned(), as_text: is_text(oid), type_name: type_name.to_owned() }
    }

    /// Is every value of the source's type a value of the mart's, in the same order, and written there
    /// unchanged? Then a range of keys means the same rows on both sides. Types that round, pad, fold
    /// case, or order by a collation inside do not.
    pub(crate) fn ranges_agree(source: u32, mart: u32) -> bool {
        const SMALLINT: u32 = 21;
        const INTEGER: u32 = 23;
        const BIGINT: u32 = 20;
        match (source, mart) {
            // boolean, bytea, date, timestamp, timestamptz, uuid, numeric, oid
            (16 | 17 | 26 | 1082 | 1114 | 1184 | 1700 | 2950, mart) => source == mart,
            (SMALLINT, SMALLINT | INTEGER | BIGINT) | (INTEGER, INTEGER | BIGINT) | (BIGINT, BIGINT) => true,
            (source, mart) => is_text(source) && is_text(mart),
        }
    }

    pub(crate) fn is_text(&self) -> bool {
        self.as_text
    }

    /// The column as an expression of `alias`.
    pub(crate) fn expression(&self, alias: &str) -> String {
        let column = format!("{alias}.{}", identifier(&self.name));
        if self.as_text { format!("({column}::text collate \"C\")") } else { column }
    }

    /// A value of the column, from its text form.
    pub(crate) fn value(&self, text: &str) -> String {
        if self.as_text { literal(text) } else { format!("{}::{}", literal(text), self.type_name) }
    }
}

/// `a, b` of an alias, for ORDER BY and row comparison.
pub(crate) fn expressions(columns: &[OrderedColumn], alias: &str) -> String {
    columns.iter().map(|column| column.expression(alias)).collect::<Vec<_>>().join(", ")
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
        assert_eq!(literal("O'Hara \\ '"), "'O''Hara \\ '''");
    }

    #[test]
    fn text_is_compared_by_bytes_and_numbers_by_value() {
        let columns = [OrderedColumn::new("name", 25, "text"), OrderedColumn::new("id", 20, "bigint")];
        let sql = compare(&columns, "q", ">", &["Ann".to_owned(), "7".to_owned()]);
        assert_eq!(sql, "((q.\"name\"::text collate \"C\"), q.\"id\") > ('Ann', '7'::bigint)");
    }
}
