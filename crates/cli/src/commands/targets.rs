//! `vitrina targets`: what pipelines write to, as it is described.

use anyhow::Result;
use vitrina_api::documents::TargetDetail;

use crate::context::Context;
use crate::exit::Exit;
use crate::output;

const EXAMPLES: &str = "\
Examples:
  vitrina targets               all that are described; others go by the primary key of their table
  vitrina targets -o json       with mapping, settings and document rules";

#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {}

pub(crate) async fn run(_: &Args, context: &Context) -> Result<Exit> {
    let targets = context.client()?.targets().await?;
    context.output.show(&targets.document, || match targets.known.items.as_slice() {
        [] => "no target is described; pipelines go by the primary keys of their marts".to_owned(),
        targets => {
            output::table(["target", "connection", "key", "created", "pipelines"], targets.iter().map(row))
        }
    });
    Ok(Exit::Done)
}

fn row(target: &TargetDetail) -> [String; 5] {
    let listed = |names: &[String], none: &str| match names {
        [] => none.to_owned(),
        names => names.join(", "),
    };
    [
        target.name.clone(),
        target.connection.clone(),
        listed(&target.key, "primary key"),
        if target.create_if_missing { "if missing" } else { "-" }.to_owned(),
        listed(&target.pipelines, "-"),
    ]
}
