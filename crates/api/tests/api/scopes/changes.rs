//! What is changed within a scope, and what is not.

use reqwest::Method;
use serde_json::{Value, json};
use vitrina_store::{Actor, Change, Error as StoreError, PipelineRef, Scope};

use super::{ADMIN, OTHERS, OWNER, Planted, THEIR_TARGET, THEIRS};
use crate::app::{Answer, App, QUERY};

#[tokio::test]
async fn a_pipeline_is_created_and_edited_within_the_scope_only() {
    let app = App::of_teams().await;
    let config = |tags: Value| json!({"name": "films", "target_table": "analytics.film_dim", "source_query": QUERY, "tags": tags});
    for tags in [json!([]), json!(["core"]), json!(["Films"])] {
        let refused = app.tried(Method::POST, "/pipelines", &config(tags.clone())).await;
        let refused = refused.assert_problem(403, "access.scope").body;
        assert_eq!(refused["hint"], "give it one of the tags films, search", "{tags}");
        let verdict =
            app.tried(Method::POST, "/pipelines?dry_run=true", &config(tags)).await.assert(200).body;
        let checks = verdict["checks"].as_array().unwrap();
        assert!(
            checks.iter().any(|check| check["code"] == "access.scope" && check["field"] == "/tags"),
            "{verdict}"
        );
    }
    app.tried(Method::POST, "/pipelines", &config(json!(["films", "core"]))).await.assert(201);
    for tags in [json!([]), json!(["core"]), json!(null)] {
        let patch = json!({"tags": tags, "description": "left"});
        app.tried(Method::PATCH, "/pipelines/films", &patch).await.assert_problem(403, "access.scope");
        app.tried(Method::POST, "/pipelines/films/update-config", &patch)
            .await
            .assert_problem(403, "access.scope");
    }
    let kept = app.get("/pipelines/films").await.assert(200).body;
    assert_eq!((&kept["tags"], &kept["description"]), (&json!(["films", "core"]), &json!("")));
    app.tried(Method::PATCH, "/pipelines/films", &json!({"tags": ["search", "core"]})).await.assert(200);
    app.tried(Method::PATCH, "/pipelines/films", &json!({"tags": ["search", "payroll"]})).await.assert(200);
    app.tried(Method::DELETE, "/pipelines/films", &json!({})).await.assert(204);
}

/// Between the look at a pipeline and its change somebody may move it: the transaction decides.
#[tokio::test]
async fn what_is_outside_of_the_scope_when_it_is_changed_is_not_changed() {
    let app = App::of_teams().await;
    app.tagged("films", "analytics.film_dim", &["payroll"]).await;
    let record = app.store.pipeline(&PipelineRef::from("films")).await.unwrap();
    let store = app.store.within(Scope::of(["films"]));
    let actor = Actor { name: "admin".to_owned(), request_id: String::new() };
    let mut after = record.config.clone();
    after.tags = vec!["films".to_owned(), "payroll".to_owned()];
    let (id, version) = (record.config.id, record.version);
    let edit = Change::EditPipeline { after, version };
    for change in [edit, Change::DeletePipeline { id, version: None }] {
        let refused = store.configure(&[change], &actor).await.unwrap_err();
        assert!(matches!(refused, StoreError::NoSuchPipeline(_)), "{refused}");
    }
    let nothing = app.store.within(Scope::NOTHING);
    assert!(nothing.pipeline(&PipelineRef::Id(id)).await.is_err());
    assert!(nothing.runs(Default::default(), None, 10).await.unwrap().is_empty());
    assert!(nothing.seen(&[id]).await.unwrap().is_empty());
}

