//! All that can be found out about a pipeline before it is saved or run, at once: the rules, the guard's verdict, what
//! the source says of the query, and what a runner sees at the target.

use std::sync::Arc;

use serde::Deserialize;
use serde_json::json;
use vitrina_core::{Mode, Pipeline, PipelineId, Target, TargetName, TargetPart, Violation};
use vitrina_guard::{DescribeError, DescribedColumn, Finding, Reading};
use vitrina_store::{Actor, Error as StoreError, OUTSIDE, PipelineRef, Scope, Store, Untakeable};

use crate::SourceConnection;
use crate::app::App;
use crate::documents::{Check, PipelineConfig, Severity};
use crate::error::{Error, RUNNER_WAITS, Result};
use crate::problem::Fault;

use super::asking::Question;
use super::rules;
use super::sessions::{NoSession, Sessions};

/// A configuration that was looked at.
#[derive(Debug)]
pub(super) struct Examined {
    pub(super) pipeline: Pipeline,
    pub(super) checks: Vec<Check>,
}

impl Examined {
    /// The pipeline, when nothing speaks against it.
    pub(super) fn sound(self) -> Result<Pipeline> {
        let is_error = |check: &Check| check.severity == Severity::Error;
        let faults: Vec<Fault> = self.checks.into_iter().filter(is_error).map(Fault::from).collect();
        if faults.is_empty() { Ok(self.pipeline) } else { Err(Error::InvalidPipeline(faults)) }
    }
}

/// Before it is saved: the rules, and what the source says. A source that does not answer keeps nobody from saving:
/// the same is asked again before every run.
pub(super) async fn examine(app: &App, config: PipelineConfig, id: PipelineId) -> Result<Examined> {
    let order = config.task_order();
    let pipeline = config.into_pipeline(id, &app.rules);
    let sessions = Sessions::at([pipeline.source_connection.as_str()]);
    looked_at(app, &sessions, pipeline, order).await
}

/// One of several: they share sessions, and a source that is away is not asked for each of them.
pub(super) async fn examine_with(
    app: &App,
    sessions: &Sessions,
    config: PipelineConfig,
    id: PipelineId,
) -> Result<Examined> {
    let order = config.task_order();
    looked_at(app, sessions, config.into_pipeline(id, &app.rules), order).await
}

async fn looked_at(app: &App, sessions: &Sessions, pipeline: Pipeline, order: Vec<i32>) -> Result<Examined> {
    let (pipeline, mut checks) = judge(app, pipeline, order).await?;
    if checks.is_empty() {
        checks.extend(Box::pin(ask_source(app, sessions, &pipeline)).await);
    }
    Ok(Examined { pipeline, checks })
}

/// By the rules alone, and only for what they say of fields that change.
pub(super) async fn judged(app: &App, config: PipelineConfig, before: &Pipeline) -> Result<Examined> {
    let order = config.task_order();
    let (pipeline, mut checks) = judge(app, config.into_pipeline(before.id, &app.rules), order).await?;
    let changed = before.differences(&pipeline);
    checks.retain(|check| changed.iter().any(|field| check.field == format!("/{field}")));
    Ok(Examined { pipeline, checks })
}

/// Before it is run: also what a runner sees at source and target.
pub(super) async fn examine_deeply(
    app: &App,
    actor: &Actor,
    config: PipelineConfig,
    target: Option<Target>,
    id: PipelineId,
) -> Result<Vec<Check>> {
    let Examined { pipeline, mut checks } = examine(app, config, id).await?;
    checks.extend(outside(app, "", &pipeline));
    checks.extend(taken_outside(app, &pipeline).await?);
    let owned = other_writers(app, &pipeline, target.as_ref()).await?;
    // What is in a target of others is not told to who cannot write to it.
    if checks.iter().chain(&owned).all(|check| check.severity == Severity::Ok) {
        checks.extend(ask_runner(app, actor, &pipeline, target.clone()).await?);
    }
    checks.extend(owned);
    checks.extend(unknown_tasks(app, &pipeline).await?);
    let told = ["runner.none", "python.unknown_task"];
    if !checks.iter().any(|check| told.contains(&check.code.as_str())) {
        checks.extend(untakeable(app, &pipeline, target).await?);
    }
    Ok(checks)
}

/// That the caller could not save it, because it would not see it then.
pub(super) fn outside(app: &App, place: &str, pipeline: &Pipeline) -> Option<Check> {
    let error = app.store.scope().check(&pipeline.tags).err()?;
    Some(Check::new(Severity::Error, SCOPE, &format!("{place}/tags"), &error.to_string()))
}

pub(super) const SCOPE: &str = "access.scope";

