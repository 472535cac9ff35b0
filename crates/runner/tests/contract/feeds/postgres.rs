//! A table of Postgres, followed by a cursor or by its change log.

use std::collections::BTreeMap;

use async_trait::async_trait;
use serde_json::{Value, json};
use vitrina_connectors::sources::changelog::Desk;
use vitrina_runner::RunnerSettings;
use vitrina_testbed::{Fault, PostgresProxy};

use super::{Feed, FeedAbilities};
use crate::stage::Stage;

pub(crate) struct Table<const LOGGED: bool>(PostgresProxy);

pub(crate) type Cursor = Table<false>;
pub(crate) type Changelog = Table<true>;

const FILMS: &str = "create schema content;
    create table content.film (id int primary key, title text not null, modified timestamptz not null);
    create index on content.film (modified, id)";

#[async_trait(?Send)]
impl<const LOGGED: bool> Feed for Table<LOGGED> {
    const ABILITIES: FeedAbilities = FeedAbilities {
        sees_deletes: if LOGGED { Ok(()) } else { Err("a row that is gone has no cursor") },
        has_transactions: Ok(()),
        has_table: Ok(()),
        has_requests: Ok(()),
        // Loads and increments begin at different ones, and most are the same.
        every: if LOGGED { 5 } else { 3 },
    };

    async fn create(stage: &Stage) -> Self {
        stage.db.execute(FILMS).await;
        if LOGGED {
            let settings = stage.settings("desk");
            let desk = Desk::open(settings.connections.get("content").unwrap()).await.unwrap();
            let logged = desk.logged("content.film", &["id".to_owned()]).await.unwrap();
            let statements = desk.install(&logged, "postgres").await.unwrap();
            desk.apply(&statements).await.unwrap();
        }
        Self(PostgresProxy::before(stage.db.url()).await)
    }

    fn config(&self) -> Value {
        let query = "select id, title from content.film";
        match LOGGED {
            true => json!({"source_query": query, "capture": "changelog"}),
            false => {
                json!({"source_query": "select id, title, modified from content.film where id > 0", "incremental_key": "modified",
                    "incremental_id_key": "id"})
            }
        }
    }

    fn connect(&self, settings: &mut RunnerSettings) {
        settings.connections.0.get_mut("content").unwrap().url = self.0.url().into();
    }

    async fn put(&self, stage: &Stage, ids: &[i32], title: &str) {
        let put = format!(
            "insert into content.film select id, '{title}', now() from unnest(array{ids:?}::int[]) id
             on conflict (id) do update set title = excluded.title, modified = excluded.modified"
        );
        stage.db.execute(&put).await;
    }

    async fn delete(&self, stage: &Stage, id: i32) {
        stage.db.execute(&format!("delete from content.film where id = {id}")).await;
    }

    async fn titles(&self, stage: &Stage) -> BTreeMap<String, String> {
        let rows = stage.db.texts("select id::text, title from content.film").await;
        rows.into_iter().map(|row| (row[0].clone().unwrap(), row[1].clone().unwrap())).collect()
    }

    fn play_at(&self, nth: usize, fault: Fault) {
        self.0.play_at(nth, fault);
    }

    fn requests(&self) -> usize {
        self.0.requests()
    }
}
