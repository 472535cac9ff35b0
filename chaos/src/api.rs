//! The API as a process of its own, and what people ask of it all the time.

use std::net::TcpListener;
use std::process::Child;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use reqwest::{Client, Method};
use serde_json::{Value, json};
use tokio::time::{Instant, sleep};

use crate::dice::Dice;
use crate::ground::Ground;

#[derive(Debug)]
pub(crate) struct Api {
    process: Child,
    client: Client,
    base: String,
}

const TOKEN: &str = "token-of-the-storm";
const PATIENCE: Duration = Duration::from_secs(30);

impl Api {
    pub(crate) async fn start(ground: &Ground) -> Result<Self> {
        let port = TcpListener::bind("127.0.0.1:0")?.local_addr()?.port();
        let process = ground
            .command("api", &["serve"])?
            .env("VITRINA_API_LISTEN", format!("127.0.0.1:{port}"))
            .env("VITRINA_ADMIN_TOKEN", TOKEN)
            .env("VITRINA_LOG_LEVEL", "warn")
            .spawn()?;
        let base = format!("http://127.0.0.1:{port}/api/v1");
        let api = Self { process, client: vitrina_testbed::http_client(), base };
        let started = Instant::now();
        while !matches!(api.call(Method::GET, "/health", &Value::Null).await, Ok((200, _))) {
            ensure!(
                started.elapsed() < PATIENCE,
                "the API does not answer: see {}",
                ground.log("api").display()
            );
            sleep(Duration::from_millis(50)).await;
        }
        Ok(api)
    }

    pub(crate) async fn call(&self, method: Method, path: &str, body: &Value) -> Result<(u16, Value)> {
        let request = self.client.request(method, format!("{}{path}", self.base)).bearer_auth(TOKEN);
        let request = if body.is_null() { request } else { request.json(body) };
        let answer = request.timeout(PATIENCE).send().await?;
        let status = answer.status().as_u16();
        Ok((status, answer.json().await.unwrap_or_default()))
    }

    pub(crate) async fn create(&self, pipeline: &Value) -> Result<()> {
        let (status, answer) = self.call(Method::POST, "/pipelines", pipeline).await?;
        ensure!(status == 201, "POST /pipelines answers {status}: {answer}");
        Ok(())
    }

    /// One thing that somebody asks for, sensible or not. Answers the status.
    pub(crate) async fn ask_something(&self, pipeline: &str, disables: f64, dice: &mut Dice) -> Result<u16> {
        let (verb, body) = match dice.share() {
            _ if dice.share() < disables => ("disable", Value::Null),
            ..0.35 => ("run", json!({})),
            ..0.74 => ("run", json!({"on_active": "after"})),
            ..0.76 => ("run", json!({"mode": "full", "on_active": "after"})),
            ..0.82 => ("pause", json!({})),
            ..0.87 => ("cancel", json!({})),
            _ => ("enable", Value::Null),
        };
        Ok(self.call(Method::POST, &format!("/pipelines/{pipeline}/{verb}"), &body).await?.0)
    }

    /// A run that is active or asked for now, to its success. One that was paused or has stalled is asked for again.
    pub(crate) async fn succeed(&self, pipeline: &str, patience: Duration) -> Result<()> {
        let started = Instant::now();
        loop {
            let last = self.try_run(pipeline).await;
            match last {
                Ok(status) if status == "SUCCESS" => return Ok(()),
                last if started.elapsed() > patience => bail!("{pipeline} does not come to an end: {last:?}"),
                _ => sleep(Duration::from_millis(200)).await,
            }
        }
    }

    async fn try_run(&self, pipeline: &str) -> Result<String> {
        let path = |verb: &str| format!("/pipelines/{pipeline}/{verb}");
        self.call(Method::POST, &path("enable"), &Value::Null).await?;
        let (status, answer) = self.call(Method::POST, &path("run"), &json!({"on_active": "join"})).await?;
        let Some(run) = answer["run_id"].as_str() else {
            return Ok(format!("{status} {}", answer["code"].as_str().unwrap_or_default()));
        };
        let (_, run) = self.call(Method::GET, &format!("/runs/{run}?wait=20"), &Value::Null).await?;
        Ok(run["status"].as_str().context("a run has a status")?.to_owned())
    }
}

impl Drop for Api {
    fn drop(&mut self) {
        self.process.kill().ok();
        self.process.wait().ok();
    }
}
