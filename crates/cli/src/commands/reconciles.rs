//! `vitrina reconciles`: comparisons that were made, and those under way.

use anyhow::Result;
use uuid::Uuid;
use vitrina_api::documents::Reconcile;

use crate::context::Context;
use crate::exit::Exit;
use crate::output::{self, grouped, seconds, time};

const EXAMPLES: &str = "\
Examples:
  vitrina reconciles                  of all pipelines, newest first
  vitrina reconciles film_dim --limit 5
  vitrina reconciles --cancel 0192…   end one that is under way";

#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    /// Name or id; those of all pipelines if there is none
    pipeline: Option<String>,
    /// At most so many
    #[arg(long, default_value_t = 20, value_parser = clap::value_parser!(u32).range(1..=500))]
    limit: u32,
    /// End this one
    #[arg(long, value_name = "RECONCILE", conflicts_with_all = ["pipeline", "limit"])]
    cancel: Option<Uuid>,
}

pub(crate) async fn run(args: &Args, context: &Context) -> Result<Exit> {
    let client = context.client()?;
    if let Some(id) = args.cancel {
        let cancelled = client.cancel_reconcile(id).await?;
        context.output.show(&cancelled.document, || match cancelled.known.is_open() {
            true => format!("reconcile {id} ends as soon as its runner hears of it"),
            false => format!("reconcile {id} is {}", cancelled.known.status),
        });
        return Ok(Exit::Done);
    }
    let reconciles = client.reconciles(args.pipeline.as_deref(), args.limit).await?;
    context.output.show(&reconciles.document, || {
        let header = [
            "requested",
            "pipeline",
            "level",
            "trigger",
            "status",
            "verdict",
            "differences",
            "took",
            "reconcile",
        ];
        output::table(header, reconciles.known.items.iter().map(row))
    });
    Ok(Exit::Done)
}

fn row(reconcile: &Reconcile) -> [String; 9] {
    let none = || "-".to_owned();
    [
        time(reconcile.requested_at),
        reconcile.pipeline.clone(),
        reconcile.level.to_string(),
        reconcile.trigger.to_string(),
        reconcile.status.to_string(),
        reconcile.verdict.map_or_else(none, |verdict| {
            format!("{verdict}{}", if reconcile.outdated { ", outdated" } else { "" })
        }),
        reconcile.figures.as_ref().map_or_else(none, |figures| grouped(figures.differences())),
        reconcile.duration_ms.map_or_else(none, seconds),
        reconcile.id.to_string(),
    ]
}
