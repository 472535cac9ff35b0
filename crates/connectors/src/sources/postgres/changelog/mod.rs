//! Incremental reading by the change log: triggers in the source name every key that was inserted, updated or
//! deleted, and by which transaction. Exact for any clock, with deletes and keys that move.
//!
//! What the log cannot vouch for (another server, a restored one, pruned changes, triggers that were away, a
//! truncated table) is answered with a full load in place of the window.

mod checkpoint;
mod forget;
mod install;
mod owner;
mod rights;
mod window;

use async_trait::async_trait;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use vitrina_core::{Advice, Batch, Error, ErrorKind, Pipeline, Position, Result};

use super::advice::{Noticed, spelled_otherwise, unnoticed};
use super::dirty::{KeysQuery, Page, in_order};
use super::load::{Baseline, Load, is_load};
use super::origins::OTHER_ORIGINS;
use super::pending::Pending;
use super::reader::Reader;
use super::recompute::{Recompute, nothing};
use checkpoint::{Moment, Pass};
pub(super) use forget::forget;
pub use install::{Consumer, Desk, LoggedTable};
use window::{Followed, Opened, Who, Window};

/// A window without changes is stored when the last one is this old: else the log could not be pruned.
const QUIET_SECONDS: i64 = 60;
const LOG: [&str; 4] = [
    "vitrina_log.change_consumers",
    "vitrina_log.change_log",
    "vitrina_log.change_pruned",
    "vitrina_log.change_sources",
];
/// Of the log, at its source. Its owner is the owner of all that is in it.
const SCHEMA: &str = "vitrina_log";

/// A table whose changes are logged, by some of its columns.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Logged {
    /// Qualified, and quoted where it must be.
    pub table: String,
    pub key: Vec<String>,
}

impl Logged {
    /// Under which the log knows it.
    pub fn source(&self) -> String {
        format!("{}({})", self.table, self.key.join(","))
    }

    fn hash(&self) -> String {
        let digest = Sha256::digest(self.source().as_bytes());
        digest.iter().take(6).map(|byte| format!("{byte:02x}")).collect()
    }

    fn function(&self) -> String {
        format!("{SCHEMA}.{}", self.function_name())
    }

    fn function_name(&self) -> String {
        format!("log_{}", self.hash())
    }

    fn trigger(&self, event: &str) -> String {
        format!("vitrina_log_{}_{event}", self.hash())
    }
}

pub(super) struct Changelog {
    log: Log,
    /// What leads from the key of a logged table to change keys, one a source.
    keys: Vec<Option<KeysQuery>>,
    pending: Pending,
    pipeline: Pipeline,
    key: Vec<String>,
    /// In place of a window that nobody can vouch for.
    load: Option<Box<Load>>,
    /// The source has been looked at since this run began.
    looked: bool,
    finished: bool,
}

/// The log of a source as one pipeline follows it.
#[derive(Debug, Clone)]
pub(super) struct Log {
    sources: Vec<Followed>,
    who: Who,
    max_age: i64,
    /// It only looks: what it has read is still to be read.
    observes: bool,
}

impl Changelog {
    pub(super) async fn of(
        pipeline: &Pipeline,
        reader: &Reader,
        key: &[String],
        follows: &super::Follows,
    ) -> Result<Self> {
        window::require_log(reader).await?;
        reader.reads(LOG.map(str::to_owned));
        let change_key = pipeline.change_key_or(key);
        let (mut sources, mut keys) = (Vec::new(), Vec::new());
        let wanted: Vec<&str> = change_key.iter().map(String::as_str).collect();
        match reader.driving_table(&wanted, 0).await? {
            Ok(table) => {
                let columns = table.columns.into_iter().map(|column| column.name).collect();
                let oid = table.oid;
                sources.push(Followed { source: Logged { table: table.name, key: columns }.source(), oid });
                keys.push(None);
            }
            Err(reason) if pipeline.watch.is_empty() => return Err(no_table(&reason)),
            Err(reason) => tracing::info!(
                reason,
                "the rows stand for no single table: only the watched ones are followed"
            ),
        }
        for watch in &pipeline.watch {
            reader.refuse_watch(watch).await?;
            let columns: Vec<&str> = watch.key.iter().map(String::as_str).collect();
            let table = reader.change_table(&watch.table, &columns, 0).await?;
            let (oid, logged) = (table.oid, Logged { table: table.name, key: watch.key.clone() });
            sources.push(Followed { source: logged.source(), oid });
            keys.push(watch.keys.as_ref().map(|sql| KeysQuery::new(sql, change_key.len())));
            if watch.keys.is_none() && watch.key.len() != change_key.len() {
                return Err(super::dirty::other_columns(watch));
            }
        }
        let who = Who { installation: follows.installation, pipeline: pipeline.id };
        Ok(Self {
            log: Log { sources, who, max_age: follows.changelog_max_age, observes: follows.observes },
            keys,
            pending: Pending::new(Recompute::new(change_key, key, reader, pipeline).await?),
            pipeline: pipeline.clone(),
            key: key.to_vec(),
            load: None,
            looked: false,
            finished: false,
        })
    }

