//! Configuration as code: what files would change, then exactly that.

use serde_json::{Value, json};
use tokio::task::JoinSet;

use vitrina_api::ApiSettings;
use vitrina_testbed::{Database, PostgresProxy, eventually};

use crate::app::{Answer, App, QUERY, SOURCE, runner, send};

fn films() -> Value {
    json!({"name": "films", "target_table": "analytics.film_dim", "source_query": QUERY, "tags": ["core"]})
}

fn files() -> Value {
    json!({"targets": [{"name": "analytics.film_dim", "key": ["id"]}], "pipelines": [films()]})
}

impl App {
    async fn plan(&self, configuration: &Value) -> Value {
        self.post_json("/api/v1/plan", configuration).await.assert(200).body
    }

    async fn apply(&self, configuration: &Value, hash: &Value) -> Answer {
        self.post_json("/api/v1/apply", &json!({"configuration": configuration, "plan_hash": hash})).await
    }

    /// Plans, applies, and answers what was changed.
    async fn settle(&self, configuration: &Value) -> Vec<String> {
        let plan = self.plan(configuration).await;
        assert_eq!(plan["ok"], true, "{plan}");
        told(&self.apply(configuration, &plan["hash"]).await.assert(200).body)
    }
}

fn told(plan: &Value) -> Vec<String> {
    let text = |change: &Value, field: &str| change[field].as_str().unwrap().to_owned();
    let tell = |change: &Value| {
        format!("{} {} {}", text(change, "action"), text(change, "kind"), text(change, "name"))
    };
    plan["changes"].as_array().unwrap().iter().map(tell).collect()
}

#[tokio::test]
async fn a_plan_tells_what_would_change_and_applying_does_exactly_that() {
    let app = App::start().await;
    let plan = app.plan(&files()).await;
    assert_eq!(told(&plan), ["create target analytics.film_dim", "create pipeline films"]);
    app.get("/pipelines/films").await.assert_problem(404, "pipeline.not_found");
    let applied = app.apply(&files(), &plan["hash"]).await.assert(200);
    assert_eq!(told(&applied.body), told(&plan));
    assert_eq!(app.get("/pipelines/films").await.assert(200).body["tags"], json!(["core"]));
    assert_eq!(app.get("/targets/analytics.film_dim").await.assert(200).body["key"], json!(["id"]));
    let again = app.plan(&files()).await;
    assert_eq!((&again["changes"], &again["ok"]), (&json!([]), &json!(true)));
    let mut edited = files();
    edited["pipelines"][0]["batch_size"] = json!(7);
    let plan = app.plan(&edited).await;
    let fields = &plan["changes"][0]["fields"];
    assert_eq!(fields, &json!([{"field": "batch_size", "before": 1000, "after": 7}]));
    app.settle(&edited).await;
    assert_eq!(app.get("/pipelines/films").await.body["batch_size"], 7);
}

/// So many pipelines, each with a long query and a mart of its own.
fn many(pipelines: usize) -> Value {
    let pipeline = |n: usize| {
        let comment = "what the columns of this mart mean ".repeat(60);
        json!({"name": format!("p{n:03}"), "target_table": format!("analytics.m{n:03}"), "batch_size": 1000,
               "source_query": format!("select id, title, n, modified from content.film_work where n > {n} -- {comment}")})
    };
    json!({"pipelines": (0..pipelines).map(pipeline).collect::<Vec<_>>()})
}

/// One session each, one after the other, took half a minute for five hundred.
#[tokio::test]
async fn a_plan_of_many_pipelines_shares_a_few_sessions_at_their_source() {
    let source = Database::fresh().await;
    source.execute(SOURCE).await;
    let proxy = PostgresProxy::before(source.url()).await;
    let behind = |settings: &mut ApiSettings| {
        settings.source_connections.get_mut("source").unwrap().url = proxy.url().into();
    };
    let app = App::start_as(None, behind).await;
    let sessions = "select sessions from pg_stat_database where datname = current_database()";
    // A session is counted at its end.
    let none_left = "select not exists (select from pg_stat_activity where datname = current_database() and application_name like 'vitrina/%')";
    let left = async || {
        eventually("its sessions end", async || source.value::<bool>(none_left).await.then_some(())).await;
        source.value::<i64>(sessions).await
    };
    let before = left().await;
    let plan = app.plan(&many(60)).await;
    assert_eq!((&plan["ok"], told(&plan).len()), (&json!(true), 60), "{}", plan["checks"]);
    let names: Vec<_> = told(&plan).iter().map(|told| told.rsplit(' ').next().unwrap().to_owned()).collect();
    assert!(names.is_sorted(), "in the order of the files: {names:?}");
    assert!(left().await - before <= 3, "{} sessions", left().await - before);
    let asked = proxy.requests();
    app.plan(&many(120)).await;
    let (few, many) = (asked, proxy.requests() - asked);
    assert!(many <= 2 * few && few <= 60 * 15, "{few} requests for 60 pipelines, {many} for 120");
}

