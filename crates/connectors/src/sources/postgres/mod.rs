//! The Postgres source: checks and describes the query, then reads it whole in key order (full), page by
//! page behind a cursor (incremental), or by keys or a range of the cursor (backfill), always in read-only transactions.

mod advice;
pub(crate) mod asked_keys;
mod backfill;
pub mod changelog;
mod cursor;
mod dirty;
mod durable;
mod estimate;
mod load;
mod opening;
mod origins;
mod pending;
pub(crate) mod reader;
pub(crate) mod recompute;
mod relations;

use arrow_schema::SchemaRef;
use async_trait::async_trait;
use uuid::Uuid;
use vitrina_core::{
    Advice, Backfill, Batch, Capture, Destination, Error, ErrorKind, Mode, Pipeline, Position, Result, Source,
};

use super::{Kind, Left, Order};
use asked_keys::AskedKeys;
use backfill::{KeyBackfill, KeyRules};
use changelog::Changelog;
use cursor::{Cursor, RangeBackfill};
use load::{Baseline, Load, is_load};
use reader::Reader;
use recompute::Recompute;

#[derive(Debug)]
pub(super) struct Postgres;

#[async_trait]
impl Kind for Postgres {
    fn source_type(&self) -> &'static str {
        "postgres"
    }

    async fn open(&self, order: &Order<'_>) -> Result<Box<dyn Source>> {
        let reader = Reader::open(order).await?;
        let backfill = order.backfill.cloned();
        let pipeline = order.pipeline.clone();
        let follows = Follows {
            installation: order.installation,
            changelog_max_age: order.changelog_max_age,
            observes: order.observes,
        };
        Ok(Box::new(PostgresSource {
            reader,
            pipeline,
            mode: order.mode,
            backfill,
            strict_keys: order.strict_keys,
            follows,
            feed: None,
        }))
    }

    async fn forget(&self, left: &Left<'_>) -> Result<()> {
        changelog::forget(left).await
    }
}

/// How this installation follows a change log.
struct Follows {
    installation: Uuid,
    /// In seconds: whoever is silent for longer is not waited for.
    changelog_max_age: i64,
    /// It only looks: what it has read is still to be read.
    observes: bool,
}

struct PostgresSource {
    reader: Reader,
    pipeline: Pipeline,
    mode: Mode,
    backfill: Option<Backfill>,
    strict_keys: bool,
    follows: Follows,
    /// Chosen when the source begins.
    feed: Option<Feed>,
}

/// What names the rows to read.
enum Feed {
    Load(Box<Load>),
    Cursor(Box<Cursor>),
    Changelog(Box<Changelog>),
    Keys(Box<KeyBackfill>),
    Range(Box<RangeBackfill>),
}

#[async_trait]
impl Source for PostgresSource {
    fn schema(&self) -> Option<SchemaRef> {
        Some(self.reader.schema.clone())
    }

    async fn propose_key(&mut self) -> Result<Option<Vec<String>>> {
        self.reader.propose_key().await
    }

    async fn begin(&mut self, destination: &Destination) -> Result<()> {
        let key = destination.key.as_slice();
        self.reader.take_key(key).await?;
        self.reader.take_server(destination.server.as_deref()).await?;
        let feed = match &self.backfill {
            Some(backfill) => self.backfill(backfill, destination).await?,
            None => self.pass(key).await?,
        };
        self.reader.by_keys = !matches!(feed, Feed::Load(_));
        self.feed = Some(feed);
        Ok(())
    }
    async fn read(&mut self, from: &Position) -> Result<Option<Batch>> {
        let mut batch = match &mut self.feed {
            Some(Feed::Load(load)) => load.read(&self.reader, from).await,
            Some(Feed::Cursor(cursor)) => cursor.read(&mut self.reader, from).await,
            Some(Feed::Changelog(changelog)) => changelog.read(&mut self.reader, from).await,
            Some(Feed::Keys(backfill)) => backfill.read(&mut self.reader, from).await,
            Some(Feed::Range(backfill)) => backfill.read(&mut self.reader, from).await,
            None => Err(Error::bug("source.feed", "the source is read before it has begun")),
        }?;
        if let Some(to) = batch.as_mut().and_then(|batch| batch.to.as_mut()) {
            to.seen = self.seen(from)?;
        }
        Ok(batch)
    }

