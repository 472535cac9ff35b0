//! `vitrina demo`: the showpiece, its single steps for stands of one's own, and a private Postgres for them.

mod film_search;
mod postgres;
mod search;
mod show;
mod stand;
mod steps;

use std::net::SocketAddr;
use std::path::PathBuf;

use anyhow::Result;
use clap::Subcommand;

use crate::context::Context;
use crate::exit::Exit;
use crate::output::Format;

const EXAMPLES: &str = "\
Examples:
  vitrina demo                        until Ctrl-C, with the web UI
  vitrina demo --once --films 20000   prove it and stop
  vitrina demo --clean                remove what it has left";

/// Needs a Postgres installation and no configuration: it reads none. Where there is a python3, one pipeline goes through a
/// Python function. Where ELASTICSEARCH_URL or OPENSEARCH_URL names a
/// search server, it fills three indexes as well.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
#[command(args_conflicts_with_subcommands = true)]
pub(crate) struct Args {
    #[command(flatten)]
    size: Size,
    /// Remove what an earlier demo has left, its indexes too, and stop its Postgres if that still runs
    #[arg(long)]
    clean: bool,
    /// Stop after the proof; exits with 0 if marts and indexes equal their sources, else with 3
    #[arg(long)]
    once: bool,
    /// IP address and port of the API; 127.0.0.1:8080 if it is free, else any free port
    #[arg(long, value_name = "ADDRESS")]
    listen: Option<SocketAddr>,
    /// Where the private Postgres lives
    #[arg(long, value_name = "PATH")]
    dir: Option<PathBuf>,
    #[command(subcommand)]
    step: Option<Step>,
}

#[derive(Debug, Clone, Copy, clap::Args)]
struct Size {
    /// Films of the sample cinema, 5000 if it is new
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=10_000_000))]
    films: Option<u32>,
    /// Ratings of the sample cinema, ten a film
    #[arg(long, value_name = "M", value_parser = clap::value_parser!(u32).range(0..=100_000_000))]
    ratings: Option<u32>,
}

#[derive(Debug, Subcommand)]
enum Step {
    /// Create the cinema's schemas and marts in the configured database
    Migrate,
    /// Create the logins of `vitrina roles`, with VITRINA_ROLE_PASSWORD and VITRINA_READER_PASSWORD
    Roles,
    /// Fill the cinema and install its two pipelines
    Seed(Size),
    /// Compare both marts with their sources; exits with 0 or 3
    Verify,
    /// A private Postgres with database cinema and its logins
    Postgres(postgres::Args),
}

pub(crate) async fn run(args: Args, context: &Context) -> Result<Exit> {
    refuse_what_it_ignores(&args, context)?;
    perform(args, context).await.map_err(name_the_flag)
}

/// On a Postgres of its own it looks into no file, and what it shows is for people.
fn refuse_what_it_ignores(args: &Args, context: &Context) -> Result<()> {
    let reads_none = matches!(args.step, None | Some(Step::Postgres(_)));
    if reads_none && context.file.is_some() {
        return Err(Exit::Usage.fault("the demo reads no configuration\nhint: leave --config out"));
    }
    if args.step.is_none() && !args.clean && context.output != Format::Table {
        return Err(Exit::Usage.fault(
            "the demo prints no documents\nhint: leave -o out; `vitrina demo verify -o json` compares marts for programs",
        ));
    }
    match args.listen {
        Some(address) if !address.ip().is_loopback() => Err(Exit::Usage.fault(format!(
            "the demo's API is open, and {address} can be reached by other machines\n\
             hint: listen on 127.0.0.1; to serve others, use `vitrina up` with VITRINA_ADMIN_TOKEN"
        ))),
        _ => Ok(()),
    }
}

fn name_the_flag(error: anyhow::Error) -> anyhow::Error {
    use vitrina_cluster::Error::{Directory, NotOurs};
    match error.downcast_ref() {
        Some(Directory { .. } | NotOurs { .. }) => Exit::Refused.fault(format!("{error}, with --dir")),
        _ => error,
    }
}

async fn perform(args: Args, context: &Context) -> Result<Exit> {
    match args.step {
        None if args.clean => stand::remove(stand::directory(args.dir)?).await,
        None => show::run(args, context).await,
        Some(Step::Migrate) => steps::migrate(context).await,
        Some(Step::Roles) => steps::roles(context).await,
        Some(Step::Seed(size)) => steps::seed(size, context).await,
        Some(Step::Verify) => steps::verify(context).await,
        Some(Step::Postgres(args)) => postgres::run(args, context).await,
    }
}
