//! `vitrina delete PIPELINE`: with its history and checkpoint. What it has written stays.

use std::io::{self, IsTerminal};

use anyhow::Result;
use serde_json::json;

use crate::context::Context;
use crate::exit::Exit;
use crate::output::{self, shell_word};

const EXAMPLES: &str = "\
Examples:
  vitrina delete film_dim          say what goes, and ask
  vitrina delete film_dim --yes    do not ask";

#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    /// Name or id
    pipeline: String,
    /// Do not ask
    #[arg(long)]
    yes: bool,
}

/// Only what was seen is deleted: whoever has edited it meanwhile, or has made another of its name, did not mean to lose it.
pub(crate) async fn run(args: &Args, context: &Context) -> Result<Exit> {
    let client = context.client()?;
    let found = client.pipeline(&args.pipeline).await?.known;
    if !args.yes {
        consent(&found.name, &found.target)?;
    }
    client.delete(&found.id.to_string(), found.version).await?;
    context.output.show(&json!({"deleted": found.name}), || {
        format!("{} is deleted; {} stays as it is", found.name, found.target)
    });
    Ok(Exit::Done)
}

fn consent(pipeline: &str, target: &str) -> Result<()> {
    output::say(&format!(
        "{pipeline} goes with its runs, logs, rejects and checkpoint; what it has written to {target} stays"
    ));
    if !io::stdin().is_terminal() {
        let hint = format!("`vitrina delete {} --yes` does not ask", shell_word(pipeline));
        return Err(Exit::Usage.fault(format!("nobody is there to agree\nhint: {hint}")));
    }
    match output::ask("delete it?")? {
        true => Ok(()),
        false => Err(Exit::Failed.fault("nothing was deleted\nhint: answer y to delete")),
    }
}
