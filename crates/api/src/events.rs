//! What happens to runs and reconciles, told to whoever listens. One task looks for all listeners, and only while there are some; what
//! it tells are states, so that one told twice does no harm.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};
use tokio::sync::{broadcast, mpsc, oneshot};
use tokio::time::{Instant, sleep_until};
use uuid::Uuid;
use vitrina_core::{PipelineId, ReconcileProgress, ReconcileStatus, RunId, RunStatus};
use vitrina_store::{BatchRecord, ReconcileRecord, RunRecord, Store};

use crate::documents::{Batch, Reconcile, Run};
use crate::wakeups::Wakeups;

/// At most four looks a second.
const PACE: Duration = Duration::from_millis(250);
/// How many events can be told again to who was cut off.
const PAST: usize = 1000;
const MOST_BATCHES: i64 = 100;
/// How long events are gathered for a listener that was cut off and may come back.
const LINGER: Duration = Duration::from_secs(60);

pub(crate) const TOPICS: [&str; 6] = [
    "run.status",
    "run.progress",
    "batch.done",
    "pipeline.freshness",
    "reconcile.status",
    "reconcile.progress",
];

#[derive(Debug, Clone)]
pub(crate) struct Event {
    pub(crate) id: String,
    pub(crate) topic: &'static str,
    /// Whom it is about: told only to those who see it when they are told.
    pub(crate) pipeline: PipelineId,
    pub(crate) data: Value,
}

/// What a listener gets: events from before it was cut off, then those to come. Without the former it has missed some.
#[derive(Debug)]
pub(crate) struct Joined {
    pub(crate) past: Option<Vec<Arc<Event>>>,
    pub(crate) coming: broadcast::Receiver<Arc<Event>>,
}

#[derive(Debug)]
struct Join {
    last: Option<String>,
    answer: oneshot::Sender<Joined>,
}

#[derive(Debug, Clone)]
pub(crate) struct Events(mpsc::UnboundedSender<Join>);

impl Events {
    /// From now on, or from behind the event of this id.
    pub(crate) async fn join(&self, last: Option<String>) -> Option<Joined> {
        let (answer, joined) = oneshot::channel();
        self.0.send(Join { last, answer }).ok()?;
        joined.await.ok()
    }
}

/// A place to listen at, and the work behind it.
pub(crate) fn hub(store: Store, wakeups: Wakeups) -> (Events, impl Future<Output = ()>) {
    let (sender, joins) = mpsc::unbounded_channel();
    let hub = Hub { store, known: HashMap::new(), reconciles: HashMap::new(), teller: Teller::new() };
    (Events(sender), hub.work(joins, wakeups))
}

struct Hub {
    store: Store,
    /// What listeners know of runs; the last batch of each.
    known: HashMap<RunId, Known>,
    reconciles: HashMap<Uuid, KnownReconcile>,
    teller: Teller,
}

/// What listeners know of a reconcile.
#[derive(Debug, Clone, PartialEq)]
struct KnownReconcile {
    status: ReconcileStatus,
    cancel_requested: bool,
    progress: Option<ReconcileProgress>,
}

#[derive(Debug, Clone, Copy, PartialEq)]
struct Known {
    status: RunStatus,
    cancel_requested: bool,
    batches: u64,
    last_batch: i64,
    /// More were committed than one look has told.
    behind: bool,
}

impl Hub {
    async fn work(mut self, mut joins: mpsc::UnboundedReceiver<Join>, mut wakeups: Wakeups) {
        while let Some(join) = joins.recv().await {
            // Nobody has listened: what happened meanwhile is nobody's news, and no event can be gone on from.
            self.teller = Teller::new();
            self.known.clear();
            self.reconciles.clear();
            self.look(false).await;
            self.teller.welcome(join);
            let mut heard = Instant::now();
            while heard.elapsed() < LINGER {
                if self.teller.is_heard() {
                    heard = Instant::now();
                }
                let next_look = Instant::now() + PACE;
                tokio::select! {
                    join = joins.recv() => match join {
                        Some(join) => self.teller.welcome(join),
                        None => return,
                    },
                    () = wakeups.changed() => sleep_until(next_look).await,
                    () = sleep_until(next_look) => {}
                }
                self.look(true).await;
            }
        }
    }

    /// A look that fails is made up for by the next one.
    async fn look(&mut self, tell: bool) {
        let (runs, reconciles) =
            match tokio::try_join!(self.store.moving_runs(), self.store.moving_reconciles()) {
                Ok(moving) => moving,
                Err(error) => {
                    return tracing::warn!(%error, "listeners hear nothing: the meta-store does not answer");
                }
            };
        self.notice_reconciles(reconciles, tell);
        let mut seen = HashMap::with_capacity(runs.len());
        for run in runs {
            let before = self.known.get(&run.id).copied();
            let now = self.notice(&run, before, tell).await;
            seen.insert(run.id, now);
        }
        self.known = seen;
    }

