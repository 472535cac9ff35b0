//! A mart as the database describes it: its columns and its key.

use vitrina_core::{Error, MartTable, Result, Target, TargetName};

use super::own_part::OwnPart;
use crate::connection::Session;
use crate::sql::identifier;

#[derive(Debug, Clone)]
pub(super) struct MartColumn {
    pub(super) name: String,
    pub(super) oid: u32,
    /// The type without its modifier: values are cast to this, and the assignment checks the rest.
    pub(super) type_name: String,
    /// The type as it was declared.
    pub(super) full_type: String,
    /// The same; of a domain, the type that it is made of.
    pub(super) base_type: String,
    /// That without its length or precision, where it has one.
    pub(super) unlimited_type: Option<String>,
    /// A composite type, or an array of domains: what its parts would do to a value is not seen.
    pub(super) is_opaque: bool,
    /// By its collation, texts that are not the same may be equal.
    pub(super) folds_texts: bool,
    /// Of a string type.
    pub(super) is_text: bool,
    /// Filled by the database alone.
    pub(super) computed: bool,
    /// NOT NULL, and nothing but the query can fill it.
    pub(super) required: bool,
    /// By itself, or by its domain.
    pub(super) not_null: bool,
    /// By itself, or by its domain.
    pub(super) has_default: bool,
    /// Values may be rounded, cut or padded to the declared precision as they are written.
    pub(super) rounds: bool,
}

#[derive(Debug)]
pub(super) struct Mart {
    pub(super) name: TargetName,
    /// Quoted and qualified.
    pub(super) table: String,
    /// `None` of one that is to come.
    pub(super) id: Option<MartTable>,
    pub(super) columns: Vec<MartColumn>,
    pub(super) key: Vec<String>,
    /// The equality that the key's unique index goes by, one a key column: that of citext, say, is not the
    /// one that a bare `=` would find.
    equals: Vec<String>,
    /// Rows of partitions cannot tell whether they are new.
    pub(super) partitioned: bool,
    /// Triggers see rows before they are written, and may leave some out.
    pub(super) has_triggers: bool,
    /// A crash of its server empties it.
    pub(super) is_unlogged: bool,
    pub(super) touch_column: Option<String>,
    /// It is made when the first rows tell its columns.
    pub(super) is_to_come: bool,
    /// What of it the pipeline writes.
    pub(super) own: OwnPart,
}

#[derive(Clone)]
struct UniqueKey {
    index: String,
    columns: Vec<String>,
}

impl Mart {
    /// `None` when there is no such table.
    pub(super) async fn describe(
        session: &Session,
        name: &TargetName,
        target: &Target,
    ) -> Result<Option<Self>> {
        let (schema, table) = parts(name)?;
        let columns = columns(session, schema, table).await?;
        if columns.is_empty() {
            return Ok(None);
        }
        let unique = unique_keys(session, schema, table).await?;
        let key = choose_key(name, target, unique)?;
        let Storage { id, partitioned, has_triggers, is_unlogged } = storage(session, name).await?;
        let mart = Self {
            name: name.clone(),
            table: quoted(name)?,
            id: Some(id),
            columns,
            key: key.columns.clone(),
            equals: equalities(session, schema, &key).await?,
            partitioned,
            has_triggers,
            is_unlogged,
            touch_column: target.touch_column.clone(),
            is_to_come: false,
            own: OwnPart::Whole,
        };
        if let Some(touch) = &mart.touch_column {
            mart.column(touch, "touch_column")?;
        }
        Ok(Some(mart))
    }

    /// One that is not there yet, by what its target declares.
    pub(super) fn to_come(name: &TargetName, target: &Target) -> Result<Self> {
        if target.key.is_empty() {
            return Err(super::create::no_key(name));
        }
        Ok(Self {
            name: name.clone(),
            table: quoted(name)?,
            id: None,
            columns: Vec::new(),
            key: target.key.clone(),
            equals: Vec::new(),
            partitioned: false,
            has_triggers: false,
            is_unlogged: false,
            touch_column: target.touch_column.clone(),
            is_to_come: true,
            own: OwnPart::Whole,
        })
    }

    /// How a key column is compared.
    pub(super) fn equals(&self, name: &str) -> &str {
        let place = self.key.iter().position(|key| key == name);
        place.and_then(|place| self.equals.get(place)).map_or("=", String::as_str)
    }

    pub(super) fn is_key(&self, name: &str) -> bool {
        self.key.iter().any(|key| key == name)
    }

    pub(super) fn has(&self, name: &str) -> bool {
        self.columns.iter().any(|column| column.name == name)
    }

