//! The typed settings: values that follow from others are worked out, then everything is parsed once.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use secrecy::SecretString;
use tracing::Level;
use url::Url;
use vitrina_api::TlsFiles;
use vitrina_core::AllowedTargets;
use vitrina_guard::Secret;
use vitrina_python::PythonSettings;

use super::error::{Complaint, Problem};
use super::expand::{Value, Values};
use super::layers::{Given, Written};
use super::{Config, Inputs, Origin, known, parse};

#[derive(Debug, Clone)]
pub struct Settings {
    /// The meta-store. Commands that only speak to the API do without.
    pub database_url: Option<SecretString>,
    pub allowed_targets: AllowedTargets,
    pub api: ApiSettings,
    pub runner: RunnerSettings,
    /// Where modules are named.
    pub python: Option<PythonSettings>,
    /// The Python of functions and their tests.
    pub interpreter: PathBuf,
    pub log: LogSettings,
    pub connections: BTreeMap<String, Connection>,
    /// What they were read from, for secrets that are rotated.
    pub(super) origin: Option<Arc<Inputs>>,
}

impl Settings {
    /// As they are now, where nothing is wrong with them.
    fn read_again(origin: Option<&Inputs>) -> Option<Self> {
        Config::load(origin?).ok().map(|config| config.settings)
    }

    /// A secret of these settings that is read again once a server refuses it.
    pub(crate) fn secret(
        &self,
        current: SecretString,
        find: impl Fn(&Self) -> Option<SecretString> + Send + Sync + 'static,
    ) -> Secret {
        let origin = self.origin.clone();
        Secret::from_origin(current, move || find(&Self::read_again(origin.as_deref())?))
    }
}

#[derive(Debug, Clone)]
pub struct ApiSettings {
    pub listen: SocketAddr,
    /// Where the command line finds the API. Holds no credentials.
    pub url: Url,
    pub token: Option<SecretString>,
    pub admin_token: Option<SecretString>,
    /// Calls a second that one token may make; 0 is no limit.
    pub rate_limit: u32,
    /// Connections at a time.
    pub max_connections: NonZeroUsize,
    /// Certificate chain and key of the API's own HTTPS, as PEM files.
    pub tls: Option<TlsFiles>,
    /// A certificate authority that the command line trusts beside the system's, as a PEM file.
    pub ca: Option<PathBuf>,
}

#[derive(Debug, Clone)]
pub struct RunnerSettings {
    pub name: String,
    pub max_concurrent: NonZeroUsize,
    pub poll_interval: Duration,
    pub lease: Duration,
    pub shutdown_timeout: Duration,
    pub pause_timeout: Duration,
    pub max_batch_bytes: usize,
    pub source_patience: Duration,
    /// As the planner counts; without it a query may cost what it takes.
    pub max_query_cost: Option<f64>,
    pub changelog_max_age: Duration,
    pub load_max_age: Duration,
    pub keep_history: Duration,
    /// Where it shows how it does.
    pub metrics_listen: Option<SocketAddr>,
}

