//! Why nobody executes what a pipeline waits for, as lists, pollers, metrics and runners report it. What a runner can take
//! is said here once, for the claim too. Reasons are read by a statement of their own, and only of pipelines that may have
//! one: planning it takes longer than all else that a poller asks.

mod message;

use std::collections::HashMap;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use uuid::Uuid;

use crate::terms::SUSPECT;
use crate::{Result, Store};

use message::Facts;

/// Why nobody executes the open run of a pipeline, or requests one that is due.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "Facts")]
pub struct Waiting {
    /// Stable, for programs: `runner.…`, `schedule.late`, or the error code that the run was given back with.
    pub code: String,
    /// For people; may end with a line `hint: …`.
    pub message: String,
    pub since: Timestamp,
    /// When a run that was given back is tried again.
    pub until: Option<Timestamp>,
    /// How often in a row it was given back.
    pub releases: u32,
}

/// Why no runner that is alive could take a run or a reconcile, whoever is free.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Untakeable {
    pub code: String,
    /// For people; ends with a line `hint: …`.
    pub message: String,
}

/// A pipeline whose open run no runner that is alive can take.
#[derive(Debug, Clone)]
pub struct UntakenRun {
    pub pipeline: String,
    pub waiting: Waiting,
}

const NO_RUNNER: &str = "runner.none";
const NO_CONNECTION: &str = "runner.no_connection";
const NO_FUNCTION: &str = "runner.no_function";
const BUSY: &str = "runner.busy";
const NOT_CLAIMING: &str = "runner.not_claiming";
const LATE: &str = "schedule.late";
/// Where an attempt does not say why.
const GIVEN_BACK: &str = "run.given_back";

/// What is allowed to pass before a runner that could act is said not to.
const GRACE: &str = "interval '1 minute'";

/// A runner `alias` that takes work: it was heard of lately, and is not on its way out.
pub(crate) fn is_live(alias: &str) -> String {
    format!("{alias}.status = 'READY' and {alias}.heartbeat_at > clock_timestamp() - interval '30 seconds'")
}

/// A runner with these has all that the open run of a pipeline `p` needs.
pub(crate) fn has_all(connections: &str, functions: &str) -> String {
    format!("p.tasks_needed <@ {functions} and p.connections_needed <@ {connections}")
}

/// While a runner lives that has the code which a checkpoint was made with, only such a one continues from it: of two
/// versions that run side by side, neither has to ask. A load, and a run that says what becomes of the checkpoint, may go
/// through either.
pub(crate) fn may_continue(code: &str) -> String {
    format!(
        "(p.tasks_needed = '{{}}'
          or (select u.mode = 'full' or u.checkpoint is not null from etl.etl_runs u where u.id = p.run_id)
          or not exists (
                select from etl.etl_state s, etl.etl_runners o
                 where s.pipeline_id = p.id and not s.checkpoint -> 'code' <@ {code}
                   and {live} and {able} and s.checkpoint -> 'code' <@ {published}))",
        live = is_live("o"),
        able = has_all("o.connections", "o.python_tasks"),
        published = published_code("o"),
    )
}

fn published_code(alias: &str) -> String {
    format!(
        "(select jsonb_object_agg(t.name, t.version_hash) from etl.etl_python_tasks t where t.runner = {alias}.name)"
    )
}

/// Whether a pipeline `p` may have a reason to wait, at no cost.
pub(crate) fn may_wait() -> String {
    let due = |schedule: &str, error: &str, next: &str| {
        format!(
            "(p.{schedule} is not null and p.{error} is null
              and coalesce(p.{next}, '-infinity') < clock_timestamp() - {GRACE})"
        )
    };
    format!(
        "case p.status when 'IDLE' then p.enabled and ({runs} or {full_runs}) when 'RUN_REQUESTED' then true
         else coalesce(p.lease_until not between clock_timestamp() and clock_timestamp() + 2 * p.lease_length, false) end",
        runs = due("schedule_interval", "schedule_error", "next_run_at"),
        full_runs = due("full_schedule", "full_schedule_error", "next_full_run_at"),
    )
}

