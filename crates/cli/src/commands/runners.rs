//! `vitrina runners`, and `vitrina drain RUNNER`.

use std::time::Duration;

use anyhow::Result;
use vitrina_api::documents::Runner;

use crate::client::{Answer, Client};
use crate::context::Context;
use crate::exit::Exit;
use crate::output::{self, Progress, time};
use crate::shutdown::Shutdown;

use super::watch;

pub(crate) const DRAIN_EXAMPLES: &str = "\
Examples:
  vitrina drain runner-1 --watch   and stay until it has stopped
  vitrina runners                  lists them";

pub(crate) const LIST_EXAMPLES: &str = "\
Examples:
  vitrina runners   who is alive, and how busy
  vitrina runners -o ndjson | jq -r 'select(.alive | not).name'";

#[derive(Debug, clap::Args)]
pub(crate) struct Drain {
    /// Its name, as `vitrina runners` shows it
    runner: String,
    /// Stay until it has stopped
    #[arg(long)]
    watch: bool,
    /// Watch no longer than this, such as 90s or 10m
    #[arg(long, value_name = "TIME", requires = "watch", value_parser = watch::timeout)]
    timeout: Option<Duration>,
}

const LOOK_EVERY: Duration = Duration::from_millis(200);

pub(crate) async fn list(context: &Context) -> Result<Exit> {
    let runners = context.client()?.runners().await?;
    context.output.show(&runners.document, || {
        let header = ["runner", "status", "runs", "connections", "host", "process", "version", "heard of"];
        output::yielding(header, runners.known.items.iter().map(row), &["connections", "host", "version"])
    });
    Ok(Exit::Done)
}

fn row(runner: &Runner) -> [String; 8] {
    [
        runner.name.clone(),
        status(runner).to_owned(),
        format!("{} of {}", runner.active_runs, runner.max_concurrent),
        runner.connections.join(", "),
        runner.host.clone(),
        runner.pid.to_string(),
        runner.version.clone(),
        time(runner.heartbeat_at),
    ]
}

/// One that was killed has not said that it stops.
fn status(runner: &Runner) -> &str {
    match runner.status.as_str() {
        "READY" | "DRAINING" if !runner.alive => "SILENT",
        status => status,
    }
}

pub(crate) async fn drain(args: &Drain, context: &Context) -> Result<Exit> {
    let client = context.client()?;
    let asked = client.drain(&args.runner).await?;
    if !args.watch {
        context.output.show(&asked.document, || described(&asked.known));
        return Ok(Exit::Done);
    }
    let shutdown = Shutdown::on_signals()?;
    let runner = shutdown.race_within(args.timeout, stopped(&client, asked), left).await?;
    context.output.show(&runner.document, || described(&runner.known));
    Ok(Exit::Done)
}

fn left(exit: Exit, why: &str) -> anyhow::Error {
    exit.fault(format!("{why}; the runner goes on stopping\nhint: `vitrina runners` shows it"))
}

/// Follows it until it has stopped, or is not heard of any more.
async fn stopped(client: &Client, asked: Answer<Runner>) -> Result<Answer<Runner>> {
    let mut progress = Progress::default();
    let mut runner = asked;
    while runner.known.alive {
        let text = described(&runner.known);
        progress.show(&text, &text, None);
        tokio::time::sleep(LOOK_EVERY).await;
        runner = find(client, &runner.known.name).await?;
    }
    progress.finish();
    Ok(runner)
}

async fn find(client: &Client, name: &str) -> Result<Answer<Runner>> {
    let all = client.runners().await?;
    let place = all.known.items.iter().position(|runner| runner.name == name);
    let place = place.ok_or_else(|| Exit::Failed.fault(format!("the runner {name} is gone")))?;
    let document = all.document["items"][place].clone();
    Ok(Answer { known: serde_json::from_value(document.clone())?, document })
}

fn described(runner: &Runner) -> String {
    let name = &runner.name;
    match (status(runner), runner.active_runs) {
        ("DRAINING", 0) => format!("{name} is DRAINING"),
        ("DRAINING", 1) => format!("{name} is DRAINING: 1 run is handed back"),
        ("DRAINING", runs) => format!("{name} is DRAINING: {runs} runs are handed back"),
        (status, _) => format!("{name} is {status}"),
    }
}