    /// A column that is written.
    pub(super) fn column(&self, name: &str, role: &str) -> Result<&MartColumn> {
        let column = self.columns.iter().find(|column| column.name == name).ok_or_else(|| {
            let known = self.columns.iter().map(|column| column.name.as_str()).collect::<Vec<_>>().join(", ");
            Error::fix(
                "sink.extra_column",
                format!("{} has no column {name:?}, which is a {role}", self.name),
            )
            .hint(format!("its columns: {known}"))
        })?;
        if column.computed {
            return Err(Error::fix(
                "sink.computed_column",
                format!("column {name:?} of {} is computed by the database", self.name),
            )
            .hint("leave it out of the query"));
        }
        Ok(column)
    }
}

pub(super) fn quoted(name: &TargetName) -> Result<String> {
    let (schema, table) = parts(name)?;
    Ok(format!("{}.{}", identifier(schema), identifier(table)))
}

fn parts(name: &TargetName) -> Result<(&str, &str)> {
    match name {
        TargetName::Postgres { schema, table } => Ok((schema, table)),
        other => Err(Error::bug("sink.target", format!("{other} is no Postgres table"))),
    }
}

async fn columns(session: &Session, schema: &str, table: &str) -> Result<Vec<MartColumn>> {
    let sql = "select a.attname::text, a.atttypid, format_type(a.atttypid, -1), t.typcategory = 'S',
                      a.attgenerated <> '' or a.attidentity = 'a',
                      a.attnotnull and not a.atthasdef and a.attidentity = '', a.atttypmod <> -1,
                      format_type(a.atttypid, a.atttypmod), format_type(base.oid, base.modifier),
                      (select format('%I.%I', e.nspname, b.typname) from pg_type b join pg_namespace e on e.oid = b.typnamespace
                        where b.oid = base.oid and base.modifier <> -1),
                      a.attnotnull or t.typnotnull, a.atthasdef or a.attidentity <> '' or t.typdefault is not null,
                      exists (select from pg_type o left join pg_type e on e.oid = o.typelem and o.typcategory = 'A'
                               where o.oid = base.oid and (o.typtype = 'c' or e.typtype in ('c', 'd'))),
                      exists (select from pg_collation l where l.oid = a.attcollation and not l.collisdeterministic)
                 from pg_attribute a join pg_class c on c.oid = a.attrelid join pg_namespace n on n.oid = c.relnamespace
                 join pg_type t on t.oid = a.atttypid
                 cross join lateral (
                      with recursive b (oid, modifier, depth) as (
                           select a.atttypid, a.atttypmod, 0
                           union all select d.typbasetype, d.typtypmod, depth + 1 from b join pg_type d on d.oid = b.oid and d.typtype = 'd')
                      select oid, modifier from b order by depth desc limit 1) base
                where n.nspname = $1 and c.relname = $2 and c.relkind in ('r', 'p') and a.attnum > 0 and not a.attisdropped
                order by a.attnum";
    let rows = session.client.query(sql, &[&schema, &table]).await.map_err(|error| session.explain(error))?;
    let column = |row: &tokio_postgres::Row| MartColumn {
        name: row.get(0),
        oid: row.get(1),
        type_name: row.get(2),
        is_text: row.get(3),
        computed: row.get(4),
        required: row.get(5),
        rounds: row.get(6),
        full_type: row.get(7),
        base_type: row.get(8),
        unlimited_type: row.get(9),
        not_null: row.get(10),
        has_default: row.get(11),
        is_opaque: row.get(12),
        folds_texts: row.get(13),
    };
    Ok(rows.iter().map(column).collect())
}

/// `operator(public.=)` and the like, in the order of the target's key.
async fn equalities(session: &Session, schema: &str, key: &UniqueKey) -> Result<Vec<String>> {
    let sql = "select a.attname::text, format('operator(%I.%s)', on_.nspname, o.oprname)
                 from pg_index i join pg_class x on x.oid = i.indexrelid join pg_namespace n on n.oid = x.relnamespace
                 cross join unnest(i.indclass[0:i.indnkeyatts - 1], i.indkey[0:i.indnkeyatts - 1]) as part (opclass, attnum)
                 join pg_attribute a on a.attrelid = i.indrelid and a.attnum = part.attnum
                 join pg_opclass c on c.oid = part.opclass
                 join pg_amop m on m.amopfamily = c.opcfamily and m.amoplefttype = c.opcintype
                                and m.amoprighttype = c.opcintype and m.amopstrategy = 3
                 join pg_operator o on o.oid = m.amopopr join pg_namespace on_ on on_.oid = o.oprnamespace
                where n.nspname = $1 and x.relname = $2";
    let rows = session.client.query(sql, &[&schema, &key.index]).await;
    let rows = rows.map_err(|error| session.explain(error))?;
    let of = |column: &String| {
        let row = rows.iter().find(|row| row.get::<_, String>(0) == *column);
        row.map_or_else(|| "operator(pg_catalog.=)".to_owned(), |row| row.get(1))
    };
    Ok(key.columns.iter().map(of).collect())
}

