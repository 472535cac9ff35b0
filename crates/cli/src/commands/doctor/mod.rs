//! `vitrina doctor`: everything that must hold before pipelines can run, each with what to do about it.

mod rights;

use std::time::Duration;

use anyhow::Result;
use secrecy::ExposeSecret;
use serde::Serialize;
use sqlx::PgConnection;
use uuid::Uuid;
use vitrina_api::SourceConnection;
use vitrina_cluster::Installation;
use vitrina_connectors::sources::changelog::Desk;
use vitrina_core::values::masked;
use vitrina_core::{DIRECT, POOLED};
use vitrina_store::{PipelineChoice, PipelineListing, Store};

use super::{health, migrate};
use crate::client::Client;
use crate::config::Settings;
use crate::context::{Context, connect};
use crate::exit::{self, Exit};
use crate::services;

const PATIENCE: Duration = Duration::from_secs(5);

const EXAMPLES: &str = "\
Examples:
  vitrina doctor   before the first start, and whenever something does not work
  vitrina doctor -o ndjson | jq 'select(.verdict == \"fail\")'";

#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
enum Verdict {
    Ok,
    Info,
    Warn,
    Fail,
}

#[derive(Debug, Serialize)]
struct Check {
    check: String,
    verdict: Verdict,
    detail: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    hint: Option<String>,
}

#[derive(Debug, Default)]
struct Report {
    checks: Vec<Check>,
}

pub(crate) async fn run(_: &Args, context: &Context) -> Result<Exit> {
    let settings = context.settings()?;
    let mut report = Report::default();
    report.add(Verdict::Ok, "configuration", &format!("{} connections", settings.connections.len()));
    let store = meta_store(&settings, &mut report).await;
    let connections = services::connections(&settings).0;
    for (name, source) in services::sources(&settings) {
        check_source(&name, &source, &mut report).await;
        if let Some(connection) = connections.get(&name) {
            check_log(connection, &mut report).await;
        }
    }
    if let Some(store) = store {
        check_marts(&settings, &store, &mut report).await;
        store.close().await;
    }
    for connection in connections.values().filter(|known| known.is_search()) {
        check_search(connection, &mut report).await;
    }
    check_services(&settings, &mut report).await?;
    check_postgres(&mut report);
    context.output.show(&report.checks, || report.text());
    Ok(report.exit())
}

/// Answers it, if its schema can be used.
async fn meta_store(settings: &Settings, report: &mut Report) -> Option<Store> {
    let store = match connect(settings, "vitrina-doctor", 2).await {
        Ok(store) => store,
        Err(error) => {
            report.fail("meta-store", &exit::explain(&error));
            return None;
        }
    };
    report.add(Verdict::Ok, "meta-store", "it can be reached");
    if let Some(url) = &settings.database_url
        && let Ok(mut session) = open(url.expose_secret(), "marts").await
    {
        rights::of_meta_store(&mut session, report).await;
    }
    if !check_schema(&store, report).await {
        store.close().await;
        return None;
    }
    check_runners(&store, report).await;
    check_writers(&store, report).await;
    check_copies(&store, report).await;
    check_waiting(&store, report).await;
    Some(store)
}

async fn check_schema(store: &Store, report: &mut Report) -> bool {
    match store.check_schema().await {
        Ok(schema) => {
            report.add(Verdict::Ok, "schema", &format!("all {} migrations are applied", schema.known));
            true
        }
        Err(error) => {
            report.fail("schema", &exit::explain(&error.into()));
            false
        }
    }
}

async fn check_runners(store: &Store, report: &mut Report) {
    let alive = match store.runners().await {
        Ok(runners) => runners.into_iter().filter(|runner| runner.alive).map(|runner| runner.name),
        Err(error) => return report.fail("runners", &exit::explain(&error.into())),
    };
    match alive.collect::<Vec<_>>().as_slice() {
        [] => report.add(Verdict::Warn, "runners", "none is alive\nhint: start one with `vitrina runner`"),
        alive => report.add(Verdict::Ok, "runners", &format!("alive: {}", alive.join(", "))),
    }
}

