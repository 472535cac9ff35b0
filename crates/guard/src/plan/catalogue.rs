//! What the names of a query lead to, by the source's catalogue.

use std::collections::BTreeSet;

use tokio_postgres::types::ToSql;
use tokio_postgres::{Client, Row};

use super::calls::Name;
use super::explained::Relation;
use super::references::{References, Table};
use crate::{Finding, functions};

/// Most queries name plain tables and built-in types, and most sources have no casts of their own: then there is nothing
/// to follow, and the long question, which takes the server some milliseconds to plan, need not be asked.
const LEADS_ON: &str = "
select exists (select from unnest($1::text[], $2::text[]) w (schema, name) join pg_namespace s on s.nspname = w.schema
                 join pg_class c on c.relnamespace = s.oid and c.relname = w.name where c.relkind = 'v')
    or exists (select from unnest($1::text[], $2::text[]) w (schema, name) join pg_namespace s on s.nspname = w.schema
                 join pg_class c on c.relnamespace = s.oid and c.relname = w.name
                 join pg_attribute a on a.attrelid = c.oid and a.attnum > 0 join pg_type t on t.oid = a.atttypid
                where t.oid >= 16384 and t.typtype <> 'e')
    or exists (select from pg_cast where castfunc >= 16384)";

/// One row for each thing that the query reaches and that is not simply built in: which of the tables it is reached by,
/// what it is, its name, the view or type that leads to it, and whether it may be.
///
/// A cast is used if its target is named; if it is implicit; to json by functions that make documents of whatever they
/// are given; and to text by Vitrina itself. Domains check what is cast to them, and what becomes a value of theirs inside
/// of an array, a row or a range: a literal beside a column of such a type takes it without a cast (`spans @> 'x'`). Ranges
/// make what they are given canonical. Whatever sorts, groups or joins calls the default operator class of its type.
///
/// Functions of extensions may be reached by views and casts if they are immutable and run with the caller's rights:
/// such are those of citext, hstore, pg_trgm or PostGIS. Those that run SQL from text or open connections (tablefunc,
/// dblink) are not immutable. Of other functions nobody knows what they do.
const REACHED: &str = "
with recursive named as (
  select w.n, c.oid from unnest($1::text[], $2::text[]) with ordinality w (schema, name, n)
    join pg_namespace s on s.nspname = w.schema join pg_class c on c.relnamespace = s.oid and c.relname = w.name
), reached as (
  select n, oid, oid as via from named
  union
  select r.n, d.refobjid, r.oid from reached r
    join pg_class v on v.oid = r.oid and v.relkind = 'v'
    join pg_rewrite w on w.ev_class = v.oid and w.ev_type = '1'
    join pg_depend d on d.classid = 'pg_rewrite'::regclass and d.objid = w.oid
                    and d.refclassid = 'pg_class'::regclass and d.refobjid <> v.oid
), used as (
  select distinct r.n, v.oid::regclass::text as via, d.refclassid, d.refobjid from reached r
    join pg_class v on v.oid = r.oid and v.relkind = 'v'
    join pg_rewrite w on w.ev_class = v.oid and w.ev_type = '1'
    join pg_depend d on d.classid = 'pg_rewrite'::regclass and d.objid = w.oid
), types as (
  select 0::bigint as n, true as spoken, t.oid from unnest($3::text[], $4::text[]) w (schema, name)
    join pg_namespace s on s.nspname = w.schema join pg_type t on t.typnamespace = s.oid and t.typname = w.name
  union
  select u.n, true, u.refobjid from used u where u.refclassid = 'pg_type'::regclass
  union
  select r.n, $5 or y.typtype in ('c', 'r', 'm') or y.typelem <> 0, a.atttypid from reached r
    join pg_attribute a on a.attrelid = r.oid and a.attnum > 0 and not a.attisdropped join pg_type y on y.oid = a.atttypid
  union
  select t.n, t.spoken, p.oid from types t, lateral (
    select typelem as oid from pg_type where oid = t.oid
    union all select typbasetype from pg_type where oid = t.oid
    union all select rngsubtype from pg_range where rngtypid = t.oid
    union all select m.rngtypid from pg_range m where (to_jsonb(m) ->> 'rngmultitypid')::oid = t.oid
    union all select a.atttypid from pg_type c join pg_attribute a on a.attrelid = c.typrelid and a.attnum > 0 and not a.attisdropped
               where c.oid = t.oid) p
   where p.oid <> 0
), constrained as (
  select t.n, t.oid, d.refclassid, d.refobjid from types t join pg_constraint k on k.contypid = t.oid
    join pg_depend d on d.classid = 'pg_constraint'::regclass and d.objid = k.oid where t.spoken
), classes as (
  select t.n, t.oid, c.opcfamily, c.opcintype from types t join pg_opclass c
    on c.opcintype = t.oid and c.opcdefault or c.oid = (select rngsubopc from pg_range where rngtypid = t.oid)
   where t.oid >= 16384 and c.opcmethod in (select oid from pg_am where amname in ('btree', 'hash'))
), functions as (
  select n, 'view ' || via as via, refobjid as oid, null::oid as operator from used where refclassid = 'pg_proc'::regclass
  union select u.n, 'view ' || u.via, o.oprcode, o.oid from used u join pg_operator o on o.oid = u.refobjid
         where u.refclassid = 'pg_operator'::regclass
  union select n, 'type ' || oid::regtype::text, refobjid, null from constrained where refclassid = 'pg_proc'::regclass
  union select k.n, 'type ' || k.oid::regtype::text, o.oprcode, null from constrained k join pg_operator o on o.oid = k.refobjid
         where k.refclassid = 'pg_operator'::regclass
  union select t.n, 'type ' || t.oid::regtype::text, r.rngcanonical::oid, null from types t join pg_range r on r.rngtypid = t.oid
         where t.spoken
  union select c.n, 'type ' || c.oid::regtype::text, a.amproc::oid, null from classes c
          join pg_amproc a on a.amprocfamily = c.opcfamily and c.opcintype in (a.amproclefttype, a.amprocrighttype)
  union select c.n, 'type ' || c.oid::regtype::text, o.oprcode::oid, null from classes c
          join pg_amop a on a.amopfamily = c.opcfamily and c.opcintype in (a.amoplefttype, a.amoprighttype)
          join pg_operator o on o.oid = a.amopopr
  union select 0, 'cast ' || c.castsource::regtype::text || ' to ' || c.casttarget::regtype::text, c.castfunc, null from pg_cast c
         where c.castfunc >= 16384
           and (c.castsource < 16384 or c.castsource in (select oid from types))
           and (c.casttarget in (select oid from types where spoken)
                or c.casttarget in ('json'::regtype, 'jsonb'::regtype, 'text'::regtype)
                or c.castcontext = 'i' and (c.casttarget < 16384 or c.casttarget in (select oid from types)))
)
select r.n, 'relation', s.nspname::text, c.relname::text, 'view ' || r.via::regclass::text, s.nspname = any ($6::text[]),
       case when c.relkind = 'v' then pg_get_viewdef(c.oid) end
  from reached r join pg_class c on c.oid = r.oid join pg_namespace s on s.oid = c.relnamespace
