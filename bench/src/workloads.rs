//! The list of workloads. Later ones join it here.

use std::time::Duration;

use anyhow::{Context, Result};
use serde_json::json;

use crate::clock::{Clock, Took};
use crate::ground::Ground;
use crate::report::Measured;
use crate::runner_process::RunnerProcess;

pub(crate) struct Workload {
    pub(crate) name: &'static str,
    query: &'static str,
    mart: &'static str,
    key: &'static str,
    columns: &'static str,
    start: Start,
}

/// What the mart holds before the measurement.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Start {
    Empty,
    /// All of the source.
    Filled,
    /// All of the source, of which a tenth has changed since; only that is read.
    Stale,
}

pub(crate) const FILMS: &str =
    "select id, title, description, creation_date, rating, type, created, modified from content.film_work";
const FILM_COLUMNS: &str = "title, description, creation_date, rating, type, created, modified";
const TOUCH_A_TENTH: &str = "update content.film_work set title = title || '!', modified = '2026-06-01' where id::text ~ '[05a]$' and id::text ~ '^[0-7]'";
const CHANGED: &str = "modified > '2026-01-01'";

pub(crate) static ALL: &[Workload] = &[
    films("full-empty", Start::Empty),
    films("full-unchanged", Start::Filled),
    films("incremental", Start::Stale),
    Workload {
        name: "aggregate",
        query: "select film_id, avg(rating)::numeric(4,2) as avg_rating, count(*) as rating_count from ugc.ratings group by film_id",
        mart: "analytics.film_ratings",
        key: "film_id",
        columns: "avg_rating, rating_count",
        start: Start::Empty,
    },
];

const fn films(name: &'static str, start: Start) -> Workload {
    Workload { name, query: FILMS, mart: "analytics.films", key: "id", columns: FILM_COLUMNS, start }
}

pub(crate) async fn measure(name: &str, ground: &Ground, batch_size: i32) -> Result<Measured> {
    let workload = ALL.iter().find(|workload| workload.name == name).context("a workload")?;
    workload.measure(ground, batch_size).await
}

impl Workload {
    async fn measure(&self, ground: &Ground, batch_size: i32) -> Result<Measured> {
        let runner = RunnerProcess::start(&ground.url)?;
        ground.sql(&format!("truncate {}", self.mart))?;
        ground.pipeline(&self.pipeline(batch_size)).await?;
        if self.start != Start::Empty {
            runner.run(&ground.store, self.name).await?;
        }
        if self.start == Start::Stale {
            ground.sql(TOUCH_A_TENTH)?;
            ground.sql("vacuum analyze content.film_work")?;
        }
        ground.sql(&format!("vacuum analyze {}", self.mart))?;
        ground.sql("checkpoint")?;
        let limits = self.limits(ground)?;
        let (took, run) = runner.timed_run(&ground.store, self.name).await?;
        let measured = Measured::steady(self.name, run.rows_read, &[took], limits.pipe).by(&runner.usage()?);
        let server_seconds = Some(limits.server.as_secs_f64());
        Ok(Measured { server_seconds, batches: Some(run.batches), ..measured })
    }

    fn pipeline(&self, batch_size: i32) -> serde_json::Value {
        let mut pipeline = json!({
            "name": self.name, "source_query": self.query, "target_table": self.mart, "batch_size": batch_size,
        });
        if self.start == Start::Stale {
            pipeline["mode"] = json!("incremental");
            pipeline["incremental_key"] = json!("modified");
            pipeline["incremental_id_key"] = json!("id");
        }
        pipeline
    }

    /// What cannot be beaten from outside: the rows through a pipe of two psql, straight into an empty table
    /// with the mart's key; where the mart is filled, into a bare table and on by one upsert that rewrites
    /// only what differs. On a copy of the mart, which is then as warm and as old as the mart itself.
    /// Beside it the same inside the server, by one statement.
    fn limits(&self, ground: &Ground) -> Result<Limits> {
        let query = match self.start {
            Start::Stale => format!("{} where {CHANGED}", self.query),
            Start::Empty | Start::Filled => self.query.to_owned(),
        };
        ground.sql(&format!(
            "create schema if not exists bench; create table bench.mart (like {0} including indexes including constraints);
             create table bench.inside (like {0} including indexes including constraints);
             create table bench.stage as select * from ({query}) q limit 0",
            self.mart
        ))?;
        let filled = self.start != Start::Empty;
        if filled {
            ground.sql(&format!("insert into bench.mart select * from {0} order by 1; insert into bench.inside select * from bench.mart", self.mart))?;
        }
        ground.sql("vacuum analyze bench.mart")?;
        ground.sql("vacuum analyze bench.inside")?;
        ground.sql("checkpoint")?;
        let pipe = if filled { self.pipe_and_upsert(ground, &query)? } else { pipe(ground, &query)? };
        ground.sql("checkpoint")?;
        let server = ground.timed_sql(&self.upsert("bench.inside", &query))?;
        ground.sql("drop schema bench cascade")?;
        ground.sql("checkpoint")?;
        Ok(Limits { pipe, server })
    }

    /// The films that have changed lately, by a plain read behind a cursor and an upsert of what came.
    pub(crate) fn changed_films(ground: &Ground) -> Result<Took> {
        let query = format!(
            "{FILMS} where (modified, id) > (now() - interval '1 minute', '00000000-0000-0000-0000-000000000000') order by modified, id"
        );
        ground.sql("create schema if not exists bench; create table bench.mart (like analytics.films including indexes including constraints);
                    create table bench.stage (like analytics.films); insert into bench.mart select * from analytics.films; analyze bench.mart")?;
        let took = films("changes", Start::Stale).pipe_and_upsert(ground, &query)?;
        ground.sql("drop schema bench cascade")?;
        Ok(took)
    }

    fn pipe_and_upsert(&self, ground: &Ground, query: &str) -> Result<Took> {
        let clock = Clock::start()?;
        let piped = ground.pipe(query, "bench.stage")?;
        clock.stop_with(piped + ground.timed_sql(&self.upsert("bench.mart", "table bench.stage"))?)
    }

    fn upsert(&self, mart: &str, rows: &str) -> String {
        let columns: Vec<&str> = self.columns.split(", ").collect();
        let image = |alias: &str| {
            let all = columns.iter().map(|column| format!("{alias}.{column}")).collect::<Vec<_>>();
            format!("row({})::record", all.join(", "))
        };
        let set = columns.iter().map(|column| format!("{column} = excluded.{column}")).collect::<Vec<_>>();
        format!(
            "insert into {mart} as t ({0}, {1}) select {0}, {1} from ({rows}) q on conflict ({0}) do update set {2} where {3} *<> {4}",
            self.key,
            self.columns,
            set.join(", "),
            image("t"),
            image("excluded")
        )
    }
}

fn pipe(ground: &Ground, query: &str) -> Result<Took> {
    let clock = Clock::start()?;
    clock.stop_with(ground.pipe(query, "bench.mart")?)
}

struct Limits {
    pipe: Took,
    server: Duration,
}
