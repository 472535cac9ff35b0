//! The pipelines of the storm, one of each kind. Each is called as its mart.

use serde_json::{Value, json};

use crate::weather::Weather;

pub(crate) const NAMES: [&str; 4] = ["film", "film_rating", "actor", "actor_full"];

/// Transactions of the writers take less than two seconds; the rest is for a machine that is busy.
const LATE_WINDOW_SECONDS: u32 = 20;

pub(crate) fn all(weather: &Weather) -> Vec<Value> {
    let cursor = json!({
        "mode": "incremental", "incremental_key": "modified", "incremental_id_key": "id", "late_window_seconds": LATE_WINDOW_SECONDS,
    });
    let film = "select id, title, version, modified from content.film where not hidden";
    let rating = "select * from (select film_id, count(*) filter (where not hidden) as ratings,
        coalesce(sum(score) filter (where not hidden), 0)::bigint as score, sum(version)::bigint as version
        from content.rating group by film_id) rows";
    let actor = "select id, name, version from content.actor";
    vec![
        pipeline("film", film, weather, &[&cursor, &json!({"schedule_interval": "1s"})]),
        pipeline("film_rating", rating, weather, &[&cursor, &json!({"source_table": "content.rating"})]),
        pipeline(
            "actor",
            actor,
            weather,
            &[&json!({"mode": "incremental", "capture": "changelog", "schedule_interval": "1s"})],
        ),
        pipeline("actor_full", actor, weather, &[&json!({"mode": "full", "schedule_interval": "2s"})]),
    ]
}

fn pipeline(name: &str, query: &str, weather: &Weather, parts: &[&Value]) -> Value {
    let mut pipeline = json!({
        "name": name, "source_connection": "content", "source_query": query, "target_table": format!("analytics.{name}"),
        "batch_size": weather.batch_size, "delete_limit": 1.0,
    });
    for part in parts {
        for (field, value) in part.as_object().into_iter().flatten() {
            pipeline[field] = value.clone();
        }
    }
    pipeline
}
