//! A target as it is shown.

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use utoipa::ToSchema;
use vitrina_core::DocumentRules;
use vitrina_store::TargetRecord;

#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct TargetDetail {
    #[schema(example = "analytics.film_dim")]
    name: String,
    connection: String,
    /// Empty means the table's primary key.
    key: Vec<String>,
    touch_column: Option<String>,
    create_if_missing: bool,
    #[schema(value_type = Option<Object>)]
    mapping: Option<Value>,
    #[schema(value_type = Option<Object>)]
    settings: Option<Value>,
    document: Document,
    /// Names of the pipelines that write to it.
    pipelines: Vec<String>,
    /// Grows with every change; also the ETag.
    version: i64,
    created_at: Timestamp,
    updated_at: Timestamp,
}

impl From<TargetRecord> for TargetDetail {
    fn from(record: TargetRecord) -> Self {
        let TargetRecord { target, version, created_at, updated_at, pipelines } = record;
        Self {
            name: target.name,
            connection: target.connection,
            key: target.key,
            touch_column: target.touch_column,
            create_if_missing: target.create_if_missing,
            mapping: target.mapping,
            settings: target.settings,
            document: target.document.into(),
            pipelines,
            version,
            created_at,
            updated_at,
        }
    }
}

/// How rows become documents of an index.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct Document {
    /// The field of a column, where it has another name.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    #[schema(example = json!({"film_id": "id"}))]
    pub(crate) rename: BTreeMap<String, String>,
    /// Columns that are read and not written.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) omit: Vec<String>,
    /// Several pipelines write to the index, each the fields of its own columns.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub(crate) partial: bool,
    /// What already has the index's name and is not Vitrina's may be replaced.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub(crate) take_over: bool,
    /// Documents hold columns alone: without the checksum in `_vitrina` a comparison reads every document.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub(crate) no_checksum: bool,
}

impl Document {
    /// Says nothing.
    pub(crate) fn is_plain(&self) -> bool {
        *self == Self::default()
    }
}

impl From<DocumentRules> for Document {
    fn from(rules: DocumentRules) -> Self {
        let DocumentRules { rename, omit, partial, take_over, no_checksum } = rules;
        Self { rename, omit, partial, take_over, no_checksum }
    }
}

impl From<Document> for DocumentRules {
    fn from(document: Document) -> Self {
        let Document { rename, omit, partial, take_over, no_checksum } = document;
        Self { rename, omit, partial, take_over, no_checksum }
    }
}
