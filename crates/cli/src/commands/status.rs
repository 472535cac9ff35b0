//! `vitrina status`, and the four requests that answer with a status: pause, cancel, enable, disable.

use anyhow::Result;
use vitrina_api::documents::{LastReconcile, PipelineStatus, PipelineSummary, Run, Waiting};
use vitrina_core::{Status, Verdict};

use crate::client::Client;
use crate::context::Context;
use crate::exit::Exit;
use crate::output::{self, grouped, one_line, time};

use super::live::{self, Line, View};

const EXAMPLES: &str = "\
Examples:
  vitrina status            all pipelines
  vitrina status film_dim   one of them, with its last error, or why it waits
  vitrina status --watch    stay, and see what changes
  vitrina status -o ndjson | jq -r 'select(.status == \"FAILED\").name'";

#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    /// Name or id; all pipelines if there is none
    pipeline: Option<String>,
    /// Stay, and show every change: in place on a terminal, a line each elsewhere
    #[arg(short, long)]
    watch: bool,
}

pub(crate) const PAUSE_EXAMPLES: &str = "\
Examples:
  vitrina pause film_dim    after the batch under way
  vitrina resume film_dim   goes on from there";

pub(crate) const CANCEL_EXAMPLES: &str = "\
Examples:
  vitrina cancel film_dim   what was committed stays; the next run goes on from it";

pub(crate) const ENABLE_EXAMPLES: &str = "\
Examples:
  vitrina enable film_dim   its schedule counts again";

pub(crate) const DISABLE_EXAMPLES: &str = "\
Examples:
  vitrina disable film_dim   neither its schedule nor anybody runs it";

#[derive(Debug, clap::Args)]
pub(crate) struct Pipeline {
    /// Name or id
    pipeline: String,
}

pub(crate) async fn run(args: &Args, context: &Context) -> Result<Exit> {
    let client = context.client()?;
    if args.watch {
        let look = async || match &args.pipeline {
            Some(pipeline) => one(pipeline, &client).await,
            None => all(&client).await,
        };
        return live::keep_showing(look, &client, context).await;
    }
    match &args.pipeline {
        Some(pipeline) => {
            let status = client.status(pipeline).await?;
            context.output.show(&status.document, || described(&status.known));
        }
        None => {
            let pipelines = client.pipelines().await?;
            context.output.show(&pipelines.document, || listed(&pipelines.known.items));
        }
    }
    Ok(Exit::Done)
}

async fn one(pipeline: &str, client: &Client) -> Result<View> {
    let status = client.status(pipeline).await?;
    let text = described(&status.known);
    let line = Line { name: status.known.name, text: text.clone(), document: status.document };
    Ok(View { text, lines: vec![line] })
}

async fn all(client: &Client) -> Result<View> {
    let pipelines = client.pipelines().await?;
    let documents = pipelines.document["items"].as_array().cloned().unwrap_or_default();
    let line = |(pipeline, document): (&PipelineSummary, serde_json::Value)| Line {
        name: pipeline.name.clone(),
        text: row(pipeline).join("  "),
        document,
    };
    let lines = pipelines.known.items.iter().zip(documents).map(line).collect();
    Ok(View { text: listed(&pipelines.known.items), lines })
}

pub(crate) async fn change(args: &Pipeline, verb: &str, context: &Context) -> Result<Exit> {
    let status = context.client()?.change(&args.pipeline, verb).await?;
    context.output.show(&status.document, || described(&status.known));
    Ok(Exit::Done)
}

fn listed(pipelines: &[PipelineSummary]) -> String {
    let header = ["pipeline", "status", "enabled", "mode", "target", "last run", "verdict", "next run"];
    let give_way = ["target", "next run", "last run"];
    output::yielding(header, pipelines.iter().map(row), &give_way)
}

