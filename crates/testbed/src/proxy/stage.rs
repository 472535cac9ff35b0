//! Where calls meet their faults: the rules, the storm, and what has passed.

use std::future::Future;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

use serde_json::Value;
use tokio::sync::{oneshot, watch};
use tokio::task::JoinSet;
use tokio::time::timeout;

use super::Gate;
use super::bulk::Thinned;
use super::fault::{Dropped, Fault};
use super::forward::{Answer, Call, forward, json};
use super::storm::{Storm, Weather};
use crate::SearchServer;
use crate::http_client;
use crate::wait::PATIENCE;

type Outcome = Result<Answer, Dropped>;

#[derive(Debug)]
pub(super) struct Stage {
    server: SearchServer,
    http: reqwest::Client,
    rules: Mutex<Vec<Rule>>,
    /// Requests since the rules were replaced.
    requests: AtomicUsize,
    /// A request with one of these in its body breaks its connection.
    unbearable: Mutex<Vec<String>>,
    weather: Mutex<Option<Weather>>,
    passed: Mutex<Vec<String>>,
    /// The work of all calls; how much of it is left is in `busy`.
    work: Mutex<JoinSet<()>>,
    busy: watch::Sender<usize>,
}

#[derive(Debug)]
struct Rule {
    left: usize,
    part: String,
    fault: Fault,
}

impl Stage {
    pub(super) fn before(server: &SearchServer) -> Self {
        Self {
            server: server.clone(),
            http: http_client(),
            rules: Mutex::default(),
            requests: AtomicUsize::default(),
            unbearable: Mutex::default(),
            weather: Mutex::default(),
            passed: Mutex::default(),
            work: Mutex::default(),
            busy: watch::Sender::new(0),
        }
    }

    pub(super) fn server(&self) -> &SearchServer {
        &self.server
    }

    pub(super) fn add_rule(&self, left: usize, part: &str, fault: Fault) {
        locked(&self.rules).push(Rule { left, part: part.to_owned(), fault });
    }

    pub(super) fn replace_rules(&self, nth: usize, fault: Fault) {
        let rule = |left, fault| Rule { left, part: String::new(), fault };
        *locked(&self.rules) = vec![rule(nth - 1, Fault::Pass), rule(1, fault)];
        self.requests.store(0, Ordering::SeqCst);
    }

    pub(super) fn requests(&self) -> usize {
        self.requests.load(Ordering::SeqCst)
    }

    pub(super) fn add_unbearable(&self, text: &str) {
        locked(&self.unbearable).push(text.to_owned());
    }

    pub(super) fn begin_storm(&self, storm: Storm) {
        *locked(&self.weather) = Some(Weather::of(storm));
    }

    pub(super) async fn end_storm(&self) {
        let weather = locked(&self.weather).take();
        drop(weather);
        let mut busy = self.busy.subscribe();
        let calm = timeout(PATIENCE, busy.wait_for(|busy| *busy == 0)).await;
        calm.map(drop).unwrap_or_else(|_| panic!("the storm has not ended within {PATIENCE:?}"));
    }

    pub(super) fn passed(&self) -> Vec<String> {
        locked(&self.passed).clone()
    }

    pub(super) fn abort(&self) {
        locked(&self.work).abort_all();
    }

    /// Begins the work on a call; its outcome comes later.
    pub(super) fn perform(self: &Arc<Self>, call: Call) -> oneshot::Receiver<Outcome> {
        let fault = self.fault_for(&call);
        let (tell, told) = oneshot::channel();
        let stage = Arc::clone(self);
        self.spawn(async move {
            let outcome = stage.meet(fault, call).await;
            // A caller that has gone is not told.
            tell.send(outcome).ok();
        });
        told
    }

    fn fault_for(&self, call: &Call) -> Fault {
        self.requests.fetch_add(1, Ordering::SeqCst);
        let line = call.line();
        let has = |text: &String| call.body.windows(text.len()).any(|part| part == text.as_bytes());
        if locked(&self.unbearable).iter().any(has) {
            return Fault::DropRequest;
        }
        let mut rules = locked(&self.rules);
        if let Some(rule) = rules.iter_mut().find(|rule| rule.left > 0 && line.contains(&rule.part)) {
            rule.left -= 1;
            return rule.fault.clone();
        }
        locked(&self.weather).as_mut().map_or(Fault::Pass, |weather| weather.fault_for(call))
    }

    async fn meet(self: &Arc<Self>, fault: Fault, call: Call) -> Outcome {
        match fault {
            Fault::Pass => self.pass(call).await,
            Fault::DropRequest => Err(Dropped),
            Fault::DropReply => self.pass(call).await.and(Err(Dropped)),
            Fault::Delay(time) => {
                tokio::time::sleep(time).await;
                self.pass(call).await
            }
            Fault::Answer(status, body) => Ok(json(status, &body)),
            Fault::Duplicate => {
                let first = self.pass(call.clone()).await;
                self.pass(call).await.ok();
                first
            }
            Fault::DuplicateLater(gate) => self.pass_and_repeat(call, gate).await,
            Fault::Hold(gate) => {
                gate.enter().await;
                let outcome = self.pass(call).await;
                gate.leave();
                outcome
            }
            Fault::HoldReply(gate) => {
                let outcome = self.pass(call).await;
                gate.enter().await;
                gate.leave();
                outcome
            }
            Fault::RejectItems(share) => self.pass_thinned(call, share).await,
        }
    }

    async fn pass_and_repeat(self: &Arc<Self>, call: Call, gate: Gate) -> Outcome {
        let first = self.pass(call.clone()).await;
        let stage = Arc::clone(self);
        self.spawn(async move {
            gate.enter().await;
            stage.pass(call).await.ok();
            gate.leave();
        });
        first
    }

    async fn pass_thinned(&self, call: Call, share: f64) -> Outcome {
        let Some(mut thinned) = Thinned::new(call.clone(), share, self.server.distribution()) else {
            return self.pass(call).await;
        };
        let Some(part) = thinned.call.take() else { return Ok(json(200, &thinned.answer(None))) };
        let answer = self.pass(part).await?;
        let (head, body) = answer.into_parts();
        let body = http_body_util::BodyExt::collect(body).await.map_err(|_| Dropped)?.to_bytes();
        match serde_json::from_slice::<Value>(&body) {
            Ok(items) if head.status.is_success() => Ok(json(200, &thinned.answer(Some(items)))),
            _ => Ok(Answer::from_parts(head, body.into())),
        }
    }

    async fn pass(&self, call: Call) -> Outcome {
        let line = call.line();
        let outcome = forward(&self.http, self.server.url(), call).await;
        if outcome.is_ok() {
            locked(&self.passed).push(line);
            if let Some(weather) = locked(&self.weather).as_mut() {
                weather.blow();
            }
        }
        outcome
    }

    fn spawn(self: &Arc<Self>, task: impl Future<Output = ()> + Send + 'static) {
        let busy = Busy::new(&self.busy);
        let mut work = locked(&self.work);
        while work.try_join_next().is_some() {}
        work.spawn(async move {
            task.await;
            drop(busy);
        });
    }
}

/// Counts as work as long as it is there.
struct Busy(watch::Sender<usize>);

impl Busy {
    fn new(busy: &watch::Sender<usize>) -> Self {
        busy.send_modify(|busy| *busy += 1);
        Self(busy.clone())
    }
}

impl Drop for Busy {
    fn drop(&mut self) {
        self.0.send_modify(|busy| *busy -= 1);
    }
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().expect("no holder panics")
}
