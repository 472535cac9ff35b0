//! One step of a pipeline's life: lock the row, ask `Lifecycle` where the event leads, write that
//! back with the run it closes or opens. Every change of status but the claim goes through here.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use sqlx::PgConnection;
use uuid::Uuid;
use vitrina_core::{
    AllowedTargets, CursorRange, Decision, Effect, Event, Lease, Lifecycle, Mode, OnActive, PipelineId,
    RunId, RunStatus, Status, TargetName,
};

use crate::checkpoints::refuse_another_configuration;
use crate::pipelines::{PipelineRecord, PipelineRef, find};
use crate::targets::target;
use crate::{Error, LOCK_TIMEOUT, Result, RunRecord, Store};

/// Who or what asked for a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Trigger {
    Api,
    Schedule,
    /// A pause that `disable` caused, taken back by `enable`.
    Resume,
    /// A request that waited for the run before it.
    Pending,
}

impl Trigger {
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Api => "api",
            Self::Schedule => "schedule",
            Self::Resume => "resume",
            Self::Pending => "pending",
        }
    }
}

/// What a run shall do, beyond what the pipeline says.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunRequest {
    /// The pipeline's own mode, or the paused run's, when not given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mode: Option<Mode>,
    /// A backfill: only these keys are read again, each a JSON array of the target's key columns.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub keys: Option<Vec<Value>>,
    /// A backfill: only rows with a cursor in this range are read again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub range: Option<CursorRange>,
    /// What becomes of a checkpoint that was made under another configuration.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub checkpoint: Option<Decision>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub idempotency_key: Option<String>,
    /// The caller's trace, which the run goes on with.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub traceparent: Option<String>,
    /// Readers get what they saw before the last load, and nothing is read.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub rollback: bool,
    /// Continues what the last run left when it failed: its load, or its backfill.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub resume: bool,
    /// Nobody's but the schedule's: it gives way to a person's.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub scheduled: bool,
}

impl RunRequest {
    pub fn is_backfill(&self) -> bool {
        self.keys.is_some() || self.range.is_some()
    }
}

/// The pipeline after an accepted event.
#[derive(Debug, Clone)]
pub struct StepDone {
    pub pipeline: PipelineRecord,
    pub before: Lifecycle,
    /// The run that was opened, joined, closed or flagged, if any.
    pub run: Option<RunId>,
    pub effect: Effect,
}

impl StepDone {
    /// For the log, once it is true.
    pub(crate) fn tell(&self) {
        let (was, status) = (self.before.status, self.pipeline.status);
        if was == status {
            return;
        }
        let pipeline = &self.pipeline.config;
        let run_id = self.run.map(|run| tracing::field::display(run.0));
        tracing::info!(pipeline = pipeline.name, pipeline_id = %pipeline.id, run_id, %was, %status, "status changed");
    }
}

/// Why a runner's run ended as it did.
#[derive(Debug, Clone, Default)]
pub(crate) struct Ending<'a> {
    pub(crate) code: Option<&'a str>,
    pub(crate) error: Option<&'a str>,
    pub(crate) retry_after: Option<std::time::Duration>,
    /// The open pass led to this and must not be gone on with.
    pub(crate) drop_pass: bool,
    /// A pass that was opened then has found nothing new.
    pub(crate) as_of: Option<Timestamp>,
}

impl Store {
    /// Asks for a run. The same idempotency key is answered with the same run.
    pub async fn request_run(
        &self,
        id: PipelineId,
        on_active: OnActive,
        request: &RunRequest,
    ) -> Result<StepDone> {
        self.request(id, Event::Run(on_active), request).await
    }

    /// Pause, cancel, enable or disable.
    pub async fn request_change(&self, id: PipelineId, event: Event) -> Result<StepDone> {
        self.request(id, event, &RunRequest::default()).await
    }

    async fn request(&self, id: PipelineId, event: Event, request: &RunRequest) -> Result<StepDone> {
        let mut tx = self.pool.begin().await?;
        sqlx::query(LOCK_TIMEOUT).execute(&mut *tx).await?;
        // Locked by a statement of its own: one that waits for the lock reads the run as it was before.
        sqlx::query("select 1 from etl.etl_pipelines where id = $1 for no key update")
            .bind(id.0)
            .execute(&mut *tx)
            .await?;
        let record = find(&mut tx, &PipelineRef::Id(id)).await?;
        if let Some(run) = run_of_key(&mut tx, id, request).await? {
            let before = record.lifecycle();
            return Ok(StepDone { pipeline: record, before, run: Some(run), effect: Effect::default() });
        }
        let done = step(&mut tx, record, event, request, &Ending::default()).await?;
        tx.commit().await?;
        done.tell();
        Ok(done)
    }

