//! Where the rows of a pipeline are compared: at their source, or beside the mart.

use std::sync::Arc;

use tokio_postgres::Row;
use vitrina_core::{Mode, Result};

use super::super::mart::Mart;
use super::super::shape::Shape;
use super::staged::Staged;
use super::{Session, ask};
use crate::reconcile::{Key, Order};
use crate::sources::postgres::reader::Reader;
use crate::sources::postgres::recompute::newest_last;

pub(super) enum Origin<'a> {
    /// The query's own rows are what is written: the source hashes them.
    Query(Box<Query>),
    /// Rows as the transforms leave them, in a temporary table.
    Staged(Box<Staged<'a>>),
}

pub(super) struct Query {
    reader: Reader,
    columns: Vec<String>,
    newest_last: String,
}

impl<'a> Origin<'a> {
    pub(super) async fn open(order: &'a Order<'a>, mart: &Mart, session: Arc<Session>) -> Result<Self> {
        if order.pipeline.source_type == "postgres" && order.pipeline.transforms().is_empty() {
            return Ok(Self::Query(Box::new(Query::open(order, mart).await?)));
        }
        Ok(Self::Staged(Box::new(Staged::open(order, mart, session).await?)))
    }

    pub(super) fn columns(&self) -> &[String] {
        match self {
            Self::Query(query) => &query.columns,
            Self::Staged(staged) => staged.columns(),
        }
    }

    /// Rows that were read for it and refused.
    pub(super) fn refused(&self) -> u64 {
        match self {
            Self::Query(_) => 0,
            Self::Staged(staged) => staged.refused(),
        }
    }

    pub(super) fn alias(&self) -> &'static str {
        match self {
            Self::Query(_) => "q",
            Self::Staged(_) => "s",
        }
    }

    /// `None` where it is another one in either case.
    pub(super) fn type_of(&self, name: &str) -> Result<Option<u32>> {
        match self {
            Self::Query(query) => Ok(Some(query.reader.column(name, "column")?.type_oid)),
            Self::Staged(_) => Ok(None),
        }
    }

    /// As it was declared, with its precision.
    pub(super) fn is_of_type(&self, name: &str, full_type: &str) -> bool {
        match self {
            Self::Query(query) => query.reader.schema.field_with_name(name).is_ok_and(|field| {
                field.metadata().get("pg_type").is_some_and(|declared| declared == full_type)
            }),
            Self::Staged(_) => false,
        }
    }

    pub(super) fn relation(&self) -> String {
        match self {
            Self::Query(query) => query.reader.query.clone(),
            Self::Staged(_) => Staged::RELATION.to_owned(),
        }
    }

    /// Where the rows that some keys have now are found.
    pub(super) fn relation_of_keys(&self) -> String {
        match self {
            Self::Query(query) => query.reader.query.clone(),
            Self::Staged(_) => Staged::AGAIN.to_owned(),
        }
    }

    pub(super) fn newest_last(&self) -> String {
        match self {
            Self::Query(query) => query.newest_last.clone(),
            Self::Staged(staged) => staged.newest_last(),
        }
    }

    /// Of all its rows.
    pub(super) async fn ask(&mut self, sql: &str) -> Result<Vec<Row>> {
        match self {
            Self::Query(query) => query.reader.rows(sql).await,
            Self::Staged(staged) => ask(staged.session(), sql).await,
        }
    }

    /// Of the rows that these keys have now.
    pub(super) async fn ask_keys(&mut self, sql: &str, keys: &[Key]) -> Result<Vec<Row>> {
        match self {
            Self::Query(query) => query.ask_few(sql).await,
            Self::Staged(staged) => {
                staged.read_again(keys).await?;
                ask(staged.session(), sql).await
            }
        }
    }

    /// After a statement that was refused.
    pub(super) async fn recover(&mut self) -> Result<()> {
        match self {
            Self::Query(query) => query.reader.end().await,
            Self::Staged(_) => Ok(()),
        }
    }

    /// Of some ranges of keys.
    pub(super) async fn ask_few(&mut self, sql: &str) -> Result<Vec<Row>> {
        match self {
            Self::Query(query) => query.ask_few(sql).await,
            Self::Staged(staged) => ask(staged.session(), sql).await,
        }
    }
}

impl Query {
    async fn open(order: &Order<'_>, mart: &Mart) -> Result<Self> {
        let lease = order.lease();
        let mut reader = Reader::open(&order.source(&lease, Mode::Full, None)).await?;
        Shape::new(mart, &reader.schema)?;
        reader.by_keys = true;
        let columns = reader.schema.fields().iter().map(|field| field.name().clone()).collect();
        Ok(Self { newest_last: newest_last(order.pipeline, &reader), reader, columns })
    }

    /// By keys that an index may serve.
    async fn ask_few(&self, sql: &str) -> Result<Vec<Row>> {
        self.reader.begin().await?;
        let rows = self.reader.rows(sql).await?;
        self.reader.end().await?;
        Ok(rows)
    }
}
