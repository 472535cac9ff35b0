//! Schedules: what is due is requested once, by whichever runner looks first.

use std::time::Duration;

use jiff::Timestamp;
use sqlx::{PgConnection, Row};
use vitrina_core::{Event, PipelineId, Schedule};

use crate::pipelines::{PipelineRef, find};
use crate::steps::{Ending, step};
use crate::{Error, Result, RunRequest, Store};

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

impl Store {
    /// Requests every pipeline that is due, however many of its times were missed, once; answers how many.
    pub async fn request_due(&self) -> Result<usize> {
        let mut requested = 0;
        loop {
            let mut tx = self.pool.begin().await?;
            let Some(due) = take_due(&mut tx).await? else { return Ok(requested) };
            let opened = on_time(&mut tx, &due).await;
            match opened {
                Ok(opened) => {
                    tx.commit().await?;
                    requested += usize::from(opened);
                }
                Err(error) if error.is_connection() || error.is_busy() => return Err(error),
                Err(error) => {
                    tx.rollback().await?;
                    tracing::warn!(pipeline_id = %due.id, %error, "a scheduled run could not be requested");
                    set_next(&mut *self.pool.acquire().await?, &due).await?;
                }
            }
        }
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

/// Whether a run was opened: a pipeline that is paused or has failed only waits for its next time.
async fn on_time(tx: &mut PgConnection, due: &Due) -> Result<bool> {
    let mut opened = false;
    if due.is_late {
        let record = find(tx, &PipelineRef::Id(due.id)).await?;
        let done = step(tx, record, Event::ScheduleDue, &RunRequest::default(), &Ending::default()).await?;
        opened = done.effect.open_run;
    }
    set_next(tx, due).await?;
    Ok(opened)
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
    sqlx::query("update etl.etl_pipelines set next_run_at = $2::timestamptz, schedule_error = left($3, 1000) where id = $1")
        .bind(due.id.0)
        .bind(next)
        .bind(error)
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