#[tokio::test]
async fn names_and_targets_of_others_are_taken_and_no_more_is_told() {
    let planted = Planted::new().await;
    let app = &planted.app;
    let config = |name: &str, target: &str| json!({"name": name, "target_table": target, "source_query": QUERY, "tags": ["films"]});
    let taken = app.tried(Method::POST, "/pipelines", &config(THEIRS, "analytics.new")).await;
    let taken = taken.assert_problem(409, "pipeline.name_taken").body;
    assert_eq!(taken["hint"], "choose another name", "{taken}");
    let checked = |verdict: &Value, field: &str| {
        let checks = verdict["checks"].as_array().unwrap();
        let found: Vec<_> = checks.iter().filter(|check| check["code"] == "pipeline.name_taken").collect();
        assert_eq!(found.len(), 1, "{verdict}");
        assert_eq!(
            (&found[0]["field"], &found[0]["severity"], &verdict["ok"]),
            (&json!(field), &json!("error"), &json!(false)),
            "{verdict}"
        );
        assert!(found[0].to_string().contains("choose another name"), "{verdict}");
    };
    let question = json!({"pipeline": config(THEIRS, "analytics.new")});
    checked(&app.tried(Method::POST, "/validate", &question).await.assert(200).body, "/name");
    let dry = app.tried(Method::POST, "/pipelines?dry_run=true", &question["pipeline"]).await;
    checked(&dry.assert(200).body, "/name");
    let files = json!({"pipelines": [config(THEIRS, "analytics.new")]});
    checked(&app.tried(Method::POST, "/plan", &files).await.assert(200).body, "/pipelines/0/name");
    let saved = json!({"pipelines": [config("films", "analytics.film_dim")]});
    let plan = app.tried(Method::POST, "/plan", &saved).await.assert(200).body.to_string();
    assert!(!plan.contains("pipeline.name_taken"), "its own one is no other: {plan}");
    app.tried(Method::PATCH, "/pipelines/films", &json!({"name": THEIRS}))
        .await
        .assert_problem(409, "pipeline.name_taken");
    let owned = app.tried(Method::POST, "/pipelines", &config("new", THEIR_TARGET)).await;
    let owned = owned.assert_problem(409, "target.owned").body.to_string();
    assert!(
        owned.contains("is written by a pipeline outside of the scope of this token")
            && !owned.contains(OTHERS),
        "{owned}"
    );
    app.post("/pipelines/films/cancel").await.assert(202);
    let edited = app.tried(Method::PATCH, "/pipelines/films", &json!({"target_table": THEIR_TARGET})).await;
    assert!(!edited.assert_problem(409, "target.owned").body.to_string().contains(OTHERS));
    let question = json!({"pipeline": config("new", THEIR_TARGET)});
    let verdict = app.tried(Method::POST, "/validate", &question).await.assert(200).body.to_string();
    assert!(verdict.contains("target.owned") && !verdict.contains(OTHERS), "{verdict}");
    let files = json!({"pipelines": [config("new", THEIR_TARGET)], "targets": [{"name": THEIR_TARGET, "key": ["id"]}]});
    let plan = app.tried(Method::POST, "/plan", &files).await.assert(200).body;
    let codes: Vec<&str> =
        plan["checks"].as_array().unwrap().iter().map(|check| check["code"].as_str().unwrap()).collect();
    assert!(codes.contains(&"target.owned") && codes.contains(&"access.scope"), "{plan}");
    assert!(!plan.to_string().contains(OTHERS), "{plan}");
}

