//! What the installation says about itself.

use std::borrow::Cow;
use std::collections::BTreeMap;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use utoipa::ToSchema;
use vitrina_store::{AuditRecord, PythonTaskRecord, Role, RunnerRecord, TokenInfo};

#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub struct Runner {
    pub name: String,
    pub version: String,
    pub host: String,
    pub pid: i32,
    pub max_concurrent: i32,
    pub active_runs: i32,
    /// Pipelines that others left behind, since it started.
    pub taken_over: i64,
    pub connections: Vec<String>,
    pub python_tasks: Vec<String>,
    /// `READY`, `DRAINING` or `STOPPED`.
    pub status: String,
    pub started_at: Timestamp,
    pub heartbeat_at: Timestamp,
    /// Its heartbeat is recent by the database's clock.
    pub alive: bool,
}

impl From<RunnerRecord> for Runner {
    fn from(record: RunnerRecord) -> Self {
        Self {
            name: record.name,
            version: record.version,
            host: record.host,
            pid: record.pid,
            max_concurrent: record.max_concurrent,
            active_runs: record.active_runs,
            taken_over: record.taken_over,
            connections: record.connections,
            python_tasks: record.python_tasks,
            status: record.status,
            started_at: record.started_at,
            heartbeat_at: record.heartbeat_at,
            alive: record.alive,
        }
    }
}

/// A Python function that a runner has registered. Pipelines name it; its code stays with the runner.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub struct PythonTask {
    pub name: String,
    /// `transform` or `source`.
    pub kind: String,
    /// The runner that has it.
    pub runner: String,
    /// That runner has been heard of lately.
    pub alive: bool,
    /// Changes with its code.
    pub version_hash: String,
    /// What its author says of it.
    pub doc: String,
    pub published_at: Timestamp,
}

impl From<PythonTaskRecord> for PythonTask {
    fn from(record: PythonTaskRecord) -> Self {
        let PythonTaskRecord { name, runner, kind, version_hash, doc, published_at, alive } = record;
        Self { name, kind, runner, alive, version_hash, doc, published_at }
    }
}

/// Who calls.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Caller {
    /// The name of the token, or `local` where the server is open to this machine.
    name: String,
    /// What the caller may do: `viewer` looks, `operator` also runs and repairs, `admin` also configures.
    #[schema(value_type = String, example = "operator")]
    role: Role,
    /// Values of rows are shown: in rejects, differences, previews and errors.
    sees_rows: bool,
    /// The scope: only pipelines that have one of these tags are seen. Null where the token is for all of them.
    #[schema(example = json!(["films", "search"]))]
    tags: Option<Vec<String>>,
}

impl From<TokenInfo> for Caller {
    fn from(TokenInfo { name, role, sees_rows, scope, .. }: TokenInfo) -> Self {
        Self { name, role, sees_rows, tags: scope.tags() }
    }
}

#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub struct Health {
    /// `ok`; `degraded` where a source or every runner is away; `unavailable` without the meta-store.
    #[schema(value_type = String)]
    pub status: Cow<'static, str>,
    /// What asking it has shown: `ok` or `unavailable`.
    #[schema(value_type = String)]
    pub meta_store: Cow<'static, str>,
    /// Asked by this server, at most every ten seconds.
    #[serde(default)]
    #[schema(required)]
    pub sources: Vec<SourcePulse>,
    pub runners: Vec<RunnerPulse>,
}

impl Health {
    /// The meta-store, all sources and a runner are there.
    pub fn is_sound(&self) -> bool {
        self.status == "ok"
    }
}

/// What asking a source has shown.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct SourcePulse {
    pub connection: String,
    /// What is wrong; null where nothing is.
    pub problem: Option<String>,
}

/// Who changed what.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub struct AuditEntry {
    pub id: i64,
    pub at: Timestamp,
    /// The name of the token, or `local` where there was none.
    pub actor: String,
    #[schema(example = "pipeline.edit")]
    pub action: String,
    pub subject: String,
    /// Of an edit, the fields that have changed.
    #[schema(value_type = Option<Object>)]
    pub before: Option<Value>,
    #[schema(value_type = Option<Object>)]
    pub after: Option<Value>,
    pub request_id: Option<String>,
}

impl From<AuditRecord> for AuditEntry {
    fn from(record: AuditRecord) -> Self {
        let AuditRecord { id, at, actor, action, subject, before, after, request_id } = record;
        Self { id, at, actor, action, subject, before, after, request_id }
    }
}

#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub struct RunnerPulse {
    pub name: String,
    pub alive: bool,
    /// Connections that did not work when it started, and why.
    pub problems: BTreeMap<String, String>,
}

#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Live {
    pub(crate) status: &'static str,
}

#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Version {
    pub(crate) name: &'static str,
    pub(crate) version: &'static str,
}
