//! What queries can be written with.

use serde_json::json;

use crate::app::{App, runner};

#[tokio::test]
async fn a_source_tells_its_tables_and_columns_in_the_allowed_schemas() {
    let app = App::start().await;
    app.database.execute("create view ugc.titles as select id, title from content.film_work").await;
    let schema = app.get("/connections/source/schema").await.assert(200).body;
    let names: Vec<String> = schema["tables"]
        .as_array()
        .unwrap()
        .iter()
        .map(|table| format!("{}.{}", table["schema"].as_str().unwrap(), table["name"].as_str().unwrap()))
        .collect();
    assert_eq!(names, ["content.film_work", "ugc.titles"], "and nothing of auth");
    assert_eq!(
        schema["tables"][0]["columns"][3],
        json!({"name": "modified", "type": "timestamp with time zone"})
    );
    assert_eq!(schema["has_more"], false);
}

#[tokio::test]
async fn what_the_server_does_not_read_from_has_no_tables_to_tell() {
    let app = App::start().await;
    app.get("/connections/nowhere/schema").await.assert_problem(404, "connection.not_found");
    app.store.announce(&runner(), 4).await.unwrap();
    app.get("/connections/marts/schema").await.assert_problem(409, "connection.not_a_source");
    let away = App::start_away().await;
    away.get("/connections/source/schema").await.assert_problem(502, "source.unavailable");
}
