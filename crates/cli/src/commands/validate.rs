//! `vitrina validate`: saved pipelines by name, or files before they are applied: the query, the mart, and how changes
//! will be followed.

use std::path::{Path, PathBuf};

use anyhow::Result;
use futures_util::{StreamExt, stream};
use serde_json::{Value, json};
use vitrina_api::documents::{Check, Severity, Verdict};

use crate::client::Client;
use crate::context::Context;
use crate::exit::Exit;
use crate::files::Files;
use crate::output;

use super::plan::{counted, planned};

/// As many as a runner looks at at a time: one more would use up its own patience waiting.
const AT_A_TIME: usize = 4;

const EXAMPLES: &str = "\
Examples:
  vitrina validate film_dim     a pipeline that is applied
  vitrina validate pipelines/   files, before they are";

#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    /// Name or id of a pipeline, or YAML files and directories
    #[arg(required = true, value_name = "PIPELINE|PATH")]
    what: Vec<String>,
}

pub(crate) async fn run(args: &Args, context: &Context) -> Result<Exit> {
    let is_path =
        |what: &String| what.ends_with(".yaml") || what.ends_with(".yml") || Path::new(what).exists();
    let (paths, names): (Vec<&String>, Vec<&String>) = args.what.iter().partition(|what| is_path(what));
    let mut exit = Exit::Done;
    for name in names {
        exit = worse(exit, saved(name, context).await?);
    }
    if !paths.is_empty() {
        exit = worse(exit, files(&paths.into_iter().map(PathBuf::from).collect::<Vec<_>>(), context).await?);
    }
    Ok(exit)
}

fn worse(one: Exit, other: Exit) -> Exit {
    if one == Exit::Done { other } else { one }
}

async fn saved(pipeline: &str, context: &Context) -> Result<Exit> {
    let verdict = context.client()?.validate(pipeline).await?;
    context.output.show(&verdict.document, || {
        let lines = verdict.known.checks.iter().map(|check| line(check, check.field.trim_start_matches('/')));
        lines.collect::<Vec<_>>().join("\n")
    });
    Ok(exit(verdict.known.ok))
}

/// First the files taken together; where nothing is wrong with them, each pipeline at its source and target.
async fn files(paths: &[PathBuf], context: &Context) -> Result<Exit> {
    let (files, client) = (Files::read(paths)?, context.client()?);
    let plan = planned(&client, &files.configuration(false), &files).await?.known;
    let mut checks = plan.checks;
    if plan.ok {
        // Who writes where, and under which names, is the plan's to say: it knows all of the files.
        checks.retain(|check| ["target.owned", "target.alias_taken"].contains(&check.code.as_str()));
        checks.extend(each(&client, &files).await?);
    }
    let ok = checks.iter().all(|check| check.severity != Severity::Error);
    let documents: Vec<_> = checks.iter().map(document).collect();
    context.output.show(&json!({"ok": ok, "checks": documents}), || {
        let lines = checks.iter().map(|check| line(check, &files.whereabouts(&check.field)));
        lines.collect::<Vec<_>>().join("\n")
    });
    if ok {
        output::say("nothing speaks against these files");
    }
    Ok(exit(ok))
}

/// What is found about each pipeline, in the order of the files.
async fn each(client: &Client, files: &Files) -> Result<Vec<Check>> {
    let questions: Vec<_> = files.questions().collect();
    let total = questions.len();
    let asked = questions.into_iter().map(async |(place, question)| {
        let Verdict { checks, .. } = client.validate_unsaved(&question).await?.known;
        let found = checks.into_iter().filter(|check| check.code != "target.owned");
        let placed =
            found.map(|check| Check { field: format!("/pipelines/{place}{}", check.field), ..check });
        Ok(placed.collect::<Vec<_>>())
    });
    let work = stream::iter(asked).buffered(AT_A_TIME);
    let what = format!("validates {}", counted(total, "pipeline"));
    let found = output::counting(&what, total, work).await.map_err(|error| files.explain(error))?;
    Ok(found.into_iter().flatten().collect())
}

fn exit(ok: bool) -> Exit {
    if ok { Exit::Done } else { Exit::Usage }
}

/// With null for what it does not say.
fn document(check: &Check) -> Value {
    let Check { code, severity, field, detail, line, column, hint } = check;
    json!({"code": code, "severity": severity, "field": field, "detail": detail, "line": line, "column": column, "hint": hint})
}

/// A finding at its place.
pub(crate) fn line(check: &Check, place: &str) -> String {
    let severity = match check.severity {
        Severity::Ok => "ok  ",
        Severity::Warning => "warn",
        Severity::Error => "FAIL",
    };
    let place = match (place, check.line, check.column) {
        ("", _, _) => String::new(),
        (place, Some(line), Some(column)) => format!("{place}, line {line}, column {column}: "),
        (place, ..) => format!("{place}: "),
    };
    let hint = check.hint.as_ref().map(|hint| format!("\n      hint: {hint}")).unwrap_or_default();
    format!("{severity}  {place}{}{hint}", check.detail)
}
