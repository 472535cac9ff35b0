//! The outer layers: length, syntax, one statement. What is inside the statement is `walk`'s.

use std::thread;

use pg_query::protobuf::RawStmt;
use serde_json::Value;

use crate::walk::Walk;
use crate::{Finding, MAX_BYTES, work};

/// A chain of operands is as deep a tree as it is long, and decoding, serializing, walking and dropping
/// a tree recurse. A debug build overflows 64 MiB at 3300 nested calls. Only the pages that are used cost memory.
const STACK_BYTES: usize = 256 * 1024 * 1024;

/// How the parser says that a tree has more than some 5000 levels of operators, or more than its own stack holds:
/// it takes 2 MiB at most, and a parser built without optimisation fills them earlier.
const TOO_DEEP: [&str; 2] = ["nested too deeply", "stack depth limit exceeded"];

pub(crate) fn inspect(sql: &str, allowed_schemas: &[String], parameters: i64) -> Vec<Finding> {
    if sql.len() > MAX_BYTES {
        let message = format!("the SQL has {} bytes, more than the {MAX_BYTES} allowed", sql.len());
        return vec![Finding::at(sql, 0, "sql.too_long", message)];
    }
    let walk = Walk::new(sql, allowed_schemas, parameters);
    // A thread that cannot start, or dies, must not count as a clean bill.
    on_a_big_stack(|| statements(sql, walk)).unwrap_or_else(|| {
        vec![
            Finding::at(sql, 0, "sql.unchecked", "the SQL could not be checked")
                .hint("try again, or simplify it"),
        ]
    })
}

/// What a look at the syntax tree of SQL that `inspect` found clean sees. The tree never leaves the big stack: whoever
/// walks or drops it elsewhere ends the process, if the query is only deep enough.
pub(crate) fn look<T: Send>(sql: &str, at: impl FnOnce(&Value) -> T + Send) -> Option<T> {
    on_a_big_stack(|| {
        let parsed = pg_query::parse(sql, 0).ok()?;
        Some(at(&serde_json::to_value(&parsed.protobuf.stmts.first()?.stmt).ok()?))
    })
    .flatten()
}

fn on_a_big_stack<T: Send>(work: impl FnOnce() -> T + Send) -> Option<T> {
    thread::scope(|scope| {
        let thread = thread::Builder::new().name("guard".to_owned()).stack_size(STACK_BYTES);
        thread.spawn_scoped(scope, work).ok()?.join().ok()
    })
}

fn statements(sql: &str, mut walk: Walk) -> Vec<Finding> {
    let statements = match pg_query::parse(sql, 0) {
        Ok(parsed) => parsed.protobuf.stmts,
        Err(error) => return vec![syntax_error(sql, &error)],
    };
    match statements.as_slice() {
        [] => walk.refuse(0, "sql.empty", "there is no statement", "write a SELECT"),
        [_] => {}
        [_, second, ..] => {
            let message = format!("{} statements, only one is allowed", statements.len());
            walk.refuse(start(sql, second), "sql.several_statements", message, "keep one SELECT");
        }
    }
    let mut trees = Vec::new();
    for statement in &statements {
        // Serializing maps with string keys to a `Value` cannot fail; should it, null is refused.
        let tree = serde_json::to_value(&statement.stmt).unwrap_or(Value::Null);
        walk.statement(&tree, start(sql, statement));
        trees.push(tree);
    }
    match (walk.into_findings(), trees.as_slice()) {
        (findings, [tree]) if findings.is_empty() => work::findings(sql, tree),
        (findings, _) => findings,
    }
}

/// A statement begins, for the parser, right after the last one's semicolon.
fn start(sql: &str, statement: &RawStmt) -> usize {
    let at = sql.floor_char_boundary(usize::try_from(statement.stmt_location).unwrap_or(0));
    at + (sql.len() - at - sql[at..].trim_start().len())
}

fn syntax_error(sql: &str, error: &pg_query::Error) -> Finding {
    match error {
        pg_query::Error::Parse(message) if TOO_DEEP.iter().any(|words| message.contains(words)) => {
            Finding::at(sql, 0, "sql.too_deep", "the SQL is nested too deeply")
                .hint("break it into WITH queries")
        }
        pg_query::Error::Parse(message) => {
            Finding::at(sql, error_position(sql, message), "sql.syntax", message)
        }
        pg_query::Error::Conversion(nul) => {
            Finding::at(sql, nul.nul_position(), "sql.syntax", "the SQL holds a NUL character")
        }
        other => Finding::at(sql, 0, "sql.unchecked", format!("the SQL could not be checked: {other}")),
    }
}

/// The binding drops the parser's position, so it is found again: the shortest beginning of the SQL
/// that fails in the same way ends with the offending token.
fn error_position(sql: &str, message: &str) -> usize {
    if message.ends_with("at end of input") {
        return sql.trim_end().len();
    }
    let ends: Vec<usize> = sql.char_indices().map(|(at, c)| at + c.len_utf8()).collect();
    let place = ends.partition_point(|&end| !fails_with(&sql[..end], message));
    let end = ends.get(place).copied().unwrap_or(0);
    let token = message
        .split_once(" at or near \"")
        .map_or("", |(_, token)| token.strip_suffix('"').unwrap_or(token));
    end.saturating_sub(token.len())
}

fn fails_with(sql: &str, message: &str) -> bool {
    matches!(pg_query::parse(sql, 0), Err(pg_query::Error::Parse(other)) if other == message)
}