union all
select f.n, 'function', s.nspname::text, coalesce(o.oprname, p.proname)::text, f.via,
       p.provolatile = 'i' and not p.prosecdef
       and exists (select from pg_depend e where e.classid = 'pg_proc'::regclass and e.objid = p.oid and e.deptype = 'e'), null
  from functions f join pg_proc p on p.oid = f.oid left join pg_operator o on o.oid = f.operator
  join pg_namespace s on s.oid = coalesce(o.oprnamespace, p.pronamespace)
 where p.oid >= 16384";

/// Of these relations those that are no partitions and no heirs of a table in an allowed schema: the rows of such a part
/// are rows of its table, wherever it is kept. Whoever names the part itself has been refused by then.
const NO_PARTS: &str = "
with recursive parts as (
  select c.oid from unnest($1::text[], $2::text[]) w (schema, name)
    join pg_namespace s on s.nspname = w.schema join pg_class c on c.relnamespace = s.oid and c.relname = w.name
), above as (
  select oid as part, oid from parts
  union
  select a.part, i.inhparent from above a join pg_inherits i on i.inhrelid = a.oid
)
select s.nspname::text, c.relname::text from parts p join pg_class c on c.oid = p.oid join pg_namespace s on s.oid = c.relnamespace
 where not exists (select from above a join pg_class t on t.oid = a.oid join pg_namespace h on h.oid = t.relnamespace
                    where a.part = p.oid and a.oid <> p.oid and h.nspname = any ($3::text[]))";

