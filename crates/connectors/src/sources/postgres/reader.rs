//! A checked and described query on a session of its own, read by COPY BINARY.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use arrow_array::RecordBatch;
use arrow_schema::{Schema, SchemaRef};
use bytes::Bytes;
use futures_util::TryStreamExt;
use futures_util::future::join;
use tokio_postgres::types::ToSql;
use tokio_postgres::{CopyOutStream, SimpleQueryMessage};
use vitrina_core::{Error, Lease, Position, Result, Watch};
use vitrina_guard::{ChangeTable, DescribeError, DescribedColumn, Finding};
use vitrina_pgcopy::{Column, Decoder, Flawed, arrow_schema, select_list};

use super::durable;
use super::origins::Origins;
use super::relations::Relations;
use crate::connection::{Connection, End, Session};
use crate::parked::Seat;
use crate::sources::Order;
use crate::sql::{OrderedColumn, orders_by_itself};

/// Stands for a type that has no binary form here: it travels as text.
const NO_TYPE: u32 = 0;
const NAME: u32 = 19;
const TEXT: u32 = 25;
const VARCHAR: u32 = 1043;

/// Postgres and `arrow_text` write values of these types in the same way; floats they do not.
const fn is_written_alike(oid: u32) -> bool {
    orders_by_itself(oid) && !matches!(oid, 26 | 700 | 701)
}

pub(crate) struct Reader {
    session: Seat,
    connection: Connection,
    lease: Lease,
    sql: String,
    /// The table that the pipeline says its rows stand for.
    driving: Option<String>,
    /// The query as a sub-select named `q`.
    pub(crate) query: String,
    /// All that is read in its transactions.
    relations: Relations,
    described: Vec<DescribedColumn>,
    pub(super) origins: Origins,
    columns: Vec<Column>,
    /// Every field with the type it was declared with, as `pg_type`.
    pub(crate) schema: SchemaRef,
    pub(super) batch_size: usize,
    max_batch_bytes: usize,
    /// The rows stay on their server.
    stays: bool,
    log: AtomicU64,
    /// Few rows are asked for at a time, by keys that an index may serve.
    pub(crate) by_keys: bool,
}

/// Which transaction a reader has begun.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Begun {
    /// The one of the first message.
    AtOnce,
    /// One in place of that.
    Later,
}

/// How often a transaction is begun before its source is given up for now.
const MOST_ROUNDS: usize = 10;
const BEGIN: &str = "begin isolation level repeatable read read only";
/// With the costs of disks that turn, some thousand keys make the planner read the whole table, with helpers.
const FOR_KEYS: &str = "set local random_page_cost = 1.1; set local max_parallel_workers_per_gather = 0";

impl Reader {
    pub(crate) async fn open(order: &Order<'_>) -> Result<Self> {
        let connection = order.connections.get(&order.pipeline.source_connection)?;
        let sql = order
            .pipeline
            .reader_sql()
            .ok_or_else(|| Error::fix("pipeline.source", "the pipeline has nothing to read"))?;
        refuse(&vitrina_guard::check(&sql, &connection.allowed_schemas))?;
        let session = connect(connection, order.lease).await?;
        if order.takeover {
            session.end_older(order.lease.pipeline, order.lease.token).await?;
        }
        let (schemas, ceiling) = (&connection.allowed_schemas, connection.max_query_cost);
        // First of all: to describe a query its literals are read, and domains check what becomes theirs.
        refuse(&vitrina_guard::check_plan(&session.client, &sql, schemas, ceiling).await?)?;
        let described = describe(&session, &sql).await?;
        let columns: Vec<Column> =
            described.iter().map(|column| Column::new(&column.name, column.type_oid)).collect();
        let schema = declared(&session, &described, &columns).await?;
        let origins = origins(&session, &sql, &described).await?;
        session.set_busy(false);
        Ok(Self {
            session,
            origins,
            connection: connection.clone(),
            lease: *order.lease,
            query: vitrina_guard::wrap(&sql),
            relations: Relations::of(&sql),
            driving: order.pipeline.driving_table().map(str::to_owned),
            sql,
            described,
            columns,
            schema,
            batch_size: usize::try_from(order.pipeline.batch_size).unwrap_or(1).max(1),
            max_batch_bytes: order.max_batch_bytes,
            stays: false,
            log: AtomicU64::default(),
            by_keys: false,
        })
    }

