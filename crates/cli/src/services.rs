//! API and runner inside this process: started from the settings, stopped together.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Result;
use secrecy::ExposeSecret;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;
use vitrina_api::{ApiSettings, Server, SourceConnection};
use vitrina_connectors::{Connection, Connections, sinks, sources};
use vitrina_guard::Secret;
use vitrina_python::Python;
use vitrina_runner::{RunLog, Runner, RunnerSettings};
use vitrina_store::Store;
use vitrina_telemetry::{Exposition, Listener};

use crate::config::Settings;
use crate::context::connect;
use crate::exit::Exit;
use crate::hardening::{Descriptors, harden};

/// For the API and its long polls.
const API_SESSIONS: u32 = 10;
/// What a runner needs beside those of its runs.
const RUNNER_SESSIONS: u32 = 4;
/// For headers of calls and between two of them: whoever says nothing holds no connection for long.
const API_PATIENCE: Duration = Duration::from_secs(10);
/// How soon it is noticed that the meta-store refuses the login.
const ASK_LOGIN: Duration = Duration::from_secs(5);
/// A session that hangs must not keep the process.
const CLOSING: Duration = Duration::from_secs(5);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Ended {
    Api,
    Runner,
    /// What shows the runner's metrics.
    Listener,
}

#[derive(Debug)]
pub(crate) struct Services {
    running: JoinSet<Result<Ended>>,
    /// Beside them, for as long as there are services: they read the meta-store's password again.
    logins: JoinSet<()>,
    stores: Vec<Store>,
    descriptors: Descriptors,
    shutdown: CancellationToken,
    run_log: RunLog,
}

impl Services {
    /// `run_log` hears what this process tells of its runs. From here on the process is one that others may not look into.
    pub(crate) fn new(shutdown: CancellationToken, run_log: RunLog) -> Self {
        let descriptors = harden();
        Self {
            descriptors,
            running: JoinSet::new(),
            logins: JoinSet::new(),
            stores: Vec::new(),
            shutdown,
            run_log,
        }
    }

    async fn store(&mut self, settings: &Settings, application: &str, sessions: u32) -> Result<Store> {
        let store = connect(settings, application, sessions).await?;
        if let Some(url) = settings.database_url.clone() {
            let url = settings.secret(url, |settings| settings.database_url.clone());
            self.logins.spawn(follow_login(store.clone(), url));
        }
        self.stores.push(store.clone());
        Ok(store)
    }

    /// Answers where it listens.
    pub(crate) async fn start_api(&mut self, settings: &Settings) -> Result<SocketAddr> {
        let store = self.store(settings, "vitrina-api", API_SESSIONS).await?;
        let max_connections = self.descriptors.for_callers(settings.api.max_connections.get());
        let server = Server::bind(ApiSettings { max_connections, ..api(settings) }, store).await?;
        let address = server.local_addr();
        let shutdown = self.shutdown.clone();
        self.running.spawn(async move {
            server.serve(shutdown).await?;
            Ok(Ended::Api)
        });
        Ok(address)
    }

    pub(crate) async fn start_runner(
        &mut self,
        settings: &Settings,
        python: Option<Arc<Python>>,
    ) -> Result<()> {
        let concurrent = u32::try_from(settings.runner.max_concurrent.get()).unwrap_or(u32::MAX / 4);
        let sessions = concurrent.saturating_mul(2) + RUNNER_SESSIONS;
        let store = self.store(settings, "vitrina-runner", sessions).await?;
        store.check_schema().await?;
        let over = self.shutdown.child_token();
        self.show_metrics(settings.runner.metrics_listen, over.clone()).await?;
        let runner = Runner::new(RunnerSettings { python, ..runner(settings) }, store)
            .with_run_log(self.run_log.clone());
        let shutdown = self.shutdown.clone();
        self.running.spawn(async move {
            // A runner that has drained has nothing more to show.
            let _over = over.drop_guard();
            runner.run(shutdown).await?;
            Ok(Ended::Runner)
        });
        Ok(())
    }

    /// Where nobody wants to see them, nothing is counted.
    async fn show_metrics(&mut self, listen: Option<SocketAddr>, over: CancellationToken) -> Result<()> {
        let Some(listen) = listen else { return Ok(()) };
        let listener = Listener::bind(listen).await.map_err(|error| {
            let hint = "hint: free it, or choose another address for runner.metrics_listen";
            Exit::Failed.fault(format!("cannot show metrics on {listen}: {error}\n{hint}"))
        })?;
        let exposition = Exposition::of_process();
        vitrina_runner::describe_metrics();
        tracing::info!(address = %listener.local_addr(), "the runner shows its metrics");
        self.running.spawn(async move {
            listener.serve(exposition.clone(), over).await?;
            Ok(Ended::Listener)
        });
        Ok(())
    }

