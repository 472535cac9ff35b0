//! `vitrina health`: for containers and scripts that wait until the API is there.

use anyhow::Result;
use url::Url;
use vitrina_api::documents::{Health, SourcePulse};

use crate::context::Context;
use crate::exit::Exit;

pub(crate) const EXAMPLES: &str = "\
Examples:
  vitrina health           for probes of containers: 0 also where sources or runners are away, which it tells
  vitrina health -o json   with sources and runners";

pub(crate) async fn run(context: &Context) -> Result<Exit> {
    let client = context.client()?;
    let health = client.health().await?;
    context.output.show(&health.document, || format!("the API {}", told(client.base(), &health.known)));
    Ok(Exit::Done)
}

/// Of an API that answers: how it stands, and what is away.
pub(super) fn told(base: &Url, health: &Health) -> String {
    let alive = health.runners.iter().filter(|runner| runner.alive).count();
    let first = match health.is_sound() {
        true => format!("is healthy at {base}; runners alive: {alive}"),
        false => format!("answers at {base}, and is degraded; runners alive: {alive}"),
    };
    std::iter::once(first).chain(health.sources.iter().filter_map(problem)).collect::<Vec<_>>().join("\n")
}

fn problem(source: &SourcePulse) -> Option<String> {
    let problem = source.problem.as_ref()?;
    Some(format!("source {}: {problem}", source.connection))
}
