//! Which columns the FROM clauses and WITH queries of a statement offer, and what is known of their sizes.

use serde_json::Value;

use super::{STEPS_OF_AN_EXPRESSION, Size, UNBOUNDED, Work};
use crate::rules::{names, text};

/// A list that is longer is not looked into: Postgres allows 1664 columns.
const MAX_COLUMNS: usize = 2_000;
/// Of the parser's enumeration of set operations.
const UNION: i32 = 2;
/// As many as a row may be written out into, where it does not say how many it has.
const FIELDS: u64 = 64;
/// So often the term of a WITH RECURSIVE is looked at to see what grows.
const MAX_RECURSIONS: usize = 2;

#[derive(Debug, Clone, Default)]
pub(super) struct Columns {
    pub(super) named: Vec<(String, Size)>,
    /// Any other name, as of a table.
    rest: Option<Size>,
}

impl Columns {
    fn of_any_name(size: Size) -> Self {
        Self { named: Vec::new(), rest: Some(size) }
    }

    pub(super) fn push(&mut self, name: &str, size: Size) {
        if self.named.len() < MAX_COLUMNS {
            self.named.push((name.to_owned(), size));
        } else {
            self.rest = Some(self.rest.map_or(size, |rest| rest.or(size)));
        }
    }

    fn append(&mut self, other: &Self) {
        other.named.iter().for_each(|(name, size)| self.push(name, *size));
        self.rest = self.rest.into_iter().chain(other.rest).reduce(Size::or);
    }

    /// Of several that a join has made one of, the first that is not null.
    fn get(&self, name: &str) -> Option<Size> {
        let named = self.named.iter().filter(|(known, _)| known == name).map(|(_, size)| *size);
        named.reduce(Size::either)
    }

    fn all(&self) -> impl Iterator<Item = Size> + '_ {
        self.named.iter().map(|(_, size)| *size).chain(self.rest)
    }

    /// What it takes to write all of them out once more, beside what plain columns take.
    fn copied(&self) -> u64 {
        let beyond = self.all().map(|size| size.steps.saturating_sub(STEPS_OF_AN_EXPRESSION));
        beyond.fold(0, u64::saturating_add)
    }

    fn each(self, change: impl Fn(Size) -> Size) -> Self {
        let named = self.named.into_iter().map(|(name, size)| (name, change(size))).collect();
        Self { named, rest: self.rest.map(change) }
    }

    /// `t (a, b)`. Behind the columns of a table nobody knows which one a name is given to.
    fn renamed(mut self, aliases: &[&str]) -> Self {
        if self.rest.is_some() {
            let any = self.all().reduce(Size::or);
            let unknown = aliases.iter().filter(|alias| !self.named.iter().any(|(known, _)| known == *alias));
            let unknown: Vec<_> = unknown.filter_map(|alias| Some(((*alias).to_owned(), any?))).collect();
            self.named.extend(unknown);
            return self;
        }
        for (column, alias) in self.named.iter_mut().zip(aliases) {
            (*alias).clone_into(&mut column.0);
        }
        self
    }

    /// Of a UNION: by position, under the names of the first.
    fn or(mut self, other: &Self) -> Self {
        if self.rest.is_some() || other.rest.is_some() {
            let any = self.all().chain(other.all()).reduce(Size::either);
            let names: Vec<String> = self.named.iter().map(|(name, _)| name.clone()).collect();
            let named = names.into_iter().filter_map(|name| Some((name, any?))).collect();
            return Self { named, rest: any };
        }
        for (column, (_, size)) in self.named.iter_mut().zip(&other.named) {
            column.1 = column.1.either(*size);
        }
        self
    }
}

#[derive(Debug)]
struct Relation {
    alias: String,
    columns: Columns,
    /// To write out all of its columns.
    copied: u64,
}

#[derive(Debug, Default)]
pub(super) struct Scope<'s> {
    above: Option<&'s Scope<'s>>,
    /// It sees the WITH queries above, and not the tables beside it.
    is_apart: bool,
    with: Vec<(String, Columns)>,
    relations: Vec<Relation>,
}

impl<'s> Scope<'s> {
    fn below(above: &'s Self) -> Self {
        Self { above: Some(above), ..Self::default() }
    }

    fn apart_from(beside: &'s Self) -> Self {
        Self { above: Some(beside), is_apart: true, ..Self::default() }
    }

