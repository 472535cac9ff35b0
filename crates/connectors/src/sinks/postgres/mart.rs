//! A mart as the database describes it: its columns, its key, and whether it can take the rows of a
//! query. What cannot work is found here, not in batch 500.

use uuid::Uuid;
use vitrina_core::{Error, Result, Target, TargetName};

use crate::connection::Session;
use crate::sql::{OrderedColumn, identifier};

#[derive(Debug, Clone)]
pub(super) struct MartColumn {
    pub(super) name: String,
    pub(super) oid: u32,
    /// The type without its modifier: values are cast to this, and the assignment checks the rest.
    pub(super) type_name: String,
    /// The type as it was declared.
    pub(super) full_type: String,
    /// Values may be rounded or cut to the declared precision as they are written.
    pub(super) rounds: bool,
    is_text: bool,
    computed: bool,
}

#[derive(Debug)]
pub(super) struct Mart {
    /// Quoted and qualified.
    pub(super) table: String,
    columns: Vec<MartColumn>,
    key: Vec<String>,
    pub(super) touch_column: Option<String>,
}

impl Mart {
    pub(super) async fn describe(session: &Session, name: &TargetName, target: &Target) -> Result<Self> {
        let TargetName::Postgres { schema, table } = name else {
            return Err(Error::bug("sink.target", format!("{name} is no Postgres table")));
        };
        let columns = columns(session, schema, table).await?;
        if columns.is_empty() {
            return Err(Error::fix(
                "sink.no_table",
                format!("there is no plain table {name}, or its login may not see it"),
            )
            .hint("create the mart (partitioned ones are not written yet), and grant select, insert, update and delete on it"));
        }
        let unique = unique_keys(session, schema, table).await?;
        let key = choose_key(name, target, &unique)?;
        let mart = Self {
            table: format!("{}.{}", identifier(schema), identifier(table)),
            columns,
            key,
            touch_column: target.touch_column.clone(),
        };
        if let Some(text) = mart.ordered_key().iter().find(|column| column.is_text()) {
            session.require_utf8(&text.name).await?;
        }
        if let Some(touch) = &mart.touch_column {
            mart.column(touch, "touch_column")?;
        }
        Ok(mart)
    }

    pub(super) fn key_names(&self) -> Vec<String> {
        self.key.clone()
    }

    pub(super) fn is_key(&self, name: &str) -> bool {
        self.key.iter().any(|key| key == name)
    }

    /// The key's columns, with the way they order.
    pub(super) fn ordered_key(&self) -> Vec<OrderedColumn> {
        let of_key = |name: &String| self.columns.iter().find(|column| column.name == *name);
        let ordered = |column: &MartColumn| OrderedColumn::new(&column.name, column.oid, &column.type_name);
        self.key.iter().filter_map(of_key).map(ordered).collect()
    }

    /// A column that a query writes.
    pub(super) fn column(&self, name: &str, role: &str) -> Result<&MartColumn> {
        let column = self.columns.iter().find(|column| column.name == name).ok_or_else(|| {
            let known = self.columns.iter().map(|column| column.name.as_str()).collect::<Vec<_>>().join(", ");
            Error::fix(
                "sink.extra_column",
                format!("{} has no column {name:?}, which is a {role}", self.table),
            )
            .hint(format!("its columns: {known}"))
        })?;
        if column.computed {
            return Err(Error::fix(
                "sink.computed_column",
                format!("column {name:?} of {} is computed by the database", self.table),
            )
            .hint("leave it out of the query"));
        }
        Ok(column)
    }
}

impl MartColumn {
    /// A staged value as this column's type. Text that travels for another type is cast back; text
    /// for text is assigned, because an explicit cast would cut what is too long.
    pub(super) fn of_staged(&self, staged: &str, staged_type: &str) -> String {
        if staged_type == "text" && !self.is_text {
            format!("{staged}::{}", self.type_name)
        } else {
            staged.to_owned()
        }
    }
}