/// Who joined a target that it did not see before would be shown its rows, and could share it anew.
#[tokio::test]
async fn nobody_joins_a_target_that_only_others_write_to() {
    let app = App::of_teams().await;
    let shared = json!({"key": ["id"], "shared": {"by": "columns"}});
    app.put_json("/targets/analytics.shared", &shared).await.assert(201);
    app.tagged(THEIRS, "analytics.shared", &["payroll"]).await;
    app.tagged("films", "analytics.film_dim", &["films"]).await;
    let joins = |name: &str| json!({"name": name, "target_table": "analytics.shared", "source_query": QUERY, "tags": ["films"]});
    let refused = |answer: Answer| {
        let told = answer.assert_problem(409, "target.owned").body.to_string();
        assert!(told.contains("outside of the scope") && !told.contains(OTHERS), "{told}");
    };
    refused(app.tried(Method::POST, "/pipelines", &joins("new")).await);
    let edit = json!({"target_table": "analytics.shared"});
    refused(app.tried(Method::PATCH, "/pipelines/films", &edit).await);
    let checked = |verdict: &Value| {
        let checks = verdict["checks"].as_array().unwrap();
        let codes: Vec<&str> = checks.iter().map(|check| check["code"].as_str().unwrap()).collect();
        assert!(codes.contains(&"target.owned"), "{verdict}");
        let is_asked =
            checks.iter().any(|check| check["code"] == "runner.none" && check["field"] == "/target_table");
        assert!(!is_asked, "no runner is asked about a mart of others: {verdict}");
        assert_eq!(verdict["ok"], false, "{verdict}");
    };
    for target in [Value::Null, shared.clone()] {
        let mut question = json!({"pipeline": joins("new")});
        if !target.is_null() {
            question["target"] = target;
        }
        checked(&app.tried(Method::POST, "/validate", &question).await.assert(200).body);
    }
    checked(&app.tried(Method::POST, "/pipelines?dry_run=true", &joins("new")).await.assert(200).body);
    for pipeline in [joins("new"), joins("films")] {
        let files = json!({"pipelines": [pipeline]});
        let plan = app.tried(Method::POST, "/plan", &files).await.assert(200).body;
        checked(&plan);
        let order = json!({"configuration": files, "plan_hash": plan["hash"]});
        app.tried(Method::POST, "/apply", &order).await.assert_problem(422, "config.invalid");
    }
    // Once somebody who sees all of them has let the team in, it goes on by itself.
    app.tagged("search", "analytics.shared", &["search"]).await;
    app.tried(Method::POST, "/pipelines", &joins("new")).await.assert(201);
}

#[tokio::test]
async fn a_target_is_described_by_those_who_alone_write_to_it() {
    let app = App::of_teams().await;
    let shared = json!({"key": ["id"], "shared": {"by": "columns"}});
    app.put_json("/targets/analytics.shared", &shared).await.assert(201);
    app.put_json("/targets/analytics.unused", &json!({"key": ["topsecret"]})).await.assert(201);
    let key = json!({"key": ["id"]});
    for target in ["analytics.unused", "analytics.shared", "analytics.nobody_s"] {
        let path = format!("/targets/{target}");
        app.tried(Method::PUT, &path, &key).await.assert_problem(403, "access.scope");
        app.tried(Method::DELETE, &path, &json!({})).await.assert_problem(404, "target.not_found");
        app.seen(OWNER, &path).await.assert_problem(404, "target.not_found");
    }
    app.tagged("films", "analytics.shared", &["films"]).await;
    assert_eq!(app.names("viewer", "/targets", "name").await, ["analytics.shared"]);
    app.tried(Method::PUT, "/targets/analytics.shared", &shared).await.assert(200);
    app.tagged(THEIRS, "analytics.shared", &["payroll"]).await;
    let shown = app.seen("viewer", "/targets/analytics.shared").await.assert(200).body;
    assert_eq!(shown["pipelines"], json!(["films"]));
    app.tried(Method::PUT, "/targets/analytics.shared", &key).await.assert_problem(403, "access.scope");
    app.tried(Method::DELETE, "/targets/analytics.shared", &json!({}))
        .await
        .assert_problem(403, "access.scope");
    let standing =
        app.seen("operator", &format!("/targets/analytics.shared/standing?pipeline={THEIRS}")).await;
    let of_none = app.seen("operator", "/targets/analytics.shared/standing?pipeline=nobody_s").await;
    assert_eq!(standing.assert(422).body["errors"], of_none.assert(422).body["errors"]);
}

