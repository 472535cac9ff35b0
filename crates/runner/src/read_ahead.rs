//! Batch n + 1 is read and transformed while batch n is written. Never more than one ahead: memory is
//! bounded by two batches, and order and checkpoints stay strict.

use std::time::{Duration, Instant};

use tokio::sync::mpsc::{self, OwnedPermit, Receiver, Sender};
use tokio::task::JoinSet;
use tokio::time::timeout;
use tracing::{Instrument, Span};
use vitrina_core::{Batch, Error, Position, Result, Source, Timings, Transform};

/// A batch ready to be written; `None` when the source has nothing more.
type Answer = Result<Option<Ahead>>;

pub(crate) struct Ahead {
    pub(crate) batch: Batch,
    /// All that becomes of the batch belongs to it.
    pub(crate) span: Span,
    pub(crate) read: Duration,
    pub(crate) transform: Duration,
}

impl Ahead {
    pub(crate) fn timings(&self) -> Timings {
        Timings { read_ms: millis(self.read), transform_ms: millis(self.transform) }
    }
}

/// The reading half of an attempt, in a task of its own. Dropping it ends the task and with it the source.
pub(crate) struct ReadAhead {
    answers: Receiver<Answer>,
    task: JoinSet<()>,
}

impl ReadAhead {
    /// `patience`: how long a source may be kept waiting before it lets go of what it holds open; `done`: batches that
    /// the run has committed.
    pub(crate) fn start(
        source: Box<dyn Source>,
        transforms: Vec<Box<dyn Transform>>,
        from: Position,
        patience: Duration,
        done: u64,
    ) -> Self {
        let (sender, answers) = mpsc::channel(1);
        let mut task = JoinSet::new();
        let reading = Reading { source, transforms, patience, done };
        task.spawn(reading.all(from, sender).in_current_span());
        Self { answers, task }
    }

    /// Safe to be interrupted: what was read is still there for the next call.
    pub(crate) async fn next(&mut self) -> Answer {
        if let Some(answer) = self.answers.recv().await {
            return answer;
        }
        match self.task.join_next().await {
            Some(Err(error)) if error.is_panic() => std::panic::resume_unwind(error.into_panic()),
            _ => Err(Error::bug("runner.reader", "the reader ended without an answer")),
        }
    }
}

struct Reading {
    source: Box<dyn Source>,
    transforms: Vec<Box<dyn Transform>>,
    patience: Duration,
    done: u64,
}

impl Reading {
    async fn all(mut self, mut from: Position, sender: Sender<Answer>) {
        loop {
            // A place first, the batch then: what waits for its turn is not read yet.
            let Some(place) = self.place(&sender).await else { return };
            let answer = self.one(&from).await;
            let more = match &answer {
                Ok(Some(ahead)) => {
                    from = ahead.batch.to.clone().unwrap_or(from);
                    !ahead.batch.ends_pass()
                }
                _ => false,
            };
            place.send(answer);
            if !more {
                return;
            }
        }
    }

    /// Waits until the batch before is taken. A sink that is slow must not keep a transaction open at the source.
    async fn place(&mut self, sender: &Sender<Answer>) -> Option<OwnedPermit<Answer>> {
        if let Ok(place) = timeout(self.patience, sender.clone().reserve_owned()).await {
            return place.ok();
        }
        if let Err(error) = self.source.rest().await {
            tracing::warn!(%error, "the source could not be let go");
        }
        sender.clone().reserve_owned().await.ok()
    }

    async fn one(&mut self, from: &Position) -> Answer {
        self.done += 1;
        let span = tracing::error_span!("batch", batch = self.done);
        let started = Instant::now();
        let reading = self.source.read(from).instrument(tracing::info_span!(parent: &span, "read"));
        let Some(mut batch) = reading.await? else { return Ok(None) };
        let read = started.elapsed();
        for transform in &mut self.transforms {
            let transforming = tracing::info_span!(parent: &span, "transform");
            batch = transform.apply(batch).instrument(transforming).await?;
        }
        let transform = started.elapsed().saturating_sub(read);
        Ok(Some(Ahead { batch, span, read, transform }))
    }
}

pub(crate) fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}