    /// What proves to tell the query's rows apart.
    pub(super) async fn propose_key(&self) -> Result<Option<Vec<String>>> {
        let proposed = vitrina_guard::proposed_key(&self.session.client, &self.sql, &self.described).await;
        proposed.map_err(|error| self.session.explain(error))
    }

    /// A new session in place of one that is stuck in the middle of an answer.
    pub(super) async fn reconnect(&mut self) -> Result<()> {
        self.session = connect(&self.connection, &self.lease).await?;
        Ok(())
    }

    /// Positions and rejects are made of keys as Postgres writes them: a key that would be written in another
    /// way here travels as text.
    pub(super) async fn take_key(&mut self, key: &[String]) -> Result<()> {
        let before = self.columns.clone();
        for (column, described) in self.columns.iter_mut().zip(&self.described) {
            let is_plain =
                matches!(described.type_oid, TEXT | VARCHAR | NAME) || is_written_alike(described.type_oid);
            if !is_plain && key.contains(&column.name) {
                column.oid = NO_TYPE;
            }
        }
        if self.columns != before {
            self.schema = declared(&self.session, &self.described, &self.columns).await?;
        }
        Ok(())
    }

    /// The column of the query's result that has this name, with the way it orders.
    pub(super) fn ordered(&self, name: &str, role: &str) -> Result<OrderedColumn> {
        let column = self.column(name, role)?;
        Ok(OrderedColumn::new(&column.name, column.type_oid, &column.type_name))
    }

    pub(crate) fn column(&self, name: &str, role: &str) -> Result<&DescribedColumn> {
        self.described.iter().find(|column| column.name == name).ok_or_else(|| {
            let known =
                self.described.iter().map(|column| column.name.as_str()).collect::<Vec<_>>().join(", ");
            Error::fix(
                "source.missing_column",
                format!("the query returns no column {name:?}, which is its {role}"),
            )
            .hint(format!("it returns: {known}"))
        })
    }

    /// Small batches share one query instead of costing one each: ten of them, up to ten thousand rows.
    pub(super) fn page_rows(&self) -> usize {
        self.batch_size.max((10 * self.batch_size).min(10_000))
    }

    /// As long as nothing has been read the sink waits. Reading takes about a quarter of the time of writing: with so
    /// much to write it does not wait again. Small batches are few rows as they are.
    pub(super) fn first_rows(&self) -> usize {
        (self.batch_size / 4).max(1000)
    }

    /// What COPY reads; `tail` is WHERE, ORDER BY and LIMIT.
    pub(super) fn select(&self, tail: &str) -> String {
        format!("select {} from {} {tail}", select_list(&self.columns), self.query)
    }

    /// Further relations, by quoted and qualified names.
    pub(super) fn reads(&self, relations: impl IntoIterator<Item = String>) {
        self.relations.add(relations);
    }

    /// Rows that stay on their server need no waiting for its disk: a crash would take both or none.
    pub(super) async fn take_server(&mut self, target: Option<&str>) -> Result<()> {
        self.stays = target == Some(self.session.server().await?.as_str());
        Ok(())
    }

