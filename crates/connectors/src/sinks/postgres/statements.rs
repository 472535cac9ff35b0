//! The SQL of the Postgres sink, made of a mart and the shape of the rows for it.

use super::mart::Mart;
use super::own_part::{OwnPart, has_value};
use super::put::Way;
use super::shape::{Shape, WrittenColumn};
use crate::sql::{identifier, literal};

/// The temporary table that rows are copied into, and those for keys: of a scope, and of open rejects.
pub(super) const STAGE: &str = "pg_temp.vitrina_stage";
pub(super) const SCOPE: &str = "pg_temp.vitrina_scope";
/// Keys that have an open reject.
pub(super) const REFUSED: &str = "pg_temp.vitrina_refused";

pub(super) fn create_stage(shape: &Shape) -> String {
    let column =
        |written: &WrittenColumn| format!("{} {}", identifier(&written.column.name), written.staged_type);
    temporary(STAGE, &shape.written.iter().map(column).collect::<Vec<_>>())
}

fn temporary(table: &str, columns: &[String]) -> String {
    let name = table.trim_start_matches("pg_temp.");
    let columns = columns.join(", ");
    format!("drop table if exists {table}; create temporary table {name} ({columns}) on commit delete rows")
}

/// With the mart's types, its NOT NULLs and its checks, so that a row it would refuse is refused as it
/// comes; without the columns that are not written. Never logged: a load that a crash empties starts anew.
pub(super) fn create_load(mart: &Mart, shape: &Shape, load: &str, with_checks: bool) -> String {
    let checks = if with_checks { " including constraints" } else { "" };
    let mut sql = format!(
        "create unlogged table {load} (like {}{checks}) with (autovacuum_enabled = false)",
        mart.table
    );
    let written = |name: &str| shape.fields.iter().any(|field| field.name() == name);
    for column in mart.columns.iter().filter(|column| !written(&column.name)) {
        sql += &format!("; alter table {load} drop column {}", identifier(&column.name));
    }
    sql
}

/// Staged rows into a table with the mart's types, as they are.
pub(super) fn insert_staged(mart: &Mart, shape: &Shape, way: &Way) -> String {
    let values = shape.written.iter().map(|written| written.staged("s")).collect::<Vec<_>>().join(", ");
    let into = if let Way::Load(load) = way { load } else { &mart.table };
    let (column, value) = match shape.touch(mart).filter(|_| *way == Way::Mart) {
        Some(touch) => (format!(", {}", identifier(touch)), ", now()"),
        None => (String::new(), ""),
    };
    format!("insert into {into} ({}{column}) select {values}{value} from {STAGE} s", shape.names())
}

pub(super) const HALF: &str = "savepoint half";
/// A mart of a few blocks is scanned for a row rather than looked for in its index: for each of very many halves that is too
/// much. Staged rows are found by where they lie in any case.
pub(super) const BY_INDEX: &str = "savepoint half; set local enable_seqscan = off";
pub(super) const BY_ANY_PLAN: &str = "set local enable_seqscan to default";

/// Rolled back alone, a savepoint stays, and the next ones lie within it: each row would cost the depth they have reached.
pub(super) const UNDO_HALF: &str = "rollback to half; release half";

pub(super) const STAGE_BLOCKS: &str =
    "select pg_relation_size('pg_temp.vitrina_stage'::regclass) / current_setting('block_size')::bigint";

/// Casts every staged value from a block on to the mart's type.
pub(super) fn cast_since(shape: &Shape, block: u64, command: i64) -> String {
    let values = shape.written.iter().map(|written| written.compared("s")).collect::<Vec<_>>().join(", ");
    let by = "s.cmin::text::bigint";
    format!(
        "select count(*) filter (where {by} > {command}), coalesce(max({by}), {command}), max(length(row({values})::text))
           from {STAGE} s where s.ctid >= '({block},0)'"
    )
}

/// How the rows that differ are found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Find {
    /// Row by row in the mart's index: for a batch.
    ByKey,
    /// By one join of both sides: for a load.
    ByJoin,
}