    /// Fails where the log is not installed.
    pub(super) async fn advise(&self, reader: &Reader) -> Result<Vec<Advice>> {
        window::open(reader, &self.log.sources, self.log.who).await?;
        let follows = format!(
            "changes are followed by the log of {}: exact",
            self.log.sources.iter().map(|followed| followed.source.as_str()).collect::<Vec<_>>().join(", ")
        );
        let change_key = self.pipeline.change_key_or(&self.key);
        let unnoticed = unnoticed(reader, &self.noticed(), change_key).await?;
        let spelled = spelled_otherwise(&self.pipeline, &self.key, reader).await?;
        Ok([Advice::fine(follows)].into_iter().chain(unnoticed).chain(spelled).collect())
    }

    /// Where rows stand for no single table, all that is followed is watched.
    fn noticed(&self) -> Noticed {
        let sources = || self.log.sources.iter().map(|followed| followed.oid).zip(&self.keys);
        let watches = self.pipeline.watch.len();
        let first = sources().len() - watches;
        Noticed {
            own: sources().take(first).next().map(|(oid, _)| oid),
            watched: sources().skip(first).map(|(oid, _)| oid).collect(),
            by_key: sources().skip(first).filter(|(_, keys)| keys.is_none()).map(|(oid, _)| oid).collect(),
        }
    }

    /// What a load of this pipeline leaves behind for the next window.
    pub(super) fn log(&self) -> Log {
        self.log.clone()
    }

    pub(super) async fn read(&mut self, reader: &mut Reader, from: &Position) -> Result<Option<Batch>> {
        if self.finished {
            return Ok(None);
        }
        if is_load(from) || self.load.is_some() {
            return self.reload(reader, from).await;
        }
        let done = Moment::of(from);
        let pass = match Pass::of(from) {
            Some(pass) => self.log.resume(reader, done.as_ref(), pass, &mut self.looked).await?,
            None => {
                self.looked = true;
                self.log.open(reader, done.as_ref()).await?
            }
        };
        let pass = match pass {
            Ok(_) if reader.has_gone_back(from) => Err("the source has gone back in time".into()),
            Ok(_) if from.anew => Err("the target may hold rows that the source does not have".into()),
            pass => pass,
        };
        match (pass, done) {
            (Ok(pass), Some(done)) => self.window(reader, from, &done, pass).await,
            (Err(reason), _) => {
                tracing::warn!(reason, "the change log cannot tell what has changed: a full load is made");
                self.reload(reader, from).await
            }
            (Ok(_), None) => Err(Error::bug("changelog.position", "a window begins nowhere")),
        }
    }

    pub(super) fn is_loading(&self) -> bool {
        self.load.is_some()
    }

    async fn reload(&mut self, reader: &Reader, from: &Position) -> Result<Option<Batch>> {
        if self.load.is_none() {
            let baseline: Box<dyn Baseline> = Box::new(self.log.clone());
            self.load = Some(Box::new(Load::new(&self.key, &self.pipeline, reader, Some(baseline)).await?));
        }
        let Some(load) = &mut self.load else { return Ok(None) };
        load.read(reader, from).await
    }

    async fn window(
        &mut self,
        reader: &mut Reader,
        from: &Position,
        done: &Moment,
        mut pass: Pass,
    ) -> Result<Option<Batch>> {
        while pass.at < self.log.sources.len() {
            if self.pending.is_empty() {
                let page = self.page(reader, done, &pass).await?;
                self.pending.fill(page);
            }
            let next = self.pending.next(reader).await?;
            pass.position = next.position.or(pass.position.take());
            if next.last {
                pass.at += 1;
                pass.position = None;
            }
            if let Some(recomputed) = next.recomputed {
                let batch = recomputed.batch(nothing(reader, from));
                let to = self.reached(reader, from, done, pass).await?;
                return Ok(Some(Batch { to: Some(to), ..batch }));
            }
        }
        self.finished = true;
        let quiet = pass.upto.opened_at.duration_since(done.opened_at).as_secs() < QUIET_SECONDS;
        if from.pass.is_none() && quiet {
            return Ok(None);
        }
        let to = self.reached(reader, from, done, pass).await?;
        Ok(Some(Batch { to: Some(to), ..nothing(reader, from) }))
    }

    async fn page(&self, reader: &Reader, done: &Moment, pass: &Pass) -> Result<Page> {
        let window = Window { from: &done.snapshot, upto: &pass.upto.snapshot };
        let (found, last) =
            window.keys(reader, &self.log.sources[pass.at].source, pass.position.as_ref()).await?;
        let end = found.last().map(|(at, _)| at.clone());
        let dirty = match &self.keys[pass.at] {
            None => in_order(found),
            Some(keys) => keys.lead(found, reader).await?,
        };
        Ok(Page { dirty, end, last })
    }

