//! Pipelines: created, listed, shown, deleted (R-API-1).

use reqwest::Method;
use rstest::rstest;
use serde_json::{Value, json};

use crate::app::{App, QUERY, send, without_warnings};

#[tokio::test]
async fn a_created_pipeline_has_the_defaults_of_the_table() {
    let app = App::start().await;
    let answer = app.create_pipeline("films").await;
    let id = answer.body["id"].as_str().unwrap();
    assert_eq!(answer.header("location"), format!("/api/v1/pipelines/{id}"));
    assert_eq!(answer.header("etag"), "\"1\"");
    app.database
        .execute("insert into etl.etl_pipelines (name, target_table) values ('bare', 'analytics.film_dim')")
        .await;
    let differing = "select key, a.value, b.value
        from jsonb_each((select to_jsonb(p) from etl.etl_pipelines p where name = 'films')) a
        full join jsonb_each((select to_jsonb(p) from etl.etl_pipelines p where name = 'bare')) b using (key)
       where a.value is distinct from b.value
         and key not in ('id', 'name', 'source_query', 'created_at', 'updated_at')";
    assert_eq!(app.database.texts(differing).await, Vec::<Vec<_>>::new());
}

#[tokio::test]
async fn a_pipeline_says_how_it_is_read_first_loaded_and_how_many_rows_may_be_refused() {
    let app = App::start().await;
    let mut body = json!({"name": "films", "target_table": "analytics.film_dim", "source_query": QUERY,
                          "reject_limit": 25, "read": "keyset", "first_load": "staged"});
    let created = app.post_json("/api/v1/pipelines", &body).await.assert(201).body;
    let shown = app.get("/pipelines/films").await.assert(200).body;
    for field in ["reject_limit", "read", "first_load"] {
        assert_eq!((&created[field], &shown[field]), (&body[field], &body[field]), "{field}");
    }
    body["reject_limit"] = json!(-1);
    let answer = app.post_json("/pipelines", &body).await.assert_problem(422, "pipeline.invalid");
    assert_eq!(answer.faults(), [("/reject_limit", "pipeline.reject_limit")]);
}

#[tokio::test]
async fn a_schedule_is_checked_when_it_is_saved_and_shown_with_its_next_run() {
    let app = App::start().await;
    let mut body = json!({"name": "films", "target_table": "analytics.film_dim", "source_query": QUERY,
                          "schedule_interval": "every now and then"});
    let answer = app.post_json("/pipelines", &body).await.assert_problem(422, "pipeline.invalid");
    assert_eq!(answer.faults(), [("/schedule_interval", "pipeline.schedule")]);
    body["schedule_interval"] = json!("CRON_TZ=Europe/Berlin 0 3 * * *");
    app.post_json("/pipelines", &body).await.assert(201);
    assert_eq!(app.get("/pipelines/films").await.body["next_run_at"], Value::Null);
    app.store.request_due().await.unwrap();
    for path in ["/pipelines/films", "/pipelines/films/status"] {
        let shown = app.get(path).await.assert(200).body;
        let next: jiff::Timestamp = shown["next_run_at"].as_str().unwrap().parse().unwrap();
        assert!(next > jiff::Timestamp::now() && shown["schedule_error"].is_null(), "{shown}");
    }
    app.database.execute("update etl.etl_pipelines set schedule_interval = 'often'").await;
    app.store.request_due().await.unwrap();
    let shown = app.get("/pipelines/films/status").await.body;
    assert!(shown["schedule_error"].as_str().unwrap().contains("no length of time"), "{shown}");
}

