//! `source_table`: one table, as `schema.table`, plain or quoted.

use pg_query::protobuf::Token;

use crate::{Finding, MAX_BYTES, check};

const BEFORE: &str = "table ";

pub fn check_table(name: &str, allowed_schemas: &[String]) -> Vec<Finding> {
    if !is_dotted_pair(name) {
        let shown: String = name.chars().take(80).collect();
        let message = format!("{shown:?} is not a table name");
        return vec![
            Finding::at(name, 0, "table.name", message).hint("write schema.table, and nothing else"),
        ];
    }
    let mut findings = check(&format!("{BEFORE}{name}"), allowed_schemas);
    for finding in findings.iter_mut().filter(|finding| finding.line == 1) {
        finding.column = finding.column.saturating_sub(BEFORE.len() as u32).max(1);
    }
    findings
}

/// Three tokens with nothing between, before or behind them: no comment, alias or clause fits in.
fn is_dotted_pair(name: &str) -> bool {
    let Some(Ok(scanned)) = (name.len() < MAX_BYTES).then(|| pg_query::scan(name)) else { return false };
    let [schema, dot, table] = scanned.tokens.as_slice() else { return false };
    let edges = [0, schema.end, dot.end];
    let starts = [schema.start, dot.start, table.start];
    edges == starts && usize::try_from(table.end) == Ok(name.len()) && dot.token() == Token::Ascii46
}