    /// A runner's report under its lease: batch done, data end, release or failure.
    pub(crate) async fn report(&self, lease: &Lease, event: Event, ending: &Ending<'_>) -> Result<StepDone> {
        let mut tx = self.pool.begin().await?;
        sqlx::query(LOCK_TIMEOUT).execute(&mut *tx).await?;
        hold(&mut tx, lease).await?;
        let record = find(&mut tx, &PipelineRef::Id(lease.pipeline)).await?;
        let event = beside(&record, event);
        let done = step(&mut tx, record, event, &RunRequest::default(), ending).await?;
        tx.commit().await?;
        done.tell();
        Ok(done)
    }
}

/// The failure of a backfill or a rollback is its own.
fn beside(record: &PipelineRecord, event: Event) -> Event {
    let before = record.last_run.as_ref().filter(|run| run.is_beside()).and_then(|run| run.status_before);
    match (event, before) {
        (Event::Fail, Some(before)) => Event::FailBeside(before),
        _ => event,
    }
}

/// Locks the pipeline for a runner that still owns it.
pub(crate) async fn hold(tx: &mut PgConnection, lease: &Lease) -> Result<()> {
    let held: Option<i32> = sqlx::query_scalar(
        "select 1 from etl.etl_pipelines where id = $1 and owner = $2 and lease_token = $3 for no key update",
    )
    .bind(lease.pipeline.0)
    .bind(lease.owner.0)
    .bind(lease.token.0)
    .fetch_optional(tx)
    .await?;
    held.map(|_| ()).ok_or(Error::LeaseLost)
}

pub(crate) async fn step(
    tx: &mut PgConnection,
    record: PipelineRecord,
    event: Event,
    request: &RunRequest,
    ending: &Ending<'_>,
) -> Result<StepDone> {
    let before = record.lifecycle();
    let (next, effect) = before.apply(event)?;
    // Not even written back: a pipeline that waits for its retry keeps its time.
    if event == Event::ScheduleDue && next == before && !replaces_pending(&record, event, request)? {
        return Ok(StepDone { run: record.run_id, pipeline: record, before, effect });
    }
    let mut run = record.run_id;
    match (effect.close_run, record.run_id) {
        (Some(status), Some(open)) => close_run(tx, open, status, ending).await?,
        (None, Some(open)) if event == Event::Release => close_attempt(tx, open, ending).await?,
        _ => {}
    }
    if next.cancel_requested && !before.cancel_requested {
        flag_cancel(tx, &record).await?;
    }
    if effect.open_run {
        run = Some(open_run(tx, &record, event, request).await?);
    }
    if ending.drop_pass || drops_the_pass(&record, next, event, effect) {
        drop_pass(tx, record.config.id).await?;
    }
    if let Some(as_of) = ending.as_of {
        move_watermark(tx, record.config.id, as_of).await?;
    }
    let waiting = waiting(tx, &record, next, event, request).await?;
    write_back(tx, &record, next, effect, waiting, run, ending).await?;
    let pipeline = find(tx, &PipelineRef::Id(record.config.id)).await?;
    Ok(StepDone { pipeline, before, run, effect })
}

/// A cancel drops the open pass and keeps what completed passes established. A backfill has no part in
/// the pass: cancelled, it leaves that to the run that goes on with it.
fn drops_the_pass(record: &PipelineRecord, next: Lifecycle, event: Event, effect: Effect) -> bool {
    let over = |run: &RunRecord| matches!(run.status, RunStatus::Success | RunStatus::Cancelled);
    let of_backfill = record.last_run.as_ref().is_some_and(|run| run.is_backfill() && !over(run));
    let cancels = effect.close_run == Some(RunStatus::Cancelled)
        || (event == Event::Cancel && record.status != next.status);
    cancels && !of_backfill
}

async fn close_run(tx: &mut PgConnection, run: RunId, status: RunStatus, ending: &Ending<'_>) -> Result<()> {
    sqlx::query(
        "update etl.etl_runs set status = $2, finished_at = clock_timestamp(), error_code = $3, error = left($4, 4000) where id = $1",
    )
    .bind(run.0)
    .bind(status.as_str())
    .bind(ending.code)
    .bind(ending.error)
    .execute(&mut *tx)
    .await?;
    close_attempt(tx, run, ending).await
}

