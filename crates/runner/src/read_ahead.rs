//! Batch n + 1 is read and transformed while batch n is written. Never more than one ahead: memory is
//! bounded by two batches, and order and checkpoints stay strict. Where transforms may work on several at a time, so many
//! are ahead, and still come in the order of the source.

use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::sync::mpsc::{self, OwnedPermit, Receiver, Sender};
use tokio::sync::{Mutex, oneshot};
use tokio::task::JoinSet;
use tokio::time::timeout;
use tracing::{Instrument, Span};
use vitrina_core::{Batch, Error, Position, Result, Source, Timings, Transform};

/// A batch ready to be written; `None` when the source has nothing more.
type Answer = Result<Option<Ahead>>;
/// One that is worked on.
type Coming = oneshot::Receiver<Answer>;

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
    coming: Receiver<Coming>,
    /// The one whose turn it is.
    next: Option<Coming>,
    task: JoinSet<()>,
}

impl ReadAhead {
    /// `lanes`: transforms, each for one batch at a time; `patience`: how long a source may be kept waiting before it lets go of
    /// what it holds open; `done`: batches that the run has committed.
    pub(crate) fn start(
        source: Box<dyn Source>,
        lanes: Vec<Box<dyn Transform>>,
        from: Position,
        patience: Duration,
        done: u64,
    ) -> Self {
        let (sender, coming) = mpsc::channel(lanes.len().max(1));
        let lanes = lanes.into_iter().map(|lane| Arc::new(Mutex::new(lane))).collect();
        let mut task = JoinSet::new();
        let reading = Reading { source, lanes, transforming: JoinSet::new(), patience, done };
        task.spawn(reading.all(from, sender).in_current_span());
        Self { coming, next: None, task }
    }

    /// Safe to be interrupted: what was read is still there for the next call.
    pub(crate) async fn next(&mut self) -> Answer {
        if self.next.is_none() {
            self.next = self.coming.recv().await;
        }
        if let Some(next) = &mut self.next
            && let Ok(answer) = next.await
        {
            self.next = None;
            return answer;
        }
        self.coming.close();
        match self.task.join_next().await {
            Some(Err(error)) if error.is_panic() => std::panic::resume_unwind(error.into_panic()),
            _ => Err(Error::bug("runner.reader", "the reader ended without an answer")),
        }
    }
}

struct Reading {
    source: Box<dyn Source>,
    lanes: Vec<Arc<Mutex<Box<dyn Transform>>>>,
    transforming: JoinSet<()>,
    patience: Duration,
    done: u64,
}

impl Reading {
    async fn all(mut self, mut from: Position, sender: Sender<Coming>) {
        let mut more = true;
        while more {
            // A place first, the batch then: what waits for its turn is not read yet.
            let Some(place) = self.place(&sender).await else { return self.tell_panics() };
            let read = self.read(&from).await;
            more = match &read {
                Ok(Some(ahead)) => {
                    from = ahead.batch.to.clone().unwrap_or(from);
                    !ahead.batch.ends_pass()
                }
                _ => false,
            };
            let (answer, coming) = oneshot::channel();
            place.send(coming);
            match read {
                Ok(Some(ahead)) if !self.lanes.is_empty() => self.transform(ahead, answer).await,
                read => drop(answer.send(read)),
            }
        }
        while let Some(ended) = self.transforming.join_next().await {
            pass_on(ended);
        }
    }

    /// Waits until the batch before is taken. A sink or a function that is slow must not keep a transaction open at the source.
    async fn place(&mut self, sender: &Sender<Coming>) -> Option<OwnedPermit<Coming>> {
        self.wait(sender.clone().reserve_owned()).await.ok()
    }

    async fn wait<T>(&mut self, waiting: impl Future<Output = T>) -> T {
        tokio::pin!(waiting);
        if let Ok(done) = timeout(self.patience, &mut waiting).await {
            return done;
        }
        if let Err(error) = self.source.rest().await {
            tracing::warn!(%error, "the source could not be let go");
        }
        waiting.await
    }

    async fn read(&mut self, from: &Position) -> Answer {
        self.done += 1;
        let span = tracing::error_span!("batch", batch = self.done);
        let started = Instant::now();
        let reading = self.source.read(from).instrument(tracing::info_span!(parent: &span, "read"));
        let batch = reading.await?;
        let read = started.elapsed();
        Ok(batch.map(|batch| Ahead { batch, span, read, transform: Duration::ZERO }))
    }

    /// In the lane whose turn it is, once that is free: batches come to lanes in turn, so that each knows its number.
    async fn transform(&mut self, ahead: Ahead, answer: oneshot::Sender<Answer>) {
        self.tell_panics();
        self.lanes.rotate_left(1);
        let Some(lane) = self.lanes.last().map(Arc::clone) else { return };
        let mut lane = self.wait(lane.lock_owned()).await;
        let span = tracing::info_span!(parent: &ahead.span, "transform");
        let transforming = async move {
            let (started, Ahead { batch, span, read, .. }) = (Instant::now(), ahead);
            let batch = lane.apply(batch).await;
            let transform = started.elapsed();
            drop(answer.send(batch.map(|batch| Some(Ahead { batch, span, read, transform }))));
        };
        self.transforming.spawn(transforming.instrument(span));
    }

    fn tell_panics(&mut self) {
        while let Some(ended) = self.transforming.try_join_next() {
            pass_on(ended);
        }
    }
}

/// A panic is one of whoever waits for the batch.
fn pass_on(ended: std::result::Result<(), tokio::task::JoinError>) {
    if let Err(error) = ended
        && error.is_panic()
    {
        std::panic::resume_unwind(error.into_panic());
    }
}

pub(crate) fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}