#[tokio::test]
async fn files_are_planned_applied_and_pruned_within_the_scope() {
    let app = App::of_teams().await;
    app.put_json("/targets/analytics.common", &json!({"key": ["id"], "shared": {"by": "columns"}}))
        .await
        .assert(201);
    app.put_json("/targets/analytics.left", &json!({"key": ["old"]})).await.assert(201);
    app.tagged(THEIRS, THEIR_TARGET, &["payroll"]).await;
    app.put_json(&format!("/targets/{THEIR_TARGET}"), &json!({"key": ["id"]})).await.assert(201);
    app.tagged("theirs_too", "analytics.common", &["payroll"]).await;
    app.tagged("own_too", "analytics.common", &["films"]).await;
    app.tagged("old", "analytics.old", &["search"]).await;
    let pipeline = |name: &str, target: &str, tags: Value| json!({"name": name, "target_table": target, "source_query": QUERY, "tags": tags});
    let common = json!({"name": "analytics.common", "key": ["id"], "shared": {"by": "columns"}});
    let files = json!({
        "prune": true,
        "targets": [{"name": "analytics.left", "key": ["id"]}, {"name": "analytics.fresh", "key": ["id"]}],
        "pipelines": [
            pipeline("own_too", "analytics.common", json!(["films"])),
            pipeline("left", "analytics.left", json!(["films"])),
            pipeline("fresh", "analytics.fresh", json!(["films"])),
        ],
    });
    let plan = app.tried(Method::POST, "/plan", &files).await.assert(200).body;
    let changes: Vec<String> = plan["changes"]
        .as_array()
        .unwrap()
        .iter()
        .map(|change| format!("{} {}", change["action"].as_str().unwrap(), change["name"].as_str().unwrap()))
        .collect();
    assert_eq!(
        changes,
        ["edit analytics.left", "create analytics.fresh", "create left", "create fresh", "delete old"],
        "{plan}"
    );
    let order = json!({"configuration": files, "plan_hash": plan["hash"]});
    app.tried(Method::POST, "/apply", &order).await.assert(200);
    assert_eq!(
        app.names(ADMIN, "/pipelines", "name").await,
        ["fresh", "left", "own_too", "theirs_too", THEIRS]
    );
    assert_eq!(app.get("/targets/analytics.left").await.assert(200).body["key"], json!(["id"]));
    app.get("/targets/analytics.common").await.assert(200);
    let exported = app.seen("viewer", "/export").await.assert(200).body;
    assert!(
        !exported.to_string().contains("payroll") && exported["pipelines"].as_array().unwrap().len() == 3,
        "{exported}"
    );
    let again = app.tried(Method::POST, "/plan", &exported).await.assert(200).body;
    assert_eq!((&again["changes"], &again["ok"]), (&json!([]), &json!(true)), "{again}");

    for (files, place) in [
        (json!({"pipelines": [pipeline("new", "analytics.new", json!(["core"]))]}), "/pipelines/0/tags"),
        (json!({"pipelines": [pipeline("left", "analytics.left", json!([]))]}), "/pipelines/0/tags"),
        (json!({"targets": [{"name": THEIR_TARGET, "key": ["other"]}]}), "/targets/0"),
        (json!({"targets": [{"name": "analytics.nobody_s", "key": ["id"]}]}), "/targets/0"),
        (json!({"targets": [{"name": "analytics.common", "key": ["other"]}]}), "/targets/0"),
    ] {
        let plan = app.tried(Method::POST, "/plan", &files).await.assert(200).body;
        let check = plan["checks"].as_array().unwrap().iter().find(|check| check["code"] == "access.scope");
        assert_eq!(
            (check.map(|check| &check["field"]), &plan["ok"]),
            (Some(&json!(place)), &json!(false)),
            "{plan}"
        );
        let order = json!({"configuration": files, "plan_hash": plan["hash"]});
        app.tried(Method::POST, "/apply", &order).await.assert_problem(422, "config.invalid");
    }
    let unchanged = json!({"targets": [common]});
    assert_eq!(app.tried(Method::POST, "/plan", &unchanged).await.assert(200).body["ok"], true);
}
