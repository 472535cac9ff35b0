//! Who works here: runners announce themselves and what they can run.

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::{Result, RunnerAbilities, Store, from_documents};

#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct RunnerRecord {
    pub name: String,
    pub version: String,
    pub host: String,
    pub pid: i32,
    pub max_concurrent: i32,
    pub active_runs: i32,
    /// Pipelines that others left behind, since it started.
    pub taken_over: i64,
    pub connections: Vec<String>,
    pub python_tasks: Vec<String>,
    pub status: String,
    /// What it found at its connections when it started: what is wrong, or nothing.
    #[serde(default)]
    pub health: BTreeMap<String, Option<String>>,
    pub started_at: Timestamp,
    pub heartbeat_at: Timestamp,
    /// The heartbeat is recent by the database's clock.
    pub alive: bool,
}

impl Store {
    /// Announces a runner that starts. A drain that was asked of an earlier one of this name is over.
    pub async fn announce(&self, runner: &RunnerAbilities, max_concurrent: usize) -> Result<()> {
        sqlx::query(
            "insert into etl.etl_runners (name, version, host, pid, max_concurrent, connections, python_tasks)
             values ($1, $2, $3, $4, $5, $6, $7)
             on conflict (name) do update
                set version = excluded.version, host = excluded.host, pid = excluded.pid, status = 'READY',
                    max_concurrent = excluded.max_concurrent, active_runs = 0, taken_over = 0, drain_requested = false,
                    connections = excluded.connections, python_tasks = excluded.python_tasks,
                    started_at = clock_timestamp(), heartbeat_at = clock_timestamp()",
        )
        .bind(&runner.name)
        .bind(env!("CARGO_PKG_VERSION"))
        .bind(host())
        .bind(std::process::id() as i32)
        .bind(max_concurrent as i32)
        .bind(&runner.connections)
        .bind(&runner.python_tasks)
        .execute(&self.pool)
        .await?;
        Ok(())
    }

    /// A runner tells that it is still there; answers whether it shall drain, `None` if it was forgotten meanwhile.
    pub async fn still_here(
        &self,
        runner: &str,
        active_runs: usize,
        taken_over: u64,
    ) -> Result<Option<bool>> {
        let drain = sqlx::query_scalar(
            "update etl.etl_runners set active_runs = $2, taken_over = $3, heartbeat_at = clock_timestamp(),
                    status = case when drain_requested then 'DRAINING' else 'READY' end
              where name = $1 returning drain_requested",
        )
        .bind(runner)
        .bind(active_runs as i32)
        .bind(taken_over as i64)
        .fetch_optional(&self.pool)
        .await?;
        Ok(drain)
    }

    /// Asks a runner to hand its pipelines back and stop; one that has stopped is left as it is.
    pub async fn request_drain(&self, runner: &str) -> Result<Option<RunnerRecord>> {
        sqlx::query(
            "update etl.etl_runners set drain_requested = true, status = 'DRAINING' where name = $1 and status <> 'STOPPED'",
        )
        .bind(runner)
        .execute(&self.pool)
        .await?;
        Ok(self.runners().await?.into_iter().find(|found| found.name == runner))
    }

    /// What a runner found at its connections when it started: what is wrong, or null. Runners that have
    /// been silent for a day are forgotten on this occasion.
    pub async fn note_health(
        &self,
        runner: &str,
        health: &BTreeMap<String, Option<&'static str>>,
    ) -> Result<()> {
        sqlx::query("delete from etl.etl_runners where heartbeat_at < clock_timestamp() - interval '1 day'")
            .execute(&self.pool)
            .await?;
        sqlx::query("update etl.etl_runners set health = $2 where name = $1")
            .bind(runner)
            .bind(serde_json::to_value(health)?)
            .execute(&self.pool)
            .await?;
        Ok(())
    }

    /// Says that this process stops; another one of the same name may have started meanwhile.
    pub async fn farewell(&self, runner: &str) -> Result<()> {
        sqlx::query("update etl.etl_runners set status = 'STOPPED', active_runs = 0, heartbeat_at = clock_timestamp() where name = $1 and pid = $2 and host = $3")
            .bind(runner)
            .bind(std::process::id() as i32)
            .bind(host())
            .execute(&self.pool)
            .await?;
        Ok(())
    }

    pub async fn runners(&self) -> Result<Vec<RunnerRecord>> {
        let documents: Vec<Value> = sqlx::query_scalar(
            "select to_jsonb(r) || jsonb_build_object('alive',
                        r.status <> 'STOPPED' and r.heartbeat_at > clock_timestamp() - interval '30 seconds')
               from etl.etl_runners r order by name",
        )
        .fetch_all(&self.pool)
        .await?;
        from_documents(documents)
    }
}

fn host() -> String {
    std::fs::read_to_string("/proc/sys/kernel/hostname")
        .map_or_else(|_| std::env::var("HOSTNAME").unwrap_or_default(), |name| name.trim().to_owned())
}
