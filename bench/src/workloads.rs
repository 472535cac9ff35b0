//! The list of workloads. Later ones join it here.

use anyhow::Result;

use crate::ground::Ground;
use crate::report::Measured;
use crate::runner_process::RunnerProcess;

pub(crate) struct Workload {
    pub(crate) name: &'static str,
    pipeline: &'static str,
    mart: &'static str,
    /// The mart is filled once before the measurement.
    filled: bool,
}

pub(crate) static ALL: &[Workload] = &[
    Workload { name: "full-empty", pipeline: "film_dim_full", mart: "analytics.film_dim", filled: false },
    Workload { name: "full-unchanged", pipeline: "film_dim_full", mart: "analytics.film_dim", filled: true },
    Workload {
        name: "aggregate",
        pipeline: "film_rating_agg_full",
        mart: "analytics.film_rating_agg",
        filled: false,
    },
];

impl Workload {
    pub(crate) async fn measure(&self, ground: &Ground) -> Result<Measured> {
        let runner = RunnerProcess::start(&ground.url)?;
        ground.sql(&format!("truncate {}", self.mart))?;
        if self.filled {
            runner.run(&ground.store, self.pipeline).await?;
        }
        ground.sql(&format!("vacuum analyze {}", self.mart))?;
        ground.sql("checkpoint")?;
        let run = runner.run(&ground.store, self.pipeline).await?;
        let usage = runner.usage()?;
        let seconds = match (run.started_at, run.finished_at) {
            (Some(started), Some(finished)) => finished.duration_since(started).as_secs_f64(),
            _ => anyhow::bail!("the run has no times"),
        };
        let limit_seconds = self.limit(ground).await?;
        Ok(Measured {
            workload: self.name.to_owned(),
            rows: run.rows_read,
            seconds,
            limit_seconds,
            ratio: seconds / limit_seconds,
            cpu_seconds: usage.cpu_seconds,
            peak_rss_mb: usage.peak_rss_mb,
        })
    }

    /// What cannot be beaten from outside: the query's rows through a pipe of two psql, straight into an
    /// empty table with the mart's key; where the mart is filled, into a bare table and on by one upsert
    /// that rewrites nothing.
    async fn limit(&self, ground: &Ground) -> Result<f64> {
        let query = ground
            .store
            .pipeline(&vitrina_store::PipelineRef::from(self.pipeline))
            .await?
            .config
            .reader_sql();
        let query = query.unwrap_or_default();
        let columns = format!("create table bench.rows as select * from ({query}) q limit 0");
        ground.sql(&format!(
            "create schema if not exists bench;\ndrop table if exists bench.rows;\n{columns}"
        ))?;
        if !self.filled {
            ground.sql("alter table bench.rows add primary key (film_id)")?;
        }
        let piped = ground.pipe(&query, "bench.rows")?;
        let merged =
            if self.filled { ground.timed_sql(&upsert(self.mart))? } else { std::time::Duration::ZERO };
        ground.sql("drop table bench.rows")?;
        Ok((piped + merged).as_secs_f64())
    }
}

fn upsert(mart: &str) -> String {
    let columns = "title, description, rating, type, genres, directors, actors, writers";
    let image = |alias: &str| {
        format!(
            "row({})::record",
            columns.split(", ").map(|column| format!("{alias}.{column}")).collect::<Vec<_>>().join(", ")
        )
    };
    format!(
        "insert into {mart} as t (film_id, {columns}) select film_id, {columns} from bench.rows
         on conflict (film_id) do update set title = excluded.title where {} *<> {}",
        image("t"),
        image("excluded")
    )
}
