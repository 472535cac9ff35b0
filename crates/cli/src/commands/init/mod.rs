//! `vitrina init --from URL --to URL`: looks at a source, proposes a pipeline for each table, and writes the files.
//! It changes nothing at either end, and needs neither API nor meta-store.

mod address;
mod introspect;
mod names;
mod propose;
mod write;

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::Result;
use secrecy::ExposeSecret;
use serde_json::{Value, json};
use sqlx::{Connection, PgConnection};
use vitrina_core::{DIRECT, POOLED};

use crate::context::Context;
use crate::exit::{self, Exit};
use crate::nearest::nearest;
use crate::output::{self, shell_word};

use address::{Ends, address};
use introspect::Table;
use names::Names;
use propose::Proposal;
use write::Plan;

const EXAMPLES: &str = "\
Examples:
  vitrina init --from postgres://reader:secret@db/cinema --to postgres://vitrina:secret@marts/marts
  vitrina init --from '${env:CINEMA_URL}' --to '${env:MARTS_URL}' --schema content,ugc --dir etl
  vitrina init --from '${env:CINEMA_URL}' --to http://localhost:9200 --tables content.film_work

Passwords are not written: files refer to variables, which the environment or a .env beside vitrina.toml sets.";

/// The schema of the marts, unless another is named.
const MARTS: &str = "analytics";
/// Vitrina's own, and that of accounts, which no pipeline reads.
const CLOSED: [&str; 4] = ["etl", "vitrina", "vitrina_log", "auth"];
const PATIENCE: Duration = Duration::from_secs(10);

#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    /// The Postgres to read from: its URL, or a reference to it
    #[arg(long, value_name = "URL")]
    from: String,
    /// Where the rows go: a Postgres or a search server
    #[arg(long, value_name = "URL")]
    to: String,
    /// Where vitrina.toml, unless --config names another file, and pipelines/ are written; files that are there stay, and
    /// nothing is written then
    #[arg(long, value_name = "DIRECTORY", default_value = ".")]
    dir: PathBuf,
    /// Only tables of these schemas
    #[arg(long, value_name = "SCHEMA", value_delimiter = ',')]
    schema: Vec<String>,
    /// Only these tables, with or without their schema
    #[arg(long, value_name = "TABLE", value_delimiter = ',')]
    tables: Vec<String>,
    /// Schema of the marts
    #[arg(long, value_name = "SCHEMA", default_value = MARTS, value_parser = super::roles::marts_schema)]
    marts: String,
}

/// A table with a pipeline.
#[derive(Debug)]
struct Chosen {
    /// Of the pipeline.
    name: String,
    target: String,
    table: String,
    proposal: Proposal,
}

#[derive(Debug)]
struct LeftOut {
    table: String,
    reason: String,
}

pub(crate) async fn run(args: &Args, context: &Context) -> Result<Exit> {
    let configuration = context.file.clone().unwrap_or_else(|| args.dir.join(write::CONFIGURATION));
    if configuration.exists() {
        return Err(write::taken_already(&configuration));
    }
    let ends = Ends::read(&args.from, &args.to, &args.dir)?;
    let (source, taken) = look(&ends, &args.marts).await?;
    let (tables, closed) = wanted(source, args)?;
    let (plan, mut left_out) = propose(tables, taken, &ends, args);
    left_out.extend(closed);
    if plan.chosen.is_empty() {
        return Err(nothing(&left_out));
    }
    let files = write::write(&plan, &configuration, &args.dir)?;
    context.output.show(&document(&plan, &left_out, &files), || text(&plan, &left_out));
    lead_on(&plan, &files, args, context);
    Ok(Exit::Done)
}

/// The tables of the source, and the names that are taken at the target.
async fn look(ends: &Ends, marts: &str) -> Result<(Vec<Table>, Names)> {
    let mut source = open(ends.from.expose_secret(), "--from").await?;
    let mut tables = introspect::tables(&mut source).await?;
    let mut taken = BTreeSet::new();
    if !ends.is_search() {
        let mut target = open(ends.to.expose_secret(), "--to").await?;
        let there = "select c.relname::text from pg_class c join pg_namespace n on n.oid = c.relnamespace where n.nspname = $1";
        let there: Vec<String> = sqlx::query_scalar(there).bind(marts).fetch_all(&mut target).await?;
        taken.extend(there);
        if which(&mut source).await? == which(&mut target).await? {
            // What pipelines have written is not read by others.
            tables.retain(|table| table.schema != marts);
        }
        target.close().await?;
    }
    source.close().await?;
    Ok((tables, Names(taken)))
}