fn row(pipeline: &PipelineSummary) -> [String; 8] {
    [
        pipeline.name.clone(),
        pipeline.status.to_string(),
        if pipeline.enabled { "yes" } else { "no" }.to_owned(),
        pipeline.mode.to_string(),
        pipeline.target.clone(),
        pipeline.last_run.as_ref().map_or_else(|| "never".to_owned(), summary),
        pipeline.last_reconcile.as_ref().map_or_else(|| "-".to_owned(), short_verdict),
        next_run(pipeline),
    ]
}

/// Why it waits takes the place of a time that says less.
fn next_run(pipeline: &PipelineSummary) -> String {
    if let Some(waiting) = &pipeline.waiting {
        let until = waiting.until.map(|at| format!(" until {}", time(at))).unwrap_or_default();
        return format!("waits{until}: {}", one_line(waiting.parts().0));
    }
    let bad = pipeline.schedule_error.is_some() || pipeline.full_schedule_error.is_some();
    let first = pipeline.next_run_at.into_iter().chain(pipeline.next_full_run_at).min();
    match (bad, first, pipeline.status) {
        (true, _, _) => "bad schedule".to_owned(),
        (false, Some(at), status) if !matches!(status, Status::Paused | Status::Failed) => time(at),
        _ => "-".to_owned(),
    }
}

fn described(status: &PipelineStatus) -> String {
    let mut text = format!("{}: {}", status.name, status.status);
    let notes = [
        (!status.enabled, "disabled"),
        (status.cancel_requested, "to be cancelled"),
        (status.pending, "one more run waits"),
        (status.stalls > 1, "its runners fell silent: only an idle one takes it"),
    ];
    for (_, note) in notes.iter().filter(|(holds, _)| *holds) {
        text.push_str(", ");
        text.push_str(note);
    }
    if let Some(at) = status.retry_at {
        text.push_str(&format!(", tried again at {}", time(at)));
    }
    if let Some(waiting) = &status.waiting {
        text.push_str(&format!("\nwaits since {}: {}", time(waiting.since), reason(waiting)));
    }
    let by_itself = !matches!(status.status, Status::Paused | Status::Failed);
    if let Some(at) = status.next_run_at.filter(|_| by_itself) {
        text.push_str(&format!("\nnext run: {}", time(at)));
    }
    if let Some(error) = &status.schedule_error {
        text.push_str(&format!("\nno next run: {error}"));
    }
    if let Some(at) = status.next_full_run_at.filter(|_| by_itself) {
        text.push_str(&format!("\nnext full load: {}", time(at)));
    }
    if let Some(error) = &status.full_schedule_error {
        text.push_str(&format!("\nno next full load: {error}"));
    }
    if let Some(last) = &status.last_reconcile {
        text.push_str(&format!(
            "\nverdict: {}, by {} at {}{}",
            verdict(last),
            last.level,
            time(last.finished_at),
            if last.outdated { ", before its configuration was changed" } else { "" }
        ));
    }
    let Some(run) = &status.last_run else { return text + "\nlast run: never" };
    text.push_str(&format!("\nlast run: {}", summary(run)));
    match &run.error {
        Some(error) => text + "\nerror: " + error,
        None => text,
    }
}

/// Why it waits and, on a line of its own, what to do about it.
pub(super) fn reason(waiting: &Waiting) -> String {
    match waiting.parts() {
        (detail, Some(hint)) => format!("{detail}\nhint: {hint}"),
        (detail, None) => detail.to_owned(),
    }
}

/// In a cell of a table.
fn short_verdict(last: &LastReconcile) -> String {
    format!("{}{}", verdict(last), if last.outdated { ", outdated" } else { "" })
}

/// `equal`, or by how many rows the target differs.
fn verdict(last: &LastReconcile) -> String {
    match last.verdict {
        Verdict::Differs => format!("differs by {} rows", grouped(last.differences)),
        verdict => verdict.to_string(),
    }
}

fn summary(run: &Run) -> String {
    let Run { status, rows_read, rows_written, .. } = run;
    format!(
        "{status} {}, {} read, {} written",
        time(run.requested_at),
        grouped(*rows_read),
        grouped(*rows_written)
    )
}
