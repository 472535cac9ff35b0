//! What is said of a pipeline that waits: the reason in words, and what to do about it.

use jiff::Timestamp;
use serde::Deserialize;

use super::{BUSY, LATE, NO_CONNECTION, NO_FUNCTION, NOT_CLAIMING, Waiting};

/// As a statement answers it.
#[derive(Debug, Deserialize)]
pub(super) struct Facts {
    code: String,
    since: Timestamp,
    #[serde(default)]
    until: Option<Timestamp>,
    #[serde(default)]
    releases: u32,
    /// Why it was given back, where that is what it waits for.
    #[serde(default)]
    error: Option<String>,
    /// Only an idle runner takes it.
    #[serde(default)]
    suspect: bool,
    #[serde(default)]
    needs: Needs,
    /// Those that have all that it needs, or of a schedule those that are alive.
    #[serde(default)]
    runners: Option<Vec<String>>,
}

#[derive(Debug, Default, Deserialize)]
struct Needs {
    connections: Vec<String>,
    functions: Vec<String>,
    no_connections: Vec<String>,
    no_functions: Vec<String>,
}

impl From<Facts> for Waiting {
    fn from(facts: Facts) -> Self {
        let message = facts.message();
        let Facts { code, since, until, releases, .. } = facts;
        Self { code, message, since, until, releases }
    }
}

const START_ONE: &str = "start one with `vitrina runner`";

impl Facts {
    fn message(&self) -> String {
        let runners = self.runners.as_deref().unwrap_or_default().join(", ");
        match (&self.error, self.code.as_str()) {
            (Some(error), _) => self.given_back(error),
            (None, NO_CONNECTION) => self.needs.no_connection(),
            (None, NO_FUNCTION) => self.needs.no_function(),
            (None, BUSY) if self.suspect => format!(
                "its runners fell silent while they executed it: only an idle runner takes it, and none is idle: {runners}\nhint: it \
                 is taken as soon as one is; one more `vitrina runner` takes it at once"
            ),
            (None, BUSY) => format!(
                "all runners that can take it are busy: {runners}\nhint: it is taken as soon as one has room; one more `vitrina \
                 runner` or a higher runner.max_concurrent makes room"
            ),
            (None, NOT_CLAIMING) => format!(
                "runners with room have left it alone for more than a minute: {runners}\nhint: look at their logs"
            ),
            (None, LATE) if runners.is_empty() => {
                format!("no runner is alive to request its scheduled run\nhint: {START_ONE}")
            }
            (None, LATE) => {
                format!("no runner has requested its scheduled run: {runners}\nhint: look at their logs")
            }
            (None, _) => format!("no runner is alive\nhint: {START_ONE}"),
        }
    }

    fn given_back(&self, error: &str) -> String {
        match self.releases {
            0 | 1 => format!("given back: {error}"),
            times => format!("given back {times} times in a row: {error}"),
        }
    }
}

impl Needs {
    fn no_connection(&self) -> String {
        let (quantity, names) = match self.no_connections.as_slice() {
            [] => ("all of the connections", &self.connections),
            [_] => ("connection", &self.no_connections),
            _ => ("the connections", &self.no_connections),
        };
        let settings: Vec<String> = names.iter().map(|name| setting(name)).collect();
        format!(
            "no live runner has {quantity} {}\nhint: start one with {}",
            quoted(names),
            settings.join(" and ")
        )
    }

    fn no_function(&self) -> String {
        let (quantity, names) = match self.no_functions.as_slice() {
            [] => ("all of the Python functions", &self.functions),
            [_] => ("the Python function", &self.no_functions),
            _ => ("the Python functions", &self.no_functions),
        };
        let connections = quoted(&self.connections);
        format!(
            "no live runner with the connections {connections} has {quantity} {}\nhint: start one whose python.modules register \
             what it lacks; `vitrina python` lists who has what",
            quoted(names)
        )
    }
}

/// What gives a runner a connection of this name. A variable cannot say every name that a file can.
fn setting(name: &str) -> String {
    let plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_';
    match name.chars().all(plain) {
        true => format!("VITRINA_CONNECTIONS_{}_URL", name.to_ascii_uppercase()),
        false => format!("the setting connections.{name}.url"),
    }
}

fn quoted(names: &[String]) -> String {
    names.iter().map(|name| format!("{name:?}")).collect::<Vec<_>>().join(", ")
}
