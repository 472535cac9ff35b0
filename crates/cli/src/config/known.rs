//! The one table of settings. Parsing, masking, `config show`, errors about unknown keys and the
//! reference in the documentation all follow from it.

use std::fmt::Write;

use crate::nearest::nearest;

/// `<name>` in a key stands for the name of a connection, `<NAME>` in a variable for the same in upper case.
pub(super) struct Setting {
    pub(super) key: &'static str,
    pub(super) variable: &'static str,
    pub(super) shape: Shape,
    pub(super) default: Default,
    about: &'static str,
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Shape {
    Text,
    /// A list in the file, comma separated elsewhere.
    List,
    /// No secret, but somebody may have put a password into it.
    Url,
    SecretText,
    /// Shown without its passwords.
    SecretUrl,
}

pub(super) enum Default {
    None,
    Value(&'static str),
    /// Worked out by `settings::derive`; the text is for the reference.
    Derived(&'static str),
}

use Default::{Derived, None as Unset, Value};
use Shape::{List, SecretText, SecretUrl, Text, Url};

#[rustfmt::skip] // one setting, one line
pub(super) const SETTINGS: &[Setting] = &[
    setting("database_url", "VITRINA_DATABASE_URL", SecretUrl, Unset, "the meta-store: a Postgres URL"),
    setting("allowed_targets", "VITRINA_ALLOWED_TARGETS", List, Value("analytics.*,es:*"), "what may be written: names, or prefixes that end with `*`"),
    setting("api.listen", "VITRINA_API_LISTEN", Text, Value("127.0.0.1:8080"), "IP address and port the API listens on"),
    setting("api.url", "VITRINA_API_URL", Url, Derived("http://<api.listen>, or https"), "where the command line finds the API"),
    setting("api.token", "VITRINA_API_TOKEN", SecretText, Unset, "bearer token the command line sends"),
    setting("api.admin_token", "VITRINA_ADMIN_TOKEN", SecretText, Unset, "becomes the first admin token of the API"),
    setting("api.rate_limit", "VITRINA_API_RATE_LIMIT", Text, Value("5000"), "calls a second that one token may make, a change counting as ten; 0 for no limit"),
    setting("api.max_connections", "VITRINA_API_MAX_CONNECTIONS", Text, Value("1024"), "connections to the API at a time, at most three quarters of the files that the process may open; whoever comes beyond them waits until one ends"),
    setting("api.tls_cert", "VITRINA_API_TLS_CERT", Text, Unset, "PEM file with the API's certificate chain: HTTPS instead of HTTP"),
    setting("api.tls_key", "VITRINA_API_TLS_KEY", Text, Unset, "PEM file with its key"),
    setting("api.ca", "VITRINA_API_CA", Text, Unset, "PEM file with a certificate authority that the command line trusts beside the system's"),
    setting("runner.name", "VITRINA_RUNNER_NAME", Text, Derived("<host>-<process id>"), "how this runner signs its leases"),
    setting("runner.max_concurrent", "VITRINA_RUNNER_MAX_CONCURRENT", Text, Value("4"), "runs at a time"),
    setting("runner.poll_interval", "VITRINA_RUNNER_POLL_INTERVAL", Text, Value("1s"), "how often to look for requested runs, and at least every 10s"),
    setting("runner.lease", "VITRINA_RUNNER_LEASE", Text, Value("30s"), "how long a silent runner keeps its pipelines; as every other wait of these settings 24h at most"),
    setting("runner.shutdown_timeout", "VITRINA_RUNNER_SHUTDOWN_TIMEOUT", Text, Value("30s"), "how long a stopping runner may finish its batches"),
    setting("runner.pause_timeout", "VITRINA_RUNNER_PAUSE_TIMEOUT", Text, Value("60s"), "how long a pause waits for the batch under way before that is rolled back"),
    setting("runner.max_batch_bytes", "VITRINA_RUNNER_MAX_BATCH_BYTES", Text, Value("16MB"), "bounds the memory of a batch, whatever its batch_size"),
    setting("runner.source_patience", "VITRINA_RUNNER_SOURCE_PATIENCE", Text, Value("60s"), "how long a slow target may keep a transaction open at the source"),
    setting("runner.max_query_cost", "VITRINA_RUNNER_MAX_QUERY_COST", Text, Unset, "refuses queries that the source's planner expects to cost more, in runs, validation and previews; without it none"),
    setting("runner.load_max_age", "VITRINA_RUNNER_LOAD_MAX_AGE", Text, Value("24h"), "a load that was opened longer ago is not resumed by another run: it begins anew"),
    setting("runner.changelog_max_age", "VITRINA_RUNNER_CHANGELOG_MAX_AGE", Text, Value("168h"), "a change log does not wait longer for a pipeline that follows it"),
    setting("runner.metrics_listen", "VITRINA_RUNNER_METRICS_LISTEN", Text, Unset, "IP address and port where the runner shows `/metrics` and `/health/live`, to anyone; without it nowhere"),
    setting("runner.keep_history", "VITRINA_RUNNER_KEEP_HISTORY", Text, Value("2160h"), "how long runs, their batches and their logs are kept, 87600h at most; the newest run of a pipeline stays"),
    setting("python.modules", "VITRINA_PYTHON_MODULES", List, Unset, "Python modules whose registered functions pipelines may name; without it none"),
    setting("python.interpreter", "VITRINA_PYTHON_INTERPRETER", Text, Value("python3"), "the `python` of the environment that has what these modules need"),
    setting("python.path", "VITRINA_PYTHON_PATH", List, Unset, "folders where modules are looked for before the environment's own"),
    setting("python.variables", "VITRINA_PYTHON_VARIABLES", List, Unset, "variables of the runner's environment that functions may see; all others are kept from them"),
    setting("python.user", "VITRINA_PYTHON_USER", Text, Unset, "the user that functions run as, where the runner is root: it can read nothing that belongs to the runner alone; without it they run as the runner's"),
    setting("python.warm_workers", "VITRINA_PYTHON_WARM_WORKERS", Text, Value("1"), "workers that have imported the modules and wait for a run"),
    setting("python.workers_per_run", "VITRINA_PYTHON_WORKERS_PER_RUN", Text, Value("1"), "how many batches of one run are worked on at a time, in a worker each; more than one wants functions that keep nothing between batches"),
    setting("python.deadline", "VITRINA_PYTHON_DEADLINE", Text, Value("60s"), "how long a function may work on one batch before its worker is killed"),
    setting("python.memory_limit", "VITRINA_PYTHON_MEMORY_LIMIT", Text, Value("1GB"), "what a worker and its children may hold in memory before they are killed"),
    setting("python.batches_per_worker", "VITRINA_PYTHON_BATCHES_PER_WORKER", Text, Value("1000"), "a worker is replaced by a fresh one after so many batches"),
    setting("log.format", "VITRINA_LOG_FORMAT", Text, Value("auto"), "auto (text on a terminal, else json), text or json"),
    setting("log.level", "VITRINA_LOG_LEVEL", Text, Value("info"), "error, warn, info, debug or trace"),
    setting("connections.<name>.url", "VITRINA_CONNECTIONS_<NAME>_URL", SecretUrl, Derived("for `marts`: database_url"), "a Postgres or search server, several nodes of one with commas between them; for `search` also ELASTICSEARCH_URL or OPENSEARCH_URL"),
    setting("connections.<name>.api_key", "VITRINA_CONNECTIONS_<NAME>_API_KEY", SecretText, Unset, "for a search server: a key in Base64, instead of a user and a password in the url"),
    setting("connections.<name>.ca", "VITRINA_CONNECTIONS_<NAME>_CA", Text, Unset, "for a search server: a PEM file with certificates to trust beside the system's"),
    setting("connections.<name>.allowed_schemas", "VITRINA_CONNECTIONS_<NAME>_ALLOWED_SCHEMAS", List, Value("content,ugc"), "schemas that pipelines may read; the default is the sample cinema's, other databases need their own"),
];

const fn setting(
    key: &'static str,
    variable: &'static str,
    shape: Shape,
    default: Default,
    about: &'static str,
) -> Setting {
    Setting { key, variable, shape, default, about }
}

/// Variables of the search servers' own world that stand for `connections.search.url`.
pub(super) const SEARCH_VARIABLES: [&str; 2] = ["ELASTICSEARCH_URL", "OPENSEARCH_URL"];

/// Names the configuration file.
pub(super) const FILE_VARIABLE: &str = "VITRINA_CONFIG";

/// Variables with our prefix that are no settings.
pub(super) fn is_other_variable(variable: &str) -> bool {
    let others = [
        FILE_VARIABLE,
        "VITRINA_PG_BINDIR",
        "VITRINA_ROLE_PASSWORD",
        "VITRINA_READER_PASSWORD",
        "VITRINA_CHANGELOG_URL",
    ];
    others.contains(&variable) || variable.starts_with("VITRINA_TEST_")
}

impl Setting {
    pub(super) fn is_secret(&self) -> bool {
        matches!(self.shape, SecretText | SecretUrl)
    }

    /// Whether an error may repeat what was written.
    pub(super) fn is_quotable(&self) -> bool {
        matches!(self.shape, Text | List)
    }

    /// The key this variable stands for, if it is one of this setting's.
    fn key_of(&self, variable: &str) -> Option<String> {
        let Some((before, after)) = self.variable.split_once("<NAME>") else {
            return (self.variable == variable).then(|| self.key.to_owned());
        };
        let name = variable.strip_prefix(before)?.strip_suffix(after)?;
        (!name.is_empty()).then(|| self.key.replace("<name>", &name.to_ascii_lowercase()))
    }
}

pub(super) fn find(key: &str) -> Option<&'static Setting> {
    SETTINGS.iter().find(|setting| with_name_of(setting.key, key) == key)
}

pub(super) fn key_of(variable: &str) -> Option<String> {
    SETTINGS.iter().find_map(|setting| setting.key_of(variable))
}

/// Whether known settings live below this key, so that an empty table there is no mistake.
pub(super) fn is_section(key: &str) -> bool {
    let prefix = format!("{key}.");
    SETTINGS.iter().any(|setting| with_name_of(setting.key, &prefix).starts_with(&prefix))
}

/// The pattern with the second part of `key` as its name: `connections.<name>.url` of
/// `connections.content.ulr` is `connections.content.url`.
fn with_name_of(pattern: &str, key: &str) -> String {
    let name = key.split('.').nth(1).filter(|name| !name.is_empty()).unwrap_or("<name>");
    pattern.replace("<name>", name)
}

/// "did you mean" where something known is near, else all that is known.
pub(super) fn suggest_key(unknown: &str) -> String {
    let known: Vec<String> = SETTINGS.iter().map(|setting| with_name_of(setting.key, unknown)).collect();
    did_you_mean(unknown, &known).unwrap_or_else(|| {
        let keys: Vec<&str> = SETTINGS.iter().map(|setting| setting.key).collect();
        format!("known keys: {}", keys.join(", "))
    })
}

pub(super) fn suggest_variable(unknown: &str) -> Option<String> {
    let known: Vec<String> = SETTINGS.iter().map(|setting| setting.variable.to_owned()).collect();
    did_you_mean(unknown, &known)
}

fn did_you_mean(unknown: &str, known: &[String]) -> Option<String> {
    Some(format!("did you mean {}?", nearest(unknown, known)?))
}

/// All settings as a Markdown table, for the documentation.
pub fn reference() -> String {
    let mut table = "| key | environment | default | meaning |\n|---|---|---|---|\n".to_owned();
    for setting in SETTINGS {
        let default = match setting.default {
            Unset => String::new(),
            Value(text) => format!("`{text}`"),
            Derived(text) => text.replace('<', "\\<"),
        };
        let secret = if setting.is_secret() { " (secret)" } else { "" };
        let Setting { key, variable, about, .. } = setting;
        writeln!(table, "| `{key}` | `{variable}` | {default} | {about}{secret} |")
            .expect("writing to a String cannot fail");
    }
    table
}
