//! Compose's services as local processes around a private Postgres.

use std::collections::BTreeMap;
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::Stdio;
use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;
use tokio::process::{Child, Command};
use vitrina_cluster::{Cluster, Options};
use vitrina_testbed::SearchServer;

use crate::compose::{Service, services};

pub(crate) struct Stand {
    pub(crate) token: String,
    pub(crate) owner_url: String,
    api: String,
    /// Where the runner shows its metrics.
    metrics: String,
    pub(crate) search: SearchServer,
    processes: Vec<(String, Child)>,
    cluster: Cluster,
    psql: PathBuf,
    _directory: tempfile::TempDir,
}

/// The binary that this build made, beside the tests.
fn binaries() -> PathBuf {
    let folder = std::env::current_exe().unwrap().parent().unwrap().parent().unwrap().to_owned();
    assert!(folder.join("vitrina").exists(), "build the binary first: make build, or cargo test --workspace");
    folder
}

impl Stand {
    pub(crate) async fn start() -> Self {
        // Open to the server's own user, to whom Postgres falls back when the tests run as root.
        let readable = std::fs::Permissions::from_mode(0o755);
        let directory = tempfile::Builder::new().permissions(readable).tempdir().unwrap();
        let mut options = Options::new(directory.path().join("postgres"));
        options.superuser = "cinema".into();
        options.die_with_parent = true;
        let cluster = tokio::task::spawn_blocking(move || Cluster::start(&options).unwrap()).await.unwrap();
        let psql = cluster.installation().bindir().join("psql");
        let owner_url = cluster.url("cinema");
        sql(&psql, &cluster.url("postgres"), "create database cinema owner cinema");

        let [port, metrics_port] = free_ports();
        let token = "token-of-the-stand-0123456789".to_owned();
        let variables = BTreeMap::from([
            ("POSTGRES_PASSWORD".to_owned(), password(&owner_url)),
            ("VITRINA_ROLE_PASSWORD".to_owned(), "role0password".to_owned()),
            ("VITRINA_READER_PASSWORD".to_owned(), "reader0password".to_owned()),
            ("VITRINA_ADMIN_TOKEN".to_owned(), token.clone()),
        ]);
        let api = format!("http://127.0.0.1:{port}");
        let metrics = format!("http://127.0.0.1:{metrics_port}");
        let mut stand = Self {
            token,
            owner_url,
            api,
            metrics,
            search: SearchServer::elasticsearch().await,
            processes: Vec::new(),
            psql,
            _directory: directory,
            cluster,
        };
        for service in services(&variables) {
            stand.start_service(&service, port, metrics_port).await;
        }
        stand
    }

    /// Starts a service where compose would, with the names of other containers replaced by addresses.
    async fn start_service(&mut self, service: &Service, port: u16, metrics_port: u16) {
        let database = format!("127.0.0.1:{}", self.cluster.port());
        let here = |text: &String| {
            text.replace("etl_db:5432", &database)
                .replace("http://elasticsearch:9200", self.search.url())
                .replace("0.0.0.0:8080", "127.0.0.1:8080")
                .replace(":8080", &format!(":{port}"))
                .replace("0.0.0.0:9188", &format!("127.0.0.1:{metrics_port}"))
        };
        let environment: BTreeMap<_, _> =
            service.environment.iter().map(|(name, value)| (name.clone(), here(value))).collect();
        let mut child = command(&service.command, &environment).spawn().unwrap();
        if service.runs_once {
            let status =
                tokio::time::timeout(Duration::from_secs(60), child.wait()).await.expect("it ends").unwrap();
            assert!(status.success(), "{} ends with {status}", service.name);
            return;
        }
        self.processes.push((service.name.clone(), child));
        if let Some((_, check)) = service.healthcheck.split_first() {
            let healthy = async { while !command(check, &environment).status().await.unwrap().success() {} };
            tokio::time::timeout(Duration::from_secs(30), healthy).await.expect("it becomes healthy");
        }
    }

    pub(crate) async fn call(
        &self,
        method: &str,
        path: &str,
        token: Option<&str>,
        body: Value,
    ) -> (u16, Value) {
        let method = method.parse::<reqwest::Method>().unwrap();
        let mut request = vitrina_testbed::http_client().request(method, format!("{}{path}", self.api));
        if let Some(token) = token {
            request = request.bearer_auth(token);
        }
        if !body.is_null() {
            request = request.json(&body);
        }
        let answer = request.send().await.unwrap();
        (answer.status().as_u16(), answer.json().await.unwrap_or_default())
    }

    /// The pages that a Prometheus would scrape: the API's and the runner's.
    pub(crate) async fn pages(&self) -> String {
        let mut pages = String::new();
        for base in [&self.api, &self.metrics] {
            let request =
                vitrina_testbed::http_client().get(format!("{base}/metrics")).bearer_auth(&self.token);
            let answer = request.send().await.unwrap();
            assert_eq!(answer.status(), 200, "{base}");
            pages += &answer.text().await.unwrap();
        }
        pages
    }

    pub(crate) fn sql(&self, statement: &str) -> String {
        sql(&self.psql, &self.owner_url, statement)
    }

    /// As compose stops containers: SIGTERM, and every process ends well.
    pub(crate) async fn stop(mut self) {
        for (name, child) in &mut self.processes {
            let pid = Pid::from_raw(child.id().unwrap().cast_signed());
            kill(pid, Signal::SIGTERM).unwrap();
            let status =
                tokio::time::timeout(Duration::from_secs(40), child.wait()).await.expect("it stops").unwrap();
            assert!(status.success(), "{name} ends with {status}");
        }
        let cluster = self.cluster;
        tokio::task::spawn_blocking(move || cluster.stop().unwrap()).await.unwrap();
    }
}

/// Both are held until both are known: else the second may be the first again.
fn free_ports() -> [u16; 2] {
    let held = [(); 2].map(|()| TcpListener::bind("127.0.0.1:0").unwrap());
    held.map(|listener| listener.local_addr().unwrap().port())
}

/// A command in compose's environment and nothing else, with our binary on its path.
fn command(words: &[String], environment: &BTreeMap<String, String>) -> Command {
    let path = format!("{}:/usr/bin:/bin", binaries().display());
    let program = if words[0] == "vitrina" { binaries().join("vitrina") } else { PathBuf::from(&words[0]) };
    let mut command = Command::new(program);
    command
        .args(&words[1..])
        .env_clear()
        .env("PATH", path)
        .envs(environment)
        .current_dir("/")
        .stdin(Stdio::null());
    command.stdout(Stdio::null()).kill_on_drop(true);
    command
}

fn sql(psql: &PathBuf, url: &str, statement: &str) -> String {
    let output = std::process::Command::new(psql)
        .args(["-X", "-A", "-t", "-q", "-v", "ON_ERROR_STOP=1", "-c", statement, url])
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap().trim().to_owned()
}

/// Of a URL that we made ourselves: postgres://user:password@host/…
fn password(url: &str) -> String {
    url.split('@').next().and_then(|before| before.rsplit(':').next()).unwrap().to_owned()
}