    async fn advise(&self) -> Result<Vec<Advice>> {
        match &self.feed {
            Some(Feed::Load(load)) => Ok(vec![load.advice()]),
            Some(Feed::Cursor(cursor)) => cursor.advise(&self.reader).await,
            Some(Feed::Changelog(changelog)) => changelog.advise(&self.reader).await,
            Some(Feed::Keys(_) | Feed::Range(_)) | None => Ok(Vec::new()),
        }
    }

    async fn rest(&mut self) -> Result<()> {
        let open = match &mut self.feed {
            Some(Feed::Load(load)) => load.let_go(),
            Some(Feed::Cursor(cursor)) => cursor.let_go(),
            Some(Feed::Changelog(changelog)) => changelog.let_go(),
            Some(Feed::Range(backfill)) => backfill.let_go(),
            Some(Feed::Keys(_)) | None => false,
        };
        if open { self.reader.reconnect().await } else { Ok(()) }
    }
}

impl PostgresSource {
    /// The latest moment that rows of the target have come from, with those that were just read. A new load forgets what was
    /// before it; one that was begun before its source went back holds rows that are no more.
    fn seen(&self, from: &Position) -> Result<Option<u64>> {
        let loads = match &self.feed {
            Some(Feed::Load(_)) => true,
            Some(Feed::Cursor(cursor)) => cursor.is_loading(),
            Some(Feed::Changelog(changelog)) => changelog.is_loading(),
            Some(Feed::Keys(_) | Feed::Range(_)) | None => false,
        };
        match (loads, is_load(from)) {
            (true, false) => Ok(self.reader.log()),
            (true, true) if self.reader.has_gone_back(from) => Err(Error::fix(
                "source.gone_back",
                "the source has gone back in time while it was loaded, as after a restore",
            )
            .of_kind(ErrorKind::PassInvalid)
            .hint("run it again: the load begins anew")),
            _ => Ok(from.seen.max(self.reader.log())),
        }
    }

    async fn backfill(&self, backfill: &Backfill, destination: &Destination) -> Result<Feed> {
        let (pipeline, reader, key) = (&self.pipeline, &self.reader, destination.key.as_slice());
        match backfill {
            Backfill::Keys(keys) => {
                let recompute = Recompute::new(key, key, reader, pipeline).await?;
                let asked = AskedKeys::parse(keys, key, destination.takes_ids)?;
                let rules = KeyRules { strict: self.strict_keys, keeps_keys: keeps_keys(pipeline, key) };
                Ok(Feed::Keys(Box::new(KeyBackfill::new(asked, &rules, recompute, reader).await?)))
            }
            Backfill::Range(range) => {
                let cursor = Cursor::of(pipeline, reader, key).await?.ok_or_else(no_cursor)?;
                Ok(Feed::Range(Box::new(RangeBackfill::new(cursor, range.clone()))))
            }
        }
    }

    async fn pass(&self, key: &[String]) -> Result<Feed> {
        let (pipeline, reader) = (&self.pipeline, &self.reader);
        if self.mode == Mode::Incremental {
            reader.refuse_unkeyed(pipeline.change_key_or(key))?;
        }
        if pipeline.capture == Capture::Changelog {
            let changelog = Changelog::of(pipeline, reader, key, &self.follows).await?;
            return match self.mode {
                Mode::Incremental => Ok(Feed::Changelog(Box::new(changelog))),
                Mode::Full => self.load(key, Some(Box::new(changelog.log()))).await,
            };
        }
        let cursor = Cursor::of(pipeline, reader, key).await?;
        match self.mode {
            Mode::Incremental => Ok(Feed::Cursor(Box::new(cursor.ok_or_else(no_cursor)?))),
            Mode::Full => self.load(key, cursor.map(|cursor| Box::new(cursor) as Box<dyn Baseline>)).await,
        }
    }

    async fn load(&self, key: &[String], baseline: Option<Box<dyn Baseline>>) -> Result<Feed> {
        Ok(Feed::Load(Box::new(Load::new(key, &self.pipeline, &self.reader, baseline).await?)))
    }
}

/// The rows of a key come under this key: Python functions may make other keys of it, unless changes are followed by it.
pub(crate) fn keeps_keys(pipeline: &Pipeline, key: &[String]) -> bool {
    pipeline.transforms().is_empty()
        || (pipeline.mode == Mode::Incremental && pipeline.change_key_or(key) == key)
}

fn no_cursor() -> Error {
    Error::fix("pipeline.incremental_key", "mode incremental and backfills over a range need incremental_key")
}
