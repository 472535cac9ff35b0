//! The relations that a query names: whoever reads it locks them first.

use crate::plan::References;

/// Tables and views, quoted and qualified. For SQL that `check` or `check_watch` found clean.
pub fn relations(sql: &str) -> Vec<String> {
    let tables = References::of(sql).unwrap_or_default().tables;
    tables.iter().map(|table| format!("{}.{}", quoted(&table.schema), quoted(&table.name))).collect()
}

/// Any word, also one that SQL keeps for itself.
fn quoted(name: &str) -> String {
    format!("\"{}\"", name.replace('"', "\"\""))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn relations_are_found_wherever_a_query_names_them() {
        let sql = "with recent as (select * from content.film) select r.id, (select count(*) from ugc.\"Rating\" x where x.film = r.id)
                     from recent r join content.role l on l.film_id = r.id union all table content.old";
        let mut found = relations(sql);
        found.sort();
        assert_eq!(
            found,
            ["\"content\".\"film\"", "\"content\".\"old\"", "\"content\".\"role\"", "\"ugc\".\"Rating\""]
        );
    }
}
