//! Questions that only a runner can answer: they touch targets, Python or search. Left in the meta-store, where a runner
//! takes them, and waited for there (R-ARC-3).

use std::time::Duration;

use serde_json::Value;
use vitrina_core::PipelineId;
use vitrina_store::{Actor, Request, RequestRecord};

use crate::app::App;
use crate::error::{Error, Result};

/// How long an answer is waited for.
const PATIENCE: Duration = Duration::from_secs(20);

/// A question, and who can answer it.
#[derive(Debug)]
pub(super) struct Question {
    pub(super) kind: &'static str,
    pub(super) pipeline: Option<PipelineId>,
    pub(super) payload: Value,
    pub(super) connections: Vec<String>,
    pub(super) python_tasks: Vec<String>,
}

impl App {
    /// Asks, and waits for the answer. Where nobody can answer, that is said at once.
    pub(super) async fn ask(&self, actor: &Actor, question: Question) -> Result<Value> {
        self.find_runner(&question).await?;
        let Question { kind, pipeline, payload, connections, python_tasks } = question;
        let requested_by = actor.name.clone();
        let expires_in = PATIENCE;
        let request =
            Request { kind, pipeline, payload, connections, python_tasks, expires_in, requested_by };
        let mut watch = self.watch(PATIENCE);
        let id = self.store.ask(&request).await?;
        loop {
            let found = self.store.request_of(id).await?.ok_or(Error::Internal("a request is gone"))?;
            if !found.is_open() {
                return answer(found);
            }
            if !watch.next().await {
                return Err(unanswered(found, &request.connections));
            }
        }
    }

    async fn find_runner(&self, Question { connections, python_tasks, .. }: &Question) -> Result<()> {
        let runners = self.store.runners().await?;
        let has_all = |needed: &[String], has: &[String]| needed.iter().all(|name| has.contains(name));
        let can = |runner: &vitrina_store::RunnerRecord| {
            has_all(connections, &runner.connections) && has_all(python_tasks, &runner.python_tasks)
        };
        let mut alive = runners.iter().filter(|runner| runner.alive).peekable();
        let lacks = match (alive.peek(), python_tasks.is_empty()) {
            (None, _) => "is alive".to_owned(),
            (_, true) => format!("that is alive has the connections {}", connections.join(", ")),
            (_, false) => format!(
                "that is alive has the connections {} and the Python tasks {}",
                connections.join(", "),
                python_tasks.join(", ")
            ),
        };
        if alive.any(can) { Ok(()) } else { Err(Error::NoRunner(lacks)) }
    }
}

/// Nobody has taken it in time, or who has waits itself: for a lock at a target, or a slow source.
fn unanswered(request: RequestRecord, connections: &[String]) -> Error {
    let seconds = PATIENCE.as_secs();
    match request.runner.filter(|_| request.status == "RUNNING") {
        Some(runner) => Error::RunnerWaits(format!(
            "runner {runner} has taken the question and waits for an answer of {} for {seconds} s now",
            connections.join(" or ")
        )),
        None => Error::NoRunner(format!("has answered within {seconds} s")),
    }
}

fn answer(request: RequestRecord) -> Result<Value> {
    match request {
        RequestRecord { answer: Some(answer), .. } => Ok(answer),
        RequestRecord { error: Some(error), error_code, .. } => {
            Err(Error::Unanswered { code: error_code.unwrap_or_default(), error })
        }
        _ => Err(Error::NoRunner("has taken it in time".to_owned())),
    }
}
