//! A table read in the order of its cursor, for the keys of the rows that have changed.

use vitrina_core::{Advice, Batch, Error, Position, Result, Watch};
use vitrina_guard::{ChangeTable, TableColumn};

use super::checkpoint::{Reached, Way};
use super::time::Kind;
use crate::sources::postgres::dirty::{KeysQuery, Page, in_order, other_columns};
use crate::sources::postgres::opening::is_since;
use crate::sources::postgres::pending::Pending;
use crate::sources::postgres::reader::Reader;
use crate::sources::postgres::recompute::{Key, nothing};
use crate::sql::{OrderedColumn, compare, conditions, expressions, identifier};

/// Keys without a cursor that are told of: enough to run into any sensible limit.
const NULL_CURSORS: usize = 1000;

pub(super) struct Track {
    table: ChangeTable,
    pub(super) kind: Kind,
    order: Vec<OrderedColumn>,
    key: Vec<OrderedColumn>,
    /// Leads from the table's key to change keys.
    keys: Option<KeysQuery>,
    /// New rows are read elsewhere: only of what was read before is anything looked for.
    late_only: bool,
}

/// What of a table is read again, and what of it was read before.
#[derive(Default)]
pub(super) struct Range<'a> {
    /// Where reading starts again, as SQL of the cursor's type.
    pub(super) start: Option<String>,
    pub(super) before: Option<&'a Reached>,
    pub(super) since: Option<u64>,
}

impl Track {
    /// The driving table: `ordered` of its columns are the cursor, the others its change key.
    pub(super) fn driving(table: ChangeTable, ordered: usize) -> Result<Self> {
        let all: Vec<OrderedColumn> = table.columns.iter().map(ordered_column).collect();
        let (order, key) = all.split_at(ordered);
        let first = &table.columns[0];
        let kind = Kind::of(&first.name, first.type_oid, &first.type_name)?;
        Ok(Self { kind, order: order.to_vec(), key: key.to_vec(), keys: None, late_only: false, table })
    }

    pub(super) fn late_only(self) -> Self {
        Self { late_only: true, ..self }
    }

    /// A watched table, in the order of its own cursor and the key that it names.
    pub(super) async fn watched(
        watch: &Watch,
        cursor: Option<&str>,
        columns: usize,
        reader: &Reader,
    ) -> Result<Self> {
        let Some(cursor) = watch.incremental_key.as_deref().or(cursor) else {
            let message = format!("the watched table {} has no incremental_key", watch.table);
            return Err(Error::fix("watch.incremental_key", message));
        };
        reader.refuse_watch(watch).await?;
        let names: Vec<&str> = [cursor].into_iter().chain(watch.key.iter().map(String::as_str)).collect();
        let table = reader.change_table(&watch.table, &names, names.len()).await?;
        let mut track = Self::driving(table, 1)?;
        track.order.extend(track.key.clone());
        track.keys = watch.keys.as_ref().map(|sql| KeysQuery::new(sql, columns));
        if track.keys.is_none() && track.key.len() != columns {
            return Err(other_columns(watch));
        }
        Ok(track)
    }

    /// What is read from it, and what comes of that.
    pub(super) fn advice(&self, read: &str, what: &str) -> Advice {
        let order = self.order.iter().map(|column| identifier(&column.name)).collect::<Vec<_>>().join(", ");
        let table = &self.table.name;
        match self.table.indexed {
            true => Advice::fine(format!("{read} are read from {table} by ({order}): {what}")),
            false => Advice::warning(
                format!(
                    "{read} are read from {table} by ({order}), and no index serves that order: every page sorts the table"
                ),
                format!("create index concurrently on {table} ({order})"),
            ),
        }
    }

    pub(super) fn table_oid(&self) -> u32 {
        self.table.oid
    }

    /// Its key is the change key.
    pub(super) fn is_by_key(&self) -> bool {
        self.keys.is_none()
    }

