//! Many pipelines and several runners: how fast they are claimed, how fast they run, and how soon a request is served.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use serde_json::json;
use tokio::task::JoinSet;
use tokio_postgres::NoTls;
use vitrina_core::{OnActive, PipelineId};
use vitrina_store::{PipelineRef, RunRequest, RunnerAbilities, Store, Terms};

use crate::ground::Ground;
use crate::report::Measured;
use crate::runner_process::RunnerProcess;

pub(crate) const NAMES: [&str; 3] = ["claims", "fleet", "wake"];

const PIPELINES: usize = 500;
const RUNNERS: usize = 4;
/// Claims a second that the meta-store has to give at least.
const RATE: f64 = 300.0;
/// From a request to the first batch, of an idle runner.
const WAKE_LIMIT: f64 = 0.1;
const WAKES: u32 = 20;

const MARTS: &str = "create table if not exists analytics.fleet (id int primary key, modified timestamptz);
    create table if not exists content.fleet (id int primary key, modified timestamptz not null default now());
    insert into content.fleet select n from generate_series(1, 10) n on conflict do nothing";

/// What a job of cron would do instead of a pipeline.
const JOB: &str = "insert into analytics.fleet select id, modified from content.fleet where modified >= now() - interval '10 minutes'
    on conflict (id) do update set modified = excluded.modified where fleet.modified is distinct from excluded.modified";

pub(crate) async fn measure(name: &str, ground: &Ground) -> Result<Measured> {
    ground.sql(MARTS)?;
    match name {
        "claims" => claims(name, ground).await,
        "fleet" => fleet(name, ground).await,
        _ => wake(name, ground).await,
    }
}

/// The statement alone, by several sessions at once.
async fn claims(name: &str, ground: &Ground) -> Result<Measured> {
    let pipelines = pipelines(ground, name, PIPELINES).await?;
    request(ground, &pipelines).await?;
    let mut stores = Vec::new();
    for _ in 0..RUNNERS {
        stores.push(Store::connect(&ground.url, "vitrina-bench", 1).await?);
    }
    let started = Instant::now();
    let mut claimers: JoinSet<Result<Vec<PipelineId>>> = JoinSet::new();
    for store in stores {
        claimers.spawn(async move {
            let connections = vec!["cinema".to_owned(), "marts".to_owned()];
            let runner =
                RunnerAbilities { name: "bench".to_owned(), connections, ..RunnerAbilities::default() };
            let mut claimed = Vec::new();
            while let Some(claim) = store.claim(&runner, &Terms::busy(Duration::from_secs(60))).await? {
                claimed.push(claim.lease.pipeline);
            }
            Ok(claimed)
        });
    }
    let mut claimed = Vec::new();
    while let Some(ended) = claimers.join_next().await {
        claimed.extend(ended??);
    }
    let seconds = started.elapsed().as_secs_f64();
    claimed.sort_unstable_by_key(|id| id.0);
    claimed.dedup();
    ensure!(claimed.len() == PIPELINES, "{} of {PIPELINES} pipelines were claimed", claimed.len());
    forget(ground, name)?;
    Ok(Measured::new(name, PIPELINES as u64, seconds, PIPELINES as f64 / RATE))
}

/// Whole runs that find nothing to do, by runners of their own, beside as many calls of psql.
async fn fleet(name: &str, ground: &Ground) -> Result<Measured> {
    let pipelines = pipelines(ground, name, PIPELINES).await?;
    let mut runners = Vec::new();
    for _ in 0..RUNNERS {
        runners.push(RunnerProcess::start(&ground.url)?);
    }
    request(ground, &pipelines).await?;
    idle(ground, name).await?;
    request(ground, &pipelines).await?;
    idle(ground, name).await?;
    let (seconds, twice): (f64, i64) = figures(ground, name).await?;
    ensure!(twice == 0, "{twice} runs have more than one attempt");
    let usage = runners.first().context("a runner")?.usage()?;
    drop(runners);
    forget(ground, name)?;
    let limit_seconds = ground.jobs(JOB, PIPELINES, RUNNERS)?.as_secs_f64();
    Ok(Measured::new(name, PIPELINES as u64, seconds, limit_seconds).by(&usage))
}