pub(crate) async fn close_attempt(tx: &mut PgConnection, run: RunId, ending: &Ending<'_>) -> Result<()> {
    sqlx::query(
        "update etl.etl_attempts set ended_at = clock_timestamp(), error_code = $2, error = left($3, 4000)
          where run_id = $1 and ended_at is null",
    )
    .bind(run.0)
    .bind(ending.code)
    .bind(ending.error)
    .execute(tx)
    .await?;
    Ok(())
}

async fn flag_cancel(tx: &mut PgConnection, record: &PipelineRecord) -> Result<()> {
    sqlx::query("update etl.etl_runs set cancel_requested = true where id = $1")
        .bind(record.run_id.map(|run| run.0))
        .execute(tx)
        .await?;
    Ok(())
}

/// Creates the run's row with the snapshot it will work on, and notes what a runner needs for it.
async fn open_run(
    tx: &mut PgConnection,
    record: &PipelineRecord,
    event: Event,
    request: &RunRequest,
) -> Result<RunId> {
    let (trigger, request) = match event {
        Event::ScheduleDue => (Trigger::Schedule, request.clone()),
        Event::DataEnd | Event::FailBeside(_) => match pending(record)? {
            request if request.scheduled => (Trigger::Schedule, request),
            request => (Trigger::Pending, request),
        },
        Event::Run(_) => (Trigger::Api, request.clone()),
        _ => (Trigger::Resume, request.clone()),
    };
    let config = &record.config;
    let name = effective_target(record)?;
    let target = target(tx, &name).await?;
    let run = RunId(Uuid::now_v7());
    let paused = continued_run(record, event, &request);
    if request.resume && paused.is_none() {
        require_open_pass(tx, config.id).await?;
    }
    if trigger == Trigger::Api && request.mode != Some(Mode::Full) && carried(paused, &request).is_none() {
        refuse_to_drop(paused)?;
    }
    if trigger == Trigger::Api && builds_on_the_checkpoint(paused, record, &request) {
        refuse_another_configuration(tx, config, &target).await?;
    }
    sqlx::query(
        "insert into etl.etl_runs (id, pipeline_id, trigger, mode, snapshot, idempotency_key, keys, backfill_range, checkpoint, traceparent, rollback, resume, status_before)
         select $1, $2, $3, $4, $5, case when not exists (select from etl.etl_runs k where k.pipeline_id = $2 and k.idempotency_key = $6) then $6 end, coalesce($7, paused.keys), coalesce($10, paused.backfill_range), coalesce($9, paused.checkpoint), $11,
                $12 or coalesce(paused.rollback, false), $13, coalesce(paused.status_before, $14)
           from (select) new left join (
                select r.keys, r.backfill_range, r.rollback, r.status_before, case when s.checkpoint ->> 'decided_by' is distinct from r.id::text then r.checkpoint end as checkpoint
                  from etl.etl_runs r join etl.etl_state s using (pipeline_id) where r.id = $8) paused on true",
    )
    .bind(run.0)
    .bind(config.id.0)
    .bind(trigger.as_str())
    .bind(mode(paused, record, &request).as_str())
    .bind(json!({"pipeline": config, "target": target}))
    .bind(if trigger == Trigger::Api { own_key(record, &request)? } else { request.idempotency_key.clone() })
    .bind(request.keys.clone().map(Value::from))
    .bind(carried(paused, &request).map(|run| run.id.0))
    .bind(request.checkpoint.map(Decision::as_str))
    .bind(request.range.as_ref().map(|range| json!(range)))
    .bind(&request.traceparent)
    .bind(request.rollback)
    .bind(request.resume || paused.is_some_and(|run| !run.is_backfill()))
    .bind(status_before(record, &request))
    .execute(&mut *tx)
    .await?;
    sqlx::query("update etl.etl_pipelines set connections_needed = $2, tasks_needed = $3 where id = $1")
        .bind(config.id.0)
        .bind(vec![config.source_connection.clone(), target.connection])
        .bind(config.python_tasks())
        .execute(tx)
        .await?;
    Ok(run)
}

/// The name alone: whether it is allowed was the API's question, and will be the sink's.
pub(crate) fn effective_target(record: &PipelineRecord) -> Result<TargetName> {
    let anything = AllowedTargets(vec!["*".to_owned()]);
    record.config.target_name(&anything).map_err(|error| Error::Unusable(error.to_string()))
}