    /// Of a table that is only watched nobody is told which rows are never met.
    pub(super) async fn advice_of_nulls(&self, reader: &Reader) -> Result<Option<Advice>> {
        let nullable = self.table.columns.iter().take(self.order.len()).filter(|column| !column.not_null);
        let names: Vec<&str> = nullable.map(|column| column.name.as_str()).collect();
        if names.is_empty() {
            return Ok(None);
        }
        // None before the table is analysed, or where the login may not read the column.
        let sql = "select max(s.null_frac)::float8 from pg_catalog.pg_stats s
                     join pg_catalog.pg_class c on c.relname = s.tablename
                     join pg_catalog.pg_namespace n on n.oid = c.relnamespace and n.nspname = s.schemaname
                    where c.oid = $1 and s.attname = any ($2)";
        let found = reader.rows_with(sql, &[&self.table.oid, &names]).await?;
        let share: Option<f64> = found.first().and_then(|row| row.get(0));
        let (table, columns) = (&self.table.name, names.join(" or "));
        if share == Some(0.0) {
            let message =
                format!("{columns} of {table} may be null, and was not when the table was analysed");
            return Ok(Some(Advice::fine(message)));
        }
        let known = share.map(|share| format!(", {:.0} % of them when it was analysed", share * 100.0));
        Ok(Some(Advice::warning(
            format!(
                "changes of rows of {table} whose {columns} is null are not noticed{}",
                known.unwrap_or_default()
            ),
            format!("fill {columns}, and let it be `not null`; or load in full, by full_schedule"),
        )))
    }

    pub(super) fn first(&self) -> &OrderedColumn {
        &self.order[0]
    }

    /// Rows without a cursor are never met. What was known of the table a moment ago may have changed: it is asked again.
    pub(super) async fn may_lack_cursors(&self, reader: &Reader) -> Result<bool> {
        let columns = self.table.columns.iter().take(self.order.len());
        if columns.clone().any(|column| !column.not_null) {
            return Ok(true);
        }
        let names: Vec<&str> = columns.map(|column| column.name.as_str()).collect();
        let sql = "select coalesce(bool_and(attnotnull), false) from pg_catalog.pg_attribute where attrelid = $1 and attname = any ($2)";
        let rows = reader.rows_with(sql, &[&self.table.oid, &names]).await?;
        Ok(!rows.first().is_some_and(|row| row.get(0)))
    }

    /// The greatest cursor there is, or is before another, as one array of texts.
    pub(super) fn greatest(&self, before: Option<&str>) -> String {
        let (table, texts) = (&self.table.name, texts(&self.order));
        let any_null = conditions(&self.order, "t", "is null", " or ");
        let descending = conditions(&self.order, "t", "desc", ", ");
        let before =
            before.map(|to| format!(" and {} < {}", self.order[0].expression("t"), self.order[0].value(to)));
        let before = before.unwrap_or_default();
        format!(
            "select array[{texts}] from {table} t where not ({any_null}){before} order by {descending} limit 1"
        )
    }

    /// Whether the row of this cursor, which was there, is neither there nor has a later one.
    pub(super) fn lacks(&self, cursor: &[String]) -> String {
        let mut all = self
            .order
            .iter()
            .zip(cursor)
            .map(|(column, value)| (column.expression("t"), column.value(value)));
        let first = all.next();
        let rest: Vec<String> = all.map(|(column, value)| format!("{column} = {value}")).collect();
        let sign = if rest.is_empty() { "=" } else { ">=" };
        let first = first.map(|(column, value)| format!("{column} {sign} {value}"));
        let is_it = rest.into_iter().chain(first).collect::<Vec<_>>().join(" and ");
        format!("not exists (select from {} t where {is_it})", self.table.name)
    }

    /// The rows of the next dirty keys. `None` when there were none.
    pub(super) async fn follow(
        &self,
        pending: &mut Pending,
        reader: &mut Reader,
        way: &mut Way,
        range: &Range<'_>,
        from: &Position,
    ) -> Result<Option<Batch>> {
        if pending.is_empty() {
            pending.fill(self.page(reader, way, range, pending.page_rows(reader)).await?);
        }
        let next = pending.next(reader).await?;
        way.position = next.position.or(way.position.take());
        way.finished = next.last;
        Ok(next.recomputed.map(|recomputed| recomputed.batch(nothing(reader, from))))
    }

    /// Nothing that comes late follows any more: the way goes on above what was read before.
    pub(super) fn rise(&self, way: &mut Way, range: &Range<'_>) {
        way.above = std::mem::take(&mut way.finished);
        if let Some((_, old)) = self.fence(range).filter(|_| way.above) {
            way.position = Some(old.clone());
            way.finished = way.position == way.bound;
        }
    }

