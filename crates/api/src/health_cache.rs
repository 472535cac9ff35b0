//! The health of the sources, cached for a moment: probes come often and from anyone, and at most one check runs at a time.

use std::time::Duration;

use tokio::sync::Mutex;
use tokio::time::Instant;

use crate::SourceConnection;
use crate::app::Rules;
use crate::documents::SourcePulse;

const KEPT: Duration = Duration::from_secs(10);

#[derive(Debug, Default)]
pub(crate) struct HealthCache(Mutex<Option<(Instant, Vec<SourcePulse>)>>);

impl HealthCache {
    pub(crate) async fn sources(&self, rules: &Rules) -> Vec<SourcePulse> {
        let mut kept = self.0.lock().await;
        if let Some((asked, pulses)) = kept.as_ref().filter(|(asked, _)| asked.elapsed() < KEPT) {
            tracing::trace!(age = ?asked.elapsed(), "sources were asked a moment ago");
            return pulses.clone();
        }
        let asked = rules.source_connections.iter().map(async |(name, connection)| SourcePulse {
            connection: name.clone(),
            problem: ask(connection).await.err(),
        });
        let pulses = futures_util::future::join_all(asked).await;
        *kept = Some((Instant::now(), pulses.clone()));
        pulses
    }
}

async fn ask(connection: &SourceConnection) -> Result<(), String> {
    connection.read("health").await?.ask().await
}
