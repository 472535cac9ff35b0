//! Where did a row go? What a runner sees at both sides, beside what the meta-store knows of its key.

use jiff::Timestamp;
use serde::Deserialize;
use serde_json::{Value, json};
use vitrina_core::{Figures, Level, Pipeline, Target, TargetName};
use vitrina_store::{Actor, PipelineRef, ReconcileRecord, Writing};

use crate::app::App;
use crate::documents::{
    LastWrite, MarkedBy, Reject, Row, RowBackfill, RowColumn, RowLook, RowProblem, RowReconcile, RowState,
    WriteUnknown,
};
use crate::error::{Error, RUNNER_WAITS, Result};
use crate::problem::Fault;
use crate::sight::SeesRows;

use super::asking::Question;

/// What a runner answers.
#[derive(Debug, Deserialize)]
struct Looked {
    runner: String,
    key: Vec<String>,
    key_columns: Vec<String>,
    in_source: bool,
    in_target: bool,
    fits: bool,
    in_flight: Option<bool>,
    columns: Vec<RowColumn>,
    touched_at: Option<Timestamp>,
    by_meta_store: Option<bool>,
    token: Option<i64>,
}

pub(crate) async fn find(app: &App, actor: &Actor, reference: &PipelineRef, key: Vec<String>) -> Result<Row> {
    let pipeline = app.store.pipeline(reference).await?.config;
    let (looked, problem) = match look(app, actor, &pipeline, &key).await {
        Ok(looked) => (Some(looked), None),
        Err(error) => (None, Some(told(error)?)),
    };
    let typed = json!(key);
    let key = looked.as_ref().map_or(key, |looked| looked.key.clone());
    let known = json!(key);
    let backfill = app.store.backfill_of(pipeline.id, &known).await?;
    Ok(Row {
        reject: reject(app, &pipeline, &known, &typed).await?,
        last_write: last_write(app, &pipeline, looked.as_ref()).await?,
        backfill: backfill.map(RowBackfill::from),
        reconcile: reconcile(app, &pipeline, &known).await?,
        look: looked.map(RowLook::from),
        key,
        problem,
    })
}

/// Rejects know a key as the source writes it, which may be neither as the target does: 1.50 is 1.5 there.
async fn reject(app: &App, pipeline: &Pipeline, known: &Value, typed: &Value) -> Result<Option<Reject>> {
    let found = match app.store.reject_of(pipeline.id, known).await? {
        None => app.store.reject_of(pipeline.id, typed).await?,
        found => found,
    };
    Ok(found.map(|found| Reject::new(found, SeesRows(true))))
}

async fn look(app: &App, actor: &Actor, pipeline: &Pipeline, key: &[String]) -> Result<Looked> {
    let target = target(app, pipeline).await?;
    let question = Question {
        kind: "row",
        pipeline: Some(pipeline.id),
        connections: vec![pipeline.source_connection.clone(), target.connection.clone()],
        payload: json!({"pipeline": pipeline, "target": target, "key": key}),
        python_tasks: pipeline.python_tasks().into_iter().map(str::to_owned).collect(),
    };
    let answer = app.ask(actor, question).await?;
    serde_json::from_value(answer).map_err(|_| Error::Internal("a look at a row cannot be read"))
}

async fn target(app: &App, pipeline: &Pipeline) -> Result<Target> {
    let name: TargetName = pipeline
        .target_name(&app.rules.allowed_targets)
        .map_err(|error| Error::Unanswered { code: error.code.to_owned(), error: error.to_string() })?;
    Ok(app.store.target(&name).await?)
}

/// Where nobody could look the rest is told all the same; a key that no row can have is the caller's mistake.
fn told(error: Error) -> Result<RowProblem> {
    match error {
        Error::Unanswered { code, error } if code == "row.key" => {
            Err(Error::InvalidQuery(Fault::new("key", "row.key", &error)))
        }
        Error::Unanswered { code, error } => Ok(RowProblem { code, detail: error }),
        Error::NoRunner(what) => {
            Ok(RowProblem { code: "runner.none".to_owned(), detail: format!("no runner {what}") })
        }
        Error::RunnerWaits(what) => Ok(RowProblem {
            code: "runner.waits".to_owned(),
            detail: format!("{what}\nhint: {RUNNER_WAITS}"),
        }),
        error => Err(error),
    }
}

