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
}

impl App {
    /// Asks, and waits for the answer. Where nobody can answer, that is said at once.
    pub(super) async fn ask(&self, actor: &Actor, question: Question) -> Result<Value> {
        self.find_runner(&question.connections).await?;
        let Question { kind, pipeline, payload, connections } = question;
        let requested_by = actor.name.clone();
        let request = Request { kind, pipeline, payload, connections, expires_in: PATIENCE, requested_by };
        let mut watch = self.watch(PATIENCE);
        let id = self.store.ask(&request).await?;
        loop {
            let found = self.store.request_of(id).await?.ok_or(Error::Internal("a request is gone"))?;
            if !found.is_open() {
                return answer(found);
            }
            if !watch.next().await {
                return Err(Error::NoRunner(format!("has answered within {} s", PATIENCE.as_secs())));
            }
        }
    }

    async fn find_runner(&self, connections: &[String]) -> Result<()> {
        let runners = self.store.runners().await?;
        let can = |runner: &vitrina_store::RunnerRecord| {
            runner.alive && connections.iter().all(|needed| runner.connections.contains(needed))
        };
        if runners.iter().any(can) {
            return Ok(());
        }
        let lacks = match runners.iter().any(|runner| runner.alive) {
            true => format!("that is alive has the connections {}", connections.join(", ")),
            false => "is alive".to_owned(),
        };
        Err(Error::NoRunner(lacks))
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