    fn outer(&self) -> Option<&'s Self> {
        let above = self.above?;
        if self.is_apart { above.outer() } else { Some(above) }
    }

    fn with_query(&self, name: &str) -> Option<&Columns> {
        let here = self.with.iter().rev().find(|(known, _)| known == name).map(|(_, columns)| columns);
        here.or_else(|| self.above.and_then(|above| above.with_query(name)))
    }

    /// `name`, in the nearest FROM clause that has it. A table may have any name.
    fn unqualified(&self, name: &str) -> Option<Size> {
        let named =
            self.relations.iter().filter_map(|relation| relation.columns.get(name)).reduce(Size::either);
        let above = || self.outer().and_then(|above| above.unqualified(name));
        let any = || self.relations.iter().filter_map(|relation| relation.columns.rest).reduce(Size::or);
        let row = || self.relations.iter().any(|relation| relation.alias == name).then(|| self.row(name));
        named.or_else(row).or_else(|| match (any(), above()) {
            (Some(any), Some(above)) => Some(any.either(above)),
            (any, above) => any.or(above),
        })
    }

    fn qualified(&self, alias: &str, name: &str) -> Option<Size> {
        let relation = self.relations.iter().find(|relation| relation.alias == alias);
        match relation {
            // Else it is a function of the row.
            Some(relation) => {
                Some(relation.columns.get(name).or(relation.columns.rest).unwrap_or_else(|| self.row(alias)))
            }
            None => self.outer().and_then(|above| above.qualified(alias, name)),
        }
    }

    fn row(&self, alias: &str) -> Size {
        let relation = self.relations.iter().find(|relation| relation.alias == alias);
        let row = relation.and_then(|relation| relation.columns.all().reduce(Size::and));
        row.map_or(Size::UNBOUNDED, Size::escaped)
    }

    /// What is not found may be any of all that there is.
    pub(super) fn column(&self, fields: &Value) -> Size {
        let size = match names(fields).as_slice() {
            [name] => self.unqualified(name),
            [alias, name] | [_, alias, name] => self.qualified(alias, name),
            _ => None,
        };
        size.unwrap_or_else(|| Size { steps: self.steps_of_all(), ..Size::UNBOUNDED })
    }

    fn steps_of_all(&self) -> u64 {
        let here = self.relations.iter().flat_map(|relation| relation.columns.all()).map(|size| size.steps);
        let above = self.outer().map_or(0, Scope::steps_of_all);
        here.fold(above.max(Size::UNBOUNDED.steps), u64::saturating_add)
    }

    /// `*` and `a.*`
    pub(super) fn star(&self, fields: &Value) -> Columns {
        let qualifier = names(fields).last().copied();
        let mut columns = Columns::default();
        let is_meant = |relation: &&Relation| qualifier.is_none_or(|alias| alias == relation.alias);
        self.relations.iter().filter(is_meant).for_each(|relation| columns.append(&relation.columns));
        if columns.all().next().is_none() {
            let above = self.outer().filter(|_| qualifier.is_some()).map(|above| above.star(fields));
            return above.unwrap_or_else(|| Columns::of_any_name(Size::STORED));
        }
        columns
    }
}

