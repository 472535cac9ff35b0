//! Who may claim what: pipelines that may be what kills their runners, and those whose owner is silent.

use std::time::Duration;

use uuid::Uuid;
use vitrina_core::{LeaseToken, PipelineId};

use crate::waiting::has_all;
use crate::{Result, RunnerAbilities, Store};

/// A pipeline whose lease has expired this often without a committed batch in between may be what kills its runners.
pub(crate) const SUSPECT: i32 = 2;
/// So often it may do that to a runner that had nothing else to do.
pub(crate) const LONE_STALLS: i32 = 5;

/// On which terms a runner takes work.
#[derive(Debug, Clone)]
pub struct Terms {
    pub lease_length: Duration,
    pub suspects: Suspects,
    /// What others have left behind, too.
    pub takeovers: bool,
    /// Its own already, whatever the lease says.
    pub besides: Vec<Uuid>,
}

/// Pipelines that may be what kills their runners.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Suspects {
    /// Only to stop them.
    Never,
    Too,
    Only,
}

impl Terms {
    /// Those of a runner that has nothing to do.
    pub fn idle(lease_length: Duration) -> Self {
        Self { lease_length, suspects: Suspects::Too, takeovers: true, besides: Vec::new() }
    }

    /// Those of a runner that has other work.
    pub fn busy(lease_length: Duration) -> Self {
        Self { suspects: Suspects::Never, ..Self::idle(lease_length) }
    }
}

/// A pipeline whose owner is silent, and who cannot be replaced yet.
#[derive(Debug, Clone)]
pub struct Silent {
    pub pipeline: PipelineId,
    pub token: LeaseToken,
    pub connections: Vec<String>,
}

impl Store {
    /// Pipelines with an expired lease that nobody has claimed, of those that this runner could.
    pub async fn silent(&self, runner: &RunnerAbilities) -> Result<Vec<Silent>> {
        let rows: Vec<(Uuid, i64, Vec<String>)> = sqlx::query_as(
            "select id, lease_token, connections_needed from etl.etl_pipelines
              where status in ('RUNNING', 'PAUSE_REQUESTED') and lease_until < clock_timestamp()
                and connections_needed <@ $1",
        )
        .bind(&runner.connections)
        .fetch_all(&self.pool)
        .await?;
        let silent = |(pipeline, token, connections)| Silent {
            pipeline: PipelineId(pipeline),
            token: LeaseToken(token),
            connections,
        };
        Ok(rows.into_iter().map(silent).collect())
    }

    /// For how long a suspect that this runner could execute has waited for one that is idle.
    pub async fn suspect_waits(&self, runner: &RunnerAbilities) -> Result<Option<Duration>> {
        let sql = format!(
            "select extract(epoch from clock_timestamp() - min(since))::float8
               from (select case p.status when 'RUN_REQUESTED' then greatest(p.requested_at, p.retry_at) else p.lease_until end as since
                       from etl.etl_pipelines p
                      where p.status in ('RUN_REQUESTED', 'RUNNING') and {able}
                        and p.stalls + (p.status <> 'RUN_REQUESTED')::int >= $3) waiting
              where since < clock_timestamp()",
            able = has_all("$1", "$2"),
        );
        let seconds: Option<f64> = sqlx::query_scalar(sqlx::AssertSqlSafe(sql))
            .bind(&runner.connections)
            .bind(&runner.python_tasks)
            .bind(SUSPECT)
            .fetch_one(&self.pool)
            .await?;
        Ok(seconds.and_then(|seconds| Duration::try_from_secs_f64(seconds).ok()))
    }
}
