//! Configuration as a file would say it.

use serde_json::Value;

/// SQL and other long texts come out as block scalars.
pub(crate) fn yaml(document: &Value) -> String {
    serde_norway::to_string(document).expect("documents have text keys")
}

/// A pipeline's name as the name of a file.
pub(crate) fn file_name(name: &str) -> String {
    // Names hold letters, digits, `_`, `-` and `.`; one that begins with a dot would be hidden.
    format!("{}.yaml", name.trim_start_matches('.'))
}
