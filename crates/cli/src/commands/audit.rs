//! `vitrina audit`: who has changed what.

use anyhow::Result;
use serde_json::Value;
use vitrina_api::documents::AuditEntry;

use crate::context::Context;
use crate::exit::Exit;
use crate::output::{self, one_line, time};

const EXAMPLES: &str = "\
Examples:
  vitrina audit                     the newest changes
  vitrina audit --limit 500 -o json | jq '.items[] | select(.actor == \"alice\")'";

#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    /// At most so many
    #[arg(long, default_value_t = 20, value_parser = clap::value_parser!(u32).range(1..=500))]
    limit: u32,
}

pub(crate) async fn run(args: &Args, context: &Context) -> Result<Exit> {
    let entries = context.client()?.audit(args.limit).await?;
    context.output.show(&entries.document, || match entries.known.items.as_slice() {
        [] => "nobody has changed anything yet".to_owned(),
        entries => {
            let header = ["when", "who", "what", "of", "fields"];
            output::yielding(header, entries.iter().map(row), &["fields", "of", "who"])
        }
    });
    Ok(Exit::Done)
}

fn row(entry: &AuditEntry) -> [String; 5] {
    [
        time(entry.at),
        one_line(&entry.actor),
        entry.action.clone(),
        one_line(&entry.subject),
        fields(entry.after.as_ref().or(entry.before.as_ref())),
    ]
}

/// The names of what has changed: values may be long, and are in the document.
fn fields(of: Option<&Value>) -> String {
    let names = of.and_then(Value::as_object).into_iter().flatten().map(|(name, _)| name.as_str());
    let names: Vec<&str> = names.collect();
    if names.is_empty() { "-".to_owned() } else { names.join(", ") }
}
