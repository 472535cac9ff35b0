//! A source on a server of its own, which can be put back to an earlier moment as a restore from a backup does.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Arc, Mutex};

use anyhow::{Context, Result, ensure};
use vitrina_cluster::{Cluster, Options};

use crate::fixture::{Session, connect, cut_off};

#[derive(Debug)]
pub(crate) struct RestoredSource {
    cluster: Arc<Mutex<Cluster>>,
    copy: PathBuf,
    url: String,
}

const TABLE: &str =
    "create schema content; create table content.restored_source (id int primary key, title text not null, modified timestamptz not null);
     create index on content.restored_source (modified, id)";
const SETTINGS: [(&str, &str); 3] = [("fsync", "off"), ("shared_buffers", "16MB"), ("autovacuum", "off")];

impl RestoredSource {
    pub(crate) async fn start(folder: &Path) -> Result<Self> {
        let options = Options { die_with_parent: true, ..options(folder.join("postgres"), None) };
        let cluster = tokio::task::spawn_blocking(move || Cluster::start(&options)).await??;
        let url = cluster.url("postgres");
        connect(&url).await?.client.batch_execute(TABLE).await?;
        Ok(Self { cluster: Arc::new(Mutex::new(cluster)), copy: folder.join("copy"), url })
    }

    pub(crate) fn url(&self) -> &str {
        &self.url
    }

    pub(crate) async fn session(&self) -> Result<Session> {
        connect(&self.url).await
    }

    /// All that is committed by now is in the copy.
    pub(crate) async fn back_up(&self) -> Result<()> {
        self.while_down(replace).await
    }

    /// What was committed since the copy was made never happened.
    pub(crate) async fn restore(&self) -> Result<()> {
        self.while_down(|data, copy| replace(copy, data)).await
    }

    async fn while_down(&self, act: impl FnOnce(&Path, &Path) -> Result<()> + Send + 'static) -> Result<()> {
        let (cluster, copy) = (Arc::clone(&self.cluster), self.copy.clone());
        let act = move || {
            let cluster = cluster.lock().expect("no holder panics");
            cut_off(&cluster)?;
            let acted = act(&cluster.directory().join("data"), &copy);
            // The watchdog of the first start looks after this one as well.
            Cluster::start(&options(cluster.directory().to_owned(), Some(cluster.port())))?;
            acted
        };
        tokio::task::spawn_blocking(act).await?
    }

    pub(crate) async fn stop(self) -> Result<()> {
        let cluster = Arc::into_inner(self.cluster).context("nobody else uses it")?;
        let cluster = cluster.into_inner().expect("no holder panics");
        Ok(tokio::task::spawn_blocking(move || cluster.stop()).await??)
    }
}

fn options(directory: PathBuf, port: Option<u16>) -> Options {
    let settings = SETTINGS.map(|(name, value)| (name.to_owned(), value.to_owned())).into();
    Options { settings, port, ..Options::new(directory) }
}

/// With owners and modes, which Postgres insists on.
fn replace(from: &Path, to: &Path) -> Result<()> {
    if to.exists() {
        std::fs::remove_dir_all(to)?;
    }
    let status = Command::new("cp").arg("-a").arg(from).arg(to).status()?;
    ensure!(status.success(), "cp -a {} failed", from.display());
    Ok(())
}