async fn wake(name: &str, ground: &Ground) -> Result<Measured> {
    pipelines(ground, name, 1).await?;
    let runner = RunnerProcess::start(&ground.url)?;
    let pipeline = format!("{name}-0");
    runner.run(&ground.store, &pipeline).await?;
    let mut waited = Vec::new();
    for _ in 0..WAKES {
        ground.sql("update content.fleet set modified = now()")?;
        let run = runner.run(&ground.store, &pipeline).await?;
        let (client, _driver) = session(ground).await?;
        let sql = "select extract(epoch from min(b.committed_at) - r.requested_at)::float8
                     from etl.etl_runs r join etl.etl_batches b on b.run_id = r.id where r.id = $1 group by r.requested_at";
        waited.push(client.query_one(sql, &[&run.id.0]).await?.get::<_, f64>(0));
    }
    waited.sort_unstable_by(f64::total_cmp);
    let median = waited[waited.len() / 2];
    let usage = runner.usage()?;
    drop(runner);
    forget(ground, name)?;
    Ok(Measured::new(name, 10, median, WAKE_LIMIT).by(&usage))
}

async fn pipelines(ground: &Ground, name: &str, count: usize) -> Result<Vec<PipelineId>> {
    let mut ids = Vec::new();
    ground.marts_like("analytics.fleet", count)?;
    for number in 0..count {
        let name = format!("{name}-{number}");
        let pipeline = json!({
            "name": name, "source_query": "select id, modified from content.fleet",
            "target_table": format!("analytics.fleet_{number}"),
            "mode": "incremental", "incremental_key": "modified", "incremental_id_key": "id",
        });
        ground.pipeline(&pipeline).await?;
        ids.push(ground.store.pipeline(&PipelineRef::from(name.as_str())).await?.config.id);
    }
    Ok(ids)
}

async fn request(ground: &Ground, pipelines: &[PipelineId]) -> Result<()> {
    for id in pipelines {
        ground.store.request_run(*id, OnActive::Reject, &RunRequest::default()).await?;
    }
    Ok(())
}

/// Returns when all of them have ended well.
async fn idle(ground: &Ground, name: &str) -> Result<()> {
    let mut wakeups = ground.store.wakeups().await?;
    let (client, _driver) = session(ground).await?;
    let sql = "select count(*) filter (where status = 'IDLE'), count(*) filter (where status = 'FAILED')
                 from etl.etl_pipelines where name like $1 || '-%'";
    loop {
        let row = client.query_one(sql, &[&name]).await?;
        let (idle, failed): (i64, i64) = (row.get(0), row.get(1));
        ensure!(failed == 0, "{failed} pipelines have failed");
        if idle == PIPELINES as i64 {
            return Ok(());
        }
        wakeups.next().await;
    }
}

/// Seconds from the first claim of the second round to its last end, and runs with more than one attempt.
async fn figures(ground: &Ground, name: &str) -> Result<(f64, i64)> {
    let (client, _driver) = session(ground).await?;
    let sql = "with last as (
                   select distinct on (r.pipeline_id) r.* from etl.etl_runs r join etl.etl_pipelines p on p.id = r.pipeline_id
                    where p.name like $1 || '-%' order by r.pipeline_id, r.requested_at desc)
               select extract(epoch from max(finished_at) - min(started_at))::float8,
                      (select count(*) from (select from etl.etl_attempts join last on last.id = run_id group by run_id having count(*) > 1) t)
                 from last";
    let row = client.query_one(sql, &[&name]).await?;
    Ok((row.get(0), row.get(1)))
}

async fn session(ground: &Ground) -> Result<(tokio_postgres::Client, JoinSet<()>)> {
    let (client, connection) = tokio_postgres::connect(&ground.url, NoTls).await?;
    let mut driver = JoinSet::new();
    driver.spawn(async move { drop(connection.await) });
    Ok((client, driver))
}

fn forget(ground: &Ground, name: &str) -> Result<()> {
    ground.sql(&format!("delete from etl.etl_pipelines where name like '{name}-%'"))
}
