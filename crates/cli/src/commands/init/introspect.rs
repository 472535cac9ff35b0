//! What a source says of its tables: columns, keys, indexes, and whether this login may read them.

use std::collections::HashMap;

use anyhow::Result;
use sqlx::{FromRow, PgConnection};

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Table {
    pub(super) schema: String,
    pub(super) name: String,
    /// As SQL writes it.
    pub(super) quoted: String,
    /// As pg_class calls it: `r` a table, `p` a partitioned one, `v` a view, `m` a materialized one, `f` a foreign table.
    pub(super) kind: String,
    pub(super) readable: bool,
    /// Row security would hide rows from this login.
    pub(super) guarded: bool,
    /// Others inherit from it: its key says nothing of their rows.
    pub(super) has_children: bool,
    /// Rows that were deleted since the server's statistics began.
    pub(super) deleted: i64,
    pub(super) columns: Vec<Column>,
    /// Unique over all rows; the primary key first, then those of fewer columns.
    pub(super) keys: Vec<Key>,
    /// Columns that an index begins with.
    pub(super) leading: Vec<String>,
    /// By foreign keys.
    pub(super) refers: Vec<Reference>,
}

/// Rows of one table that belong to a row of another.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Reference {
    /// As a person writes it.
    pub(super) table: String,
    pub(super) columns: Vec<String>,
    /// What they are there.
    pub(super) key: Vec<String>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Column {
    pub(super) name: String,
    pub(super) quoted: String,
    pub(super) type_name: String,
    pub(super) not_null: bool,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Key {
    pub(super) primary: bool,
    pub(super) columns: Vec<String>,
}

impl Table {
    /// As a person writes it.
    pub(super) fn spoken(&self) -> String {
        format!("{}.{}", self.schema, self.name)
    }

    pub(super) fn column(&self, name: &str) -> Option<&Column> {
        self.columns.iter().find(|column| column.name == name)
    }
}

/// All that can be queried, but for partitions, whose rows come with their table, and what extensions have brought.
pub(super) async fn tables(session: &mut PgConnection) -> Result<Vec<Table>> {
    let relations = relations(session).await?;
    let ids: Vec<i64> = relations.iter().map(|relation| relation.id).collect();
    let mut columns = columns(session, &ids).await?;
    let mut keys = keys(session, &ids).await?;
    let mut leading = leading(session, &ids).await?;
    let mut refers = references(session, &ids).await?;
    let table = |relation: Relation| Table {
        columns: columns.remove(&relation.id).unwrap_or_default(),
        keys: keys.remove(&relation.id).unwrap_or_default(),
        leading: leading.remove(&relation.id).unwrap_or_default(),
        refers: refers.remove(&relation.id).unwrap_or_default(),
        schema: relation.schema,
        name: relation.name,
        quoted: relation.quoted,
        kind: relation.kind,
        readable: relation.readable,
        guarded: relation.guarded,
        has_children: relation.has_children,
        deleted: relation.deleted,
    };
    Ok(relations.into_iter().map(table).collect())
}

#[derive(FromRow)]
struct Relation {
    id: i64,
    schema: String,
    name: String,
    quoted: String,
    kind: String,
    readable: bool,
    guarded: bool,
    has_children: bool,
    deleted: i64,
}

async fn relations(session: &mut PgConnection) -> sqlx::Result<Vec<Relation>> {
    let sql = "select c.oid::bigint as id, n.nspname::text as schema, c.relname::text as name,
                      format('%I.%I', n.nspname, c.relname) as quoted, c.relkind::text as kind,
                      has_schema_privilege(n.oid, 'usage') and has_table_privilege(c.oid, 'select') as readable,
                      c.relkind in ('r', 'p') and row_security_active(c.oid) as guarded,
                      c.relkind = 'r' and exists (select from pg_inherits i where i.inhparent = c.oid) as has_children,
                      (select coalesce(sum(pg_stat_get_tuples_deleted(part)), 0)::bigint
                         from (select c.oid union select relid from pg_partition_tree(c.oid)) parts(part)) as deleted
                 from pg_class c join pg_namespace n on n.oid = c.relnamespace
                where c.relkind in ('r', 'p', 'v', 'm', 'f') and not c.relispartition and c.relpersistence <> 't'
                  and n.nspname !~ '^pg_' and n.nspname <> 'information_schema'
                  and not exists (select from pg_depend d
                                   where d.classid = 'pg_class'::regclass and d.objid = c.oid and d.deptype = 'e')
                order by n.nspname, c.relname";
    sqlx::query_as(sql).fetch_all(session).await
}

async fn columns(session: &mut PgConnection, tables: &[i64]) -> sqlx::Result<HashMap<i64, Vec<Column>>> {
    let sql = "select a.attrelid::bigint, a.attname::text, quote_ident(a.attname), format_type(a.atttypid, null), a.attnotnull
                 from pg_attribute a
                where a.attrelid = any ($1::bigint[]::oid[]) and a.attnum > 0 and not a.attisdropped
                order by a.attrelid, a.attnum";
    let rows: Vec<(i64, String, String, String, bool)> =
        sqlx::query_as(sql).bind(tables).fetch_all(session).await?;
    Ok(grouped(rows.into_iter().map(|(table, name, quoted, type_name, not_null)| {
        (table, Column { name, quoted, type_name, not_null })
    })))
}

async fn keys(session: &mut PgConnection, tables: &[i64]) -> sqlx::Result<HashMap<i64, Vec<Key>>> {
    let sql = "select i.indrelid::bigint, i.indisprimary,
                      array(select a.attname::text
                              from unnest(i.indkey[0:i.indnkeyatts - 1]) with ordinality k (attnum, place)
                              join pg_attribute a on a.attrelid = i.indrelid and a.attnum = k.attnum order by k.place)
                 from pg_index i
                where i.indrelid = any ($1::bigint[]::oid[]) and i.indisunique and i.indisvalid
                  and i.indpred is null and i.indexprs is null
                order by i.indrelid, i.indisprimary desc, i.indnkeyatts, i.indexrelid";
    let rows: Vec<(i64, bool, Vec<String>)> = sqlx::query_as(sql).bind(tables).fetch_all(session).await?;
    Ok(grouped(rows.into_iter().map(|(table, primary, columns)| (table, Key { primary, columns }))))
}

async fn leading(session: &mut PgConnection, tables: &[i64]) -> sqlx::Result<HashMap<i64, Vec<String>>> {
    let sql = "select i.indrelid::bigint, a.attname::text
                 from pg_index i join pg_class x on x.oid = i.indexrelid join pg_am m on m.oid = x.relam
                 join pg_attribute a on a.attrelid = i.indrelid and a.attnum = i.indkey[0]
                where i.indrelid = any ($1::bigint[]::oid[]) and i.indisvalid and i.indpred is null and m.amname = 'btree'";
    let rows: Vec<(i64, String)> = sqlx::query_as(sql).bind(tables).fetch_all(session).await?;
    Ok(grouped(rows.into_iter()))
}

async fn references(
    session: &mut PgConnection,
    tables: &[i64],
) -> sqlx::Result<HashMap<i64, Vec<Reference>>> {
    let sql = "select f.conrelid::bigint, concat_ws('.', n.nspname, c.relname),
                      array(select a.attname::text from unnest(f.conkey) with ordinality k (attnum, place)
                              join pg_attribute a on a.attrelid = f.conrelid and a.attnum = k.attnum order by k.place),
                      array(select a.attname::text from unnest(f.confkey) with ordinality k (attnum, place)
                              join pg_attribute a on a.attrelid = f.confrelid and a.attnum = k.attnum order by k.place)
                 from pg_constraint f join pg_class c on c.oid = f.confrelid join pg_namespace n on n.oid = c.relnamespace
                where f.contype = 'f' and f.conparentid = 0 and f.conrelid = any ($1::bigint[]::oid[])
                order by f.conrelid, f.conname";
    let rows: Vec<(i64, String, Vec<String>, Vec<String>)> =
        sqlx::query_as(sql).bind(tables).fetch_all(session).await?;
    Ok(grouped(rows.into_iter().map(|(from, table, columns, key)| (from, Reference { table, columns, key }))))
}

fn grouped<T>(rows: impl Iterator<Item = (i64, T)>) -> HashMap<i64, Vec<T>> {
    let mut groups: HashMap<i64, Vec<T>> = HashMap::new();
    for (table, part) in rows {
        groups.entry(table).or_default().push(part);
    }
    groups
}