    async fn page(&self, reader: &Reader, way: &Way, range: &Range<'_>, limit: usize) -> Result<Page> {
        let (again, new) = (self.again(way, range, limit), self.new_rows(way, range, limit));
        if again.is_none() && new.is_none() {
            return Ok(Page { last: true, ..Page::default() });
        }
        reader.begin().await?;
        let mut found = Vec::new();
        if let Some(again) = again {
            found = self.late(reader, &again, way.position.is_none()).await?;
        }
        if let Some(new) = new.filter(|_| found.len() < limit) {
            found.extend(reader.rows(&new).await?);
        }
        reader.end().await?;
        let few = found.len() < limit;
        let found: Vec<(Vec<String>, Key)> = found.iter().map(|row| (row.get(0), row.get(1))).collect();
        let end = found.last().map(|(at, _)| at.clone());
        let last = few || (end.is_some() && end == way.bound);
        let dirty = match &self.keys {
            None => in_order(found),
            Some(keys) => keys.lead(found, reader).await?,
        };
        Ok(Page { dirty, end, last })
    }

    /// All rows of the window are looked at, for the few that are new: in the order of the table, not of the index.
    async fn late(&self, reader: &Reader, sql: &str, few: bool) -> Result<Vec<tokio_postgres::Row>> {
        if !few {
            return reader.rows(sql).await;
        }
        reader.run("set local enable_indexscan = off").await?;
        let rows = reader.rows(sql).await?;
        reader.run("set local enable_indexscan = on").await?;
        Ok(rows)
    }

    /// What was read before holds new rows only of transactions that were running then; `None` where that cannot
    /// be told.
    fn again(&self, way: &Way, range: &Range<'_>, limit: usize) -> Option<String> {
        let (since, old) = self.fence(range)?;
        let upto = compare(&self.order, "t", "<=", old);
        // Said of the first column alone as well: the planner takes only that for the other end of a range, and would else
        // rather look at the whole table.
        let first = self.first();
        let ends = format!("{} <= {}", first.expression("t"), first.value(old.first()?));
        let condition = format!("{}{upto} and {ends} and {}", self.after(way, range), is_since("t", since));
        Some(self.select(&condition, limit))
    }

    /// What lies above all that was read before.
    fn new_rows(&self, way: &Way, range: &Range<'_>, limit: usize) -> Option<String> {
        if self.late_only {
            return None;
        }
        let above = self.fence(range).map(|(_, old)| format!("{} and ", compare(&self.order, "t", ">", old)));
        let upto = compare(&self.order, "t", "<=", way.bound.as_ref()?);
        let condition = format!("{}{}{upto}", self.after(way, range), above.unwrap_or_default());
        Some(self.select(&condition, limit))
    }

    fn fence<'a>(&self, range: &Range<'a>) -> Option<(u64, &'a Vec<String>)> {
        let since = range.since.filter(|_| self.table.has_versions)?;
        Some((since, range.before?.bound.as_ref()?))
    }

    fn after(&self, way: &Way, range: &Range<'_>) -> String {
        match (&way.position, &range.start) {
            (Some(position), _) => format!("{} and ", compare(&self.order, "t", ">", position)),
            (None, Some(start)) => {
                format!("{} >= {} and ", self.order[0].expression("t"), self.order[0].cast(start))
            }
            (None, None) => String::new(),
        }
    }

    /// With ties: rows that share the last cursor come with it, because the next page begins behind them.
    fn select(&self, condition: &str, limit: usize) -> String {
        let (table, at) = (&self.table.name, texts(&self.order));
        let key = self.key.iter().map(|column| format!("t.{}::text", identifier(&column.name)));
        let key = key.collect::<Vec<_>>().join(", ");
        let order = expressions(&self.order, "t");
        let whole = conditions(&self.order, "t", "is not null", " and ");
        format!(
            "select array[{at}] as at, array[{key}]::text[] as key from {table} t where {condition} and {whole} order by {order} fetch first {limit} rows with ties"
        )
    }

    pub(super) async fn keys_without_cursor(&self, reader: &Reader) -> Result<Vec<Key>> {
        let key = self.key.iter().map(|column| format!("t.{}::text", identifier(&column.name)));
        let (table, key) = (&self.table.name, key.collect::<Vec<_>>().join(", "));
        let any_null = conditions(&self.order, "t", "is null", " or ");
        let sql = format!("select array[{key}]::text[] from {table} t where {any_null} limit {NULL_CURSORS}");
        Ok(reader.rows(&sql).await?.iter().map(|row| row.get(0)).collect())
    }
}

fn ordered_column(column: &TableColumn) -> OrderedColumn {
    OrderedColumn::new(&column.name, column.type_oid, &column.type_name)
}

fn texts(columns: &[OrderedColumn]) -> String {
    let texts = columns.iter().map(|column| format!("{}::text", column.expression("t")));
    texts.collect::<Vec<_>>().join(", ")
}
