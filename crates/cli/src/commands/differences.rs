//! `vitrina differences RECONCILE`: the rows that differ, as a table or as a file.

use anyhow::Result;
use uuid::Uuid;
use vitrina_core::DifferenceKind;

use crate::client::Client;
use crate::context::Context;
use crate::exit::Exit;
use crate::output::{self, Format, shell_word};

use super::reconcile::text;

const EXAMPLES: &str = "\
Examples:
  vitrina differences film_dim                  of the comparison that its verdict is of
  vitrina differences film_dim --kind missing   only rows that the target lacks
  vitrina differences film_dim --download csv > differences.csv";

#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    /// The id of a reconcile, or a pipeline, whose last verdict is meant
    #[arg(value_name = "RECONCILE|PIPELINE")]
    what: String,
    /// Only those that are missing, extra or different
    #[arg(long)]
    kind: Option<DifferenceKind>,
    /// List at most so many
    #[arg(long, default_value_t = 50, value_parser = clap::value_parser!(u32).range(1..=500), conflicts_with = "download")]
    limit: u32,
    /// Write all of them on stdout: one row a line as ndjson, one column of a row a line as csv
    #[arg(long, value_enum, value_name = "FORMAT")]
    download: Option<Download>,
}

#[derive(Debug, Clone, Copy, clap::ValueEnum)]
enum Download {
    Ndjson,
    Csv,
}

pub(crate) async fn run(args: &Args, context: &Context) -> Result<Exit> {
    let client = context.client()?;
    let id = find(&client, &args.what).await?;
    if let Some(format) = args.download {
        let format = match format {
            Download::Ndjson => "ndjson",
            Download::Csv => "csv",
        };
        client.download_differences(id, args.kind, format, output::pass_on).await?;
        return Ok(Exit::Done);
    }
    let page = client.differences(id, args.kind, args.limit).await?;
    context.output.show(&page.document, || match page.known.items.as_slice() {
        [] => format!("reconcile {id} has kept no differences"),
        items => text::differences(items),
    });
    if context.output == Format::Table {
        match (page.known.items.is_empty(), &page.known.next_cursor) {
            (true, _) => output::say("they are kept by `vitrina reconcile PIPELINE --level rows`"),
            (false, Some(_)) => output::say("there are more; --limit shows them, --download csv writes all"),
            (false, None) => {}
        }
    }
    Ok(Exit::Done)
}

/// A reconcile's id and a pipeline's look alike: the reconcile is asked for first.
async fn find(client: &Client, what: &str) -> Result<Uuid> {
    if let Ok(id) = what.parse::<Uuid>()
        && client.follow_reconcile(id, 0).await.is_ok()
    {
        return Ok(id);
    }
    let last = client.standing(what).await?.known.reconcile;
    last.map(|reconcile| reconcile.id).ok_or_else(|| {
        let name = shell_word(what);
        Exit::Usage.fault(format!(
            "{what} was never compared\nhint: `vitrina reconcile {name} --level rows` names the rows that differ"
        ))
    })
}