    async fn reached(
        &mut self,
        reader: &Reader,
        from: &Position,
        done: &Moment,
        pass: Pass,
    ) -> Result<Position> {
        if pass.at < self.log.sources.len() {
            return Ok(Position { pass: Some(json!(pass)), ..from.clone() });
        }
        self.finished = true;
        self.log.require_unpruned(reader, done).await?;
        Ok(Position { done: json!(pass.upto), seen: from.seen, ..Position::start() })
    }

    /// Whatever is open is given up; the next read goes on behind its position.
    pub(super) fn let_go(&mut self) -> bool {
        self.load.as_mut().is_some_and(|load| load.let_go())
    }
}

impl Log {
    /// The window from what has been read up to now; `Err` says why a full load must take its place.
    async fn open(&self, reader: &Reader, done: Option<&Moment>) -> Result<Result<Pass, String>> {
        let opened = window::open(reader, &self.sources, self.who).await?;
        let Some(done) = done else {
            return Ok(Err("there has been no full load since it is followed".into()));
        };
        if let Some(reason) = mistrust(done, &opened) {
            return Ok(Err(reason.into()));
        }
        let window = Window { from: &done.snapshot, upto: &opened.moment.snapshot };
        if window.holds_truncate(reader, &self.sources).await? {
            return Ok(Err("a logged table was truncated".into()));
        }
        let receipt = self.consume(reader, done).await?;
        Ok(Ok(Pass::new(Moment { receipt, ..opened.moment })))
    }

    /// Tells the source up to where its changes are not needed any more; answers its receipt.
    async fn consume(&self, reader: &Reader, moment: &Moment) -> Result<i64> {
        match self.observes {
            true => Ok(moment.receipt),
            false => window::consume(reader, self.who, &moment.snapshot, self.max_age).await,
        }
    }

    /// A window that was left open, unless its changes may have been pruned meanwhile.
    async fn resume(
        &self,
        reader: &Reader,
        done: Option<&Moment>,
        pass: Pass,
        looked: &mut bool,
    ) -> Result<Result<Pass, String>> {
        if *looked {
            return Ok(Ok(pass));
        }
        *looked = true;
        let opened = window::open(reader, &self.sources, self.who).await?;
        Ok(match done.and_then(|done| mistrust(done, &opened)) {
            Some(reason) => Err(reason.into()),
            None => Ok(pass),
        })
    }

    /// Read at the end of a window: whoever pruned below it meanwhile has taken keys out of it.
    async fn require_unpruned(&self, reader: &Reader, done: &Moment) -> Result<()> {
        let below = reader.text("select below from vitrina_log.change_pruned").await?;
        if below.parse::<u64>().is_ok_and(|below| below <= done.snapshot.xmin) {
            return Ok(());
        }
        Err(Error::fix("changelog.pruned", "changes were pruned while they were read")
            .of_kind(ErrorKind::ChangesPruned)
            .hint("the next run makes a full load"))
    }
}

#[async_trait]
impl Baseline for Log {
    async fn take(&self, reader: &Reader) -> Result<Option<Value>> {
        let moment = window::open(reader, &self.sources, self.who).await?.moment;
        let receipt = self.consume(reader, &moment).await?;
        Ok(Some(json!(Moment { receipt, ..moment })))
    }
}

/// Why the log may not hold all that has changed since `done`.
fn mistrust(done: &Moment, opened: &Opened) -> Option<&'static str> {
    let now = &opened.moment;
    if now.server != done.server {
        return Some("the source is another server, or has another history");
    }
    if now.database.zip(done.database).is_some_and(|(now, done)| now != done) {
        return Some("the source is another database");
    }
    let origins = now.origins.as_ref().zip(done.origins.as_ref());
    if origins.is_some_and(|(now, done)| now.are_other_than(done)) {
        return Some(OTHER_ORIGINS);
    }
    if now.snapshot.xmax < done.snapshot.xmax {
        return Some("the source has gone back in time");
    }
    match opened.consumer {
        Some((receipt, _)) if receipt < done.receipt => return Some("the source has gone back in time"),
        None => return Some("the source does not know this pipeline any more"),
        Some((_, true)) => {
            return Some("the pipeline was silent for too long, and its changes were not kept");
        }
        Some(_) => {}
    }
    if done.snapshot.xmin < opened.pruned_below {
        return Some("its changes were pruned");
    }
    if now.triggers != done.triggers {
        return Some("triggers or partitions of a logged table have changed");
    }
    None
}

fn no_table(reason: &str) -> Error {
    Error::fix("changelog.no_table", format!("no table says which rows have changed: {reason}"))
        .hint("name it as source_table beside the query, or list tables in watch")
}