#[tokio::test]
async fn a_full_schedule_is_checked_when_it_is_saved_and_shown_with_its_next_run() {
    let app = App::start().await;
    let mut body = json!({"name": "films", "target_table": "analytics.film_dim", "source_query": QUERY, "full_schedule": "often"});
    let answer = app.post_json("/pipelines", &body).await.assert_problem(422, "pipeline.invalid");
    assert_eq!(answer.faults(), [("/full_schedule", "pipeline.full_schedule")]);
    body["full_schedule"] = json!("0 2 * * *");
    let created = app.post_json("/pipelines", &body).await.assert(201);
    assert_eq!(created.body["full_schedule"], "0 2 * * *");
    app.store.request_due().await.unwrap();
    for path in ["/pipelines/films", "/pipelines/films/status"] {
        let shown = app.get(path).await.assert(200).body;
        assert!(shown["next_full_run_at"].as_str().unwrap().ends_with("T02:00:00Z"), "{shown}");
        assert!(shown["full_schedule_error"].is_null() && shown["next_run_at"].is_null(), "{shown}");
    }
    app.run("films").await;
    app.claim().await;
    let cleared = app.patch("/pipelines/films", "*", &json!({"full_schedule": null})).await.assert(200).body;
    assert_eq!((&cleared["full_schedule"], &cleared["next_full_run_at"]), (&Value::Null, &Value::Null));
}

#[tokio::test]
async fn a_pipeline_is_found_by_id_and_by_name_at_every_spelling_of_its_path() {
    let app = App::start().await;
    let created = without_warnings(app.create_pipeline("фильмы.v1").await.body);
    let id = created["id"].as_str().unwrap();
    for path in ["/api/v1/pipelines/", "/pipelines/"] {
        for name in [id, "фильмы.v1"] {
            for slash in ["", "/"] {
                let answer = app.get(&format!("{path}{name}{slash}")).await.assert(200);
                assert_eq!(answer.body, created);
                assert_eq!(answer.header("etag"), "\"1\"");
            }
        }
    }
}

#[tokio::test]
async fn the_list_shows_how_each_pipeline_stands() {
    let app = App::start().await;
    app.create_pipeline("b").await;
    app.create_pipeline("a").await;
    let run = app.run("a").await;
    let answer = app.get("/pipelines").await.assert(200);
    assert_eq!(answer.body["next_cursor"], Value::Null);
    let [a, b] = answer.body["items"].as_array().unwrap().as_slice() else { panic!("two pipelines") };
    assert_eq!((&a["name"], &b["name"]), (&json!("a"), &json!("b")));
    assert_eq!(a["status"], "RUN_REQUESTED");
    assert_eq!((&a["active_run"], &a["last_run"]["id"]), (&json!(run), &json!(run)));
    assert_eq!(b["status"], "IDLE");
    assert_eq!(
        (&b["enabled"], &b["mode"], &b["target"]),
        (&json!(true), &json!("full"), &json!("analytics.mart_b"))
    );
    assert_eq!(b["last_run"], Value::Null);
}

#[tokio::test]
async fn the_list_comes_in_pages_that_hold_when_a_pipeline_goes() {
    let app = App::start().await;
    for name in ["b", "фильмы", "A", "c"] {
        app.create_pipeline(name).await;
    }
    let page = async |query: String| {
        let body = app.get(&format!("/pipelines?{query}")).await.assert(200).body;
        let names = body["items"].as_array().unwrap().iter().map(|item| item["name"].as_str().unwrap());
        (names.collect::<Vec<_>>().join(" "), body["next_cursor"].as_str().map(str::to_owned))
    };
    let (first, cursor) = page("limit=2".to_owned()).await;
    assert_eq!(first, "A b");
    app.delete("/pipelines/b").await.assert(204);
    let (second, cursor) = page(format!("limit=1&cursor={}", cursor.unwrap())).await;
    assert_eq!(second, "c");
    let (last, end) = page(format!("limit=1&cursor={}", cursor.unwrap())).await;
    assert_eq!((last.as_str(), end), ("фильмы", None));
    assert_eq!(page("cursor=фильмы~фильмы".to_owned()).await, (String::new(), None));
    app.get("/pipelines?cursor=фильмы").await.assert_problem(422, "request.invalid");
}

#[tokio::test]
async fn a_task_plan_comes_back_in_its_order() {
    let app = App::start().await;
    let tasks = json!([
        {"order_index": 2, "task_type": "PYTHON", "body": "clean", "target_table": "es:films"},
        {"order_index": 1, "task_type": "SQL", "body": QUERY},
    ]);
    let body = json!({"name": "planned", "target_table": "analytics.film_dim", "tasks": tasks});
    let answer = app.post_json("/pipelines", &body).await.assert(201);
    assert_eq!(answer.body["tasks"][0]["body"], QUERY);
    assert_eq!(answer.body["target"], "es:films");
}

