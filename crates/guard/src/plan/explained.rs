//! The plan of a query: the relations it scans, the functions it calls, whether it writes or locks, what it costs.

use std::collections::BTreeSet;

use serde_json::{Map, Value};

use super::calls::{Name, calls};
use super::catalogue::Catalogue;
use crate::Finding;

/// Fields of a node that hold names and words of the planner. All others are read as expressions.
#[rustfmt::skip]
const NO_EXPRESSIONS: &[&str] = &[
    "Alias", "Async Capable", "CTE Name", "Command", "Custom Plan Provider", "Function Name", "Index Name",
    "Join Type", "Node Type", "Operation", "Parent Relationship", "Partial Mode", "Relation Name", "Relations",
    "Remote SQL", "Scan Direction", "Schema", "Strategy", "Subplan Name", "Table Function Name",
    "Tuplestore Name",
];

/// Schema and name.
pub(super) type Relation = (String, String);

#[derive(Debug, Default)]
pub(super) struct Explained {
    relations: BTreeSet<Relation>,
    calls: BTreeSet<Name>,
    findings: Vec<Finding>,
    cost: f64,
}

impl Explained {
    pub(super) fn read(plan: Option<&Value>) -> Self {
        let mut explained = Self::default();
        match plan {
            Some(Value::Object(node)) => {
                explained.cost = node.get("Total Cost").and_then(Value::as_f64).unwrap_or(f64::INFINITY);
                explained.node(node);
            }
            // Without a plan there is no clean bill.
            _ => explained.unreadable(),
        }
        explained
    }

    fn node(&mut self, node: &Map<String, Value>) {
        let text = |field: &str| node.get(field).and_then(Value::as_str).unwrap_or_default();
        match text("Node Type") {
            "ModifyTable" => self.refuse("sql.data_modifying", "the query writes"),
            "LockRows" => self.refuse("sql.locking", "the query locks rows"),
            "Foreign Scan" => self.foreign(text("Relation Name")),
            _ => {}
        }
        if node.contains_key("Relation Name") {
            self.relations.insert((text("Schema").to_owned(), text("Relation Name").to_owned()));
        }
        let expressions = node.iter().filter(|(field, _)| !NO_EXPRESSIONS.contains(&field.as_str()));
        expressions.for_each(|(_, value)| self.value(value));
    }

    fn value(&mut self, value: &Value) {
        match value {
            Value::Object(node) => self.node(node),
            Value::Array(items) => items.iter().for_each(|item| self.value(item)),
            Value::String(text) => match calls(text) {
                Some(calls) => self.calls.extend(calls),
                None => self.unreadable(),
            },
            _ => {}
        }
    }

    /// Neither a snapshot nor a lock of this server holds what another one has, and its rows have no versions.
    fn foreign(&mut self, table: &str) {
        let message =
            format!("the query reads a foreign table{}{table}", if table.is_empty() { "" } else { ", " });
        let finding = Finding::at("", 0, "sql.foreign_table", message);
        let hint = "name the server that has the table as source_connection, or copy it into a table or a materialized view here";
        self.findings.push(finding.hint(hint));
    }

    fn unreadable(&mut self) {
        self.refuse("sql.unchecked", "the plan of the query is too large or too deep to be read");
    }

    fn refuse(&mut self, code: &'static str, message: &str) {
        self.findings.push(Finding::at("", 0, code, message));
    }

    pub(super) fn relations_outside(&self, schemas: &[String]) -> Vec<Relation> {
        self.relations.iter().filter(|(schema, _)| !schemas.contains(schema)).cloned().collect()
    }

    /// `strangers` are relations that must not be scanned.
    pub(super) fn findings(
        &self,
        strangers: &[Relation],
        catalogue: &Catalogue,
        cost_ceiling: Option<f64>,
    ) -> Vec<Finding> {
        let scanned = strangers.iter().map(|(schema, name)| {
            let message = format!("the query reads {schema}.{name}, which is not in an allowed schema");
            Finding::at("", 0, "sql.schema_not_allowed", message).hint("a view leads to it")
        });
        let called = self.calls.iter().filter(|name| !catalogue.may_be_called(name));
        let called = called.map(|name| {
            let message = format!("the query calls {}, which is not allowed", name.join("."));
            let hint = "a view, an attribute, an operator or a cast leads to it";
            Finding::at("", 0, "sql.function_not_allowed", message).hint(hint)
        });
        let ceiling = cost_ceiling.filter(|ceiling| self.cost > *ceiling);
        let costly = ceiling.map(|ceiling| {
            let message = format!("the planner expects a cost of {}, and {ceiling} is allowed", self.cost);
            Finding::at("", 0, "sql.too_costly", message)
                .hint("read less, give the planner an index, or raise runner.max_query_cost")
        });
        self.findings.iter().cloned().chain(scanned).chain(called).chain(costly).collect()
    }
}
