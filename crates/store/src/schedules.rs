//! Schedules: what is due is requested once, by whichever runner looks first.

use std::time::Duration;

use jiff::Timestamp;
use serde_json::Value;
use sqlx::{PgConnection, Row};
use vitrina_core::{Event, PipelineId, Schedule};

use crate::pipelines::{PipelineRef, find};
use crate::steps::{Ending, step};
use crate::{Error, Result, RunRequest, StepDone, Store};

struct Due {
    id: PipelineId,
    schedule: String,
    /// Its time has come, not only its schedule to be looked at.
    is_late: bool,
    /// By the database's clock.
    now: Timestamp,
}

/// Where something is due that somebody else holds, it is looked at again after this long.
const HELD: Duration = Duration::from_millis(200);
/// So many at a time: whoever requests them has other things to do in between.
const AT_ONCE: usize = 20;
/// A time that comes while a person's request waits for the open run is put off by this much.
const PUT_OFF: &str = "5 seconds";

impl Store {
    /// Requests pipelines that are due, each once however many of its times were missed; answers how many. There
    /// may be more: then the next alarm comes soon.
    pub async fn request_due(&self) -> Result<usize> {
        let mut requested = 0;
        for _ in 0..AT_ONCE {
            let mut tx = self.pool.begin().await?;
            let Some(due) = take_due(&mut tx).await? else { break };
            match on_time(&mut tx, &due).await {
                Ok(done) => {
                    tx.commit().await?;
                    if let Some(done) = done {
                        done.tell();
                        requested += usize::from(done.effect.open_run);
                    }
                }
                Err(error) if error.may_pass() => return Err(error),
                Err(error) => {
                    tx.rollback().await?;
                    tracing::warn!(pipeline_id = %due.id, %error, "a scheduled run could not be requested");
                    set_next(&mut *self.pool.acquire().await?, &due).await?;
                }
            }
        }
        Ok(requested)
    }

    /// Has schedules looked at anew that an older release could not read, and times that were computed by a clock
    /// that was wrong. Those that are right come out the same.
    pub async fn review_schedules(&self) -> Result<()> {
        sqlx::query(
            "update etl.etl_pipelines set next_run_at = null, schedule_error = null
              where schedule_error is not null or next_run_at > now() + interval '1 minute'",
        )
        .execute(&self.pool)
        .await?;
        Ok(())
    }

    /// How long until a schedule, a retry or an expired lease is worth a look.
    pub async fn next_alarm(&self) -> Result<Option<Duration>> {
        let seconds: Option<f64> = sqlx::query_scalar(ALARM).fetch_one(&self.pool).await?;
        Ok(seconds.map(|seconds| Duration::try_from_secs_f64(seconds).unwrap_or(HELD)))
    }
}

async fn take_due(tx: &mut PgConnection) -> Result<Option<Due>> {
    let Some(row) = sqlx::query(DUE).fetch_optional(tx).await? else { return Ok(None) };
    let now = Timestamp::from_microsecond(row.try_get("now")?);
    Ok(Some(Due {
        id: PipelineId(row.try_get("id")?),
        schedule: row.try_get("schedule_interval")?,
        is_late: row.try_get("is_late")?,
        now: now.map_err(|error| Error::Unusable(error.to_string()))?,
    }))
}

/// What it led to: a pipeline that is paused or has failed only waits for its next time.
async fn on_time(tx: &mut PgConnection, due: &Due) -> Result<Option<StepDone>> {
    let mut done = None;
    if due.is_late {
        let record = find(tx, &PipelineRef::Id(due.id)).await?;
        if is_a_persons(record.pending_request.as_ref())? {
            return put_off(tx, due).await.map(|()| None);
        }
        let request = RunRequest { scheduled: true, ..RunRequest::default() };
        done = Some(step(tx, record, Event::ScheduleDue, &request, &Ending::default()).await?);
    }
    set_next(tx, due).await?;
    Ok(done)
}

fn is_a_persons(pending: Option<&Value>) -> Result<bool> {
    let Some(pending) = pending else { return Ok(false) };
    Ok(!serde_json::from_value::<RunRequest>(pending.clone())?.scheduled)
}

async fn put_off(tx: &mut PgConnection, due: &Due) -> Result<()> {
    sqlx::query(
        "update etl.etl_pipelines set next_run_at = clock_timestamp() + $2::text::interval where id = $1",
    )
    .bind(due.id.0)
    .bind(PUT_OFF)
    .execute(tx)
    .await?;
    Ok(())
}

async fn set_next(connection: &mut PgConnection, due: &Due) -> Result<()> {
    let (next, error) = match due.schedule.parse::<Schedule>() {
        Ok(schedule) => match schedule.next(due.id, due.now) {
            Some(next) => (Some(next.to_string()), None),
            None => (None, Some("its times are over".to_owned())),
        },
        Err(error) => (None, Some(error.to_string())),
    };
    if let Some(error) = &error {
        tracing::warn!(pipeline_id = %due.id, error, "a pipeline has a schedule that says nothing");
    }
    // The schedule may have been changed since it was read, where that was in another transaction.
    sqlx::query(
        "update etl.etl_pipelines set next_run_at = $2::timestamptz, schedule_error = left($3, 1000)
          where id = $1 and schedule_interval = $4",
    )
    .bind(due.id.0)
    .bind(next)
    .bind(error)
    .bind(&due.schedule)
    .execute(connection)
    .await?;
    Ok(())
}

const DUE: &str = "
select id, schedule_interval, next_run_at is not null as is_late,
       (extract(epoch from clock_timestamp()) * 1000000)::bigint as now
  from etl.etl_pipelines
 where enabled and schedule_interval is not null and schedule_error is null
   and coalesce(next_run_at, '-infinity') <= now()
 order by coalesce(next_run_at, '-infinity') limit 1 for no key update skip locked";

const ALARM: &str = "
select extract(epoch from least(
           (select next_run_at from etl.etl_pipelines
             where enabled and schedule_interval is not null and schedule_error is null
               and coalesce(next_run_at, '-infinity') > '-infinity'
             order by coalesce(next_run_at, '-infinity') limit 1),
           (select min(at) from (
                select case status when 'RUN_REQUESTED' then retry_at else lease_until end as at from etl.etl_pipelines
                 where status in ('RUN_REQUESTED', 'RUNNING', 'PAUSE_REQUESTED')) active
             where at > clock_timestamp())) - clock_timestamp())::float8";