/// The runners that take work, looked up once a statement however many pipelines wait. What each executes is counted by its
/// open attempts: a heartbeat may be seconds old. One that executes a suspect has no room beside it.
fn with_live_runners() -> String {
    format!(
        "with live as materialized (
            select r.name, r.connections, r.python_tasks, r.max_concurrent, coalesce({published}, '{{}}') as code,
                   (select greatest(count(*), max(r.max_concurrent) filter (where o.stalls >= {SUSPECT}))
                      from etl.etl_attempts a join etl.etl_pipelines o on o.run_id = a.run_id
                     where a.runner = r.name and a.ended_at is null and o.lease_until > clock_timestamp()) as active
              from etl.etl_runners r where {live})",
        published = published_code("r"),
        live = is_live("r"),
    )
}

/// Of pipelines `p` that may wait, each with why it does, as one JSON document, or null.
fn reasons() -> String {
    format!(
        "{live}
         select p.id, p.name, w.reason from etl.etl_pipelines p
          cross join lateral (select case p.status when 'IDLE' then {late} else {unexecuted} end as reason) w
          where {may_wait}",
        live = with_live_runners(),
        late = late(),
        unexecuted = unexecuted(),
        may_wait = may_wait(),
    )
}

/// A time that was never computed is late where no runner lives that could have: one that starts computes it at once.
fn late() -> String {
    let due = |schedule: &str, error: &str, next: &str| {
        format!(
            "case when p.{schedule} is not null and p.{error} is null
                  then coalesce(p.{next}, case when not exists (select from live) then p.updated_at end) end"
        )
    };
    format!(
        "(select json_build_object('code', '{LATE}', 'since', due.at, 'runners', array(select r.name from live r order by 1))
            from (select least({runs}, {full_runs}) as at) due
           where p.enabled and due.at < clock_timestamp() - {GRACE})",
        runs = due("schedule_interval", "schedule_error", "next_run_at"),
        full_runs = due("full_schedule", "full_schedule_error", "next_full_run_at"),
    )
}

/// Of a run that is requested, or whose owner is silent. Of a requested one the newest attempt was given back, if there is
/// one. The order by `started_at` keeps the planner off the primary key, where it would look through all attempts.
fn unexecuted() -> String {
    let able = has_all("r.connections", "r.python_tasks");
    format!(
        "(select json_build_object(
                 'code', w.code, 'since', v.since, 'releases', p.releases, 'suspect', v.suspect, 'needs', {needs},
                 'until', case when n.code is null then p.retry_at end,
                 'error', case when n.code is null then coalesce(a.error, '') end, 'runners', l.able_names)
            from (select) one
            left join lateral (
                 select a.error_code, a.error, a.ended_at from etl.etl_attempts a
                  where a.run_id = p.run_id and p.status = 'RUN_REQUESTED'
                  order by a.started_at desc, a.id desc limit 1) a on true
           cross join lateral (
                 select case p.status when 'RUN_REQUESTED' then greatest(p.requested_at, a.ended_at)
                             else least(p.lease_until, clock_timestamp()) end as since,
                        p.status <> 'PAUSE_REQUESTED' and p.stalls + (p.status <> 'RUN_REQUESTED')::int >= {SUSPECT}
                        and not exists (select from etl.etl_runs u where u.id = p.run_id and u.cancel_requested) as suspect) v
           cross join lateral (
                 select {lacking} as lacks,
                        bool_or({able} and {may_continue}
                                and r.active < case when v.suspect then 1 else r.max_concurrent end) as is_free,
                        array_agg(r.name order by r.name) filter (where {able}) as able_names
                   from live r) l
           cross join lateral (
                 select case when p.retry_at > clock_timestamp() then null
                             when l.lacks is not null then l.lacks
                             when not l.is_free then '{BUSY}'
                             when greatest(v.since, p.retry_at) < clock_timestamp() - {GRACE} then '{NOT_CLAIMING}' end as code) n
           cross join lateral (
                 select coalesce(n.code, a.error_code, case when p.retry_at > clock_timestamp() then '{GIVEN_BACK}' end) as code) w
           where w.code is not null)",
        needs = needs(),
        lacking = lacking(),
        may_continue = may_continue("r.code"),
    )
}

