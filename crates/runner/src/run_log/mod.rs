//! Keeps in the meta-store what is told inside a run, for people who have no access to the logs of its runner.
//!
//! A layer of the subscriber hears it, a bounded queue holds it, one task writes it. A run never waits for a line of
//! its log but at its end, and then not for long: lines that find no place are counted, and the log says how many.

mod layer;

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use jiff::Timestamp;
use serde_json::Map;
use tokio::sync::{Mutex as AsyncMutex, mpsc, oneshot};
use tokio::time::{Instant, timeout, timeout_at};
use tracing::Subscriber;
use tracing_subscriber::Layer;
use tracing_subscriber::filter::{Filtered, LevelFilter, Targets};
use tracing_subscriber::registry::LookupSpan;
use vitrina_core::{PipelineId, RunId};
use vitrina_store::{LogLine, Store};

use crate::counters;
pub use layer::RunLogLayer;

/// Lines of all runs that may wait for the writer.
const QUEUE: usize = 8192;
const LINES_A_WRITE: usize = 500;
/// How long a line may wait for others that are written with it.
const GATHER: Duration = Duration::from_millis(500);
/// A run does not wait longer for its log, nor the log for the meta-store.
const PATIENCE: Duration = Duration::from_secs(2);

/// The handle of a runner on its run log. Clones are the same.
#[derive(Debug, Clone)]
pub struct RunLog {
    sender: mpsc::Sender<Message>,
    receiver: Arc<AsyncMutex<mpsc::Receiver<Message>>>,
    dropped: Dropped,
}

#[derive(Debug)]
enum Message {
    Line(LogLine),
    Flush(oneshot::Sender<()>),
}

impl Default for RunLog {
    fn default() -> Self {
        Self::new()
    }
}

impl RunLog {
    pub fn new() -> Self {
        let (sender, receiver) = mpsc::channel(QUEUE);
        Self { sender, receiver: Arc::new(AsyncMutex::new(receiver)), dropped: Dropped::default() }
    }

    /// What hears the runs of this process.
    pub fn layer<S>(&self) -> Filtered<RunLogLayer, Targets, S>
    where
        S: Subscriber + for<'a> LookupSpan<'a>,
    {
        let layer = RunLogLayer { sender: self.sender.clone(), dropped: self.dropped.clone() };
        layer.with_filter(Targets::new().with_target("vitrina", LevelFilter::INFO))
    }

    /// Returns when everything that was told before has been written, or could not be.
    pub(crate) async fn flush(&self) {
        let (sender, flushed) = oneshot::channel();
        let flush = async {
            self.sender.send(Message::Flush(sender)).await.ok();
            flushed.await.ok();
        };
        timeout(PATIENCE, flush).await.ok();
    }

    /// Writes until it is aborted; one at a time.
    pub(crate) async fn keep(self, store: Store) {
        let mut receiver = self.receiver.lock().await;
        while let Some(gathered) = gather(&mut receiver).await {
            self.write(&store, gathered.lines).await;
            for flushed in gathered.flushes {
                flushed.send(()).ok();
            }
        }
    }

    async fn write(&self, store: &Store, mut lines: Vec<LogLine>) {
        let dropped = self.dropped.take();
        lines.extend(dropped.iter().map(|((run, pipeline), lines)| missing(*run, *pipeline, *lines)));
        if lines.is_empty() {
            return;
        }
        let written = timeout(PATIENCE, store.add_logs(&lines)).await;
        if matches!(written, Ok(Ok(()))) {
            return;
        }
        tracing::debug!(lines = lines.len(), "lines of run logs could not be written");
        lines.truncate(lines.len() - dropped.len());
        self.dropped.put_back(dropped);
        for line in lines {
            self.dropped.count(line.run_id, line.pipeline_id);
        }
    }
}

#[derive(Default)]
struct Gathered {
    lines: Vec<LogLine>,
    flushes: Vec<oneshot::Sender<()>>,
}

impl Gathered {
    fn take(&mut self, message: Message) {
        match message {
            Message::Line(line) => self.lines.push(line),
            Message::Flush(flushed) => self.flushes.push(flushed),
        }
    }
}

/// Waits for one line, and a while for others. `None` when no more can come.
async fn gather(receiver: &mut mpsc::Receiver<Message>) -> Option<Gathered> {
    let mut gathered = Gathered::default();
    gathered.take(receiver.recv().await?);
    let deadline = Instant::now() + GATHER;
    while gathered.flushes.is_empty() && gathered.lines.len() < LINES_A_WRITE {
        match timeout_at(deadline, receiver.recv()).await {
            Ok(Some(message)) => gathered.take(message),
            _ => break,
        }
    }
    // Several runs may be at their end: they need not wait for each other's lines to be written.
    while gathered.lines.len() < LINES_A_WRITE
        && let Ok(message) = receiver.try_recv()
    {
        gathered.take(message);
    }
    Some(gathered)
}

fn missing(run_id: RunId, pipeline_id: PipelineId, lines: u64) -> LogLine {
    LogLine {
        run_id,
        pipeline_id,
        at: Timestamp::now(),
        level: "warn",
        message: "lines are missing here; the log of the runner has them".to_owned(),
        fields: Map::from_iter([("lines".to_owned(), lines.into())]),
    }
}

/// Lines that nobody has been told of yet, by run.
#[derive(Debug, Clone, Default)]
struct Dropped(Arc<Mutex<HashMap<(RunId, PipelineId), u64>>>);

impl Dropped {
    fn count(&self, run: RunId, pipeline: PipelineId) {
        counters::dropped_lines(1);
        let mut dropped = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        *dropped.entry((run, pipeline)).or_default() += 1;
    }

    fn take(&self) -> HashMap<(RunId, PipelineId), u64> {
        std::mem::take(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn put_back(&self, lines: HashMap<(RunId, PipelineId), u64>) {
        let mut dropped = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        for (run, lines) in lines {
            *dropped.entry(run).or_default() += lines;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tracing_subscriber::layer::SubscriberExt;
    use uuid::Uuid;

    fn talk(run: RunId, lines: u32) {
        let _run = tracing::error_span!("run", run_id = %run, pipeline_id = %Uuid::nil()).entered();
        let _batch = tracing::error_span!("batch", batch = 3).entered();
        for line in 0..lines {
            tracing::info!(line, error = "a\0b", "talk");
        }
        tracing::debug!("too small a matter");
    }

    #[test]
    fn a_run_that_talks_too_much_is_cut_short_and_the_others_wait_for_no_place() {
        let log = RunLog::new();
        let (first, second) = (RunId(Uuid::now_v7()), RunId(Uuid::now_v7()));
        let subscriber = tracing_subscriber::registry().with(log.layer());
        tracing::subscriber::with_default(subscriber, || {
            talk(first, layer::LINES_A_RUN + 3);
            talk(second, layer::LINES_A_RUN);
        });
        let mut receiver = log.receiver.try_lock().unwrap();
        let heard: Vec<LogLine> = std::iter::from_fn(|| receiver.try_recv().ok())
            .filter_map(|message| if let Message::Line(line) = message { Some(line) } else { None })
            .collect();
        assert_eq!(heard.len(), QUEUE);
        let line = serde_json::json!({"line": 0, "error": "a\u{fffd}b", "batch": 3});
        assert_eq!((serde_json::json!(heard[0].fields), heard[0].message.as_str()), (line, "talk"));
        let dropped = log.dropped.take();
        let of = |run| dropped[&(run, PipelineId(Uuid::nil()))];
        assert_eq!((of(first), of(second)), (3, u64::from(2 * layer::LINES_A_RUN) - QUEUE as u64));
    }
}
