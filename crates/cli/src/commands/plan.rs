//! `vitrina plan`, `apply` and `diff`: what files would change, and then exactly that.

use std::io::{self, IsTerminal};
use std::path::PathBuf;
use std::time::Duration;

use anyhow::Result;
use serde_json::{Value, json};
use similar::TextDiff;
use vitrina_api::documents::{Action, Applied, FieldChange, Plan, PlannedChange};
use vitrina_core::Decision;

use crate::client::{self, Answer, Client};
use crate::context::Context;
use crate::exit::Exit;
use crate::files::Files;
use crate::output::{self, Progress};
use crate::shutdown::Shutdown;

use super::{validate, watch};

pub(crate) const PLAN_EXAMPLES: &str = "\
Examples:
  vitrina plan pipelines/                         and the hash of this plan
  vitrina plan pipelines/ --prune                 what files do not name would be deleted
  vitrina plan pipelines/ --exit-code || notify   3 where something would change";

pub(crate) const DIFF_EXAMPLES: &str = "\
Examples:
  vitrina diff pipelines/   every line that differs
  vitrina diff film_dim.yaml --exit-code";

pub(crate) const APPLY_EXAMPLES: &str = "\
Examples:
  vitrina apply pipelines/                     show the plan, and ask
  vitrina apply pipelines/ --yes               do not ask
  vitrina apply pipelines/ --plan-hash 5f1c…   exactly the plan that was looked at, or nothing
  vitrina apply pipelines/ --checkpoint reset  what has another query is read anew
  vitrina apply pipelines/ --yes --wait        as soon as the runs that are in its way have ended";

#[derive(Debug, clap::Args)]
pub(crate) struct Paths {
    /// YAML files, or directories that hold them
    #[arg(required = true, value_name = "PATH")]
    pub(crate) paths: Vec<PathBuf>,
    /// Delete pipelines and targets that the files do not name
    #[arg(long)]
    prune: bool,
    /// keep or reset: what becomes of the checkpoints of pipelines whose query, key or target changes, or
    /// has changed before without an answer
    #[arg(long, value_name = "WHAT")]
    checkpoint: Option<Decision>,
}

impl Paths {
    /// As POST /plan takes it.
    fn configuration(&self, files: &Files) -> Value {
        let mut configuration = files.configuration(self.prune);
        if let Some(decision) = self.checkpoint {
            configuration["checkpoint"] = json!(decision);
        }
        configuration
    }
}

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    files: Paths,
    /// End with 3 where there is something to change
    #[arg(long)]
    exit_code: bool,
}

#[derive(Debug, clap::Args)]
pub(crate) struct Apply {
    #[command(flatten)]
    files: Paths,
    /// Do not ask
    #[arg(long)]
    yes: bool,
    /// Apply only the plan of this hash
    #[arg(long, value_name = "HASH")]
    plan_hash: Option<String>,
    /// Where runs are in its way, wait until they have ended
    #[arg(long)]
    wait: bool,
    /// Wait no longer than this, such as 90s or 10m; then nothing is applied
    #[arg(long, value_name = "TIME", requires = "wait", value_parser = watch::timeout)]
    timeout: Option<Duration>,
}

pub(crate) async fn plan(args: &Args, context: &Context) -> Result<Exit> {
    show(args, context, summary).await
}

pub(crate) async fn diff(args: &Args, context: &Context) -> Result<Exit> {
    show(args, context, difference).await
}

async fn show(args: &Args, context: &Context, tell: fn(&PlannedChange) -> String) -> Result<Exit> {
    let (files, client) = (Files::read(&args.files.paths)?, context.client()?);
    let configuration = args.files.configuration(&files);
    let plan = planned(&client, &configuration, &files).await?;
    context.output.show(&plan.document, || text(&plan.known, tell));
    complain(&plan.known, &files);
    Ok(match plan.known.ok {
        false => Exit::Usage,
        true if args.exit_code && !plan.known.changes.is_empty() => Exit::Differences,
        true => Exit::Done,
    })
}

pub(crate) async fn apply(args: &Apply, context: &Context) -> Result<Exit> {
    let (files, client) = (Files::read(&args.files.paths)?, context.client()?);
    let configuration = args.files.configuration(&files);
    let plan = planned(&client, &configuration, &files).await?.known;
    complain(&plan, &files);
    if !plan.ok {
        return Ok(Exit::Usage);
    }
    if let Some(seen) = args.plan_hash.as_ref().filter(|seen| **seen != plan.hash) {
        let message = format!(
            "the plan is another one by now: {}, not {seen}\nhint: look at `vitrina plan` again",
            plan.hash
        );
        return Err(Exit::Conflict.fault(message));
    }
    if plan.changes.is_empty() {
        context.output.show(&json!({"changes": []}), || "nothing to change".to_owned());
        return Ok(Exit::Done);
    }
    let names_nothing = files.name_nothing();
    if args.plan_hash.is_none() && (names_nothing || !args.yes) {
        output::say(&text(&plan, summary));
        consent(if names_nothing { NOTHING_NAMED } else { NOBODY_AGREES })?;
    }
    let shutdown = Shutdown::on_signals()?;
    let work = carry_out(&client, configuration, &plan, args.wait);
    let left = |exit: Exit, why: &str| exit.fault(format!("{why}, and nothing was applied{STILL_RUNS}"));
    let applied = shutdown.race_within(args.timeout, work, left).await?;
    context.output.show(&applied.document, || {
        let done = applied.known.changes.iter().map(summary).collect::<Vec<_>>().join("\n");
        format!("{done}\napplied {} changes", applied.known.changes.len())
    });
    Ok(Exit::Done)
}