/// Data and checkpoint commit together only where the mart lives beside the meta-store.
pub(super) async fn require_meta_store(session: &Session, installation: Uuid) -> Result<()> {
    let elsewhere = || {
        Error::fix("sink.remote_mart", "the mart does not live in the meta-store's database")
            .hint("point this target's connection at the database of VITRINA_DATABASE_URL; `vitrina doctor` tells more")
    };
    let present = "select to_regprocedure('etl.installation_id()') is not null";
    let row = session.client.query_one(present, &[]).await.map_err(|error| session.explain(error))?;
    if !row.get::<_, bool>(0) {
        return Err(elsewhere());
    }
    let row = session
        .client
        .query_one("select etl.installation_id()", &[])
        .await
        .map_err(|error| session.explain(error))?;
    if row.get::<_, Uuid>(0) == installation { Ok(()) } else { Err(elsewhere()) }
}

async fn columns(session: &Session, schema: &str, table: &str) -> Result<Vec<MartColumn>> {
    let sql = "select a.attname::text, a.atttypid, format_type(a.atttypid, -1), format_type(a.atttypid, a.atttypmod),
                      a.atttypmod <> -1 and a.atttypid <> 1043, t.typcategory = 'S', a.attgenerated <> '' or a.attidentity = 'a'
                 from pg_attribute a join pg_class c on c.oid = a.attrelid join pg_namespace n on n.oid = c.relnamespace
                 join pg_type t on t.oid = a.atttypid
                where n.nspname = $1 and c.relname = $2 and c.relkind = 'r' and a.attnum > 0 and not a.attisdropped
                order by a.attnum";
    let rows = session.client.query(sql, &[&schema, &table]).await.map_err(|error| session.explain(error))?;
    let column = |row: &tokio_postgres::Row| MartColumn {
        name: row.get(0),
        oid: row.get(1),
        type_name: row.get(2),
        full_type: row.get(3),
        rounds: row.get(4),
        is_text: row.get(5),
        computed: row.get(6),
    };
    Ok(rows.iter().map(column).collect())
}

/// The columns of every unique index that `on conflict` can use, the primary key first.
async fn unique_keys(session: &Session, schema: &str, table: &str) -> Result<Vec<Vec<String>>> {
    let sql = "select array(select a.attname::text from unnest(i.indkey[0:i.indnkeyatts - 1]) with ordinality k(attnum, place)
                             join pg_attribute a on a.attrelid = i.indrelid and a.attnum = k.attnum order by k.place)
                 from pg_index i join pg_class c on c.oid = i.indrelid join pg_namespace n on n.oid = c.relnamespace
                where n.nspname = $1 and c.relname = $2 and i.indisunique and i.indisvalid and i.indimmediate
                  and i.indpred is null and i.indexprs is null
                order by i.indisprimary desc, i.indexrelid";
    let rows = session.client.query(sql, &[&schema, &table]).await.map_err(|error| session.explain(error))?;
    Ok(rows.iter().map(|row| row.get(0)).collect())
}

fn choose_key(name: &TargetName, target: &Target, unique: &[Vec<String>]) -> Result<Vec<String>> {
    let sorted = |key: &Vec<String>| {
        let mut key = key.clone();
        key.sort();
        key
    };
    if target.key.is_empty() {
        return unique.first().cloned().ok_or_else(|| {
            Error::fix("sink.no_key", format!("{name} has no primary key"))
                .hint("add one, or a unique index and name its columns as the target's key")
        });
    }
    if unique.iter().any(|key| sorted(key) == sorted(&target.key)) {
        return Ok(target.key.clone());
    }
    let columns = target.key.join(", ");
    Err(Error::fix("sink.no_unique_key", format!("{name} has no unique index on its key ({columns})"))
        .hint(format!("create unique index on {name} ({columns})")))
}
