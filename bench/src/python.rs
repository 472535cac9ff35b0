//! Films through a Python function, beside the same run without it: what the function and its pipe cost.

use anyhow::{Context, Result};
use serde_json::{Value, json};
use vitrina_store::RunRecord;

use crate::clock::{Took, steady};
use crate::ground::Ground;
use crate::report::Measured;
use crate::runner_process::RunnerProcess;
use crate::workloads::FILMS;

pub(crate) const NAMES: [&str; 2] = ["python-arrow", "python-rows"];

/// With and without the function in turn.
const ROUNDS: usize = 3;
const BATCH: i32 = 10_000;
const MODULE: &str = r#"
import pyarrow, pyarrow.compute as compute
from vitrina import transform

@transform
def by_arrow(rows: pyarrow.RecordBatch) -> pyarrow.RecordBatch:
    return rows.set_column(1, "title", compute.utf8_lower(rows["title"]))

@transform
def by_rows(rows: list[dict]) -> list[dict]:
    return [row | {"title": row["title"].lower()} for row in rows]
"#;

const MART: &str = "analytics.films";

pub(crate) async fn measure(name: &'static str, ground: &Ground) -> Result<Measured> {
    let function = if name == "python-arrow" { "by_arrow" } else { "by_rows" };
    let module = ground.file("bench_functions.py", MODULE)?;
    let folder = module.parent().context("a folder")?.display().to_string();
    let python = vitrina_testbed::python().display().to_string();
    let variables = [
        ("VITRINA_PYTHON_MODULES", "bench_functions"),
        ("VITRINA_PYTHON_PATH", folder.as_str()),
        ("VITRINA_PYTHON_INTERPRETER", python.as_str()),
    ];
    let runner = RunnerProcess::start_with(&ground.url, &ground.url, &variables)?;
    let plain = format!("{name}-without");
    ground.marts_like(MART, 1)?;
    let beside = format!("{MART}_0");
    ground.pipeline(&pipeline(&plain, &beside, &json!([]))).await?;
    let reader = json!({"order_index": 1, "task_type": "SQL", "body": FILMS});
    let step = json!({"order_index": 2, "task_type": "PYTHON", "body": function});
    ground.pipeline(&pipeline(name, MART, &json!([reader, step]))).await?;
    let (mut with, mut without, mut last) = (Vec::new(), Vec::new(), None);
    for _ in 0..ROUNDS {
        let (alone, _) = run(&runner, ground, &plain, &beside).await?;
        let (took, record) = run(&runner, ground, name, MART).await?;
        eprintln!("  without: {alone}, with: {took}");
        without.push(alone);
        with.push(took);
        last = Some(record);
    }
    let record = last.context("a run")?;
    let measured = Measured::steady(name, record.rows_read, &with, steady(&without));
    Ok(Measured { batches: Some(record.batches), ..measured.by(&runner.usage()?) })
}

fn pipeline(name: &str, mart: &str, plan: &Value) -> Value {
    json!({"name": name, "source_query": FILMS, "target_table": mart, "batch_size": BATCH, "plan": plan})
}

async fn run(runner: &RunnerProcess, ground: &Ground, name: &str, mart: &str) -> Result<(Took, RunRecord)> {
    ground.sql(&format!("truncate {mart}"))?;
    ground.sql("checkpoint")?;
    runner.timed_run(&ground.store, name).await
}
