//! Marts: in the database of the meta-store, or in another one.

use std::collections::BTreeMap;

use async_trait::async_trait;
use vitrina_runner::RunnerSettings;
use vitrina_testbed::{Database, Fault, PostgresProxy};

use super::{Abilities, Target};
use crate::stage::Stage;

const FILMS: &str = "create schema analytics;
    create table analytics.film (id int primary key, title text, note text check (note <> 'x'), modified timestamptz)";

/// In the database of the meta-store, or in one of its own.
pub(crate) struct Mart<const REMOTE: bool> {
    remote: Option<Database>,
    proxy: PostgresProxy,
}

pub(crate) type Beside = Mart<false>;
pub(crate) type Remote = Mart<true>;

impl<const REMOTE: bool> Mart<REMOTE> {
    fn db<'a>(&'a self, stage: &'a Stage) -> &'a Database {
        self.remote.as_ref().unwrap_or(&stage.db)
    }
}

#[async_trait(?Send)]
impl<const REMOTE: bool> Target for Mart<REMOTE> {
    const ABILITIES: Abilities = Abilities {
        refusal: "row.check",
        batch_sizes: if REMOTE { &[7, 1000] } else { &[1, 7, 250, 1000, 10_000] },
        // Both write by the same statements, and the works of a test begin at different requests.
        every: if REMOTE { 7 } else { 3 },
        compares: Ok(()),
        hashes_content: Ok(()),
        writes_differences: Ok(()),
        exact_figures: Ok(()),
    };

    async fn create(stage: &Stage) -> Self {
        let remote = if REMOTE { Some(Database::fresh().await) } else { None };
        let db = remote.as_ref().unwrap_or(&stage.db);
        db.execute(FILMS).await;
        let proxy = PostgresProxy::before(db.url()).await;
        Self { remote, proxy }
    }

    fn name(&self) -> String {
        "analytics.film".to_owned()
    }

    fn connect(&self, settings: &mut RunnerSettings) {
        settings.connections.0.get_mut("marts").unwrap().url = self.proxy.url().into();
    }

    async fn titles(&self, stage: &Stage) -> BTreeMap<String, String> {
        let rows = self.db(stage).texts("select id::text, title from analytics.film").await;
        rows.into_iter().map(|row| (row[0].clone().unwrap(), row[1].clone().unwrap())).collect()
    }

    async fn put(&self, stage: &Stage, id: i32, title: &str) {
        let put = format!(
            "insert into analytics.film (id, title) values ({id}, '{title}') on conflict (id) do update set title = excluded.title"
        );
        self.db(stage).execute(&put).await;
    }

    async fn remove(&self, stage: &Stage, id: i32) {
        self.db(stage).execute(&format!("delete from analytics.film where id = {id}")).await;
    }

    async fn empty(&self, stage: &Stage) {
        self.db(stage).execute("truncate analytics.film").await;
    }

    async fn create_typed(&self, stage: &Stage, columns: &[(String, String)]) -> String {
        let columns: Vec<_> = columns.iter().map(|(name, type_name)| format!("{name} {type_name}")).collect();
        let create = format!("create table analytics.typed ({}, primary key (id))", columns.join(", "));
        self.db(stage).execute(&create).await;
        "analytics.typed".to_owned()
    }

    async fn copy_value(&self, stage: &Stage, column: &str) {
        let copy = format!(
            "update analytics.typed set {column} = (select {column} from analytics.typed where id = 2) where id = 1"
        );
        self.db(stage).execute(&copy).await;
    }

    fn play_at(&self, nth: usize, fault: Fault) {
        self.proxy.play_at(nth, fault);
    }

    fn requests(&self) -> usize {
        self.proxy.requests()
    }
}
