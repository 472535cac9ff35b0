//! Every node of a syntax tree, by allow-list: what is not known to be harmless is refused.
//!
//! The tree is the parser's own, as JSON: a node is `{"node": {"Kind": {fields}}}`, and some fields
//! hold a structure without naming its kind. Fields not spoken of here are walked all the same.

use pg_query::protobuf::Token;
use serde_json::{Map, Value};

use crate::Finding;
use crate::rules::text;

/// More findings than this help nobody.
const MAX_FINDINGS: usize = 100;

/// Kinds with nothing to check but their children.
#[rustfmt::skip]
const HARMLESS: &[&str] = &[
    "AArrayExpr", "AIndices", "AStar", "Alias", "BitString", "BoolExpr", "Boolean", "BooleanTest",
    "CaseExpr", "CaseWhen", "CoalesceExpr", "ColumnDef", "CommonTableExpr", "CteCycleClause",
    "CteSearchClause", "Float", "GroupingFunc", "GroupingSet", "Integer", "JoinExpr", "List",
    "MinMaxExpr", "NamedArgExpr", "NullTest", "RangeFunction", "RangeSubselect", "ResTarget",
    "RowExpr", "String", "TypeCast", "WindowDef",
];

/// The kinds of structures that stand in a field of their own, untold.
fn kind_of_field(field: &str) -> Option<&'static str> {
    Some(match field {
        "alias" | "join_using_alias" => "Alias",
        "coll_clause" => "CollateClause",
        "cycle_clause" => "CteCycleClause",
        "into_clause" => "IntoClause",
        "larg" | "rarg" => "SelectStmt",
        "over" => "WindowDef",
        "search_clause" => "CteSearchClause",
        "type_name" => "TypeName",
        "with_clause" => "WithClause",
        _ => return None,
    })
}

#[derive(Debug)]
pub(crate) struct Walk<'a> {
    sql: &'a str,
    pub(crate) allowed_schemas: &'a [String],
    /// `$1` up to this number may be used.
    pub(crate) parameters: i64,
    /// Names that stand for a WITH query at this place of the tree.
    pub(crate) visible: Vec<String>,
    /// Where the name of a built-in configuration is cast to one.
    pub(crate) configurations: Vec<u64>,
    findings: Vec<(usize, Finding)>,
}

impl<'a> Walk<'a> {
    pub(crate) fn new(sql: &'a str, allowed_schemas: &'a [String], parameters: i64) -> Self {
        let (visible, configurations, findings) = Default::default();
        Self { sql, allowed_schemas, parameters, visible, configurations, findings }
    }

    pub(crate) fn statement(&mut self, tree: &Value, at: usize) {
        match tree.as_object().and_then(tagged) {
            Some(("SelectStmt", select)) => self.select(select, at),
            other => {
                let kind = other.map_or("unknown statement", |(kind, _)| kind.trim_end_matches("Stmt"));
                let message = format!("{} is not allowed, only SELECT is", kind.to_lowercase());
                self.refuse(at, "sql.not_select", message, "write a SELECT");
            }
        }
    }

    /// In the order of the text.
    pub(crate) fn into_findings(mut self) -> Vec<Finding> {
        self.findings.sort_by_key(|(at, _)| *at);
        self.findings.into_iter().map(|(_, finding)| finding).collect()
    }

    pub(crate) fn refuse(
        &mut self,
        at: usize,
        code: &'static str,
        message: impl Into<String>,
        hint: impl Into<String>,
    ) {
        if self.findings.len() < MAX_FINDINGS {
            self.findings.push((at, Finding::at(self.sql, at, code, message).hint(hint)));
        }
    }

    /// `at` is the place of the nearest node above that knows its own.
    fn value(&mut self, field: &str, value: &Value, at: usize) {
        match value {
            Value::Array(items) => items.iter().for_each(|item| self.value(field, item, at)),
            Value::Object(object) if is_absent(object) => {}
            Value::Object(object) => {
                match tagged(object).or_else(|| kind_of_field(field).map(|kind| (kind, value))) {
                    Some((kind, body)) => self.node(kind, body, at),
                    None => self.refuse_construct(field, at),
                }
            }
            _ => {}
        }
    }

