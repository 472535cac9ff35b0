//! `vitrina changelog`: the log of changes in a source, as SQL for its owner. Executed only when asked.

use std::collections::BTreeMap;

use anyhow::Result;
use clap::Subcommand;
use secrecy::ExposeSecret;
use serde_json::json;
use url::Url;
use vitrina_connectors::Connection;
use vitrina_connectors::sources::changelog::{Consumer, Desk, Logged, LoggedTable};
use vitrina_core::{Capture, Mode, Pipeline};
use vitrina_store::PipelineChoice;

use crate::config::{self, Settings};
use crate::context::{Context, connect};
use crate::exit::Exit;
use crate::output::{self, grouped};
use crate::services;

const EXAMPLES: &str = "\
Examples:
  vitrina changelog install ugc.ratings --key film_id           the SQL, for its owner to look at
  vitrina changelog install ugc.ratings --key film_id --apply   execute it
  vitrina changelog status                                      what is logged, and who follows it
  vitrina changelog remove ugc.ratings --key film_id --apply";

#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// What the owner of a table applies so that its changes are logged
    Install(Change),
    /// What is applied so that they are logged no more
    Remove(Change),
    /// The tables whose changes are logged, and who follows them
    Status(At),
}

#[derive(Debug, clap::Args)]
struct Change {
    /// schema.table
    table: String,
    /// The columns that name what has changed, such as the table's key
    #[arg(long, required = true, value_delimiter = ',', value_name = "COLUMN")]
    key: Vec<String>,
    #[command(flatten)]
    at: At,
    /// The login that pipelines read with; by default that of the connection
    #[arg(long, value_name = "ROLE")]
    reader: Option<String>,
    /// Execute the statements
    #[arg(long)]
    apply: bool,
}

#[derive(Debug, clap::Args)]
struct At {
    /// The source, where several connections are configured
    #[arg(long, value_name = "NAME")]
    connection: Option<String>,
    /// Log in with this URL, as the owner of the table, instead of the connection's own login
    #[arg(long, env = "VITRINA_CHANGELOG_URL", hide_env_values = true, value_name = "URL")]
    url: Option<String>,
}

pub(crate) async fn run(args: &Args, context: &Context) -> Result<Exit> {
    let settings = context.settings()?;
    match &args.command {
        Command::Install(change) => {
            let (desk, reader) = desk(&change.at, &settings).await?;
            let logged = desk.logged(&change.table, &change.key).await?;
            let reader = change.reader.clone().unwrap_or(reader);
            let statements = desk.install(&logged, &reader).await?;
            let done = format!("changes of {} are logged by {}", logged.table, change.key.join(", "));
            conclude(change, &desk, &statements, &done, context).await
        }
        Command::Remove(change) => {
            let (desk, _) = desk(&change.at, &settings).await?;
            let logged = desk.logged(&change.table, &change.key).await?;
            let statements = desk.remove(&logged).await?;
            let done = format!("{} is not logged by {}", logged.table, change.key.join(", "));
            if !statements.is_empty() {
                warn_of_followers(&change.at, &desk, &logged, &settings).await?;
            }
            conclude(change, &desk, &statements, &done, context).await
        }
        Command::Status(at) => status(at, &settings, context).await,
    }
}

async fn warn_of_followers(at: &At, desk: &Desk, logged: &Logged, settings: &Settings) -> Result<()> {
    let Some(pipelines) = pipelines(settings).await else { return Ok(()) };
    let connection = choose(at, settings)?.name;
    let mut names = Vec::new();
    for pipeline in pipelines.iter().filter(|pipeline| is_captured(pipeline, &connection)) {
        if follows(desk, pipeline, &logged.table).await {
            names.push(pipeline.name.as_str());
        }
    }
    if !names.is_empty() {
        output::say(&format!(
            "{} is followed by {}: without its log their runs fail until they have another `capture` or `mode`",
            logged.table,
            names.join(", ")
        ));
    }
    Ok(())
}

fn is_captured(pipeline: &Pipeline, connection: &str) -> bool {
    pipeline.mode == Mode::Incremental
        && pipeline.capture == Capture::Changelog
        && pipeline.source_connection == connection
}

/// By the tables that it names, as this source reads their names; without any by those of its query.
async fn follows(desk: &Desk, pipeline: &Pipeline, table: &str) -> bool {
    let named = pipeline.plan.reader().map_or(&pipeline.source_table, |reader| &reader.source_table);
    let driving = named.iter().cloned();
    let mut tables: Vec<String> = driving.filter(|name| !name.trim().is_empty()).collect();
    if tables.is_empty() {
        tables.extend(pipeline.reader_sql().map(|sql| vitrina_guard::relations(&sql)).unwrap_or_default());
    }
    tables.extend(pipeline.watch.iter().map(|watch| watch.table.clone()));
    for name in tables {
        if desk.logged(&name, &[]).await.is_ok_and(|known| known.table == table) {
            return true;
        }
    }
    false
}

