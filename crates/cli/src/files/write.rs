//! Configuration as a file would say it.

use serde_json::Value;
use serde_norway::{Mapping, Value as Yaml};

/// In the order a person reads: what it is, where it comes from, where it goes, how. Others follow by name.
const ORDER: [&str; 22] = [
    "targets",
    "pipelines",
    "order_index",
    "task_type",
    "name",
    "description",
    "tags",
    "enabled",
    "type",
    "source_type",
    "source_connection",
    "source_table",
    "source_query",
    "body",
    "connection",
    "target_table",
    "key",
    "mode",
    "incremental_key",
    "incremental_id_key",
    "batch_size",
    "schedule_interval",
];

/// SQL and other long texts come out as block scalars.
pub(crate) fn yaml(document: &Value) -> String {
    serde_norway::to_string(&ordered(document)).expect("documents have text keys")
}

fn ordered(value: &Value) -> Yaml {
    match value {
        Value::Object(fields) => {
            let rank = |name: &str| ORDER.iter().position(|known| *known == name).unwrap_or(ORDER.len());
            let mut fields: Vec<_> = fields.iter().collect();
            fields.sort_by_key(|(name, _)| (rank(name), name.as_str()));
            let pairs = fields.into_iter().map(|(name, value)| (Yaml::from(name.as_str()), ordered(value)));
            Yaml::Mapping(pairs.collect::<Mapping>())
        }
        Value::Array(items) => Yaml::Sequence(items.iter().map(ordered).collect()),
        other => serde_norway::to_value(other).unwrap_or_default(),
    }
}

/// A pipeline's name as the name of a file.
pub(crate) fn file_name(name: &str) -> String {
    // Names hold letters, digits, `_`, `-` and `.`; one that begins with a dot would be hidden.
    match name.starts_with('.') {
        true => format!("_{name}.yaml"),
        false => format!("{name}.yaml"),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_file_begins_with_what_a_person_looks_for() {
        let document = json!({"pipelines": [{"watch": [], "batch_size": 5, "source_query": "select 1\n  as n\n", "name": "n"}],
                              "targets": [{"key": ["id"], "name": "analytics.n"}]});
        let expected = "targets:\n- name: analytics.n\n  key:\n  - id\npipelines:\n- name: n\n  source_query: |\n    select 1\n      as n\n  batch_size: 5\n  watch: []\n";
        assert_eq!(yaml(&document), expected);
    }
}
