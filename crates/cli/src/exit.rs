//! The one place where outcomes become exit codes, and errors the text a person reads.

use anyhow::Error;
use sqlx::error::DatabaseError;
use vitrina_core::Remedy;

use crate::client;
use crate::config::ConfigError;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Exit {
    Done = 0,
    Failed = 1,
    /// Wrong usage, or a configuration that cannot be used.
    Usage = 2,
    Differences = 3,
    /// Something needed cannot be reached, or says no.
    Refused = 4,
    Conflict = 5,
    TimedOut = 124,
    Interrupted = 130,
}

/// An error that knows its exit code.
#[derive(Debug, thiserror::Error)]
#[error("{message}")]
struct Fault {
    exit: Exit,
    message: String,
}

impl Exit {
    /// `message` may end with a line `hint: …`.
    pub(crate) fn fault(self, message: impl Into<String>) -> Error {
        Fault { exit: self, message: message.into() }.into()
    }

    pub(crate) fn of(error: &Error) -> Self {
        if let Some(fault) = error.downcast_ref::<Fault>() {
            return fault.exit;
        }
        if error.is::<ConfigError>() {
            return Self::Usage;
        }
        let of_client = error.downcast_ref().map(of_client);
        let of_store = || error.downcast_ref().map(of_store);
        let of_start = || error.downcast_ref().map(of_start);
        let of_cluster = || error.downcast_ref().map(of_cluster);
        let of_core = || error.downcast_ref().map(of_core);
        let of_cinema = || error.downcast_ref().map(of_cinema);
        let found = of_client.or_else(of_store).or_else(of_start).or_else(of_cluster).or_else(of_cinema);
        found.or_else(of_core).unwrap_or(Self::Failed)
    }
}

/// A name that was typed and that there is not.
const NO_SUCH_THING: [&str; 4] =
    [client::NO_SUCH_PIPELINE, "runner.not_found", "connection.not_found", "reconcile.not_found"];

fn of_client(error: &client::Error) -> Exit {
    match error {
        client::Error::Refused(problem) if NO_SUCH_THING.contains(&problem.code.as_str()) => Exit::Usage,
        client::Error::Refused(problem) => match problem.status {
            400 | 405 | 413 | 415 | 422 => Exit::Usage,
            401 | 403 | 429 | 502..=504 => Exit::Refused,
            409 | 412 => Exit::Conflict,
            _ => Exit::Failed,
        },
        _ => Exit::Refused,
    }
}

fn of_store(error: &vitrina_store::Error) -> Exit {
    use vitrina_store::Error as E;
    match error {
        E::BadUrl => Exit::Usage,
        E::Refused { .. }
        | E::NotMigrated
        | E::SchemaOlder { .. }
        | E::SchemaNewer { .. }
        | E::SchemaChanged { .. }
        | E::SchemaSquashed
        | E::SchemaIncomplete { .. } => Exit::Refused,
        E::Database(error) if lacks_rights(error) => Exit::Refused,
        error if error.is_connection() => Exit::Refused,
        _ => Exit::Failed,
    }
}

/// The server's insufficient_privilege.
pub(crate) fn lacks_rights(error: &sqlx::Error) -> bool {
    error.as_database_error().and_then(DatabaseError::code).is_some_and(|code| code == "42501")
}

fn of_start(error: &vitrina_api::StartError) -> Exit {
    match error {
        vitrina_api::StartError::EmptyToken
        | vitrina_api::StartError::ShortToken(_)
        | vitrina_api::StartError::SampleToken
        | vitrina_api::StartError::Tls(_) => Exit::Usage,
        vitrina_api::StartError::OtherToken => Exit::Conflict,
        vitrina_api::StartError::Store(error) => of_store(error),
        _ => Exit::Refused,
    }
}

fn of_cluster(error: &vitrina_cluster::Error) -> Exit {
    match error {
        vitrina_cluster::Error::Failed { .. } => Exit::Failed,
        _ => Exit::Refused,
    }
}

fn of_core(error: &vitrina_core::Error) -> Exit {
    match error.remedy {
        Remedy::FixConfiguration | Remedy::Release | Remedy::AwaitLogin => Exit::Refused,
        _ => Exit::Failed,
    }
}

fn of_cinema(error: &vitrina_cinema::Error) -> Exit {
    match error {
        vitrina_cinema::Error::Connect(_) | vitrina_cinema::Error::OtherRelease => Exit::Refused,
        error => match std::error::Error::source(error).and_then(database_cause) {
            Some(cause) if lacks_rights(cause) => Exit::Refused,
            _ => Exit::Failed,
        },
    }
}

/// The message, then the causes it does not tell itself, then its hint.
pub(crate) fn explain(error: &Error) -> String {
    let cause = database_cause(error.as_ref());
    let plain = |text: String| cause.map_or(text.clone(), |cause| in_plain_words(&text, cause));
    let text = plain(error.to_string());
    let (message, hint) = match text.rfind("\nhint: ") {
        Some(place) => text.split_at(place),
        None => (text.as_str(), ""),
    };
    let mut explained = message.to_owned();
    for cause in error.chain().skip(1).map(|cause| plain(cause.to_string())) {
        if !explained.contains(&cause) {
            explained.push_str(": ");
            explained.push_str(&cause);
        }
    }
    explained + hint
}

/// What a database says, as a person reads it.
pub(crate) fn told(error: &sqlx::Error) -> String {
    in_plain_words(&error.to_string(), error)
}

/// The server's message and its SQLSTATE. sqlx adds a line number, which is one of Postgres's own source code.
fn in_plain_words(text: &str, cause: &sqlx::Error) -> String {
    let Some(refusal) = cause.as_database_error() else { return text.to_owned() };
    let state = refusal.code().unwrap_or_default();
    let plain = format!("{} (SQLSTATE {state})", refusal.message());
    text.replace(&cause.to_string(), &plain).replace(&refusal.to_string(), &plain)
}

fn database_cause<'a>(error: &'a (dyn std::error::Error + 'static)) -> Option<&'a sqlx::Error> {
    let causes = std::iter::successors(Some(error), |error| error.source());
    causes
        .filter_map(|cause| cause.downcast_ref::<sqlx::Error>())
        .find(|cause| cause.as_database_error().is_some())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn causes_stand_before_the_hint_and_are_told_once() {
        let cause = std::io::Error::other("connection reset");
        let error = vitrina_core::Error::fix("a.b", "cannot read\nhint: try again").caused_by(cause);
        assert_eq!(explain(&error.into()), "cannot read: connection reset\nhint: try again");
        let cause = std::io::Error::other("connection reset");
        let error = vitrina_core::Error::fix("a.b", "cannot read: connection reset").caused_by(cause);
        assert_eq!(explain(&error.into()), "cannot read: connection reset");
    }
}
