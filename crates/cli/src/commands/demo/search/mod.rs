//! What the demo does where a search server is named: three indexes beside the two marts, the proof that they are right,
//! and two searches. Without a server it says in one line how to have one.

mod leftovers;
mod proof;
mod server;
mod tasting;

use anyhow::Result;
use vitrina_api::documents::RunOrder;
use vitrina_cinema::INDEX_PIPELINES;

use super::show::{apply, run_all};
use super::stand::Stand;
use crate::client::Client;
use crate::exit::Exit;
use crate::output::{print, say};

pub(super) use leftovers::remove;
pub(super) use server::Server;

/// The server that the environment names, if it answers as one.
pub(super) async fn find() -> Result<Option<Server>> {
    let Some(server) = Server::named()? else { return Ok(None) };
    server.look().await.map(Some)
}

/// Makes the three indexes through the API, as `vitrina apply` would, and proves them.
pub(super) async fn show(server: &Server, client: &Client, stand: &Stand) -> Result<Exit> {
    print(&server.described());
    leftovers::note(stand.directory(), stand.admin_url(), server).await?;
    apply(client, INDEX_PIPELINES).await?;
    for (pipeline, _) in INDEX_PIPELINES {
        client.change(pipeline, "enable").await?;
    }
    run_all(client, &INDEX_PIPELINES.map(|(pipeline, _)| pipeline), &RunOrder::default()).await?;
    let checks = proof::verify(stand.admin_url(), server).await?;
    for check in &checks {
        print(&check.verdict());
    }
    tasting::search(server).await?;
    Ok(if checks.iter().all(proof::Check::is_equal) { Exit::Done } else { Exit::Differences })
}

/// Indexes of an earlier demo wait until a server is named again: their schedules would only fail.
pub(super) async fn go_without(client: &Client) -> Result<()> {
    let there = client.pipelines().await?.known.items;
    for (pipeline, _) in INDEX_PIPELINES {
        if there.iter().any(|found| found.name == pipeline) {
            client.change(pipeline, "disable").await?;
        }
    }
    say(
        "no search server is named, so there are no indexes: OPENSEARCH_URL=http://127.0.0.1:9200 names the one of \
         `scripts/search run opensearch 9200`, ELASTICSEARCH_URL that of `docker compose --env-file .env.sample \
         --file deploy/compose.yaml up elasticsearch`",
    );
    Ok(())
}
