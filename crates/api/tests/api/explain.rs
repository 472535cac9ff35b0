//! What the planner of a source expects of a query, through all layers of the guard.

use serde_json::{Value, json};

use crate::app::{App, QUERY};

fn incremental(sql: &str) -> Value {
    json!({"name": "x", "target_table": "analytics.x", "source_query": sql, "mode": "incremental",
           "incremental_key": "modified", "incremental_id_key": "id"})
}

async fn explained(app: &App, pipeline: &Value) -> Value {
    app.post_json("/explain", &json!({"pipeline": pipeline})).await.assert(200).body
}

#[tokio::test]
async fn a_query_is_explained_with_rows_cost_and_the_large_tables_that_are_read_whole() {
    let app = App::start().await;
    app.database
        .execute(
            "insert into content.film_work (id) select generate_series(1, 100000); analyze content.film_work",
        )
        .await;
    app.create_pipeline("films").await;
    let plan = app.post("/pipelines/films/explain").await.assert(200).body;
    assert_eq!((&plan["query"]["rows"], &plan["incremental"]), (&json!(100_000), &Value::Null));
    assert!(plan["query"]["cost"].as_f64().unwrap() > 100.0, "{plan}");
    let scan = &plan["query"]["scans"][0];
    assert_eq!((&scan["table"], &scan["way"]), (&json!("content.film_work"), &json!("Seq Scan")));
    assert_eq!((&scan["table_rows"], &scan["costly"]), (&json!(100_000), &json!(true)));
    app.post("/pipelines/nothing/explain").await.assert_problem(404, "pipeline.not_found");
}

#[tokio::test]
async fn a_pass_is_explained_by_the_table_it_reads_and_whether_an_index_serves_its_cursor() {
    let app = App::start().await;
    app.database
        .execute(
            "insert into content.film_work (id) select generate_series(1, 100000); analyze content.film_work",
        )
        .await;
    let renamed = incremental("select id, title, modified from content.film_work");
    let pass = explained(&app, &renamed).await["incremental"].clone();
    assert_eq!((&pass["table"], &pass["indexed"]), (&json!("content.film_work"), &json!(false)));
    assert_eq!(pass["plan"]["scans"][0]["costly"], true);
    app.database.execute("create index film_cursor on content.film_work (modified, id)").await;
    let pass = explained(&app, &renamed).await["incremental"].clone();
    assert_eq!((&pass["indexed"], &pass["plan"]["scans"][0]["index"]), (&json!(true), &json!("film_cursor")));
    assert_eq!(pass["cursor"], json!(["modified", "id"]));

    let grouped = incremental("select n as id, max(modified) as modified from content.film_work group by n");
    let pass = explained(&app, &grouped).await["incremental"].clone();
    assert_eq!((&pass["table"], &pass["indexed"]), (&Value::Null, &Value::Null));
    assert!(pass["reason"].as_str().unwrap().contains("not a plain column"), "{pass}");
}

#[tokio::test]
async fn a_query_is_explained_only_past_the_guard() {
    let app = App::start().await;
    app.database.execute("create view content.spy as select * from auth.users").await;
    for (sql, code) in [
        ("select * from auth.users", "sql.schema_not_allowed"),
        ("select secret from content.spy", "sql.schema_not_allowed"),
        ("select pg_sleep(1)", "sql.function_not_allowed"),
        ("select 1 +", "sql.syntax"),
        ("select titel from content.film_work", "sql.refused_by_source"),
    ] {
        let pipeline = json!({"name": "x", "target_table": "analytics.x", "source_query": sql});
        let answer = app.post_json("/explain", &json!({"pipeline": pipeline})).await;
        assert_eq!(answer.assert_problem(422, "sql.invalid").faults()[0], ("/source_query", code), "{sql}");
    }
    let away = App::start_away().await;
    let pipeline = json!({"name": "x", "target_table": "analytics.x", "source_query": QUERY});
    away.post_json("/explain", &json!({"pipeline": pipeline}))
        .await
        .assert_problem(502, "source.unavailable");
}

#[tokio::test]
async fn a_draft_with_a_number_out_of_its_range_is_neither_explained_nor_previewed() {
    let app = App::start().await;
    let mut draft = incremental(QUERY);
    draft["batch_size"] = json!(0);
    for way in ["/explain", "/preview"] {
        let refused =
            app.post_json(way, &json!({"pipeline": draft})).await.assert_problem(422, "sql.invalid");
        assert_eq!(refused.body["errors"][0]["pointer"], "/batch_size", "{:?}", refused.body);
    }
}