/// The sources are asked about every pipeline that changes.
pub(super) async fn planned(client: &Client, configuration: &Value, files: &Files) -> Result<Answer<Plan>> {
    let count = |kind: &str| configuration[kind].as_array().map_or(0, Vec::len);
    let what = format!(
        "plans {} and {}",
        counted(count("pipelines"), "pipeline"),
        counted(count("targets"), "target")
    );
    let plan = output::elapsing(&what, client.plan(configuration)).await;
    plan.map_err(|error| files.explain(error))
}

pub(super) fn counted(number: usize, noun: &str) -> String {
    format!("{number} {noun}{}", if number == 1 { "" } else { "s" })
}

const STILL_RUNS: &str =
    "\nhint: `vitrina status` shows what runs; `vitrina pause` or `vitrina cancel` ends it sooner";
/// Refusals that end with the run that they speak of.
const IN_THE_WAY: [&str; 2] = ["pipeline.locked", "pipeline.active"];

/// What was planned and nothing else, at once or as soon as no run is in its way any more.
async fn carry_out(
    client: &Client,
    configuration: Value,
    plan: &Plan,
    waits: bool,
) -> Result<Answer<Applied>> {
    let mut progress = Progress::default();
    loop {
        let what =
            format!("checks the plan once more, and applies {}", counted(plan.changes.len(), "change"));
        match output::elapsing(&what, client.apply(configuration.clone(), &plan.hash)).await {
            Err(client::Error::Refused(problem)) if waits && IN_THE_WAY.contains(&problem.code.as_str()) => {
                let reason = format!("waits for the end of a run: {}", problem.detail);
                progress.show("waits", &reason, None);
                tokio::time::sleep(Duration::from_secs(1)).await;
            }
            applied => {
                progress.finish();
                return Ok(applied?);
            }
        }
    }
}

const NOBODY_AGREES: &str =
    "nobody is there to agree\nhint: look at `vitrina plan`, then add --yes or --plan-hash";
/// A file that a failed export has emptied looks like this too.
const NOTHING_NAMED: &str = "the files name nothing, and all of this would be deleted\nhint: --yes does not answer that; add --plan-hash if it is meant";

/// `otherwise` is the error where nobody can be asked.
fn consent(otherwise: &str) -> Result<()> {
    if !io::stdin().is_terminal() {
        return Err(Exit::Usage.fault(otherwise));
    }
    match output::ask("apply this?")? {
        true => Ok(()),
        false => Err(Exit::Failed.fault("nothing was applied\nhint: answer y to apply")),
    }
}

/// Errors and warnings, each with its file.
fn complain(plan: &Plan, files: &Files) {
    for check in &plan.checks {
        output::say(&validate::line(check, &files.whereabouts(&check.field)));
    }
}

fn text(plan: &Plan, tell: fn(&PlannedChange) -> String) -> String {
    if plan.changes.is_empty() {
        return "nothing to change".to_owned();
    }
    let changes = plan.changes.iter().map(tell).collect::<Vec<_>>().join("\n");
    format!("{changes}\nplan {}", plan.hash)
}

/// `~ pipeline films` and a line for each field.
fn summary(change: &PlannedChange) -> String {
    let fields =
        change.fields.iter().filter(|_| change.action == Action::Edit).map(|field| {
            format!("\n    {}: {} -> {}", field.field, short(&field.before), short(&field.after))
        });
    format!("{}{}{}", head(change), fields.collect::<String>(), effects(change))
}

/// The same with every line that differs.
fn difference(change: &PlannedChange) -> String {
    let fields =
        change.fields.iter().filter(|field| !field.after.is_null() || !field.before.is_null()).map(lines);
    format!("{}{}{}", head(change), fields.collect::<String>(), effects(change))
}

fn head(change: &PlannedChange) -> String {
    let mark = match change.action {
        Action::Create => '+',
        Action::Delete => '-',
        _ => '~',
    };
    format!("{mark} {} {}", change.kind, change.name)
}

fn effects(change: &PlannedChange) -> String {
    change.effects.iter().map(|effect| format!("\n    ! {}", effect.detail)).collect()
}

fn lines(field: &FieldChange) -> String {
    let (before, after) = (whole(&field.before), whole(&field.after));
    let diff = TextDiff::from_lines(&before, &after);
    let changed = diff.iter_all_changes().filter(|line| line.tag() != similar::ChangeTag::Equal);
    let shown = changed.map(|line| format!("\n    {} {}", line.tag(), line.value().trim_end()));
    format!("\n  {}:{}", field.field, shown.collect::<String>())
}

fn whole(value: &Value) -> String {
    match value {
        Value::Null => String::new(),
        Value::String(text) => format!("{}\n", text.trim_end()),
        other => format!("{other}\n"),
    }
}

/// On one line: a query is told by its length.
fn short(value: &Value) -> String {
    match value {
        Value::Null => "nothing".to_owned(),
        Value::String(text) if text.lines().count() > 1 => format!("{} lines", text.lines().count()),
        Value::String(text) => output::one_line(text),
        other => other.to_string(),
    }
}
