//! One row on both sides, as it is now, and what the target tells of the write that made it.

use std::time::Duration;

use jiff::Timestamp;
use tokio::time::timeout;
use vitrina_core::{Checkpoint, Error, ErrorKind, Mode, Result};

use super::pair::{Mark, Pair, Seen};
use super::pending::Pending;
use super::suspects::{Suspects, shown};
use super::{Key, Office, Order, key_of};

/// Whoever asks for a row waits, and a pass may have much to read.
const PATIENCE: Duration = Duration::from_secs(8);

/// A row that was looked for.
#[derive(Debug)]
pub struct Looked {
    /// The target's key columns.
    pub key_columns: Vec<String>,
    /// As the target writes it.
    pub key: Key,
    pub in_source: bool,
    pub in_target: bool,
    /// The target's types can hold what the source has; else its values are shown as they were read.
    pub fits: bool,
    pub columns: Vec<LookedColumn>,
    /// Where the sides differ: the next pass reads it. `None` where that cannot be told.
    pub in_flight: Option<bool>,
    /// The moment of its last write, by the target's clock, and whether that is the meta-store's clock as well.
    pub touched: Option<(Timestamp, bool)>,
    /// The lease under which it was written.
    pub token: Option<i64>,
}

/// A column on both sides, as text for people; `None` is NULL, or no row.
#[derive(Debug)]
pub struct LookedColumn {
    pub name: String,
    pub source: Option<String>,
    pub target: Option<String>,
    pub differs: bool,
}

/// Of the first of the order's keys.
pub async fn look(order: &Order<'_>, office: &dyn Office) -> Result<Looked> {
    let name = order.pipeline.target_name(order.allowed_targets)?;
    let mut pair = order.sinks.of(&name)?.pair(&name, order).await?;
    let key = asked(order, pair.as_ref())?;
    let checkpoint = office.checkpoint().await?;
    let Seen { row, fits } = pair.row(&key).await?;
    let mark = match row.target {
        Some(_) => pair.mark(&row.key).await?,
        None => None,
    };
    let is_alike = row.source == row.target;
    let in_flight = match is_alike {
        true => None,
        false => is_pending(order, &checkpoint, pair.as_ref(), row.clone()).await?,
    };
    let value = |side: &Option<Vec<Option<String>>>, place: usize| side.as_ref()?[place].clone();
    let column = |(place, name): (usize, &String)| {
        let (source, target) = (value(&row.source, place), value(&row.target, place));
        let differs = row.source.is_some() && row.target.is_some() && source != target;
        let text = |text: Option<String>| text.as_deref().map(shown);
        LookedColumn { name: name.clone(), differs, source: text(source), target: text(target) }
    };
    Ok(Looked {
        columns: pair.columns().iter().enumerate().map(column).collect(),
        key_columns: pair.key().to_vec(),
        in_source: row.source.is_some(),
        in_target: row.target.is_some(),
        key: row.key,
        fits,
        in_flight,
        touched: mark.as_ref().and_then(Mark::touched),
        token: mark.as_ref().and_then(Mark::token),
    })
}

fn asked(order: &Order<'_>, pair: &dyn Pair) -> Result<Key> {
    let columns = pair.key();
    let key = order.keys.and_then(|keys| keys.first());
    let key = key.ok_or_else(|| Error::bug("row.key", "no key was asked for"))?;
    let key = key_of(key)?;
    match key.len() == columns.len() || (key.len() == 1 && pair.takes_ids()) {
        true => Ok(key),
        false => Err(Error::fix(
            "row.key",
            format!("the key of {} has {} values: {}", order.target.name, columns.len(), columns.join(", ")),
        )
        .hint("a key of several columns is a JSON list such as [\"7\", \"en\"]")),
    }
}

/// A key that no row can have.
pub(crate) fn no_key(columns: &[String]) -> Error {
    Error::fix("row.key", format!("no row can have this key: it is no value of {}", columns.join(", ")))
        .hint("write the value as the database shows it")
}

/// In mode full nothing names what has changed.
async fn is_pending(
    order: &Order<'_>,
    checkpoint: &Checkpoint,
    pair: &dyn Pair,
    row: super::Row,
) -> Result<Option<bool>> {
    if order.pipeline.mode != Mode::Incremental {
        return Ok(None);
    }
    let mut suspects = Suspects::new(order, pair);
    suspects.take(vec![row]);
    match timeout(PATIENCE, Pending::of(order, checkpoint, pair).find(&suspects)).await {
        Ok(Err(error)) if error.kind == ErrorKind::ChangesPruned => Ok(None),
        Ok(found) => found.map(|found| Some(suspects.iter().all(|suspect| found.has(suspect)))),
        Err(_) => Ok(None),
    }
}