    /// Begins a read-only transaction that sees nothing which could still vanish, and all that was there at one moment.
    pub(crate) async fn begin(&self) -> Result<Begun> {
        self.session.set_busy(true);
        let mut begun = self.try_begin("").await?;
        for _ in 0..MOST_ROUNDS {
            if let Some(begun) = begun {
                return Ok(begun);
            }
            begun = self.try_begin("rollback; ").await?.map(|_| Begun::Later);
        }
        let message = "tables of the source are truncated or rewritten again and again while they are read";
        Err(Error::release("source.rewritten", message))
    }

    /// `None` where that is no such transaction. Both messages are sent before the first is answered.
    async fn try_begin(&self, before: &str) -> Result<Option<Begun>> {
        let for_keys = self.by_keys.then(|| FOR_KEYS.to_owned());
        let begin: Vec<String> =
            [Some(BEGIN.to_owned()), for_keys, self.relations.lock()].into_iter().flatten().collect();
        let begin = begin.join("; ");
        let first = format!("{before}{begin}");
        let (locked, begun) =
            join(self.session.client.batch_execute(&first), self.durably_begun(&begin)).await;
        match locked {
            Err(error) if self.relations.refuse_lock(&error) => return Ok(None),
            Err(error) => return Err(self.session.explain(error)),
            Ok(()) => {}
        }
        let begun = begun?;
        Ok(self.relations.are_as_shown(&self.session).await?.then_some(begun))
    }

    async fn durably_begun(&self, begin: &str) -> Result<Begun> {
        if self.stays {
            return Ok(Begun::AtOnce);
        }
        let durable = durable::wait(&self.session, begin).await?;
        self.log.store(durable.log.unwrap_or_default(), Ordering::Relaxed);
        Ok(if durable.first { Begun::AtOnce } else { Begun::Later })
    }

    /// How long the source's log was when its rows were last looked at. None of a standby, which follows another's, and
    /// none where the mart is on the same server, and is restored with it.
    pub(super) fn log(&self) -> Option<u64> {
        Some(self.log.load(Ordering::Relaxed)).filter(|log| *log > 0)
    }

    /// The source lacks what rows have come from: it was restored, with files or volumes of an earlier moment.
    pub(super) fn has_gone_back(&self, from: &Position) -> bool {
        self.log().zip(from.seen).is_some_and(|(now, then)| now < then)
    }

    /// COPY does not tell the types of what it sends: the query is described again in its very transaction, which holds
    /// all relations. Columns that have come since are the next run's.
    async fn begin_as_described(&self) -> Result<()> {
        let describe = || vitrina_guard::columns(&self.session.client, &self.sql);
        let (begun, columns) = join(self.begin(), describe()).await;
        let columns = match begun? {
            Begun::AtOnce => columns,
            Begun::Later => describe().await,
        };
        let columns = columns.map_err(|error| self.session.explain(error))?;
        match self.described.iter().find(|known| !columns.iter().any(|column| column.is_like(known))) {
            None => Ok(()),
            Some(changed) => Err(columns_changed(&changed.name)),
        }
    }

    pub(crate) async fn end(&self) -> Result<()> {
        self.session.run("rollback").await?;
        self.session.set_busy(false);
        Ok(())
    }

    /// The same with the rows in an order of their own.
    pub(super) async fn page_within(&self, tail: &str, order: &str) -> Result<Page> {
        if order.is_empty() {
            return self.page(tail).await;
        }
        let (list, query) = (select_list(&self.columns), &self.query);
        self.copy(&format!("select {list} from (select * from {query} {tail}) q {order}")).await
    }

    /// Starts a read-only transaction and a page of rows in it.
    pub(super) async fn page(&self, tail: &str) -> Result<Page> {
        self.copy(&self.select(tail)).await
    }

    async fn copy(&self, select: &str) -> Result<Page> {
        self.begin_as_described().await?;
        let copy = format!("copy ({select}) to stdout (format binary)");
        let stream =
            self.session.client.copy_out(&copy).await.map_err(|error| self.session.explain(error))?;
        let decoder = Box::new(Decoder::new(&self.columns));
        Ok(Page { stream: Box::pin(stream), decoder, rest: Bytes::new(), rows: 0 })
    }

