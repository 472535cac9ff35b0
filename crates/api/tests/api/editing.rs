//! Configuration that is edited (R-API-1, R-CFG-5): what may change when, and against which version.

use reqwest::Method;
use serde_json::{Value, json};
use tokio::task::JoinSet;

use crate::app::{App, QUERY, send, without_warnings};

const FILMS: &str = "/api/v1/pipelines/films";

#[tokio::test]
async fn a_patch_changes_what_it_names_sets_null_back_to_the_default_and_raises_the_version() {
    let app = App::start().await;
    let body = json!({"name": "films", "target_table": "analytics.film_dim", "source_query": QUERY,
                      "batch_size": 5, "tags": ["a"], "schedule_interval": "5m", "reject_limit": 3});
    let before = app.post_json("/pipelines", &body).await.assert(201).body;
    let patch = json!({"batch_size": null, "tags": ["b", "c"], "schedule_interval": null, "freshness_limit_seconds": 60});
    let answer = app.patch(FILMS, "\"1\"", &patch).await.assert(200);
    assert_eq!(answer.header("etag"), "\"2\"");
    let after = &answer.body;
    assert_eq!((&after["batch_size"], &after["tags"]), (&json!(1000), &json!(["b", "c"])));
    assert_eq!((&after["schedule_interval"], &after["freshness_limit_seconds"]), (&Value::Null, &json!(60)));
    for untouched in ["id", "name", "source_query", "reject_limit", "target_table", "created_at", "enabled"] {
        assert_eq!(after[untouched], before[untouched], "{untouched}");
    }
    assert_eq!(app.get(FILMS).await.body, without_warnings(after.clone()));
    let audited =
        app.database.texts("select action, before::text, after::text from etl.etl_audit order by id").await;
    let [_, edit] = audited.as_slice() else { panic!("{audited:?}") };
    let (old, new): (Value, Value) = (
        serde_json::from_str(edit[1].as_deref().unwrap()).unwrap(),
        serde_json::from_str(edit[2].as_deref().unwrap()).unwrap(),
    );
    assert_eq!(edit[0].as_deref(), Some("pipeline.edit"));
    assert_eq!((&old["batch_size"], &new["batch_size"]), (&json!(5), &json!(1000)));
    assert!(old.get("source_query").is_none(), "only what has changed: {old}");
}

#[tokio::test]
async fn a_patch_passes_the_same_rules_as_a_new_pipeline() {
    let app = App::start().await;
    app.create_pipeline("films").await;
    app.create_pipeline("taken").await;
    let refused = async |patch: Value| app.patch(FILMS, "*", &patch).await;
    let answer = refused(json!({"target_table": "auth.users", "batch_size": 0})).await;
    let answer = answer.assert_problem(422, "pipeline.invalid");
    assert_eq!(
        answer.faults(),
        [("/target_table", "target.not_allowed"), ("/batch_size", "pipeline.batch_size")]
    );
    refused(json!({"name": "taken"})).await.assert_problem(409, "pipeline.name_taken");
    refused(json!({"name": null})).await.assert_problem(422, "pipeline.invalid");
    refused(json!({"mode": "incremental"})).await.assert_problem(422, "pipeline.invalid");
    let answer = refused(json!({"mode": "often"})).await.assert_problem(422, "request.invalid");
    assert_eq!(answer.faults(), [("/mode", "body.field")]);
    refused(json!({"batchsize": 7})).await.assert_problem(422, "request.invalid");
    refused(json!({"status": "RUNNING"})).await.assert_problem(422, "request.invalid");
    refused(json!({"source_query": "select id from auth.users"}))
        .await
        .assert_problem(422, "pipeline.invalid");
    let answer = refused(json!({"source_query": "select id,\n titel from content.film_work"})).await;
    let answer = answer.assert_problem(422, "pipeline.invalid");
    let error = &answer.body["errors"][0];
    assert_eq!(
        (&error["code"], &error["line"], &error["column"]),
        (&json!("sql.refused_by_source"), &json!(2), &json!(2))
    );
    let patch = json!({"mode": "incremental", "incremental_key": "n", "incremental_id_key": "id"});
    let answer = refused(patch).await.assert_problem(422, "pipeline.invalid");
    assert_eq!(answer.faults(), [("/incremental_key", "pipeline.column")]);
    assert_eq!(app.get(FILMS).await.body["version"], 1, "nothing was saved");
}

