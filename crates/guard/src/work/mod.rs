//! How large the values can be that a query builds, and how much work single calls do with them, told from the text.
//!
//! Postgres looks for a timeout between rows, not within a call: what compares each element of one value with each of
//! another works on until it is done, whatever is cancelled or terminated, and the planner calls it on constants. So
//! every expression has an upper bound of its size and of the steps that it takes. Values of tables count as short: who
//! writes a query does not write those. Where the text does not tell a size, as behind an aggregate, it counts as large.

mod calls;
mod expressions;
mod scope;

use serde_json::Value;

use crate::Finding;
use crate::rules::text;
use scope::Scope;

/// Of a value that a query builds of constants, so that the planner would build it.
pub(crate) const MAX_BUILT_BYTES: u64 = 64 * 1024;
/// Of all expressions together, as often as the planner may repeat them. The slowest take some ten seconds.
const MAX_STEPS: u64 = 500_000_000;
/// A value of a table.
const STORED: u64 = 64;
/// A value as large as the rows make it: of an aggregate, of a recursion.
const UNBOUNDED: u64 = 2 * 1024 * 1024;
/// To copy an expression and to look into it, whatever it computes, and once more for each partition of its table.
const STEPS_OF_AN_EXPRESSION: u64 = 50_000;
/// The planner compares each with each other, more than once, and checks for no timeout meanwhile.
const MAX_TABLES: usize = 100;

/// What is known of a value before it is computed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Size {
    /// Not less than its elements either, where it is an array or a document.
    bytes: u64,
    /// To compute it, with all that it is computed from.
    steps: u64,
    /// It is known only as rows are read: the planner does not compute it.
    varies: bool,
    /// An integer of the text, or one that is not larger.
    number: Option<u64>,
    /// It stands in the text as it is.
    is_literal: bool,
    /// Of an element, where it is an array that rows were gathered into.
    element: Option<u64>,
}

impl Size {
    const fn constant(bytes: u64) -> Self {
        Self {
            bytes,
            steps: STEPS_OF_AN_EXPRESSION,
            varies: false,
            number: None,
            is_literal: false,
            element: None,
        }
    }

    const fn varying(bytes: u64) -> Self {
        Self { varies: true, ..Self::constant(bytes) }
    }

    const STORED: Self = Self::varying(STORED);
    const UNBOUNDED: Self = Self::varying(UNBOUNDED);

    /// One of both, whichever it will be.
    fn or(self, other: Self) -> Self {
        Self {
            bytes: self.bytes.max(other.bytes),
            steps: self.steps.max(other.steps),
            varies: self.varies && other.varies,
            number: self.number.zip(other.number).map(|(one, other)| one.max(other)),
            is_literal: false,
            element: self.elements().zip(other.elements()).map(|(one, other)| one.max(other)),
        }
    }

    /// A short array has no longer elements.
    fn elements(self) -> Option<u64> {
        self.element.or((self.bytes <= STORED).then_some(self.bytes))
    }

    /// The value of one of both, which are computed both.
    fn either(self, other: Self) -> Self {
        Self { steps: self.steps.saturating_add(other.steps), ..self.or(other) }
    }

    /// Both, one after the other.
    fn and(self, other: Self) -> Self {
        Self {
            bytes: self.bytes.saturating_add(other.bytes),
            steps: self.steps.saturating_add(other.steps),
            varies: self.varies || other.varies,
            number: None,
            is_literal: false,
            element: None,
        }
    }

    /// As a text within another, with its quotes and backslashes twice.
    fn escaped(self) -> Self {
        Self { bytes: self.bytes.saturating_mul(2), ..self }
    }

    /// What is computed that often.
    fn times(self, often: u64) -> Self {
        Self { steps: self.steps.saturating_mul(often), ..self }
    }
}

fn sum(sizes: &[Size]) -> Size {
    let none = Size { steps: 0, ..Size::constant(0) };
    sizes.iter().fold(none, |sum, size| sum.and(*size))
}

struct Work<'a> {
    sql: &'a str,
    steps: u64,
    /// WITH RECURSIVE inside of WITH RECURSIVE: each is looked at several times.
    recursions: usize,
    findings: Vec<(usize, Finding)>,
}