/// Writes only rows that are new or differ in the binary image of their written columns: `is distinct from`
/// fails on json and calls 1.0 and 1.00 equal, so that a repair would never converge. Rows that do not
/// differ are not even locked: they are sorted out before the insert, and looked at again by it, in case
/// someone else has written meanwhile.
pub(super) fn merge(mart: &Mart, shape: &Shape, from: &str, find: Find, condition: &str) -> String {
    let touch = shape.touch(mart);
    // A key that is equal may be written otherwise by now, as 1.0 and 1.00 are.
    let is_compared =
        |written: &&WrittenColumn| !mart.is_key(&written.column.name) || written.may_be_respelled();
    let rest: Vec<&WrittenColumn> = shape.written.iter().filter(is_compared).collect();
    let mut columns = shape.names();
    let mut values = shape.written.iter().map(|written| written.staged("s")).collect::<Vec<_>>().join(", ");
    if let Some(touch) = touch {
        columns += &format!(", {}", identifier(touch));
        values += ", now()";
    }
    let key = mart.key.iter().map(|name| identifier(name)).collect::<Vec<_>>();
    let known = known(mart, shape, find);
    let differs = differs(&rest, &key[0]);
    // By columns a row without a value is none.
    let says = says_something(mart, shape)
        .map(|says| format!(" and (m.{} is not null or {says})", key[0]))
        .unwrap_or_default();
    let order = key.iter().map(|name| format!("s.{name}")).collect::<Vec<_>>().join(", ");
    format!(
        "with merged as (
            insert into {} as t ({columns})
            select {values} from {from} s left join {known} where {differs}{says}{condition} order by {order}
            on conflict ({}) {}
            returning {} as inserted)
         select count(*) filter (where inserted), count(*) filter (where not inserted) from merged",
        mart.table,
        key.join(", "),
        on_conflict(&rest, touch),
        if mart.partitioned { "true" } else { "t.xmax = 0" },
    )
}

/// The mart's row of the same key, as `m`.
fn known(mart: &Mart, shape: &Shape, find: Find) -> String {
    let same = same_key(mart, shape, "s", "m");
    match find {
        Find::ByKey => {
            format!("lateral (select * from {} m where {same} limit 1) m on true", mart.table)
        }
        Find::ByJoin => format!("{} m on {same}", mart.table),
    }
}

fn differs(rest: &[&WrittenColumn], key: &str) -> String {
    let is_new = format!("m.{key} is null");
    if rest.is_empty() {
        return format!("({is_new})");
    }
    let mart: Vec<_> = rest.iter().map(|written| format!("m.{}", identifier(&written.column.name))).collect();
    let staged: Vec<_> = rest.iter().map(|written| written.compared("s")).collect();
    format!("({is_new} or row({})::record *<> row({})::record)", mart.join(", "), staged.join(", "))
}

fn on_conflict(rest: &[&WrittenColumn], touch: Option<&str>) -> String {
    if rest.is_empty() {
        return "do nothing".to_owned();
    }
    let names: Vec<_> = rest.iter().map(|written| identifier(&written.column.name)).collect();
    let mut assignments: Vec<_> = names.iter().map(|name| format!("{name} = excluded.{name}")).collect();
    assignments.extend(touch.map(|touch| format!("{} = now()", identifier(touch))));
    let image = |alias: &str| {
        let columns = names.iter().map(|name| format!("{alias}.{name}")).collect::<Vec<_>>().join(", ");
        format!("row({columns})::record")
    };
    format!("do update set {} where {} *<> {}", assignments.join(", "), image("t"), image("excluded"))
}

/// `s."id"::uuid = t."id" and …`
fn same_key(mart: &Mart, shape: &Shape, staged: &str, other: &str) -> String {
    let of_key = |written: &&WrittenColumn| mart.is_key(&written.column.name);
    let same = |written: &WrittenColumn| {
        let name = &written.column.name;
        format!("{} {} {other}.{}", written.compared(staged), mart.equals(name), identifier(name))
    };
    shape.written.iter().filter(of_key).map(same).collect::<Vec<_>>().join(" and ")
}

/// A temporary table for keys, with the mart's types.
pub(super) fn create_keys(mart: &Mart, table: &str, columns: &[&str]) -> String {
    let column = |name: &&str| {
        let known = mart.columns.iter().find(|column| column.name == **name);
        format!("{} {}", identifier(name), known.map_or("text", |column| column.full_type.as_str()))
    };
    temporary(table, &columns.iter().map(column).collect::<Vec<_>>())
}

/// Keys as rows of literals, into such a table. One of a scope that the mart would round or cut is the key of no row in it, and
/// not of the row whose key it would be then. A refused row spares that as well.
pub(super) fn insert_keys(mart: &Mart, table: &str, columns: &[&str], rows: &str) -> String {
    let names = columns.iter().map(|name| identifier(name)).collect::<Vec<_>>().join(", ");
    let limited = |name: &&str| {
        let column = mart.columns.iter().find(|column| column.name == **name)?;
        let (full, unlimited) = (&column.full_type, column.unlimited_type.as_ref()?);
        let (text, equals) = (format!("v.{}", identifier(name)), mart.equals(name));
        Some(format!("({text} is null or {text}::{full} {equals} {text}::{unlimited})"))
    };
    let limited: Vec<String> = columns.iter().filter(|_| table == SCOPE).filter_map(limited).collect();
    if limited.is_empty() {
        return format!("insert into {table} ({names}) values {rows}");
    }
    let cast = |name: &&str| {
        let known = mart.columns.iter().find(|column| column.name == **name);
        let text = format!("v.{}", identifier(name));
        known.map_or(text.clone(), |column| format!("{text}::{}", column.full_type))
    };
    let values = columns.iter().map(cast).collect::<Vec<_>>().join(", ");
    format!(
        "insert into {table} ({names}) select {values} from (values {rows}) v ({names}) where {}",
        limited.join(" and ")
    )
}

