//! `vitrina resume PIPELINE`: continues a pipeline where it was paused, or where its load failed. A backfill that
//! failed leaves the status as it was: `vitrina run --resume` continues it.

use anyhow::Result;
use vitrina_api::documents::RunOrder;
use vitrina_core::Status;

use crate::context::Context;
use crate::exit::Exit;
use crate::output::shell_word;

use super::watch;

const EXAMPLES: &str = "\
Examples:
  vitrina resume film_dim            go on from the checkpoint
  vitrina resume film_dim --watch    and stay until it has ended";

#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    /// Name or id
    pipeline: String,
    #[command(flatten)]
    watch: watch::Watch,
}

/// A run that is asked for while the pipeline is paused continues from its checkpoint; one that failed says so.
pub(crate) async fn run(args: &Args, context: &Context) -> Result<Exit> {
    let client = context.client()?;
    let status = client.status(&args.pipeline).await?.known.status;
    if !matches!(status, Status::Paused | Status::PauseRequested | Status::Failed) {
        let pipeline = shell_word(&args.pipeline);
        return Err(Exit::Conflict.fault(format!(
            "{} is {status}, neither paused nor failed\nhint: `vitrina run {pipeline}` runs it",
            args.pipeline
        )));
    }
    let order = RunOrder { resume: status == Status::Failed, ..RunOrder::default() };
    watch::request(&args.pipeline, &order, &args.watch, &client, context).await
}
