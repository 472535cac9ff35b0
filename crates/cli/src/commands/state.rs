//! `vitrina state PIPELINE`: how far it has come, how it came there, and from where it goes on. A change is
//! shown with what it costs, and made only when asked.

use anyhow::Result;
use vitrina_api::documents::{CheckpointVersion, PipelineState, StateForecast};

use crate::client::{Client, StateWish};
use crate::context::Context;
use crate::exit::Exit;
use crate::output::{self, fitting, grouped, one_line, shell_word, time};

const EXAMPLES: &str = "\
Examples:
  vitrina state film_dim                      how far it has come
  vitrina state film_dim --history            and how it came there
  vitrina state film_dim --reset              what reading all of it again would cost
  vitrina state film_dim --restore 12 --yes   go on from a version of the history";

#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    /// Name or id
    pipeline: String,
    /// What completed passes had established, whenever it has changed, newest first
    #[arg(long, group = "what")]
    history: bool,
    /// List at most so many
    #[arg(long, default_value_t = 20, value_parser = clap::value_parser!(u32).range(1..=100), requires = "history")]
    limit: u32,
    /// Let the next run go on from this version of the history
    #[arg(long, value_name = "VERSION", group = "what", group = "change")]
    restore: Option<i64>,
    /// Let the next run read everything from the start
    #[arg(long, group = "what", group = "change")]
    reset: bool,
    /// Do it, instead of showing what it would cost
    #[arg(long, requires = "change")]
    yes: bool,
}

pub(crate) async fn run(args: &Args, context: &Context) -> Result<Exit> {
    let client = context.client()?;
    match args {
        Args { history: true, .. } => history(args, &client, context).await,
        Args { restore: Some(version), .. } => {
            let wish = StateWish::Restore(*version);
            change(args, &wish, &format!("--restore {version}"), &client, context).await
        }
        Args { reset: true, .. } => change(args, &StateWish::Reset, "--reset", &client, context).await,
        _ => show(args, &client, context).await,
    }
}

async fn show(args: &Args, client: &Client, context: &Context) -> Result<Exit> {
    let state = client.state(&args.pipeline).await?;
    context.output.show(&state.document, || described(&args.pipeline, &state.known));
    Ok(Exit::Done)
}

async fn history(args: &Args, client: &Client, context: &Context) -> Result<Exit> {
    let versions = client.state_history(&args.pipeline, args.limit).await?;
    context.output.show(&versions.document, || listed(&args.pipeline, &versions.known.items));
    Ok(Exit::Done)
}

async fn change(
    args: &Args,
    wish: &StateWish,
    option: &str,
    client: &Client,
    context: &Context,
) -> Result<Exit> {
    let forecast = client.forecast_state(&args.pipeline, wish).await?;
    output::say(&cost(&forecast.known));
    if !args.yes {
        context
            .output
            .show(&forecast.document, || format!("to be: {}", forecast.known.checkpoint["position"]));
        let pipeline = shell_word(&args.pipeline);
        output::say(&format!("nothing was changed; `vitrina state {pipeline} {option} --yes` does it"));
        return Ok(Exit::Differences);
    }
    let state = client.change_state(&args.pipeline, wish, forecast.known.version).await?;
    context.output.show(&state.document, || described(&args.pipeline, &state.known));
    Ok(Exit::Done)
}

fn cost(forecast: &StateForecast) -> String {
    match (forecast.rows, &forecast.reason) {
        (Some(rows), _) => {
            format!("the next run reads about {} rows, as the source's planner says", grouped(rows))
        }
        (None, Some(reason)) => format!("nobody knows how many rows the next run reads: {reason}"),
        (None, None) => "nobody knows how many rows the next run reads".to_owned(),
    }
}

fn described(pipeline: &str, state: &PipelineState) -> String {
    let reached = match (&state.last_processed_key, &state.last_processed_id) {
        (Some(key), Some(id)) => format!("{}, {}", one_line(key), one_line(id)),
        (Some(key), None) => one_line(key),
        (None, _) => "nothing yet".to_owned(),
    };
    let PipelineState { version, updated_at, checkpoint, .. } = state;
    format!(
        "{pipeline}: version {version}, {}\nlast processed: {reached}\ncheckpoint: {checkpoint}",
        time(*updated_at)
    )
}

fn listed(pipeline: &str, versions: &[CheckpointVersion]) -> String {
    let row = |version: &CheckpointVersion| {
        [
            version.version.to_string(),
            time(version.created_at),
            version.reason.clone(),
            version.run_id.map_or_else(|| "-".to_owned(), |run| run.to_string()),
            one_line(&version.checkpoint["position"].to_string()),
        ]
    };
    match versions {
        [] => format!("{pipeline} has completed no pass that leaves a position"),
        versions => {
            let header = ["version", "when", "reason", "run", "position"];
            fitting(&output::table(header, versions.iter().map(row)))
        }
    }
}