    /// The table that a column of the query is a plain column of.
    pub(super) fn origin(&self, column: &str) -> Option<u32> {
        let described = self.described.iter().find(|described| described.name == column)?;
        described.origin.map(|(table, _)| table)
    }

    /// Oid and name of the type of a column of the query: of a domain, what it is based on.
    pub(super) fn type_of(&self, column: &str) -> Option<(u32, &str)> {
        let described = self.described.iter().find(|described| described.name == column)?;
        Some((described.type_oid, described.type_name.as_str()))
    }

    /// As it is sent, without its end.
    pub(super) fn sql(&self) -> &str {
        &self.sql
    }

    /// The table that all these columns of the query are plain columns of, or why there is none. Where the
    /// pipeline names it beside its query, it must be the one.
    pub(super) async fn driving_table(
        &self,
        wanted: &[&str],
        ordered: usize,
    ) -> Result<std::result::Result<ChangeTable, String>> {
        let (client, described) = (&self.session.client, &self.described);
        let question = format!("{:?} {described:?} {wanted:?} {ordered} {}", self.driving, self.sql);
        let known = &self.connection.known_tables;
        let Some(table) = &self.driving else {
            let ask = vitrina_guard::driving_table(client, &self.sql, described, wanted, ordered);
            return self.asked(known.recall(question, ask)).await;
        };
        let ask = vitrina_guard::named_table(client, &self.sql, table, described, wanted, ordered);
        let table = self.asked(known.recall(question, ask)).await?;
        self.reads(table.iter().map(|table| table.name.clone()));
        table.map(Ok).map_err(|reason| {
            Error::fix("source.driving_table", reason).hint(
                "beside a query, source_table names the table whose rows carry the cursor and the change key: return that key as the table has it, or leave source_table out",
            )
        })
    }

    /// Rows that are no function of their change key cannot be read one by one.
    pub(super) fn refuse_unkeyed(&self, change_key: &[String]) -> Result<()> {
        refuse(&vitrina_guard::check_keyed(&self.sql, change_key))
    }

    /// The guard's word on a watched table, again: rows of the meta-store may be written past the API.
    pub(super) async fn refuse_watch(&self, watch: &Watch) -> Result<()> {
        let schemas = &self.connection.allowed_schemas;
        refuse(&vitrina_guard::check_table(&watch.table, schemas))?;
        let Some(keys) = watch.keys.as_deref() else { return Ok(()) };
        refuse(&vitrina_guard::check_watch(keys, schemas))?;
        self.reads(vitrina_guard::relations(keys));
        let was_busy = self.session.set_busy(true);
        let ceiling = self.connection.max_query_cost;
        let findings = vitrina_guard::check_plan(&self.session.client, keys, schemas, ceiling).await?;
        self.session.set_busy(was_busy);
        refuse(&findings)
    }

    /// A table by its name, as the catalog knew it a moment ago.
    pub(super) async fn change_table(
        &self,
        table: &str,
        columns: &[&str],
        ordered: usize,
    ) -> Result<ChangeTable> {
        let question = format!("{table} {columns:?} {ordered}");
        let ask = vitrina_guard::change_table(&self.session.client, table, columns, ordered);
        let table = self.asked(self.connection.known_tables.recall(question, ask)).await?;
        self.reads(table.iter().map(|table| table.name.clone()));
        table.map_err(|reason| Error::fix("watch.table", reason))
    }

    /// The answer to a statement that is asked in every run.
    pub(super) async fn known_rows(&self, sql: &'static str) -> Result<Vec<tokio_postgres::Row>> {
        let was_busy = self.session.set_busy(true);
        let rows = self.session.rows(sql).await;
        self.session.set_busy(was_busy);
        rows
    }

