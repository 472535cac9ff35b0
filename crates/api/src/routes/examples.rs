//! Examples of the documentation, for people to copy. A test sends each of them.

use serde_json::{Value, json};

/// Of a parameter that a caller has to know the form of.
pub(super) fn parameter(name: &str) -> Option<&'static str> {
    match name {
        "p" => Some("film_dim"),
        "t" => Some("analytics.film_dim"),
        "c" => Some("source"),
        "if-match" => Some("\"1\""),
        "idempotency-key" => Some("film_dim-2024-05-01"),
        "traceparent" => Some("00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"),
        _ => None,
    }
}

/// Of the body of a call.
pub(super) fn body(operation: &str) -> Option<Value> {
    let pipeline = || {
        json!({
            "name": "film_titles",
            "description": "Titles of films, for the search page",
            "tags": ["films"],
            "target_table": "analytics.film_titles",
            "source_query": "select id, title, modified from content.film_work",
            "mode": "incremental",
            "incremental_key": "modified",
            "incremental_id_key": "id",
            "schedule_interval": "5m",
            "full_schedule": "0 2 * * *",
            "freshness_limit_seconds": 900,
            "reconcile_schedule": "0 3 * * *",
        })
    };
    let target = json!({"key": ["id"], "create_if_missing": true});
    let configuration =
        || json!({"targets": [{"name": "analytics.film_titles", "key": ["id"]}], "pipelines": [pipeline()]});
    Some(match operation {
        "create_pipeline" => pipeline(),
        "edit_pipeline" | "update_pipeline_config" | "validate_pipeline" => {
            json!({"batch_size": 5000, "schedule_interval": null})
        }
        "validate" => json!({"pipeline": pipeline(), "target": target}),
        "preview" | "explain" => json!({"pipeline": pipeline()}),
        "reconcile_pipeline" => json!({"level": "rows", "limit": 1000}),
        "run_pipeline" => json!({"mode": "full", "on_active": "after"}),
        "pause_pipeline" | "cancel_pipeline" => json!({"reason": "the source is being moved"}),
        "edit_pipeline_state" => json!({"position": {"done": {"bound": ["2024-05-01T00:00:00Z", "7"]}}}),
        "acknowledge_rejects" | "discard_rejects" | "retry_rejects" => json!({"code": "23514"}),
        "put_target" => target,
        "plan" => configuration(),
        "apply" => json!({
            "configuration": configuration(),
            "plan_hash": "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08",
        }),
        _ => return None,
    })
}