#[derive(Debug, Clone)]
pub struct LogSettings {
    pub format: LogFormat,
    pub level: Level,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LogFormat {
    /// Text on a terminal, JSON elsewhere.
    Auto,
    Text,
    Json,
}

/// A Postgres or a search server that pipelines name.
#[derive(Debug, Clone)]
pub struct Connection {
    pub url: SecretString,
    pub api_key: Option<SecretString>,
    pub ca: Option<PathBuf>,
    pub allowed_schemas: Vec<String>,
}

/// Fills in what follows from other settings. A connection without a URL is a problem.
pub(super) fn derive(values: &mut Values, runner_name: &str, problems: &mut Vec<Problem>) {
    derive_text(values, "runner.name", runner_name.to_owned(), Origin::Default);
    if let Some(listen) = values.get("api.listen").and_then(|value| parse::address(&text(value).ok()?).ok()) {
        let scheme = if values.contains_key("api.tls_cert") { "https" } else { "http" };
        let url = format!("{scheme}://{}", reachable(listen));
        derive_text(values, "api.url", url, Origin::Derived { from: "api.listen" });
    }
    if let Some(url) = values.get("database_url").and_then(|value| text(value).ok()) {
        derive_text(values, "connections.marts.url", url, Origin::Derived { from: "database_url" });
    }
    for name in connection_names(values) {
        complete_connection(values, &name, problems);
    }
}

fn derive_text(values: &mut Values, key: &str, text: String, origin: Origin) {
    let written = Written::Text(text);
    let value = || Value { given: Given { written: written.clone(), origin }, expanded: written.clone() };
    values.entry(key.to_owned()).or_insert_with(value);
}

/// A server on all addresses is found on the loopback one.
fn reachable(listen: SocketAddr) -> SocketAddr {
    let ip = match listen.ip() {
        IpAddr::V4(ip) if ip.is_unspecified() => Ipv4Addr::LOCALHOST.into(),
        IpAddr::V6(ip) if ip.is_unspecified() => Ipv6Addr::LOCALHOST.into(),
        ip => ip,
    };
    SocketAddr::new(ip, listen.port())
}

fn connection_names(values: &Values) -> BTreeSet<String> {
    let name = |key: &String| Some(key.strip_prefix("connections.")?.split_once('.')?.0.to_owned());
    values.keys().filter_map(name).collect()
}

fn complete_connection(values: &mut Values, name: &str, problems: &mut Vec<Problem>) {
    let schemas = format!("connections.{name}.allowed_schemas");
    let url = format!("connections.{name}.url");
    let prefix = format!("connections.{name}.");
    let other = values.iter().find(|(key, _)| key.starts_with(&prefix) && **key != url);
    if let (None, Some((other, Value { given, .. }))) = (values.get(&url), other) {
        // A URL with a broken reference is no value either, and has been reported.
        if !problems.iter().any(|problem| problem.key.as_ref() == Some(&url)) {
            let complaint = Complaint::new(format!("connection {name} has no url"), format!("set {url}"));
            problems.push(complaint.about(other, &given.origin));
        }
        return;
    }
    let pattern = known::find(&schemas).expect("every connection has this setting");
    if let known::Default::Value(default) = pattern.default {
        derive_text(values, &schemas, default.to_owned(), Origin::Default);
    }
}

/// None only together with problems, so that all of them are found in one go.
pub(super) fn read(values: &Values, problems: &mut Vec<Problem>) -> Option<Settings> {
    let mut reader = Reader { values, problems };
    let database_url = reader.text("database_url", |text| parse::secret_url(text, parse::POSTGRES));
    let allowed_targets = reader.list("allowed_targets", parse::target_pattern).map(AllowedTargets);
    let api = reader.api();
    let runner = reader.runner();
    let python = reader.python();
    let interpreter = reader.text("python.interpreter", parse::path);
    let log = reader.log();
    let connections = reader.connections();
    Some(Settings {
        database_url,
        allowed_targets: allowed_targets?,
        api: api?,
        runner: runner?,
        python: python?,
        interpreter: interpreter?,
        log: log?,
        connections,
        origin: None,
    })
}

struct Reader<'a> {
    values: &'a Values,
    problems: &'a mut Vec<Problem>,
}

