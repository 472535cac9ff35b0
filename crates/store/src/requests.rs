//! What only a runner can answer: the API leaves a request, a runner takes it under a lease, and whoever waits reads the
//! answer. A request that nobody takes in time expires.

use std::time::Duration;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use sqlx::PgConnection;
use uuid::Uuid;
use vitrina_core::{Owner, PipelineId};

use crate::{Error, Result, RunnerAbilities, Store};

/// How long an answer is kept.
const KEPT: &str = "1 day";

/// Something to be asked.
#[derive(Debug, Clone)]
pub struct Request {
    pub kind: &'static str,
    pub pipeline: Option<PipelineId>,
    pub payload: Value,
    /// Only a runner that has these can answer.
    pub connections: Vec<String>,
    /// The same of Python functions.
    pub python_tasks: Vec<String>,
    /// After so long nobody wants to know any more.
    pub expires_in: Duration,
    pub requested_by: String,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct RequestRecord {
    pub id: Uuid,
    pub kind: String,
    /// `REQUESTED`, `RUNNING`, `DONE`, `FAILED` or `EXPIRED`.
    pub status: String,
    pub answer: Option<Value>,
    pub error_code: Option<String>,
    pub error: Option<String>,
    /// The runner that took it.
    pub runner: Option<String>,
    pub requested_at: Timestamp,
    pub finished_at: Option<Timestamp>,
}

impl RequestRecord {
    pub fn is_open(&self) -> bool {
        matches!(self.status.as_str(), "REQUESTED" | "RUNNING")
    }
}

/// A request that a runner holds.
#[derive(Debug, Clone)]
pub struct TakenRequest {
    pub id: Uuid,
    pub kind: String,
    pub payload: Value,
    pub owner: Owner,
    /// What tells the meta-store from others, now.
    pub installation: Uuid,
}

/// The oldest request that this runner can answer and nobody else holds.
const TAKE: &str = "
with chosen as materialized (
    select id from etl.etl_requests
     where (status = 'REQUESTED' or (status = 'RUNNING' and lease_until < clock_timestamp()))
       and expires_at > clock_timestamp() and connections_needed <@ $3 and tasks_needed <@ $5
     order by requested_at limit 1 for update skip locked)
update etl.etl_requests r
   set status = 'RUNNING', owner = $1, runner = $2, lease_token = lease_token + 1,
       lease_until = clock_timestamp() + $4 * interval '1 second'
  from chosen where r.id = chosen.id
returning r.id, r.kind, r.payload, (select id from etl.etl_installation)";

impl Store {
    /// Leaves a request for a runner.
    pub async fn ask(&self, request: &Request) -> Result<Uuid> {
        let mut connection = self.pool.acquire().await?;
        leave(&mut connection, request).await
    }

    pub async fn request_of(&self, id: Uuid) -> Result<Option<RequestRecord>> {
        let document: Option<Value> =
            sqlx::query_scalar("select to_jsonb(r) - 'payload' from etl.etl_requests r where id = $1")
                .bind(id)
                .fetch_optional(&self.pool)
                .await?;
        Ok(document.map(serde_json::from_value).transpose()?)
    }

    pub async fn take_request(
        &self,
        runner: &RunnerAbilities,
        lease: Duration,
    ) -> Result<Option<TakenRequest>> {
        let owner = Owner::draw();
        let taken: Option<(Uuid, String, Value, Uuid)> = sqlx::query_as(TAKE)
            .bind(owner.0)
            .bind(&runner.name)
            .bind(&runner.connections)
            .bind(lease.as_secs_f64())
            .bind(&runner.python_tasks)
            .fetch_optional(&self.pool)
            .await?;
        let request =
            |(id, kind, payload, installation)| TakenRequest { id, kind, payload, owner, installation };
        Ok(taken.map(request))
    }

    /// Keeps a request that takes long.
    pub async fn keep_request(&self, taken: &TakenRequest, lease: Duration) -> Result<()> {
        let kept = sqlx::query(
            "update etl.etl_requests set lease_until = clock_timestamp() + $3 * interval '1 second'
              where id = $1 and owner = $2",
        )
        .bind(taken.id)
        .bind(taken.owner.0)
        .bind(lease.as_secs_f64())
        .execute(&self.pool)
        .await?;
        if kept.rows_affected() == 1 { Ok(()) } else { Err(Error::LeaseLost) }
    }

    /// `Err` is a code and a text for people.
    pub async fn answer(&self, taken: &TakenRequest, answer: Result<Value, (&str, String)>) -> Result<()> {
        let (status, answer, code, error) = match answer {
            Ok(answer) => ("DONE", Some(answer), None, None),
            Err((code, error)) => ("FAILED", None, Some(code), Some(error)),
        };
        let answered = sqlx::query(
            "update etl.etl_requests
                set status = $3, answer = $4, error_code = $5, error = left($6, 4000), owner = null, lease_until = null,
                    finished_at = clock_timestamp()
              where id = $1 and owner = $2",
        )
        .bind(taken.id)
        .bind(taken.owner.0)
        .bind(status)
        .bind(answer)
        .bind(code)
        .bind(error)
        .execute(&self.pool)
        .await?;
        if answered.rows_affected() == 1 { Ok(()) } else { Err(Error::LeaseLost) }
    }

    /// Closes what nobody has answered in time, and forgets what was answered long ago.
    pub async fn tidy_requests(&self) -> Result<()> {
        sqlx::query(
            "update etl.etl_requests set status = 'EXPIRED', owner = null, lease_until = null, finished_at = clock_timestamp()
              where status in ('REQUESTED', 'RUNNING') and expires_at < clock_timestamp()
                and (lease_until is null or lease_until < clock_timestamp())",
        )
        .execute(&self.pool)
        .await?;
        let sql =
            format!("delete from etl.etl_requests where finished_at < clock_timestamp() - interval '{KEPT}'");
        sqlx::query(sqlx::AssertSqlSafe(sql)).execute(&self.pool).await?;
        Ok(())
    }
}

pub(crate) async fn leave(connection: &mut PgConnection, request: &Request) -> Result<Uuid> {
    let id = Uuid::now_v7();
    sqlx::query(
        "insert into etl.etl_requests (id, kind, pipeline_id, payload, connections_needed, requested_by, expires_at, tasks_needed)
         values ($1, $2, $3, $4, $5, $6, clock_timestamp() + $7 * interval '1 second', $8)",
    )
    .bind(id)
    .bind(request.kind)
    .bind(request.pipeline.map(|pipeline| pipeline.0))
    .bind(&request.payload)
    .bind(&request.connections)
    .bind(&request.requested_by)
    .bind(request.expires_in.as_secs_f64())
    .bind(&request.python_tasks)
    .execute(connection)
    .await?;
    Ok(id)
}
