//! Lists: filtered, sorted, and in pages that lose and repeat nothing.

use serde_json::{Value, json};

use crate::app::{App, QUERY};

async fn names(app: &App, query: &str) -> Vec<String> {
    let body = app.get(&format!("/api/v1/pipelines?{query}")).await.assert(200).body;
    body["items"].as_array().unwrap().iter().map(|item| item["name"].as_str().unwrap().to_owned()).collect()
}

async fn all_pages(app: &App, path: &str, field: &str) -> Vec<Value> {
    let (mut found, mut cursor) = (Vec::new(), String::new());
    loop {
        let body = app.get(&format!("{path}{cursor}")).await.assert(200).body;
        found.extend(body["items"].as_array().unwrap().iter().map(|item| item[field].clone()));
        match body["next_cursor"].as_str() {
            Some(next) => cursor = format!("&cursor={}", next.replace('+', "%2B")),
            None => return found,
        }
    }
}

#[tokio::test]
async fn pipelines_are_filtered_by_status_text_tag_and_target() {
    let app = App::start().await;
    for (name, description, tags, target) in [
        ("films", "All Films", json!(["nightly", "core"]), "analytics.film_dim"),
        ("ratings", "by film", json!(["core"]), "analytics.rating"),
        ("жанры", "genres", json!([]), "analytics.genre"),
    ] {
        let body = json!({"name": name, "description": description, "tags": tags, "target_table": target, "source_query": QUERY});
        app.post_json("/pipelines", &body).await.assert(201);
    }
    // As a release left it that let two pipelines write to one mart.
    app.database
        .execute("update etl.etl_pipelines set target_table = 'analytics.film_dim' where name = 'жанры'")
        .await;
    app.run("ratings").await;
    assert_eq!(names(&app, "status=RUN_REQUESTED").await, ["ratings"]);
    assert_eq!(names(&app, "q=FILM").await, ["films", "ratings"]);
    assert_eq!(names(&app, "q=ЖАН").await, ["жанры"]);
    assert_eq!(names(&app, "q=%25").await, Vec::<String>::new());
    assert_eq!(names(&app, "tag=core").await, ["films", "ratings"]);
    assert_eq!(names(&app, "target=analytics.film_dim").await, ["films", "жанры"]);
    assert_eq!(names(&app, "tag=core&status=IDLE").await, ["films"]);
    assert_eq!(names(&app, "sort=-name").await, ["жанры", "ratings", "films"]);
    assert_eq!(names(&app, "sort=-last_run_at&limit=1").await, ["ratings"]);
    for wrong in ["status=BUSY", "sort=size", "limit=0", "limit=501", "color=red", "q=%00"] {
        app.get(&format!("/pipelines?{wrong}")).await.assert_problem(422, "request.invalid");
    }
}

#[tokio::test]
async fn every_order_of_pipelines_comes_in_whole_pages() {
    let app = App::start().await;
    for number in 0..7 {
        app.create_pipeline(&format!("p{number}")).await;
    }
    app.run("p3").await;
    app.run("p1").await;
    app.patch("/pipelines/p5", "*", &json!({"batch_size": 3})).await.assert(200);
    for sort in
        ["name", "-name", "status", "-status", "updated_at", "-updated_at", "last_run_at", "-last_run_at"]
    {
        let mut listed = all_pages(&app, &format!("/pipelines?sort={sort}&limit=2"), "name").await;
        let whole = names(&app, &format!("sort={sort}")).await;
        assert_eq!(listed, whole, "{sort}");
        listed.sort_by_key(Value::to_string);
        assert_eq!(listed, ["p0", "p1", "p2", "p3", "p4", "p5", "p6"], "{sort}");
    }
    assert_eq!(names(&app, "sort=-updated_at&limit=1").await, ["p5"]);
    assert_eq!(names(&app, "sort=-last_run_at&limit=2").await, ["p1", "p3"]);
}

#[tokio::test]
async fn runs_are_listed_over_all_pipelines_and_in_pages() {
    let app = App::start().await;
    for name in ["a", "b"] {
        app.create_pipeline(name).await;
        for _ in 0..3 {
            app.fail(name).await;
        }
    }
    let newest = app.run("a").await;
    let all = all_pages(&app, "/runs?limit=2", "id").await;
    assert_eq!((all.len(), &all[0]), (7, &json!(newest)));
    let mut unique = all.clone();
    unique.sort_by_key(Value::to_string);
    unique.dedup();
    assert_eq!(unique.len(), 7);
    assert_eq!(all_pages(&app, "/runs?limit=100&status=FAILED", "pipeline").await.len(), 6);
    assert_eq!(all_pages(&app, "/pipelines/b/runs?limit=1", "pipeline").await, ["b", "b", "b"]);
    app.get("/runs?cursor=yesterday").await.assert_problem(422, "request.invalid");
}

#[tokio::test]
async fn a_pipeline_tells_its_runs_taken_together() {
    let app = App::start().await;
    app.create_pipeline("films").await;
    app.fail("films").await;
    app.run("films").await;
    let metrics = app.get("/pipelines/films/metrics").await.assert(200).body;
    assert_eq!(metrics["runs"], json!({"FAILED": 1, "REQUESTED": 1}));
    assert_eq!(
        (&metrics["window_seconds"], &metrics["last_error_code"]),
        (&json!(604_800), &json!("source.sql"))
    );
    assert!(metrics["maximum_duration_ms"].is_u64(), "{metrics}");
    app.database.execute("update etl.etl_runs set requested_at = requested_at - interval '2 hours' where status = 'FAILED'").await;
    let metrics = app.get("/pipelines/films/metrics?window=1h").await.assert(200).body;
    assert_eq!((&metrics["runs"], &metrics["last_error"]), (&json!({"REQUESTED": 1}), &Value::Null));
    for wrong in ["week", "0h", "9999999d", "-1h"] {
        app.get(&format!("/pipelines/films/metrics?window={wrong}"))
            .await
            .assert_problem(422, "request.invalid");
    }
}

#[tokio::test]
async fn the_audit_is_read_in_pages_newest_first() {
    let app = App::start().await;
    app.create_pipeline("films").await;
    for _ in 0..2 {
        app.post("/pipelines/films/disable").await.assert(200);
        app.post("/pipelines/films/enable").await.assert(200);
    }
    let actions = all_pages(&app, "/audit?limit=2", "action").await;
    assert_eq!(
        actions,
        ["pipeline.enable", "pipeline.disable", "pipeline.enable", "pipeline.disable", "pipeline.create"]
    );
    app.get("/audit?cursor=x").await.assert_problem(422, "request.invalid");
}