/// For a statement that `Walk` found clean.
pub(crate) fn findings(sql: &str, statement: &Value) -> Vec<Finding> {
    let mut work = Work { sql, steps: 0, recursions: 0, findings: Vec::new() };
    work.refuse_tables(statement);
    work.select(&statement["node"]["SelectStmt"], &Scope::default(), 0);
    work.findings.sort_by_key(|(at, _)| *at);
    work.findings.dedup_by_key(|(at, _)| *at);
    work.findings.into_iter().map(|(_, finding)| finding).collect()
}

impl Work<'_> {
    /// What is computed for a row, or by the planner.
    fn spend(&mut self, size: Size, at: usize) {
        let before = self.steps;
        self.steps = self.steps.saturating_add(size.steps);
        if before <= MAX_STEPS && self.steps > MAX_STEPS {
            let message = "the query has too much work done in one go: no timeout would end it";
            let hint = "keep what is searched and compared short, such as left(x, 1000), and have what is used \
                        often computed once, in a WITH … AS MATERIALIZED";
            self.refuse(at, "sql.too_much_work", message, hint);
        }
    }

    fn refuse_tables(&mut self, statement: &Value) {
        let mut names = Names::default();
        names.gather(statement);
        // Each place where such a WITH query is named gets all of it, and of those it names in turn.
        for (name, at) in &names.copied {
            if names.tables.iter().filter(|table| *table == name).count() > 1 {
                let message = format!("the WITH query {name} is NOT MATERIALIZED and named several times");
                self.refuse(*at, "sql.too_much_work", message, "leave NOT MATERIALIZED out");
            }
        }
        if names.read > MAX_TABLES {
            let message = format!(
                "the query reads {} tables and sub-queries, and {MAX_TABLES} are the most",
                names.read
            );
            self.refuse(
                0,
                "sql.too_much_work",
                message,
                "have a view of the source do a part of it, or make two pipelines of it",
            );
        }
    }

    fn refuse(&mut self, at: usize, code: &'static str, message: impl Into<String>, hint: &str) {
        self.findings.push((at, Finding::at(self.sql, at, code, message).hint(hint)));
    }

    /// The result of a call or an operator. The planner computes only what does not vary.
    fn built(&mut self, name: &str, size: Size, at: usize) -> Size {
        if size.bytes <= MAX_BUILT_BYTES {
            return size;
        }
        if size.varies {
            return Size { bytes: size.bytes.min(UNBOUNDED), ..size };
        }
        let message = format!("{name} builds a value of more than {MAX_BUILT_BYTES} bytes out of constants");
        let hint =
            "write sizes as numbers, and smaller ones: repeat(x, 100), lpad(x, 20), repeat(x, least(n, 100))";
        self.refuse(at, "sql.value_too_large", message, hint);
        Size { bytes: MAX_BUILT_BYTES, ..size }
    }

    /// Steps of a call that no timeout ends.
    fn work(&mut self, name: &str, steps: u64, hint: &str, at: usize) -> u64 {
        if steps <= MAX_STEPS {
            return steps;
        }
        let message = format!("{name} is called on values that may be too large: no timeout would end it");
        self.refuse(at, "sql.too_much_work", message, hint);
        0
    }
}

/// WITH queries that are copied to where they are named, and the names of tables that may be theirs.
#[derive(Default)]
struct Names {
    copied: Vec<(String, usize)>,
    tables: Vec<String>,
    /// Tables, functions and sub-queries in FROM.
    read: usize,
}