#[tokio::test]
async fn five_hundred_pipelines_are_planned_and_applied_at_once() {
    let app = App::start().await;
    let files = many(500);
    assert!(files.to_string().len() > 1024 * 1024);
    assert_eq!(app.settle(&files).await.len(), 500);
    assert_eq!(app.plan(&files).await["changes"], json!([]));
}

#[tokio::test]
async fn a_source_that_is_away_is_asked_once_for_all_pipelines_of_a_plan() {
    let app = App::start_away().await;
    let plan = app.plan(&many(40)).await;
    let checks = plan["checks"].as_array().unwrap();
    let away = checks.iter().filter(|check| check["code"] == "source.unavailable");
    let (asked, not): (Vec<&Value>, Vec<&Value>) =
        away.partition(|check| !check["detail"].as_str().unwrap().contains("it does not answer"));
    assert_eq!((&plan["ok"], asked.len(), not.len()), (&json!(true), 1, 39), "{checks:?}");
}

#[tokio::test]
async fn what_a_file_no_longer_says_is_set_back_to_its_default() {
    let app = App::start().await;
    let target = |fields: Value| {
        let mut target = json!({"name": "es:films", "key": ["id"]});
        target.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
        json!({"targets": [target]})
    };
    let document =
        json!({"take_over": true, "partial": true, "no_checksum": true, "omit": ["a"], "rename": {"b": "c"}});
    let all = json!({
        "connection": "other", "create_if_missing": true, "mapping": {"properties": {}}, "settings": {"number_of_shards": 2},
        "document": document,
    });
    app.settle(&target(all)).await;
    let withdrawn = target(json!({"connection": "other", "document": {"take_over": false}}));
    let plan = app.plan(&withdrawn).await;
    let changed: Vec<&str> = plan["changes"][0]["fields"]
        .as_array()
        .unwrap()
        .iter()
        .map(|change| change["field"].as_str().unwrap())
        .collect();
    assert_eq!(changed, ["create_if_missing", "document", "mapping", "settings"], "{plan}");
    app.settle(&withdrawn).await;
    let shown = app.get("/targets/es:films").await.assert(200).body;
    assert_eq!(
        (&shown["document"], &shown["mapping"], &shown["settings"]),
        (&json!({}), &Value::Null, &Value::Null)
    );
    assert_eq!(app.plan(&withdrawn).await["changes"], json!([]));
}

#[tokio::test]
async fn a_plan_that_has_moved_is_not_applied() {
    let app = App::start().await;
    app.settle(&files()).await;
    let mut edited = files();
    edited["pipelines"][0]["batch_size"] = json!(7);
    let hash = app.plan(&edited).await["hash"].clone();
    app.patch("/pipelines/films", "*", &json!({"description": "meanwhile"})).await.assert(200);
    let answer = app.apply(&edited, &hash).await.assert_problem(409, "plan.moved");
    assert_eq!(answer.body["plan_hash"], app.plan(&edited).await["hash"]);
    assert_eq!(app.get("/pipelines/films").await.body["batch_size"], 1000);
    app.apply(&edited, &json!("")).await.assert_problem(409, "plan.moved");
}

#[tokio::test]
async fn of_plans_applied_at_the_same_time_one_is_carried_out() {
    let app = App::start().await;
    app.settle(&files()).await;
    let mut orders = Vec::new();
    for size in 2..8 {
        let mut edited = files();
        edited["pipelines"][0]["batch_size"] = json!(size);
        let hash = app.plan(&edited).await["hash"].clone();
        orders.push(json!({"configuration": edited, "plan_hash": hash}));
    }
    let mut calls = JoinSet::new();
    for order in &orders {
        let call = app.request(reqwest::Method::POST, "/apply").json(order);
        calls.spawn(async move { send(call).await.status.as_u16() });
    }
    let mut answers = calls.join_all().await;
    answers.sort_unstable();
    assert_eq!(answers[0], 200);
    assert!(answers[1..].iter().all(|status| [409, 412].contains(status)), "{answers:?}");
}

