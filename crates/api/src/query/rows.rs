//! The key of a row, as people type it.

use serde::Deserialize;
use utoipa::IntoParams;

use super::invalid;
use crate::documents::Key;
use crate::error::Result;

#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub(crate) struct RowKey {
    /// The value of the target's key column, or a JSON list of the values where the key has several columns, such as
    /// `["7", "en"]`. A text that begins with a bracket is written as a list, too.
    #[param(example = "7")]
    key: String,
}

impl RowKey {
    /// One text a column of the key: no row is found by a NULL.
    pub(crate) fn parts(&self) -> Result<Vec<String>> {
        let parts = match self.key.starts_with('[') {
            true => serde_json::from_str::<Key>(&self.key).ok().and_then(Key::texts),
            false => Some(vec![self.key.clone()]),
        };
        let usable = |parts: &Vec<String>| parts.iter().all(|part| !part.contains('\0'));
        let rule = "a key is a text, or a JSON list of texts or whole numbers such as [\"7\", \"en\"]";
        parts.filter(usable).ok_or_else(|| invalid("key", rule))
    }
}
