//! A checked and described query on a session of its own, read by COPY BINARY.

use std::pin::Pin;

use arrow_array::RecordBatch;
use bytes::Bytes;
use futures_util::TryStreamExt;
use tokio_postgres::CopyOutStream;
use vitrina_core::{Error, Result};
use vitrina_guard::{DescribeError, DescribedColumn, Finding};
use vitrina_pgcopy::{Column, Decoder, select_list};

use crate::connection::{End, Session};
use crate::sources::Order;
use crate::sql::OrderedColumn;

/// Bounds the memory of a batch, whatever `batch_size` says.
const MAX_BATCH_BYTES: usize = 16 * 1024 * 1024;

pub(super) struct Reader {
    pub(super) session: Session,
    /// The query as a sub-select named `q`.
    pub(super) query: String,
    described: Vec<DescribedColumn>,
    columns: Vec<Column>,
    pub(super) batch_size: usize,
}

impl Reader {
    pub(super) async fn open(order: &Order<'_>) -> Result<Self> {
        let connection = order.connections.get(&order.pipeline.source_connection)?;
        let sql = order
            .pipeline
            .reader_sql()
            .ok_or_else(|| Error::fix("pipeline.source", "the pipeline has nothing to read"))?;
        refuse(&vitrina_guard::check(&sql, &connection.allowed_schemas))?;
        let session = Session::open(connection, End::Source, &order.lease.application_name()).await?;
        session.run("set default_transaction_read_only = on").await?;
        session.end_older(order.lease).await?;
        let described = describe(&session, &sql).await?;
        let columns = described.iter().map(|column| Column::new(&column.name, column.type_oid)).collect();
        let batch_size = usize::try_from(order.pipeline.batch_size).unwrap_or(1).max(1);
        Ok(Self { session, query: vitrina_guard::wrap(&sql), described, columns, batch_size })
    }

    /// The column of the query's result that has this name, with the way it orders.
    pub(super) fn ordered(&self, name: &str, role: &str) -> Result<OrderedColumn> {
        let column = self.column(name, role)?;
        Ok(OrderedColumn::new(&column.name, column.type_oid, &column.type_name))
    }

    pub(super) fn column(&self, name: &str, role: &str) -> Result<&DescribedColumn> {
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

    /// Starts a read-only transaction and a stream of rows in it; `tail` is WHERE, ORDER BY and LIMIT.
    pub(super) async fn stream(&self, tail: &str) -> Result<RowStream> {
        self.session.run("begin read only").await?;
        let copy = format!(
            "copy (select {} from {} {tail}) to stdout (format binary)",
            select_list(&self.columns),
            self.query
        );
        let stream =
            self.session.client.copy_out(&copy).await.map_err(|error| self.session.explain(error))?;
        Ok(RowStream { stream: Box::pin(stream), decoder: Decoder::new(&self.columns), rest: Bytes::new() })
    }

    pub(super) async fn end_transaction(&self) -> Result<()> {
        self.session.run("rollback").await
    }

    /// One row of texts.
    pub(super) async fn row(&self, sql: &str) -> Result<tokio_postgres::Row> {
        self.session.client.query_one(sql, &[]).await.map_err(|error| self.session.explain(error))
    }
}

/// Rows of a running COPY, cut into batches.
pub(super) struct RowStream {
    stream: Pin<Box<CopyOutStream>>,
    decoder: Decoder,
    rest: Bytes,
}

impl RowStream {
    /// The next rows, and whether they were the last ones.
    pub(super) async fn next(&mut self, reader: &Reader) -> Result<(RecordBatch, bool)> {
        loop {
            let full = self
                .decoder
                .push_until(&mut self.rest, reader.batch_size, MAX_BATCH_BYTES)
                .map_err(malformed)?;
            if full || self.decoder.is_finished() {
                break;
            }
            match self.stream.try_next().await.map_err(|error| reader.session.explain(error))? {
                Some(chunk) => self.rest = chunk,
                None => {
                    return Err(Error::release(
                        "source.connection_lost",
                        "the source ended in the middle of its rows",
                    ));
                }
            }
        }
        let rows = self.decoder.take().map_err(malformed)?;
        Ok((rows, self.decoder.is_finished()))
    }

    /// All rows that are left, in one piece: a page must not be cut between rows of one key.
    pub(super) async fn rest(&mut self, reader: &Reader) -> Result<RecordBatch> {
        while let Some(chunk) = self.stream.try_next().await.map_err(|error| reader.session.explain(error))? {
            self.decoder.push(&chunk).map_err(malformed)?;
        }
        if !self.decoder.is_finished() {
            return Err(Error::release(
                "source.connection_lost",
                "the source ended in the middle of its rows",
            ));
        }
        self.decoder.take().map_err(malformed)
    }

    /// Waits until the server has said that the COPY is over.
    pub(super) async fn drain(mut self, reader: &Reader) -> Result<()> {
        while self.stream.try_next().await.map_err(|error| reader.session.explain(error))?.is_some() {}
        Ok(())
    }
}

async fn describe(session: &Session, sql: &str) -> Result<Vec<DescribedColumn>> {
    match vitrina_guard::describe(&session.client, sql).await {
        Ok(described) => Ok(described),
        Err(DescribeError::Sql(findings)) => refuse(&findings).map(|()| Vec::new()),
        Err(DescribeError::Source(error)) => Err(error),
    }
}

fn refuse(findings: &[Finding]) -> Result<()> {
    let Some(first) = findings.first() else { return Ok(()) };
    let all = findings.iter().map(Finding::to_string).collect::<Vec<_>>().join("\n");
    Err(Error::fix(first.code, format!("the query is refused\n{all}")))
}

fn malformed(error: vitrina_pgcopy::Error) -> Error {
    Error::bug("source.malformed", format!("the source's rows cannot be read: {error}")).caused_by(error)
}
