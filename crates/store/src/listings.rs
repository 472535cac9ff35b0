//! Lists of pipelines: which are meant, in which order, and from where on.

use jiff::Timestamp;
use sqlx::FromRow;
use sqlx::postgres::PgArguments;
use sqlx::query::QueryAs;
use sqlx::types::Json;
use uuid::Uuid;
use vitrina_core::{Mode, PipelineId, PipelineKind, RunId, Status};

use crate::pipelines::{EFFECTIVE_TARGET, as_document};
use crate::reconciles::last_verdict;
use crate::runs::RUN_AS_DOCUMENT;
use crate::scope::within;
use crate::waiting::may_wait;
use crate::{Error, LastVerdict, PipelineRecord, PipelineRef, Result, RunRecord, Scope, Store, Waiting};

/// Which pipelines are meant, in which order, and from where on; all of them by name when nothing is given.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub struct PipelineChoice {
    pub status: Option<Status>,
    /// Part of a name or of a description, in any case.
    pub q: Option<String>,
    pub tag: Option<String>,
    pub target: Option<String>,
    pub order: PipelineOrder,
    pub descending: bool,
    /// The sort key and name of the last pipeline of the page before.
    pub after: Option<(String, String)>,
    pub limit: Option<i64>,
}

/// What a list of pipelines is sorted by.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub enum PipelineOrder {
    #[default]
    Name,
    Status,
    UpdatedAt,
    /// When its newest run was asked for.
    LastRunAt,
}

impl PipelineOrder {
    /// Text whose order under "C" is the order.
    const fn key(self) -> &'static str {
        match self {
            Self::Name => "p.name",
            Self::Status => "p.status",
            Self::UpdatedAt => "to_char(p.updated_at at time zone 'UTC', 'YYYY-MM-DD HH24:MI:SS.US')",
            Self::LastRunAt => {
                "coalesce((select to_char(max(r.requested_at) at time zone 'UTC', 'YYYY-MM-DD HH24:MI:SS.US')
                             from etl.etl_runs r where r.pipeline_id = p.id), '')"
            }
        }
    }
}

/// A pipeline as lists and pollers see it: read column by column, because they ask all the time.
#[derive(Debug, Clone)]
pub struct PipelineListing {
    /// What the list is sorted by.
    pub key: String,
    pub id: PipelineId,
    pub name: String,
    pub description: String,
    pub tags: Vec<String>,
    pub kind: PipelineKind,
    pub status: Status,
    pub enabled: bool,
    pub mode: Mode,
    /// Where the rows go: the last task's own target, else the pipeline's.
    pub target: String,
    pub schedule_interval: Option<String>,
    pub next_run_at: Option<Timestamp>,
    pub schedule_error: Option<String>,
    pub run_id: Option<RunId>,
    /// The open run is to be cancelled.
    pub cancel_requested: bool,
    /// One more run begins when the open one has ended.
    pub pending: bool,
    pub retry_at: Option<Timestamp>,
    /// Leases that expired since the last committed batch.
    pub stalls: i32,
    pub last_run: Option<RunRecord>,
    pub last_verdict: Option<LastVerdict>,
    /// Why nobody executes what it waits for.
    pub waiting: Option<Waiting>,
    pub next_reconcile_at: Option<Timestamp>,
    pub reconcile_schedule_error: Option<String>,
    pub full_schedule: Option<String>,
    pub next_full_run_at: Option<Timestamp>,
    pub full_schedule_error: Option<String>,
    pub freshness_limit_seconds: Option<i64>,
    pub as_of: Option<Timestamp>,
    pub lag_seconds: Option<f64>,
    pub version: i64,
    pub created_at: Timestamp,
    pub updated_at: Timestamp,
}

#[derive(Debug, FromRow)]
struct Listed {
    key: String,
    id: Uuid,
    name: String,
    description: String,
    tags: Vec<String>,
    kind: String,
    status: String,
    enabled: bool,
    mode: String,
    target: String,
    schedule_interval: Option<String>,
    next_run_at: Option<i64>,
    schedule_error: Option<String>,
    run_id: Option<Uuid>,
    cancel_requested: bool,
    pending: bool,
    retry_at: Option<i64>,
    stalls: i32,
    last_run: Option<Json<RunRecord>>,
    last_verdict: Option<Json<LastVerdict>>,
    may_wait: bool,
    next_reconcile_at: Option<i64>,
    reconcile_schedule_error: Option<String>,
    full_schedule: Option<String>,
    next_full_run_at: Option<i64>,
    full_schedule_error: Option<String>,
    freshness_limit_seconds: Option<i64>,
    as_of: Option<i64>,
    lag_seconds: Option<f64>,
    version: i64,
    created_at: i64,
    updated_at: i64,
}

