//! The example files: each query runs, and yields rows that its mart takes by the key of its target.
#![expect(clippy::unwrap_used, reason = "verbs of tests may fail as loudly as tests")]

use std::path::Path;

use serde::Deserialize;
use vitrina_cinema::{migrate, seed};
use vitrina_testbed::Database;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Target {
    name: String,
    connection: String,
    key: Vec<String>,
    touch_column: String,
    #[serde(default)]
    create_if_missing: bool,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Pipeline {
    name: String,
    #[expect(dead_code, reason = "for people")]
    description: String,
    r#type: String,
    source_connection: String,
    source_query: String,
    target_table: String,
    mode: String,
    batch_size: i32,
    incremental_key: Option<String>,
    incremental_id_key: Option<String>,
    schedule_interval: String,
    full_schedule: Option<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    targets: Vec<Target>,
    pipelines: Vec<Pipeline>,
}

fn files() -> Vec<File> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("pipelines");
    let files = folder.read_dir().unwrap().map(|entry| entry.unwrap().path()).filter(|path| path.is_file());
    files.map(|path| serde_norway::from_str(&std::fs::read_to_string(path).unwrap()).unwrap()).collect()
}

/// The columns of the query, in order, as its mart must have them.
async fn columns(database: &Database, query: &str) -> Vec<String> {
    let client = database.client().await;
    let statement = client.prepare(query).await.unwrap();
    statement.columns().iter().map(|column| column.name().to_owned()).collect()
}

#[test]
fn each_file_holds_one_pipeline_and_its_target() {
    let files = files();
    assert_eq!(files.len(), 4);
    for File { targets, pipelines } in files {
        assert_eq!((targets.len(), pipelines.len()), (1, 1));
        let (target, pipeline) = (&targets[0], &pipelines[0]);
        assert_eq!(target.name, pipeline.target_table);
        assert_eq!((target.connection.as_str(), target.touch_column.as_str()), ("marts", "updated_at"));
        assert_eq!((pipeline.r#type.as_str(), pipeline.source_connection.as_str()), ("SQL", "cinema"));
        assert!(pipeline.batch_size > 0 && !pipeline.schedule_interval.is_empty());
        let is_incremental = pipeline.mode == "incremental";
        assert_eq!(is_incremental, pipeline.name.ends_with("_incremental"));
        assert_eq!(is_incremental, pipeline.full_schedule.is_some(), "a cursor does not see everything");
    }
}

#[test]
fn no_example_writes_to_a_mart_of_the_demo_or_of_another_example() {
    let demo = include_str!("../init_demo_data.sql");
    let targets: Vec<String> =
        files().into_iter().map(|file| file.pipelines[0].target_table.clone()).collect();
    for (at, target) in targets.iter().enumerate() {
        assert!(!demo.contains(&format!("'{target}'")), "{target} is written by a pipeline of the demo");
        assert!(!targets[..at].contains(target), "{target} is written by two examples");
    }
}

#[tokio::test]
async fn every_example_fills_its_mart_by_the_key_of_its_target() {
    let database = Database::fresh().await;
    migrate(database.url()).await.unwrap();
    seed(database.url(), 1000, 10_000).await.unwrap();
    for File { targets, pipelines } in files() {
        let (target, Pipeline { name, source_query, .. }) = (&targets[0], &pipelines[0]);
        let (key, columns) = (target.key.join(", "), columns(&database, source_query).await.join(", "));
        let first = &target.key[0];
        if target.create_if_missing {
            let made = format!(
                "create table {0} as {source_query} with no data; create unique index on {0} ({key})",
                target.name
            );
            database.execute(&made).await;
        }
        let upsert = format!(
            "insert into {} ({columns}) {source_query} on conflict ({key}) do update set {first} = excluded.{first}",
            target.name
        );
        database.execute(&upsert).await;
        let rows: i64 = database.value(&format!("select count(*) from {}", target.name)).await;
        assert!(rows > 0, "{name} yields nothing");
    }
}

#[tokio::test]
async fn a_cursor_is_a_column_of_its_query_and_never_null() {
    let database = Database::fresh().await;
    migrate(database.url()).await.unwrap();
    seed(database.url(), 100, 1000).await.unwrap();
    for pipeline in files().into_iter().flat_map(|file| file.pipelines) {
        let cursor: Vec<_> =
            pipeline.incremental_key.into_iter().chain(pipeline.incremental_id_key).collect();
        for column in cursor {
            let nulls = format!("select count(*) from ({}) q where {column} is null", pipeline.source_query);
            assert_eq!(database.value::<i64>(&nulls).await, 0, "{column} of {}", pipeline.name);
        }
    }
}
