//! A throwaway Postgres with durable settings, a million films and two million ratings in it, and the
//! marts and pipelines of the workloads.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};
use uuid::Uuid;
use vitrina_cluster::{Cluster, Options};
use vitrina_core::TargetPart;
use vitrina_store::Store;

pub(crate) struct Ground {
    cluster: Cluster,
    directory: tempfile::TempDir,
    pub(crate) store: Store,
    pub(crate) url: String,
}

/// Films without their credits: the workloads measure the way of rows, not the joins of a query.
const FILMS: &str = "
    insert into content.film_work (id, title, description, creation_date, rating, type, created, modified)
    select md5('film:' || n)::uuid, cinema.title(dice), cinema.description(dice), date '1950-01-01' + n % 27000,
           n % 90 / 10.0, 'movie', to_timestamp(1577836800 + n), to_timestamp(1577836800 + n)
      from cinema.throw(1, $films)";
const MARTS: &str = "
    create table analytics.films (id uuid primary key, title text not null, description text, creation_date date,
        rating numeric(3,1), type text not null, created timestamptz not null, modified timestamptz not null);
    create table analytics.film_ratings (film_id uuid primary key, avg_rating numeric(4,2), rating_count bigint)";

impl Ground {
    pub(crate) async fn prepare(scale: f64) -> Result<Self> {
        let directory = tempfile::Builder::new().prefix("vitrina-bench-").tempdir()?;
        let options = Options {
            settings: [("max_wal_size", "8GB"), ("shared_buffers", "1GB")]
                .map(|(name, value)| (name.to_owned(), value.to_owned()))
                .into(),
            die_with_parent: true,
            ..Options::new(directory.path().join("postgres"))
        };
        let cluster = tokio::task::spawn_blocking(move || Cluster::start(&options)).await??;
        let url = cluster.url("cinema");
        run_sql(&psql(&cluster), &cluster.url("postgres"), "create database cinema")?;
        let store = Store::connect(&url, "vitrina-bench", 4).await?;
        let ground = Self { cluster, directory, store, url };
        ground.fill(scale).await?;
        Ok(ground)
    }

    async fn fill(&self, scale: f64) -> Result<()> {
        let (films, ratings) = ((1_000_000.0 * scale) as u32, (2_000_000.0 * scale) as u32);
        let started = Instant::now();
        self.store.migrate().await?;
        vitrina_cinema::migrate(&self.url).await?;
        self.sql(&FILMS.replace("$films", &films.to_string()))?;
        self.sql(&format!("select cinema.seed_ugc({films}, {ratings})"))?;
        self.sql(MARTS)?;
        self.sql("vacuum analyze")?;
        eprintln!("{films} films and {ratings} ratings in {:.1} s", started.elapsed().as_secs_f64());
        Ok(())
    }

    /// A pipeline with the defaults of the API, but for these fields. A target has one writer: the one that was measured
    /// before goes.
    pub(crate) async fn pipeline(&self, changes: &Value) -> Result<()> {
        let mut config = json!({
            "id": Uuid::now_v7(), "type": "SQL", "source_type": "postgres", "source_connection": "cinema",
            "source_table": null, "mode": "full", "batch_size": 1000, "enabled": true, "schedule_interval": null,
            "incremental_key": null, "incremental_id_key": null, "capture": "cursor", "late_window_seconds": 600,
            "delete_limit": 0.2, "python_task": null,
        });
        for (field, value) in changes.as_object().context("fields of a pipeline")? {
            config[field] = value.clone();
        }
        let target = config["target_table"].as_str().context("a target")?;
        let part = TargetPart { target: target.to_owned(), shared_value: None };
        if !self.store.writers(&part).await?.names.is_empty() {
            self.sql(&format!("delete from etl.etl_pipelines where target_table = '{target}'"))?;
        }
        self.store.create_pipeline(&serde_json::from_value(config)?).await?;
        Ok(())
    }

    /// So many marts like this one, each for a pipeline of its own.
    pub(crate) fn marts_like(&self, mart: &str, count: usize) -> Result<()> {
        self.sql(&format!(
            "do $$ begin for n in 0..{} loop
                 execute format('create table if not exists {mart}_%s (like {mart} including all)', n);
             end loop; end $$",
            count.saturating_sub(1)
        ))
    }

    pub(crate) fn sql(&self, statement: &str) -> Result<()> {
        run_sql(&psql(&self.cluster), &self.url, statement)
    }

    /// The only column of a query, a line or more each, as a file.
    pub(crate) fn dump(&self, query: &str, path: &Path) -> Result<()> {
        let arguments = ["-X", "-q", "-A", "-t", "-c", query, "-o"];
        let status = Command::new(psql(&self.cluster)).args(arguments).arg(path).arg(&self.url).status()?;
        ensure!(status.success(), "psql failed");
        Ok(())
    }

    /// Rows from one psql to another as COPY BINARY: the way there is without Vitrina.
    pub(crate) fn pipe(&self, from: &str, into: &str) -> Result<Duration> {
        let psql = psql(&self.cluster).display().to_string();
        let script = "set -o pipefail; \"$1\" -X -q -c \"copy ($3) to stdout (format binary)\" \"$2\" \
                      | \"$1\" -X -q -c \"copy $4 from stdin (format binary)\" \"$2\"";
        let started = Instant::now();
        let status =
            Command::new("bash").args(["-c", script, "pipe", &psql, &self.url, from, into]).status()?;
        ensure!(status.success(), "the pipe of psql failed");
        Ok(started.elapsed())
    }

    /// A statement so many times, each by a psql of its own, several at once: the way of jobs without Vitrina.
    pub(crate) fn jobs(&self, statement: &str, count: usize, at_once: usize) -> Result<Duration> {
        let psql = psql(&self.cluster).display().to_string();
        let script = "seq \"$3\" | xargs -P \"$4\" -I{} \"$1\" -X -q -c \"$5\" \"$2\"";
        let (count, at_once) = (count.to_string(), at_once.to_string());
        let started = Instant::now();
        let status = Command::new("bash")
            .args(["-c", script, "jobs", &psql, &self.url, &count, &at_once, statement])
            .status()?;
        ensure!(status.success(), "the jobs of psql failed");
        Ok(started.elapsed())
    }

    /// A file that lives as long as the ground.
    pub(crate) fn file(&self, name: &str, text: &str) -> Result<PathBuf> {
        let path = self.directory.path().join(name);
        std::fs::write(&path, text)?;
        Ok(path)
    }

    /// Where the server writes its log.
    pub(crate) fn log(&self) -> PathBuf {
        self.cluster.directory().join("log")
    }

    pub(crate) fn timed_sql(&self, statement: &str) -> Result<Duration> {
        let started = Instant::now();
        self.sql(statement)?;
        Ok(started.elapsed())
    }

    pub(crate) async fn clear(self) -> Result<()> {
        self.store.close().await;
        let cluster = self.cluster;
        tokio::task::spawn_blocking(move || cluster.stop()).await??;
        self.directory.close().context("the bench's directory")
    }
}

fn psql(cluster: &Cluster) -> PathBuf {
    cluster.installation().bindir().join("psql")
}

fn run_sql(psql: &PathBuf, url: &str, statement: &str) -> Result<()> {
    let arguments = ["-X", "-q", "-o", "/dev/null", "-v", "ON_ERROR_STOP=1", "-c", statement, url];
    let status =
        Command::new(psql).args(arguments).env("PGOPTIONS", "-c client_min_messages=warning").status()?;
    ensure!(status.success(), "psql failed");
    Ok(())
}
