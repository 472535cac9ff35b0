//! `vitrina transform new` and `vitrina transform test`: a Python function of one's own, from its first line to its tests.

mod new;
mod test;

use anyhow::Result;
use clap::Subcommand;

use crate::context::Context;
use crate::exit::Exit;

const EXAMPLES: &str = "\
Examples:
  vitrina transform new film_slug   functions/film_slug.py with its test
  vitrina transform test";

#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Write a module with a function, and its test
    #[command(after_help = new::EXAMPLES)]
    New(new::Args),
    /// Run the tests of functions, with the interpreter and the SDK that a runner would use
    #[command(after_help = test::EXAMPLES)]
    Test(test::Args),
}

pub(crate) async fn run(args: &Args, context: &Context) -> Result<Exit> {
    match &args.command {
        Command::New(args) => new::run(args, context),
        Command::Test(args) => test::run(args, context).await,
    }
}
