//! Everything that can go wrong with a call, and the one place where it becomes an answer.

use std::sync::Arc;
use std::time::Duration;

use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use vitrina_core::ReconcileStatus;
use vitrina_store::{Error as StoreError, Role};

use crate::limits::seconds;
use crate::problem::{Fault, Problem};

pub(crate) type Result<T, E = Error> = std::result::Result<T, E>;

#[derive(Debug)]
pub(crate) enum Error {
    /// Shared by all who have asked for the same.
    Store(Arc<StoreError>),
    NoSuchPipeline(String),
    NoSuchRun(String),
    NoSuchReconcile(String),
    /// It has come to its end before.
    ReconcileEnded,
    /// Only what a comparison has found can be repaired.
    ReconcileNotDone(ReconcileStatus),
    NothingToRepair,
    /// What differs is known by number only.
    DifferencesNotKept,
    /// A source that cannot be asked for keys.
    CannotBackfill,
    /// A repair would delete more than the pipeline may.
    OverDeleteLimit {
        deletes: u64,
        target_rows: u64,
        limit: f64,
    },
    NoSuchTarget(String),
    /// A change of what is there, where nothing is.
    TargetMissing(String),
    NoSuchConnection(String),
    /// Only runners have the connection: this server reads nothing there.
    NotASource(String),
    NoSuchRunner(String),
    /// It has stopped, or has not been heard of for a while.
    RunnerGone,
    /// Another request than this one already waits for the end of the active run.
    LineTaken,
    /// There is no reject to read again, or none that was chosen.
    NoRejects,
    /// The configuration breaks rules: all of them.
    InvalidPipeline(Vec<Fault>),
    InvalidTarget(Vec<Fault>),
    /// Files break rules: all of them.
    InvalidConfiguration(Vec<Fault>),
    /// The query may not be asked, or its source refuses it.
    InvalidSql(Vec<Fault>),
    /// The source of a query could not be asked.
    SourceAway(String),
    /// No living runner can answer this.
    NoRunner(String),
    /// A runner has taken the question, and who it asks does not answer.
    RunnerWaits(String),
    /// A runner has taken the question, and could not answer it.
    Unanswered {
        code: String,
        error: String,
    },
    /// A runner has looked, and what it should look at is wrong in itself.
    TargetUnusable {
        code: String,
        error: String,
    },
    /// The plan that was seen is not the plan by now.
    PlanMoved {
        hash: String,
    },
    /// Nobody else can listen now.
    TooManyListeners,
    /// One caller asks too often.
    TooMany(Duration),
    /// The pipeline cannot run in the mode that was asked for.
    NoIncrementalKey(Fault),
    /// The idempotency key belongs to a request of another mode or other keys.
    KeyReused,
    /// The body is JSON, but not what this call takes.
    InvalidBody(Fault),
    InvalidQuery(Fault),
    InvalidHeader(&'static str),
    /// The history of the checkpoint has no such version, or not any more.
    NoSuchVersion(i64),
    /// The call does not say which version it is about.
    NoIfMatch,
    BadJson(Fault),
    UnreadableBody,
    BodyTooLarge,
    NotJson,
    NoSuchPath,
    WrongMethod,
    /// No token, or none that is known: the same answer, so that nothing can be learned from it.
    Unauthorized,
    /// A token was sent to a server that has none.
    NeedlessToken,
    Forbidden(Role),
    /// Too many tokens that nobody knows came from this address.
    LoginsSlowed(Duration),
    /// The call is nothing without values of rows.
    RowsHidden,
    /// The call is about the whole installation, and the token is for a part of it.
    NeedsEverything,
    /// While an answer was made for who the token was a moment ago.
    RightsChanged,
    ForeignHost,
    ForeignOrigin,
    Internal(&'static str),
}

impl From<StoreError> for Error {
    fn from(error: StoreError) -> Self {
        Self::Store(Arc::new(error))
    }
}

impl Error {
    #[rustfmt::skip] // A table: one line per answer.
    pub(crate) fn problem(self) -> Problem {
        use StatusCode as S;
        match self {
            Self::Store(error) => of_store(&error),
            Self::NoSuchPipeline(name) => of_store(&StoreError::NoSuchPipeline(name)),
            Self::NoSuchRun(id) => Problem::new(S::NOT_FOUND, "run.not_found", &format!("there is no run {id}")),
            Self::NoSuchReconcile(id) => Problem::new(S::NOT_FOUND, "reconcile.not_found", &format!("there is no reconcile {id}")).hint("GET /reconciles lists them"),
            Self::ReconcileEnded => Problem::new(S::CONFLICT, "reconcile.ended", "the reconcile has ended already"),
            Self::ReconcileNotDone(status) => Problem::new(S::CONFLICT, "reconcile.not_done", &format!("the reconcile is {status}: it has found nothing that could be repaired")).hint("GET /reconciles/{id}?wait=30 waits for its end; one that has failed or was cancelled is asked for again"),
            Self::NothingToRepair => Problem::new(S::CONFLICT, "reconcile.equal", "the reconcile has found no row that a repair would change").hint("rows in flight come with the next run, and rejects are read again by POST …/rejects/retry"),
            Self::DifferencesNotKept => Problem::new(S::CONFLICT, "reconcile.not_kept", "the reconcile has kept no row that differs").hint("ask for one with level rows and a limit above 0, then repair that"),
            Self::CannotBackfill => Problem::new(S::CONFLICT, "backfill.python", "a Python source has no keys to be asked for: it is read from a position").hint("run the pipeline in mode full"),
            Self::OverDeleteLimit { deletes, target_rows, limit } => Problem::new(S::CONFLICT, "reconcile.delete_limit", &format!("the repair would delete {deletes} of {target_rows} rows, over the limit of {} %", limit * 100.0)).hint("if so much has really vanished from the source, raise delete_limit and repair again"),
            Self::NoSuchRunner(name) => Problem::new(S::NOT_FOUND, "runner.not_found", &format!("there is no runner {name:?}")).hint("GET /runners lists them"),
            Self::RunnerGone => Problem::new(S::CONFLICT, "runner.gone", "the runner has stopped or is silent").hint("its pipelines are taken over by others as soon as its leases have expired"),
            Self::LineTaken => Problem::new(S::CONFLICT, "pipeline.pending", "another request already waits for the end of the active run").hint("ask again once the active run has ended"),
            Self::NoRejects => Problem::new(S::CONFLICT, "rejects.none", "the pipeline has no open reject that was chosen").hint("GET …/rejects lists those it has; one closes by itself when its key succeeds or leaves the source"),
            Self::NoSuchTarget(name) => of_store(&StoreError::NoSuchTarget(name)),
            Self::TargetMissing(name) => Problem::new(S::PRECONDITION_FAILED, "target.missing", &format!("there is no target {name:?} that if-match could name")).hint("leave if-match out to describe a target that is new"),
            Self::NoSuchConnection(name) => Problem::new(S::NOT_FOUND, "connection.not_found", &format!("there is no connection {name:?}")).hint("GET /connections lists them"),
            Self::NotASource(name) => Problem::new(S::CONFLICT, "connection.not_a_source", &format!("this server does not read from connection {name:?}")).hint("GET /connections shows the allowed schemas of those it reads from"),
            Self::InvalidTarget(errors) => Problem::new(S::UNPROCESSABLE_ENTITY, "target.invalid", "the target cannot be saved as it is").errors(errors),
            Self::InvalidConfiguration(errors) => Problem::new(S::UNPROCESSABLE_ENTITY, "config.invalid", "the configuration cannot be applied as it is").errors(errors),
            Self::InvalidSql(errors) => Problem::new(S::UNPROCESSABLE_ENTITY, "sql.invalid", "the query cannot be asked as it is").errors(errors),
            Self::SourceAway(reason) => Problem::new(S::BAD_GATEWAY, "source.unavailable", &reason).hint("POST /connections/{c}/test tells more"),
            Self::NoRunner(what) => Problem::new(S::SERVICE_UNAVAILABLE, "runner.none", &format!("no runner {what}")).hint("start one with `vitrina runner`, then ask again").header(header::RETRY_AFTER, "5"),
            Self::RunnerWaits(what) => Problem::new(S::SERVICE_UNAVAILABLE, "runner.waits", &what).hint(RUNNER_WAITS).header(header::RETRY_AFTER, "5"),
            Self::Unanswered { code, error } => Problem::new(S::BAD_GATEWAY, "runner.unanswered", &format!("a runner has looked and cannot answer ({code}): {error}")),
            Self::TargetUnusable { code, error } => Problem::new(S::CONFLICT, "target.unusable", &format!("the target cannot be looked at as it is defined ({code}): {error}")),
            Self::PlanMoved { hash } => Problem::new(S::CONFLICT, "plan.moved", "the plan is another one by now").hint("look at the plan again, then apply that").plan_hash(hash),
            Self::TooManyListeners => Problem::new(S::SERVICE_UNAVAILABLE, "events.full", "too many listen already, or this token does so 64 times").hint("close other streams, or poll GET …/status with wait instead").header(header::RETRY_AFTER, "60"),
            Self::TooMany(wait) => Problem::new(S::TOO_MANY_REQUESTS, "rate.limited", "this token asks too often").hint("wait as long as retry-after says").header(header::RETRY_AFTER, &seconds(wait).to_string()),
            Self::InvalidPipeline(errors) => Problem::new(S::UNPROCESSABLE_ENTITY, "pipeline.invalid", "the pipeline cannot be saved as it is").errors(errors),
            Self::NoIncrementalKey(fault) => Problem::new(S::UNPROCESSABLE_ENTITY, "pipeline.incremental_key", "this pipeline cannot run incrementally").hint("run it in mode full, or give it an incremental_key").errors(vec![fault]),
            Self::KeyReused => Problem::new(S::CONFLICT, "idempotency_key.reused", "this idempotency key was used for another request").hint("send a new key for a new request"),
            Self::InvalidBody(fault) => Problem::new(S::UNPROCESSABLE_ENTITY, "request.invalid", "the body is not what this call takes").errors(vec![fault]),
            Self::InvalidQuery(fault) => Problem::new(S::UNPROCESSABLE_ENTITY, "request.invalid", "the query is not what this call takes").errors(vec![fault]),
            Self::InvalidHeader(rule) => Problem::new(S::BAD_REQUEST, "request.header", rule),
            Self::NoSuchVersion(version) => Problem::new(S::UNPROCESSABLE_ENTITY, "state.no_such_version", &format!("the history of this checkpoint has no version {version}")).hint("the history lists those it has: GET …/state/history, or `vitrina state` with --history"),
            Self::NoIfMatch => Problem::new(S::PRECONDITION_REQUIRED, "request.if_match", "this call changes a version that it has to name").hint("send if-match with the etag of the GET; an edit of a configuration also takes if-match: *"),
            Self::BadJson(fault) => Problem::new(S::BAD_REQUEST, "request.json", "the body is not JSON").errors(vec![fault]),
            Self::UnreadableBody => Problem::new(S::BAD_REQUEST, "request.body", "the body ended early or cannot be read"),
            Self::BodyTooLarge => Problem::new(S::PAYLOAD_TOO_LARGE, "request.too_large", "the body is larger than 16 MiB, which `plan` and `apply` take, or than 1 MiB, which other calls take"),
            Self::NotJson => Problem::new(S::UNSUPPORTED_MEDIA_TYPE, "request.media_type", "the body must be JSON").hint("send content-type: application/json"),
            Self::NoSuchPath => Problem::new(S::NOT_FOUND, "path.not_found", "there is nothing at this path").hint("see /api/v1/openapi.json for what there is"),
            Self::WrongMethod => Problem::new(S::METHOD_NOT_ALLOWED, "method.not_allowed", "this path does not know this method").hint("the header allow lists the methods it knows"),
            Self::Unauthorized => Problem::new(S::UNAUTHORIZED, "access.unauthorized", "this call needs a valid token").hint("send authorization: Bearer <token>").header(header::WWW_AUTHENTICATE, "Bearer"),
            Self::NeedlessToken => Problem::new(S::UNAUTHORIZED, "access.unauthorized", "this API has no tokens, so it cannot know the one that was sent").hint("unset VITRINA_API_TOKEN, or set VITRINA_ADMIN_TOKEN for the server").header(header::WWW_AUTHENTICATE, "Bearer"),
            Self::Forbidden(role) => Problem::new(S::FORBIDDEN, "access.forbidden", &format!("this call needs the role {}", role.as_str())).hint("use a token of that role"),
            Self::LoginsSlowed(wait) => Problem::new(S::TOO_MANY_REQUESTS, "access.slowed", "too many calls of this address had no valid token").hint("check the token, and wait as long as retry-after says").header(header::RETRY_AFTER, &seconds(wait).to_string()),
            Self::RowsHidden => Problem::new(S::FORBIDDEN, "access.rows", "this call shows values of rows, which this token may not see").hint("use a token with the right to see rows: `vitrina token create` with --rows"),
            Self::NeedsEverything => Problem::new(S::FORBIDDEN, "access.scope", "this call is about the whole installation, and this token is for some of its pipelines").hint("use a token for all pipelines: one that was created without --tag"),
            Self::RightsChanged => Problem::new(S::SERVICE_UNAVAILABLE, "access.changed", "the rights of this token have just been changed").hint("ask again").header(header::RETRY_AFTER, "1"),
            Self::ForeignHost => Problem::new(S::FORBIDDEN, "access.host", "without tokens only calls to localhost are answered").hint("set VITRINA_ADMIN_TOKEN and send it as a bearer token"),
            Self::ForeignOrigin => Problem::new(S::FORBIDDEN, "access.origin", "without tokens no other web page may call").hint("set VITRINA_ADMIN_TOKEN and send it as a bearer token"),
            Self::Internal(reason) => internal(&reason),
        }
    }
}

/// What to look for where a runner waits.
pub(crate) const RUNNER_WAITS: &str =
    "look for who has locked the table there (pg_stat_activity, pg_locks), then ask again";

/// What the database said goes into the log and to nobody else.
fn of_store(error: &StoreError) -> Problem {
    let message = error.to_string();
    match error {
        StoreError::NoSuchPipeline(_) => Problem::new(StatusCode::NOT_FOUND, "pipeline.not_found", &message),
        StoreError::NameTaken(_) => Problem::new(StatusCode::CONFLICT, "pipeline.name_taken", &message),
        StoreError::VersionMoved { current } => {
            Problem::new(StatusCode::PRECONDITION_FAILED, "config.version_moved", &message).current(*current)
        }
        StoreError::CheckpointMoved { current } => {
            Problem::new(StatusCode::PRECONDITION_FAILED, "state.version_moved", &message).current(*current)
        }
        StoreError::Locked(locked) => {
            let fault = |field: &String| {
                Fault::new(format!("/{field}"), "pipeline.locked", "it cannot change under a run")
            };
            Problem::new(StatusCode::CONFLICT, "pipeline.locked", &message)
                .errors(locked.fields.iter().map(fault).collect())
        }
        StoreError::NoSuchTarget(_) => Problem::new(StatusCode::NOT_FOUND, "target.not_found", &message),
        StoreError::OutOfScope(_) | StoreError::TargetOutOfScope(_) => {
            Problem::new(StatusCode::FORBIDDEN, "access.scope", &message)
        }
        StoreError::TargetOwned { .. } => Problem::new(StatusCode::CONFLICT, "target.owned", &message),
        StoreError::SharedValue(violation) => {
            let fault = Fault::new("/shared_value", violation.code, &violation.message);
            Problem::new(
                StatusCode::UNPROCESSABLE_ENTITY,
                "pipeline.invalid",
                "the pipeline cannot be saved as it is",
            )
            .errors(vec![fault])
        }
        StoreError::TargetUsed(_) => Problem::new(StatusCode::CONFLICT, "target.used", &message),
        StoreError::RunOpen => Problem::new(StatusCode::CONFLICT, "pipeline.active", &message),
        StoreError::BackfillPaused => Problem::new(StatusCode::CONFLICT, "run.backfill_paused", &message),
        StoreError::NothingToResume => Problem::new(StatusCode::CONFLICT, "run.nothing_to_resume", &message),
        StoreError::ConfigChanged => Problem::new(StatusCode::CONFLICT, "pipeline.config_changed", &message),
        StoreError::CodeChanged(_) => Problem::new(StatusCode::CONFLICT, "pipeline.code_changed", &message),
        StoreError::Refusal(refusal) => {
            Problem::new(StatusCode::CONFLICT, refusal.code(), &message).hint(refusal.hint())
        }
        error if error.is_connection() => unavailable(error),
        error if error.is_busy() => busy(error),
        error => internal(error),
    }
}

fn unavailable(error: &StoreError) -> Problem {
    tracing::error!(%error, "the meta-store does not answer");
    let message = "the meta-store does not answer\nhint: ask again in a few seconds";
    Problem::new(StatusCode::SERVICE_UNAVAILABLE, "meta_store.unavailable", message)
        .header(header::RETRY_AFTER, "5")
}

fn busy(error: &StoreError) -> Problem {
    tracing::warn!(%error, "a row was locked for too long");
    let message = "the pipeline is being changed by someone else\nhint: ask again in a few seconds";
    Problem::new(StatusCode::SERVICE_UNAVAILABLE, "pipeline.busy", message).header(header::RETRY_AFTER, "5")
}

fn internal(error: &dyn std::fmt::Display) -> Problem {
    tracing::error!(%error, "a call failed");
    let message = "something went wrong here\nhint: the server's log has the reason under this request_id";
    Problem::new(StatusCode::INTERNAL_SERVER_ERROR, "internal", message)
}

impl IntoResponse for Error {
    /// The envelope completes the problem with the request's id.
    fn into_response(self) -> Response {
        let problem = self.problem();
        let mut response = StatusCode::INTERNAL_SERVER_ERROR.into_response();
        response.extensions_mut().insert(problem);
        response
    }
}
