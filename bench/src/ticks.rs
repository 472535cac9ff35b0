//! What following a source costs it: the time of all statements of an idle run, and a thousand changes of a
//! million rows beside a plain read and upsert of the same.

use std::fs;
use std::path::PathBuf;

use anyhow::{Context, Result};
use serde_json::{Value, json};
use tokio::task::JoinSet;
use tokio_postgres::NoTls;
use vitrina_connectors::Connection;
use vitrina_connectors::sources::changelog::{Desk, Logged};

use crate::clock::steady;
use crate::ground::Ground;
use crate::report::Measured;
use crate::runner_process::RunnerProcess;
use crate::workloads::{self, Workload};

pub(crate) const NAMES: [&str; 5] =
    ["tick-cursor", "tick-changelog", "changes-cursor", "changes-changelog", "logged-update"];

const TICKS: u32 = 20;
/// Of changes and their limit in turn.
const ROUNDS: usize = 3;
/// Of the source's own time.
const CURSOR_LIMIT: f64 = 0.005;
const CHANGELOG_LIMIT: f64 = 0.002;
const CHANGE: &str = "update content.film_work set title = title || '.', modified = now() where id in (select id from content.film_work order by id offset 500 limit 1000)";

/// Rows that a pass finds in its late window, and need not read again.
const IN_WINDOW: &str = "update content.film_work set modified = now() where id in (select id from content.film_work order by id limit 20000)";
const OLD_CHANGES: &str = "insert into vitrina_log.change_log (source, key, kid, op, xid)
    select 'content.film_work(id)', jsonb_build_array(n::text), n, 'U', '3' from generate_series(1, greatest(1, $rows)) n";

pub(crate) async fn measure(name: &str, ground: &Ground, scale: f64) -> Result<Measured> {
    if name == "logged-update" {
        return logged_update(name, ground).await;
    }
    let by_log = name.ends_with("changelog");
    let source = SourceLog::open(ground)?;
    ground.sql("truncate analytics.films")?;
    if by_log {
        install(ground).await?;
    }
    let runner = RunnerProcess::start_reading(&ground.url, &source.url)?;
    ground.pipeline(&pipeline(name, by_log)).await?;
    runner.run(&ground.store, name).await?;
    match name {
        "tick-cursor" | "tick-changelog" => {
            let rows = if by_log { 1_000_000.0 * scale } else { 20_000.0 * scale };
            tick(name, ground, &runner, source, by_log, rows).await
        }
        _ => changes(name, ground, &runner).await,
    }
}

fn pipeline(name: &str, by_log: bool) -> Value {
    let mut pipeline = json!({
        "name": name, "source_query": workloads::FILMS, "target_table": "analytics.films", "mode": "incremental", "batch_size": 1000,
        "incremental_key": "modified", "incremental_id_key": "id",
    });
    if by_log {
        pipeline["capture"] = json!("changelog");
    }
    pipeline
}

/// An old transaction stays open all the time: nobody may have to look at all that came after it.
async fn tick(
    name: &str,
    ground: &Ground,
    runner: &RunnerProcess,
    mut source: SourceLog,
    by_log: bool,
    rows: f64,
) -> Result<Measured> {
    if by_log {
        ground.sql(&OLD_CHANGES.replace("$rows", &format!("{rows:.0}")))?;
        ground.sql("analyze vitrina_log.change_log")?;
    } else {
        // The updates of other workloads have left holes all over the table; a service's own changes lie together.
        ground.sql("vacuum full content.film_work")?;
        ground.sql(&IN_WINDOW.replace("20000", &format!("{rows:.0}")))?;
        ground.sql("vacuum analyze content.film_work")?;
        runner.run(&ground.store, name).await?;
    }
    let (old, connection) = tokio_postgres::connect(&ground.url, NoTls).await?;
    let mut driver = JoinSet::new();
    driver.spawn(connection);
    if by_log {
        old.batch_execute("begin; select pg_current_xact_id()").await?;
    }
    runner.run(&ground.store, name).await?;
    source.forget()?;
    for _ in 0..TICKS {
        ground.sql("select pg_current_xact_id()")?;
        runner.run(&ground.store, name).await?;
    }
    let seconds = source.milliseconds()? / 1000.0 / f64::from(TICKS);
    drop(old);
    driver.abort_all();
    let usage = runner.usage()?;
    let limit_seconds = if by_log { CHANGELOG_LIMIT } else { CURSOR_LIMIT };
    Ok(Measured::new(name, rows as u64, seconds, limit_seconds).by(&usage))
}

