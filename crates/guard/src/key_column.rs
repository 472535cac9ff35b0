//! Which columns stand behind a key that a query returns, on every row of it. A name says nothing: `lower(code) as code` is another
//! key than the table's `code`, and whoever looked for changed rows by the one would not find those of the other. Nor does a
//! condition that does not hold for each row: rows without a partner in the named table would never be read.

use std::cell::Cell;

use serde_json::Value;

use crate::rules::{names, text};

/// A column of a table that a returned one is, or that the query says is equal to it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct BaseColumn {
    pub(crate) schema: String,
    pub(crate) table: String,
    pub(crate) column: String,
    pub(crate) casts: Casts,
    /// By `=`, which takes more values for one than a text does.
    pub(crate) by_equality: bool,
}

/// Between the column and the value that is returned.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Casts {
    /// To a whole number: other numbers would be rounded.
    pub(crate) to_integer: bool,
    /// To a text: `1.0` and `1.00` are two of them.
    pub(crate) to_text: bool,
}

/// More than anybody makes equal, and more than anybody reads of.
const MOST: usize = 100;
const LOOKS: usize = 10_000;

/// All of them, under casts that keep values apart or without. Where there are none, it may be anything.
pub(crate) fn columns_behind(sql: &str, name: &str) -> Vec<BaseColumn> {
    let read = |tree: &Value| {
        let looks = Cell::new(LOOKS);
        let found = Query::of(&tree["node"]["SelectStmt"], &[], &looks).columns(name);
        // What was not looked at may say otherwise.
        if looks.get() == 0 { Vec::new() } else { found }
    };
    crate::parse::look(sql, read).unwrap_or_default()
}

/// `alias.column`; without an alias, what a USING has made of two.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Reference {
    alias: String,
    column: String,
    casts: Casts,
}

enum Relation<'a> {
    Table {
        schema: &'a str,
        name: &'a str,
    },
    Query(Query<'a>),
    /// Its columns may have other names, or come from anywhere.
    Opaque,
}

/// One SELECT: what it reads, and which of its columns are equal on all of its rows.
struct Query<'a> {
    select: &'a Value,
    relations: Vec<(&'a str, Relation<'a>)>,
    equal: Vec<(Reference, Reference)>,
    /// How many there may still be: WITH queries are looked at where they are named, and name each other.
    looks: &'a Cell<usize>,
}

/// A WITH query, and those that it sees itself.
#[derive(Clone, Copy)]
struct With<'a> {
    name: &'a str,
    select: &'a Value,
    visible: usize,
}

