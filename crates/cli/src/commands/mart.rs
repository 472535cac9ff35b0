//! `vitrina mart PIPELINE`: what its mart lacks to take its rows, as SQL. Executed only when asked.

use anyhow::Result;
use serde::Serialize;
use vitrina_store::Store;

use crate::config::Settings;
use crate::context::{Context, connect};
use crate::exit::Exit;
use crate::look::Viewed;
use crate::output::{self, shell_word};

const EXAMPLES: &str = "\
Examples:
  vitrina mart film_dim           the SQL that its mart lacks
  vitrina mart film_dim --apply   execute it";

#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    /// Name or id
    pipeline: String,
    /// Execute the statements under the login that writes the marts, all of them or none
    #[arg(long)]
    apply: bool,
}

#[derive(Debug, Serialize)]
struct Lacks {
    target: String,
    statements: Vec<String>,
    applied: bool,
}

pub(crate) async fn run(args: &Args, context: &Context) -> Result<Exit> {
    let settings = context.settings()?;
    let store = connect(&settings, "vitrina-mart", 1).await?;
    let lacks = compare(args, &settings, &store).await;
    store.close().await;
    let lacks = lacks?;
    context.output.show(&lacks, || text(&lacks));
    if !lacks.applied && !lacks.statements.is_empty() {
        let pipeline = shell_word(&args.pipeline);
        output::say(&format!("nothing was executed; `vitrina mart {pipeline} --apply` does it"));
        return Ok(Exit::Differences);
    }
    Ok(Exit::Done)
}

async fn compare(args: &Args, settings: &Settings, store: &Store) -> Result<Lacks> {
    let viewed = Viewed::find(&args.pipeline, settings, store).await?;
    let looked = viewed.look().await?;
    let schema = looked.schema.as_deref().ok_or_else(|| {
        let hint = "hint: functions over Arrow batches tell their columns before they see rows, those over dicts do not";
        Exit::Refused.fault(format!("which columns its Python functions return shows when they run\n{hint}"))
    })?;
    let (definition, kind) = (looked.definition(schema), looked.kind());
    let statements = kind.lacks(&definition).await?;
    let applied = args.apply && !statements.is_empty();
    if applied {
        kind.supply(&definition, &statements).await?;
    }
    Ok(Lacks { target: looked.name.to_string(), statements, applied })
}

fn text(lacks: &Lacks) -> String {
    let Lacks { target, statements, applied } = lacks;
    if statements.is_empty() {
        return format!("{target} can take the rows of this pipeline as it is");
    }
    let statements = statements.iter().map(|statement| format!("{statement};"));
    let statements = statements.collect::<Vec<_>>().join("\n");
    if *applied { format!("{statements}\n-- executed") } else { statements }
}
