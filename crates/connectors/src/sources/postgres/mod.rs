//! The Postgres source: checks and describes the query, then reads it whole in key order (full), page by
//! page behind a cursor (incremental), or by keys (backfill), always in read-only transactions.

mod backfill;
pub mod changelog;
mod cursor;
mod dirty;
mod durable;
mod estimate;
mod load;
mod opening;
mod pending;
mod reader;
mod recompute;

use arrow_schema::SchemaRef;
use async_trait::async_trait;
use serde_json::Value;
use uuid::Uuid;
use vitrina_core::{Advice, Batch, Capture, Destination, Error, Mode, Pipeline, Position, Result, Source};

use super::{Kind, Order};
use backfill::Backfill;
use changelog::Changelog;
use cursor::Cursor;
use load::{Baseline, Load};
use reader::Reader;
use recompute::{Recompute, newest_last};

pub(super) struct Postgres;

#[async_trait]
impl Kind for Postgres {
    fn source_type(&self) -> &'static str {
        "postgres"
    }

    async fn open(&self, order: &Order<'_>) -> Result<Box<dyn Source>> {
        let reader = Reader::open(order).await?;
        let keys = order.keys.map(<[Value]>::to_vec);
        let pipeline = order.pipeline.clone();
        let follows =
            Follows { installation: order.installation, changelog_max_age: order.changelog_max_age };
        Ok(Box::new(PostgresSource { reader, pipeline, mode: order.mode, keys, follows, feed: None }))
    }
}

/// How this installation follows a change log.
struct Follows {
    installation: Uuid,
    /// In seconds: whoever is silent for longer is not waited for.
    changelog_max_age: i64,
}

struct PostgresSource {
    reader: Reader,
    pipeline: Pipeline,
    mode: Mode,
    keys: Option<Vec<Value>>,
    follows: Follows,
    /// Chosen when the source begins.
    feed: Option<Feed>,
}

/// What names the rows to read.
enum Feed {
    Load(Box<Load>),
    Cursor(Box<Cursor>),
    Changelog(Box<Changelog>),
    Backfill(Backfill),
}

#[async_trait]
impl Source for PostgresSource {
    fn schema(&self) -> SchemaRef {
        self.reader.schema.clone()
    }

    async fn begin(&mut self, destination: &Destination) -> Result<()> {
        let key = destination.key.as_slice();
        self.reader.take_key(key).await?;
        self.reader.take_server(destination.server.as_deref()).await?;
        if let Some(keys) = &self.keys {
            let recompute =
                Recompute::new(key, key, &self.reader, &newest_last(&self.pipeline, &self.reader))?;
            self.feed = Some(Feed::Backfill(Backfill::new(key, keys, recompute)?));
            return Ok(());
        }
        if self.mode == Mode::Incremental {
            let change_key = &self.pipeline.change_key;
            self.reader.refuse_unkeyed(if change_key.is_empty() { key } else { change_key })?;
        }
        if self.pipeline.capture == Capture::Changelog {
            let changelog = Changelog::of(&self.pipeline, &self.reader, key, &self.follows).await?;
            let log: Box<dyn Baseline> = Box::new(changelog.log());
            self.feed = Some(match self.mode {
                Mode::Incremental => Feed::Changelog(Box::new(changelog)),
                Mode::Full => {
                    Feed::Load(Box::new(Load::new(key, &self.pipeline, &self.reader, Some(log)).await?))
                }
            });
            return Ok(());
        }
        let cursor = Cursor::of(&self.pipeline, &self.reader, key).await?;
        self.feed = Some(match (self.mode, cursor) {
            (Mode::Full, cursor) => {
                let baseline = cursor.map(|cursor| Box::new(cursor) as Box<dyn Baseline>);
                Feed::Load(Box::new(Load::new(key, &self.pipeline, &self.reader, baseline).await?))
            }
            (Mode::Incremental, Some(cursor)) => Feed::Cursor(Box::new(cursor)),
            (Mode::Incremental, None) => {
                return Err(Error::fix("pipeline.incremental_key", "mode incremental needs incremental_key"));
            }
        });
        Ok(())
    }

    async fn read(&mut self, from: &Position) -> Result<Option<Batch>> {
        match &mut self.feed {
            Some(Feed::Load(load)) => load.read(&self.reader, from).await,
            Some(Feed::Cursor(cursor)) => cursor.read(&mut self.reader, from).await,
            Some(Feed::Changelog(changelog)) => changelog.read(&mut self.reader, from).await,
            Some(Feed::Backfill(backfill)) => backfill.read(&mut self.reader, from).await,
            None => Err(Error::bug("source.feed", "the source is read before it has begun")),
        }
    }

    async fn advise(&self) -> Result<Vec<Advice>> {
        match &self.feed {
            Some(Feed::Load(load)) => Ok(vec![load.advice()]),
            Some(Feed::Cursor(cursor)) => cursor.advise(&self.reader).await,
            Some(Feed::Changelog(changelog)) => changelog.advise(&self.reader).await,
            Some(Feed::Backfill(_)) | None => Ok(Vec::new()),
        }
    }

    async fn rest(&mut self) -> Result<()> {
        let open = match &mut self.feed {
            Some(Feed::Load(load)) => load.let_go(),
            Some(Feed::Cursor(cursor)) => cursor.let_go(),
            Some(Feed::Changelog(changelog)) => changelog.let_go(),
            _ => false,
        };
        if open { self.reader.reconnect().await } else { Ok(()) }
    }
}
