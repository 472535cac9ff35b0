//! What the demo does where there is Python: one pipeline more, whose rows go through a registered function. Without it one
//! line says why that is left out.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::Result;
use sqlx::{Connection, PgConnection};
use vitrina_api::documents::RunOrder;
use vitrina_cinema::{FILM_SEARCH, FUNCTIONS, MartCheck};
use vitrina_core::Mode;
use vitrina_python::{Python, PythonSettings};

use super::show::{apply, run_all};
use super::steps;
use crate::client::Client;
use crate::output::{print, say};

const MODULE: &str = "cinema_functions";

/// The pipeline, or what keeps it from running here.
#[derive(Debug)]
pub(super) enum FilmSearch {
    Python { python: Arc<Python>, file: PathBuf },
    LeftOut(String),
}

impl FilmSearch {
    pub(super) async fn start(directory: &Path) -> Self {
        let folder = directory.join("functions");
        let file = folder.join(MODULE).with_extension("py");
        if let Err(error) = fs::create_dir_all(&folder).and_then(|()| fs::write(&file, FUNCTIONS)) {
            return Self::LeftOut(format!("{} cannot be written: {error}", file.display()));
        }
        match Python::start(settings(folder)).await {
            Ok(python) => Self::Python { python, file },
            Err(error) => Self::LeftOut(error.to_string().lines().next().unwrap_or_default().to_owned()),
        }
    }

    /// For the runner.
    pub(super) fn python(&self) -> Option<Arc<Python>> {
        match self {
            Self::Python { python, .. } => Some(Arc::clone(python)),
            Self::LeftOut(_) => None,
        }
    }

    /// Runs it and compares its mart, where it can be run.
    pub(super) async fn show(&self, client: &Client, url: &str) -> Result<Option<MartCheck>> {
        match self {
            Self::Python { file, .. } => {
                say(&format!("film_search goes through a Python function: {}", file.display()));
                prove(client, url).await.map(Some)
            }
            Self::LeftOut(reason) => {
                say(&format!("film_search is left out, it needs Python 3.10 or newer as python3: {reason}"));
                disable(client).await.map(|()| None)
            }
        }
    }
}

fn settings(folder: PathBuf) -> PythonSettings {
    PythonSettings {
        interpreter: PathBuf::from("python3"),
        modules: vec![MODULE.to_owned()],
        path: vec![folder],
        variables: Vec::new(),
        user: None,
        warm: 1,
        workers_a_run: 1,
        deadline: Duration::from_secs(60),
        memory_limit: 1 << 30,
        batches_a_worker: 1000,
    }
}

async fn prove(client: &Client, url: &str) -> Result<MartCheck> {
    let (name, _) = FILM_SEARCH;
    apply(client, [FILM_SEARCH]).await?;
    client.change(name, "enable").await?;
    match run_all(client, &[name], &RunOrder::default()).await {
        Err(error) if is_of_older_code(&error) => {
            run_all(client, &[name], &RunOrder { mode: Some(Mode::Full), ..RunOrder::default() }).await?;
        }
        ran => ran?,
    }
    let check = vitrina_cinema::verify_search(url).await?;
    print(&format!("{}; {}", steps::verdict(&check), taste(url).await?));
    Ok(check)
}

/// An earlier demo, of another release: refused when it is asked for, or by the runner where its schedule came first.
fn is_of_older_code(error: &anyhow::Error) -> bool {
    error.to_string().contains("was changed since the checkpoint was made")
}

/// A Russian title, if there is one, as an address shows it.
async fn taste(url: &str) -> Result<String> {
    let mut connection = PgConnection::connect(url).await?;
    let query = "select title, slug from analytics.film_search join content.film_work using (id)
                  order by title ~ '[а-я]' desc, title limit 1";
    let (title, slug): (String, String) = sqlx::query_as(query).fetch_one(&mut connection).await?;
    connection.close().await?;
    Ok(format!("{title:?} is at /{slug}"))
}

/// That of an earlier demo waits until there is Python again.
async fn disable(client: &Client) -> Result<()> {
    let (name, _) = FILM_SEARCH;
    if client.pipelines().await?.known.items.iter().any(|found| found.name == name) {
        client.change(name, "disable").await?;
    }
    Ok(())
}
