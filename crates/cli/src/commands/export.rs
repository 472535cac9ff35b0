//! `vitrina export`: all that is configured, as files would say it.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};
use serde_json::{Value, json};

use crate::context::Context;
use crate::exit::Exit;
use crate::files::{file_name, yaml};
use crate::output::{self, Format};

const EXAMPLES: &str = "\
Examples:
  vitrina export > all.yaml       targets and pipelines as one file
  vitrina export film_dim         one pipeline with its target
  vitrina export --to pipelines   a file for each pipeline";

#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    /// Only these pipelines, with the targets they write to
    #[arg(value_name = "PIPELINE")]
    pipelines: Vec<String>,
    /// Write a file for each pipeline here, instead of one document on stdout; files that are there stay
    #[arg(long, value_name = "DIRECTORY")]
    to: Option<PathBuf>,
    /// Overwrite files that are there
    #[arg(long, requires = "to")]
    force: bool,
}

pub(crate) async fn run(args: &Args, context: &Context) -> Result<Exit> {
    let exported = context.client()?.export().await?;
    let chosen = choose(&exported, &args.pipelines)?;
    match &args.to {
        Some(directory) => write(&chosen, directory, args.force)?,
        // Files are YAML: for people, too.
        None if matches!(context.output, Format::Table | Format::Yaml) => {
            output::print(yaml(&chosen).trim_end());
        }
        None => context.output.show(&chosen, String::new),
    }
    Ok(Exit::Done)
}

fn choose(exported: &Value, names: &[String]) -> Result<Value> {
    let list = |kind: &str| exported[kind].as_array().cloned().unwrap_or_default();
    let (all, targets) = (list("pipelines"), list("targets"));
    if names.is_empty() {
        return Ok(json!({"targets": targets, "pipelines": all}));
    }
    let known: BTreeSet<&str> = all.iter().filter_map(|pipeline| pipeline["name"].as_str()).collect();
    if let Some(unknown) = names.iter().find(|name| !known.contains(name.as_str())) {
        return Err(
            Exit::Usage.fault(format!("there is no pipeline {unknown:?}\nhint: `vitrina status` lists them"))
        );
    }
    let is_named = |pipeline: &Value| names.iter().any(|name| pipeline["name"] == name.as_str());
    let pipelines: Vec<Value> = all.into_iter().filter(is_named).collect();
    let written: BTreeSet<&str> = pipelines.iter().flat_map(written_to).collect();
    let is_written = |target: &Value| target["name"].as_str().is_some_and(|name| written.contains(name));
    let targets: Vec<Value> = targets.into_iter().filter(is_written).collect();
    Ok(json!({"targets": targets, "pipelines": pipelines}))
}

/// A plan's last task may name another target than the pipeline.
fn written_to(pipeline: &Value) -> Vec<&str> {
    let tasks = pipeline["tasks"].as_array().into_iter().flatten();
    let of_tasks = tasks.filter_map(|task| task["target_table"].as_str());
    pipeline["target_table"].as_str().into_iter().chain(of_tasks).collect()
}

/// A target stands beside the first pipeline that writes to it.
fn write(chosen: &Value, directory: &Path, force: bool) -> Result<()> {
    std::fs::create_dir_all(directory).with_context(|| format!("cannot create {}", directory.display()))?;
    let mut targets = chosen["targets"].as_array().cloned().unwrap_or_default();
    let mut files = Vec::new();
    for pipeline in chosen["pipelines"].as_array().into_iter().flatten() {
        let written = written_to(pipeline);
        let (own, others) = targets
            .into_iter()
            .partition(|target: &Value| target["name"].as_str().is_some_and(|name| written.contains(&name)));
        targets = others;
        let name = file_name(pipeline["name"].as_str().unwrap_or_default());
        files.push((directory.join(name), document(own, vec![pipeline.clone()])));
    }
    if !targets.is_empty() {
        files.push((directory.join("targets.yaml"), document(targets, Vec::new())));
    }
    // Some file systems do not tell capitals from small letters.
    let mut seen = BTreeSet::new();
    if let Some((twice, _)) =
        files.iter().find(|(path, _)| !seen.insert(path.to_string_lossy().to_lowercase()))
    {
        let hint = "export without --to, into one document";
        return Err(Exit::Usage.fault(format!("two files would be called {}\nhint: {hint}", twice.display())));
    }
    if let Some((taken, _)) = files.iter().find(|(path, _)| !force && path.exists()) {
        return Err(Exit::Usage
            .fault(format!("{} is there already\nhint: add --force to overwrite it", taken.display())));
    }
    for (path, document) in &files {
        std::fs::write(path, yaml(document)).with_context(|| format!("cannot write {}", path.display()))?;
        output::say(&format!("wrote {}", path.display()));
    }
    Ok(())
}

fn document(targets: Vec<Value>, pipelines: Vec<Value>) -> Value {
    let mut document = json!({});
    for (kind, list) in [("targets", targets), ("pipelines", pipelines)] {
        if !list.is_empty() {
            document[kind] = Value::Array(list);
        }
    }
    document
}
