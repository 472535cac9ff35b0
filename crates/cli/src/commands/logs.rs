//! `vitrina logs PIPELINE|RUN`: what was noticed during a run, followed to its end when asked.

use anyhow::Result;
use uuid::Uuid;
use vitrina_api::documents::{LogLine, Waiting};

use crate::client::Client;
use crate::context::Context;
use crate::exit::Exit;
use crate::output::{self, Format, one_line, time};
use crate::shutdown::Shutdown;

use super::status;

const EXAMPLES: &str = "\
Examples:
  vitrina logs film_dim      its newest run
  vitrina logs film_dim -f   follow it to its end
  vitrina logs film_dim -o ndjson | jq 'select(.level == \"error\")'";

#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    /// A pipeline, whose newest run is meant, or the id of a run
    #[arg(value_name = "PIPELINE|RUN")]
    what: String,
    /// Stay until the run has ended
    #[arg(short, long)]
    follow: bool,
}

const PAGE: u32 = 500;
const WAIT_SECONDS: u64 = 30;

pub(crate) async fn run(args: &Args, context: &Context) -> Result<Exit> {
    let client = context.client()?;
    let run = find(&client, &args.what).await?;
    let Found { run, waiting } = run;
    if let Some(waiting) = waiting {
        output::say(&format!("the run waits: {}", status::reason(&waiting)));
    }
    let shutdown = Shutdown::on_signals()?;
    match shutdown.race(tell(&client, run, args.follow, context.output)).await {
        Some(told) => told.map(|()| Exit::Done),
        None => Ok(Exit::Interrupted),
    }
}

struct Found {
    run: Uuid,
    /// Why nobody executes it.
    waiting: Option<Waiting>,
}

/// A run's id and a pipeline's look alike: the run is asked for first.
async fn find(client: &Client, what: &str) -> Result<Found> {
    if let Ok(id) = what.parse::<Uuid>()
        && let Ok(run) = client.follow(id, 0).await
    {
        let waiting = match run.known.status.is_open() {
            true => client.status(&run.known.pipeline).await?.known.waiting,
            false => None,
        };
        return Ok(Found { run: id, waiting });
    }
    let status = client.status(what).await?.known;
    let Some(last) = status.last_run else {
        let message =
            format!("{what} has never run\nhint: `vitrina run {}` runs it", output::shell_word(what));
        return Err(Exit::Usage.fault(message));
    };
    Ok(Found { run: last.id, waiting: status.waiting.filter(|_| last.status.is_open()) })
}

async fn tell(client: &Client, run: Uuid, follow: bool, format: Format) -> Result<()> {
    let mut cursor = None;
    loop {
        let wait = if follow { WAIT_SECONDS } else { 0 };
        let page = client.logs(run, cursor.as_deref(), PAGE, wait).await?;
        for (line, document) in
            page.known.items.iter().zip(page.document["items"].as_array().into_iter().flatten())
        {
            format.show_item(document, || text(line));
        }
        let more = page.known.items.len() == PAGE as usize;
        match page.known.next_cursor {
            Some(next) if follow || more => cursor = Some(next),
            _ => return Ok(()),
        }
    }
}

fn text(line: &LogLine) -> String {
    let known = ["pipeline", "pipeline_id", "run_id", "trace_id"];
    let fields = line.fields.iter().filter(|(name, _)| !known.contains(&name.as_str()));
    let told = |value: &serde_json::Value| value.as_str().map_or_else(|| value.to_string(), str::to_owned);
    let fields: String = fields.map(|(name, value)| format!("  {name}={}", one_line(&told(value)))).collect();
    format!("{}  {:<5}  {}{fields}", time(line.at), line.level, one_line(&line.message))
}
