//! `vitrina conn list` and `vitrina conn test NAME`: the servers that pipelines read from and write to.

use anyhow::Result;
use clap::Subcommand;
use vitrina_api::documents::{Connection, ConnectionTest};

use crate::context::Context;
use crate::exit::Exit;
use crate::output;

const EXAMPLES: &str = "\
Examples:
  vitrina conn list
  vitrina conn test cinema   reached? missing grants as SQL to copy";

#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Connections, without their secrets
    List,
    /// Let a runner open a session, or call a search server, and look at the rights of its login
    Test { name: String },
}

pub(crate) async fn run(args: &Args, context: &Context) -> Result<Exit> {
    let client = context.client()?;
    match &args.command {
        Command::List => {
            let connections = client.connections().await?;
            context.output.show(&connections.document, || {
                output::yielding(
                    ["connection", "address", "schemas", "runners"],
                    connections.known.items.iter().map(row),
                    &["runners", "schemas", "address"],
                )
            });
            Ok(Exit::Done)
        }
        Command::Test { name } => {
            let tested = client.test_connection(name).await?;
            context.output.show(&tested.document, || text(name, &tested.known));
            Ok(if tested.known.ok { Exit::Done } else { Exit::Refused })
        }
    }
}

fn row(connection: &Connection) -> [String; 4] {
    let told = |text: Option<String>| text.unwrap_or_else(|| "-".to_owned());
    let runners = connection.runners.iter().map(|found| match &found.problem {
        Some(problem) => format!("{} ({problem})", found.runner),
        None => found.runner.clone(),
    });
    let schemas = connection.allowed_schemas.as_ref().map(|schemas| schemas.join(", "));
    let runners = runners.collect::<Vec<_>>().join(", ");
    [
        connection.name.clone(),
        told(connection.address.clone()),
        told(schemas),
        if runners.is_empty() { "-".to_owned() } else { runners },
    ]
}

fn text(name: &str, tested: &ConnectionTest) -> String {
    let ConnectionTest { runner, connect_ms, server, problem, missing_grants, tried, .. } = tested;
    let mut text = match (server, connect_ms) {
        (Some(server), Some(ms)) => format!("{name}: {server}, reached by {runner} in {ms} ms"),
        _ => format!("{name}: looked at by {runner}"),
    };
    if let Some(problem) = problem {
        text += &format!("\n{problem}");
    }
    for missing in missing_grants {
        // Only statements end so.
        let end = if missing.starts_with("grant ") { ";" } else { "" };
        text += &format!("\n{missing}{end}");
    }
    tried.iter().for_each(|tried| text += &format!("\n{tried}"));
    text
}
