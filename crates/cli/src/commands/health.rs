//! `vitrina health`: for containers and scripts that wait until the API is there.

use anyhow::Result;

use crate::context::Context;
use crate::exit::Exit;

pub(crate) const EXAMPLES: &str = "\
Examples:
  vitrina health           for probes of containers
  vitrina health -o json   with sources and runners";

pub(crate) async fn run(context: &Context) -> Result<Exit> {
    let client = context.client()?;
    let health = client.health().await?;
    context.output.show(&health.document, || {
        let alive = health.known.runners.iter().filter(|runner| runner.alive).count();
        format!("the API at {} is healthy; runners alive: {alive}", client.base())
    });
    Ok(Exit::Done)
}
