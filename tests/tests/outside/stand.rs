//! An API and runners of the real binary around a database of its own, and a mart whose loads a test can hold.

use std::net::TcpListener;
use std::path::{Path, PathBuf};

use nix::sys::signal::Signal;
use serde_json::{Value, json};
use tokio::process::Command;
use tokio::sync::{Semaphore, SemaphorePermit};
use vitrina_testbed::Database;

use crate::process::Process;

pub(crate) const TOKEN: &str = "token-of-the-stand-0123456789";

/// Films, and a mart that lets row 25 in only while nobody holds the gate. Batches are of ten rows.
const TABLES: &str = "create schema content; create schema analytics;
    create table content.film_work (id bigint primary key, title text not null, modified timestamptz not null default now());
    insert into content.film_work select n, 'film ' || n from generate_series(1, 50) n;
    create table analytics.film_dim (id bigint primary key, title text not null, modified timestamptz);
    create function analytics.gate() returns trigger language plpgsql as
        $$ begin perform pg_advisory_xact_lock_shared(25); return new; end $$;
    create trigger gate before insert on analytics.film_dim for each row when (new.id = 25) execute function analytics.gate()";

/// What writes here fails: it is not there, and who described it did not ask for it.
const NOWHERE: &str = "insert into etl.etl_targets (name, key) values ('analytics.nowhere', '{id}')";

/// Browsers, Airflow and the fuzzer need a core each: with more at a time, they would wait for each other in vain.
static PLACES: Semaphore = Semaphore::const_new(2);

pub(crate) struct Stand {
    pub(crate) database: Database,
    pub(crate) url: String,
    /// The address of a search server, for the runners that are started once it is known.
    pub(crate) search: Option<String>,
    api: Option<Process>,
    directory: tempfile::TempDir,
    _place: SemaphorePermit<'static>,
}

/// As long as it is held, no load gets past row 25.
pub(crate) struct Gate<'a>(&'a Stand);

pub(crate) fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap().to_owned()
}

impl Stand {
    pub(crate) async fn start() -> Self {
        let place = PLACES.acquire().await.unwrap();
        let database = Database::fresh().await;
        database.execute(TABLES).await;
        let url = format!("http://127.0.0.1:{}", free_port());
        let directory = tempfile::tempdir().unwrap();
        let mut stand = Self { database, url, search: None, api: None, directory, _place: place };
        let (status, said) = Process::start("migrate", stand.vitrina(&["migrate"])).ends().await;
        assert!(status.success(), "{said}");
        stand.database.execute(NOWHERE).await;
        stand.start_api().await;
        stand
    }

    /// With the pipeline `film_dim`, which nobody runs yet.
    pub(crate) async fn start_with_films() -> Self {
        let stand = Self::start().await;
        let pipeline = json!({"name": "film_dim", "target_table": "analytics.film_dim", "batch_size": 10,
                              "source_query": "select id, title, modified from content.film_work"});
        assert_eq!(stand.call("POST", "/pipelines", pipeline).await.0, 201);
        stand
    }

    pub(crate) async fn start_api(&mut self) {
        let listen = self.url.trim_start_matches("http://").to_owned();
        let api = Process::start("api", self.vitrina(&["serve", "--listen", &listen]));
        api.says("the API listens").await;
        self.api = Some(api);
    }

    pub(crate) async fn stop_api(&mut self) {
        let api = self.api.take().unwrap();
        api.signal(Signal::SIGTERM);
        let (status, said) = api.ends().await;
        assert!(status.success(), "{said}");
    }

    /// For what programs leave behind.
    pub(crate) fn directory(&self) -> &Path {
        self.directory.path()
    }

    pub(crate) fn api_log(&self) -> String {
        self.api.as_ref().map(Process::all).unwrap_or_default()
    }

    pub(crate) async fn runner(&self, name: &str, lease: &str) -> Process {
        let mut command = self.vitrina(&["runner"]);
        command.env("VITRINA_RUNNER_NAME", name).env("VITRINA_RUNNER_LEASE", lease);
        let runner = Process::start(name, command);
        runner.says("the runner is ready").await;
        runner
    }

    pub(crate) async fn call(&self, method: &str, path: &str, body: Value) -> (u16, Value) {
        let url = format!("{}/api/v1{path}", self.url);
        let mut request =
            vitrina_testbed::http_client().request(method.parse().unwrap(), url).bearer_auth(TOKEN);
        if !body.is_null() {
            request = request.json(&body);
        }
        let answer = request.send().await.unwrap();
        (answer.status().as_u16(), answer.json().await.unwrap_or_default())
    }

    pub(crate) async fn close_gate(&self) -> Gate<'_> {
        self.database.execute("select pg_advisory_lock(25)").await;
        Gate(self)
    }

    /// The real binary, with settings of this stand and none of the machine's.
    pub(crate) fn vitrina(&self, arguments: &[&str]) -> Command {
        let folder = std::env::current_exe().unwrap().parent().unwrap().parent().unwrap().to_owned();
        let binary = folder.join("vitrina");
        assert!(binary.exists(), "build the binary first: make build, or cargo test --workspace");
        let mut command = Command::new(binary);
        command.args(arguments).env_clear().current_dir(self.directory.path());
        for name in
            ["VITRINA_DATABASE_URL", "VITRINA_CONNECTIONS_SOURCE_URL", "VITRINA_CONNECTIONS_MARTS_URL"]
        {
            command.env(name, self.database.url());
        }
        command.env("VITRINA_ADMIN_TOKEN", TOKEN).envs(self.search.iter().map(|url| ("OPENSEARCH_URL", url)));
        command
    }
}

impl Gate<'_> {
    pub(crate) async fn open(self) {
        self.0.database.execute("select pg_advisory_unlock(25)").await;
    }
}

fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}
