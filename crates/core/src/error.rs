//! One error for everything that can end a batch, classified by what happens next.

use std::error::Error as StdError;
use std::fmt;

use crate::values::{masked, value};

pub type Result<T, E = Error> = std::result::Result<T, E>;

/// What happens next.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Remedy {
    /// May pass by itself: the runner tries the batch again, a bounded number of times.
    Retry,
    /// A connection is gone: the pipeline is given back and waits for whoever can reach it.
    Release,
    /// A login is refused. Where it has worked before, somebody may be about to rotate it: the pipeline is given back. Else a
    /// person has to act.
    AwaitLogin,
    /// The lease is lost: another runner owns the pipeline, this one writes nothing more.
    StandDown,
    /// Cannot pass until a person changes the configuration, the source or the target.
    FixConfiguration,
    /// Should never happen: a defect of Vitrina.
    ReportBug,
}

/// What code that catches an error has to know of it beside its remedy. Codes and messages are for people and for programs
/// outside of Vitrina: runner and connectors decide nothing by them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum ErrorKind {
    #[default]
    Other,
    /// What the open pass has read or staged cannot be trusted: the pass is dropped, and the next run starts it anew.
    PassInvalid,
    /// The same, as changes were pruned from a change log before they were read.
    ChangesPruned,
    /// More rows are rejected than the limit allows: the rejects are kept, the batch is not.
    RejectLimit,
    /// The target names no key, and takes one that the source proves of its rows.
    KeyMissing,
    /// A key that no row can have.
    KeyInvalid,
    /// A server refuses a statement, whatever the values in it.
    StatementRefused,
    /// A server refuses a value: it is none of its type, or nothing can be computed with it.
    ValueRefused,
    /// Somebody else has locked what a statement needs.
    Locked,
    /// A search server has closed or removed the write alias of this lease.
    WriteAliasClosed,
    /// A search server has closed the index.
    IndexClosed,
}

/// `code` is stable and meant for programs; the message names the thing and holds no secrets. Values of rows in it are
/// [marked](crate::values): whoever prints the error does not see them.
#[derive(Debug)]
pub struct Error {
    pub code: &'static str,
    pub remedy: Remedy,
    pub kind: ErrorKind,
    message: String,
    hint: Option<String>,
    source: Option<Box<dyn StdError + Send + Sync>>,
}

/// Of an address where a pooler answers instead of a Postgres.
pub const POOLED: &str =
    "a connection pooler such as pgbouncer answers there, whose sessions other applications get next";
pub const DIRECT: &str = "give the address of the Postgres server itself: Vitrina opens few sessions and keeps them, see docs/runners.md";
/// How pgbouncer begins to refuse startup options that it is not told to drop.
pub const REFUSED_OPTIONS: &str = "unsupported startup parameter";

const DECIDE: &str = "run it with checkpoint `keep` to go on from there, with checkpoint `reset` to read everything from the start, or in mode `full`; `on_change` of the pipeline answers for every change to come";

impl Error {
    pub fn new(remedy: Remedy, code: &'static str, message: impl Into<String>) -> Self {
        let kind = ErrorKind::Other;
        Self { code, remedy, kind, message: message.into(), hint: None, source: None }
    }

    /// With marked values of rows: for a place that shows them only to who may see rows.
    pub fn with_values(&self) -> String {
        match &self.hint {
            Some(hint) => format!("{}\nhint: {hint}", self.message),
            None => self.message.clone(),
        }
    }

    /// Message and hint apart, with marked values.
    pub fn told(&self) -> (&str, Option<&str>) {
        (&self.message, self.hint.as_deref())
    }

    pub fn retry(code: &'static str, message: impl Into<String>) -> Self {
        Self::new(Remedy::Retry, code, message)
    }

    pub fn release(code: &'static str, message: impl Into<String>) -> Self {
        Self::new(Remedy::Release, code, message)
    }