fn pending(record: &PipelineRecord) -> Result<RunRequest> {
    let stored = record.pending_request.clone().unwrap_or_else(|| json!({}));
    Ok(serde_json::from_value(stored)?)
}

/// Who waits for the request of this key and asks again is not given the run that continues an older pass: that may lack what
/// was committed before the request. The run of the key is the one that is still to come.
fn own_key(record: &PipelineRecord, request: &RunRequest) -> Result<Option<String>> {
    let waits =
        record.pending_request.is_some() && pending(record)?.idempotency_key == request.idempotency_key;
    Ok(request.idempotency_key.clone().filter(|_| !waits))
}

/// A resumed pipeline continues what was paused; so does one whose pause is taken back as it is reached.
/// Where the data had ended by then, or no run was active, nothing was. What has failed is continued on request only.
fn continued_run<'a>(
    record: &'a PipelineRecord,
    event: Event,
    request: &RunRequest,
) -> Option<&'a RunRecord> {
    record.last_run.as_ref().filter(|run| match record.status {
        Status::Paused if run.status == RunStatus::Paused => true,
        Status::PauseRequested => !matches!(event, Event::DataEnd | Event::FailBeside(_)),
        Status::Failed => request.resume && run.status == RunStatus::Failed,
        Status::Idle | Status::Paused => {
            request.resume && run.status == RunStatus::Failed && run.is_backfill()
        }
        _ => false,
    })
}

/// Where the failure of a backfill or a rollback leads back to. What waited for the end of another run begins IDLE.
fn status_before(record: &PipelineRecord, request: &RunRequest) -> Option<&'static str> {
    let before = match record.status {
        Status::Paused | Status::Failed => record.status,
        _ => Status::Idle,
    };
    (request.is_backfill() || request.rollback).then_some(before.as_str())
}

/// A load that failed may still be open behind a backfill that has ended since.
async fn require_open_pass(tx: &mut PgConnection, id: PipelineId) -> Result<()> {
    let is_open: Option<bool> = sqlx::query_scalar(
        "select checkpoint #> '{position,pass}' is not null from etl.etl_state where pipeline_id = $1",
    )
    .bind(id.0)
    .fetch_optional(tx)
    .await?;
    if is_open == Some(true) { Ok(()) } else { Err(Error::NothingToResume) }
}

fn mode(paused: Option<&RunRecord>, record: &PipelineRecord, request: &RunRequest) -> Mode {
    request.mode.or(paused.map(|run| run.mode)).unwrap_or(record.config.mode)
}

/// The run whose backfill goes on, and whose decision if it was not carried out yet. What is asked for anew is no
/// backfill unless it says so.
fn carried<'a>(paused: Option<&'a RunRecord>, request: &RunRequest) -> Option<&'a RunRecord> {
    paused.filter(|_| request.mode.is_none() && !request.is_backfill() && !request.rollback)
}

/// Nobody would ever read the rest of it, as a full run does: what its poller sees is a run that stays paused.
fn refuse_to_drop(paused: Option<&RunRecord>) -> Result<()> {
    let is_left = |run: &RunRecord| run.is_backfill() && run.status == RunStatus::Paused;
    if paused.is_some_and(is_left) { Err(Error::BackfillPaused) } else { Ok(()) }
}

/// An incremental run does, unless it comes with a decision. A backfill leaves the checkpoint alone.
fn builds_on_the_checkpoint(
    paused: Option<&RunRecord>,
    record: &PipelineRecord,
    request: &RunRequest,
) -> bool {
    let carried = carried(paused, request);
    let backfill = request.is_backfill() || carried.is_some_and(RunRecord::is_backfill);
    let rollback = request.rollback || carried.is_some_and(|run| run.rollback);
    let decision = request.checkpoint.or(carried.and_then(|run| run.checkpoint));
    let decided = decision.or_else(|| record.config.on_change.decision()).is_some();
    mode(paused, record, request) == Mode::Incremental && !backfill && !rollback && !decided
}

/// What the pass has deleted stays: attempts after it have the same limit.
async fn drop_pass(tx: &mut PgConnection, id: PipelineId) -> Result<()> {
    sqlx::query(
        "update etl.etl_state
            set checkpoint = checkpoint #- '{position,pass}' #- '{opened_at}' #- '{opened_by}' #- '{load}', version = version + 1, updated_at = clock_timestamp()
          where pipeline_id = $1 and checkpoint #> '{position,pass}' is not null",
    )
    .bind(id.0)
    .execute(tx)
    .await?;
    Ok(())
}