impl Work<'_> {
    pub(super) fn select(&mut self, select: &Value, above: &Scope, at: usize) -> Columns {
        let mut scope = Scope::below(above);
        self.with_clause(&select["with_clause"], &mut scope, at);
        for item in list(&select["from_clause"]) {
            self.from(item, &mut scope, at);
        }
        for (field, value) in select.as_object().into_iter().flatten() {
            if !matches!(
                field.as_str(),
                "with_clause" | "from_clause" | "target_list" | "larg" | "rarg" | "values_lists"
            ) {
                let size = self.expressions(value, &scope, at);
                self.spend(size, at);
            }
        }
        let columns = if !select["larg"].is_null() {
            let left = self.select(&select["larg"], &scope, at);
            let both = left.or(&self.select(&select["rarg"], &scope, at));
            // The planner reads each part of a UNION ALL with what stands around it.
            let is_read_apart = select["op"] == UNION && select["all"] == Value::Bool(true);
            if is_read_apart { both } else { both.each(computed_by_itself) }
        } else if list(&select["values_lists"]).is_empty() {
            self.target_list(&select["target_list"], &scope, at)
        } else {
            self.values(&select["values_lists"], &scope, at)
        };
        if is_computed_by_itself(select) { columns.each(computed_by_itself) } else { columns }
    }

    fn target_list(&mut self, targets: &Value, scope: &Scope, at: usize) -> Columns {
        let mut columns = Columns::default();
        for target in list(targets) {
            let target = &target["node"]["ResTarget"];
            let value = &target["val"]["node"];
            let fields = &value["ColumnRef"]["fields"];
            let is_star = list(fields).last().is_some_and(|last| !last["node"]["AStar"].is_null());
            if is_star {
                let star = scope.star(fields);
                self.spend(Size { steps: star.copied(), ..Size::STORED }, at);
                columns.append(&star);
                continue;
            }
            let size = self.expression(&target["val"], scope, at);
            let at = target["location"].as_u64().and_then(|at| usize::try_from(at).ok()).unwrap_or(at);
            let indirection = &value["AIndirection"];
            if list(&indirection["indirection"]).last().is_some_and(|last| !last["node"]["AStar"].is_null()) {
                // `(row).*`: the row is computed for each of its fields, whatever these are called.
                let fields = list(&indirection["arg"]["node"]["RowExpr"]["args"]).len() as u64;
                self.spend(size.times(if fields == 0 { FIELDS } else { fields }), at);
                columns.rest = Some(columns.rest.map_or(size, |rest| rest.either(size)));
                continue;
            }
            self.spend(size, at);
            let name = match text(&target["name"]) {
                "" => name_of(value),
                name => name,
            };
            columns.push(name, size);
        }
        columns
    }

    fn values(&mut self, rows: &Value, scope: &Scope, at: usize) -> Columns {
        let mut columns: Option<Columns> = None;
        for row in list(rows) {
            let mut these = Columns::default();
            for (place, value) in list(&row["node"]["List"]["items"]).iter().enumerate() {
                let size = self.expression(value, scope, at);
                self.spend(size, at);
                these.push(&format!("column{}", place + 1), size);
            }
            columns = Some(columns.map_or_else(|| these.clone(), |columns| columns.or(&these)));
        }
        columns.unwrap_or_default()
    }

    fn with_clause(&mut self, with: &Value, scope: &mut Scope, at: usize) {
        for query in list(&with["ctes"]) {
            let query = &query["node"]["CommonTableExpr"];
            let (name, aliases) = (text(&query["ctename"]), names(&query["aliascolnames"]));
            let body = &query["ctequery"]["node"]["SelectStmt"];
            let is_recursive = with["recursive"] == Value::Bool(true) && !body["larg"].is_null();
            let columns = if is_recursive {
                self.recursive(name, &aliases, body, scope, at)
            } else {
                self.select(body, scope, at).renamed(&aliases)
            };
            scope.with.push((name.to_owned(), columns));
        }
    }

    /// What is larger after a turn than before may grow without end.
    fn recursive(&mut self, name: &str, aliases: &[&str], body: &Value, scope: &Scope, at: usize) -> Columns {
        let mut inner = Scope::below(scope);
        self.with_clause(&body["with_clause"], &mut inner, at);
        let first = self.select(&body["larg"], &inner, at).renamed(aliases);
        let mut columns = first.each(computed_by_itself);
        inner.with.push((name.to_owned(), columns.clone()));
        self.recursions += 1;
        for turn in 0.. {
            if turn == MAX_RECURSIONS || self.recursions > MAX_RECURSIONS {
                columns = columns.each(|_| Size::UNBOUNDED);
            }
            if let Some((_, known)) = inner.with.last_mut() {
                *known = columns.clone();
            }
            let (steps, found) = (self.steps, self.findings.len());
            let next = self.select(&body["rarg"], &inner, at).each(computed_by_itself);
            let grown = columns.clone().or(&next);
            let sizes = |columns: &Columns| columns.all().map(|size| size.bytes).collect::<Vec<_>>();
            if sizes(&grown) == sizes(&columns) || turn >= MAX_RECURSIONS {
                break;
            }
            (self.steps, columns) = (steps, grow(&columns, &grown));
            self.findings.truncate(found);
        }
        self.recursions -= 1;
        columns
    }

    fn from(&mut self, item: &Value, scope: &mut Scope, at: usize) {
        let Some((kind, body)) = item["node"].as_object().and_then(|node| node.iter().next()) else { return };
        let at = body["location"].as_u64().and_then(|at| usize::try_from(at).ok()).unwrap_or(at);
        let aliases = names(&body["alias"]["colnames"]);
        let (alias, columns) = match kind.as_str() {
            "RangeVar" => {
                let name = text(&body["relname"]);
                let is_table = !text(&body["schemaname"]).is_empty();
                let columns = if is_table {
                    Some(Columns::of_any_name(Size::STORED))
                } else {
                    scope.with_query(name).cloned()
                };
                (name, columns.unwrap_or_else(|| Columns::of_any_name(Size::UNBOUNDED)))
            }
            "RangeSubselect" => ("", self.sub_select(body, scope, at)),
            "RangeFunction" => ("", self.functions(body, scope, at)),
            "JoinExpr" => {
                let before = scope.relations.len();
                self.from(&body["larg"], scope, at);
                self.from(&body["rarg"], scope, at);
                let on = self.expressions(&body["quals"], scope, at);
                self.spend(on, at);
                // Each column that both sides have is compared, as it is written out.
                if body["is_natural"] == Value::Bool(true) || !list(&body["using_clause"]).is_empty() {
                    let copied = scope.relations[before..].iter().map(|relation| relation.copied);
                    let steps = copied.fold(0, u64::saturating_add);
                    self.spend(Size { steps, ..Size::STORED }, at);
                }
                if text(&body["alias"]["aliasname"]).is_empty() {
                    return;
                }
                let mut columns = Columns::default();
                scope.relations[before..].iter().for_each(|relation| columns.append(&relation.columns));
                // What is joined is no longer called by its own names.
                scope.relations.truncate(before);
                ("", columns)
            }
            _ => ("", Columns::of_any_name(Size::UNBOUNDED)),
        };
        let alias = match text(&body["alias"]["aliasname"]) {
            "" => alias,
            alias => alias,
        };
        let copied = columns.copied();
        let columns = columns.renamed(&aliases);
        scope.relations.push(Relation { alias: alias.to_owned(), columns, copied });
    }

    /// Only a lateral one sees what is beside it.
    fn sub_select(&mut self, body: &Value, scope: &Scope, at: usize) -> Columns {
        let query = &body["subquery"]["node"]["SelectStmt"];
        if body["lateral"] == Value::Bool(true) {
            return self.select(query, scope, at);
        }
        self.select(query, &Scope::apart_from(scope), at)
    }

    /// A function of one value is a column of the name of the function, or of its alias.
    fn functions(&mut self, body: &Value, scope: &Scope, at: usize) -> Columns {
        let mut any: Option<Size> = None;
        for function in list(&body["functions"]) {
            let size = self.expressions(function, scope, at);
            self.spend(size, at);
            any = Some(any.map_or(size, |any| any.or(size)));
        }
        let any = any.unwrap_or(Size::UNBOUNDED);
        let mut columns = Columns::of_any_name(any);
        for column in list(&body["coldeflist"]) {
            let column = &column["node"]["ColumnDef"];
            let size = self.typed(&column["type_name"], any, at);
            columns.push(text(&column["colname"]), size);
        }
        // `with ordinality as a (word, n)`
        if body["ordinality"] == Value::Bool(true) {
            let aliases = names(&body["alias"]["colnames"]);
            columns.push(aliases.last().copied().unwrap_or("ordinality"), Size::varying(0));
        }
        columns
    }
}