/// Rows of the mart that a whole load did not bring. Keys with an open reject stay.
pub(super) fn delete_missing(mart: &Mart, shape: &Shape, loaded: &str, refused: bool) -> Vec<String> {
    let same = same_key(mart, shape, "s", "t");
    let kept = not_refused(mart, refused);
    mart.delete(None, &format!("not exists (select from {loaded} s where {same}){kept}"))
}

/// Rows of the mart whose change key is in the scope and whose key is not in the batch.
pub(super) fn delete_keys(mart: &Mart, came: Option<&Shape>, scope: &[&str], refused: bool) -> Vec<String> {
    let in_scope = |name: &&str| {
        let column = identifier(name);
        match mart.is_key(name) {
            true => format!("t.{column} {} c.{column}", mart.equals(name)),
            false => format!("(t.{column} = c.{column} or (t.{column} is null and c.{column} is null))"),
        }
    };
    let in_scope = scope.iter().map(in_scope).collect::<Vec<_>>().join(" and ");
    let kept = not_refused(mart, refused);
    let left = came.map(|shape| {
        let same = same_key(mart, shape, "s", "t");
        format!(" and not exists (select from {STAGE} s where {same})")
    });
    mart.delete(Some(&format!("{SCOPE} c")), &format!("{in_scope}{}{kept}", left.unwrap_or_default()))
}

/// By columns, rows of the mart in which nobody has a value any more.
pub(super) fn delete_empty(mart: &Mart, shape: &Shape, from: &str) -> Option<String> {
    let says = says_something(mart, shape)?;
    Some(mart.delete_empty(from, &format!("{} and not ({says})", same_key(mart, shape, "s", "t"))))
}

/// By columns, a staged row `s` has a value in one that it brings. A batch need not bring all columns of its pipeline.
fn says_something(mart: &Mart, shape: &Shape) -> Option<String> {
    let names = shape.written.iter().map(|written| written.column.name.as_str());
    let own = names.filter(|name| !mart.is_key(name));
    matches!(mart.own, OwnPart::Columns(_)).then(|| has_value(own, "s"))
}

fn not_refused(mart: &Mart, refused: bool) -> String {
    let same = |name: &String| format!("r.{0} {1} t.{0}", identifier(name), mart.equals(name));
    match refused {
        true => {
            let same = mart.key.iter().map(same).collect::<Vec<_>>().join(" and ");
            format!(" and not exists (select from {REFUSED} r where {same})")
        }
        false => String::new(),
    }
}

/// Keys that come more than once, where only the database can tell that two are equal.
pub(super) fn duplicate_keys(mart: &Mart, shape: &Shape, from: &str) -> String {
    let key = staged_key(mart, shape).join(", ");
    format!("select array_agg(s.ctid)::text[] from {from} s group by {key} having count(*) > 1 limit 1000")
}

/// Staged rows, by where they lie, as JSON: their key in the order of the mart's, and the row.
pub(super) fn staged_rows(mart: &Mart, shape: &Shape, from: &str, places: &[String]) -> String {
    let key: Vec<_> = staged_key(mart, shape).iter().map(|value| format!("({value})::text")).collect();
    let places = places.iter().map(|place| literal(place)).collect::<Vec<_>>().join(", ");
    format!(
        "select jsonb_build_array({})::text, to_jsonb(s)::text from {from} s where s.ctid = any(array[{places}]::tid[])",
        key.join(", ")
    )
}

/// The key of a staged row `s`, in the order of the mart's.
fn staged_key(mart: &Mart, shape: &Shape) -> Vec<String> {
    let of_name = |name: &String| shape.written.iter().find(|written| written.column.name == *name);
    mart.key.iter().filter_map(of_name).map(|written| written.compared("s")).collect()
}

/// Staged rows whose key the mart does not have.
pub(super) fn count_new(mart: &Mart, shape: &Shape, from: &str, condition: &str) -> String {
    let same = same_key(mart, shape, "s", "m");
    let says = says_something(mart, shape).map(|says| format!(" and {says}")).unwrap_or_default();
    format!(
        "select count(*) from {from} s where not exists (select from {} m where {same}){says}{condition}",
        mart.table
    )
}

pub(super) fn delete_places(from: &str, places: &[String]) -> String {
    let places = places.iter().map(|place| literal(place)).collect::<Vec<_>>().join(", ");
    format!("delete from {from} where ctid = any(array[{places}]::tid[])")
}