#[tokio::test]
async fn an_edit_names_the_version_it_was_made_for() {
    let app = App::start().await;
    app.create_pipeline("films").await;
    let patch = json!({"batch_size": 7});
    app.patch(FILMS, "seven", &patch).await.assert_problem(400, "request.header");
    app.patch(FILMS, "\"1\"", &patch).await.assert(200);
    let answer = app.patch(FILMS, "\"1\"", &json!({"batch_size": 8})).await;
    let answer = answer.assert_problem(412, "config.version_moved");
    assert_eq!((answer.header("etag"), &answer.body["current_version"]), ("\"2\"", &json!(2)));
    app.patch(FILMS, "*", &json!({"batch_size": 9})).await.assert(200);
    let answer = app.patch(FILMS, "*", &json!({"batch_size": 9})).await.assert(200);
    assert_eq!(answer.header("etag"), "\"3\"", "nothing has changed");
    let answer =
        app.post_json(&format!("{FILMS}/update-config"), &json!({"batch_size": 10})).await.assert(200);
    assert_eq!((answer.header("etag"), &answer.body["batch_size"]), ("\"4\"", &json!(10)));
    let unnamed = send(app.request(Method::PATCH, FILMS).json(&json!({"batch_size": 11}))).await.assert(200);
    assert_eq!(
        (unnamed.header("etag"), &unnamed.body["batch_size"]),
        ("\"5\"", &json!(11)),
        "no version is any"
    );
    app.patch(FILMS, "\"4\"", &json!({"batch_size": 12})).await.assert_problem(412, "config.version_moved");
    let delete = app.request(Method::DELETE, FILMS).header("if-match", "\"3\"");
    send(delete).await.assert_problem(412, "config.version_moved");
    send(app.request(Method::DELETE, FILMS).header("if-match", "\"5\"")).await.assert(204);
}

#[tokio::test]
async fn edits_of_different_fields_at_the_same_time_are_all_kept() {
    let app = App::start().await;
    app.create_pipeline("films").await;
    let mut edits = JoinSet::new();
    let fields = [
        json!({"batch_size": 11}),
        json!({"description": "all films"}),
        json!({"tags": ["x"]}),
        json!({"reject_limit": 4}),
    ];
    for patch in fields.clone() {
        let request = app.request(Method::POST, &format!("{FILMS}/update-config")).json(&patch);
        edits.spawn(async move { send(request).await.assert(200) });
    }
    edits.join_all().await;
    let after = app.get(FILMS).await.body;
    for (field, value) in fields.iter().flat_map(|patch| patch.as_object().unwrap()) {
        assert_eq!(&after[field], value, "{field}");
    }
    assert_eq!(after["version"], 5);
}

#[tokio::test]
async fn of_many_edits_of_one_version_exactly_one_is_accepted() {
    let app = App::start().await;
    app.create_pipeline("films").await;
    let mut edits = JoinSet::new();
    for size in 1..=8 {
        let patch = json!({"batch_size": size});
        let request = app.request(Method::PATCH, FILMS).header("if-match", "\"1\"").json(&patch);
        edits.spawn(async move { send(request).await.status.as_u16() });
    }
    let mut answers = edits.join_all().await;
    answers.sort_unstable();
    assert_eq!(answers, [200, 412, 412, 412, 412, 412, 412, 412]);
}

#[tokio::test]
async fn under_a_run_the_rest_is_refused_and_nothing_of_the_patch_is_saved() {
    let app = App::start().await;
    app.create_pipeline("films").await;
    app.run("films").await;
    let refused =
        json!({"batch_size": 7, "source_query": "select id from content.film_work", "mode": "full"});
    for claimed in [false, true] {
        if claimed {
            app.claim().await;
        }
        let answer = app.patch(FILMS, "*", &refused).await.assert_problem(409, "pipeline.locked");
        assert_eq!(answer.faults(), [("/source_query", "pipeline.locked")]);
        assert_eq!(app.get(FILMS).await.body["batch_size"], 1000);
    }
    app.patch(FILMS, "*", &json!({"batch_size": 7, "name": "movies", "schedule_interval": "1h"}))
        .await
        .assert(200);
    app.post("/pipelines/movies/pause").await.assert(202);
    let answer = app.patch("/pipelines/movies", "*", &refused).await;
    answer.assert_problem(409, "pipeline.locked");
}

