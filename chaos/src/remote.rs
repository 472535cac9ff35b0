//! Targets that a snapshot of the cinema's database does not show: a mart in another database, and an index. What they hold is
//! copied beside the marts, together with how far their pipelines said they were before it was read, and there the probes look.

use std::time::Duration;

use anyhow::{Context, Result};
use serde_json::{Value, json};
use tokio::runtime::Handle;
use tokio::sync::Mutex;
use tokio::time::{sleep, timeout};
use tokio_postgres::Client;
use vitrina_testbed::{Distribution, FaultProxy, OwnSearchServer, SearchServer, Storm as Faults};

use crate::fixture::connect;
use crate::rng::Rng;

pub(crate) const REMOTE: &str = "film_remote";
pub(crate) const INDEX: &str = "film_index";
/// Requests to the search server that meet with a fault on their way.
const FAULTS: f64 = 0.05;
/// A server that takes longer is away for this look.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(3);

#[derive(Debug)]
pub(crate) struct Remote {
    remote_url: String,
    search: Option<Search>,
}

#[derive(Debug)]
struct Search {
    server: Mutex<OwnSearchServer>,
    /// The same, whoever holds that.
    direct: SearchServer,
    proxy: FaultProxy,
}

/// A row of a target: id, version, and what is to be seen of it.
type Row = (i32, i64, String);

const REMOTE_TABLE: &str = "create schema analytics;
    create table analytics.film_remote (id int primary key, title text not null, version bigint not null, modified timestamptz not null)";

impl Remote {
    /// `remote_url` is of an empty database.
    pub(crate) async fn prepare(remote_url: String, with_search: bool, seed: u64) -> Result<Self> {
        connect(&remote_url).await?.client.batch_execute(REMOTE_TABLE).await?;
        let search = if with_search { Some(Search::start(seed).await) } else { None };
        Ok(Self { remote_url, search })
    }

    pub(crate) fn names(&self) -> Vec<&'static str> {
        let index = self.search.as_ref().map(|_| INDEX);
        [Some(REMOTE), index].into_iter().flatten().collect()
    }

    pub(crate) fn remote_url(&self) -> &str {
        &self.remote_url
    }

    /// Through the proxy that troubles it.
    pub(crate) fn search_url(&self) -> Option<&str> {
        self.search.as_ref().map(|search| search.proxy.url())
    }

    /// Copies what is there now; a target that is away keeps its last copy.
    pub(crate) async fn copy(&self, client: &Client) -> Result<()> {
        let progress = "select p.name, s.checkpoint #>> '{position,done,opened_at}',
                               (select count(*) from chaos.closings c where c.pipeline = p.name and c.status = 'SUCCESS' and c.is_pass)
                          from etl.etl_pipelines p join etl.etl_state s on s.pipeline_id = p.id where p.name = any($1)";
        for row in client.query(progress, &[&self.names()]).await? {
            let name: &str = row.get(0);
            let found = match name {
                REMOTE => self.remote().await.ok(),
                _ => self.index().await,
            };
            if let Some(rows) = found {
                put(client, name, &rows, row.get(1), row.get(2)).await?;
            }
        }
        Ok(())
    }

    async fn remote(&self) -> Result<Vec<Row>> {
        let session = connect(&self.remote_url).await?;
        let rows = session.client.query("select id, version, title from analytics.film_remote", &[]).await?;
        Ok(rows.iter().map(|row| (row.get(0), row.get(1), row.get(2))).collect())
    }

    async fn index(&self) -> Option<Vec<Row>> {
        let server = &self.search.as_ref()?.direct;
        let asked = async {
            server.try_call("POST", &format!("{INDEX}/_refresh"), Value::Null).await.ok()?;
            let all = json!({"size": 10_000, "_source": ["title", "version"]});
            server
                .try_call("POST", &format!("{INDEX}/_search?allow_partial_search_results=false"), all)
                .await
                .ok()
        };
        let (status, answer) = timeout(ANSWER_TIMEOUT, asked).await.ok()??;
        let hits = answer["hits"]["hits"].as_array().filter(|_| status == 200)?;
        hits.iter().map(document).collect()
    }

    /// Answers whether there was a search server to harm.
    pub(crate) async fn harm(&self, rng: &mut Rng) -> bool {
        let Some(search) = &self.search else { return false };
        let mut server = search.server.lock().await;
        if rng.share() < 0.7 {
            server.freeze();
            sleep(rng.between(Duration::from_millis(200), Duration::from_secs(3))).await;
            server.thaw();
        } else {
            server.kill();
            tokio::task::block_in_place(|| Handle::current().block_on(server.start()));
        }
        true
    }

    /// From here on nothing gets lost on the way.
    pub(crate) async fn calm(&self) {
        if let Some(search) = &self.search {
            let _whole = search.server.lock().await;
            search.proxy.calm().await;
            search.direct.settled().await;
        }
    }
}

impl Search {
    async fn start(seed: u64) -> Self {
        let server = SearchServer::own(Distribution::OpenSearch, &[]).await;
        let direct = SearchServer::clone(&server);
        let proxy = FaultProxy::before(&server).await;
        proxy.storm(Faults::new(seed).share(FAULTS));
        Self { server: Mutex::new(server), direct, proxy }
    }
}

fn document(hit: &Value) -> Option<Row> {
    let source = &hit["_source"];
    let id = hit["_id"].as_str()?.parse().ok()?;
    Some((id, source["version"].as_i64()?, source["title"].as_str()?.to_owned()))
}

/// In one transaction, so that no probe sees half of it. A row that is older than it was has gone back.
async fn put(
    client: &Client,
    name: &str,
    rows: &[Row],
    opened_at: Option<&str>,
    successes: i64,
) -> Result<()> {
    let rows = json!(rows).to_string();
    let opened_at = opened_at.map(str::to_owned);
    client
        .query_one(
            "select chaos.see_elsewhere($1, $2::text::jsonb, $3::text::timestamptz, $4)",
            &[&name, &rows, &opened_at, &successes],
        )
        .await
        .with_context(|| format!("the copy of {name}"))?;
    Ok(())
}
