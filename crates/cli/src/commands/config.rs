//! `vitrina config show`, and the reference of all settings for the documentation.

use anyhow::Result;
use clap::Subcommand;

use crate::config::{Shown, reference};
use crate::context::Context;
use crate::exit::Exit;
use crate::output;

const EXAMPLES: &str = "\
Examples:
  vitrina config show --origin                 every setting, and who has set it
  vitrina config schema > config.schema.json   for editors of YAML files";

#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// All settings as they count; secrets are masked
    Show {
        /// Also where each value was given
        #[arg(long)]
        origin: bool,
    },
    /// The JSON Schema of the files that `vitrina apply` takes, for editors
    Schema,
    /// All settings as a Markdown table
    #[command(hide = true)]
    Reference,
}

pub(crate) fn run(args: &Args, context: &Context) -> Result<Exit> {
    match args.command {
        Command::Show { origin } => {
            let config = context.config(Vec::new())?;
            context.output.show(&config.show(), || table(config.show(), origin));
        }
        Command::Schema => {
            let schema = vitrina_api::config_schema();
            output::print(&serde_json::to_string_pretty(&schema).expect("documents have text keys"));
        }
        Command::Reference => output::print(reference().trim_end()),
    }
    Ok(Exit::Done)
}

fn table(settings: &[Shown], origin: bool) -> String {
    let value = |shown: &Shown| shown.value.clone().unwrap_or_else(|| "-".to_owned());
    if origin {
        let row = |shown: &Shown| [shown.key.clone(), value(shown), shown.origin.to_string()];
        return output::table(["key", "value", "origin"], settings.iter().map(row));
    }
    output::table(["key", "value"], settings.iter().map(|shown| [shown.key.clone(), value(shown)]))
}