/// Two names of one database answer the same.
async fn which(session: &mut PgConnection) -> sqlx::Result<String> {
    let sql = "select concat_ws('/', current_database(), (select oid from pg_database where datname = current_database()), extract(epoch from pg_postmaster_start_time()))";
    sqlx::query_scalar(sql).fetch_one(session).await
}

async fn open(url: &str, flag: &str) -> Result<PgConnection> {
    let refused = |why: String| {
        Exit::Refused.fault(format!("{flag} cannot be reached: {why}\nhint: check its URL and login"))
    };
    match tokio::time::timeout(PATIENCE, vitrina_store::connect_directly(url)).await {
        Ok(Ok(session)) => Ok(session),
        Ok(Err(error)) if vitrina_store::is_of_pooler(&error) => {
            Err(Exit::Refused.fault(format!("{flag} cannot be used: {POOLED}\nhint: {DIRECT}")))
        }
        Ok(Err(error)) => Err(refused(exit::told(&error))),
        Err(_) => Err(refused(format!("no answer within {} s", PATIENCE.as_secs()))),
    }
}

/// The tables to look at, and those that nobody may read though they were not asked about.
fn wanted(all: Vec<Table>, args: &Args) -> Result<(Vec<Table>, Vec<LeftOut>)> {
    for schema in &args.schema {
        if !all.iter().any(|table| table.schema == *schema) {
            let known: BTreeSet<&str> = all.iter().map(|table| table.schema.as_str()).collect();
            return Err(unknown("schema with tables", schema, &known));
        }
    }
    let is_called = |table: &Table, name: &String| table.spoken() == *name || table.name == *name;
    for name in &args.tables {
        if !all.iter().any(|table| is_called(table, name)) {
            let known: Vec<String> = all.iter().map(Table::spoken).collect();
            return Err(unknown("table", name, &known.iter().map(String::as_str).collect()));
        }
    }
    let in_schema = |table: &Table| args.schema.is_empty() || args.schema.contains(&table.schema);
    let is_named =
        |table: &Table| args.tables.is_empty() || args.tables.iter().any(|name| is_called(table, name));
    let (mut tables, mut closed) = (Vec::new(), Vec::new());
    for table in all.into_iter().filter(|table| in_schema(table) && is_named(table)) {
        match closed_schema(&table.schema) {
            Some(reason) => closed.push(LeftOut { table: table.spoken(), reason }),
            None => tables.push(table),
        }
    }
    Ok((tables, closed))
}

fn closed_schema(schema: &str) -> Option<String> {
    match schema {
        schema if CLOSED.contains(&schema) => Some(format!("pipelines do not read schema {schema}")),
        schema if schema.chars().any(char::is_control) => {
            Some("allowed_schemas takes no names with control characters".to_owned())
        }
        _ => None,
    }
}

fn unknown(what: &str, name: &str, known: &BTreeSet<&str>) -> anyhow::Error {
    let known: Vec<&str> = known.iter().copied().collect();
    let hint = match nearest(name, &known) {
        Some(near) => format!("did you mean {near}?"),
        None => format!("there are {}", known.join(", ")),
    };
    Exit::Usage.fault(format!("the source has no {what} {name:?}\nhint: {hint}"))
}

fn propose(mut tables: Vec<Table>, mut names: Names, ends: &Ends, args: &Args) -> (Plan, Vec<LeftOut>) {
    let (mut chosen, mut left_out, mut schemas) = (Vec::new(), Vec::new(), BTreeSet::new());
    let all = tables.clone();
    // A table that can keep its name as it is keeps it.
    tables.sort_by_key(|table| !names::is_plain(&table.name));
    for table in tables {
        match propose::pipeline(&table) {
            Ok(mut proposal) => {
                if proposal.cursor.is_some() {
                    proposal.reasons.extend(propose::followed(&table, &proposal.key, &all));
                }
                let name = names.take(&table);
                let target =
                    if ends.is_search() { format!("es:{name}") } else { format!("{}.{name}", args.marts) };
                chosen.push(Chosen { name, target, table: table.spoken(), proposal });
                schemas.insert(table.schema);
            }
            Err(reason) => left_out.push(LeftOut { table: table.spoken(), reason }),
        }
    }
    chosen.sort_by(|one: &Chosen, other| one.table.cmp(&other.table));
    left_out.sort_by(|one: &LeftOut, other| one.table.cmp(&other.table));
    let connection = names::connection(&ends.database());
    let plan = Plan {
        from: address(&args.from, &connection),
        to: address(&args.to, if ends.is_search() { "search" } else { "marts" }),
        connection,
        is_search: ends.is_search(),
        marts: args.marts.clone(),
        schemas: schemas.into_iter().collect(),
        chosen,
    };
    (plan, left_out)
}