/// That a pipeline which the caller does not see has its name: one that it sees may be the same, as files describe it.
async fn taken_outside(app: &App, pipeline: &Pipeline) -> Result<Option<Check>> {
    if app.store.scope().is_everything() {
        return Ok(None);
    }
    let reference = PipelineRef::Name(pipeline.name.clone());
    let is_seen = is_there(&app.store, &reference).await?;
    let is_taken = !is_seen && is_there(&app.store.within(Scope::EVERYTHING), &reference).await?;
    Ok(is_taken.then(|| name_taken("", &pipeline.name)))
}

async fn is_there(store: &Store, reference: &PipelineRef) -> Result<bool> {
    match store.pipeline(reference).await {
        Ok(_) => Ok(true),
        Err(StoreError::NoSuchPipeline(_)) => Ok(false),
        Err(error) => Err(error.into()),
    }
}

/// One name is one pipeline, whoever sees it.
pub(super) fn name_taken(place: &str, name: &str) -> Check {
    let message = StoreError::NameTaken(name.to_owned()).to_string();
    Check::new(Severity::Error, "pipeline.name_taken", &format!("{place}/name"), &message)
}

/// That no runner which is alive could execute it: its runs would wait. Its target is as it is saved, unless given.
pub(super) async fn untakeable(
    app: &App,
    pipeline: &Pipeline,
    target: Option<Target>,
) -> Result<Option<Check>> {
    let Ok(name) = pipeline.effective_target().parse::<TargetName>() else { return Ok(None) };
    let target = match target {
        Some(target) => target,
        None => app.store.target(&name).await?,
    };
    let needed = [pipeline.source_connection.clone(), target.connection];
    let found = app.store.untakeable(&needed, &pipeline.python_tasks()).await?;
    Ok(found.filter(|_| pipeline.enabled).map(|found| would_wait("", &found)))
}

pub(super) fn would_wait(place: &str, found: &Untakeable) -> Check {
    let message = format!("its runs would wait: {}", found.message);
    Check::new(Severity::Warning, &found.code, place, &message)
}

/// Others that write to its target: it cannot be saved, or where it is already its runs will be refused.
async fn other_writers(app: &App, pipeline: &Pipeline, target: Option<&Target>) -> Result<Option<Check>> {
    let Ok(name) = pipeline.effective_target().parse::<TargetName>() else { return Ok(None) };
    let target = match target {
        Some(target) => target.clone(),
        None => app.store.target(&name).await?,
    };
    if let Some(violation) = pipeline.shared_violation(&target) {
        return Ok(Some(shared_value("", &violation)));
    }
    let part = pipeline.part_of(&target);
    let mut writers = app.store.writers(&part).await?;
    // Whatever the caller says of how it is shared.
    if app.store.is_of_others(pipeline.effective_target()).await? {
        return Ok(Some(owned("/target_table", &of_others(pipeline), Severity::Error)));
    }
    // A file's pipeline has the name of the saved one, and another id.
    writers.names.retain(|id, name| *id != pipeline.id && *name != pipeline.name);
    if !target.is_shared_by_columns() && !writers.names.is_empty() {
        return Ok(Some(owned("/target_table", &writers.refusal(&part, None), Severity::Error)));
    }
    Ok(target.shared.map(|shared| {
        let value = part.shared_value.map(|value| format!(" ({value})")).unwrap_or_default();
        let message = format!("{name} is shared by {shared}{value}");
        Check::new(Severity::Ok, "target.shared", "/target_table", &message)
    }))
}

/// That nobody within the scope writes to the target, and others do.
pub(super) fn of_others(pipeline: &Pipeline) -> StoreError {
    let part = TargetPart { target: pipeline.effective_target().to_owned(), shared_value: None };
    StoreError::TargetOwned { part, owners: vec![OUTSIDE.to_owned()] }
}

pub(super) fn shared_value(place: &str, violation: &Violation) -> Check {
    let field = format!("{place}/{}", violation.field);
    Check::new(Severity::Error, violation.code, &field, &violation.message)
}

pub(super) fn owned(field: &str, refusal: &StoreError, severity: Severity) -> Check {
    Check::new(severity, "target.owned", field, &refusal.to_string())
}

/// Python tasks that no living runner has registered: a run would wait for one that has.
async fn unknown_tasks(app: &App, pipeline: &Pipeline) -> Result<Vec<Check>> {
    let needed = pipeline.python_tasks();
    if needed.is_empty() {
        return Ok(Vec::new());
    }
    let runners = app.store.runners().await?;
    let known = |task: &str| {
        runners.iter().any(|runner| runner.alive && runner.python_tasks.iter().any(|name| name == task))
    };
    let check = |task: &str| {
        let message = format!(
            "no runner that is alive knows the Python task {task:?}\nhint: `vitrina python`, or GET /runners, lists what each knows"
        );
        Check::new(Severity::Warning, "python.unknown_task", "", &message)
    };
    Ok(needed.into_iter().filter(|task| !known(task)).map(check).collect())
}

