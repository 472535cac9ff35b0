//! Is a row of this query a function of its key? Only then may single rows be computed anew: a LIMIT, a rank or the
//! time of day makes rows depend on others, or on nothing that changes.

use serde_json::Value;

use crate::Finding;
use crate::rules::text;

/// Moments: rows that depend on them change without being changed.
const MOMENTS: [&str; 7] = [
    "now",
    "transaction_timestamp",
    "statement_timestamp",
    "clock_timestamp",
    "timeofday",
    "random",
    "gen_random_uuid",
];
const CODE: &str = "sql.not_of_a_key";
const INSTEAD: &str = "or run the pipeline in mode full";

/// All that makes rows of a query depend on more than their change key; empty means nothing does. Without a key
/// windows are not looked at. Only for SQL that `check` found clean.
pub fn check_keyed(sql: &str, change_key: &[String]) -> Vec<Finding> {
    let found = crate::parse::look(sql, |tree| {
        let mut look = Look { sql, change_key, findings: Vec::new() };
        look.select(&tree["node"]["SelectStmt"]);
        look.moments(tree, 0);
        look.findings
    });
    found.unwrap_or_default()
}

struct Look<'a> {
    sql: &'a str,
    change_key: &'a [String],
    findings: Vec<Finding>,
}

impl Look<'_> {
    fn refuse(&mut self, at: usize, message: &str, hint: &str) {
        let finding = Finding::at(self.sql, at, CODE, message);
        self.findings.push(finding.hint(format!("{hint}, {INSTEAD}")));
    }

    /// A SELECT whose rows are rows of the result. What is asked for each row by itself, as a sub-query of an
    /// expression or LATERAL, depends on that row alone.
    fn select(&mut self, select: &Value) {
        if select.is_null() {
            return;
        }
        if !select["limit_count"].is_null() || !select["limit_offset"].is_null() {
            self.refuse(
                place(&select["limit_count"]),
                "LIMIT makes rows depend on other rows",
                "leave it out",
            );
        }
        let distinct_on = |node: &Value| !node["node"].is_null();
        if select["distinct_clause"].as_array().is_some_and(|on| on.iter().any(distinct_on)) {
            let at = place(&select["distinct_clause"][0]);
            self.refuse(at, "DISTINCT ON makes rows depend on other rows", "leave it out");
        }
        for part in ["target_list", "where_clause", "having_clause", "sort_clause"] {
            self.windows(&select[part], select);
        }
        for cte in select["with_clause"]["ctes"].as_array().into_iter().flatten() {
            self.select(&cte["node"]["CommonTableExpr"]["ctequery"]["node"]["SelectStmt"]);
        }
        for item in select["from_clause"].as_array().into_iter().flatten() {
            self.from(item);
        }
        self.select(&select["larg"]);
        self.select(&select["rarg"]);
    }

    fn from(&mut self, item: &Value) {
        let (join, sub) = (&item["node"]["JoinExpr"], &item["node"]["RangeSubselect"]);
        if !join.is_null() {
            self.from(&join["larg"]);
            self.from(&join["rarg"]);
        }
        if !sub.is_null() && sub["lateral"] != Value::Bool(true) {
            self.select(&sub["subquery"]["node"]["SelectStmt"]);
        }
    }

    /// A window that holds all rows of a change key, and no others, is a function of that key.
    fn windows(&mut self, node: &Value, select: &Value) {
        match node {
            Value::Array(items) => items.iter().for_each(|item| self.windows(item, select)),
            Value::Object(fields) if !fields.contains_key("SubLink") => {
                let over = &node["over"];
                if over.is_object() && !self.change_key.is_empty() && !self.is_by_key(over, select) {
                    let at = place_of(node);
                    self.refuse(
                        at,
                        "a window function makes rows depend on other rows",
                        &format!("partition it by {}", self.change_key.join(", ")),
                    );
                }
                fields.values().for_each(|value| self.windows(value, select));
            }
            _ => {}
        }
    }

    fn is_by_key(&self, over: &Value, select: &Value) -> bool {
        let name = [text(&over["name"]), text(&over["refname"])].into_iter().find(|name| !name.is_empty());
        let mut partition: Vec<&Value> = over["partition_clause"].as_array().into_iter().flatten().collect();
        for window in select["window_clause"].as_array().into_iter().flatten() {
            let window = &window["node"]["WindowDef"];
            if name == Some(text(&window["name"])) {
                partition.extend(window["partition_clause"].as_array().into_iter().flatten());
            }
        }
        let has = |key: &String| {
            let selected = selected(select, key);
            let is_it = |node: &&Value| match &selected {
                Some(selected) => fields(node).as_ref() == Some(selected),
                None => column(node) == Some(key.as_str()),
            };
            partition.iter().any(is_it)
        };
        self.change_key.iter().all(has)
    }

    fn moments(&mut self, node: &Value, above: usize) {
        match node {
            Value::Array(items) => items.iter().for_each(|item| self.moments(item, above)),
            Value::Object(fields) => {
                let at = node["location"].as_u64().and_then(|at| usize::try_from(at).ok()).unwrap_or(above);
                let name = fields.get("funcname").and_then(Value::as_array).and_then(|name| name.last());
                let name = name.map(|name| text(&name["node"]["String"]["sval"])).unwrap_or_default();
                if MOMENTS.contains(&name) || fields.contains_key("SqlvalueFunction") {
                    self.refuse(
                        at,
                        "rows that depend on the moment change without being changed",
                        "leave it out",
                    );
                }
                fields.values().for_each(|value| self.moments(value, at));
            }
            _ => {}
        }
    }
}

/// The column that a SELECT returns under this name, as it is written there.
fn selected(select: &Value, name: &str) -> Option<Vec<String>> {
    let targets = select["target_list"].as_array().into_iter().flatten();
    let mut targets = targets.map(|target| &target["node"]["ResTarget"]);
    let is_it = |target: &&Value| match text(&target["name"]) {
        "" => column(&target["val"]) == Some(name),
        named => named == name,
    };
    Some(fields(&targets.find(is_it)?["val"]).unwrap_or_default())
}

/// `f.id` in its parts.
fn fields(node: &Value) -> Option<Vec<String>> {
    let fields = node["node"]["ColumnRef"]["fields"].as_array()?;
    Some(fields.iter().map(|field| text(&field["node"]["String"]["sval"]).to_owned()).collect())
}

/// The name of a plain column.
fn column(node: &Value) -> Option<&str> {
    let fields = node["node"]["ColumnRef"]["fields"].as_array()?;
    Some(text(&fields.last()?["node"]["String"]["sval"])).filter(|name| !name.is_empty())
}

fn place_of(node: &Value) -> usize {
    node["location"].as_u64().and_then(|at| usize::try_from(at).ok()).unwrap_or(0)
}

/// Where a tagged node stands.
fn place(node: &Value) -> usize {
    node["node"].as_object().and_then(|tagged| tagged.values().next()).map_or(0, place_of)
}