    async fn notice(&mut self, run: &RunRecord, before: Option<Known>, tell: bool) -> Known {
        let after = before.map_or(0, |known| known.last_batch);
        let mut now = Known {
            status: run.status,
            cancel_requested: run.cancel_requested,
            batches: run.batches,
            last_batch: after,
            behind: false,
        };
        if before.is_none() && !tell {
            // What was committed before anybody listened is nobody's news.
            now.last_batch = self.store.last_batch(run.id).await.unwrap_or_default();
        } else if before.is_none_or(|known| known.batches != run.batches || known.behind) {
            let batches = self.store.batches(run.id, after, MOST_BATCHES).await.unwrap_or_default();
            now.last_batch = batches.last().map_or(after, |batch| batch.id);
            now.behind = batches.len() as i64 == MOST_BATCHES;
            self.tell_progress(run, batches);
        }
        let changed = before
            .is_none_or(|known| (known.status, known.cancel_requested) != (run.status, run.cancel_requested));
        if changed && tell {
            self.tell_status(run);
        }
        now
    }

    fn notice_reconciles(&mut self, records: Vec<ReconcileRecord>, tell: bool) {
        let mut before = std::mem::take(&mut self.reconciles);
        for record in records {
            let ReconcileRecord { status, cancel_requested, .. } = record;
            let now = KnownReconcile { status, cancel_requested, progress: record.progress.clone() };
            let known = before.remove(&record.id);
            let stage = |known: &KnownReconcile| (known.status, known.cancel_requested);
            let topic = match known.as_ref() {
                Some(known) if *known == now => None,
                Some(known) if stage(known) == stage(&now) => Some("reconcile.progress"),
                _ => Some("reconcile.status"),
            };
            self.reconciles.insert(record.id, now);
            if let Some(topic) = topic.filter(|_| tell) {
                self.teller.tell(topic, record.pipeline_id, json!(Reconcile::from(record)));
            }
        }
    }

    fn tell_progress(&mut self, run: &RunRecord, batches: Vec<BatchRecord>) {
        for batch in batches {
            let data = json!({"run_id": run.id, "pipeline_id": run.pipeline_id, "batch": Batch::from(batch)});
            self.teller.tell("batch.done", run.pipeline_id, data);
        }
        self.teller.tell("run.progress", run.pipeline_id, json!(Run::from(run.clone())));
    }

    fn tell_status(&mut self, run: &RunRecord) {
        self.teller.tell("run.status", run.pipeline_id, json!(Run::from(run.clone())));
        if run.status == RunStatus::Success {
            let data = json!({"pipeline_id": run.pipeline_id, "pipeline": run.pipeline, "run_id": run.id,
                              "succeeded_at": run.finished_at});
            self.teller.tell("pipeline.freshness", run.pipeline_id, data);
        }
    }
}

/// Numbers events, keeps the newest, and passes them on.
struct Teller {
    /// Tells the events of this time of listening from those of others.
    epoch: String,
    next: u64,
    past: VecDeque<Arc<Event>>,
    sender: broadcast::Sender<Arc<Event>>,
}

impl Teller {
    fn new() -> Self {
        let epoch = Uuid::new_v4().simple().to_string()[..8].to_owned();
        Self { epoch, next: 1, past: VecDeque::new(), sender: broadcast::Sender::new(PAST) }
    }

    fn is_heard(&self) -> bool {
        self.sender.receiver_count() > 0
    }

    fn tell(&mut self, topic: &'static str, pipeline: PipelineId, data: Value) {
        let event = Arc::new(Event { id: format!("{}-{}", self.epoch, self.next), topic, pipeline, data });
        self.next += 1;
        self.past.push_back(Arc::clone(&event));
        if self.past.len() > PAST {
            self.past.pop_front();
        }
        // An error only says that nobody listens.
        let _ = self.sender.send(event);
    }

    fn welcome(&self, join: Join) {
        let past = join.last.map_or_else(|| Some(Vec::new()), |last| self.after(&last));
        let _ = join.answer.send(Joined { past, coming: self.sender.subscribe() });
    }

    /// `None` where events are missing.
    fn after(&self, last: &str) -> Option<Vec<Arc<Event>>> {
        let number: u64 = last.strip_prefix(&self.epoch)?.strip_prefix('-')?.parse().ok()?;
        let oldest = self.next - self.past.len() as u64;
        let known = (oldest.saturating_sub(1)..self.next).contains(&number);
        let missed = usize::try_from(self.next - 1 - number.min(self.next - 1)).ok()?;
        known.then(|| self.past.iter().skip(self.past.len() - missed).cloned().collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ids(teller: &Teller, last: &str) -> Option<usize> {
        teller.after(last).map(|events| events.len())
    }

    #[test]
    fn who_was_cut_off_is_told_what_was_missed_or_that_something_was() {
        let mut teller = Teller::new();
        let epoch = teller.epoch.clone();
        assert_eq!(ids(&teller, &format!("{epoch}-0")), Some(0));
        for _ in 0..PAST + 5 {
            teller.tell("run.status", PipelineId(Uuid::nil()), Value::Null);
        }
        let newest = PAST + 5;
        assert_eq!(ids(&teller, &format!("{epoch}-{newest}")), Some(0));
        assert_eq!(ids(&teller, &format!("{epoch}-{}", newest - 3)), Some(3));
        assert_eq!(ids(&teller, &format!("{epoch}-5")), Some(PAST));
        for unknown in
            [format!("{epoch}-4"), format!("{epoch}-{}", newest + 1), "other-7".to_owned(), String::new()]
        {
            assert_eq!(ids(&teller, &unknown), None, "{unknown}");
        }
    }
}