#[tokio::test]
async fn all_broken_rules_are_reported_at_once() {
    let app = App::start().await;
    let body = json!({
        "name": "a b", "target_table": "auth.users", "batch_size": 0, "mode": "incremental", "delete_limit": 2,
        "reject_limit": -1,
        "source_query": "select id\n  from auth.users", "source_table": "content.film_work; drop table x",
    });
    let answer = app.post_json("/pipelines", &body).await.assert_problem(422, "pipeline.invalid");
    let faults = answer.faults();
    for pointer in [
        "/name",
        "/target_table",
        "/batch_size",
        "/incremental_key",
        "/delete_limit",
        "/reject_limit",
        "/source_query",
        "/source_table",
    ] {
        assert!(faults.iter().any(|fault| fault.0 == pointer), "{pointer} is not among {faults:?}");
    }
    let errors = answer.body["errors"].as_array().unwrap();
    let target = errors.iter().find(|error| error["pointer"] == "/target_table").unwrap();
    assert!(target["hint"].as_str().unwrap().contains("analytics.*"), "{target}");
    assert!(!target["detail"].as_str().unwrap().contains("hint"), "{target}");
}

#[tokio::test]
async fn an_empty_object_is_told_all_it_lacks() {
    let app = App::start().await;
    let answer = app.post_json("/pipelines", &json!({})).await.assert_problem(422, "pipeline.invalid");
    let pointers: Vec<&str> = answer.faults().iter().map(|fault| fault.0).collect();
    assert_eq!(pointers, ["/name", "/source_query", "/target_table"]);
}

#[tokio::test]
async fn sql_that_writes_is_refused_with_line_and_column() {
    let app = App::start().await;
    let sql = "with\n  d as (delete from content.film_work returning id) select * from d";
    let tasks = json!([{"order_index": 5, "task_type": "SQL", "body": sql}]);
    let body = json!({"name": "x", "target_table": "analytics.x", "tasks": tasks});
    let answer = app.post_json("/pipelines", &body).await.assert_problem(422, "pipeline.invalid");
    let error = &answer.body["errors"][0];
    assert_eq!((&error["pointer"], &error["line"]), (&json!("/tasks/0/body"), &json!(2)), "{error}");
    assert!(error["column"].is_u64());
}

#[tokio::test]
async fn a_source_that_the_server_does_not_know_is_refused() {
    let app = App::start().await;
    let body = json!({"name": "x", "target_table": "analytics.x", "source_query": QUERY,
                      "source_connection": "elsewhere", "source_type": "oracle"});
    let answer = app.post_json("/pipelines", &body).await.assert_problem(422, "pipeline.invalid");
    let expected =
        [("/source_type", "pipeline.source_type"), ("/source_connection", "pipeline.source_connection")];
    assert_eq!(answer.faults(), expected);
}

/// Such a pipeline could not be named in a path, nor deleted.
#[rstest]
#[tokio::test]
async fn a_name_that_a_path_reads_otherwise_is_refused(#[values(".", "..")] name: &str) {
    let app = App::start().await;
    let body = json!({"name": name, "target_table": "analytics.x", "source_query": QUERY});
    let answer = app.post_json("/pipelines", &body).await.assert_problem(422, "pipeline.invalid");
    assert_eq!(answer.faults(), [("/name", "pipeline.name")]);
}

#[tokio::test]
async fn a_taken_name_is_a_conflict() {
    let app = App::start().await;
    app.create_pipeline("films").await;
    let body = json!({"name": "films", "target_table": "analytics.x", "source_query": QUERY});
    app.post_json("/pipelines", &body).await.assert_problem(409, "pipeline.name_taken");
}

