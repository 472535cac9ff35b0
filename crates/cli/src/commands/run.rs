//! `vitrina run PIPELINE`: asks for a run and, with `--watch`, stays until it has ended. `--failed` asks for one of every
//! pipeline that has failed.

use anyhow::Result;
use serde_json::json;
use vitrina_api::documents::RunOrder;
use vitrina_core::{Decision, Mode, OnActive, Status};

use crate::client::Client;
use crate::context::Context;
use crate::exit::{self, Exit};

use super::watch;

const EXAMPLES: &str = "\
Examples:
  vitrina run film_dim --watch              stay until it has ended; its result is the exit code
  vitrina run film_dim --mode full          load everything, whatever its own mode is
  vitrina run film_dim --checkpoint reset   its query has changed: read all of it again
  vitrina run film_dim --resume             continue the load that failed, instead of a new one
  vitrina run film_dim --watch --timeout 10m || alert
  vitrina run --failed                      the outage is over: every failed pipeline goes on";

#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    /// Name or id
    #[arg(required_unless_present = "failed")]
    pipeline: Option<String>,
    /// Every pipeline that is FAILED, and not disabled
    #[arg(long, conflicts_with_all = ["pipeline", "watch", "mode", "checkpoint"])]
    failed: bool,
    /// full or incremental, instead of the pipeline's own mode
    #[arg(long)]
    mode: Option<Mode>,
    /// keep or reset: what becomes of the checkpoint of a pipeline that was changed
    #[arg(long, value_name = "WHAT")]
    checkpoint: Option<Decision>,
    /// Continue the load or backfill that the last run left when it failed; without it a load begins anew
    #[arg(long)]
    resume: bool,
    /// If a run is active: join it, run once more after it, or reject
    #[arg(long, value_name = "WHAT")]
    on_active: Option<OnActive>,
    #[command(flatten)]
    watch: watch::Watch,
}

pub(crate) async fn run(args: &Args, context: &Context) -> Result<Exit> {
    let client = context.client()?;
    let Args { mode, checkpoint, resume, on_active, .. } = *args;
    let order = RunOrder { mode, checkpoint, resume, on_active, ..RunOrder::default() };
    let Some(pipeline) = &args.pipeline else { return revive(&order, &client, context).await };
    watch::request(pipeline, &order, &args.watch, &client, context).await
}

/// One that is refused does not keep the others from running.
async fn revive(order: &RunOrder, client: &Client, context: &Context) -> Result<Exit> {
    let pipelines = client.pipelines().await?.known.items;
    let failed =
        pipelines.into_iter().filter(|pipeline| pipeline.status == Status::Failed && pipeline.enabled);
    let (mut asked, mut lines, mut end) = (Vec::new(), Vec::new(), Exit::Done);
    for pipeline in failed {
        let name = pipeline.name;
        match client.run(&name, order).await {
            Ok(answer) => {
                lines.push(format!("{name}: run {} is {}", answer.known.run_id, answer.known.status));
                asked.push(json!({"pipeline": name, "run_id": answer.known.run_id}));
            }
            Err(error) => {
                let error = exit::explain(&error.into());
                lines.push(format!("{name}: {error}"));
                asked.push(json!({"pipeline": name, "error": error}));
                end = Exit::Failed;
            }
        }
    }
    if lines.is_empty() {
        lines.push("no pipeline has failed".to_owned());
    }
    context.output.show(&json!({"items": asked}), || lines.join("\n"));
    Ok(end)
}
