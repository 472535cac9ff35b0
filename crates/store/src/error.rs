//! What can go wrong with the meta-store, by what the caller does next.

use crate::direct;
use sqlx::postgres::PgConnectOptions;
use vitrina_core::{Locked, Refusal, TargetPart, Violation};

/// What to do where two pipelines are to write to one target.
const ONE_WRITER: &str = "a target has one writer: for full loads beside increments give that pipeline a full_schedule; \
    else write to a target of its own, or delete that pipeline first; a mart that several pipelines fill has shared: {by: rows, column: …} \
    with another shared_value for each, or shared: {by: columns}; such an index has document: {partial: true}";

pub type Result<T, E = Error> = std::result::Result<T, E>;

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error(
        "the meta-store's address is no Postgres URL\nhint: write postgres://user:password@host:5432/database"
    )]
    BadUrl,
    /// No server answers: passes by itself, or the address is wrong.
    #[error("the meta-store has not answered in time")]
    Unanswered,
    #[error(
        "cannot reach the meta-store at {address}: {reason}\nhint: is Postgres running there? see VITRINA_DATABASE_URL, or run `vitrina doctor`"
    )]
    Unreachable { address: String, reason: String },
    /// The server answers and says no.
    #[error(
        "the meta-store at {address} refuses the login: {reason}\nhint: check user, password and database in VITRINA_DATABASE_URL"
    )]
    Refused { address: String, reason: String },
    #[error(
        "the meta-store at {address} cannot be used: {}\nhint: {}",
        vitrina_core::POOLED,
        vitrina_core::DIRECT
    )]
    Pooled { address: String },
    #[error("the meta-store has no schema etl yet\nhint: run `vitrina migrate`")]
    NotMigrated,
    #[error(
        "the meta-store's schema is older than this vitrina: {applied} of {known} migrations are applied\nhint: run `vitrina migrate`"
    )]
    SchemaOlder { applied: usize, known: usize },
    #[error(
        "the meta-store's schema is newer than this vitrina (migration {version} is unknown here)\nhint: use the newer vitrina that migrated it"
    )]
    SchemaNewer { version: i64 },
    #[error(
        "migration {version} differs from the one that was applied\nhint: this vitrina is not the release that migrated the meta-store; for a demo: `vitrina demo --clean`"
    )]
    SchemaChanged { version: i64 },
    #[error(
        "the meta-store was migrated before the first release, by migrations that this vitrina has in fewer files\nhint: run `vitrina migrate`: it replaces their history and changes nothing else"
    )]
    SchemaSquashed,
    #[error(
        "the meta-store has {applied} of the {known} migrations from before the first release, and this vitrina lacks the others\nhint: run `vitrina migrate` of the last vitrina that has all {known}, then of this one; if nothing there is to be kept: drop schema etl; for a demo: `vitrina demo --clean`"
    )]
    SchemaIncomplete { applied: usize, known: usize },
    #[error("there is no pipeline {0}")]
    NoSuchPipeline(String),
    #[error("a pipeline named {0:?} exists already\nhint: choose another name")]
    NameTaken(String),
    #[error(
        "it was changed meanwhile: its version is {current}\nhint: look at it again, then change that version"
    )]
    VersionMoved { current: i64 },
    /// Fields that have to wait for the end of the open run.
    #[error("{0}\nhint: pause or cancel the run first, or wait for its end, as `vitrina apply --wait` does")]
    Locked(#[from] Locked),
    #[error("there is no target {0}")]
    NoSuchTarget(String),
    /// A target has one writer, unless it is declared to be shared.
    #[error("{part} is written by {} already\nhint: {ONE_WRITER}", .owners.join(", "))]
    TargetOwned { part: TargetPart, owners: Vec<String> },
    /// `shared_value` does not suit the target.
    #[error("{}", .0.message)]
    SharedValue(Violation),
    #[error("it is the target of {}\nhint: delete or retarget them first", .0.join(", "))]
    TargetUsed(Vec<String>),
    /// A pipeline that would be saved without any of these tags.
    #[error(
        "this token is for pipelines of its scope only, and this one would be outside of it\nhint: give it one of the tags {}",
        .0.join(", ")
    )]
    OutOfScope(Vec<String>),
    /// Somebody else writes to the target, or nobody.
    #[error(
        "target {0} cannot be described by this token: only one that pipelines of its scope write to, and no others\nhint: create the pipeline \
         that writes to it first, or apply both as one configuration; what others write to as well is described with a token for all pipelines"
    )]
    TargetOutOfScope(String),
    #[error(
        "the checkpoint has moved meanwhile: its version is {current}\nhint: look at it again, then change that version"
    )]
    CheckpointMoved { current: i64 },
    /// A checkpoint is not changed under a run.
    #[error("a run is active\nhint: wait for it, or cancel it")]
    RunOpen,
    #[error("there is nothing to resume\nhint: leave resume out: the run begins anew")]
    NothingToResume,
    #[error(
        "a backfill is paused, whose rest this run would drop\nhint: a run without mode, keys or range continues it, one in mode full reads its rows too; to drop it, cancel the pipeline first"
    )]
    BackfillPaused,
    #[error("{0}")]
    Refusal(#[from] Refusal),
    /// The checkpoint was made under another configuration, and nobody has said what it is worth now.
    #[error("{}", vitrina_core::Error::config_changed())]
    ConfigChanged,
    /// The same, made by other code.
    #[error("{0}")]
    CodeChanged(String),
    /// Another runner owns the pipeline now.
    #[error("the lease is lost")]
    LeaseLost,
    /// Something stored cannot be used; saved by hand past the API.
    #[error("{0}")]
    Unusable(String),
    #[error("a row of the meta-store cannot be read: {0}")]
    Unreadable(#[from] serde_json::Error),
    #[error("the meta-store failed: {0}")]
    Database(#[source] sqlx::Error),
}

impl Error {
    /// The connection is gone, not the request wrong: asking again later may succeed.
    pub fn is_connection(&self) -> bool {
        match self {
            Self::Unreachable { .. } | Self::Unanswered => true,
            Self::Database(error) => is_connection(error),
            _ => false,
        }
    }

    pub fn is_login_refused(&self) -> bool {
        let Self::Database(sqlx::Error::Database(refusal)) = self else { return false };
        refusal.code().is_some_and(|code| ["28P01", "28000"].contains(&&*code))
    }

    /// Someone else held a row for too long, or waited for ours: asking again soon may succeed.
    pub fn is_busy(&self) -> bool {
        let Self::Database(sqlx::Error::Database(refusal)) = self else { return false };
        refusal.code().is_some_and(|code| ["55P03", "40P01", "40001"].contains(&&*code))
    }

    /// Nothing is wrong with what was asked for: resources, conflicts, outages.
    pub(crate) fn may_pass(&self) -> bool {
        let passes = |refusal: &dyn sqlx::error::DatabaseError| {
            let code = refusal.code().unwrap_or_default();
            ["40", "53", "57", "58"].iter().any(|class| code.starts_with(class))
        };
        let of_resources =
            matches!(self, Self::Database(sqlx::Error::Database(refusal)) if passes(refusal.as_ref()));
        of_resources || self.is_connection() || self.is_busy()
    }

    pub(crate) fn connecting(error: sqlx::Error, options: &PgConnectOptions) -> Self {
        let database = options.get_database().unwrap_or_else(|| options.get_username());
        let address = format!("{}:{}/{database}", options.get_host(), options.get_port());
        match error {
            error if direct::is_of_pooler(&error) => Self::Pooled { address },
            sqlx::Error::Database(refusal) => Self::Refused { address, reason: refusal.message().to_owned() },
            sqlx::Error::PoolTimedOut => {
                Self::Unreachable { address, reason: "no answer within 5 s".to_owned() }
            }
            other => Self::Unreachable { address, reason: other.to_string() },
        }
    }
}

impl From<sqlx::Error> for Error {
    /// Everything in this crate talks to the meta-store and to nothing else.
    fn from(error: sqlx::Error) -> Self {
        Self::Database(error)
    }
}

const LATER: [&str; 7] = ["53300", "3D000", "55000", "53100", "25006", "28P01", "28000"];

fn is_connection(error: &sqlx::Error) -> bool {
    match error {
        sqlx::Error::Io(_) | sqlx::Error::PoolTimedOut | sqlx::Error::PoolClosed | sqlx::Error::Tls(_) => {
            true
        }
        // 08: connection exception; 57P: shutdown, crash, cannot connect now; 53300: too many connections;
        // 3D000, 55000: the database is not there, or takes no connections, as while it is restored; 53100: its disk
        // is full; 25006: it is a standby by now; 28P01, 28000: the login, which may be rotated, is refused.
        sqlx::Error::Database(refusal) => refusal
            .code()
            .is_some_and(|code| code.starts_with("08") || code.starts_with("57P") || LATER.contains(&&*code)),
        _ => false,
    }
}