#[tokio::test]
async fn all_that_is_wrong_with_files_is_told_at_once_and_nothing_is_saved() {
    let app = App::start().await;
    let wrong = json!({
        "targets": [{"name": "auth.users"}, {"name": "analytics.a", "key": ["a", "a"]}],
        "pipelines": [films(), {"name": "films", "target_table": "analytics.a", "source_query": "select id,\n x from content.film_work"},
                      {"name": "b", "target_table": "analytics.b", "source_query": "select * from auth.users", "batch_size": 0}],
    });
    let plan = app.plan(&wrong).await;
    assert_eq!(plan["ok"], false);
    let found: Vec<(&str, &str)> = plan["checks"]
        .as_array()
        .unwrap()
        .iter()
        .map(|check| (check["field"].as_str().unwrap(), check["code"].as_str().unwrap()))
        .collect();
    for expected in [
        ("/targets/0/name", "target.not_allowed"),
        ("/targets/1/key", "target.field"),
        ("/pipelines/1/name", "config.twice"),
        ("/pipelines/1/source_query", "sql.refused_by_source"),
        ("/pipelines/2/source_query", "sql.schema_not_allowed"),
        ("/pipelines/2/batch_size", "pipeline.batch_size"),
    ] {
        assert!(found.contains(&expected), "{expected:?} is not among {found:?}");
    }
    let answer = app.apply(&wrong, &plan["hash"]).await.assert_problem(422, "config.invalid");
    assert!(answer.faults().contains(&("/pipelines/2/batch_size", "pipeline.batch_size")));
    app.get("/pipelines/films").await.assert_problem(404, "pipeline.not_found");
    app.post_json("/plan", &json!({"pipelines": [{"nam": "x"}]}))
        .await
        .assert_problem(422, "request.invalid");
}

#[tokio::test]
async fn an_alias_with_the_name_of_another_target_is_refused_from_either_side() {
    let app = App::start().await;
    let films = json!({"name": "es:films", "key": ["id"], "document": {"aliases": {"genres": {}}}});
    let genres = json!({"name": "es:genres", "key": ["id"]});
    let elsewhere = json!({"name": "es:genres", "key": ["id"], "connection": "other_search"});
    let files = |targets: &[&Value]| json!({"targets": targets});
    let checks = async |targets: &[&Value]| {
        let plan = app.plan(&files(targets)).await;
        let check =
            |check: &Value| (check["field"].clone(), check["code"].clone(), check["severity"].clone());
        plan["checks"].as_array().unwrap().iter().map(check).collect::<Vec<_>>()
    };
    let taken = |field: &str| vec![(json!(field), json!("target.alias_taken"), json!("error"))];
    assert_eq!(checks(&[&films, &elsewhere]).await, []);
    assert_eq!(checks(&[&genres, &films]).await, taken("/targets/1/document/aliases"));
    app.settle(&files(&[&films])).await;
    assert_eq!(checks(&[&genres]).await, taken("/targets/0/name"));
    let body = json!({"key": ["id"]});
    let answer = app.put_json("/targets/es:genres", &body).await.assert_problem(422, "target.invalid");
    assert_eq!(answer.faults(), [("/name", "target.alias_taken")]);
    app.delete("/targets/es:films").await.assert(204);
    app.settle(&files(&[&genres])).await;
    let body = json!({"key": ["id"], "document": {"aliases": {"genres": {}}}});
    let answer = app.put_json("/targets/es:films", &body).await.assert_problem(422, "target.invalid");
    assert_eq!(answer.faults(), [("/document/aliases", "target.alias_taken")]);
}