/// Over all live runners `r`: what none of them has, as a code, or null where one has all.
fn lacking() -> String {
    format!(
        "case when count(*) = 0 then '{NO_RUNNER}'
              when not bool_or(p.connections_needed <@ r.connections) then '{NO_CONNECTION}'
              when not bool_or({able}) then '{NO_FUNCTION}' end",
        able = has_all("r.connections", "r.python_tasks"),
    )
}

/// What the open run of a pipeline `p` needs; of each kind also what no live runner has. Functions are looked for where the
/// connections are.
fn needs() -> String {
    "json_build_object(
        'connections', p.connections_needed, 'functions', p.tasks_needed,
        'no_connections', array(
            select distinct n from unnest(p.connections_needed) n
             where not exists (select from live r where n = any(r.connections)) order by 1),
        'no_functions', array(
            select distinct n from unnest(p.tasks_needed) n
             where not exists (select from live r where p.connections_needed <@ r.connections and n = any(r.python_tasks))
             order by 1))"
        .to_owned()
}

impl Store {
    /// Why no runner that is alive could take a run that needs these; none where one could.
    pub async fn untakeable(
        &self,
        connections: &[String],
        functions: &[impl AsRef<str>],
    ) -> Result<Option<Untakeable>> {
        let functions: Vec<&str> = functions.iter().map(AsRef::as_ref).collect();
        let sql = format!(
            "{live} select json_build_object('code', l.code, 'since', now(), 'needs', {needs})
               from (select $1::text[] as connections_needed, $2::text[] as tasks_needed) p
              cross join lateral (select {lacking} as code from live r) l where l.code is not null",
            live = with_live_runners(),
            needs = needs(),
            lacking = lacking(),
        );
        let document: Option<Value> = sqlx::query_scalar(sqlx::AssertSqlSafe(sql))
            .bind(connections)
            .bind(functions)
            .fetch_optional(&self.pool)
            .await?;
        let facts: Option<Facts> = document.map(serde_json::from_value).transpose()?;
        Ok(facts.map(Waiting::from).map(|Waiting { code, message, .. }| Untakeable { code, message }))
    }

    /// Why these pipelines wait, of those that do.
    pub(crate) async fn reasons(&self, pipelines: &[Uuid]) -> Result<HashMap<Uuid, Waiting>> {
        if pipelines.is_empty() {
            return Ok(HashMap::new());
        }
        let sql = format!("{} and p.id = any($1)", reasons());
        let found: Vec<(Uuid, String, Option<Value>)> =
            sqlx::query_as(sqlx::AssertSqlSafe(sql)).bind(pipelines).fetch_all(&self.pool).await?;
        let reason = |(id, _, reason): (Uuid, String, Option<Value>)| {
            Some(serde_json::from_value(reason?).map(|waiting| (id, waiting)))
        };
        Ok(found.into_iter().filter_map(reason).collect::<serde_json::Result<_>>()?)
    }

    /// Runs that no live runner can take, by the names of their pipelines.
    pub async fn untaken_runs(&self) -> Result<Vec<UntakenRun>> {
        let sql = format!(
            "{} and p.status <> 'IDLE' and w.reason ->> 'code' in ('{NO_CONNECTION}', '{NO_FUNCTION}') order by p.name",
            reasons()
        );
        let found: Vec<(Uuid, String, Value)> =
            sqlx::query_as(sqlx::AssertSqlSafe(sql)).fetch_all(&self.pool).await?;
        let run =
            |(_, pipeline, reason)| Ok(UntakenRun { pipeline, waiting: serde_json::from_value(reason)? });
        found.into_iter().map(run).collect()
    }
}
