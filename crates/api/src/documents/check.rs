//! What was found out about a configuration before it is saved or run.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::{PipelineConfig, TargetConfig};
use crate::problem::Fault;

/// What follows from a check.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum Severity {
    /// As it should be.
    Ok,
    /// It works, but could work better, or could not be looked at.
    Warning,
    /// It cannot be saved, or would fail.
    Error,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Check {
    /// Stable, for programs.
    #[schema(example = "sql.table_not_allowed")]
    pub code: String,
    pub severity: Severity,
    /// Where in the configuration, as a JSON pointer; empty where it is about the whole.
    #[schema(example = "/source_query")]
    pub field: String,
    pub detail: String,
    /// Where in the SQL, counted from 1.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub line: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub column: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hint: Option<String>,
}

impl Check {
    pub(crate) fn new(severity: Severity, code: &str, field: &str, message: &str) -> Self {
        Self { severity, ..Fault::new(field, code, message).into() }
    }
}

impl From<Fault> for Check {
    fn from(fault: Fault) -> Self {
        let Fault { pointer, code, detail, line, column, hint } = fault;
        Self { code, severity: Severity::Error, field: pointer, detail, line, column, hint }
    }
}

impl From<Check> for Fault {
    fn from(check: Check) -> Self {
        let Check { code, field, detail, line, column, hint, .. } = check;
        Self { pointer: field, code, detail, line, column, hint }
    }
}

/// What POST /validate takes: a pipeline, and a target that is not saved either.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Question {
    pub(crate) pipeline: PipelineConfig,
    /// Left out, the target as it is saved.
    pub(crate) target: Option<TargetConfig>,
}

/// All findings at once.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub struct Verdict {
    /// No check is an error.
    pub ok: bool,
    pub checks: Vec<Check>,
}

impl From<Vec<Check>> for Verdict {
    fn from(checks: Vec<Check>) -> Self {
        Self { ok: checks.iter().all(|check| check.severity != Severity::Error), checks }
    }
}