#[tokio::test]
async fn a_run_that_is_asked_for_during_edits_works_on_one_of_their_versions_whole() {
    let app = App::start().await;
    app.create_pipeline("films").await;
    let mut calls = JoinSet::new();
    for round in 0..6 {
        let sql = format!("select id, title, {round} as n from content.film_work");
        let patch = json!({"source_query": sql, "description": round.to_string()});
        let edit = app.request(Method::POST, &format!("{FILMS}/update-config")).json(&patch);
        calls.spawn(async move { send(edit).await.status.as_u16() });
        let run = app.request(Method::POST, &format!("{FILMS}/run"));
        calls.spawn(async move { send(run).await.status.as_u16() });
    }
    for status in calls.join_all().await {
        assert!([200, 202, 409].contains(&status), "{status}");
    }
    let torn: i64 = app
        .database
        .value(
            "select count(*) from etl.etl_runs where snapshot #>> '{pipeline,description}' <> ''
              and snapshot #>> '{pipeline,source_query}' not like '%, ' || (snapshot #>> '{pipeline,description}') || ' as n%'",
        )
        .await;
    assert_eq!(torn, 0);
    let shown = app.get(FILMS).await.body;
    let run: String =
        app.database.value("select snapshot #>> '{pipeline,source_query}' from etl.etl_runs").await;
    assert_eq!(shown["source_query"], run, "from the request on, the query is locked");
}

#[tokio::test]
async fn enabling_by_an_edit_is_the_same_step_as_by_its_call() {
    let app = App::start().await;
    app.create_pipeline("films").await;
    app.run("films").await;
    app.claim().await;
    let answer = app.patch(FILMS, "*", &json!({"enabled": false, "batch_size": 3})).await.assert(200);
    assert_eq!((&answer.body["status"], &answer.body["enabled"]), (&json!("PAUSE_REQUESTED"), &json!(false)));
    let answer = app.patch(FILMS, "*", &json!({"enabled": true})).await.assert(200);
    assert_eq!(answer.body["enabled"], true);
}

#[tokio::test]
async fn a_plan_is_edited_with_its_pipeline() {
    let app = App::start().await;
    app.create_pipeline("films").await;
    let tasks = json!([{"order_index": 1, "task_type": "SQL", "body": "select id from content.film_work"}]);
    let answer = app.patch(FILMS, "*", &json!({"tasks": tasks})).await.assert(200);
    assert_eq!(answer.body["tasks"][0]["body"], "select id from content.film_work");
    assert_ne!(answer.header("etag"), "\"1\"");
    let answer = app.patch(FILMS, answer.header("etag"), &json!({"tasks": null})).await.assert(200);
    assert_eq!(answer.body["tasks"], json!([]));
}

#[tokio::test]
async fn a_change_in_psql_raises_the_version_too() {
    let app = App::start().await;
    app.create_pipeline("films").await;
    app.database.execute("update etl.etl_pipelines set batch_size = 9").await;
    assert_eq!(app.get(FILMS).await.header("etag"), "\"2\"");
    app.database.execute("update etl.etl_pipelines set lease_length = '1 minute'").await;
    assert_eq!(app.get(FILMS).await.header("etag"), "\"2\"", "not its configuration");
}

#[tokio::test]
async fn reloading_validates_makes_a_new_version_and_tells_what_has_changed_since_the_last_run() {
    let app = App::start().await;
    app.create_pipeline("films").await;
    let reload = format!("{FILMS}/reload-config");
    let answer = app.post(&reload).await.assert(200);
    assert_eq!(answer.body["changed_since_last_run"], Value::Null);
    assert_eq!(answer.body["pipeline"]["version"], 2);
    app.run("films").await;
    app.patch(FILMS, "*", &json!({"batch_size": 5, "tags": ["x"]})).await.assert(200);
    let answer = app.post(&reload).await.assert(200);
    assert_eq!(answer.body["changed_since_last_run"], json!(["batch_size", "tags"]));
    app.database.execute("drop table content.film_work").await;
    app.post(&reload).await.assert_problem(422, "pipeline.invalid");
}

