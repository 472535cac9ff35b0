//! How pipelines and runners stand at this moment, in one look, for whoever plots it.

use serde::Deserialize;
use serde_json::Value;
use uuid::Uuid;
use vitrina_core::Status;

use crate::reconciles::last_verdict;
use crate::scope::within;
use crate::waiting::may_wait;
use crate::{LastVerdict, Result, Store, Waiting};

#[derive(Debug, Clone, Deserialize)]
pub struct Gauges {
    pub pipelines: Vec<PipelineGauges>,
    /// Those that have not said good-bye; none within a scope, which runners are not in.
    pub runners: Vec<RunnerGauges>,
}

/// Moments as seconds since 1970, by the meta-store's clock.
#[derive(Debug, Clone, Deserialize)]
pub struct PipelineGauges {
    pub id: Uuid,
    pub name: String,
    pub status: Status,
    pub enabled: bool,
    /// What the source had committed before is in the target.
    pub as_of: Option<f64>,
    /// Seconds since then.
    pub lag: Option<f64>,
    /// How many of them it may have.
    pub freshness_limit: Option<f64>,
    /// The end of its last successful run that was no backfill.
    pub last_success: Option<f64>,
    /// Open rejects that nobody has acknowledged.
    pub rejected: u64,
    /// Of the newest reconcile.
    pub verdict: Option<LastVerdict>,
    /// Why nobody executes what it waits for.
    #[serde(default)]
    pub waiting: Option<Waiting>,
    may_wait: bool,
}

#[derive(Debug, Clone, Deserialize)]
pub struct RunnerGauges {
    pub name: String,
    pub heartbeat: f64,
    pub active_runs: i32,
}

/// The limit is read by name, so that a schema without that column has none.
fn gauges() -> String {
    format!(
        "
select jsonb_build_object(
    'pipelines', (
        select coalesce(jsonb_agg(jsonb_build_object(
                   'id', p.id, 'name', p.name, 'may_wait', {may_wait}, 'status', p.status, 'enabled', p.enabled,
                   'as_of', extract(epoch from s.as_of),
                   'lag', case when s.as_of is not null then greatest(0, extract(epoch from clock_timestamp() - s.as_of)) end,
                   'freshness_limit', p.freshness_limit_seconds,
                   'last_success', (
                       select extract(epoch from r.finished_at) from etl.etl_runs r
                        where r.pipeline_id = p.id and r.status = 'SUCCESS' and r.keys is null and r.backfill_range is null
                        order by r.requested_at desc limit 1),
                   'rejected', coalesce(j.open, 0), 'verdict', {last_verdict}) order by p.name), '[]')
          from etl.etl_pipelines p
          join etl.etl_state s on s.pipeline_id = p.id
          left join (select pipeline_id, count(*) as open from etl.etl_rejects where acknowledged_at is null group by 1) j
            on j.pipeline_id = p.id
         where {within}),
    'runners', (
        select coalesce(jsonb_agg(jsonb_build_object('name', name, 'heartbeat', extract(epoch from heartbeat_at),
                                                     'active_runs', active_runs) order by name), '[]')
          from etl.etl_runners where status <> 'STOPPED' and $1::text[] is null))",
        may_wait = may_wait(),
        last_verdict = last_verdict(),
        within = within("p", 1),
    )
}

impl Store {
    pub async fn gauges(&self) -> Result<Gauges> {
        let read = sqlx::query_scalar(sqlx::AssertSqlSafe(gauges())).bind(self.scope.tags());
        let document: Value = read.fetch_one(&self.pool).await?;
        let mut gauges: Gauges = serde_json::from_value(document)?;
        let waiting: Vec<Uuid> = gauges
            .pipelines
            .iter()
            .filter(|pipeline| pipeline.may_wait)
            .map(|pipeline| pipeline.id)
            .collect();
        let mut reasons = self.reasons(&waiting).await?;
        for pipeline in &mut gauges.pipelines {
            pipeline.waiting = reasons.remove(&pipeline.id);
        }
        Ok(gauges)
    }
}