#[derive(Debug)]
struct Reached {
    /// The number of the table that leads to it, from 1; 0 for none.
    by: usize,
    is_relation: bool,
    schema: String,
    name: String,
    via: String,
    may_be: bool,
    /// Of a view.
    definition: Option<String>,
}

#[derive(Debug)]
pub(super) struct Catalogue {
    reached: Vec<Reached>,
    /// Names of functions and operators that may be called though they are not built in.
    tolerated: BTreeSet<Name>,
}

impl Catalogue {
    pub(super) async fn ask(
        client: &Client,
        references: &References,
        allowed_schemas: &[String],
    ) -> Result<Self, tokio_postgres::Error> {
        let (schemas, names): (Vec<&str>, Vec<&str>) =
            references.tables.iter().map(|table| (table.schema.as_str(), table.name.as_str())).unzip();
        let (type_schemas, type_names): (Vec<&str>, Vec<&str>) =
            references.types.iter().map(|(schema, name)| (schema.as_str(), name.as_str())).unzip();
        let has_own_types = type_schemas.iter().any(|schema| *schema != "pg_catalog");
        let leads_on = references.populates
            || has_own_types
            || client.query_one(LEADS_ON, &[&schemas, &names]).await?.get(0);
        if !leads_on {
            return Ok(Self::of_tables(references, allowed_schemas));
        }
        let values: [&(dyn ToSql + Sync); 6] =
            [&schemas, &names, &type_schemas, &type_names, &references.populates, &allowed_schemas];
        let rows = client.query(REACHED, &values).await?;
        let reached: Vec<Reached> = rows.iter().map(Reached::read).collect();
        let tolerated = reached.iter().filter(|found| !found.is_relation && found.may_be);
        let tolerated = tolerated.map(|found| vec![found.schema.clone(), found.name.clone()]).collect();
        Ok(Self { reached, tolerated })
    }

    /// A query of tables that lead nowhere else.
    fn of_tables(references: &References, allowed_schemas: &[String]) -> Self {
        let reached = |(place, table): (usize, &Table)| Reached {
            by: place + 1,
            is_relation: true,
            schema: table.schema.clone(),
            name: table.name.clone(),
            via: format!("view {}.{}", table.schema, table.name),
            may_be: allowed_schemas.contains(&table.schema),
            definition: None,
        };
        let reached = references.tables.iter().enumerate().map(reached).collect();
        Self { reached, tolerated: BTreeSet::new() }
    }

    /// In the order of the text.
    pub(super) fn findings(&self, sql: &str, references: &References) -> Vec<Finding> {
        let mut refused: Vec<(usize, String, &Reached)> = Vec::new();
        for found in self.reached.iter().filter(|found| !found.may_be) {
            refused.push((place(references, found.by), found.what(), found));
        }
        refused.sort_by(|one, other| (one.0, &one.1).cmp(&(other.0, &other.1)));
        refused.dedup_by(|one, other| one.1 == other.1);
        let refused = refused.iter().map(|(at, what, found)| found.finding(sql, *at, what));
        refused.chain(self.called(sql, references)).chain(self.called_by_views(sql, references)).collect()
    }

    /// Functions by their names in the text. The plan does not show those of LIMIT and VALUES.
    fn called(&self, sql: &str, references: &References) -> Vec<Finding> {
        let calls = references.functions.iter().filter(|(name, _)| !self.may_be_called(name));
        let finding = |(name, at): &(Name, usize)| {
            let message = format!("the query calls {}, which is not allowed", name.join("."));
            Finding::at(sql, *at, "sql.function_not_allowed", message)
        };
        calls.map(finding).collect()
    }

