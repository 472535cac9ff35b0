//! The `vitrina` command: it reads the configuration, starts API and runner, asks the API on behalf of a
//! person, and shows the demo. What can go wrong ends as one `error: …` with a hint and an exit code.

mod arguments;
mod client;
mod commands;
pub mod config;
mod context;
mod exit;
mod files;
mod hardening;
mod logging;
mod look;
mod nearest;
mod output;
mod roles;
mod services;
mod shutdown;

use std::process::ExitCode;

use clap::Parser;

use arguments::Arguments;
use exit::Exit;

/// Nothing happens before the arguments are parsed: `--version` and `--help` answer at once.
pub fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let exit = run(arguments).unwrap_or_else(|error| {
        output::say(&format!("error: {}", exit::explain(&error)));
        Exit::of(&error)
    });
    ExitCode::from(exit as u8)
}

fn run(arguments: Arguments) -> anyhow::Result<Exit> {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    runtime.block_on(commands::dispatch(arguments))
}