/// Pairs that releases before let be, or somebody wrote past the API: their runs are refused.
async fn check_writers(store: &Store, report: &mut Report) {
    match migrate::contested(store).await {
        Ok(contested) if contested.is_empty() => {
            report.add(Verdict::Ok, "targets", "each has one writer, or is shared");
        }
        Ok(contested) => contested.iter().for_each(|message| report.fail("targets", message)),
        Err(error) => report.fail("targets", &exit::explain(&error.into())),
    }
}

/// Pipelines that were stopped because another copy of the meta-store has written to their targets.
async fn check_copies(store: &Store, report: &mut Report) {
    let stopped = match store.installed_pipelines().await {
        Ok(pipelines) => pipelines.into_iter().filter(|pipeline| pipeline.stopped),
        Err(error) => return report.fail("installation", &exit::explain(&error.into())),
    };
    match stopped.map(|pipeline| pipeline.name).collect::<Vec<_>>().as_slice() {
        [] => report.add(Verdict::Ok, "installation", "no pipeline is stopped by another copy of the meta-store"),
        stopped => report.fail(
            "installation",
            &format!(
                "another copy of the meta-store has written to the targets of {}, or it was restored from a backup\nhint: \
                 `vitrina installation adopt` if this one shall write to them, `vitrina installation new` if it is the copy",
                stopped.join(", ")
            ),
        ),
    }
}

/// What nobody executes. Where all runners are busy that ends by itself.
async fn check_waiting(store: &Store, report: &mut Report) {
    let pipelines = match store.listings(&PipelineChoice::default()).await {
        Ok(pipelines) => pipelines,
        Err(error) => return report.fail("pipelines", &exit::explain(&error.into())),
    };
    let waiting = |pipeline: PipelineListing| Some((pipeline.name, pipeline.waiting?));
    let waiting: Vec<_> = pipelines.into_iter().filter_map(waiting).collect();
    if waiting.is_empty() {
        report.add(Verdict::Ok, "pipelines", "none waits for a runner");
    }
    for (name, waiting) in waiting {
        let verdict = if waiting.code == "runner.busy" { Verdict::Info } else { Verdict::Warn };
        report.add(verdict, &format!("pipeline {name}"), &format!("it waits: {}", masked(&waiting.message)));
    }
}

async fn check_source(name: &str, source: &SourceConnection, report: &mut Report) {
    let check = format!("source {name}");
    let mut session = match open(source.url.get().expose_secret(), name).await {
        Ok(session) => session,
        Err(message) => return report.fail(&check, &message),
    };
    report.add(Verdict::Ok, &check, "it can be reached");
    match tables(&mut session, &source.allowed_schemas, "insert, update, delete, truncate").await {
        Ok(None) => report.add(Verdict::Ok, &check, "its login cannot write"),
        Ok(Some(tables)) => {
            let hint = "read with a login of its own; `vitrina roles` shows how to create it";
            report.fail(&check, &format!("its login may write {tables}\nhint: {hint}"));
        }
        Err(error) => report.fail(&check, &exit::told(&error)),
    }
    rights::of_source(name, &source.allowed_schemas, &mut session, report).await;
    rights::connection_limit(name, &mut session, report).await;
    let closed = ["auth".to_owned(), "etl".to_owned()];
    match tables(&mut session, &closed, "select").await {
        Ok(None) => report.add(Verdict::Ok, &check, "its login cannot read auth and etl"),
        Ok(Some(tables)) => {
            let hint = "revoke it: pipelines never read these schemas, so their login need not either";
            report.add(Verdict::Warn, &check, &format!("its login may read {tables}\nhint: {hint}"));
        }
        Err(error) => report.fail(&check, &exit::told(&error)),
    }
}

/// A change log runs with its owner's rights whenever an application writes: others must not get at it. What cannot be reached is
/// reported already.
async fn check_log(connection: &vitrina_connectors::Connection, report: &mut Report) {
    let check = format!("source {}", connection.name);
    let Ok(desk) = Desk::open(connection).await else { return };
    match desk.fault().await {
        Ok(None) => {}
        Ok(Some(fault)) => report.fail(
            &check,
            &format!("its change log, schema vitrina_log, is not its owner's alone: {fault}\nhint: revoke that right, or drop what belongs to another role, and run `vitrina changelog install` again"),
        ),
        Err(error) => report.fail(&check, &error.to_string()),
    }
    if let Ok(Some(grants)) = desk.lacking().await {
        report.fail(&check, &format!("there is a change log, and its login may not read it\nhint: let the owner of schema vitrina_log execute: {grants}"));
    }
    if let Ok(true) = desk.is_outdated().await {
        report.fail(
            &check,
            "a change log of an older release is in schema vitrina, where the login of the marts can replace it and run code as its owner\nhint: `vitrina changelog install TABLE --key …` of each logged table moves it; its owner applies that",
        );
    }
}