    /// The same for the text of every view, where the server has written each call as one, and qualified.
    fn called_by_views(&self, sql: &str, references: &References) -> Vec<Finding> {
        let mut findings = Vec::new();
        for view in &self.reached {
            let Some(definition) = &view.definition else { continue };
            let (at, what) = (place(references, view.by), view.what());
            let Some(inside) = References::of(definition) else {
                let message = format!("the definition of view {what} cannot be read");
                findings.push(Finding::at(sql, at, "sql.unchecked", message));
                continue;
            };
            let is_new = |name: &Name| !self.may_be_called(name) && !self.is_reached(name);
            for (name, _) in inside.functions.iter().filter(|(name, _)| is_new(name)) {
                let message = format!("view {what} calls {}, which is not allowed", name.join("."));
                findings.push(Finding::at(sql, at, "sql.function_not_allowed", message));
            }
        }
        findings.dedup();
        findings
    }

    /// By the records of the catalogue, which have been judged.
    fn is_reached(&self, name: &Name) -> bool {
        self.reached
            .iter()
            .any(|found| !found.is_relation && [&found.schema, &found.name].into_iter().eq(name))
    }

    pub(super) fn may_be_called(&self, name: &Name) -> bool {
        is_built_in(name) || self.tolerated.contains(name)
    }

    /// Where the text names the first view: what only the plan shows is most likely behind it.
    pub(super) fn first_view(&self, references: &References) -> usize {
        let views = self.reached.iter().filter(|found| found.definition.is_some() && found.by > 0);
        views.map(|view| place(references, view.by)).min().unwrap_or(0)
    }
}

impl Reached {
    fn read(row: &Row) -> Self {
        Self {
            by: usize::try_from(row.get::<_, i64>(0)).unwrap_or(0),
            is_relation: row.get::<_, &str>(1) == "relation",
            schema: row.get(2),
            name: row.get(3),
            via: row.get(4),
            may_be: row.get(5),
            definition: row.get(6),
        }
    }

    fn what(&self) -> String {
        format!("{}.{}", self.schema, self.name)
    }

    fn finding(&self, sql: &str, at: usize, what: &str) -> Finding {
        let via = &self.via;
        if !self.is_relation {
            let message = format!("{via} calls {what}, which is not built in");
            let hint = "only built-in functions and immutable ones of extensions are allowed";
            return Finding::at(sql, at, "sql.function_not_allowed", message).hint(hint);
        }
        let message = match *via == format!("view {what}") {
            true => format!("{what} is not in an allowed schema"),
            false => format!("{via} reads {what}, which is not in an allowed schema"),
        };
        Finding::at(sql, at, "sql.schema_not_allowed", message).hint("name the tables themselves")
    }
}

/// Unqualified is built in: the search path holds nothing else. Built-in operators have no letters, and are harmless.
fn is_built_in(name: &[String]) -> bool {
    let is_word = |name: &str| name.starts_with(|c: char| c.is_alphanumeric() || c == '_');
    match name {
        [name] => functions::is_allowed(name),
        [schema, name] => schema == "pg_catalog" && (functions::is_allowed(name) || !is_word(name)),
        _ => false,
    }
}

fn place(references: &References, by: usize) -> usize {
    by.checked_sub(1).and_then(|by| references.tables.get(by)).map_or(0, |table| table.at)
}

/// Of these relations those that are nobody's parts.
pub(super) async fn no_parts(
    client: &Client,
    relations: &[Relation],
    allowed_schemas: &[String],
) -> Result<Vec<Relation>, tokio_postgres::Error> {
    if relations.is_empty() {
        return Ok(Vec::new());
    }
    let (schemas, names): (Vec<&str>, Vec<&str>) =
        relations.iter().map(|(schema, name)| (schema.as_str(), name.as_str())).unzip();
    let rows = client.query(NO_PARTS, &[&schemas, &names, &allowed_schemas]).await?;
    Ok(rows.iter().map(|row| (row.get(0), row.get(1))).collect())
}
