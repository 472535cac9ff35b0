//! The toy source: films of this process.

use std::collections::BTreeMap;

use async_trait::async_trait;
use serde_json::{Value, json};
use uuid::Uuid;
use vitrina_runner::RunnerSettings;
use vitrina_testbed::Fault;

use super::{Feed, FeedAbilities};
use crate::stage::Stage;
use crate::toy_source::{ToySource, with_films};

pub(crate) struct Memory(Uuid);

#[async_trait(?Send)]
impl Feed for Memory {
    const ABILITIES: FeedAbilities = FeedAbilities {
        sees_deletes: Ok(()),
        has_transactions: Err("a change is there at once"),
        has_table: Err("its columns are in its code"),
        has_requests: Ok(()),
        every: 1,
    };

    async fn create(stage: &Stage) -> Self {
        Self(stage.store.installation().await.unwrap())
    }

    fn config(&self) -> Value {
        // The meta-store asks for a cursor of every pipeline that is no function and follows no change log.
        json!({"source_type": "toy", "source_query": "select toy", "incremental_key": "id", "incremental_id_key": "id"})
    }

    /// The one line.
    fn connect(&self, settings: &mut RunnerSettings) {
        settings.sources.0.push(&ToySource);
    }

    async fn put(&self, _: &Stage, ids: &[i32], title: &str) {
        let changes = ids.iter().map(|id| (*id, Some(title.to_owned())));
        with_films(self.0, |films| films.changes.extend(changes));
    }

    async fn delete(&self, _: &Stage, id: i32) {
        with_films(self.0, |films| films.changes.push((id, None)));
    }

    async fn titles(&self, _: &Stage) -> BTreeMap<String, String> {
        let now = with_films(self.0, |films| films.now());
        now.into_iter().map(|(id, title)| (id.to_string(), title)).collect()
    }

    fn play_at(&self, nth: usize, fault: Fault) {
        with_films(self.0, |films| (films.requests, films.fault) = (0, Some((nth, fault))));
    }

    fn requests(&self) -> usize {
        with_films(self.0, |films| films.requests)
    }
}
