//! `vitrina run PIPELINE`: asks for a run and, with `--watch`, stays until it has ended.

use anyhow::Result;
use vitrina_core::{Decision, Mode, OnActive};

use crate::client::Order;
use crate::context::Context;
use crate::exit::Exit;

use super::watch::{self, Asked};

const EXAMPLES: &str = "\
Examples:
  vitrina run film_dim --watch              stay until it has ended; its result is the exit code
  vitrina run film_dim --mode full          load everything, whatever its own mode is
  vitrina run film_dim --checkpoint reset   its query has changed: read all of it again
  vitrina run film_dim --resume             continue the load that failed, instead of a new one
  vitrina run film_dim --watch --timeout 10m || alert";

#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    /// Name or id
    pipeline: String,
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
    let order = Order { mode, checkpoint, resume, on_active, ..Order::default() };
    let answer = client.run(&args.pipeline, &order).await?;
    let asked = Asked { pipeline: &args.pipeline, accepted: &answer.known, document: &answer.document };
    watch::follow(&asked, &args.watch, &client, context).await
}