/// Times in microseconds.
fn columns() -> String {
    let micros = |column: &str| format!("(extract(epoch from {column}) * 1000000)::bigint");
    let as_of = "(select s.as_of from etl.etl_state s where s.pipeline_id = p.id)";
    format!(
        "k.key, p.id, p.name, p.description, p.tags, p.type as kind, p.status, p.enabled, p.mode, k.target,
         p.schedule_interval, {next_run_at} as next_run_at, p.schedule_error, p.run_id,
         coalesce((select r.cancel_requested from etl.etl_runs r where r.id = p.run_id), false) as cancel_requested,
         p.pending_request is not null as pending, {retry_at} as retry_at, p.stalls,
         (select {RUN_AS_DOCUMENT} from etl.etl_runs r where r.pipeline_id = p.id order by r.requested_at desc limit 1) as last_run,
         {last_verdict} as last_verdict, {may_wait} as may_wait, {next_reconcile_at} as next_reconcile_at, p.reconcile_schedule_error,
         p.full_schedule, {next_full_run_at} as next_full_run_at, p.full_schedule_error,
         p.freshness_limit_seconds, {as_of_micros} as as_of,
         greatest(0, extract(epoch from clock_timestamp() - {as_of}))::float8 as lag_seconds,
         p.version, {created_at} as created_at, {updated_at} as updated_at",
        may_wait = may_wait(),
        last_verdict = last_verdict(),
        next_run_at = micros("p.next_run_at"),
        retry_at = micros("p.retry_at"),
        next_reconcile_at = micros("p.next_reconcile_at"),
        next_full_run_at = micros("p.next_full_run_at"),
        as_of_micros = micros(as_of),
        created_at = micros("p.created_at"),
        updated_at = micros("p.updated_at"),
    )
}

impl Store {
    /// A page of a list.
    pub async fn listings(&self, choice: &PipelineChoice) -> Result<Vec<PipelineListing>> {
        let sql = select(choice, &columns());
        let rows: Vec<Listed> = bound(sqlx::query_as(sqlx::AssertSqlSafe(sql)), choice, &self.scope)
            .fetch_all(&self.pool)
            .await?;
        self.with_reasons(rows).await
    }

    async fn with_reasons(&self, rows: Vec<Listed>) -> Result<Vec<PipelineListing>> {
        let waiting: Vec<Uuid> = rows.iter().filter(|row| row.may_wait).map(|row| row.id).collect();
        let mut reasons = self.reasons(&waiting).await?;
        let listing = |row: Listed| {
            let waiting = reasons.remove(&row.id);
            Ok(PipelineListing { waiting, ..PipelineListing::try_from(row)? })
        };
        rows.into_iter().map(listing).collect()
    }

    /// Many at once, in any order: one look serves many callers.
    pub async fn listings_of(&self, references: &[PipelineRef]) -> Result<Vec<PipelineListing>> {
        let sql = format!(
            "select {} from etl.etl_pipelines p cross join lateral (
                    select p.name as key, {EFFECTIVE_TARGET} as target) k
              where (p.id = any($1) or p.name = any($2)) and {}",
            columns(),
            within("p", 3),
        );
        let ids: Vec<Uuid> = references.iter().filter_map(PipelineRef::id).collect();
        let names: Vec<&str> = references.iter().filter_map(PipelineRef::name).collect();
        let rows: Vec<Listed> = sqlx::query_as(sqlx::AssertSqlSafe(sql))
            .bind(ids)
            .bind(names)
            .bind(self.scope.tags())
            .fetch_all(&self.pool)
            .await?;
        self.with_reasons(rows).await
    }

    /// The pipelines of a choice with all of their configuration.
    pub async fn pipelines(&self, choice: &PipelineChoice) -> Result<Vec<PipelineRecord>> {
        let sql = select(choice, &as_document());
        let rows: Vec<(Json<PipelineRecord>,)> =
            bound(sqlx::query_as(sqlx::AssertSqlSafe(sql)), choice, &self.scope)
                .fetch_all(&self.pool)
                .await?;
        Ok(rows.into_iter().map(|(Json(record),)| record).collect())
    }
}