/// The guard's parser may take its time.
async fn judge(app: &App, pipeline: Pipeline, order: Vec<i32>) -> Result<(Pipeline, Vec<Check>)> {
    let rules = Arc::clone(&app.rules);
    let judged = tokio::task::spawn_blocking(move || {
        let checks = rules::faults(&pipeline, &order, &rules).into_iter().map(Check::from).collect();
        (pipeline, checks)
    });
    judged.await.map_err(|_| Error::Internal("the rules panicked"))
}

async fn ask_source(app: &App, sessions: &Sessions, pipeline: &Pipeline) -> Vec<Check> {
    let connection = app.rules.source_connections.get(&pipeline.source_connection);
    let Some((connection, sql)) = connection.zip(pipeline.reader_sql()) else { return Vec::new() };
    let field = query_field(pipeline);
    let session = match sessions.take(&pipeline.source_connection, connection).await {
        Ok(session) => session,
        Err(NoSession::Away) => return vec![undescribed("it does not answer")],
        Err(NoSession::Unopened(reason)) => return vec![undescribed(&reason)],
    };
    match described(&session, connection, pipeline, &sql).await {
        Ok((columns, mut checks)) => {
            if checks.is_empty() {
                let message =
                    format!("the query is one harmless SELECT and returns {} columns", columns.len());
                checks.push(Check::new(Severity::Ok, "source.described", field, &message));
            }
            checks
        }
        Err(Refused::Sql(findings)) => {
            findings.into_iter().map(|finding| rules::fault(field, finding).into()).collect()
        }
        Err(Refused::Away(reason)) => {
            sessions.lose(&pipeline.source_connection, session);
            vec![undescribed(&reason)]
        }
    }
}

const AWAY: &str = "source.unavailable";

fn undescribed(reason: &str) -> Check {
    let message =
        format!("the query was not described: {reason}\nhint: it is looked at again before every run");
    Check::new(Severity::Warning, AWAY, "/source_connection", &message)
}

pub(super) enum Refused {
    /// The author of the query can mend these.
    Sql(Vec<Finding>),
    /// The source could not be asked.
    Away(String),
}

/// The columns of a query that `check` found clean, once its plan is harmless too; and what the pipeline speaks of that
/// is not there.
async fn described(
    session: &Reading,
    connection: &SourceConnection,
    pipeline: &Pipeline,
    sql: &str,
) -> Result<(Vec<DescribedColumn>, Vec<Check>), Refused> {
    // First of all: to describe a query its literals are read, and domains check what becomes theirs.
    plan(session, sql, connection).await?;
    let columns = vitrina_guard::describe(&session.client, sql).await.map_err(refused)?;
    let mut checks = missing_columns(pipeline, &columns);
    if let (Some(table), Mode::Incremental) = (pipeline.driving_table(), pipeline.mode) {
        let wanted = cursor(pipeline);
        let names: Vec<&str> = wanted.iter().map(|(_, name)| name.as_str()).collect();
        let found =
            vitrina_guard::named_table(&session.client, sql, table, &columns, &names, names.len()).await;
        let found = found.map_err(|_| Refused::Away("the source did not describe its table".to_owned()))?;
        checks.extend(found.err().map(|reason| {
            let field = wanted.first().map_or("/source_table", |(field, _)| field);
            Check::new(Severity::Error, "pipeline.column", field, &reason)
        }));
    }
    Ok((columns, checks))
}

/// What stands behind the names of a query: views, functions, operators.
pub(super) async fn plan(session: &Reading, sql: &str, connection: &SourceConnection) -> Result<(), Refused> {
    let (schemas, ceiling) = (&connection.allowed_schemas, connection.max_query_cost);
    match vitrina_guard::check_plan(&session.client, sql, schemas, ceiling)
        .await
        .map_err(|error| refused(error.into()))?
    {
        findings if findings.is_empty() => Ok(()),
        findings => Err(Refused::Sql(findings)),
    }
}

