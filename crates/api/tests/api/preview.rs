//! Sample rows of a query, through all layers of the guard.

use std::time::Duration;

use reqwest::Method;
use serde_json::json;
use vitrina_store::{NewToken, Role};
use vitrina_testbed::eventually;

use crate::app::{App, QUERY, send};

#[tokio::test]
async fn sample_rows_come_as_texts_with_their_types_and_nothing_is_written() {
    let app = App::start().await;
    app.database
        .execute("insert into content.film_work (id, title) select n, case when n > 1 then 'Film ' || n end from generate_series(1, 30) n")
        .await;
    app.create_pipeline("films").await;
    let shown = app.post("/pipelines/films/preview?limit=2").await.assert(200).body;
    assert_eq!(
        (&shown["columns"][0], &shown["columns"][2]["type"]),
        (&json!({"name": "id", "type": "int8"}), &json!("timestamptz"))
    );
    assert_eq!((&shown["rows"][0][0], &shown["rows"][0][1]), (&json!("1"), &json!(null)));
    assert_eq!((shown["rows"].as_array().unwrap().len(), &shown["has_more"]), (2, &json!(true)));
    let pipeline =
        json!({"name": "x", "target_table": "analytics.x", "source_query": "select 1.50::numeric(9,2) as n"});
    let shown = app.post_json("/preview", &json!({"pipeline": pipeline})).await.assert(200).body;
    assert_eq!(shown["rows"], json!([["1.50"]]));
    app.post("/pipelines/films/preview?limit=101").await.assert_problem(422, "request.invalid");
    app.post("/pipelines/nothing/preview").await.assert_problem(404, "pipeline.not_found");
}

#[tokio::test]
async fn a_query_is_sampled_only_past_the_guard() {
    let app = App::start().await;
    app.database.execute("insert into auth.users values (1, 'hunter2'); create view content.spy as select * from auth.users").await;
    for (sql, code) in [
        ("select * from auth.users", "sql.schema_not_allowed"),
        ("with d as (delete from content.film_work returning *) select * from d", "sql.data_modifying"),
        ("select pg_sleep(1)", "sql.function_not_allowed"),
        ("select * from content.nothing", "sql.refused_by_source"),
        ("select secret from content.spy", "sql.schema_not_allowed"),
        ("select 1 +", "sql.syntax"),
    ] {
        let pipeline = json!({"name": "x", "target_table": "analytics.x", "source_query": sql});
        let answer = app.post_json("/preview", &json!({"pipeline": pipeline})).await;
        let answer = answer.assert_problem(422, "sql.invalid");
        assert_eq!(answer.faults()[0], ("/source_query", code), "{sql}");
        assert!(!answer.body.to_string().contains("hunter2"));
    }
    // Neither is it saved, nor does it help to put it into the table by hand.
    let spy = json!({"name": "spy", "target_table": "analytics.x", "source_query": "select secret from content.spy"});
    app.post_json("/pipelines", &spy).await.assert_problem(422, "pipeline.invalid");
    app.create_pipeline("films").await;
    app.database
        .execute("update etl.etl_pipelines set source_query = 'select secret from content.spy'")
        .await;
    app.post("/pipelines/films/preview").await.assert_problem(422, "sql.invalid");
}

#[tokio::test]
async fn a_query_above_the_ceiling_of_cost_is_neither_sampled_nor_saved() {
    let app = App::start_as(None, |settings| {
        settings.source_connections.get_mut("source").unwrap().max_query_cost = Some(1.0);
    })
    .await;
    let body = json!({"name": "x", "target_table": "analytics.x", "source_query": QUERY});
    let sampled = app.post_json("/preview", &json!({"pipeline": body})).await;
    for answer in [
        sampled.assert_problem(422, "sql.invalid"),
        app.post_json("/pipelines", &body).await.assert_problem(422, "pipeline.invalid"),
    ] {
        assert_eq!(answer.faults(), [("/source_query", "sql.too_costly")]);
        assert!(answer.body.to_string().contains("raise runner.max_query_cost"), "{}", answer.body);
    }
}

#[tokio::test]
async fn callers_who_hang_up_keep_their_places_until_the_source_has_ended() {
    let app = App::start().await;
    // A loop that checks for no timeout, no cancellation and no lost caller. The guard counts on short values of tables.
    let long =
        "insert into content.film_work (id, title) values (1, 'a' || repeat(chr(769) || chr(790), 12000))";
    app.database.execute(long).await;
    let deaf = "select normalize(title) as n from content.film_work";
    let preview =
        |sql: &str| json!({"pipeline": {"name": "x", "target_table": "analytics.x", "source_query": sql}});
    let at_work =
        "select count(*) from pg_stat_activity where datname = current_database() and state = 'active'
                      and application_name like 'vitrina/%'";
    let mut most = 0;
    let body = preview(deaf);
    for _ in 0..10 {
        let hung_up = tokio::time::timeout(Duration::from_millis(200), app.post_json("/preview", &body));
        assert!(hung_up.await.is_err(), "the caller does not wait for an answer");
        most = most.max(app.database.value::<i64>(at_work).await);
    }
    assert!((1..=4).contains(&most), "{most} sessions at once");
    eventually("a place is free again", async || {
        let answer = app.post_json("/preview", &preview("select 1 as n")).await;
        (answer.status == 200).then_some(())
    })
    .await;
}

#[tokio::test]
async fn an_error_of_the_source_quotes_a_value_only_to_who_may_see_rows() {
    let app = App::start().await;
    app.database.execute("insert into content.film_work (id, title) values (1, 'hunter2')").await;
    let pipeline = json!({"name": "x", "target_table": "analytics.x", "source_query": "select title::int as n from content.film_work"});
    let answer =
        app.post_json("/preview", &json!({"pipeline": pipeline})).await.assert_problem(422, "sql.invalid");
    let detail = answer.body["errors"][0]["detail"].as_str().unwrap();
    assert_eq!(detail, "invalid input syntax for type integer: \"hunter2\"");
    app.store
        .put_token(&NewToken { sees_rows: false, ..NewToken::of("o", Role::Operator, "o") })
        .await
        .unwrap();
    let body = json!({"pipeline": pipeline});
    for path in ["/preview", "/validate", "/explain"] {
        let answer = send(app.anonymous(Method::POST, path).bearer_auth("o").json(&body)).await;
        assert!(!answer.body.to_string().contains("hunter2"), "{path}: {}", answer.body);
    }
}

#[tokio::test]
async fn a_source_that_is_away_is_a_bad_gateway() {
    let app = App::start_away().await;
    let pipeline = json!({"name": "x", "target_table": "analytics.x", "source_query": QUERY});
    app.post_json("/preview", &json!({"pipeline": &pipeline}))
        .await
        .assert_problem(502, "source.unavailable");
    // Saved all the same: it is looked at again before every run.
    app.post_json("/pipelines", &pipeline).await.assert(201);
    let verdict = app.post("/pipelines/x/validate").await.assert(200).body;
    assert_eq!((&verdict["ok"], &verdict["checks"][0]["code"]), (&json!(true), &json!("source.unavailable")));
}