/// The planner reads a plain sub-query as if its expressions stood where its columns do. These it does not.
fn is_computed_by_itself(select: &Value) -> bool {
    const PARTS: [&str; 6] =
        ["distinct_clause", "group_clause", "having_clause", "sort_clause", "limit_count", "limit_offset"];
    PARTS.iter().any(|part| !list(&select[part]).is_empty() || !select[part]["node"].is_null())
}

fn computed_by_itself(size: Size) -> Size {
    Size { bytes: size.bytes.min(UNBOUNDED), element: size.element, ..Size::STORED }
}

fn grow(before: &Columns, after: &Columns) -> Columns {
    let grown = |(one, other): (Size, Size)| if other.bytes > one.bytes { Size::UNBOUNDED } else { one };
    let pairs = before.named.iter().zip(&after.named);
    let named = pairs.map(|((name, one), (_, other))| (name.clone(), grown((*one, *other)))).collect();
    let rest = after.rest.map(|other| grown((before.rest.unwrap_or(Size::varying(0)), other)));
    Columns { named, rest }
}

/// What Postgres calls a column without a name. A name that is not found counts as large.
fn name_of(value: &Value) -> &str {
    let Some((kind, body)) = value.as_object().and_then(|node| node.iter().next()) else { return "" };
    match kind.as_str() {
        "ColumnRef" => names(&body["fields"]).last().copied().unwrap_or_default(),
        "FuncCall" => names(&body["funcname"]).last().copied().unwrap_or_default(),
        "AIndirection" => {
            names(&body["indirection"]).last().copied().unwrap_or_else(|| name_of(&body["arg"]["node"]))
        }
        "TypeCast" => match name_of(&body["arg"]["node"]) {
            "" => names(&body["type_name"]["names"]).last().copied().unwrap_or_default(),
            name => name,
        },
        "CollateClause" => name_of(&body["arg"]["node"]),
        "AArrayExpr" => "array",
        "CoalesceExpr" => "coalesce",
        "MinMaxExpr" if body["op"] == 1 => "greatest",
        "MinMaxExpr" => "least",
        "RowExpr" => "row",
        "CaseExpr" => match name_of(&body["defresult"]["node"]) {
            "" => "case",
            name => name,
        },
        "SubLink" if body["sub_link_type"] == ARRAY_OF_ROWS => "array",
        "SubLink" => {
            let targets = list(&body["subselect"]["node"]["SelectStmt"]["target_list"]);
            let first = targets.first().map_or(&Value::Null, |first| &first["node"]["ResTarget"]);
            match text(&first["name"]) {
                "" => name_of(&first["val"]["node"]),
                name => name,
            }
        }
        _ => "",
    }
}

/// `array(select …)`
pub(super) const ARRAY_OF_ROWS: i64 = 7;

pub(super) fn list(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}
