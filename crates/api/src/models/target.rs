//! A target as it is shown.

use jiff::Timestamp;
use serde::Serialize;
use serde_json::Value;
use utoipa::ToSchema;
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
            pipelines,
            version,
            created_at,
            updated_at,
        }
    }
}