    /// One row of texts.
    pub(super) async fn row(&self, sql: &str) -> Result<tokio_postgres::Row> {
        self.asked(self.session.client.query_one(sql, &[])).await
    }

    /// All lines of an answer in text form.
    pub(super) async fn text(&self, sql: &str) -> Result<String> {
        let answer = self.asked(self.session.client.simple_query(sql)).await?;
        let line = |message: &SimpleQueryMessage| match message {
            SimpleQueryMessage::Row(row) => row.get(0).map(str::to_owned),
            _ => None,
        };
        Ok(answer.iter().filter_map(line).collect::<Vec<_>>().join("\n"))
    }

    pub(super) async fn run(&self, sql: &str) -> Result<()> {
        self.session.run(sql).await
    }

    pub(crate) async fn rows(&self, sql: &str) -> Result<Vec<tokio_postgres::Row>> {
        self.rows_with(sql, &[]).await
    }

    pub(super) async fn rows_with(
        &self,
        sql: &str,
        parameters: &[&(dyn ToSql + Sync)],
    ) -> Result<Vec<tokio_postgres::Row>> {
        self.asked(self.session.client.query(sql, parameters)).await
    }

    /// A session whose question nobody waits for any more is of no use to the next run.
    async fn asked<T>(
        &self,
        question: impl Future<Output = std::result::Result<T, tokio_postgres::Error>>,
    ) -> Result<T> {
        let was_busy = self.session.set_busy(true);
        let answer = question.await.map_err(|error| self.session.explain(error));
        self.session.set_busy(was_busy);
        answer
    }
}

/// A session keeps as much memory as its largest row took: with one of this many bytes it ends with its run.
const LARGE: usize = 8 << 20;

/// The rows of a running COPY, cut into batches.
pub(super) struct Page {
    stream: Pin<Box<CopyOutStream>>,
    decoder: Box<Decoder>,
    rest: Bytes,
    /// Rows handed out so far.
    pub(super) rows: usize,
}

/// A piece of a page.
pub(super) struct Piece {
    pub(super) rows: RecordBatch,
    /// Values that could not be converted, and stand as NULL.
    pub(super) flawed: Vec<Flawed>,
    /// Nothing follows in this page; its transaction is over.
    pub(super) ends_page: bool,
}

impl Page {
    /// The next rows: up to `max_rows`, or with the row that reaches the limit of bytes.
    pub(super) async fn next(&mut self, reader: &Reader, max_rows: usize) -> Result<Piece> {
        loop {
            let full = self
                .decoder
                .push_until(&mut self.rest, max_rows, reader.max_batch_bytes)
                .map_err(malformed)?;
            if full || self.decoder.is_finished() {
                break;
            }
            // Before the next one: it holds the memory of a row that may be hundreds of megabytes.
            self.rest = Bytes::new();
            let chunk = self.stream.try_next().await.map_err(|error| reader.session.explain(error))?;
            self.rest = chunk.ok_or_else(|| {
                Error::release("source.connection_lost", "the source ended in the middle of its rows")
            })?;
            if self.rest.len() > LARGE {
                reader.session.retire();
            }
        }
        if self.rest.is_empty() {
            self.rest = Bytes::new();
        }
        let decoded = self.decoder.take().map_err(malformed)?;
        self.rows += decoded.rows.num_rows();
        let ends_page = self.decoder.is_finished();
        if ends_page {
            self.end(reader).await?;
        }
        let rows = decoded.rows.with_schema(reader.schema.clone());
        let rows = rows.map_err(|error| Error::defect("source.schema", &error))?;
        Ok(Piece { rows, flawed: decoded.flawed, ends_page })
    }

    /// Waits until the server has said that the COPY is over.
    async fn end(&mut self, reader: &Reader) -> Result<()> {
        while self.stream.try_next().await.map_err(|error| reader.session.explain(error))?.is_some() {}
        reader.end().await
    }
}