/// Tables of these schemas on which the login has any of the rights.
async fn tables(
    session: &mut PgConnection,
    schemas: &[String],
    rights: &str,
) -> sqlx::Result<Option<String>> {
    let query = "select string_agg(n.nspname || '.' || c.relname, ', ' order by n.nspname, c.relname)
                   from pg_class c join pg_namespace n on n.oid = c.relnamespace
                  where n.nspname = any ($1) and c.relkind in ('r', 'p', 'v', 'm', 'f')
                    and has_schema_privilege(n.oid, 'usage') and has_table_privilege(c.oid, $2)";
    sqlx::query_scalar(query).bind(schemas).bind(rights).fetch_one(session).await
}

async fn check_marts(settings: &Settings, store: &Store, report: &mut Report) {
    let Some(marts) = settings.connections.get("marts") else { return };
    let mut session = match open(marts.url.expose_secret(), "marts").await {
        Ok(session) => session,
        Err(message) => return report.fail("marts", &message),
    };
    report.add(Verdict::Ok, "marts", "they can be reached");
    match place_of_marts(&mut session, store).await {
        Ok(Place::Beside) => report.add(
            Verdict::Ok,
            "marts",
            "they are in the meta-store's database, and their login may commit",
        ),
        Ok(Place::Elsewhere) => report.add(
            Verdict::Ok,
            "marts",
            "they are in another database than the meta-store: their checkpoints are kept beside them",
        ),
        Ok(Place::Copy) => report.fail(
            "marts",
            "their database holds a schema etl of this installation that is not its meta-store: a copy, or one that was left behind\nhint: if \
             the meta-store was moved, drop or rename schema etl there once nobody uses it; if it is in use, this one is the copy: `vitrina installation new`",
        ),
        Ok(Place::NoCommit) => report.fail(
            "marts",
            "their login may not execute etl.commit_batch\nhint: `vitrina roles` shows the grants",
        ),
        Err(error) => report.fail("marts", &exit::explain(&error)),
    }
    rights::of_marts(&settings.allowed_targets, store, &mut session, report).await;
    match may_stage(&mut session).await {
        Ok(true) => report.add(Verdict::Ok, "marts", "loads can be staged in schema vitrina"),
        Ok(false) => report.fail(
            "marts",
            "their login may create nothing in schema vitrina, where loads are staged\nhint: `vitrina roles` shows the grants",
        ),
        Err(error) => report.fail("marts", &exit::told(&error)),
    }
}

enum Place {
    /// Data and checkpoint commit together.
    Beside,
    NoCommit,
    Elsewhere,
    /// Of the same installation, and not its meta-store.
    Copy,
}

async fn place_of_marts(session: &mut PgConnection, store: &Store) -> Result<Place> {
    let query =
        "select bool_and(has_schema_privilege(n.oid, 'usage') and has_function_privilege(f.oid, 'execute'))
                   from pg_proc f join pg_namespace n on n.oid = f.pronamespace
                  where n.nspname = 'etl' and f.proname in ('commit_batch', 'installation_id')";
    match sqlx::query_scalar::<_, Option<bool>>(query).fetch_one(&mut *session).await? {
        None => return Ok(Place::Elsewhere),
        Some(false) => return Ok(Place::NoCommit),
        Some(true) => {}
    }
    let presence = store.presence().await?;
    let query = "select etl.installation_id(), exists (
                     select from pg_locks l join pg_database d on d.oid = l.database
                      where l.locktype = 'advisory' and d.datname = current_database() and l.objsubid = 1
                        and (l.classid::bigint << 32) | l.objid::bigint = $1)";
    let (found, is_seen): (Uuid, bool) = sqlx::query_as(query).bind(presence.key).fetch_one(session).await?;
    Ok(match (found == store.installation().await?, is_seen) {
        (_, true) => Place::Beside,
        (true, false) => Place::Copy,
        (false, false) => Place::Elsewhere,
    })
}