#[tokio::test]
async fn a_second_writer_of_a_target_is_refused_when_it_is_created_retargeted_or_validated() {
    let app = App::start().await;
    app.create_pipeline("films").await;
    let second = json!({"name": "nightly", "target_table": "analytics.film_dim", "source_query": QUERY});
    let refused = app.post_json("/pipelines", &second).await.assert_problem(409, "target.owned").body;
    assert!(
        refused["detail"].as_str().unwrap().contains("analytics.film_dim is written by films"),
        "{refused}"
    );
    assert!(refused["hint"].as_str().unwrap().contains("full_schedule"), "{refused}");
    let forecast = app.post_json("/pipelines?dry_run=true", &second).await.assert(200).body;
    let owned = |verdict: &Value| {
        let checks = verdict["checks"].as_array().unwrap().clone();
        checks.iter().any(|check| check["code"] == "target.owned" && check["severity"] == "error")
    };
    assert!(owned(&forecast) && forecast["ok"] == false, "{forecast}");

    app.create_pipeline("nightly").await;
    let there = json!({"target_table": "analytics.film_dim"});
    app.patch("/pipelines/nightly", "*", &there).await.assert_problem(409, "target.owned");
    let task = json!({"tasks": [{"order_index": 1, "task_type": "SQL", "body": QUERY, "target_table": "analytics.film_dim"}]});
    app.patch("/pipelines/nightly", "*", &task).await.assert_problem(409, "target.owned");
    let verdict = app.post_json("/pipelines/nightly/validate", &there).await.assert(200).body;
    assert!(owned(&verdict), "{verdict}");

    app.delete("/pipelines/films").await.assert(204);
    app.patch("/pipelines/nightly", "*", &there).await.assert(200);
}

#[tokio::test]
async fn an_index_that_is_declared_partial_has_several_writers_until_it_is_declared_otherwise() {
    let app = App::start().await;
    let partial = json!({"key": ["id"], "document": {"partial": true}});
    app.put_json("/targets/es:films", &partial).await.assert(201);
    for name in ["titles", "ratings"] {
        let body = json!({"name": name, "target_table": "es:films", "source_query": QUERY});
        app.post_json("/pipelines", &body).await.assert(201);
    }
    let whole = app.put_json("/targets/es:films", &json!({"key": ["id"]})).await;
    whole.assert_problem(409, "target.owned");
}

#[tokio::test]
async fn a_mart_that_is_shared_by_rows_has_a_writer_for_each_value() {
    let app = App::start().await;
    let shared = json!({"key": ["tenant", "film_id"], "shared": {"by": "rows", "column": "tenant"}});
    app.put_json("/targets/analytics.film_dim", &shared).await.assert(201);
    let body = |name: &str, value: Value| json!({"name": name, "target_table": "analytics.film_dim", "source_query": QUERY, "shared_value": value});
    let missing = app
        .post_json("/pipelines", &body("films", json!(null)))
        .await
        .assert_problem(422, "pipeline.invalid");
    assert_eq!(missing.faults(), [("/shared_value", "pipeline.shared_value")]);
    app.post_json("/pipelines", &body("ru", json!("ru"))).await.assert(201);
    app.post_json("/pipelines", &body("de", json!("de"))).await.assert(201);
    let second =
        app.post_json("/pipelines", &body("again", json!("de"))).await.assert_problem(409, "target.owned");
    let detail = second.body["detail"].as_str().unwrap();
    assert!(detail.contains("analytics.film_dim (de) is written by de"), "{detail}");
    assert!(second.body["hint"].as_str().unwrap().contains("shared"), "{second:?}");
    app.patch("/pipelines/ru", "*", &json!({"shared_value": "de"})).await.assert_problem(409, "target.owned");
    let none = app.patch("/pipelines/ru", "*", &json!({"shared_value": null})).await;
    assert_eq!(
        none.assert_problem(422, "pipeline.invalid").faults(),
        [("/shared_value", "pipeline.shared_value")]
    );
    assert_eq!(app.get("/pipelines/ru").await.assert(200).body["shared_value"], "ru");
    let forecast = app.post_json("/pipelines?dry_run=true", &body("fr", json!("fr"))).await.assert(200).body;
    let checks = forecast["checks"].as_array().unwrap();
    let told = checks.iter().find(|check| check["code"] == "target.shared").unwrap();
    assert_eq!(told["detail"], "analytics.film_dim is shared by rows of tenant (fr)", "{forecast}");

    let alone = app.put_json("/targets/analytics.film_dim", &json!({"key": ["film_id"]})).await;
    alone.assert_problem(409, "target.owned");
    app.put_json("/targets/analytics.film_dim", &json!({"key": ["film_id"], "shared": {"by": "columns"}}))
        .await
        .assert(200);
    app.patch("/pipelines/ru", "*", &json!({"batch_size": 9})).await.assert(200);
    let value = app.patch("/pipelines/ru", "*", &json!({"shared_value": "fr"})).await;
    assert_eq!(
        value.assert_problem(422, "pipeline.invalid").faults(),
        [("/shared_value", "pipeline.shared_value")]
    );
}