/// A load is often sorted by the target's key: a little more memory than the default of old halves that. Statements outside
/// of `begin` take their snapshot when they have their locks.
const SESSION: &str =
    "set default_transaction_read_only = on; set default_transaction_isolation = 'read committed';
    set statement_timeout = '1h';
    select set_config('work_mem', '32MB', false) where pg_size_bytes(current_setting('work_mem')) < 33554432";

async fn connect(connection: &Connection, lease: &Lease) -> Result<Seat> {
    Seat::open(connection, End::Source, &lease.application_name(), SESSION).await
}

async fn describe(session: &Session, sql: &str) -> Result<Vec<DescribedColumn>> {
    match vitrina_guard::describe(&session.client, sql).await {
        Ok(described) => Ok(described),
        Err(DescribeError::Sql(findings)) => refuse(&findings).map(|()| Vec::new()),
        Err(DescribeError::Source(error)) => Err(error),
    }
}

/// The Arrow schema, with the types as SQL writes them: a mart may be created from it.
async fn declared(session: &Session, described: &[DescribedColumn], columns: &[Column]) -> Result<SchemaRef> {
    let oids: Vec<u32> = described.iter().map(|column| column.type_oid).collect();
    let modifiers: Vec<i32> = described.iter().map(|column| column.type_modifier).collect();
    let (tables, numbers): (Vec<Option<u32>>, Vec<Option<i16>>) =
        described.iter().map(|column| column.origin.unzip()).unzip();
    let sql = "select format_type(oid, modifier),
                      exists (select from pg_attribute a join pg_collation l on l.oid = a.attcollation and not l.collisdeterministic
                               where a.attrelid = t.origin and a.attnum = t.number)
                 from unnest($1::oid[], $2::int[], $3::oid[], $4::int2[]) with ordinality as t (oid, modifier, origin, number, n) order by n";
    let types = session.client.query(sql, &[&oids, &modifiers, &tables, &numbers]).await;
    let types = types.map_err(|error| session.explain(error))?;
    let schema = arrow_schema(columns);
    let fields = schema.fields().iter().zip(types).map(|(field, row)| {
        let mut metadata = field.metadata().clone();
        metadata.insert("pg_type".to_owned(), row.get(0));
        // Texts that are not the same may be equal there.
        if row.get(1) {
            metadata.insert("pg_folds_texts".to_owned(), "true".to_owned());
        }
        field.as_ref().clone().with_metadata(metadata)
    });
    Ok(Arc::new(Schema::new(fields.collect::<Vec<_>>())))
}

/// A view may be made anew at any time, from the same tables.
async fn origins(session: &Session, sql: &str, described: &[DescribedColumn]) -> Result<Origins> {
    let tables: Vec<Option<u32>> =
        described.iter().map(|column| column.origin.map(|(table, _)| table)).collect();
    let kinds = "select exists (select from pg_class c where c.oid = t.oid and c.relkind in ('r', 'p'))
                   from unnest($1::oid[]) with ordinality as t (oid, n) order by n";
    let found = session.client.query(kinds, &[&tables]).await.map_err(|error| session.explain(error))?;
    Ok(Origins::of(sql, described, |place| found.get(place).is_some_and(|row| row.get(0))))
}

fn refuse(findings: &[Finding]) -> Result<()> {
    let Some(first) = findings.first() else { return Ok(()) };
    let all = findings.iter().map(Finding::to_string).collect::<Vec<_>>().join("\n");
    Err(Error::fix(first.code, format!("the query is refused\n{all}")))
}

/// The next attempt describes it anew.
fn columns_changed(column: &str) -> Error {
    let message =
        format!("column {column:?} of the query was dropped or given another type while it was read");
    Error::retry("source.columns_changed", message)
}

fn malformed(error: vitrina_pgcopy::Error) -> Error {
    Error::bug("source.malformed", format!("the source's rows cannot be read: {error}")).caused_by(error)
}