async fn may_stage(session: &mut PgConnection) -> sqlx::Result<bool> {
    let query = "select case when to_regnamespace('vitrina') is null then has_database_privilege(current_database(), 'create')
                             else has_schema_privilege('vitrina', 'create') end";
    sqlx::query_scalar(query).fetch_one(session).await
}

/// The same as a runner finds out: `vitrina conn test`.
async fn check_search(connection: &vitrina_connectors::Connection, report: &mut Report) {
    let check = format!("search server {}", connection.name);
    let tested = match connection.test(&[], false).await {
        Ok(tested) => tested,
        Err(error) => return report.fail(&check, &error.to_string()),
    };
    report.add(Verdict::Ok, &check, &format!("{} answers", tested.server));
    match tested.missing_grants.as_slice() {
        [] => report.add(Verdict::Ok, &check, "its login may make, fill and exchange indexes"),
        missing => {
            let missing = missing.join("; ");
            report.fail(
                &check,
                &format!("its login lacks {missing}\nhint: give it these rights, or another login"),
            );
        }
    }
}

/// A connection may well be served by a process that is not running yet.
async fn check_services(settings: &Settings, report: &mut Report) -> Result<()> {
    let client = Client::new(&settings.api)?;
    match client.health().await {
        Ok(health) => {
            let verdict = if health.known.is_sound() { Verdict::Ok } else { Verdict::Warn };
            report.add(verdict, "API", &format!("it {}", health::told(client.base(), &health.known)));
        }
        Err(error) => report.add(Verdict::Warn, "API", &error.to_string()),
    }
    Ok(())
}

fn check_postgres(report: &mut Report) {
    let detail = match Installation::find() {
        Ok(found) => {
            format!("Postgres {} in {} can serve `vitrina demo`", found.version(), found.bindir().display())
        }
        Err(error) => format!("`vitrina demo` cannot start a Postgres: {error}"),
    };
    report.add(Verdict::Info, "demo", &detail);
}

async fn open(url: &str, name: &str) -> Result<PgConnection, String> {
    let hint = format!("hint: check connections.{name}.url");
    match tokio::time::timeout(PATIENCE, vitrina_store::connect_directly(url)).await {
        Ok(Ok(session)) => Ok(session),
        Ok(Err(error)) if vitrina_store::is_of_pooler(&error) => Err(format!("{POOLED}\nhint: {DIRECT}")),
        Ok(Err(error)) => Err(format!("it cannot be reached: {}\n{hint}", exit::told(&error))),
        Err(_) => Err(format!("it does not answer within {} s\n{hint}", PATIENCE.as_secs())),
    }
}

impl Report {
    /// `message` may end with a line `hint: …`.
    fn add(&mut self, verdict: Verdict, check: &str, message: &str) {
        let (detail, hint) = match message.split_once("\nhint: ") {
            Some((detail, hint)) => (detail, Some(hint.to_owned())),
            None => (message, None),
        };
        self.checks.push(Check { check: check.to_owned(), verdict, detail: detail.to_owned(), hint });
    }

    fn fail(&mut self, check: &str, message: &str) {
        self.add(Verdict::Fail, check, message);
    }

    fn exit(&self) -> Exit {
        match self.checks.iter().any(|check| check.verdict == Verdict::Fail) {
            true => Exit::Refused,
            false => Exit::Done,
        }
    }

    fn text(&self) -> String {
        let line = |Check { check, verdict, detail, hint }: &Check| {
            let verdict = match verdict {
                Verdict::Ok => "ok",
                Verdict::Info => "info",
                Verdict::Warn => "warn",
                Verdict::Fail => "FAIL",
            };
            let hint = hint.as_ref().map(|hint| format!("\n      hint: {hint}")).unwrap_or_default();
            format!("{verdict:<4}  {check}: {detail}{hint}")
        };
        self.checks.iter().map(line).collect::<Vec<_>>().join("\n")
    }
}
