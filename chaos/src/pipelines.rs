//! The pipelines of the storm, one of each kind. Each is called as its mart.

use serde_json::{Value, json};

use crate::fault_schedule::FaultSchedule;
use crate::remote::{INDEX, REMOTE};

/// Those whose marts are beside their source.
pub(crate) const NAMES: [&str; 6] = ["film", "film_rating", "film_cast", "shelf", "actor", "actor_full"];

/// Transactions of the writers take less than two seconds; the rest is for a machine that is busy.
const LATE_WINDOW_SECONDS: u32 = 20;

pub(crate) fn all(schedule: &FaultSchedule) -> Vec<Value> {
    let cursor = json!({
        "mode": "incremental", "incremental_key": "modified", "incremental_id_key": "id", "late_window_seconds": LATE_WINDOW_SECONDS,
    });
    let film = "select id, title, version, modified from content.film where not hidden";
    let rating = "select * from (select film_id, count(*) filter (where not hidden) as ratings,
        coalesce(sum(score) filter (where not hidden), 0)::bigint as score, sum(version)::bigint as version
        from content.rating group by film_id) rows";
    let cast = "select * from (select f.id, f.title, string_agg(r.name, ', ' order by r.id) filter (where not r.hidden) as roles,
        f.version + coalesce(sum(r.version), 0)::bigint as version
        from content.film f left join content.role r on r.film_id = f.id group by f.id) rows";
    let actor = "select id, name, version from content.actor";
    let index = schedule.search.then(|| {
        pipeline(INDEX, film, schedule, &[&cursor, &json!({"target_table": format!("es:{INDEX}"), "schedule_interval": "2s", "full_schedule": "30s"})])
    });
    let here = vec![
        pipeline(
            REMOTE,
            film,
            schedule,
            &[&cursor, &json!({"schedule_interval": "1s", "full_schedule": "30s"})],
        ),
        pipeline(
            "film",
            film,
            schedule,
            &[&cursor, &json!({"schedule_interval": "1s", "full_schedule": "20s"})],
        ),
        pipeline("film_rating", rating, schedule, &[&cursor, &json!({"source_table": "content.rating"})]),
        pipeline(
            "film_cast",
            cast,
            schedule,
            &[
                &cursor,
                &json!({"source_table": "content.film", "schedule_interval": "2s",
                        "watch": [{"table": "content.role", "key": ["film_id"]}]}),
            ],
        ),
        pipeline(
            "shelf",
            "select id, title, version from content.shelf",
            schedule,
            // More rows than one COPY of refused rows takes, and a limit that none of them reaches.
            &[
                &json!({"mode": "full", "schedule_interval": "3s", "batch_size": 1000, "reject_limit": 100_000}),
            ],
        ),
        pipeline(
            "actor",
            actor,
            schedule,
            &[&json!({"mode": "incremental", "capture": "changelog", "schedule_interval": "1s"})],
        ),
        pipeline("actor_full", actor, schedule, &[&json!({"mode": "full", "schedule_interval": "2s"})]),
    ];
    here.into_iter().chain(index).collect()
}

/// Targets whose connection or key cannot be guessed, by name.
pub(crate) fn targets(schedule: &FaultSchedule) -> Vec<(String, Value)> {
    let remote = (format!("analytics.{REMOTE}"), json!({"connection": "remote", "key": ["id"]}));
    let index = (format!("es:{INDEX}"), json!({"connection": "search", "key": ["id"]}));
    [Some(remote), schedule.search.then_some(index)].into_iter().flatten().collect()
}

pub(crate) fn pipeline(name: &str, query: &str, schedule: &FaultSchedule, parts: &[&Value]) -> Value {
    let mut pipeline = json!({
        "name": name, "source_connection": "content", "source_query": query, "target_table": format!("analytics.{name}"),
        "batch_size": schedule.batch_size, "delete_limit": 1.0,
    });
    for part in parts {
        for (field, value) in part.as_object().into_iter().flatten() {
            pipeline[field] = value.clone();
        }
    }
    pipeline
}