fn select(choice: &PipelineChoice, what: &str) -> String {
    let (before, direction) = if choice.descending { ("<", "desc") } else { (">", "asc") };
    format!(
        "select {what} from etl.etl_pipelines p cross join lateral (
                select {key} as key, {EFFECTIVE_TARGET} as target) k
          where ($1::text is null or p.status = $1)
            and ($2::text is null or position(lower($2) in lower(p.name || ' ' || p.description)) > 0)
            and ($3::text is null or $3 = any(p.tags))
            and ($4::text is null or k.target = $4) and {within}
            and ($5::text is null or (k.key collate \"C\", p.name collate \"C\") {before} ($5, $6))
          order by k.key collate \"C\" {direction}, p.name collate \"C\" {direction} limit $7",
        key = choice.order.key(),
        within = within("p", 8),
    )
}

fn bound<'q, T>(
    query: QueryAs<'q, sqlx::Postgres, T, PgArguments>,
    choice: &PipelineChoice,
    scope: &Scope,
) -> QueryAs<'q, sqlx::Postgres, T, PgArguments> {
    let PipelineChoice { status, q, tag, target, after, limit, .. } = choice.clone();
    let (key, name) = after.unzip();
    query
        .bind(status.map(Status::as_str))
        .bind(q)
        .bind(tag)
        .bind(target)
        .bind(key)
        .bind(name)
        .bind(limit)
        .bind(scope.tags())
}

impl TryFrom<Listed> for PipelineListing {
    type Error = Error;

    fn try_from(row: Listed) -> Result<Self> {
        let unusable = |error: vitrina_core::UnknownWord| Error::Unusable(error.to_string());
        Ok(Self {
            key: row.key,
            id: PipelineId(row.id),
            name: row.name,
            description: row.description,
            tags: row.tags,
            kind: row.kind.parse().map_err(unusable)?,
            status: row.status.parse().map_err(unusable)?,
            enabled: row.enabled,
            mode: row.mode.parse().map_err(unusable)?,
            target: row.target,
            schedule_interval: row.schedule_interval,
            next_run_at: row.next_run_at.map(moment).transpose()?,
            schedule_error: row.schedule_error,
            run_id: row.run_id.map(RunId),
            cancel_requested: row.cancel_requested,
            pending: row.pending,
            retry_at: row.retry_at.map(moment).transpose()?,
            stalls: row.stalls,
            last_run: row.last_run.map(|Json(run)| run),
            last_verdict: row.last_verdict.map(|Json(verdict)| verdict),
            waiting: None,
            next_reconcile_at: row.next_reconcile_at.map(moment).transpose()?,
            reconcile_schedule_error: row.reconcile_schedule_error,
            full_schedule: row.full_schedule,
            next_full_run_at: row.next_full_run_at.map(moment).transpose()?,
            full_schedule_error: row.full_schedule_error,
            freshness_limit_seconds: row.freshness_limit_seconds,
            lag_seconds: row.lag_seconds.filter(|_| row.as_of.is_some()),
            as_of: row.as_of.map(moment).transpose()?,
            version: row.version,
            created_at: moment(row.created_at)?,
            updated_at: moment(row.updated_at)?,
        })
    }
}

impl From<PipelineRecord> for PipelineListing {
    fn from(record: PipelineRecord) -> Self {
        Self {
            key: record.config.name.clone(),
            id: record.config.id,
            target: record.config.effective_target().to_owned(),
            name: record.config.name,
            description: record.config.description,
            tags: record.config.tags,
            kind: record.config.kind,
            status: record.status,
            enabled: record.config.enabled,
            mode: record.config.mode,
            schedule_interval: record.config.schedule_interval,
            next_run_at: record.next_run_at,
            schedule_error: record.schedule_error,
            run_id: record.run_id,
            cancel_requested: record.cancel_requested,
            pending: record.pending_request.is_some(),
            retry_at: record.retry_at,
            stalls: record.stalls,
            last_run: record.last_run,
            last_verdict: record.last_verdict,
            waiting: record.waiting,
            next_reconcile_at: record.next_reconcile_at,
            reconcile_schedule_error: record.reconcile_schedule_error,
            full_schedule: record.config.full_schedule,
            next_full_run_at: record.next_full_run_at,
            full_schedule_error: record.full_schedule_error,
            freshness_limit_seconds: record.config.freshness_limit_seconds,
            as_of: record.as_of,
            lag_seconds: record.lag_seconds,
            version: record.version,
            created_at: record.created_at,
            updated_at: record.updated_at,
        }
    }
}

fn moment(micros: i64) -> Result<Timestamp> {
    Timestamp::from_microsecond(micros).map_err(|error| Error::Unusable(error.to_string()))
}
