//! `vitrina mart PIPELINE`: what its mart lacks to take its rows, as SQL. Executed only when asked.

use anyhow::Result;
use serde::Serialize;
use vitrina_connectors::{sinks, sources};
use vitrina_core::{Lease, LeaseToken, Owner};
use vitrina_store::{Error, PipelineRecord, PipelineRef, Store};

use crate::config::Settings;
use crate::context::{Context, connect};
use crate::exit::Exit;
use crate::output::{self, shell_word};
use crate::services;

#[derive(Debug, clap::Args)]
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
    let found = store.pipeline(&PipelineRef::from(args.pipeline.as_str())).await;
    let PipelineRecord { config: pipeline, .. } = found.map_err(|error| match error {
        Error::NoSuchPipeline(_) => Exit::Usage.fault(format!("{error}\nhint: `vitrina status` lists them")),
        error => error.into(),
    })?;
    let name = pipeline.target_name(&settings.allowed_targets)?;
    let target = store.target(&name).await?;
    let connections = services::connections(settings);
    let lease = Lease { pipeline: pipeline.id, owner: Owner::draw(), token: OLDEST };
    let order = sources::Order {
        pipeline: &pipeline,
        mode: pipeline.mode,
        keys: None,
        max_batch_bytes: settings.runner.max_batch_bytes,
        lease: &lease,
        takeover: false,
        installation: store.installation().await?,
        changelog_max_age: 0,
        connections: &connections,
    };
    let schema = sources::open(&order).await?.schema();
    let definition =
        sinks::Definition { name: &name, target: &target, schema: &schema, connections: &connections };
    let kind = sinks::Kinds::default().of(&name)?;
    let statements = kind.lacks(&definition).await?;
    let applied = args.apply && !statements.is_empty();
    if applied {
        kind.supply(&definition, &statements).await?;
    }
    Ok(Lacks { target: name.to_string(), statements, applied })
}

/// Older than any that a runner holds: looking at a query ends nobody's session.
const OLDEST: LeaseToken = LeaseToken(0);

fn text(lacks: &Lacks) -> String {
    let Lacks { target, statements, applied } = lacks;
    if statements.is_empty() {
        return format!("{target} can take the rows of this pipeline as it is");
    }
    let statements = statements.iter().map(|statement| format!("{statement};"));
    let statements = statements.collect::<Vec<_>>().join("\n");
    if *applied { format!("{statements}\n-- executed") } else { statements }
}
