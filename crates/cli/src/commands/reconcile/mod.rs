//! `vitrina reconcile PIPELINE`: is the target equal to its source? With `--repair` it is made so.

mod repair;
pub(super) mod text;

use std::time::{Duration, Instant};

use anyhow::Result;
use uuid::Uuid;
use vitrina_api::documents::{Reconcile, ReconcileOrder, ReconcileProgress};
use vitrina_core::{Level, ReconcileStatus, Verdict};

use crate::client::{Answer, Client};
use crate::context::Context;
use crate::exit::Exit;
use crate::output::{self, Format, Pace, Progress, grouped, shell_word};
use crate::shutdown::Shutdown;

use super::watch;

const EXAMPLES: &str = "\
Examples:
  vitrina reconcile film_dim                        compare checksums of all rows
  vitrina reconcile film_dim --level rows           name the rows that differ, and how
  vitrina reconcile film_dim --repair               show what a repair would do, and ask
  vitrina reconcile film_dim --repair --yes         repair, and prove it
  vitrina reconcile film_dim --exit-code || alert   end with 3 where the target differs";

/// How many differences are shown beside a verdict.
const SHOWN: u32 = 10;

#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    /// Name or id
    pipeline: String,
    /// count, hash or rows: how closely the two sides are compared [default: hash]
    #[arg(long, conflicts_with = "repair")]
    level: Option<Level>,
    /// Keep at most so many rows that differ [default: 10000]
    #[arg(long, value_name = "ROWS", value_parser = clap::value_parser!(i32).range(0..=100_000))]
    limit: Option<i32>,
    /// Repair the rows that differ, after showing what that would do; compares by rows
    #[arg(long)]
    repair: bool,
    /// Repair without asking
    #[arg(long, requires = "repair")]
    yes: bool,
    /// Do not stay until there is a verdict
    #[arg(long, conflicts_with_all = ["repair", "exit_code", "timeout"])]
    no_wait: bool,
    /// Stay no longer than this, such as 90s or 10m; the reconcile goes on
    #[arg(long, value_name = "TIME", value_parser = watch::timeout)]
    timeout: Option<Duration>,
    /// End with 3 where the target differs
    #[arg(long)]
    exit_code: bool,
}

pub(crate) async fn run(args: &Args, context: &Context) -> Result<Exit> {
    let client = context.client()?;
    let level = if args.repair { Some(Level::Rows) } else { args.level };
    let usual = ReconcileOrder::default();
    let order =
        ReconcileOrder { level: level.unwrap_or(usual.level), limit: args.limit.unwrap_or(usual.limit) };
    let asked = client.reconcile(&args.pipeline, &order).await?;
    if args.no_wait {
        context
            .output
            .show(&asked.document, || format!("reconcile {} is {}", asked.known.id, asked.known.status));
        return Ok(Exit::Done);
    }
    let shutdown = Shutdown::on_signals()?;
    let work = async {
        let done = come_to_verdict(&client, asked.known.id).await?;
        match args.repair {
            true => repair::run(args, done, &client, context).await,
            false => conclude(args, &done, &client, context).await,
        }
    };
    let left = |exit: Exit, why: &str| left(exit, why, asked.known.id);
    Box::pin(shutdown.race_within(args.timeout, work, left)).await
}

fn left(exit: Exit, why: &str, id: Uuid) -> anyhow::Error {
    exit.fault(format!(
        "{why}; what was asked for goes on\nhint: `vitrina reconciles` shows it, `vitrina reconciles --cancel {id}` ends it"
    ))
}

/// Shows the reconcile as it goes. Asking with a wait of a second is answered at once when it ends.
async fn come_to_verdict(client: &Client, id: Uuid) -> Result<Answer<Reconcile>> {
    let (mut shown, mut begun) = (Progress::default(), None::<(String, Instant)>);
    loop {
        let reconcile = client.follow_reconcile(id, 1).await?;
        if !reconcile.known.is_open() {
            shown.finish();
            return check(reconcile);
        }
        match &reconcile.known.progress {
            Some(progress) => {
                let stage = progress.stage.to_string();
                let (_, since) = match &mut begun {
                    Some(known) if known.0 == stage => known,
                    other => other.insert((stage, Instant::now())),
                };
                show_stage(progress, *since, &mut shown);
            }
            None => {
                let text = waiting(&reconcile.known);
                shown.show(&text, &text, None);
            }
        }
    }
}

