//! A target as it is shown.

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde::de::{Deserializer, IgnoredAny};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use utoipa::ToSchema;
use vitrina_core::{AliasRules, DocumentRules, Shared};
use vitrina_store::TargetRecord;

#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub struct TargetDetail {
    #[schema(example = "analytics.film_dim")]
    pub name: String,
    pub connection: String,
    /// Empty means the table's primary key.
    pub key: Vec<String>,
    pub touch_column: Option<String>,
    pub create_if_missing: bool,
    #[schema(value_type = Option<Object>)]
    pub mapping: Option<Value>,
    #[schema(value_type = Option<Object>)]
    pub settings: Option<Value>,
    #[serde(default, deserialize_with = "unread")]
    #[schema(required)]
    document: Document,
    /// By what several pipelines share it; null where one writes to it.
    #[serde(default, deserialize_with = "unread")]
    shared: Option<SharedTarget>,
    /// Names of the pipelines that write to it.
    pub pipelines: Vec<String>,
    /// Grows with every change; also the ETag.
    pub version: i64,
    pub created_at: Timestamp,
    pub updated_at: Timestamp,
}

/// For parts that are as strict as a request is: a client that read them back would refuse what a later server adds.
fn unread<'de, D: Deserializer<'de>, T: Default>(deserializer: D) -> Result<T, D::Error> {
    IgnoredAny::deserialize(deserializer).map(|_| T::default())
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
            shared: target.shared.map(Into::into),
            pipelines,
            version,
            created_at,
            updated_at,
        }
    }
}

/// How a target stands, beside what a pipeline would make of it.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub(crate) struct TargetStanding {
    /// The pipeline that it was compared with; null where nobody writes to it.
    #[serde(default)]
    pub(crate) pipeline: Option<String>,
    /// The table is there, or the alias and an index of Vitrina's behind it.
    exists: bool,
    /// Documents, or rows by the statistics of a table; null where it was never analyzed.
    rows: Option<u64>,
    /// The physical index behind the name that readers search.
    #[schema(example = "vitrina-films-0a1b2c3d-0123456789ab")]
    index: Option<String>,
    /// What readers saw before the last load: a rollback gives it back to them.
    previous: Option<String>,
    /// Columns or fields, by name.
    fields: Vec<TargetField>,
    /// Whether the columns of the pipeline's rows are known: those of a Python function may show only when it runs.
    compared: bool,
    /// Statements that would let a table take the rows; `vitrina mart` executes them.
    lacks: Vec<String>,
    /// Why it cannot take the rows, where no statement mends that.
    problem: Option<String>,
    /// The runner that looked.
    runner: String,
}

#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub(crate) struct TargetField {
    /// A column, or the path of a field; `*` is what a mapping says of the index as a whole.
    name: String,
    /// As the pipeline's rows or the target's mapping would make it: a type, or JSON of a mapping; null where they have none.
    declared: Option<String>,
    /// As it is there; null where it is not.
    live: Option<String>,
    /// The next load of an index would make it another; of a table it is missing or of another type.
    differs: bool,
}

/// By what several pipelines share a mart.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(example = json!({"by": "rows", "column": "tenant"}))]
pub(crate) struct SharedTarget {
    /// `rows`: each pipeline writes those that have its `shared_value` in a column of the key. `columns`: each writes the
    /// columns that its query returns.
    by: SharedBy,
    /// The column of the key that says whose a row is, where it is shared by rows.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    column: Option<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub(crate) enum SharedBy {
    Rows,
    Columns,
}

impl SharedTarget {
    /// `None` where rows have no column, or columns have one.
    pub(crate) fn rules(self) -> Option<Shared> {
        match (self.by, self.column.filter(|column| !column.trim().is_empty())) {
            (SharedBy::Rows, Some(column)) => Some(Shared::Rows { column }),
            (SharedBy::Columns, None) => Some(Shared::Columns),
            _ => None,
        }
    }
}

impl From<Shared> for SharedTarget {
    fn from(shared: Shared) -> Self {
        match shared {
            Shared::Rows { column } => Self { by: SharedBy::Rows, column: Some(column) },
            Shared::Columns => Self { by: SharedBy::Columns, column: None },
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
    /// Further names that readers search, set together with the index's own, by the next load.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    #[schema(example = json!({"films_for_children": {"filter": {"range": {"age": {"lte": 12}}}}}))]
    pub(crate) aliases: BTreeMap<String, Alias>,
}

/// What readers see through a further name of an index.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Alias {
    /// A query, as the server takes it: only documents that it finds.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Object>)]
    pub(crate) filter: Option<Value>,
    /// Only shards of this routing value.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) routing: Option<String>,
}

impl From<AliasRules> for Alias {
    fn from(AliasRules { filter, routing }: AliasRules) -> Self {
        Self { filter, routing }
    }
}

impl From<Alias> for AliasRules {
    fn from(Alias { filter, routing }: Alias) -> Self {
        Self { filter, routing }
    }
}

impl Document {
    /// Says nothing.
    pub(crate) fn is_plain(&self) -> bool {
        *self == Self::default()
    }
}

impl From<DocumentRules> for Document {
    fn from(rules: DocumentRules) -> Self {
        let DocumentRules { rename, omit, partial, take_over, no_checksum, aliases } = rules;
        let aliases = aliases.into_iter().map(|(name, alias)| (name, alias.into())).collect();
        Self { rename, omit, partial, take_over, no_checksum, aliases }
    }
}

impl From<Document> for DocumentRules {
    fn from(document: Document) -> Self {
        let Document { rename, omit, partial, take_over, no_checksum, aliases } = document;
        let aliases = aliases.into_iter().map(|(name, alias)| (name, alias.into())).collect();
        Self { rename, omit, partial, take_over, no_checksum, aliases }
    }
}