/// All that are configured, where there is a meta-store to ask: the log is shown without it, too.
async fn pipelines(settings: &Settings) -> Option<Vec<Pipeline>> {
    settings.database_url.as_ref()?;
    let found = async {
        let store = connect(settings, "vitrina-changelog", 1).await?;
        let found = store.pipelines(&PipelineChoice::default()).await;
        store.close().await;
        anyhow::Ok(found?)
    };
    match found.await {
        Ok(found) => Some(found.into_iter().map(|record| record.config).collect()),
        Err(error) => {
            let reason = error.to_string();
            let reason = reason.lines().next().unwrap_or_default();
            output::say(&format!("pipelines are not told by their names: {reason}"));
            None
        }
    }
}

async fn conclude(
    change: &Change,
    desk: &Desk,
    statements: &[String],
    done: &str,
    context: &Context,
) -> Result<Exit> {
    if change.apply {
        desk.apply(statements).await?;
    }
    let document = json!({"statements": statements, "applied": change.apply});
    let text = || match statements {
        [] => done.to_owned(),
        statements => {
            let all = statements.iter().map(|statement| format!("{statement};")).collect::<Vec<_>>();
            all.join("\n\n")
        }
    };
    context.output.show(&document, text);
    if statements.is_empty() {
        return Ok(Exit::Done);
    }
    if change.apply {
        output::say(done);
        return Ok(Exit::Done);
    }
    output::say(
        "nothing was executed; the owner of the table applies it, or --apply does with enough rights (--url)",
    );
    Ok(Exit::Differences)
}

async fn status(at: &At, settings: &Settings, context: &Context) -> Result<Exit> {
    let (desk, _) = desk(at, settings).await?;
    let (tables, consumers) = (desk.tables().await?, desk.consumers().await?);
    let known = if consumers.is_empty() { None } else { pipelines(settings).await };
    let names: BTreeMap<String, String> =
        known.into_iter().flatten().map(|pipeline| (pipeline.id.to_string(), pipeline.name)).collect();
    let document = json!({
        "tables": tables.iter().map(|table| json!({
            "source": table.source, "complete": table.complete, "changes": table.changes,
        })).collect::<Vec<_>>(),
        "consumers": consumers.iter().map(|consumer| json!({
            "pipeline": consumer.pipeline, "name": names.get(&consumer.pipeline), "silent_seconds": consumer.silent_seconds, "dropped": consumer.dropped,
        })).collect::<Vec<_>>(),
    });
    context.output.show(&document, || report(&tables, &consumers, &names));
    let complete = tables.iter().all(|table| table.complete);
    Ok(if complete { Exit::Done } else { Exit::Differences })
}

/// `names` are those of pipelines by their ids, as far as they are known.
fn report(tables: &[LoggedTable], consumers: &[Consumer], names: &BTreeMap<String, String>) -> String {
    if tables.is_empty() {
        return "no changes are logged here; `vitrina changelog install TABLE --key …` shows how".to_owned();
    }
    let count = |changes: i64| grouped(changes.unsigned_abs());
    let table = |table: &LoggedTable| {
        let triggers = if table.complete { "all there" } else { "MISSING or switched off" };
        [table.source.clone(), triggers.to_owned(), count(table.changes)]
    };
    let follower = |consumer: &Consumer| {
        let state = if consumer.dropped { "dropped: its next run loads anew" } else { "followed" };
        let name = names.get(&consumer.pipeline).unwrap_or(&consumer.pipeline);
        [name.clone(), state.to_owned(), format!("{} s ago", count(consumer.silent_seconds))]
    };
    let mut parts = vec![output::table(["table", "triggers", "changes kept"], tables.iter().map(table))];
    if !consumers.is_empty() {
        parts.push(output::table(["pipeline", "log", "heard of"], consumers.iter().map(follower)));
    }
    parts.join("\n\n")
}

/// A session at the source, and the login that pipelines read it with.
async fn desk(at: &At, settings: &Settings) -> Result<(Desk, String)> {
    let mut connection = choose(at, settings)?;
    let reader = user(connection.url.get().expose_secret());
    if let Some(url) = &at.url {
        // No parser of the argument: clap would repeat the URL in its error.
        let refused = |complaint| Exit::Usage.fault(format!("the URL of --url is refused: {complaint}"));
        connection.url = config::connection_url(url).map_err(refused)?.into();
    }
    Ok((Desk::open(&connection).await?, reader))
}

fn choose(at: &At, settings: &Settings) -> Result<Connection> {
    let connections = services::connections(settings).0;
    let sources = services::sources(settings);
    let names = sources.keys().cloned().collect::<Vec<_>>();
    let name = match (&at.connection, names.as_slice()) {
        (Some(name), _) => name,
        (None, [only]) => only,
        (None, []) => {
            return Err(Exit::Usage.fault("no source is configured\nhint: set connections.<name>.url"));
        }
        (None, _) => {
            let known = names.join(", ");
            return Err(Exit::Usage.fault(format!("which source?\nhint: --connection takes one of {known}")));
        }
    };
    let known = || format!("unknown connection {name:?}\nhint: one of {}", names.join(", "));
    connections.get(name).cloned().ok_or_else(|| Exit::Usage.fault(known()))
}

fn user(url: &str) -> String {
    let parsed = Url::parse(url).ok();
    let user = parsed.map(|url| url.username().to_owned()).unwrap_or_default();
    percent_encoding::percent_decode_str(&user).decode_utf8_lossy().into_owned()
}