/// `since` is when its stage has begun.
fn show_stage(progress: &ReconcileProgress, since: Instant, shown: &mut Progress) {
    let &ReconcileProgress { stage, done, total } = progress;
    let pace = Pace { done, total: Some(total), elapsed: since.elapsed() };
    let text = format!("{stage}: {} of {}{}", grouped(done), grouped(total), pace.left());
    shown.show(&stage.to_string(), &text, pace.share());
}

fn waiting(reconcile: &Reconcile) -> String {
    if let Some(waiting) = &reconcile.waiting {
        return format!("waiting for a runner: {}", waiting.message.replace("\nhint: ", "; "));
    }
    match reconcile.status {
        ReconcileStatus::Requested if reconcile.repair_of.is_some() => {
            "waiting for the repair to be compared".to_owned()
        }
        ReconcileStatus::Requested => "waiting for a runner".to_owned(),
        status => status.to_string(),
    }
}

/// One without a verdict is an error.
fn check(reconcile: Answer<Reconcile>) -> Result<Answer<Reconcile>> {
    let Reconcile { id, status, error, pipeline, .. } = &reconcile.known;
    match status {
        ReconcileStatus::Done => Ok(reconcile),
        ReconcileStatus::Failed => {
            let error = error.as_deref().unwrap_or("the reconcile failed");
            let hint = format!("\nhint: `vitrina reconcile {}` asks again", shell_word(pipeline));
            let hint = if error.contains("\nhint: ") { "" } else { &hint };
            Err(Exit::Failed.fault(format!("{error}{hint}")))
        }
        status => Err(Exit::Failed.fault(format!(
            "reconcile {id} ended as {status}\nhint: `vitrina reconcile {}` asks again",
            shell_word(pipeline)
        ))),
    }
}

async fn conclude(args: &Args, done: &Answer<Reconcile>, client: &Client, context: &Context) -> Result<Exit> {
    show(done, client, context).await?;
    if context.output == Format::Table {
        suggest(&args.pipeline, &done.known);
    }
    let differs = done.known.verdict == Some(Verdict::Differs);
    Ok(if differs && args.exit_code { Exit::Differences } else { Exit::Done })
}

/// The verdict with its figures and the first rows that differ.
async fn show(done: &Answer<Reconcile>, client: &Client, context: &Context) -> Result<()> {
    let mut text = String::new();
    if context.output == Format::Table {
        text = text::verdict(&done.known);
        let differences = client.differences(done.known.id, None, SHOWN).await?.known;
        if !differences.items.is_empty() {
            text = format!("{text}\n\n{}", text::differences(&differences.items));
        }
    }
    context.output.show(&done.document, || text);
    Ok(())
}

fn suggest(pipeline: &str, reconcile: &Reconcile) {
    let name = shell_word(pipeline);
    let has_differences = reconcile.figures.as_ref().is_none_or(text::has_differences);
    match (reconcile.verdict, reconcile.level) {
        // By rows that were refused alone: a repair would change nothing.
        (Some(Verdict::Differs), Level::Hash | Level::Rows) if !has_differences => {}
        (Some(Verdict::Differs), Level::Rows) => output::say(&format!(
            "next:\n  \
             vitrina differences {}   shows all rows that differ\n  \
             vitrina reconcile {name} --repair   shows what a repair would do, and asks",
            reconcile.id
        )),
        (Some(Verdict::Differs), _) => {
            output::say(&format!("`vitrina reconcile {name} --level rows` names the rows that differ"));
        }
        (Some(Verdict::Stale), _) => {
            output::say(&format!("what differs is on its way: `vitrina run {name} --watch` writes it"));
        }
        _ => {}
    }
    if reconcile.figures.as_ref().is_some_and(|figures| figures.rejected > 0) {
        output::say(&format!("`vitrina rejects {name}` shows the rows that were refused"));
    }
}
