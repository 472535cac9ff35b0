//! What the nodes that name something may name: tables, functions, types, operators, parameters.

use serde_json::Value;

use crate::functions;
use crate::walk::Walk;

/// Types that look names up in the catalogue, and tell what exists.
#[rustfmt::skip]
const REFUSED_TYPES: &[&str] = &[
    "aclitem", "regclass", "regcollation", "regconfig", "regdatabase", "regdictionary", "regnamespace", "regoper", "regoperator", "regproc",
    "regprocedure", "regrole", "regtype", // XML is read by a library that compares each attribute with each other.
    "xml",
];

/// Functions that take the configuration of a text search first, and their fewest arguments with one.
const CONFIGURED: &[(&str, usize)] = &[
    ("json_to_tsvector", 3),
    ("jsonb_to_tsvector", 3),
    ("phraseto_tsquery", 2),
    ("plainto_tsquery", 2),
    ("to_tsquery", 2),
    ("to_tsvector", 2),
    ("ts_headline", 3),
    ("websearch_to_tsquery", 2),
];

impl Walk<'_> {
    pub(crate) fn table(&mut self, table: &Value, at: usize) {
        let [catalog, schema, name] =
            ["catalogname", "schemaname", "relname"].map(|field| text(&table[field]));
        if !catalog.is_empty() {
            let message = format!("table {catalog}.{schema}.{name} names a database");
            self.refuse(at, "sql.schema_not_allowed", message, format!("write {schema}.{name}"));
        } else if schema.is_empty() {
            self.unqualified_table(name, at);
        } else if !self.is_allowed_schema(schema) {
            let message = format!("table {schema}.{name} is not in an allowed schema");
            let hint = self.known_schemas();
            self.refuse(at, "sql.schema_not_allowed", message, hint);
        }
    }

    fn unqualified_table(&mut self, name: &str, at: usize) {
        if self.visible.iter().any(|visible| visible == name) {
            return;
        }
        let schema = self.allowed_schemas.first().map_or("<schema>", String::as_str);
        let hint = format!("qualify it, such as {schema}.{name}; {}", self.known_schemas());
        self.refuse(at, "sql.table_unqualified", format!("table {name} has no schema"), hint);
    }

    pub(crate) fn function(&mut self, call: &Value, at: usize) {
        match names(&call["funcname"]).as_slice() {
            [name] | ["pg_catalog", name] if functions::is_allowed(name) => {
                self.configuration(name, call, at);
            }
            other => self.refuse_function(&other.join("."), at),
        }
    }

    /// A configuration by its number, or of another schema, is somebody else's: it tells of itself, and works with their words.
    fn configuration(&mut self, function: &str, call: &Value, at: usize) {
        let arguments = call["args"].as_array().map(Vec::as_slice).unwrap_or_default();
        let is_configured = |(name, fewest): &(&str, usize)| *name == function && arguments.len() >= *fewest;
        let Some(first) = arguments.first().filter(|_| CONFIGURED.iter().any(is_configured)) else { return };
        let cast = &first["node"]["TypeCast"];
        let type_name = names(&cast["type_name"]["names"]).last().copied().unwrap_or_default();
        let is_built_in = |node: &Value| {
            let name = node["node"]["AConst"]["val"]["Sval"]["sval"].as_str();
            name.is_some_and(|name| !name.strip_prefix("pg_catalog.").unwrap_or(name).contains('.'))
        };
        let is_text = matches!(type_name, "text" | "json" | "jsonb");
        if type_name == "regconfig" && is_built_in(&cast["arg"]) {
            self.configurations.extend(cast["type_name"]["location"].as_u64());
        } else if !(is_built_in(first) || is_text && function == "ts_headline" && arguments.len() == 3) {
            let message =
                format!("{function} is given something else than the name of a built-in configuration");
            let hint = match function {
                "ts_headline" => {
                    "name it in quotes, such as 'simple', before the document; or cast the document to text"
                }
                _ => "name it in quotes, such as 'simple'; one of rows or of a schema can be used in a view",
            };
            self.refuse(at, "sql.type_not_allowed", message, hint);
        }
    }

    /// `current_date` and its kin are harmless; `current_user` and its kin tell about the reader.
    pub(crate) fn value_function(&mut self, function: &Value, at: usize) {
        let last_of_time = pg_query::protobuf::SqlValueFunctionOp::SvfopLocaltimestampN as i64;
        if !function["op"].as_i64().is_some_and(|op| (1..=last_of_time).contains(&op)) {
            self.refuse_function("current_user, current_role, current_schema or current_catalog", at);
        }
    }

    fn refuse_function(&mut self, name: &str, at: usize) {
        let hint = "only built-in functions that neither change nor look up anything are allowed";
        self.refuse(at, "sql.function_not_allowed", format!("function {name} is not allowed"), hint);
    }

    /// `a.f` and `(a).f` mean `f(a)` where `a` has no such column, and for a scalar `a` too.
    pub(crate) fn attributes(&mut self, fields: &Value, skipped: usize, at: usize) {
        for name in names(fields).iter().skip(skipped).filter(|name| functions::is_risky_attribute(name)) {
            let message = format!("attribute {name} may be a call of function {name}");
            let hint = "if it is a column, name it without its table";
            self.refuse(at, "sql.function_not_allowed", message, hint);
        }
    }

    pub(crate) fn operator(&mut self, name: &Value, at: usize) {
        match names(name).as_slice() {
            [] | [_] | ["pg_catalog", _] => {}
            other => {
                let message = format!("operator {} is not allowed", other.join("."));
                self.refuse(at, "sql.operator_not_allowed", message, "only built-in operators are allowed");
            }
        }
    }

    pub(crate) fn type_name(&mut self, type_name: &Value, at: usize) {
        let names = names(&type_name["names"]);
        if type_name["location"].as_u64().is_some_and(|place| self.configurations.contains(&place)) {
            return;
        }
        let is_refused = |name: &str| REFUSED_TYPES.contains(&name.trim_start_matches('_'));
        if matches!(names.as_slice(), [name] | ["pg_catalog", name] if is_refused(name)) {
            let message = format!("type {} is not allowed", names.join("."));
            self.refuse(at, "sql.type_not_allowed", message, "cast to text or to a number");
        } else {
            self.schema_of("type", &names, at);
        }
    }

    pub(crate) fn collation(&mut self, clause: &Value, at: usize) {
        self.schema_of("collation", &names(&clause["collname"]), at);
    }

    /// Types and collations: built-in, or of an allowed schema.
    fn schema_of(&mut self, what: &str, names: &[&str], at: usize) {
        match names {
            [_] | ["pg_catalog", _] => {}
            [schema, _] if self.is_allowed_schema(schema) => {}
            other => {
                let message = format!("{what} {} is not allowed", other.join("."));
                let hint = format!("use a built-in {what}; {}", self.known_schemas());
                self.refuse(at, "sql.type_not_allowed", message, hint);
            }
        }
    }

    pub(crate) fn parameter(&mut self, parameter: &Value, at: usize) {
        let number = parameter["number"].as_i64().unwrap_or(0);
        if !(1..=self.parameters).contains(&number) {
            let message = format!("parameter ${number} has no value here");
            self.refuse(at, "sql.parameter", message, "write the value itself");
        }
    }

    pub(crate) fn refuse_construct(&mut self, name: &str, at: usize) {
        let message = format!("{name} is not allowed in a query");
        let hint = "write it with plain SELECT, JOIN, WITH, GROUP BY and built-in functions";
        self.refuse(at, "sql.construct_not_allowed", message, hint);
    }

    fn is_allowed_schema(&self, schema: &str) -> bool {
        self.allowed_schemas.iter().any(|allowed| allowed == schema)
    }

    fn known_schemas(&self) -> String {
        format!("allowed schemas: {}", self.allowed_schemas.join(", "))
    }
}

pub(crate) fn text(value: &Value) -> &str {
    value.as_str().unwrap_or("")
}

/// The parts of a dotted name. A part that is no name, such as `*`, is left out.
pub(crate) fn names(list: &Value) -> Vec<&str> {
    let parts = list.as_array().into_iter().flatten();
    parts.filter_map(|part| part["node"]["String"]["sval"].as_str()).collect()
}
