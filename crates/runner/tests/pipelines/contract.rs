//! What every sink owes a runner, played on each of them. The toy one is one file and one line.

use std::collections::BTreeMap;

use serde_json::json;
use uuid::Uuid;
use vitrina_connectors::Connection;
use vitrina_core::{Mode, RunStatus};
use vitrina_runner::RunnerSettings;
use vitrina_store::RunRecord;

use crate::stage::Stage;
use crate::toy::{self, Toy};

/// The titles in a target, by id, and a way to spoil one of them.
enum Target {
    Postgres,
    Toy(Uuid),
}

const TOY: &str = "toy:film";

impl Target {
    async fn titles(&self, stage: &Stage) -> BTreeMap<String, String> {
        match self {
            Self::Postgres => {
                let rows = stage.db.texts("select id::text, title from analytics.film").await;
                rows.into_iter().map(|row| (row[0].clone().unwrap(), row[1].clone().unwrap())).collect()
            }
            Self::Toy(installation) => {
                let table = toy::table(*installation, TOY);
                table.into_iter().map(|(key, row)| (key[0].clone(), row[1].clone())).collect()
            }
        }
    }

    async fn damage(&self, stage: &Stage, id: &str) {
        match self {
            Self::Postgres => {
                stage
                    .db
                    .execute(&format!("update analytics.film set title = 'damaged' where id = {id}"))
                    .await;
            }
            Self::Toy(installation) => toy::damage(*installation, TOY, id),
        }
    }
}

fn settings(stage: &Stage) -> RunnerSettings {
    let mut settings = stage.settings("tester");
    settings.sinks.0.push(&Toy);
    settings.allowed_targets.0.push("toy:*".to_owned());
    let toy = Connection::new("toy", "toy:".into(), Vec::new());
    settings.connections.0.insert("toy".to_owned(), toy);
    settings
}

async fn source_titles(stage: &Stage) -> BTreeMap<String, String> {
    let rows = stage.db.texts("select id::text, title from content.film").await;
    rows.into_iter().map(|row| (row[0].clone().unwrap(), row[1].clone().unwrap())).collect()
}

/// Loads, changes, vanished rows and backfills arrive, are counted, and are not written twice.
async fn keeps_the_contract(stage: &Stage, target_table: &str, target: &Target) {
    stage
        .db
        .execute(&format!(
            "insert into etl.etl_targets (name, connection, key) values ('{TOY}', 'toy', '{{id}}')"
        ))
        .await;
    let id = stage
        .pipeline(json!({
            "target_table": target_table, "mode": "incremental", "batch_size": 30,
            "incremental_key": "modified", "incremental_id_key": "id",
        }))
        .await;
    let play = async |run| -> RunRecord {
        stage.work_off(settings(stage)).await;
        let record = stage.run_record(run).await;
        assert_eq!(record.status, RunStatus::Success, "{:?}", record.error);
        assert_eq!(target.titles(stage).await, source_titles(stage).await);
        record
    };
    let figures = |run: &RunRecord| (run.rows_written, run.rows_unchanged, run.rows_deleted);

    let load = play(stage.request_mode(id, Mode::Full).await).await;
    assert_eq!((load.rows_read, figures(&load)), (100, (100, 0, 0)));
    let again = play(stage.request_mode(id, Mode::Full).await).await;
    assert_eq!(figures(&again), (0, 100, 0));

    stage.db.execute("update content.film set title = 'New', modified = now() where id = 7").await;
    stage.add_films(101, 103).await;
    stage.db.execute("update content.film set modified = now() where id > 100").await;
    let pass = play(stage.request(id).await).await;
    assert_eq!(pass.rows_written, 4);

    stage.db.execute("delete from content.film where id in (1, 50)").await;
    let load = play(stage.request_mode(id, Mode::Full).await).await;
    assert_eq!(figures(&load), (0, 101, 2));

    let checkpoint = stage.checkpoint().await;
    target.damage(stage, "9").await;
    stage.db.execute("delete from content.film where id = 60").await;
    let backfill = play(stage.request_keys(id, json!([["9"], ["60"], ["12"]])).await).await;
    assert_eq!(figures(&backfill), (1, 1, 1));
    assert_eq!(stage.checkpoint().await, checkpoint);
}

#[tokio::test]
async fn the_postgres_sink_keeps_the_contract_of_sinks() {
    let stage = Stage::with_films(100).await;
    keeps_the_contract(&stage, "analytics.film", &Target::Postgres).await;
}

#[tokio::test]
async fn a_sink_of_one_file_and_one_line_keeps_the_contract_of_sinks() {
    let stage = Stage::with_films(100).await;
    let installation = stage.store.installation().await.unwrap();
    keeps_the_contract(&stage, TOY, &Target::Toy(installation)).await;
}