#[tokio::test]
async fn a_change_that_fails_takes_the_others_of_its_plan_with_it() {
    let app = App::start().await;
    app.settle(&files()).await;
    app.create_pipeline("busy").await;
    app.run("busy").await;
    let mut edited = files();
    edited["pipelines"][0]["batch_size"] = json!(7);
    let busy = json!({"name": "busy", "target_table": "analytics.other", "source_query": QUERY});
    edited["pipelines"].as_array_mut().unwrap().push(busy);
    let plan = app.plan(&edited).await;
    let warned = plan["checks"].as_array().unwrap().iter().any(|check| check["code"] == "pipeline.locked");
    assert!(warned && plan["ok"] == true, "{plan}");
    app.apply(&edited, &plan["hash"]).await.assert_problem(409, "pipeline.locked");
    assert_eq!(app.get("/pipelines/films").await.body["batch_size"], 1000);
}

/// A pipeline that has read something under another configuration, and a file with a new query for it.
async fn with_read_films(app: &App) -> Value {
    let query = "select id, title, n, modified from content.film_work";
    let films = json!({"name": "films", "target_table": "analytics.films", "source_query": query, "mode": "incremental",
                       "incremental_key": "modified", "incremental_id_key": "id"});
    let mut files = json!({"targets": [{"name": "analytics.films", "key": ["id"]}], "pipelines": [films]});
    app.settle(&files).await;
    app.database
        .execute(r#"update etl.etl_state set checkpoint = '{"position": {"done": {"bound": ["2026-01-01 00:00:00+00", "1"]}}, "config_hash": "another"}'"#)
        .await;
    files["pipelines"][0]["source_query"] = json!(format!("{query} where n > 5"));
    files
}

fn effects(plan: &Value) -> Vec<&str> {
    let changes = plan["changes"].as_array().unwrap().iter();
    changes
        .flat_map(|change| change["effects"].as_array().unwrap())
        .map(|effect| effect["code"].as_str().unwrap())
        .collect()
}

#[tokio::test]
async fn a_plan_tells_which_checkpoints_need_a_decision_and_carries_it_out() {
    let app = App::start().await;
    let mut files = with_read_films(&app).await;
    let asked = app.plan(&files).await;
    assert_eq!(effects(&asked), ["checkpoint.decision"], "{asked}");
    let detail = asked["changes"][0]["effects"][0]["detail"].as_str().unwrap();
    assert!(
        detail.contains("films") && detail.contains("--checkpoint") && detail.contains("on_change"),
        "{detail}"
    );
    files["checkpoint"] = json!("keep");
    let kept = app.plan(&files).await;
    assert_eq!(effects(&kept), ["checkpoint.keep"], "{kept}");
    app.apply(&files, &asked["hash"]).await.assert_problem(409, "plan.moved");
    app.apply(&files, &kept["hash"]).await.assert(200);
    let state = app.get("/pipelines/films/state").await.assert(200).body;
    assert_eq!(state["checkpoint"]["position"]["done"]["bound"][0], "2026-01-01 00:00:00+00", "{state}");
    app.post("/pipelines/films/run").await.assert(202);
    let audited: i64 =
        app.database.value("select count(*) from etl.etl_audit where action = 'state.keep'").await;
    assert_eq!(audited, 1);
}

/// A change that was applied without an answer left the pipeline FAILED, and no later apply could give it.
#[tokio::test]
async fn a_decision_that_did_not_come_with_its_change_is_given_by_a_later_apply() {
    for decision in ["keep", "reset"] {
        let app = App::start().await;
        let mut files = with_read_films(&app).await;
        app.settle(&files).await;
        app.post_json("/pipelines/films/run", &json!({"mode": "full"})).await.assert(202);
        let claim = app.claim().await;
        app.store.fail(&claim.lease, "checkpoint.config_changed", "it asks", false).await.unwrap();
        let asked = app.plan(&files).await;
        assert_eq!((&asked["changes"], &asked["ok"]), (&json!([]), &json!(true)));
        let check = &asked["checks"][0];
        assert_eq!(
            (&check["code"], &check["severity"], &check["field"]),
            (&json!("checkpoint.decision"), &json!("warning"), &json!("/pipelines/0")),
            "{asked}"
        );
        files["checkpoint"] = json!(decision);
        let plan = app.plan(&files).await;
        assert_eq!(told(&plan), ["decide pipeline films"], "{plan}");
        assert_eq!(effects(&plan), [format!("checkpoint.{decision}")], "{plan}");
        assert_eq!(plan["checks"][0]["code"], "pipeline.failed", "{plan}");
        app.apply(&files, &asked["hash"]).await.assert_problem(409, "plan.moved");
        app.apply(&files, &plan["hash"]).await.assert(200);
        let state = app.get("/pipelines/films/state").await.assert(200).body;
        let is_reset = state["checkpoint"]["position"] == json!({"anew": true});
        assert_eq!(is_reset, decision == "reset", "{state}");
        let done = app.plan(&files).await;
        assert_eq!((&done["changes"], &done["checks"]), (&json!([]), &json!([])), "it is decided once");
        app.post("/pipelines/films/run").await.assert(202);
    }
}

#[tokio::test]
async fn a_later_decision_names_the_target_too_waits_for_runs_and_is_not_asked_for_where_the_file_makes_it() {
    let app = App::start().await;
    let mut files = with_read_films(&app).await;
    app.settle(&files).await;
    let target = json!({"targets": files["targets"], "checkpoint": "keep"});
    assert_eq!(told(&app.plan(&target).await), ["decide pipeline films"], "what its pipelines have read");
    assert_eq!(
        app.plan(&json!({"checkpoint": "keep"})).await["changes"],
        json!([]),
        "the files name nothing"
    );
    files["pipelines"][0]["on_change"] = json!("keep");
    app.settle(&files).await;
    let plan = app.plan(&files).await;
    assert_eq!((&plan["changes"], &plan["checks"]), (&json!([]), &json!([])), "its next run does it");
    app.post("/pipelines/films/run").await.assert(202);
    files["checkpoint"] = json!("reset");
    let plan = app.plan(&files).await;
    assert_eq!(effects(&plan), ["checkpoint.reset"], "{plan}");
    assert_eq!(plan["checks"][0]["code"], "pipeline.active", "{plan}");
    app.apply(&files, &plan["hash"]).await.assert_problem(409, "pipeline.active");
    app.post("/pipelines/films/cancel").await.assert(202);
    app.apply(&files, &plan["hash"]).await.assert(200);
}

/// The next run would have refused it, and the pipeline stayed FAILED.
#[tokio::test]
async fn a_checkpoint_is_not_kept_for_a_target_with_another_key() {
    let app = App::start().await;
    let mut files = with_read_films(&app).await;
    app.settle(&files).await;
    let read = r#"jsonb_set(checkpoint, '{key}', '["id"]')"#;
    app.database.execute(&format!("update etl.etl_state set checkpoint = {read}")).await;
    files["targets"][0]["key"] = json!(["title"]);
    files["checkpoint"] = json!("keep");
    let plan = app.plan(&files).await;
    let check = &plan["checks"][0];
    assert_eq!((&plan["ok"], &check["code"]), (&json!(false), &json!("checkpoint.key_changed")), "{plan}");
    assert!(check["detail"].as_str().unwrap().contains("title"), "{plan}");
    app.apply(&files, &plan["hash"]).await.assert(422);
    files["checkpoint"] = json!("reset");
    assert_eq!(effects(&app.plan(&files).await), ["checkpoint.reset"]);
}

#[tokio::test]
async fn a_checkpoint_is_reset_with_the_change_of_the_target_that_its_pipeline_writes_to() {
    let app = App::start().await;
    let mut files = with_read_films(&app).await;
    app.settle(&files).await;
    files["targets"][0]["key"] = json!(["title"]);
    files["checkpoint"] = json!("reset");
    let plan = app.plan(&files).await;
    assert_eq!(effects(&plan), ["checkpoint.reset"], "{plan}");
    assert_eq!(plan["changes"][0]["kind"], "target");
    app.apply(&files, &plan["hash"]).await.assert(200);
    let state = app.get("/pipelines/films/state").await.assert(200).body;
    assert_eq!(state["checkpoint"]["position"], json!({"anew": true}), "{state}");
}

#[tokio::test]
async fn a_pipeline_that_says_what_becomes_of_its_checkpoint_is_asked_nothing() {
    let app = App::start().await;
    let mut files = with_read_films(&app).await;
    files["pipelines"][0]["on_change"] = json!("reset");
    let plan = app.plan(&files).await;
    assert_eq!(effects(&plan), ["checkpoint.reset"], "{plan}");
    app.settle(&files).await;
    assert_eq!(app.get("/pipelines/films").await.body["on_change"], "reset");
    app.post("/pipelines/films/run").await.assert(202);
    files["pipelines"][0]["on_change"] = json!("sometimes");
    app.post_json("/plan", &files).await.assert_problem(422, "request.invalid");
}

#[tokio::test]
async fn a_decision_where_none_is_needed_changes_no_checkpoint() {
    let app = App::start().await;
    let mut files = with_read_films(&app).await;
    let mut paced = files.clone();
    app.settle(&files).await;
    paced["pipelines"][0]["batch_size"] = json!(3);
    assert_eq!(effects(&app.plan(&paced).await), ["checkpoint.decision"], "still nobody has decided");
    app.database.execute("update etl.etl_state set checkpoint = '{}'").await;
    files["pipelines"][0]["source_query"] = json!("select id, title, modified from content.film_work");
    files["checkpoint"] = json!("reset");
    let plan = app.plan(&files).await;
    assert!(effects(&plan).is_empty(), "{plan}");
    app.settle(&files).await;
    assert_eq!(app.plan(&files).await["changes"], json!([]));
}

#[tokio::test]
async fn a_changed_mapping_is_planned_as_a_rebuild_of_its_index() {
    let app = App::start().await;
    let mut files = json!({
        "targets": [{"name": "es:films", "key": ["id"], "mapping": {"properties": {"id": {"type": "long"}}}}],
        "pipelines": [{"name": "films", "target_table": "es:films", "source_query": QUERY}],
    });
    app.settle(&files).await;
    files["targets"][0]["mapping"]["properties"]["id"]["type"] = json!("keyword");
    let plan = app.plan(&files).await;
    let effects = plan["changes"][0]["effects"].to_string();
    assert!(effects.contains("the index is rebuilt") && effects.contains("films"), "{plan}");
    assert_eq!(plan["changes"][0]["effects"][0]["code"], "index.rebuild");
    files["targets"][0]["document"] = json!({"partial": true});
    let plan = app.plan(&files).await;
    assert_eq!(plan["changes"][0]["effects"][0]["code"], "index.fields", "one of several cannot rebuild it");
    files["targets"][0].as_object_mut().unwrap().remove("document");
    app.settle(&files).await;
    files["targets"][0]["document"] = json!({"take_over": true});
    let plan = app.plan(&files).await;
    assert_eq!(plan["changes"][0]["effects"], json!([]), "consent rebuilds nothing");
}

#[tokio::test]
async fn what_is_exported_changes_nothing_when_it_is_applied() {
    let app = App::start().await;
    let everything = json!({
        "targets": [{"name": "analytics.film_dim", "key": ["id"], "touch_column": "updated_at", "create_if_missing": true},
                    {"name": "analytics.plain"},
                    {"name": "es:films", "key": ["id"], "mapping": {"dynamic": "strict"}, "settings": {"number_of_shards": 1},
                     "document": {"rename": {"title": "name"}, "omit": ["modified"]}}],
        "pipelines": [
            films(),
            {"name": "tail", "target_table": "analytics.plain", "source_query": QUERY, "mode": "incremental",
             "incremental_key": "modified", "incremental_id_key": "id", "schedule_interval": "CRON_TZ=Europe/Berlin 0 3 * * *",
             "enabled": false, "delete_limit": 0.5, "reject_limit": 7, "freshness_limit_seconds": 900, "reconcile_schedule": "1d", "full_schedule": "0 2 * * *", "read": "keyset",
             "watch": [{"table": "content.film_work", "key": ["id"]}], "change_key": ["id"], "late_window_seconds": 5},
            {"name": "planned", "target_table": "analytics.plain", "first_load": "staged", "batch_size": 5,
             "tasks": [{"order_index": 1, "task_type": "SQL", "body": QUERY, "target_table": "analytics.planned"}]},
        ],
    });
    app.settle(&everything).await;
    let exported = app.get("/export").await.assert(200).body;
    assert_eq!(app.plan(&exported).await["changes"], json!([]));
    let mut pruned = exported.clone();
    pruned["prune"] = json!(true);
    assert_eq!(app.plan(&pruned).await["changes"], json!([]), "everything is in it");
    let films = exported["pipelines"]
        .as_array()
        .unwrap()
        .iter()
        .find(|pipeline| pipeline["name"] == "films")
        .unwrap();
    let mut named = self::films();
    named["source_connection"] = json!("source");
    assert_eq!(films, &named, "without what is as by default everywhere");
    let elsewhere = App::start().await;
    elsewhere.settle(&exported).await;
    assert_eq!(elsewhere.get("/export").await.body, exported);
}

#[tokio::test]
async fn only_pruning_deletes_and_the_plan_says_so() {
    let app = App::start().await;
    app.settle(&files()).await;
    assert_eq!(app.plan(&json!({})).await["changes"], json!([]));
    let plan = app.plan(&json!({"prune": true})).await;
    assert_eq!(told(&plan), ["delete pipeline films", "delete target analytics.film_dim"]);
    app.settle(&json!({"prune": true})).await;
    app.get("/pipelines/films").await.assert_problem(404, "pipeline.not_found");
    app.get("/targets/analytics.film_dim").await.assert_problem(404, "target.not_found");
}

#[tokio::test]
async fn a_pipeline_that_an_operator_disabled_stays_so_unless_the_file_speaks_of_it() {
    let app = App::start().await;
    app.settle(&files()).await;
    app.post("/pipelines/films/disable").await.assert(200);
    assert_eq!(app.plan(&files()).await["changes"], json!([]));
    let mut enabling = files();
    enabling["pipelines"][0]["enabled"] = json!(true);
    app.settle(&enabling).await;
    assert_eq!(app.get("/pipelines/films").await.body["enabled"], true);
}

#[tokio::test]
async fn the_schema_of_files_is_published() {
    let app = App::start().await;
    let schema = app.get("/config.schema.json").await.assert(200).body;
    assert_eq!(schema["$schema"], "https://json-schema.org/draft/2020-12/schema");
    assert_eq!(schema["properties"]["pipelines"]["items"]["$ref"], "#/$defs/PipelineConfig");
    for definition in ["PipelineConfig", "NamedTarget", "Task", "Watch", "Mode"] {
        assert!(schema["$defs"][definition].is_object(), "{definition}");
    }
    assert!(!schema.to_string().contains("#/components/"));
}

#[tokio::test]
async fn a_source_that_is_away_is_asked_once_for_a_whole_plan_and_keeps_nobody_from_applying() {
    let app = App::start_away().await;
    app.store.announce(&runner(), 1).await.unwrap();
    let pipelines: Vec<Value> = (0..20)
        .map(|number| json!({"name": format!("p{number}"), "target_table": format!("analytics.p{number}"), "source_query": QUERY}))
        .collect();
    let files = json!({"pipelines": pipelines});
    let plan = app.plan(&files).await;
    assert_eq!((plan["ok"].as_bool(), plan["checks"].as_array().unwrap().len()), (Some(true), 20));
    app.apply(&files, &plan["hash"]).await.assert(200);
}

#[tokio::test]
async fn files_that_would_give_a_target_a_second_writer_are_refused_and_say_whose_it_is() {
    let app = App::start().await;
    app.settle(&files()).await;
    let second = json!({"name": "nightly", "target_table": "analytics.film_dim", "source_query": QUERY});
    let plan = app.plan(&json!({"pipelines": [second]})).await;
    assert_eq!(plan["ok"], false, "{plan}");
    let check = &plan["checks"][0];
    assert_eq!(
        (&check["code"], &check["field"]),
        (&json!("target.owned"), &json!("/pipelines/0/target_table"))
    );
    assert!(check["detail"].as_str().unwrap().contains("written by films"), "{check}");
    assert!(check["hint"].as_str().unwrap().contains("full_schedule"), "{check}");

    // The same mart, after the pipeline that had it: one plan, in any order.
    let mut moved = files()["pipelines"][0].clone();
    moved["target_table"] = json!("analytics.film_old");
    let both = json!({"pipelines": [second, moved]});
    app.settle(&both).await;
    assert_eq!(app.plan(&both).await["changes"], json!([]));
}

#[tokio::test]
async fn files_share_a_mart_and_take_that_back() {
    let app = App::start().await;
    app.store.announce(&runner(), 1).await.unwrap();
    let shared = |shared: Value, values: [Value; 2]| {
        let pipeline = |name: &str, value: &Value| json!({"name": name, "target_table": "analytics.film_dim", "source_query": QUERY, "shared_value": value});
        json!({"targets": [{"name": "analytics.film_dim", "key": ["tenant", "film_id"], "shared": shared}],
               "pipelines": [pipeline("ru", &values[0]), pipeline("de", &values[1])]})
    };
    let by_rows = json!({"by": "rows", "column": "tenant"});
    let codes = async |files: &Value| {
        let plan = app.plan(files).await;
        let checks = plan["checks"].as_array().unwrap().clone();
        checks
            .iter()
            .map(|check| format!("{} {}", check["code"].as_str().unwrap(), check["field"].as_str().unwrap()))
            .collect::<Vec<_>>()
    };
    let owned = ["target.owned /pipelines/0/target_table", "target.owned /pipelines/1/target_table"];
    let values = [
        "pipeline.shared_value /pipelines/0/shared_value",
        "pipeline.shared_value /pipelines/1/shared_value",
    ];
    assert_eq!(codes(&shared(by_rows.clone(), [json!("ru"), json!("ru")])).await, owned);
    assert_eq!(codes(&shared(by_rows.clone(), [json!("ru"), json!(null)])).await, values[1..]);
    assert_eq!(codes(&shared(json!({"by": "columns"}), [json!("ru"), json!("de")])).await, values);
    let files = shared(by_rows.clone(), [json!("ru"), json!("de")]);
    app.settle(&files).await;
    assert_eq!(app.plan(&files).await["changes"], json!([]));
    assert_eq!(codes(&shared(json!(null), [json!(null), json!(null)])).await, owned);

    let columns = shared(json!({"by": "columns"}), [json!(null), json!(null)]);
    let plan = app.plan(&columns).await;
    let change = &plan["changes"][0];
    assert_eq!(
        change["fields"][0],
        json!({"field": "shared", "before": by_rows, "after": {"by": "columns"}}),
        "{plan}"
    );
    assert_eq!(change["effects"], json!([]), "nobody has read anything yet: {plan}");
    app.settle(&columns).await;
    let exported = app.get("/export").await.assert(200).body;
    assert_eq!(exported["targets"][0]["shared"], json!({"by": "columns"}));
}

#[tokio::test]
async fn a_pair_that_was_there_before_is_a_warning_of_its_plan_and_can_be_edited() {
    let app = App::start().await;
    app.settle(&files()).await;
    let nightly = json!({"name": "nightly", "target_table": "analytics.nightly", "source_query": QUERY});
    app.settle(&json!({"pipelines": [nightly]})).await;
    app.database.execute("update etl.etl_pipelines set target_table = 'analytics.film_dim'").await;
    let mut edited = files();
    edited["pipelines"][0]["batch_size"] = json!(7);
    let plan = app.plan(&edited).await;
    assert_eq!((&plan["ok"], &plan["checks"][0]["code"]), (&json!(true), &json!("target.owned")), "{plan}");
    assert_eq!(plan["checks"][0]["severity"], "warning");
    app.apply(&edited, &plan["hash"]).await.assert(200);
}

#[tokio::test]
async fn tasks_may_stand_in_any_order_in_a_file() {
    let app = App::start().await;
    let tasks = json!([{"order_index": 2, "task_type": "PYTHON", "body": "clean"}, {"order_index": 1, "task_type": "SQL", "body": QUERY}]);
    let files =
        json!({"pipelines": [{"name": "planned", "target_table": "analytics.film_dim", "tasks": tasks}]});
    app.settle(&files).await;
    assert_eq!(app.plan(&files).await["changes"], json!([]));
}

#[tokio::test]
async fn changes_that_cross_each_other_end_well_or_are_told_to_try_again() {
    let app = App::start().await;
    app.settle(&files()).await;
    let mut calls = JoinSet::new();
    for round in 0..12 {
        let request = match round % 3 {
            0 => {
                let target = json!({"key": ["id"], "create_if_missing": round % 2 == 0});
                app.request(reqwest::Method::PUT, "/targets/analytics.film_dim").json(&target)
            }
            1 => {
                let edit = json!({"batch_size": round});
                app.request(reqwest::Method::POST, "/pipelines/films/update-config").json(&edit)
            }
            _ => {
                // Both at once, against versions that the others are about to change.
                let mut both = files();
                both["targets"][0]["touch_column"] = json!(format!("at_{round}"));
                both["pipelines"][0]["description"] = json!(round.to_string());
                let hash = app.plan(&both).await["hash"].clone();
                let order = json!({"configuration": both, "plan_hash": hash});
                app.request(reqwest::Method::POST, "/apply").json(&order)
            }
        };
        calls.spawn(async move { send(request).await.status.as_u16() });
    }
    for status in calls.join_all().await {
        assert!([200, 201, 409, 412, 503].contains(&status), "{status}");
    }
}