fn nothing(left_out: &[LeftOut]) -> anyhow::Error {
    let told: String =
        left_out.iter().map(|LeftOut { table, reason }| format!("\n  {table}: {reason}")).collect();
    Exit::Usage.fault(format!(
        "there is no table to make a pipeline of{told}\nhint: --schema and --tables choose others; docs/files.md shows a pipeline by hand"
    ))
}

fn document(plan: &Plan, left_out: &[LeftOut], files: &[PathBuf]) -> Value {
    let chosen = plan.chosen.iter().map(|Chosen { name, target, table, proposal }| {
        json!({
            "table": table, "pipeline": name, "target": target, "key": proposal.key,
            "mode": if proposal.cursor.is_some() { "incremental" } else { "full" },
            "incremental_key": proposal.cursor.as_ref().map(|cursor| &cursor.column), "reasons": proposal.reasons,
        })
    });
    let left_out = left_out.iter().map(|left| json!({"table": left.table, "reason": left.reason}));
    json!({
        "pipelines": chosen.collect::<Vec<_>>(), "left_out": left_out.collect::<Vec<_>>(),
        "files": files, "variables": variables(plan),
    })
}

fn text(plan: &Plan, left_out: &[LeftOut]) -> String {
    let chosen = plan.chosen.iter().map(|Chosen { target, table, proposal, .. }| {
        let mode = if proposal.cursor.is_some() { "incremental" } else { "full" };
        let reasons: String = proposal.reasons.iter().map(|reason| format!("\n  {reason}")).collect();
        format!("{table} -> {target}, {mode}{reasons}")
    });
    let left_out = left_out.iter().map(|LeftOut { table, reason }| format!("{table} is left out: {reason}"));
    let lines =
        chosen.chain(left_out).map(|line| line.lines().map(output::one_line).collect::<Vec<_>>().join("\n"));
    lines.collect::<Vec<_>>().join("\n")
}

/// Variables that the files refer to and that were not there before.
fn variables(plan: &Plan) -> Vec<String> {
    let mut variables: Vec<String> =
        [&plan.from, &plan.to].into_iter().filter_map(|end| end.variable.clone()).collect();
    if plan.is_search && std::env::var_os("VITRINA_DATABASE_URL").is_none() {
        variables.push("VITRINA_DATABASE_URL".to_owned());
    }
    variables
}

/// What was written, and what to type next.
fn lead_on(plan: &Plan, files: &[PathBuf], args: &Args, context: &Context) {
    let [configuration, pipelines @ ..] = files else { return };
    let folder = args.dir.join(write::PIPELINES);
    output::say(&format!(
        "wrote {} and {} files in {}",
        configuration.display(),
        pipelines.len(),
        folder.display()
    ));
    for variable in variables(plan) {
        let what = match variable.rsplit_once('_') {
            Some((_, "PASSWORD")) => "the password, as it stands in the URL",
            _ if variable == "VITRINA_DATABASE_URL" => "a Postgres for the meta-store",
            _ => "the URL",
        };
        output::say(&format!("set {variable} first: {what}; a .env where you type will do"));
    }
    let first = plan.chosen.first().map_or("", |chosen| chosen.name.as_str());
    let (place, folder, vitrina) = match (&context.file, args.dir.to_str()) {
        // A file that was named is named from here.
        (Some(file), _) => {
            (String::new(), folder, format!("vitrina --config {}", shell_word(&file.to_string_lossy())))
        }
        (None, Some(".")) => (String::new(), write::PIPELINES.into(), "vitrina".to_owned()),
        (None, _) => (
            format!(", in {}", shell_word(&args.dir.to_string_lossy())),
            write::PIPELINES.into(),
            "vitrina".to_owned(),
        ),
    };
    output::say(&format!(
        "next{place}:\n  {vitrina} up                     # in a terminal of its own: meta-store, API and runner\n  \
         {vitrina} apply {}        # shows the plan, and asks\n  {vitrina} run {first} --watch",
        shell_word(&folder.to_string_lossy())
    ));
}
