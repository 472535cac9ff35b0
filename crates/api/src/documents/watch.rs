//! A table that a mart depends on beside the one its rows stand for.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// A table whose changes make rows of the mart dirty.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Watch {
    #[serde(default)]
    #[schema(required, min_length = 1, example = "ugc.ratings")]
    table: String,
    /// Its columns that name what is dirty: in the order of the change key, or what `keys` is asked with.
    #[serde(default)]
    #[schema(required, min_items = 1)]
    key: Vec<String>,
    /// A query that answers the change keys of the values in `$1`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(example = "select film_work_id from content.person_film_work where person_id = any($1)")]
    keys: Option<String>,
    /// The column that tells when a row has changed; left out, the pipeline's own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    incremental_key: Option<String>,
}

impl From<Watch> for vitrina_core::Watch {
    fn from(watch: Watch) -> Self {
        let Watch { table, key, keys, incremental_key } = watch;
        Self { table, key, keys, incremental_key }
    }
}

impl From<vitrina_core::Watch> for Watch {
    fn from(watch: vitrina_core::Watch) -> Self {
        let vitrina_core::Watch { table, key, keys, incremental_key } = watch;
        Self { table, key, keys, incremental_key }
    }
}