#[tokio::test]
async fn a_deleted_pipeline_is_gone() {
    let app = App::start().await;
    app.create_pipeline("films").await;
    assert_eq!(app.delete("/pipelines/films").await.assert(204).body, Value::Null);
    app.get("/pipelines/films").await.assert_problem(404, "pipeline.not_found");
    app.delete("/pipelines/films").await.assert_problem(404, "pipeline.not_found");
}

#[tokio::test]
async fn an_active_pipeline_is_not_deleted() {
    let app = App::start().await;
    app.create_pipeline("films").await;
    app.run("films").await;
    app.delete("/pipelines/films").await.assert_problem(409, "pipeline.active");
    app.claim().await;
    app.delete("/pipelines/films").await.assert_problem(409, "pipeline.active");
}

#[tokio::test]
async fn the_state_of_a_new_pipeline_is_the_start() {
    let app = App::start().await;
    app.create_pipeline("films").await;
    let answer = app.get("/pipelines/films/state").await.assert(200);
    assert_eq!((&answer.body["version"], &answer.body["last_processed_key"]), (&json!(0), &Value::Null));
}

#[tokio::test]
async fn the_audit_names_the_call() {
    let app = App::start().await;
    app.create_pipeline("films").await;
    send(app.request(Method::POST, "/pipelines/films/run").header("x-request-id", "call-7"))
        .await
        .assert(202);
    let ids = app.database.texts("select request_id from etl.etl_audit order by id").await;
    assert_eq!(ids[0][0].as_ref().map(String::len), Some(36));
    assert_eq!(ids[1][0].as_deref(), Some("call-7"));
}

#[tokio::test]
async fn every_change_is_audited_with_who_made_it() {
    let app = App::start().await;
    app.create_pipeline("films").await;
    for change in ["run", "pause", "disable", "enable", "cancel"] {
        app.post(&format!("/pipelines/films/{change}")).await;
    }
    app.post_json("/pipelines/films/pause", &json!({"reason": "night"})).await.assert(202);
    app.delete("/pipelines/films").await.assert(204);
    let rows =
        app.database.texts("select actor, action, after ->> 'reason' from etl.etl_audit order by id").await;
    let actions: Vec<&str> = rows.iter().map(|row| row[1].as_deref().unwrap()).collect();
    let expected = ["create", "run", "pause", "disable", "enable", "cancel", "pause", "delete"]
        .map(|what| format!("pipeline.{what}"));
    assert_eq!(actions, expected);
    assert!(rows.iter().all(|row| row[0].as_deref() == Some("local")));
    assert_eq!(rows[6][2].as_deref(), Some("night"));
}

/// Lists carry them: one pipeline must not make every list long.
#[tokio::test]
async fn descriptions_and_tags_have_bounds_that_the_documents_name() {
    let app = App::start().await;
    let query = "select 1 as id";
    let refused = async |body: Value| {
        let answer = app.post_json("/pipelines", &body).await.assert(422);
        let errors = answer.body["errors"].as_array().unwrap().clone();
        errors.iter().map(|error| error["pointer"].as_str().unwrap().to_owned()).collect::<Vec<_>>()
    };
    let with = |fields: Value| {
        let mut body = json!({"name": "long", "target_table": "analytics.long", "source_query": query});
        body.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
        body
    };
    assert!(
        refused(with(json!({"description": "ё".repeat(10_001)}))).await.contains(&"/description".to_owned())
    );
    for tags in [vec!["x".to_owned(); 51], vec!["x".repeat(101)], vec![String::new()]] {
        assert!(refused(with(json!({"tags": tags}))).await.contains(&"/tags".to_owned()));
    }
    let fitting = json!({"description": "ё".repeat(10_000), "tags": vec!["ё".repeat(100); 50]});
    app.create_pipeline("short").await;
    app.patch("/api/v1/pipelines/short", "\"1\"", &fitting).await.assert(200);
    let document = app.get("/openapi.json").await.assert(200).body;
    let fields = &document["components"]["schemas"]["PipelineConfig"]["properties"];
    assert_eq!(fields["description"]["maxLength"], 10_000);
    assert_eq!(
        (&fields["tags"]["maxItems"], &fields["tags"]["items"]["maxLength"]),
        (&json!(50), &json!(100))
    );
}
