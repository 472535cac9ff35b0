//! A throwaway Postgres with the cinema in it, durable as in production.

use std::path::PathBuf;
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use vitrina_cluster::{Cluster, Options};
use vitrina_store::Store;

pub(crate) struct Ground {
    cluster: Cluster,
    directory: tempfile::TempDir,
    pub(crate) store: Store,
    pub(crate) url: String,
}

impl Ground {
    pub(crate) async fn prepare(scale: f64) -> Result<Self> {
        use std::os::unix::fs::PermissionsExt;
        let readable = std::fs::Permissions::from_mode(0o755);
        let directory = tempfile::Builder::new().prefix("vitrina-bench").permissions(readable).tempdir()?;
        let mut options = Options::new(directory.path().join("postgres"));
        options.superuser = "cinema".into();
        options.die_with_parent = true;
        options.settings = [("shared_buffers", "512MB"), ("max_wal_size", "4GB"), ("work_mem", "64MB")]
            .map(|(name, value)| (name.to_owned(), value.to_owned()))
            .into();
        let cluster = tokio::task::spawn_blocking(move || Cluster::start(&options)).await??;
        let url = cluster.url("cinema");
        let ground = Self::fill(cluster, directory, url, scale).await?;
        Ok(ground)
    }

    async fn fill(cluster: Cluster, directory: tempfile::TempDir, url: String, scale: f64) -> Result<Self> {
        let psql = cluster.installation().bindir().join("psql");
        run_sql(&psql, &cluster.url("postgres"), "create database cinema")?;
        let store = Store::connect(&url, "vitrina-bench", 4).await?;
        store.migrate().await?;
        vitrina_cinema::migrate(&url).await?;
        let (films, ratings) = ((100_000.0 * scale) as u32, (1_000_000.0 * scale) as u32);
        let started = Instant::now();
        vitrina_cinema::seed(&url, films, ratings).await?;
        vitrina_cinema::init_demo_data(&url).await?;
        run_sql(&psql, &url, "vacuum analyze")?;
        eprintln!("{films} films and {ratings} ratings in {:.1} s", started.elapsed().as_secs_f64());
        Ok(Self { cluster, directory, store, url })
    }

    pub(crate) fn sql(&self, statement: &str) -> Result<()> {
        run_sql(&self.psql(), &self.url, statement)
    }

    /// Rows from one psql to another as COPY BINARY: the way there is without Vitrina.
    pub(crate) fn pipe(&self, from: &str, into: &str) -> Result<Duration> {
        let psql = self.psql().display().to_string();
        let script = "set -o pipefail; \"$1\" -X -q -c \"copy ($3) to stdout (format binary)\" \"$2\" \
                      | \"$1\" -X -q -c \"copy $4 from stdin (format binary)\" \"$2\"";
        let started = Instant::now();
        let status =
            Command::new("bash").args(["-c", script, "pipe", &psql, &self.url, from, into]).status()?;
        ensure!(status.success(), "the pipe of psql failed");
        Ok(started.elapsed())
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

    fn psql(&self) -> PathBuf {
        self.cluster.installation().bindir().join("psql")
    }
}

fn run_sql(psql: &PathBuf, url: &str, statement: &str) -> Result<()> {
    let status =
        Command::new(psql).args(["-X", "-q", "-v", "ON_ERROR_STOP=1", "-c", statement, url]).status()?;
    ensure!(status.success(), "psql failed");
    Ok(())
}