    fn node(&mut self, kind: &str, body: &Value, above: usize) {
        let at = location(body).unwrap_or(above);
        match kind {
            "SelectStmt" => return self.select(body, at),
            "WithClause" => return self.with(body, at),
            "AConst" => return,
            "IntoClause" => {
                let at = location(&body["rel"]).unwrap_or(at);
                return self.refuse(at, "sql.into", "SELECT INTO creates a table", "leave INTO out");
            }
            "LockingClause" => {
                let hint = "leave FOR UPDATE or FOR SHARE out";
                let at = first_lock(self.sql).unwrap_or(at);
                return self.refuse(at, "sql.locking", "the query locks rows", hint);
            }
            "InsertStmt" | "UpdateStmt" | "DeleteStmt" | "MergeStmt" => {
                let message = format!("{} inside a query", kind.trim_end_matches("Stmt").to_lowercase());
                return self.refuse(at, "sql.data_modifying", message, "only SELECT may stand in WITH");
            }
            "RangeVar" => self.table(body, at),
            "FuncCall" => self.function(body, at),
            "SqlvalueFunction" => self.value_function(body, at),
            "ColumnRef" => self.attributes(&body["fields"], 1, at),
            "AIndirection" => self.attributes(&body["indirection"], 0, at),
            "AExpr" => self.operator(&body["name"], at),
            "SubLink" => self.operator(&body["oper_name"], at),
            "SortBy" => self.operator(&body["use_op"], at),
            "TypeName" => self.type_name(body, at),
            "CollateClause" => self.collation(body, at),
            "ParamRef" => self.parameter(body, at),
            harmless if HARMLESS.contains(&harmless) => {}
            unknown => return self.refuse_construct(unknown, at),
        }
        self.children(body, at);
    }

    fn children(&mut self, body: &Value, at: usize) {
        for (field, value) in body.as_object().into_iter().flatten() {
            self.value(field, value, at);
        }
    }

    /// The names of a WITH clause are visible in the whole SELECT it stands before, and no further.
    fn select(&mut self, select: &Value, at: usize) {
        let outer = self.visible.len();
        self.value("with_clause", &select["with_clause"], at);
        for (field, value) in select.as_object().into_iter().flatten() {
            if field != "with_clause" {
                self.value(field, value, at);
            }
        }
        self.visible.truncate(outer);
    }

    /// Among each other, WITH queries see those before them; with RECURSIVE, all of them.
    fn with(&mut self, with: &Value, at: usize) {
        let ctes: Vec<&Value> = with["ctes"].as_array().into_iter().flatten().collect();
        let name = |cte: &Value| text(&cte["node"]["CommonTableExpr"]["ctename"]).to_owned();
        let recursive = with["recursive"] == Value::Bool(true);
        if recursive {
            self.visible.extend(ctes.iter().map(|cte| name(cte)));
        }
        for cte in ctes {
            self.value("ctes", cte, at);
            if !recursive {
                self.visible.push(name(cte));
            }
        }
    }
}

/// `{"node": {"Kind": {fields}}}`.
fn tagged(object: &Map<String, Value>) -> Option<(&str, &Value)> {
    let node = object.get("node").filter(|_| object.len() == 1)?.as_object()?;
    node.iter().next().map(|(kind, body)| (kind.as_str(), body))
}

/// `{"node": null}`: the parser's way to leave a place empty, as in a plain DISTINCT.
fn is_absent(object: &Map<String, Value>) -> bool {
    object.len() == 1 && object.get("node").is_some_and(Value::is_null)
}

fn location(body: &Value) -> Option<usize> {
    body["location"].as_u64().and_then(|at| usize::try_from(at).ok())
}

/// The parser does not keep where a locking clause stands. FOR of a substring is followed by something else.
fn first_lock(sql: &str) -> Option<usize> {
    let tokens = pg_query::scan(sql).ok()?.tokens;
    let locks = |token: Token| matches!(token, Token::Update | Token::Share | Token::No | Token::Key);
    let pair = tokens.windows(2).find(|pair| pair[0].token() == Token::For && locks(pair[1].token()))?;
    usize::try_from(pair[0].start).ok()
}
