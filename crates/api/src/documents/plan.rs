//! Configuration as code: files as they are sent, and what applying them would change.

use std::borrow::Cow;
use std::fmt;

use serde::{Deserialize, Serialize};
use serde_json::Value;
use utoipa::ToSchema;
use vitrina_core::Decision;

use super::{Check, Document, PipelineConfig, SharedTarget, TargetConfig, words};

/// All that files say. What they do not name stays as it is, unless `prune` is set.
#[derive(Debug, Clone, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Configuration {
    #[serde(default)]
    pub(crate) targets: Vec<NamedTarget>,
    #[serde(default)]
    pub(crate) pipelines: Vec<PipelineConfig>,
    /// Delete pipelines and targets that are not named.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(crate) prune: bool,
    /// What becomes of the checkpoints of these pipelines that are of another configuration, by these changes or by earlier
    /// ones; left out, what `on_change` of each says.
    #[schema(value_type = Option<words::Decision>)]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) checkpoint: Option<Decision>,
}

/// A target as a file names it.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct NamedTarget {
    #[schema(example = "analytics.film_dim")]
    pub(crate) name: String,
    // The fields of `TargetConfig`: flattened, an unknown one would pass.
    pub(crate) connection: Option<String>,
    #[serde(default)]
    pub(crate) key: Vec<String>,
    pub(crate) touch_column: Option<String>,
    #[serde(default)]
    pub(crate) create_if_missing: bool,
    #[schema(value_type = Option<Object>)]
    pub(crate) mapping: Option<serde_json::Map<String, Value>>,
    #[schema(value_type = Option<Object>)]
    pub(crate) settings: Option<serde_json::Map<String, Value>>,
    #[serde(default, skip_serializing_if = "Document::is_plain")]
    pub(crate) document: Document,
    /// By what several pipelines share a mart; left out, one pipeline writes to it.
    pub(crate) shared: Option<SharedTarget>,
}

impl NamedTarget {
    pub(crate) fn into_config(self) -> TargetConfig {
        let Self {
            connection,
            key,
            touch_column,
            create_if_missing,
            mapping,
            settings,
            document,
            shared,
            ..
        } = self;
        TargetConfig { connection, key, touch_column, create_if_missing, mapping, settings, document, shared }
    }
}

/// What applying a configuration would do.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub struct Plan {
    /// Names this very plan: POST /apply carries out no other.
    pub hash: String,
    /// Nothing speaks against it.
    pub ok: bool,
    pub changes: Vec<PlannedChange>,
    /// Errors and warnings; `field` points into the configuration.
    pub checks: Vec<Check>,
}

#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct PlannedChange {
    pub action: Action,
    /// `pipeline` or `target`.
    #[schema(value_type = String, example = "pipeline")]
    pub kind: ConfigurationPart,
    pub name: String,
    /// The version that is changed; null for what is new.
    pub version: Option<i64>,
    pub fields: Vec<FieldChange>,
    /// What follows from it, beyond the configuration.
    pub effects: Vec<Effect>,
}

/// What a configuration consists of.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ConfigurationPart {
    Pipeline,
    Target,
}

impl fmt::Display for ConfigurationPart {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Pipeline => "pipeline",
            Self::Target => "target",
        })
    }
}

#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct Effect {
    /// `index.rebuild`, `index.fields`, `checkpoint.decision`, `checkpoint.keep`, `checkpoint.reset`, `target.left` or
    /// `history.gone`.
    #[schema(value_type = String, example = "checkpoint.decision")]
    pub code: Cow<'static, str>,
    pub detail: String,
}

impl Effect {
    pub(crate) fn new(code: &'static str, detail: impl Into<String>) -> Self {
        Self { code: code.into(), detail: detail.into() }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum Action {
    Create,
    Edit,
    Delete,
    /// The configuration stays, and its checkpoint is decided about: the change that made this necessary was applied before.
    Decide,
}

#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct FieldChange {
    #[schema(example = "batch_size")]
    pub field: String,
    /// Null where there was nothing.
    #[schema(value_type = words::Anything)]
    pub before: Value,
    #[schema(value_type = words::Anything)]
    pub after: Value,
}

/// What POST /apply takes: a configuration, and the plan that was seen.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Order {
    pub(crate) configuration: Configuration,
    /// `hash` of the plan.
    pub(crate) plan_hash: String,
}

/// What was carried out.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub struct Applied {
    pub changes: Vec<PlannedChange>,
}
