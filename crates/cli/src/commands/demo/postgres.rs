//! `vitrina demo postgres start|stop|url`: what the local stand of `make up` is built on.

use std::path::{Path, PathBuf};

use anyhow::Result;
use clap::Subcommand;
use serde_json::json;

use super::stand::{self, Place, Stand};
use crate::context::Context;
use crate::exit::Exit;
use crate::output;

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(subcommand)]
    command: Command,
    /// Where it lives
    #[arg(long, global = true, value_name = "PATH")]
    dir: Option<PathBuf>,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Start it, or take the one that runs; PATH/stand.env says how to connect
    Start,
    /// Stop it
    Stop {
        /// And remove its data
        #[arg(long)]
        clean: bool,
    },
    /// The owner's URL, with its password
    Url,
}

pub(crate) async fn run(args: Args, context: &Context) -> Result<Exit> {
    let directory = stand::directory(args.dir)?;
    match args.command {
        Command::Start => start(directory, context).await,
        Command::Stop { clean: true } => stand::remove(directory).await,
        Command::Stop { clean: false } => stop(directory).await,
        Command::Url => url(&directory, context),
    }
}

async fn start(directory: PathBuf, context: &Context) -> Result<Exit> {
    let stand = Stand::start(Place::claim(directory)?).await?;
    stand.create_logins().await?;
    let (port, variables) = (stand.port(), stand.variables_file());
    context.output.show(&json!({"port": port, "variables": variables}), || {
        format!("Postgres runs on 127.0.0.1:{port}; {} says how to connect", variables.display())
    });
    Ok(Exit::Done)
}

async fn stop(directory: PathBuf) -> Result<Exit> {
    let place = Place::existing(directory.clone())?.filter(Place::is_used);
    match place {
        Some(place) => place.stop().await?,
        None => output::say(&format!("there is no Postgres in {}", directory.display())),
    }
    Ok(Exit::Done)
}

fn url(directory: &Path, context: &Context) -> Result<Exit> {
    let url = stand::variable(directory, stand::ADMIN_URL).ok_or_else(|| {
        Exit::Failed.fault(format!(
            "there is no Postgres in {}\nhint: start it with `vitrina demo postgres start --dir`",
            directory.display()
        ))
    })?;
    context.output.show(&json!({"url": url}), || url.clone());
    Ok(Exit::Done)
}
