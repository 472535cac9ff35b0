//! What all trials do: SQL at the source and at the marts, and runs to their end.

use anyhow::{Context, Result};
use reqwest::Method;
use serde_json::{Value, json};
use tokio::time::{Duration, sleep};

use crate::api::Outcome;
use crate::storm::Storm;

/// A mart that is not its source, row by row; `$1` stands for both.
const DIFFERENT: &str = "select count(*) from ((table content.$1 except all table analytics.$1)
    union all (table analytics.$1 except all table content.$1)) d";

impl Storm {
    pub(super) async fn execute(&self, sql: &str) -> Result<()> {
        let session = self.fixture.session().await?;
        session.client.batch_execute(sql).await.with_context(|| sql.to_owned())
    }

    pub(super) async fn count(&self, sql: &str) -> Result<i64> {
        let session = self.fixture.session().await?;
        Ok(session.client.query_one(sql, &[]).await.with_context(|| sql.to_owned())?.get(0))
    }

    /// Rows by which this mart and its source differ.
    pub(super) async fn different(&self, name: &str) -> Result<i64> {
        self.count(&DIFFERENT.replace("$1", name)).await
    }

    /// A run that is asked for now, to its end. One that stalled, because runners were killed with it, is asked for again.
    pub(super) async fn run(&self, pipeline: &str) -> Result<Outcome> {
        loop {
            let run = self.request(pipeline).await;
            let (outcome, _) = self.api.end_of(&format!("/runs/{run}")).await?;
            if outcome.code != "run.stalled" {
                return Ok(outcome);
            }
        }
    }

    /// The id of a run that is asked for now. Asked again until the API is there: the same run, or a later one.
    pub(super) async fn request(&self, pipeline: &str) -> String {
        loop {
            match self.api.request(pipeline, &json!({"on_active": "join"})).await {
                Ok(run) => return run,
                Err(_) => sleep(Duration::from_millis(100)).await,
            }
        }
    }

    pub(super) async fn change(&self, pipeline: &str, change: &Value) -> Result<()> {
        self.insist(Method::PATCH, &format!("/pipelines/{pipeline}"), change).await?;
        Ok(())
    }

    /// Calls until the API answers with a success; other answers come while the server restarts.
    pub(super) async fn insist(&self, method: Method, path: &str, body: &Value) -> Result<Value> {
        let mut last = String::new();
        for _ in 0..300 {
            match self.api.call(method.clone(), path, body).await {
                Ok((200..=299, answer)) => return Ok(answer),
                Ok((status, answer)) => last = format!("{status} {answer}"),
                Err(error) => last = error.to_string(),
            }
            sleep(Duration::from_millis(100)).await;
        }
        anyhow::bail!("{method} {path}: {last}")
    }
}

impl Outcome {
    pub(super) fn is_success(&self) -> bool {
        self.status == "SUCCESS"
    }
}