impl Names {
    fn gather(&mut self, node: &Value) {
        const NEVER_MATERIALIZED: i64 = 3;
        match node {
            Value::Object(fields) => {
                if let Some(query) = fields.get("CommonTableExpr")
                    && query["ctematerialized"].as_i64() == Some(NEVER_MATERIALIZED)
                {
                    let at = query["location"].as_u64().and_then(|at| usize::try_from(at).ok());
                    self.copied.push((text(&query["ctename"]).to_owned(), at.unwrap_or_default()));
                }
                let read = ["RangeVar", "RangeSubselect", "RangeFunction"].iter();
                self.read += read.filter(|kind| fields.contains_key(**kind)).count();
                if let Some(table) =
                    fields.get("RangeVar").filter(|table| text(&table["schemaname"]).is_empty())
                {
                    self.tables.push(text(&table["relname"]).to_owned());
                }
                fields.values().for_each(|value| self.gather(value));
            }
            Value::Array(items) => items.iter().for_each(|item| self.gather(item)),
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::check;

    fn codes(sql: &str) -> Vec<&'static str> {
        check(sql, &["content".to_owned()]).into_iter().map(|finding| finding.code).collect()
    }

    #[test]
    fn a_bound_in_the_text_lets_a_call_pass() {
        let from = "from (select string_agg(title, '') as x, array_agg(id) as a from content.film) q";
        for (refused, allowed) in [
            ("normalize(x)", "normalize(left(x, 1000))"),
            ("normalize(x)", "normalize(x::varchar(1000))"),
            ("x like '%' || x", "left(x, 1000) like '%' || left(x, 20)"),
            ("a && a", "a && array[1, 2, 3]"),
            ("length(repeat('x', 1000 * 1000))", "length(repeat('x', least(1000 * 1000, 100)))"),
        ] {
            assert_ne!(codes(&format!("select {refused} as y {from}")), Vec::<&str>::new(), "{refused}");
            assert_eq!(codes(&format!("select {allowed} as y {from}")), Vec::<&str>::new(), "{allowed}");
        }
    }

    #[test]
    fn a_size_is_known_under_every_name_that_a_value_gets() {
        for query in [
            "select string_agg from (select string_agg(title, '') from content.film) q",
            "select q.y from (select string_agg(title, '') from content.film) q (y)",
            "select y from (select * from (select string_agg(title, '') as y from content.film) p) q",
            "select y from (select 1 as x) x, lateral (select string_agg(title, '') as y from content.film) q",
            "select coalesce from (select coalesce(string_agg(title, ''), '-') from content.film) q",
            "with q (y) as (select string_agg(title, '') from content.film) select y from q",
            "select (values ((select string_agg(title, '') from content.film)))",
            "select column1 from (values ((select string_agg(title, '') from content.film))) q",
            "select y from (select '-' as y union all select string_agg(title, '') from content.film) q",
            "with recursive q (y) as (select 'ab' union all select y || y from q) select y from q",
            "select j.y from (content.film f cross join (select string_agg(title, '') as y from content.film) q) j",
            "select u from (select array_agg(title) as a from content.film) q, array_to_string(a, '') u",
            "select case when true then y end from (select string_agg(title, '') as y from content.film) q",
        ] {
            assert_eq!(codes(query), Vec::<&str>::new(), "{query}");
            let normalized = format!("select normalize(({query})) as z");
            assert_eq!(codes(&normalized), ["sql.too_much_work"], "{query}");
        }
    }

    #[test]
    fn a_finding_says_how_to_write_the_call() {
        let found =
            check("select normalize(string_agg(title, '')) as x from content.film", &["content".to_owned()]);
        let hints: Vec<_> = found.iter().filter_map(|finding| finding.hint.as_deref()).collect();
        assert_eq!(hints, ["bound the text: normalize(left(x, 1000))"]);
        let found = check("select length(repeat('x', 1000000)) as x", &[]);
        assert!(
            found[0].hint.as_deref().is_some_and(|hint| hint.contains("repeat(x, least(n, 100))")),
            "{found:?}"
        );
    }

    /// Each step down looks at what is above it no more than a few times.
    #[test]
    fn deep_and_wide_queries_are_judged_at_once() {
        let cases = (0..300).fold("1".to_owned(), |inner, _| format!("case when true then {inner} end"));
        let stars = (0..200)
            .fold("content.film".to_owned(), |inner, n| format!("(select *, *, 1 as c{n} from {inner} q)"));
        let turns = (0..60).fold("select 1 as a".to_owned(), |inner, n| {
            format!("with recursive r{n} (a) as (select 1 union all (select a from ({inner}) q, r{n} s (b))) select a from r{n}")
        });
        let subscripts = (0..60).fold("array[1]".to_owned(), |inner, _| format!("({inner})[1]"));
        let attributes = (0..60).fold("row(1)".to_owned(), |inner, _| format!("({inner}).a"));
        let wide = (0..400).map(|_| " cross join c").collect::<String>();
        let wide = format!(
            "with c as (select {} from content.film a) select 1 as x from c{wide}",
            ["a.*"; 1600].join(",")
        );
        for query in [
            wide,
            format!("select {cases} as x"),
            format!("select * from {stars} q"),
            turns,
            format!("select {subscripts} as x"),
            format!("select {attributes} as x"),
        ] {
            let before = std::time::Instant::now();
            drop(check(&query, &["content".to_owned()]));
            assert!(before.elapsed().as_secs() < 10, "{} bytes", query.len());
        }
    }
}
