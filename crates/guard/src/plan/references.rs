//! The tables, types and functions that a query, or the definition of a view, names, and where. Names without a schema are WITH queries or built in: the first
//! layer has seen to that.

use serde_json::Value;

use super::calls::Name;
use crate::parse::look;
use crate::rules::{names, text};

#[derive(Debug, Default)]
pub(crate) struct References {
    pub(crate) tables: Vec<Table>,
    /// Schema and name.
    pub(super) types: Vec<(String, String)>,
    pub(super) functions: Vec<(Name, usize)>,
    /// How many parameters it takes.
    pub(super) parameters: usize,
    /// It makes rows of a type that it does not name.
    pub(super) populates: bool,
}

#[derive(Debug)]
pub(crate) struct Table {
    pub(crate) schema: String,
    pub(crate) name: String,
    pub(super) at: usize,
}

impl References {
    pub(crate) fn of(sql: &str) -> Option<Self> {
        look(sql, |tree| {
            let mut references = Self::default();
            references.collect(tree);
            references
        })
    }

    fn collect(&mut self, node: &Value) {
        match node {
            Value::Array(items) => items.iter().for_each(|item| self.collect(item)),
            Value::Object(fields) => {
                self.table(node);
                self.kind(node);
                self.call(node);
                fields.values().for_each(|value| self.collect(value));
            }
            _ => {}
        }
    }

    fn table(&mut self, node: &Value) {
        let [schema, name] = ["schemaname", "relname"].map(|field| text(&node[field]).to_owned());
        if !schema.is_empty() && !name.is_empty() {
            self.tables.push(Table { schema, name, at: place(node) });
        }
    }

    fn kind(&mut self, node: &Value) {
        if node["array_bounds"].is_null() {
            return;
        }
        match names(&node["names"]).as_slice() {
            [name] => self.types.push(("pg_catalog".to_owned(), (*name).to_owned())),
            [schema, name] => self.types.push(((*schema).to_owned(), (*name).to_owned())),
            _ => {}
        }
    }

    fn call(&mut self, node: &Value) {
        let parameter = node["ParamRef"]["number"].as_u64().and_then(|number| usize::try_from(number).ok());
        self.parameters = self.parameters.max(parameter.unwrap_or(0));
        let function: Name = names(&node["funcname"]).iter().map(|name| (*name).to_owned()).collect();
        self.populates |= function.last().is_some_and(|name| name.contains("_populate_"));
        if !function.is_empty() {
            self.functions.push((function, place(node)));
        }
    }
}

fn place(node: &Value) -> usize {
    node["location"].as_u64().and_then(|at| usize::try_from(at).ok()).unwrap_or(0)
}