#[tokio::test]
async fn a_pair_that_was_there_before_is_edited_but_gets_no_third_writer() {
    let app = App::start().await;
    app.create_pipeline("films").await;
    app.create_pipeline("nightly").await;
    app.database.execute("update etl.etl_pipelines set target_table = 'analytics.film_dim'").await;
    app.patch("/pipelines/nightly", "*", &json!({"source_query": format!("{QUERY} limit 9")}))
        .await
        .assert(200);
    let third = json!({"name": "third", "target_table": "analytics.film_dim", "source_query": QUERY});
    app.post_json("/pipelines", &third).await.assert_problem(409, "target.owned");
    let verdict = app.post("/pipelines/films/validate").await.assert(200).body;
    assert_eq!(verdict["ok"], false, "its runs are refused: {verdict}");
    app.patch("/pipelines/nightly", "*", &json!({"target_table": "analytics.nightly"})).await.assert(200);
    assert!(app.store.contested_targets().await.unwrap().is_empty());
}

#[tokio::test]
async fn of_two_pipelines_that_are_created_for_one_target_at_once_one_is_refused() {
    let app = App::start().await;
    let mut calls = tokio::task::JoinSet::new();
    for number in 0..6 {
        let body = json!({"name": format!("p{number}"), "target_table": "analytics.film_dim", "source_query": QUERY});
        let call = app.request(reqwest::Method::POST, "/pipelines").json(&body);
        calls.spawn(async move { send(call).await.status.as_u16() });
    }
    let mut answers = calls.join_all().await;
    answers.sort_unstable();
    assert_eq!(answers, [201, 409, 409, 409, 409, 409]);
}

#[tokio::test]
async fn a_dry_run_saves_nothing() {
    let app = App::start().await;
    let body = json!({"name": "films", "target_table": "analytics.film_dim", "source_query": QUERY});
    let answer = app.post_json("/pipelines?dry_run=true", &body).await.assert(200);
    assert_eq!(answer.body["ok"], true, "{}", answer.body);
    app.get(FILMS).await.assert_problem(404, "pipeline.not_found");
}

#[tokio::test]
async fn a_python_task_that_no_living_runner_knows_is_told_before_it_is_waited_for() {
    let app = App::start().await;
    let tasks = json!([{"order_index": 1, "task_type": "SQL", "body": QUERY}, {"order_index": 2, "task_type": "PYTHON", "body": "clean"}]);
    let body = json!({"name": "planned", "target_table": "analytics.film_dim", "tasks": tasks});
    app.post_json("/pipelines", &body).await.assert(201);
    let told = async || {
        let verdict = app.post("/pipelines/planned/validate").await.assert(200).body;
        verdict["checks"].as_array().unwrap().iter().any(|check| check["code"] == "python.unknown_task")
    };
    assert!(told().await);
    let runner = vitrina_store::RunnerAbilities {
        name: "r1".to_owned(),
        connections: vec![],
        python_tasks: vec!["clean".to_owned()],
        ..Default::default()
    };
    app.store.announce(&runner, 1).await.unwrap();
    assert!(!told().await);
}

#[tokio::test]
async fn a_pipeline_whose_source_is_broken_can_still_be_disabled_and_slowed_down() {
    let app = App::start().await;
    app.create_pipeline("films").await;
    app.database.execute("drop table content.film_work").await;
    app.patch(FILMS, "*", &json!({"enabled": false, "schedule_interval": "1h"})).await.assert(200);
    app.patch(FILMS, "*", &json!({"batch_size": 0})).await.assert_problem(422, "pipeline.invalid");
    app.patch(FILMS, "*", &json!({"mode": "full", "read": "keyset"}))
        .await
        .assert_problem(422, "pipeline.invalid");
}

#[tokio::test]
async fn a_dry_run_knows_that_a_name_is_taken() {
    let app = App::start().await;
    app.create_pipeline("films").await;
    let body = json!({"name": "films", "target_table": "analytics.film_dim", "source_query": QUERY});
    let verdict = app.post_json("/pipelines?dry_run=true", &body).await.assert(200).body;
    assert_eq!(verdict["ok"], false, "{verdict}");
}
