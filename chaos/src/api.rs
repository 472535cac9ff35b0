//! The API as a process of its own, and what people ask of it all the time.

use std::net::TcpListener;
use std::process::Child;
use std::sync::Mutex;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use reqwest::{Client, Method};
use serde_json::{Value, json};
use tokio::time::{Instant, sleep};

use crate::fixture::Fixture;
use crate::rng::Rng;

#[derive(Debug)]
pub(crate) struct Api {
    fixture: Fixture,
    port: u16,
    process: Mutex<Child>,
    client: Client,
    base: String,
}

/// How a run or a comparison ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Outcome {
    pub(crate) status: String,
    /// Of the error it ended with.
    pub(crate) code: String,
}

const TOKEN: &str = "token-of-the-storm-0123456789";
const PATIENCE: Duration = Duration::from_secs(30);
/// A run or a comparison of a fraction of a second, in a storm. A comparison is given up when the leases of three runners
/// that were killed with it, 30 s each, are over.
const LONGEST: Duration = Duration::from_secs(240);

impl Api {
    pub(crate) async fn start(fixture: &Fixture) -> Result<Self> {
        let port = TcpListener::bind("127.0.0.1:0")?.local_addr()?.port();
        let process = Mutex::new(serve(fixture, port)?);
        let base = format!("http://127.0.0.1:{port}/api/v1");
        let fixture = fixture.clone();
        let api = Self { fixture, port, process, client: vitrina_testbed::http_client(), base };
        let started = Instant::now();
        while !matches!(api.call(Method::GET, "/health", &Value::Null).await, Ok((200, _))) {
            ensure!(
                started.elapsed() < PATIENCE,
                "the API does not answer: see {}",
                api.fixture.log("api").display()
            );
            sleep(Duration::from_millis(50)).await;
        }
        Ok(api)
    }

    /// `kill -9`, and another one at the same address.
    pub(crate) fn restart(&self) -> Result<()> {
        let mut process = self.process.lock().expect("no holder panics");
        process.kill()?;
        process.wait()?;
        *process = serve(&self.fixture, self.port)?;
        Ok(())
    }

    pub(crate) async fn call(&self, method: Method, path: &str, body: &Value) -> Result<(u16, Value)> {
        let is_patch = method == Method::PATCH;
        let request = self.client.request(method, format!("{}{path}", self.base)).bearer_auth(TOKEN);
        let request = if body.is_null() { request } else { request.json(body) };
        let request = if is_patch { request.header("if-match", "*") } else { request };
        let answer = request.timeout(PATIENCE).send().await?;
        let status = answer.status().as_u16();
        Ok((status, answer.json().await.unwrap_or_default()))
    }

    /// Targets, by name.
    pub(crate) async fn describe(&self, targets: &[(String, Value)]) -> Result<()> {
        for (name, target) in targets {
            let (status, answer) = self.call(Method::PUT, &format!("/targets/{name}"), target).await?;
            ensure!(status == 201, "PUT /targets/{name} answers {status}: {answer}");
        }
        Ok(())
    }

    pub(crate) async fn create(&self, pipeline: &Value) -> Result<()> {
        let (status, answer) = self.call(Method::POST, "/pipelines", pipeline).await?;
        ensure!(status == 201, "POST /pipelines answers {status}: {answer}");
        Ok(())
    }

    /// One thing that somebody asks for, sensible or not. Answers the status.
    pub(crate) async fn ask_something(&self, pipeline: &str, disables: f64, rng: &mut Rng) -> Result<u16> {
        let (verb, body) = match rng.share() {
            _ if rng.share() < disables => ("disable", Value::Null),
            ..0.35 => ("run", json!({})),
            ..0.74 => ("run", json!({"on_active": "after"})),
            ..0.76 => ("run", json!({"mode": "full", "on_active": "after"})),
            ..0.78 => ("run", json!({"keys": some_keys(rng), "on_active": "after"})),
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
        self.call(Method::POST, &format!("/pipelines/{pipeline}/enable"), &Value::Null).await?;
        let run = self.request(pipeline, &json!({"on_active": "join"})).await?;
        let (_, run) = self.call(Method::GET, &format!("/runs/{run}?wait=20"), &Value::Null).await?;
        Ok(run["status"].as_str().context("a run has a status")?.to_owned())
    }

    /// The id of a run that this body asks for.
    pub(crate) async fn request(&self, pipeline: &str, body: &Value) -> Result<String> {
        let (status, answer) = self.call(Method::POST, &format!("/pipelines/{pipeline}/run"), body).await?;
        let run = answer["run_id"].as_str();
        Ok(run
            .with_context(|| format!("{status} {}", answer["code"].as_str().unwrap_or_default()))?
            .to_owned())
    }

    /// Waits, through restarts of server and API, for the end of what is found at this path.
    pub(crate) async fn end_of(&self, path: &str) -> Result<(Outcome, Value)> {
        let started = Instant::now();
        loop {
            let answer = self.call(Method::GET, &format!("{path}?wait=10"), &Value::Null).await;
            if let Ok((200, answer)) = &answer
                && !answer["finished_at"].is_null()
            {
                let text = |field: &str| answer[field].as_str().unwrap_or_default().to_owned();
                return Ok((Outcome { status: text("status"), code: text("error_code") }, answer.clone()));
            }
            ensure!(started.elapsed() < LONGEST, "{path} does not come to an end: {answer:?}");
            sleep(Duration::from_millis(50)).await;
        }
    }
}

fn serve(fixture: &Fixture, port: u16) -> Result<Child> {
    let process = fixture
        .command("api", &["serve"])?
        .env("VITRINA_API_LISTEN", format!("127.0.0.1:{port}"))
        .env("VITRINA_ADMIN_TOKEN", TOKEN)
        .env("VITRINA_LOG_LEVEL", "warn")
        .spawn()?;
    Ok(process)
}

/// Ids that the tables may have.
fn some_keys(rng: &mut Rng) -> Vec<[String; 1]> {
    (0..5).map(|_| [(1.0 + rng.share() * 200.0).floor().to_string()]).collect()
}

impl Drop for Api {
    fn drop(&mut self) {
        let process = self.process.get_mut().expect("no holder panics");
        process.kill().ok();
        process.wait().ok();
    }
}