/// The checkpoint stays as it is, and so does its version: nothing was read that it would have to tell.
async fn move_watermark(tx: &mut PgConnection, id: PipelineId, as_of: Timestamp) -> Result<()> {
    sqlx::query("update etl.etl_state set as_of = $2::text::timestamptz where pipeline_id = $1")
        .bind(id.0)
        .bind(as_of.to_string())
        .execute(tx)
        .await?;
    Ok(())
}

/// The one request that waits for the end of the open run.
async fn waiting(
    tx: &mut PgConnection,
    record: &PipelineRecord,
    next: Lifecycle,
    event: Event,
    request: &RunRequest,
) -> Result<Option<Value>> {
    match (next.pending, record.pending_request.clone()) {
        (false, _) => Ok(None),
        (true, Some(_)) if replaces_pending(record, event, request)? => {
            if event != Event::ScheduleDue {
                make_due_again(tx, record).await?;
            }
            Ok(Some(serde_json::to_value(request)?))
        }
        (true, Some(stored)) => Ok(Some(stored)),
        (true, None) => Ok(Some(serde_json::to_value(request)?)),
    }
}

/// A person's request takes the place of the schedule's, whose time then comes again. Of two of the schedules the full
/// run stays, whichever came first: it includes the other.
fn replaces_pending(record: &PipelineRecord, event: Event, request: &RunRequest) -> Result<bool> {
    if record.pending_request.is_none() {
        return Ok(false);
    }
    let waiting = pending(record)?;
    Ok(waiting.scheduled
        && match event {
            Event::Run(OnActive::After) => true,
            Event::ScheduleDue => {
                record.status == Status::Running
                    && request.mode == Some(Mode::Full)
                    && waiting.mode != request.mode
            }
            _ => false,
        })
}

/// The schedule whose request waited no longer does.
async fn make_due_again(tx: &mut PgConnection, record: &PipelineRecord) -> Result<()> {
    let next = if pending(record)?.mode == Some(Mode::Full) { "next_full_run_at" } else { "next_run_at" };
    let sql = format!(
        "update etl.etl_pipelines set {next} = clock_timestamp() where id = $1 and {next} is not null"
    );
    sqlx::query(sqlx::AssertSqlSafe(sql)).bind(record.config.id.0).execute(tx).await?;
    Ok(())
}

async fn write_back(
    tx: &mut PgConnection,
    record: &PipelineRecord,
    next: Lifecycle,
    effect: Effect,
    waiting: Option<Value>,
    run: Option<RunId>,
    ending: &Ending<'_>,
) -> Result<()> {
    sqlx::query(
        "update etl.etl_pipelines
            set status = $2, enabled = $3, paused_by_disable = $4, pending_request = $5,
                run_id = case when $2 in ('RUN_REQUESTED', 'RUNNING', 'PAUSE_REQUESTED') then $6 end,
                requested_at = case when $7 then clock_timestamp() else requested_at end,
                owner = case when $2 in ('RUNNING', 'PAUSE_REQUESTED') then owner end,
                lease_until = case when $2 in ('RUNNING', 'PAUSE_REQUESTED') then lease_until end,
                stalls = case when $7 then 0 else stalls end,
                releases = case when $7 then 0 else releases + ($8::float8 is not null)::int end,
                retry_at = clock_timestamp() + $8 * interval '1 second'
          where id = $1",
    )
    .bind(record.config.id.0)
    .bind(next.status.as_str())
    .bind(next.enabled)
    .bind(next.paused_by_disable)
    .bind(waiting)
    .bind(run.map(|run| run.0))
    .bind(effect.open_run)
    .bind(ending.retry_after.map(|after| after.as_secs_f64()))
    .execute(tx)
    .await?;
    Ok(())
}

async fn run_of_key(tx: &mut PgConnection, id: PipelineId, request: &RunRequest) -> Result<Option<RunId>> {
    let Some(key) = &request.idempotency_key else { return Ok(None) };
    let run: Option<Uuid> =
        sqlx::query_scalar("select id from etl.etl_runs where pipeline_id = $1 and idempotency_key = $2")
            .bind(id.0)
            .bind(key)
            .fetch_optional(tx)
            .await?;
    Ok(run.map(RunId))
}
