//! `vitrina changelog`: the log of changes in a source, as SQL for its owner. Executed only when asked.

use anyhow::Result;
use clap::Subcommand;
use secrecy::ExposeSecret;
use serde_json::json;
use url::Url;
use vitrina_connectors::Connection;
use vitrina_connectors::sources::changelog::{Consumer, Desk, LoggedTable};

use crate::config::Settings;
use crate::context::Context;
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
            let done = format!("changes of {} are not logged by {}", logged.table, change.key.join(", "));
            conclude(change, &desk, &statements, &done, context).await
        }
        Command::Status(at) => status(at, &settings, context).await,
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
    let document = json!({
        "tables": tables.iter().map(|table| json!({
            "source": table.source, "complete": table.complete, "changes": table.changes,
        })).collect::<Vec<_>>(),
        "consumers": consumers.iter().map(|consumer| json!({
            "pipeline": consumer.pipeline, "silent_seconds": consumer.silent_seconds, "dropped": consumer.dropped,
        })).collect::<Vec<_>>(),
    });
    context.output.show(&document, || report(&tables, &consumers));
    let complete = tables.iter().all(|table| table.complete);
    Ok(if complete { Exit::Done } else { Exit::Differences })
}

fn report(tables: &[LoggedTable], consumers: &[Consumer]) -> String {
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
        [consumer.pipeline.clone(), state.to_owned(), format!("{} s ago", count(consumer.silent_seconds))]
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
        connection.url = url.as_str().into();
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
