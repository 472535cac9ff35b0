//! `vitrina index rollback TARGET`: readers of an index get what they saw before its last load.

use anyhow::Result;
use vitrina_api::documents::RunOrder;

use crate::client::Client;
use crate::context::Context;
use crate::exit::Exit;
use crate::output::{self, shell_word};

use super::watch;

const EXAMPLES: &str = "\
Examples:
  vitrina index rollback es:film_dim                 say what would be done
  vitrina index rollback es:film_dim --yes --watch   do it";

#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, clap::Subcommand)]
enum Verb {
    /// Give readers the index they saw before the last load, and the pipeline the checkpoint that belongs to it
    Rollback(Rollback),
}

#[derive(Debug, clap::Args)]
struct Rollback {
    /// The index, such as es:film_dim
    target: String,
    /// Do it; without this only what would be done is told
    #[arg(long)]
    yes: bool,
    #[command(flatten)]
    watch: watch::Watch,
}

pub(crate) async fn run(args: &Args, context: &Context) -> Result<Exit> {
    match &args.verb {
        Verb::Rollback(args) => roll_back(args, context).await,
    }
}

async fn roll_back(args: &Rollback, context: &Context) -> Result<Exit> {
    let client = context.client()?;
    let pipeline = writer(&args.target, &client).await?;
    let target = shell_word(&args.target);
    if !args.yes {
        output::say(&format!(
            "readers of {} would get the index they saw before the last load, and pipeline {pipeline} would go on from there;\n\
             nothing was changed; `vitrina index rollback {target} --yes` does it",
            args.target
        ));
        return Ok(Exit::Done);
    }
    let order = RunOrder { rollback: true, ..RunOrder::default() };
    watch::request(&pipeline, &order, &args.watch, &client, context).await
}

/// The pipeline that writes to it.
async fn writer(target: &str, client: &Client) -> Result<String> {
    let pipelines = client.pipelines().await?.known.items;
    let mut writers = pipelines.into_iter().filter(|pipeline| pipeline.target == target);
    match (writers.next(), writers.next()) {
        (Some(pipeline), None) => Ok(pipeline.name),
        (Some(_), Some(_)) => Err(Exit::Usage.fault(format!(
            "several pipelines write to {target}: such an index is never exchanged\nhint: run them again with mode full"
        ))),
        (None, _) => Err(Exit::Usage
            .fault(format!("no pipeline writes to {target}\nhint: `vitrina status` lists pipelines with their targets"))),
    }
}
