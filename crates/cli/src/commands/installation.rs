//! `vitrina installation`: which of several copies of a meta-store writes to the targets. Decided at the meta-store itself.

use std::io::{self, IsTerminal};

use anyhow::Result;
use clap::Subcommand;
use serde_json::json;
use vitrina_store::{Actor, Error, InstalledPipeline, Store};

use crate::context::{Context, connect};
use crate::exit::Exit;
use crate::output;

const EXAMPLES: &str = "\
Examples:
  vitrina installation         its id, and the pipelines that another copy of the meta-store has stopped
  vitrina installation adopt   after a restore, or where this is the meta-store that counts
  vitrina installation new     for a copy that shall live on its own, such as one for tests";

#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    #[command(subcommand)]
    command: Option<Command>,
}

#[derive(Debug, Clone, Copy, Subcommand)]
enum Command {
    /// This meta-store is the rightful one: it takes its targets back, and the other copy is stopped
    Adopt {
        /// Do not ask
        #[arg(long)]
        yes: bool,
    },
    /// This is a copy: it gets an installation of its own, and owns no target that it has not acquired since
    New {
        /// Do not ask
        #[arg(long)]
        yes: bool,
    },
}

pub(crate) async fn run(args: &Args, context: &Context) -> Result<Exit> {
    let store = connect(&context.settings()?, "vitrina-installation", 1).await?;
    store.check_schema().await?;
    let done = match args.command {
        None => show(&store, context).await,
        Some(Command::Adopt { yes }) => adopt(&store, yes, context).await,
        Some(Command::New { yes }) => renew(&store, yes, context).await,
    };
    store.close().await;
    done.map(|()| Exit::Done)
}

async fn show(store: &Store, context: &Context) -> Result<()> {
    let (id, pipelines) = (store.installation().await?, store.installed_pipelines().await?);
    let stopped: Vec<_> = pipelines.iter().filter(|pipeline| pipeline.stopped).collect();
    context.output.show(&json!({"installation": id, "stopped": stopped}), || match stopped.as_slice() {
        [] => format!("installation {id}\nno pipeline is stopped by another copy of this meta-store"),
        stopped => format!(
            "installation {id}\nstopped, because another copy of this meta-store has written to their targets, or it was restored from a backup:\n{}",
            table(stopped.iter().copied(), |_| "FAILED".to_owned())
        ),
    });
    if !stopped.is_empty() {
        output::say(
            "`vitrina installation adopt` if this meta-store shall write to them; `vitrina installation new` if this is the copy",
        );
    }
    Ok(())
}

async fn adopt(store: &Store, yes: bool, context: &Context) -> Result<()> {
    let id = store.installation().await?;
    if !yes {
        consent(
            "adopt",
            &format!(
                "this meta-store takes all targets of installation {id} back: the other copy, if there is one, is stopped at its next run; \
                 marts elsewhere continue from their own checkpoints, indexes that the other copy has written to are loaded anew"
            ),
            "is this the meta-store that counts?",
        )?;
    }
    store.adopt_targets(&actor()).await?;
    let pipelines = store.installed_pipelines().await?;
    context.output.show(&json!({"installation": id, "pipelines": pipelines}), || {
        let next = |pipeline: &InstalledPipeline| match pipeline.stopped {
            true => "its next run takes the target back: run it again".to_owned(),
            false => "its next run takes the target back, if another copy has it".to_owned(),
        };
        table(pipelines.iter(), next)
    });
    Ok(())
}

async fn renew(store: &Store, yes: bool, context: &Context) -> Result<()> {
    let id = store.installation().await?;
    if !yes {
        consent(
            "new",
            &format!(
                "this meta-store is installation {id} no longer, and owns nothing of it: runs into its targets are refused (sink.owned) until they are sent elsewhere"
            ),
            "is this a copy?",
        )?;
    }
    let renewed = store.renew_installation(&actor()).await.map_err(|error| match error {
        Error::RunOpen => Exit::Conflict.fault("runs are active\nhint: stop the runners of this meta-store first, and wait until no pipeline is RUNNING"),
        error => error.into(),
    })?;
    let pipelines = store.installed_pipelines().await?;
    let document = json!({"before": renewed.before, "installation": renewed.after, "pipelines": pipelines});
    context.output.show(&document, || {
        let next = |_: &InstalledPipeline| "refused while the other owns it: send it elsewhere".to_owned();
        format!("installation {} (was {})\n{}", renewed.after, renewed.before, table(pipelines.iter(), next))
    });
    output::say(&format!(
        "marts that were copied with it, in a database of its own, can be released there: delete from vitrina.marts where installation = '{}'",
        renewed.before
    ));
    Ok(())
}

fn table<'a>(
    pipelines: impl Iterator<Item = &'a InstalledPipeline>,
    next: impl Fn(&InstalledPipeline) -> String,
) -> String {
    let row = |pipeline: &InstalledPipeline| [pipeline.name.clone(), pipeline.target.clone(), next(pipeline)];
    output::table(["pipeline", "target", "state"], pipelines.map(row))
}

fn consent(command: &str, says: &str, question: &str) -> Result<()> {
    output::say(says);
    if !io::stdin().is_terminal() {
        let hint = format!("`vitrina installation {command} --yes` does not ask");
        return Err(Exit::Usage.fault(format!("nobody is there to agree\nhint: {hint}")));
    }
    match output::ask(question)? {
        true => Ok(()),
        false => Err(Exit::Failed.fault("nothing was changed\nhint: answer y to do it")),
    }
}

/// Whoever has the meta-store's password.
fn actor() -> Actor {
    Actor { name: "command line".to_owned(), request_id: String::new() }
}
