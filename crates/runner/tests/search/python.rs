//! Indexes behind Python functions that tell their columns only with their rows.

use std::sync::Arc;

use serde_json::{Value, json};
use vitrina_core::{PipelineId, RunStatus};
use vitrina_runner::{Runner, RunnerSettings};
use vitrina_store::RunRecord;
use vitrina_testbed::SearchServer;

use crate::functions::{Functions, plan};
use crate::shelf::Shelf;

const FUNCTIONS: &str = r#"
from vitrina import transform

@transform
def beyond_ten(rows: list[dict]) -> list[dict]:
    return [row for row in rows if row["id"] > 10]

@transform
def unscored(rows: list[dict]) -> list[dict]:
    return [{"id": row["id"], "score": None} for row in rows]

@transform
def unhidden(rows: list[dict]) -> list[dict]:
    return [{"id": row["id"], "title": row["title"]} for row in rows if row["title"] != "hidden"]
"#;

async fn run(shelf: &Shelf, functions: &Functions, id: PipelineId) -> RunRecord {
    let run = shelf.stage.request(id).await;
    let settings =
        RunnerSettings { python: Some(Arc::clone(&functions.python)), ..shelf.settings("pythonic") };
    Runner::new(settings, shelf.stage.store.clone()).work_off().await.unwrap();
    shelf.stage.run_record(run).await
}

async fn succeed(shelf: &Shelf, functions: &Functions, id: PipelineId) -> RunRecord {
    let run = run(shelf, functions, id).await;
    assert_eq!(run.status, RunStatus::Success, "{:?} {:?}", run.error_code, run.error);
    run
}

fn by(function: &str, mode: &str) -> Value {
    let mut changes = plan(&[function]);
    changes["mode"] = json!(mode);
    changes["incremental_key"] = json!("modified");
    changes["incremental_id_key"] = json!("id");
    changes["batch_size"] = json!(4);
    changes["delete_limit"] = json!(1.0);
    changes
}

#[tokio::test]
async fn an_index_is_made_with_the_fields_of_the_first_rows_that_come() {
    let functions = Functions::of(FUNCTIONS).await;
    for server in SearchServer::both().await {
        for mode in ["full", "incremental"] {
            let shelf = Shelf::new(&server, 10).await;
            let id = shelf.pipeline(by("beyond_ten", mode)).await;
            succeed(&shelf, &functions, id).await;
            assert_eq!(shelf.behind().await.len(), 0, "{mode}: nothing has come");
            shelf.stage.add_films(11, 25).await;
            succeed(&shelf, &functions, id).await;
            let found = shelf.documents().await;
            assert_eq!(found.len(), 15, "{mode}");
            assert_eq!(found["12"]["title"], "Film 12");
            shelf.stage.add_films(26, 30).await;
            succeed(&shelf, &functions, id).await;
            assert_eq!(shelf.documents().await.len(), 20, "{mode}: its first batches bring nothing");
        }
    }
}

#[tokio::test]
async fn a_row_that_a_function_drops_loses_its_own_fields_of_a_shared_document_and_no_others() {
    let functions = Functions::of(FUNCTIONS).await;
    for server in SearchServer::both().await {
        let shelf = Shelf::bare(&server, 3).await;
        let mapping = json!({"properties": {"id": {"type": "integer"}, "title": {"type": "text"}, "note": {"type": "text"}}});
        shelf.describe(json!({"document": {"partial": true}, "mapping": mapping})).await;
        let id = shelf.pipeline(by("unhidden", "incremental")).await;
        succeed(&shelf, &functions, id).await;
        let noted = json!({"doc": {"note": "of somebody else"}});
        shelf.server().call("POST", &format!("{}/_update/2", shelf.index), noted).await;
        shelf
            .stage
            .db
            .execute("update content.film set title = 'hidden', modified = now() where id = 2")
            .await;
        succeed(&shelf, &functions, id).await;
        assert_eq!(shelf.documents().await["2"], json!({"id": 2, "title": null, "note": "of somebody else"}));
    }
}

#[tokio::test]
async fn an_index_is_not_made_of_a_column_that_only_null_has_come_in() {
    let functions = Functions::of(FUNCTIONS).await;
    for server in SearchServer::both().await {
        for mode in ["full", "incremental"] {
            let shelf = Shelf::new(&server, 3).await;
            let id = shelf.pipeline(by("unscored", mode)).await;
            let run = run(&shelf, &functions, id).await;
            assert_eq!(run.error_code.as_deref(), Some("sink.no_type"), "{mode}: {:?}", run.error);
            let properties = json!({"id": {"type": "integer"}, "score": {"type": "double"}});
            shelf.describe(json!({"mapping": {"properties": properties}})).await;
            succeed(&shelf, &functions, id).await;
            assert_eq!(shelf.documents().await["1"], json!({"id": 1, "score": null}), "{mode}");
        }
    }
}