async fn changes(name: &str, ground: &Ground, runner: &RunnerProcess) -> Result<Measured> {
    let (mut rounds, mut limits, mut last) = (Vec::new(), Vec::new(), None);
    for _ in 0..ROUNDS {
        ground.sql(CHANGE)?;
        limits.push(Workload::changed_films(ground)?);
        let (took, run) = runner.timed_run(&ground.store, name).await?;
        rounds.push(took);
        last = Some(run);
    }
    let run = last.context("a run")?;
    let measured = Measured::steady(name, run.rows_read, &rounds, steady(&limits)).by(&runner.usage()?);
    Ok(Measured { batches: Some(run.batches), ..measured })
}

/// What the triggers cost the application, at their worst: one statement of many rows.
async fn logged_update(name: &str, ground: &Ground) -> Result<Measured> {
    let update = "update content.film_work set rating = rating where id in (select id from content.film_work order by id limit 50000)";
    let (desk, logged) = desk(ground).await?;
    desk.apply(&desk.remove(&logged).await?).await?;
    ground.sql(update)?;
    ground.sql("vacuum analyze content.film_work")?;
    let limit_seconds = ground.timed_sql(update)?.as_secs_f64();
    install(ground).await?;
    ground.sql("vacuum analyze content.film_work")?;
    let seconds = ground.timed_sql(update)?.as_secs_f64();
    Ok(Measured::new(name, 50_000, seconds, limit_seconds))
}

async fn desk(ground: &Ground) -> Result<(Desk, Logged)> {
    let connection = Connection::new("cinema", ground.url.clone().into(), Vec::new());
    let desk = Desk::open(&connection).await?;
    let logged = desk.logged("content.film_work", &["id".to_owned()]).await?;
    Ok((desk, logged))
}

async fn install(ground: &Ground) -> Result<()> {
    let (desk, logged) = desk(ground).await?;
    desk.apply(&desk.install(&logged, "bench_source").await?).await?;
    Ok(())
}

/// The server's log of all that the login of the source does, with the time it took.
struct SourceLog {
    path: PathBuf,
    read: usize,
    url: String,
}

impl SourceLog {
    fn open(ground: &Ground) -> Result<Self> {
        ground.sql(
            "do $$ begin if to_regrole('bench_source') is null then create role bench_source superuser login password 'bench'; end if; end $$;
             alter role bench_source set log_min_duration_statement = 0",
        )?;
        ground.sql("alter system set log_line_prefix = '%u '")?;
        ground.sql("select pg_reload_conf()")?;
        let (scheme, rest) = ground.url.split_once("://").context("a URL")?;
        let (_, place) = rest.split_once('@').context("a URL with a login")?;
        let url = format!("{scheme}://bench_source:bench@{place}");
        Ok(Self { path: ground.log(), read: 0, url })
    }

    fn forget(&mut self) -> Result<()> {
        self.read = fs::read(&self.path)?.len();
        Ok(())
    }

    fn milliseconds(&self) -> Result<f64> {
        let log = fs::read(&self.path)?;
        let text = String::from_utf8_lossy(&log[self.read..]);
        let of_source = text.lines().filter_map(|line| line.strip_prefix("bench_source "));
        let durations = of_source.filter_map(|line| line.split_once("duration: ")?.1.split_once(" ms"));
        Ok(durations.filter_map(|(duration, _)| duration.parse::<f64>().ok()).sum())
    }
}