/// The guard's verdict on the text of a query.
pub(super) async fn harmless(pipeline: &Pipeline, connection: &SourceConnection, sql: &str) -> Result<()> {
    let (field, sql, schemas) = (query_field(pipeline), sql.to_owned(), connection.allowed_schemas.clone());
    let judged = tokio::task::spawn_blocking(move || vitrina_guard::check(&sql, &schemas));
    let findings = judged.await.map_err(|_| Error::Internal("the guard panicked"))?;
    if findings.is_empty() {
        return Ok(());
    }
    let fault = |finding| rules::with_setting(rules::fault(field, finding), &pipeline.source_connection);
    Err(Error::InvalidSql(findings.into_iter().map(fault).collect()))
}

/// Where the query that is read with stands.
pub(super) fn query_field(pipeline: &Pipeline) -> &'static str {
    match (pipeline.plan.tasks.is_empty(), &pipeline.source_query) {
        (false, _) => "/tasks/0/body",
        (true, Some(_)) => "/source_query",
        (true, None) => "/source_table",
    }
}

pub(super) fn refused(error: DescribeError) -> Refused {
    match error {
        DescribeError::Sql(findings) => Refused::Sql(findings),
        DescribeError::Source(error) => Refused::Away(error.told().0.to_owned()),
    }
}

/// The columns of the cursor, and where they are written.
fn cursor(pipeline: &Pipeline) -> Vec<(&'static str, &String)> {
    let spoken = [
        ("/incremental_key", &pipeline.incremental_key),
        ("/incremental_id_key", &pipeline.incremental_id_key),
    ];
    spoken.into_iter().filter_map(|(field, name)| Some((field, name.as_ref()?))).collect()
}

/// Columns that the pipeline speaks of and the query does not return. Those of a cursor may be the driving table's.
fn missing_columns(pipeline: &Pipeline, columns: &[DescribedColumn]) -> Vec<Check> {
    let known: Vec<&str> = columns.iter().map(|column| column.name.as_str()).collect();
    let own = pipeline.driving_table().is_none();
    let of_cursor =
        cursor(pipeline).into_iter().filter(|_| own).map(|(field, name)| (field.to_owned(), name));
    let of_key = pipeline.change_key.iter().enumerate().map(|(at, name)| (format!("/change_key/{at}"), name));
    let missing = of_cursor.chain(of_key).filter(|(_, name)| !known.contains(&name.as_str()));
    let check = |(field, name): (String, &String)| {
        let message = format!("the query returns no column {name}\nhint: it returns {}", known.join(", "));
        Check::new(Severity::Error, "pipeline.column", &field, &message)
    };
    missing.map(check).collect()
}

/// What a runner answers to `inspect`.
#[derive(Debug, Deserialize)]
struct Inspection {
    checks: Vec<Inspected>,
}

#[derive(Debug, Deserialize)]
struct Inspected {
    code: String,
    severity: Severity,
    #[serde(default)]
    field: String,
    detail: String,
    hint: Option<String>,
}

impl From<Inspected> for Check {
    fn from(inspected: Inspected) -> Self {
        let Inspected { code, severity, field, detail, hint } = inspected;
        Self { code, severity, field, detail, line: None, column: None, hint }
    }
}

/// That no runner is there is a finding too: nothing else is wrong because of it.
async fn ask_runner(
    app: &App,
    actor: &Actor,
    pipeline: &Pipeline,
    target: Option<Target>,
) -> Result<Vec<Check>> {
    let name = pipeline.target_name(&app.rules.allowed_targets);
    let name = name.map_err(|_| Error::Internal("a sound pipeline has a target"))?;
    let target = match target {
        Some(target) => target,
        None => app.store.target(&name).await?,
    };
    let connections = vec![pipeline.source_connection.clone(), target.connection.clone()];
    let payload = json!({"pipeline": pipeline, "target": target});
    let python_tasks = pipeline.python_tasks().into_iter().map(str::to_owned).collect();
    let question = Question { kind: "inspect", pipeline: None, payload, connections, python_tasks };
    match app.ask(actor, question).await {
        Ok(answer) => {
            let inspection: Inspection = serde_json::from_value(answer)
                .map_err(|_| Error::Internal("an inspection cannot be read"))?;
            Ok(inspection.checks.into_iter().map(Check::from).collect())
        }
        Err(Error::NoRunner(what)) => {
            let message = format!(
                "the target was not looked at: no runner {what}\nhint: start one with `vitrina runner`"
            );
            Ok(vec![Check::new(Severity::Warning, "runner.none", "/target_table", &message)])
        }
        Err(Error::RunnerWaits(what)) => {
            let message = format!("the target was not looked at: {what}\nhint: {RUNNER_WAITS}");
            Ok(vec![Check::new(Severity::Warning, "runner.waits", "/target_table", &message)])
        }
        Err(Error::Unanswered { code, error }) => Ok(vec![Check::new(Severity::Error, &code, "", &error)]),
        Err(error) => Err(error),
    }
}