impl Reader<'_> {
    fn api(&mut self) -> Option<ApiSettings> {
        let listen = self.text("api.listen", parse::address);
        let url = self.text("api.url", parse::api_url);
        let token = self.text("api.token", parse::token);
        let admin_token = self.text("api.admin_token", parse::token);
        let rate_limit = self.text("api.rate_limit", parse::rate);
        let max_connections = self.text("api.max_connections", parse::count);
        let (certificate, key) =
            (self.text("api.tls_cert", parse::path), self.text("api.tls_key", parse::path));
        let tls = self.pair(certificate, key);
        let ca = self.text("api.ca", parse::path);
        Some(ApiSettings {
            listen: listen?,
            url: url?,
            token,
            admin_token,
            rate_limit: rate_limit?,
            max_connections: max_connections?,
            tls: tls?,
            ca,
        })
    }

    /// A certificate is nothing without its key.
    fn pair(&mut self, certificate: Option<PathBuf>, key: Option<PathBuf>) -> Option<Option<TlsFiles>> {
        let (missing, given) = match (certificate, key) {
            (Some(certificate), Some(key)) => return Some(Some(TlsFiles { certificate, key })),
            (None, None) => return Some(None),
            (Some(_), None) => ("api.tls_key", "api.tls_cert"),
            (None, Some(_)) => ("api.tls_cert", "api.tls_key"),
        };
        let origin = &self.values.get(given)?.given.origin;
        let complaint = Complaint::new(format!("{given} is set without {missing}"), "set both, or none");
        self.problems.push(complaint.about(given, origin));
        None
    }

    fn runner(&mut self) -> Option<RunnerSettings> {
        let name = self.text("runner.name", parse::name);
        let max_concurrent = self.text("runner.max_concurrent", parse::count);
        let poll_interval = self.text("runner.poll_interval", parse::wait);
        let lease = self.text("runner.lease", parse::wait);
        let shutdown_timeout = self.text("runner.shutdown_timeout", parse::wait);
        let pause_timeout = self.text("runner.pause_timeout", parse::wait);
        let max_batch_bytes = self.text("runner.max_batch_bytes", parse::bytes);
        let source_patience = self.text("runner.source_patience", parse::wait);
        let max_query_cost = self.text("runner.max_query_cost", parse::cost);
        let changelog_max_age = self.text("runner.changelog_max_age", parse::duration);
        let load_max_age = self.text("runner.load_max_age", parse::duration);
        let keep_history = self.text("runner.keep_history", parse::duration);
        let metrics_listen = self.text("runner.metrics_listen", parse::address);
        Some(RunnerSettings {
            name: name?,
            max_concurrent: max_concurrent?,
            poll_interval: poll_interval?,
            lease: lease?,
            shutdown_timeout: shutdown_timeout?,
            pause_timeout: pause_timeout?,
            max_batch_bytes: max_batch_bytes?,
            source_patience: source_patience?,
            max_query_cost,
            changelog_max_age: changelog_max_age?,
            load_max_age: load_max_age?,
            keep_history: keep_history?,
            metrics_listen,
        })
    }

    /// Everything is looked at, whether or not it is used.
    fn python(&mut self) -> Option<Option<PythonSettings>> {
        let is_off = !self.values.contains_key("python.modules");
        let modules = self.list("python.modules", parse::module);
        let interpreter = self.text("python.interpreter", parse::path);
        let path = self.optional_list("python.path", parse::name);
        let variables = self.optional_list("python.variables", parse::name);
        let user = self.optional_text("python.user", parse::name);
        let warm = self.text("python.warm_workers", parse::count);
        let workers_a_run = self.text("python.workers_per_run", parse::count);
        let deadline = self.text("python.deadline", parse::wait);
        let memory_limit = self.text("python.memory_limit", parse::bytes);
        let batches_a_worker = self.text("python.batches_per_worker", parse::count);
        let settings = PythonSettings {
            interpreter: interpreter?,
            modules: if is_off { Vec::new() } else { modules? },
            path: path?.into_iter().map(PathBuf::from).collect(),
            variables: variables?,
            user: user?,
            warm: warm?.get(),
            workers_a_run: workers_a_run?.get(),
            deadline: deadline?,
            memory_limit: memory_limit? as u64,
            batches_a_worker: u32::try_from(batches_a_worker?.get()).unwrap_or(u32::MAX),
        };
        Some((!is_off).then_some(settings))
    }

    /// `None` where it is written wrongly.
    fn optional_text(
        &mut self,
        key: &str,
        check: impl Fn(&str) -> Result<String, Complaint>,
    ) -> Option<Option<String>> {
        if self.values.contains_key(key) { self.text(key, check).map(Some) } else { Some(None) }
    }

    fn optional_list(
        &mut self,
        key: &str,
        check: impl Fn(&str) -> Result<String, Complaint>,
    ) -> Option<Vec<String>> {
        if self.values.contains_key(key) { self.list(key, check) } else { Some(Vec::new()) }
    }

    fn log(&mut self) -> Option<LogSettings> {
        let format = self.text("log.format", parse::log_format);
        let level = self.text("log.level", parse::log_level);
        Some(LogSettings { format: format?, level: level? })
    }

    fn connections(&mut self) -> BTreeMap<String, Connection> {
        let names = connection_names(self.values);
        names.into_iter().filter_map(|name| Some((name.clone(), self.connection(&name)?))).collect()
    }

    fn connection(&mut self, name: &str) -> Option<Connection> {
        let url_key = format!("connections.{name}.url");
        if !parse::is_identifier(name) {
            let origin = &self.values.get(&url_key)?.given.origin;
            let message = format!("{name:?} is no name of a connection");
            let hint = "a name has lower-case letters, digits and `_`, a letter first";
            self.problems.push(Complaint::new(message, hint).about(&url_key, origin));
            return None;
        }
        let schemes = match name {
            "marts" => parse::POSTGRES,
            "search" => parse::HTTP,
            _ => parse::POSTGRES_OR_HTTP,
        };
        let url = self.text(&url_key, |text| parse::secret_url(text, schemes));
        let allowed_schemas = self.list(&format!("connections.{name}.allowed_schemas"), parse::schema);
        let api_key = self.text(&format!("connections.{name}.api_key"), parse::token);
        let ca = self.text(&format!("connections.{name}.ca"), parse::path);
        Some(Connection { url: url?, api_key, ca, allowed_schemas: allowed_schemas? })
    }

    fn text<T>(&mut self, key: &str, parse: impl Fn(&str) -> Result<T, Complaint>) -> Option<T> {
        self.value(key, |value| parse(&text(value)?))
    }

    fn list(&mut self, key: &str, check: impl Fn(&str) -> Result<String, Complaint>) -> Option<Vec<String>> {
        self.value(key, |value| match &value.expanded {
            Written::List(items) => items.iter().map(|item| check(item)).collect(),
            Written::Text(text) => text.split(',').map(|item| check(item.trim())).collect(),
        })
    }

    /// Complaints read on from the value: `"30" is no duration`.
    fn value<T>(&mut self, key: &str, parse: impl Fn(&Value) -> Result<T, Complaint>) -> Option<T> {
        let value = self.values.get(key)?;
        let complaint = match parse(value) {
            Ok(parsed) => return Some(parsed),
            // What is wrong with a derived value is wrong with its source, and said there.
            Err(_) if matches!(value.given.origin, Origin::Derived { .. }) => return None,
            Err(complaint) => complaint,
        };
        let setting = known::find(key).expect("only known keys become values");
        let subject = match setting.is_quotable() {
            true => format!("{:?}", value.given.written.to_string()),
            false => "the value".to_owned(),
        };
        let complaint = Complaint { message: format!("{subject} {}", complaint.message), ..complaint };
        self.problems.push(complaint.about(key, &value.given.origin));
        None
    }
}

fn text(value: &Value) -> Result<String, Complaint> {
    match &value.expanded {
        Written::Text(text) => Ok(text.clone()),
        Written::List(_) => Err(Complaint::new("is a list", "write one text")),
    }
}
