//! A source is restored from a backup: what it no longer has must not stay in the mart.

use std::collections::BTreeMap;

use anyhow::Result;
use tokio_postgres::Client;

use crate::probes::Violation;
use crate::rng::Rng;
use crate::storm::Storm;

const NAME: &str = "restored_source";
const CHANGE: &str = "
    insert into content.restored_source select n, 'New ' || random(), clock_timestamp() from generate_series(1, 120) n where random() < 0.3 on conflict do nothing;
    update content.restored_source set title = 'Title ' || random(), modified = clock_timestamp() where random() < 0.3";

pub(super) async fn play(storm: &Storm, rng: &mut Rng) -> Result<Option<Violation>> {
    storm.restored_source(CHANGE).await?;
    storm.run(NAME).await?;
    storm.fixture.restored_source.back_up().await?;
    storm.restored_source(CHANGE).await?;
    storm.run(NAME).await?;
    storm.fixture.restored_source.restore().await?;
    if rng.share() < 0.5 {
        storm
            .restored_source("update content.restored_source set title = 'After', modified = clock_timestamp() where id = 1")
            .await?;
    }
    let outcome = storm.run(NAME).await?;
    let source = rows(&storm.fixture.restored_source.session().await?.client, "content").await?;
    let mart = rows(&storm.fixture.session().await?.client, "analytics").await?;
    let said = format!("the source has {} rows, the mart {}", source.len(), mart.len());
    let found = outcome.is_success() && source != mart;
    Ok(found.then(|| Violation::new("a mart differs from a source that was restored", NAME, said)))
}

impl Storm {
    async fn restored_source(&self, sql: &str) -> Result<()> {
        Ok(self.fixture.restored_source.session().await?.client.batch_execute(sql).await?)
    }
}

async fn rows(client: &Client, schema: &str) -> Result<BTreeMap<i32, String>> {
    let rows = client
        .query(&format!("select id, concat(title, ' ', modified) from {schema}.restored_source"), &[])
        .await?;
    Ok(rows.iter().map(|row| (row.get(0), row.get(1))).collect())
}