    pub fn lease_lost() -> Self {
        Self::new(Remedy::StandDown, "lease.lost", "another runner has taken this pipeline over")
    }

    pub fn checkpoint_moved() -> Self {
        Self::new(Remedy::StandDown, "checkpoint.moved", "the checkpoint was moved by someone else")
    }

    /// Whoever knows the rejects tells how many there are.
    pub fn reject_limit(message: impl Into<String>) -> Self {
        Self::fix("rejects.limit", message).of_kind(ErrorKind::RejectLimit)
    }

    /// The target was acquired by a lease that the meta-store has not issued. A person has to decide which one is rightful.
    pub fn installation_copied(target: &str) -> Self {
        let message = format!(
            "{target} was written under a lease that this meta-store has not issued: another copy of the meta-store is at work, or this one was restored from a backup; nothing was written"
        );
        Self::fix("installation.copied", message).hint(
            "`vitrina installation adopt` if this meta-store shall go on writing there, which stops the other copy; `vitrina installation new` if this is the copy, and shall have an installation of its own",
        )
    }

    /// A person has to decide what the checkpoint is worth now.
    pub fn config_changed() -> Self {
        let message =
            "the pipeline was changed since its checkpoint was made: what has been read may not fit any more";
        Self::fix("checkpoint.config_changed", message).hint(DECIDE)
    }

    /// Nothing that is in the target would be found under its new key.
    pub fn key_changed(before: &[String], now: &[String]) -> Self {
        let message = format!(
            "the key of the target was ({}) and is ({}): what is there would stay under its old key, beside the same rows under the new one",
            before.join(", "),
            now.join(", ")
        );
        Self::fix("checkpoint.key_changed", message)
            .hint("the checkpoint cannot be kept: run with checkpoint `reset` to read everything from the start, or in mode `full`")
    }

    /// The same, where only the code of its Python functions is another one.
    pub fn code_changed(functions: &[&str]) -> Self {
        let message = format!(
            "the code of {} was changed since the checkpoint was made: what has been written went through the older one",
            functions.join(", ")
        );
        Self::fix("checkpoint.code_changed", message).hint(DECIDE)
    }

    /// The same, where the query brings more columns than it did.
    pub fn columns_added(columns: &[&str]) -> Self {
        let message = format!(
            "the query returns {}, which it did not when the checkpoint was made: rows that were read before lack it in the target",
            columns.join(", ")
        );
        Self::fix("checkpoint.columns_added", message).hint(DECIDE)
    }

    pub fn fix(code: &'static str, message: impl Into<String>) -> Self {
        Self::new(Remedy::FixConfiguration, code, message)
    }

    pub fn bug(code: &'static str, message: impl Into<String>) -> Self {
        Self::new(Remedy::ReportBug, code, message)
    }

    /// What a library says to rows that it was given by mistake; it may quote them.
    pub fn defect(code: &'static str, error: &impl ToString) -> Self {
        Self::bug(code, value(&error.to_string()))
    }

    #[must_use]
    pub fn of_kind(self, kind: ErrorKind) -> Self {
        Self { kind, ..self }
    }

    /// Whatever the open pass has read must be read again.
    pub fn drops_pass(&self) -> bool {
        matches!(self.kind, ErrorKind::PassInvalid | ErrorKind::ChangesPruned)
    }

    /// A server has understood what it was asked, and said no.
    pub fn is_refused(&self) -> bool {
        matches!(self.kind, ErrorKind::StatementRefused | ErrorKind::ValueRefused)
    }

    #[must_use]
    pub fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }

    #[must_use]
    pub fn caused_by(mut self, source: impl Into<Box<dyn StdError + Send + Sync>>) -> Self {
        self.source = Some(source.into());
        self
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&masked(&self.with_values()))
    }
}

impl StdError for Error {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        self.source.as_deref().map(|source| source as &(dyn StdError + 'static))
    }
}
