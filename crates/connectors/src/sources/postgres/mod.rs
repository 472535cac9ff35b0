//! The Postgres source: checks and describes the query, then reads it whole in key order (full) or
//! page by page behind a cursor (incremental), always in read-only transactions.

mod cursor;
mod full;
mod reader;

use async_trait::async_trait;
use vitrina_core::{Batch, Error, Mode, Position, Result, Source};

use super::{Kind, Order};
use cursor::Cursor;
use full::FullRead;
use reader::Reader;

pub(super) struct Postgres;

#[async_trait]
impl Kind for Postgres {
    fn source_type(&self) -> &'static str {
        "postgres"
    }

    async fn open(&self, order: &Order<'_>) -> Result<Box<dyn Source>> {
        let reader = Reader::open(order).await?;
        let cursor = Cursor::of(order.pipeline, &reader)?;
        let pass = match (order.mode, cursor) {
            (Mode::Full, cursor) => Pass::Full(FullRead::new(&order.target.key, &reader, cursor)?),
            (Mode::Incremental, Some(cursor)) => Pass::Cursor(cursor),
            (Mode::Incremental, None) => {
                return Err(Error::fix("pipeline.incremental_key", "mode incremental needs incremental_key"));
            }
        };
        Ok(Box::new(PostgresSource { reader, pass }))
    }
}

struct PostgresSource {
    reader: Reader,
    pass: Pass,
}

enum Pass {
    Full(FullRead),
    Cursor(Cursor),
}

#[async_trait]
impl Source for PostgresSource {
    async fn read(&mut self, from: &Position) -> Result<Option<Batch>> {
        match &mut self.pass {
            Pass::Full(full) => full.read(&self.reader, from).await,
            Pass::Cursor(cursor) => cursor.read(&self.reader, from).await,
        }
    }
}