/// How a table keeps rows, its partitions included.
struct Storage {
    id: MartTable,
    partitioned: bool,
    /// They see rows before these are written.
    has_triggers: bool,
    /// A crash empties it.
    is_unlogged: bool,
}

/// Of triggers, 1 + 2 are those before a row, 4 and 16 on insert and update. Rows of tables that inherit from a mart would be
/// taken for its own, and deleted.
async fn storage(session: &Session, name: &TargetName) -> Result<Storage> {
    let (schema, table) = parts(name)?;
    let sql = "select c.relkind = 'p', bool_or(exists (
                          select from pg_trigger g where g.tgrelid = r.oid and not g.tgisinternal and g.tgenabled in ('O', 'A')
                             and g.tgtype::int & 3 = 3 and g.tgtype::int & 20 > 0)),
                      bool_or(r.relpersistence = 'u'),
                      (select min(i.inhrelid::regclass::text) from pg_inherits i where i.inhparent = c.oid and c.relkind = 'r'),
                      (select d.oid from pg_database d where d.datname = current_database()), c.oid
                 from pg_class c join pg_namespace n on n.oid = c.relnamespace
                 join pg_class r on r.oid = c.oid or (c.relkind = 'p' and r.oid in (select relid from pg_partition_tree(c.oid)))
                where n.nspname = $1 and c.relname = $2 group by c.oid, c.relkind";
    let row = session.client.query_one(sql, &[&schema, &table]).await;
    let row = row.map_err(|error| session.explain(error))?;
    if let Some(child) = row.get::<_, Option<String>>(3) {
        return Err(Error::fix(
            "sink.inherited",
            format!("{child} inherits from {name}: its rows would be deleted"),
        )
        .hint(format!("`alter table {child} no inherit {name}`, or write to a table that has none")));
    }
    let id = MartTable { database: row.get(4), table: row.get(5) };
    Ok(Storage { id, partitioned: row.get(0), has_triggers: row.get(1), is_unlogged: row.get(2) })
}

/// The columns of every unique index that `on conflict` can use, the primary key first.
async fn unique_keys(session: &Session, schema: &str, table: &str) -> Result<Vec<UniqueKey>> {
    let sql = "select x.relname::text,
                      array(select a.attname::text from unnest(i.indkey[0:i.indnkeyatts - 1]) with ordinality k(attnum, place)
                              join pg_attribute a on a.attrelid = i.indrelid and a.attnum = k.attnum order by k.place)
                 from pg_index i join pg_class c on c.oid = i.indrelid join pg_namespace n on n.oid = c.relnamespace
                 join pg_class x on x.oid = i.indexrelid
                where n.nspname = $1 and c.relname = $2 and i.indisunique and i.indisvalid and i.indimmediate
                  and i.indpred is null and i.indexprs is null
                order by i.indisprimary desc, i.indexrelid";
    let rows = session.client.query(sql, &[&schema, &table]).await.map_err(|error| session.explain(error))?;
    Ok(rows.iter().map(|row| UniqueKey { index: row.get(0), columns: row.get(1) }).collect())
}

fn choose_key(name: &TargetName, target: &Target, unique: Vec<UniqueKey>) -> Result<UniqueKey> {
    if target.key.is_empty() {
        return unique.into_iter().next().ok_or_else(|| {
            Error::fix("sink.no_key", format!("{name} has no primary key"))
                .hint("add one, or a unique index and name its columns as the target's key")
        });
    }
    let wanted = sorted(&target.key);
    let found = unique.into_iter().find(|key| sorted(&key.columns) == wanted);
    let columns = target.key.join(", ");
    let found = found.ok_or_else(|| {
        Error::fix("sink.no_unique_key", format!("{name} has no unique index on its key ({columns})"))
            .hint(format!("create unique index on {name} ({columns})"))
    })?;
    Ok(UniqueKey { columns: target.key.clone(), ..found })
}

fn sorted(key: &[String]) -> Vec<&String> {
    let mut key: Vec<_> = key.iter().collect();
    key.sort();
    key
}