impl From<Looked> for RowLook {
    fn from(looked: Looked) -> Self {
        let state = match (looked.in_source, looked.in_target) {
            (false, false) => RowState::Absent,
            (true, false) => RowState::Missing,
            (false, true) => RowState::Extra,
            _ if !looked.fits || looked.columns.iter().any(|column| column.differs) => RowState::Different,
            _ => RowState::Equal,
        };
        let Looked { key_columns, columns, fits, in_flight, runner, .. } = looked;
        Self { state, key_columns, columns, fits, in_flight, runner }
    }
}

/// By the mark that the target's row bears, and by nothing else: what cannot be known is not guessed.
async fn last_write(app: &App, pipeline: &Pipeline, looked: Option<&Looked>) -> Result<LastWrite> {
    let unknown = |why: WriteUnknown| LastWrite { unknown: Some(why), ..LastWrite::default() };
    let Some(looked) = looked else { return Ok(unknown(WriteUnknown::NotSeen)) };
    if !looked.in_target {
        return Ok(unknown(WriteUnknown::NotThere));
    }
    if let Some(token) = looked.token {
        let run = app.store.run_of_token(pipeline.id, token).await?;
        let by = Some(MarkedBy::DocumentVersion);
        return Ok(match run {
            Some((run, since)) => LastWrite {
                by,
                since: Some(since),
                pipeline: Some(pipeline.name.clone()),
                run_id: Some(run.0),
                ..LastWrite::default()
            },
            None => LastWrite { by, ..unknown(WriteUnknown::NoRun) },
        });
    }
    let Some(at) = looked.touched_at else { return Ok(unknown(WriteUnknown::NoMark)) };
    let touched = LastWrite { by: Some(MarkedBy::TouchColumn), at: Some(at), ..LastWrite::default() };
    if looked.by_meta_store != Some(true) {
        return Ok(LastWrite { unknown: Some(WriteUnknown::OtherClock), ..touched });
    }
    let mut writing = app.store.writing_at(pipeline.effective_target(), at).await?;
    Ok(match (writing.pop(), writing.is_empty()) {
        (None, _) => LastWrite { unknown: Some(WriteUnknown::NoRun), ..touched },
        (Some(_), false) => LastWrite { unknown: Some(WriteUnknown::SeveralWriters), ..touched },
        // A pipeline that the caller does not see: somebody else wrote.
        (Some(None), true) => LastWrite { unknown: Some(WriteUnknown::NoRun), ..touched },
        (Some(Some(Writing { pipeline, run, batch })), true) => {
            LastWrite { pipeline: Some(pipeline), run_id: Some(run.0), batch_id: Some(batch), ..touched }
        }
    })
}

async fn reconcile(app: &App, pipeline: &Pipeline, key: &Value) -> Result<Option<RowReconcile>> {
    let Some(record) = app.store.last_verdict(pipeline.id).await? else { return Ok(None) };
    let difference = app.store.difference_of(record.id, key).await?;
    let listed = match difference {
        Some(_) => Some(true),
        None => has_kept_all(&record).then_some(false),
    };
    let verdict = record.verdict.zip(record.finished_at);
    Ok(verdict.map(|(verdict, finished_at)| RowReconcile {
        id: record.id,
        level: record.level,
        verdict,
        outdated: record.outdated,
        finished_at,
        listed,
        difference: difference.map(Into::into),
    }))
}

/// Whether what it has kept is all that differed. Counts tell of no row.
fn has_kept_all(record: &ReconcileRecord) -> bool {
    let all = |figures: &Figures| match record.level {
        Level::Count => false,
        Level::Hash => figures.differences() == 0,
        Level::Rows => !figures.capped && figures.differences() <= record.keep.unsigned_abs().into(),
    };
    record.figures.as_ref().is_some_and(all)
}

impl From<vitrina_store::RowBackfill> for RowBackfill {
    fn from(backfill: vitrina_store::RowBackfill) -> Self {
        let vitrina_store::RowBackfill { run, status, finished_at } = backfill;
        Self { run_id: run.0, status, finished_at }
    }
}
