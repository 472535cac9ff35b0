//! Does a query return every row of its table, once? Then no row can leave it, and none comes twice.

use serde_json::Value;

use crate::rules::text;

/// What may stand in a SELECT beside its columns and its table. An order of the query's own would have the whole
/// table sorted for every page of it.
const PLAIN: [&str; 4] = ["target_list", "from_clause", "limit_option", "op"];

/// Beside columns, what is made of one row of them. Functions may return many rows, or one for all.
const OF_ONE_ROW: [&str; 14] = [
    "ResTarget",
    "String",
    "Integer",
    "Float",
    "Boolean",
    "BitString",
    "AConst",
    "TypeCast",
    "CoalesceExpr",
    "CaseExpr",
    "CaseWhen",
    "NullTest",
    "BooleanTest",
    "BoolExpr",
];

/// A table, and the columns it has.
pub(crate) struct Table<'a> {
    pub(crate) schema: &'a str,
    pub(crate) name: &'a str,
    pub(crate) columns: &'a [String],
}

/// Only for SQL that `check` found clean.
pub(crate) fn is_projection_of(sql: &str, table: &Table<'_>) -> bool {
    crate::parse::look(sql, |tree| table.is_projected_by(&tree["node"]["SelectStmt"])).unwrap_or(false)
}

impl Table<'_> {
    fn is_projected_by(&self, select: &Value) -> bool {
        let Some(parts) = select.as_object() else { return false };
        let mut other =
            parts.iter().filter(|(part, value)| !PLAIN.contains(&part.as_str()) && !is_nothing(value));
        let from = match select["from_clause"].as_array().map(Vec::as_slice) {
            Some([one]) => &one["node"]["RangeVar"],
            _ => return false,
        };
        let is_this = text(&from["schemaname"]) == self.schema && text(&from["relname"]) == self.name;
        // Without its children it would not be the table whose keys are read.
        let is_whole = from["inh"] == Value::Bool(true);
        is_this && is_whole && other.next().is_none() && self.is_of_one_row(&select["target_list"])
    }

    fn is_of_one_row(&self, node: &Value) -> bool {
        let is_kind = |(kind, value): (&String, &Value)| match kind.as_str() {
            "ColumnRef" => self.is_column(value),
            kind => OF_ONE_ROW.contains(&kind) && self.is_of_one_row(value),
        };
        let is_field = |(field, value): (&String, &Value)| match (field.as_str(), value.as_object()) {
            ("node", Some(kinds)) => kinds.iter().all(is_kind),
            // A type is no expression, whatever stands in it.
            ("type_name", _) => true,
            _ => self.is_of_one_row(value),
        };
        match node {
            Value::Array(items) => items.iter().all(|item| self.is_of_one_row(item)),
            Value::Object(fields) => fields.iter().all(is_field),
            _ => true,
        }
    }

    /// `film.tags` is a call of a function `tags` where the table has no such column.
    fn is_column(&self, reference: &Value) -> bool {
        let last = reference["fields"].as_array().and_then(|fields| fields.last());
        let Some(last) = last.map(|last| &last["node"]) else { return false };
        last.get("AStar").is_some()
            || self.columns.iter().any(|column| text(&last["String"]["sval"]) == column)
    }
}

/// As the parser says that a part is not there.
fn is_nothing(value: &Value) -> bool {
    match value {
        Value::Null | Value::Bool(false) => true,
        Value::Array(items) => items.is_empty(),
        Value::Number(number) => number.as_i64() == Some(0),
        Value::String(text) => text.is_empty(),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn is_projection(sql: &str) -> bool {
        let columns = ["id", "title", "rating", "tags"].map(str::to_owned);
        is_projection_of(sql, &Table { schema: "content", name: "film", columns: &columns })
    }

    #[test]
    fn columns_of_one_table_are_a_projection_of_it() {
        for sql in [
            "select * from content.film",
            "select id, f.title as name, rating::text, coalesce(title, '-') from content.film f",
            "select id, case when rating is null then 'none' else title end, 7 as seven from content.film",
        ] {
            assert!(is_projection(sql), "{sql}");
        }
    }

    #[test]
    fn whatever_may_add_rows_or_take_some_away_is_none() {
        for sql in [
            "select id from content.film where rating > 5",
            "select distinct id from content.film",
            "select id from content.film limit 5",
            "select id from content.film f join content.genre g using (id)",
            "select id from content.film, content.genre",
            "select id from content.film tablesample system (10)",
            "select id from only content.film",
            "select count(*) from content.film",
            "select id, unnest(tags) from content.film",
            "select max(id) from content.film group by title",
            "select id from content.film union all select id from content.film",
            "select id, (select 1) from content.film",
            "with f as (select 1) select id from content.film",
            "select id from content.other",
            "select id from (select id from content.film) f",
            "select id, rank() over (order by id) from content.film",
            "select id from content.film order by rating",
            "select id, f.reviews from content.film f",
            "select id, f from content.film f",
            "select id from content.film for update",
            "select id from content.film having true",
            "select id from content.film window w as (order by id)",
            "select id, (f).title from content.film f",
            "select id, (f).reviews from content.film f",
            "select id, ctid from content.film",
            "select id, row(title) from content.film",
            "select id from film",
            "select id from content.\"Film\"",
            "select id from content.film offset 1",
            "values (1)",
        ] {
            assert!(!is_projection(sql), "{sql}");
        }
    }
}
