//! `vitrina runs PIPELINE`.

use anyhow::Result;
use vitrina_api::documents::Run;

use crate::context::Context;
use crate::exit::Exit;
use crate::output::{self, grouped, seconds, time};

const EXAMPLES: &str = "\
Examples:
  vitrina runs film_dim
  vitrina runs film_dim --limit 100 -o ndjson | jq .duration_ms";

#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    /// Name or id
    pipeline: String,
    /// At most so many
    #[arg(long, default_value_t = 20, value_parser = clap::value_parser!(u32).range(1..=500))]
    limit: u32,
}

pub(crate) async fn run(args: &Args, context: &Context) -> Result<Exit> {
    let runs = context.client()?.runs(&args.pipeline, args.limit).await?;
    context.output.show(&runs.document, || {
        let header = [
            "requested",
            "status",
            "mode",
            "trigger",
            "read",
            "written",
            "unchanged",
            "deleted",
            "rejected",
            "took",
            "run",
        ];
        output::yielding(header, runs.known.items.iter().map(row), &["run", "requested", "mode"])
    });
    Ok(Exit::Done)
}

fn row(run: &Run) -> [String; 11] {
    [
        time(run.requested_at),
        run.status.to_string(),
        what(run),
        run.trigger.as_str().to_owned(),
        grouped(run.rows_read),
        grouped(run.rows_written),
        grouped(run.rows_unchanged),
        grouped(run.rows_deleted),
        grouped(run.rows_rejected),
        run.duration_ms.map_or_else(|| "-".to_owned(), seconds),
        run.id.to_string(),
    ]
}

/// The mode, or what a backfill reads again.
fn what(run: &Run) -> String {
    match (run.backfill_keys, &run.backfill_range) {
        (Some(keys), _) => format!("backfill of {}", grouped(keys)),
        (None, Some(range)) => {
            let end = |end: &Option<String>| end.clone().unwrap_or_default();
            format!("backfill {}..{}", end(&range.from), end(&range.to))
        }
        (None, None) => run.mode.to_string(),
    }
}