impl<'a> Query<'a> {
    fn of(select: &'a Value, above: &[With<'a>], looks: &'a Cell<usize>) -> Self {
        let mut query = Self { select, relations: Vec::new(), equal: Vec::new(), looks };
        looks.set(looks.get().saturating_sub(1));
        // A set operation says nothing of where a row comes from.
        if !select["larg"].is_null() || looks.get() == 0 {
            return query;
        }
        let mut with = above.to_vec();
        let clause = &select["with_clause"];
        for one in list(&clause["ctes"]) {
            let one = &one["node"]["CommonTableExpr"];
            let is_plain = clause["recursive"] != Value::Bool(true) && list(&one["aliascolnames"]).is_empty();
            let body = if is_plain { &one["ctequery"]["node"]["SelectStmt"] } else { &Value::Null };
            with.push(With { name: text(&one["ctename"]), select: body, visible: with.len() });
        }
        for item in list(&select["from_clause"]) {
            query.from(item, true, &with);
        }
        query.condition(&select["where_clause"]);
        query
    }

    /// `holds`: what it says holds for each row.
    fn from(&mut self, item: &'a Value, holds: bool, with: &[With<'a>]) {
        const INNER: i64 = 1;
        const LEFT: i64 = 2;
        const RIGHT: i64 = 4;
        let Some((kind, body)) = item["node"].as_object().and_then(|node| node.iter().next()) else { return };
        let alias = text(&body["alias"]["aliasname"]);
        let is_renamed = !list(&body["alias"]["colnames"]).is_empty();
        match kind.as_str() {
            "RangeVar" => {
                let (schema, name) = (text(&body["schemaname"]), text(&body["relname"]));
                let query = || with.iter().rev().find(|one| schema.is_empty() && one.name == name);
                let relation = match query() {
                    _ if is_renamed => Relation::Opaque,
                    Some(one) if one.select.is_null() => Relation::Opaque,
                    Some(one) => Relation::Query(Query::of(
                        one.select,
                        with.get(..one.visible).unwrap_or_default(),
                        self.looks,
                    )),
                    None => Relation::Table { schema, name },
                };
                self.relations.push((if alias.is_empty() { name } else { alias }, relation));
            }
            "RangeSubselect" => {
                // What is lateral sees what is beside it, but its own columns are its own.
                let inner = Query::of(&body["subquery"]["node"]["SelectStmt"], with, self.looks);
                self.relations
                    .push((alias, if is_renamed { Relation::Opaque } else { Relation::Query(inner) }));
            }
            "JoinExpr" => {
                let join = body["jointype"].as_i64();
                // What is joined under a name is seen under that name alone.
                if !alias.is_empty() {
                    return self.relations.push((alias, Relation::Opaque));
                }
                self.from(&body["larg"], holds && matches!(join, Some(INNER | LEFT)), with);
                self.from(&body["rarg"], holds && matches!(join, Some(INNER | RIGHT)), with);
                if holds && join == Some(INNER) {
                    self.condition(&body["quals"]);
                    self.used(body);
                }
            }
            _ => self.relations.push((alias, Relation::Opaque)),
        }
    }

    /// A condition that is one of several, or the opposite of one, says nothing.
    fn condition(&mut self, node: &Value) {
        const AND: i64 = 1;
        const OPERATOR: i64 = 1;
        let (all, one) = (&node["node"]["BoolExpr"], &node["node"]["AExpr"]);
        if all["boolop"].as_i64() == Some(AND) {
            list(&all["args"]).iter().for_each(|part| self.condition(part));
        }
        if one["kind"].as_i64() == Some(OPERATOR)
            && names(&one["name"]) == ["="]
            && let Some((left, right)) = self.column(&one["lexpr"]).zip(self.column(&one["rexpr"]))
            // Under a cast other values are equal.
            && [&left, &right].iter().all(|side| side.casts == Casts::default())
        {
            self.equal.push((left, right));
        }
    }

    /// `a join b using (id)`: of both.
    fn used(&mut self, join: &'a Value) {
        let of = |side: &str, column: &str| {
            let table = Some(&join[side]["node"]["RangeVar"]).filter(|table| !table.is_null())?;
            let alias = text(&table["alias"]["aliasname"]);
            let alias = if alias.is_empty() { text(&table["relname"]) } else { alias };
            Some(Reference { alias: alias.to_owned(), column: column.to_owned(), casts: Casts::default() })
        };
        for column in names(&join["using_clause"]) {
            let merged =
                Reference { alias: String::new(), column: column.to_owned(), casts: Casts::default() };
            let sides = ["larg", "rarg"].iter().filter_map(|side| of(side, column));
            self.equal.extend(sides.map(|side| (merged.clone(), side)));
        }
    }

    fn columns(&self, name: &str) -> Vec<BaseColumn> {
        let targets = list(&self.select["target_list"]).iter();
        let mut named = targets.filter_map(|target| {
            let target = &target["node"]["ResTarget"];
            let reference = self.column(&target["val"]);
            let name = match (text(&target["name"]), &reference) {
                ("", Some(reference)) => reference.column.clone(),
                (name, _) => name.to_owned(),
            };
            Some((name, reference?))
        });
        let Some((_, first)) = named.by_ref().find(|(known, _)| known == name) else { return Vec::new() };
        if named.any(|(known, _)| known == name) {
            return Vec::new();
        }
        let mut known = vec![(first, false)];
        let mut found = Vec::new();
        self.looks.set(self.looks.get().saturating_sub(1));
        let mut next = 0;
        while let Some((one, by_equality)) =
            known.get(next).cloned().filter(|_| next < MOST && self.looks.get() > 0)
        {
            next += 1;
            // Of what is not known nobody can tell which values it calls equal.
            if !self.behind(&one, by_equality, &mut found) {
                return Vec::new();
            }
            for (left, right) in &self.equal {
                let is_one = |other: &Reference| (&other.alias, &other.column) == (&one.alias, &one.column);
                let other = match (is_one(left), is_one(right)) {
                    (true, false) => right,
                    (false, true) => left,
                    _ => continue,
                };
                let other = Reference { casts: one.casts, ..other.clone() };
                if !known
                    .iter()
                    .any(|(known, _)| (&known.alias, &known.column) == (&other.alias, &other.column))
                {
                    known.push((other, true));
                }
            }
        }
        found
    }

    /// Whether it is known what it is.
    fn behind(&self, one: &Reference, by_equality: bool, found: &mut Vec<BaseColumn>) -> bool {
        let meant: Vec<_> = self.relations.iter().filter(|(alias, _)| *alias == one.alias).collect();
        match meant.as_slice() {
            [(_, Relation::Table { schema, name })] => {
                found.push(BaseColumn {
                    schema: (*schema).to_owned(),
                    table: (*name).to_owned(),
                    column: one.column.clone(),
                    casts: one.casts,
                    by_equality,
                });
                true
            }
            [(_, Relation::Query(query))] => {
                let inner = query.columns(&one.column);
                let is_known = !inner.is_empty();
                found.extend(inner.into_iter().map(|inner| {
                    let by_equality = by_equality || inner.by_equality;
                    BaseColumn { casts: one.casts.and(inner.casts), by_equality, ..inner }
                }));
                is_known
            }
            // Both sides of a USING are known by themselves.
            [] => one.alias.is_empty(),
            _ => false,
        }
    }

    /// A column under casts that tell all values apart which it tells apart.
    fn column(&self, node: &Value) -> Option<Reference> {
        let node = &node["node"];
        if let Some(fields) = node.get("ColumnRef").map(|column| &column["fields"]) {
            let parts = names(fields);
            let is_star = list(fields).len() != parts.len();
            let (alias, column) = match parts.as_slice() {
                [column] => (self.alone(), *column),
                [alias, column] | [_, alias, column] => (*alias, *column),
                _ => return None,
            };
            let (alias, column) = (alias.to_owned(), column.to_owned());
            return (!is_star).then_some(Reference { alias, column, casts: Casts::default() });
        }
        let cast = node.get("TypeCast")?;
        let kind = &cast["type_name"];
        let is_plain = ["typmods", "array_bounds"].iter().all(|part| list(&kind[part]).is_empty());
        let reference = self.column(&cast["arg"]).filter(|_| is_plain)?;
        let casts = match *names(&kind["names"]).last()? {
            "text" | "varchar" => Casts { to_text: true, ..reference.casts },
            "int2" | "int4" | "int8" => Casts { to_integer: true, ..reference.casts },
            _ => return None,
        };
        Some(Reference { casts, ..reference })
    }

    /// What a column without a qualifier belongs to: nothing where there are several.
    fn alone(&self) -> &'a str {
        match self.relations.as_slice() {
            [(alias, _)] => alias,
            _ => "",
        }
    }
}

impl Casts {
    fn and(self, other: Self) -> Self {
        Self { to_integer: self.to_integer || other.to_integer, to_text: self.to_text || other.to_text }
    }
}

fn list(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}