    /// Until the shutdown, or until one of them ends by itself. That is a failure, but for a runner that has drained:
    /// whatever else there is goes on.
    pub(crate) async fn one_ended(&mut self) -> Result<()> {
        while let Some(ended) = self.running.join_next().await {
            match ended?? {
                _ if self.shutdown.is_cancelled() => return Ok(()),
                Ended::Runner | Ended::Listener => {}
                Ended::Api => {
                    return Err(Exit::Failed.fault("a service ended by itself\nhint: its log says why"));
                }
            }
        }
        Ok(())
    }

    /// Asks all of them to end, and waits for it. No session is left to complain when the database stops next.
    pub(crate) async fn stop(mut self) -> Result<()> {
        self.shutdown.cancel();
        self.logins.abort_all();
        let mut outcome = Ok(());
        while let Some(ended) = self.running.join_next().await {
            outcome = outcome.and(ended?.map(drop));
        }
        for store in self.stores {
            let _ = tokio::time::timeout(CLOSING, store.close()).await;
        }
        outcome
    }

    /// The life of `serve`, `runner` and `up`.
    pub(crate) async fn run(mut self) -> Result<Exit> {
        let ended = self.one_ended().await;
        let stopped = self.stop().await;
        ended.and(stopped).map(|()| Exit::Done)
    }
}

fn api(settings: &Settings) -> ApiSettings {
    ApiSettings {
        listen: settings.api.listen,
        allowed_targets: settings.allowed_targets.clone(),
        admin_token: settings.api.admin_token.clone(),
        rate_limit: settings.api.rate_limit,
        max_connections: settings.api.max_connections.get(),
        patience: API_PATIENCE,
        tls: settings.api.tls.clone(),
        source_connections: sources(settings),
    }
}

/// The Postgres databases that pipelines may read. The marts are written, under another login.
pub(crate) fn sources(settings: &Settings) -> BTreeMap<String, SourceConnection> {
    let is_source = |(name, connection): &(&String, &crate::config::Connection)| {
        *name != "marts" && connection.url.expose_secret().starts_with("postgres")
    };
    let source = |(name, connection): (&String, &crate::config::Connection)| {
        let url = url_of(settings, name, connection);
        let mut source = SourceConnection::new(url, connection.allowed_schemas.clone());
        source.max_query_cost = settings.runner.max_query_cost;
        (name.clone(), source)
    };
    settings.connections.iter().filter(is_source).map(source).collect()
}

/// A runner that cannot have its functions does not start: whoever has deployed it is still looking.
pub(crate) async fn start_python(settings: &Settings) -> Result<Option<Arc<Python>>> {
    let Some(settings) = settings.python.clone() else { return Ok(None) };
    let python = Python::start(settings).await.map_err(|error| Exit::Failed.fault(error.to_string()))?;
    for task in &python.registry().tasks {
        tracing::info!(
            task = task.name,
            kind = task.kind.as_str(),
            batch = task.batch_type,
            "a Python task is registered"
        );
    }
    Ok(Some(python))
}

fn runner(settings: &Settings) -> RunnerSettings {
    let runner = &settings.runner;
    RunnerSettings {
        name: runner.name.clone(),
        max_concurrent: runner.max_concurrent.get(),
        poll_interval: runner.poll_interval,
        lease: runner.lease,
        shutdown_timeout: runner.shutdown_timeout,
        pause_timeout: runner.pause_timeout,
        max_batch_bytes: runner.max_batch_bytes,
        source_patience: runner.source_patience,
        changelog_max_age: runner.changelog_max_age,
        load_max_age: runner.load_max_age,
        keep_history: runner.keep_history,
        allowed_targets: settings.allowed_targets.clone(),
        connections: connections(settings),
        sources: sources::Kinds::default(),
        sinks: sinks::Kinds::default(),
        python: None,
    }
}

pub(crate) fn connections(settings: &Settings) -> Connections {
    let named = |(name, connection): (&String, &crate::config::Connection)| {
        let crate::config::Connection { api_key, ca, allowed_schemas, .. } = connection.clone();
        let url = url_of(settings, name, connection);
        let of = name.clone();
        let find = move |settings: &Settings| settings.connections.get(&of)?.api_key.clone();
        let api_key = api_key.map(|key| settings.secret(key, find));
        let mut connection = Connection::new(name, url, allowed_schemas).trusting(api_key, ca);
        connection.max_query_cost = settings.runner.max_query_cost;
        (name.clone(), connection)
    };
    Connections(settings.connections.iter().map(named).collect())
}

fn url_of(settings: &Settings, name: &str, connection: &crate::config::Connection) -> Secret {
    let name = name.to_owned();
    settings
        .secret(connection.url.clone(), move |settings| Some(settings.connections.get(&name)?.url.clone()))
}

/// Sessions of the meta-store that are opened after its password was rotated need the new one.
async fn follow_login(store: Store, url: Secret) {
    loop {
        tokio::time::sleep(ASK_LOGIN).await;
        let login = url.get();
        let refused = store.ping().await.is_err_and(|error| error.is_login_refused());
        if refused && url.read_again(&login).await {
            match store.set_login(url.get().expose_secret()) {
                Ok(()) => tracing::info!("the login of the meta-store was read again"),
                Err(error) => tracing::warn!(%error, "the login of the meta-store cannot be used"),
            }
        }
    }
}
