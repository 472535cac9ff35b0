//! The toy: tables of this process.

use std::collections::BTreeMap;

use async_trait::async_trait;
use uuid::Uuid;
use vitrina_connectors::Connection;
use vitrina_runner::RunnerSettings;
use vitrina_testbed::Fault;

use super::{Abilities, Target};
use crate::stage::Stage;
use crate::toy::{Table, Toy, with_server};

/// The tables of one installation.
pub(crate) struct Memory(Uuid);

const FILMS: &str = "toy:film";

impl Memory {
    fn table<T>(&self, act: impl FnOnce(&mut Table) -> T) -> T {
        with_server(self.0, |server| act(server.tables.entry(FILMS.to_owned()).or_default()))
    }
}

#[async_trait(?Send)]
impl Target for Memory {
    const ABILITIES: Abilities = Abilities {
        refusal: "row.refused",
        batch_sizes: &[1, 7, 250],
        every: 1,
        compares: Err(("reconcile.unsupported", "a toy has nobody who would compare it")),
        hashes_content: Ok(()),
        writes_differences: Ok(()),
        exact_figures: Err("rows are written first, and the entry of their batch may be lost"),
    };

    async fn create(stage: &Stage) -> Self {
        let describe = format!(
            "insert into etl.etl_targets (name, connection, key) values ('{FILMS}', 'toy', '{{id}}')"
        );
        stage.db.execute(&describe).await;
        Self(stage.store.installation().await.unwrap())
    }

    fn name(&self) -> String {
        FILMS.to_owned()
    }

    /// The one line.
    fn connect(&self, settings: &mut RunnerSettings) {
        settings.sinks.0.push(&Toy);
        settings.allowed_targets.0.push("toy:*".to_owned());
        let toy = Connection::new("toy", "toy:".into(), Vec::new());
        settings.connections.0.insert("toy".to_owned(), toy);
    }

    async fn titles(&self, _: &Stage) -> BTreeMap<String, String> {
        self.table(|table| table.rows.iter().map(|(key, row)| (key[0].clone(), row[1].clone())).collect())
    }

    async fn put(&self, _: &Stage, id: i32, title: &str) {
        let row = vec![id.to_string(), title.to_owned()];
        self.table(|table| table.rows.insert(vec![id.to_string()], row));
    }

    async fn remove(&self, _: &Stage, id: i32) {
        self.table(|table| table.rows.remove(&vec![id.to_string()]));
    }

    async fn empty(&self, _: &Stage) {
        self.table(|table| table.rows.clear());
    }

    async fn create_typed(&self, _: &Stage, _: &[(String, String)]) -> String {
        FILMS.to_owned()
    }

    async fn copy_value(&self, _: &Stage, _: &str) {}

    fn play_at(&self, nth: usize, fault: Fault) {
        with_server(self.0, |server| (server.requests, server.fault) = (0, Some((nth, fault))));
    }

    fn requests(&self) -> usize {
        with_server(self.0, |server| server.requests)
    }
}
