//! Questions of the control plane that only a runner can answer: taken through the meta-store, answered there.

use std::time::Duration;

use serde_json::{Value, json};
use vitrina_store::{Request, RequestRecord, RunnerAbilities};

use crate::stage::Stage;

pub(crate) fn request(kind: &'static str, payload: Value) -> Request {
    Request {
        kind,
        pipeline: None,
        payload,
        connections: vec!["content".to_owned()],
        python_tasks: Vec::new(),
        expires_in: Duration::from_secs(60),
        requested_by: "tester".to_owned(),
    }
}

impl Stage {
    pub(crate) async fn answered(&self, request: &Request) -> RequestRecord {
        let mut wakeups = self.store.wakeups().await.unwrap();
        let id = self.store.ask(request).await.unwrap();
        loop {
            let found = self.store.request_of(id).await.unwrap().unwrap();
            if !found.is_open() {
                return found;
            }
            wakeups.next().await;
        }
    }

    async fn inspected(&self, id: vitrina_core::PipelineId) -> Vec<(String, String, String)> {
        let pipeline = self.store.pipeline(&vitrina_store::PipelineRef::Id(id)).await.unwrap().config;
        let target = self.store.target(&pipeline.effective_target().parse().unwrap()).await.unwrap();
        let request = request("inspect", json!({"pipeline": pipeline, "target": target}));
        let answer = self.answered(&request).await.answer.expect("an answer");
        let text = |check: &Value, field: &str| check[field].as_str().unwrap_or_default().to_owned();
        let checks = answer["checks"].as_array().unwrap().iter();
        checks.map(|check| (text(check, "severity"), text(check, "code"), text(check, "hint"))).collect()
    }

    /// What the source advises: severity and words.
    async fn advised(&self, id: vitrina_core::PipelineId) -> Vec<(String, String)> {
        let pipeline = self.store.pipeline(&vitrina_store::PipelineRef::Id(id)).await.unwrap().config;
        let target = self.store.target(&pipeline.effective_target().parse().unwrap()).await.unwrap();
        let request = request("inspect", json!({"pipeline": pipeline, "target": target}));
        let answer = self.answered(&request).await.answer.expect("an answer");
        let text = |check: &Value, field: &str| check[field].as_str().unwrap_or_default().to_owned();
        let checks =
            answer["checks"].as_array().unwrap().iter().filter(|check| check["code"] == "source.advice");
        checks.map(|check| (text(check, "severity"), text(check, "detail"))).collect()
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_inspection_tells_what_a_cursor_does_not_notice() {
    let stage = Stage::with_films(10).await;
    stage
        .db
        .execute(
            "create table content.genre (id int primary key, name text);
             create table content.vote (id int primary key, film int, modified timestamptz);
             create index on content.vote (modified, film);
             insert into content.vote select n, n, case when n % 2 = 0 then now() end from generate_series(1, 10) n",
        )
        .await;
    let query = "select f.id, f.title, f.rating, f.modified from content.film f
                   join content.vote v on v.film = f.id left join content.genre g on g.id = f.id";
    let id = stage
        .pipeline(json!({"mode": "incremental", "incremental_key": "modified", "incremental_id_key": "id", "source_query": query,
                         "watch": [{"table": "content.vote", "key": ["film"]}]}))
        .await;
    let (_runner, _stop) = stage.start_runner("r1");
    let warned = |advised: &[(String, String)], words: &str| {
        advised.iter().any(|(severity, detail)| severity == "warning" && detail.contains(words))
    };
    let advised = stage.advised(id).await;
    assert!(warned(&advised, "changes of content.genre alone are not noticed"), "{advised:?}");
    assert!(warned(&advised, "whose modified or film is null are not noticed"), "{advised:?}");
    stage.db.execute("analyze content.vote").await;
    let advised = stage.advised(id).await;
    assert!(warned(&advised, "50 % of them when it was analysed"), "{advised:?}");
    stage.db.execute("update content.vote set modified = now(); analyze content.vote").await;
    let advised = stage.advised(id).await;
    assert!(!warned(&advised, "is null"), "{advised:?}");
    stage.db.execute("alter table content.vote alter modified set not null, alter film set not null").await;
    let advised = stage.advised(id).await;
    assert!(!advised.iter().any(|(_, detail)| detail.contains("null")), "{advised:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_inspection_warns_of_watched_keys_that_spell_values_otherwise() {
    let stage = Stage::with_films(10).await;
    stage
        .db
        .execute(
            "create domain content.film_number as int;
             create table content.note (id int primary key, film text, number content.film_number, small smallint,
                                        modified timestamptz not null default now())",
        )
        .await;
    let (_runner, _stop) = stage.start_runner("r1");
    let spelled = "two spellings of a value differ are not noticed";
    for (name, watch, warns) in [
        ("texts", json!({"key": ["film"]}), true),
        ("domains", json!({"key": ["number"]}), false),
        ("small", json!({"key": ["small"]}), false),
        ("cast", json!({"key": ["film"], "keys": "select x::integer from unnest($1::text[]) x"}), false),
    ] {
        let mut watch = watch;
        watch["table"] = json!("content.note");
        stage.db.execute(&format!("create table analytics.{name} (like analytics.film including all)")).await;
        let id = stage
            .pipeline(
                json!({"name": name, "mode": "incremental", "incremental_key": "modified", "watch": [watch],
                             "target_table": format!("analytics.{name}")}),
            )
            .await;
        let advised = stage.advised(id).await;
        let warned =
            advised.iter().any(|(severity, detail)| severity == "warning" && detail.contains(spelled));
        assert_eq!(warned, warns, "{name}: {advised:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_inspection_tells_which_column_stands_in_for_one_that_is_not_named() {
    let stage = Stage::with_films(10).await;
    let id = stage.pipeline(json!({"mode": "incremental", "incremental_key": "modified"})).await;
    let (_runner, _stop) = stage.start_runner("r1");
    let advised = stage.advised(id).await;
    let told = ("ok".to_owned(), "rows with an equal modified are told apart by id, the key of the target, as incremental_id_key is not named".to_owned());
    assert!(advised.contains(&told), "{advised:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_inspection_looks_at_source_and_target_without_running() {
    let stage = Stage::with_films(10).await;
    let id = stage.incremental(5).await;
    let (_runner, _stop) = stage.start_runner("r1");
    let checks = stage.inspected(id).await;
    assert_eq!(checks[0], ("ok".to_owned(), "target.takes".to_owned(), String::new()));
    assert!(checks.iter().all(|check| check.0 == "ok"), "{checks:?}");
    stage
        .db
        .execute("drop index content.film_modified_id_idx; alter table analytics.film drop column rating")
        .await;
    let checks = stage.inspected(id).await;
    let warned = |code: &str, hint: &str| {
        checks.iter().any(|check| check.0 == "warning" && check.1 == code && check.2.contains(hint))
    };
    assert!(warned("target.lacks", "rating"), "{checks:?}");
    assert!(warned("source.advice", "create index"), "{checks:?}");
    stage.db.execute("alter table content.film drop column rating").await;
    let checks = stage.inspected(id).await;
    assert_eq!(checks.last().map(|check| check.0.as_str()), Some("error"), "{checks:?}");
    let rows: i64 = stage.db.value("select count(*) from analytics.film").await;
    assert_eq!(rows, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_connection_is_tested_with_the_rights_of_its_login() {
    let stage = Stage::with_films(1).await;
    let (_runner, _stop) = stage.start_runner("r1");
    let test = async |connection: &str| {
        let request = request("test_connection", json!({"connection": connection}));
        stage.answered(&request).await
    };
    let answer = test("content").await.answer.unwrap();
    assert_eq!(
        (&answer["ok"], &answer["runner"], &answer["missing_grants"]),
        (&json!(true), &json!("r1"), &json!([]))
    );
    assert!(answer["server"].as_str().unwrap().starts_with("PostgreSQL "), "{answer}");
    let failed = test("nowhere").await;
    assert_eq!(
        (failed.status.as_str(), failed.error_code.as_deref()),
        ("FAILED", Some("connection.unknown"))
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn missing_rights_come_as_statements_to_copy() {
    let stage = Stage::with_films(1).await;
    let role = format!("poor_{}", stage.db.name());
    let role = &role[..role.len().min(60)];
    stage.db.execute(&format!("create role {role} login password 'poor'")).await;
    let mut settings = stage.settings("r1");
    for connection in settings.connections.0.values_mut() {
        connection.url = stage.db.url_as(role, "poor").into();
    }
    let (_runner, _stop) = stage.start(settings);
    let answer =
        stage.answered(&request("test_connection", json!({"connection": "content"}))).await.answer.unwrap();
    let grants = answer["missing_grants"].as_array().unwrap();
    assert_eq!(answer["ok"], false);
    for grant in grants {
        stage.db.execute(grant.as_str().unwrap()).await;
    }
    let answer =
        stage.answered(&request("test_connection", json!({"connection": "content"}))).await.answer.unwrap();
    assert_eq!((&answer["ok"], grants.len()), (&json!(true), 2), "{answer}");
    stage.db.execute(&format!("drop owned by {role}; drop role {role}")).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn how_a_mart_stands_is_told_beside_the_columns_of_a_query() {
    let stage = Stage::with_films(3).await;
    let id = stage.full(5).await;
    let pipeline = stage.store.pipeline(&vitrina_store::PipelineRef::Id(id)).await.unwrap().config;
    let target = stage.store.target(&pipeline.effective_target().parse().unwrap()).await.unwrap();
    let (_runner, _stop) = stage.start_runner("r1");
    let standing = async |pipeline: Value| {
        let asked = request("standing", json!({"target": target, "pipeline": pipeline}));
        stage.answered(&asked).await.answer.expect("an answer")
    };
    let fine = standing(json!(pipeline)).await;
    assert_eq!((&fine["exists"], &fine["lacks"], &fine["problem"]), (&json!(true), &json!([]), &Value::Null));
    let rating =
        json!({"name": "rating", "declared": "numeric(3,1)", "live": "numeric(3,1)", "differs": false});
    assert!(fine["fields"].as_array().unwrap().contains(&rating), "{fine}");
    stage.db.execute("alter table analytics.film drop column rating").await;
    let poor = standing(json!(pipeline)).await;
    assert!(poor["lacks"][0].as_str().unwrap().contains("add column \"rating\""), "{poor}");
    let rating = json!({"name": "rating", "declared": "numeric(3,1)", "live": null, "differs": true});
    assert!(poor["fields"].as_array().unwrap().contains(&rating), "{poor}");
    assert!(
        standing(Value::Null).await["fields"]
            .as_array()
            .unwrap()
            .iter()
            .all(|field| field["declared"].is_null())
    );
    stage.db.execute("drop table analytics.film").await;
    let none = standing(json!(pipeline)).await;
    assert_eq!((&none["exists"], &none["rows"]), (&json!(false), &Value::Null));
    assert!(none["lacks"][0].as_str().unwrap().starts_with("create table"), "{none}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_deleted_pipeline_leaves_nothing_beside_its_mart() {
    let stage = Stage::with_films(30).await;
    let id = stage.pipeline(json!({"batch_size": 10, "first_load": "staged"})).await;
    stage.succeed(id).await;
    stage
        .db
        .execute(&format!(
            "create table vitrina.load_{}_00000000 (id int);
             insert into vitrina.loads (load, pipeline, position, rows) values (gen_random_uuid(), '{id}', '{{}}', 0);
             insert into vitrina.checkpoints (installation, pipeline, token, version, checkpoint)
             select id, '{id}', 1, 1, '{{}}' from etl.etl_installation",
            id.0.simple()
        ))
        .await;
    stage.delete(id).await;
    let mut wakeups = stage.store.wakeups().await.unwrap();
    let (_runner, _stop) = stage.start_runner("r1");
    let status = "select status from etl.etl_requests where kind = 'forget'";
    while stage.db.value::<String>(status).await != "DONE" {
        wakeups.next().await;
    }
    let left: i64 = stage
        .db
        .value(
            "select (select count(*) from vitrina.loads) + (select count(*) from vitrina.checkpoints)
                  + (select count(*) from pg_class where relname like 'load\\_%' and relkind = 'r')",
        )
        .await;
    assert_eq!(left, 0);
    let rows: i64 = stage.db.value("select count(*) from analytics.film").await;
    assert_eq!(rows, 30, "the mart stays");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_request_of_a_runner_that_died_is_taken_by_another_and_its_late_answer_is_refused() {
    let stage = Stage::empty().await;
    let id = stage.store.ask(&request("test_connection", json!({"connection": "content"}))).await.unwrap();
    let dead = RunnerAbilities {
        name: "dead".to_owned(),
        connections: vec!["content".to_owned()],
        ..Default::default()
    };
    let zombie = stage.store.take_request(&dead, Duration::from_millis(1)).await.unwrap().expect("taken");
    let mut wakeups = stage.store.wakeups().await.unwrap();
    let (_runner, _stop) = stage.start_runner("r1");
    let found = loop {
        let found = stage.store.request_of(id).await.unwrap().unwrap();
        if !found.is_open() {
            break found;
        }
        wakeups.next().await;
    };
    assert_eq!((found.status.as_str(), found.runner.as_deref()), ("DONE", Some("r1")));
    let late = stage.store.answer(&zombie, Ok(json!({}))).await;
    assert!(matches!(late, Err(vitrina_store::Error::LeaseLost)), "{late:?}");
}

#[tokio::test]
async fn a_request_that_nobody_can_answer_expires() {
    let stage = Stage::empty().await;
    let mut asked = request("inspect", json!({}));
    asked.expires_in = Duration::ZERO;
    let id = stage.store.ask(&asked).await.unwrap();
    let runner = RunnerAbilities {
        name: "r1".to_owned(),
        connections: vec!["content".to_owned()],
        ..Default::default()
    };
    assert!(stage.store.take_request(&runner, Duration::from_secs(9)).await.unwrap().is_none());
    stage.store.tidy_requests().await.unwrap();
    assert_eq!(stage.store.request_of(id).await.unwrap().unwrap().status, "EXPIRED");
}

#[tokio::test]
async fn a_runner_takes_only_what_its_connections_can_answer() {
    let stage = Stage::empty().await;
    stage.store.ask(&request("inspect", json!({}))).await.unwrap();
    let poor = RunnerAbilities {
        name: "poor".to_owned(),
        connections: vec!["marts".to_owned()],
        ..Default::default()
    };
    assert!(stage.store.take_request(&poor, Duration::from_secs(9)).await.unwrap().is_none());
}

#[tokio::test]
async fn a_question_about_python_functions_waits_for_a_runner_that_has_them() {
    let stage = Stage::with_films(1).await;
    let about = vitrina_store::Request {
        python_tasks: vec!["slug".to_owned()],
        ..request("test_connection", json!({"connection": "content"}))
    };
    stage.store.ask(&about).await.unwrap();
    let mut runner = RunnerAbilities {
        name: "plain".to_owned(),
        connections: vec!["content".to_owned()],
        ..RunnerAbilities::default()
    };
    let lease = Duration::from_secs(30);
    assert!(stage.store.take_request(&runner, lease).await.unwrap().is_none());
    runner.python_tasks = vec!["slug".to_owned(), "other".to_owned()];
    assert!(stage.store.take_request(&runner, lease).await.unwrap().is_some());
}

/// A change is followed in the place of its key: rows that depend on the same table otherwise stay as they are.
#[tokio::test(flavor = "multi_thread")]
async fn an_inspection_tells_of_tables_behind_views_and_of_those_that_are_named_twice() {
    let stage = Stage::with_films(10).await;
    stage
        .db
        .execute(
            "create table content.genre (id int primary key, name text);
             create view content.genres as select id, name from content.genre;
             create view content.others as select id, title from content.film;
             create view content.deep as select * from content.others;
             create materialized view content.stored as select id, name from content.genre;
             create view content.ranked as select id, row_number() over (order by title) as place from content.film;
             create view content.first_ones as select id from content.film order by rating limit 3",
        )
        .await;
    let advised = async |name: &str, from: &str| {
        let query =
            format!("select f.id, f.title, f.rating, f.modified from content.film f left join {from}");
        let config = json!({"name": name, "mode": "incremental", "incremental_key": "modified", "incremental_id_key": "id",
                            "target_table": format!("analytics.{name}"), "source_table": "content.film", "source_query": query});
        stage.db.execute(&format!("create table analytics.{name} (like analytics.film including all)")).await;
        let id = stage.pipeline(config).await;
        stage.advised(id).await
    };
    let (_runner, _stop) = stage.start_runner("r1");
    let warned = |found: &[(String, String)], words: &str| {
        found.iter().any(|(severity, text)| severity == "warning" && text.contains(words))
    };
    let twice = "the query names content.film more than once";
    for (name, from, words) in [
        ("again", "content.film p on p.id = f.id + 1", twice),
        ("behind", "content.others p on p.id = f.id + 1", twice),
        ("deep", "content.deep p on p.id = f.id + 1", twice),
        ("genre", "content.genres g on g.id = f.id", "changes of content.genre alone are not noticed"),
        ("stored", "content.stored g on g.id = f.id", "changes of content.stored alone are not noticed"),
        ("ranked", "content.ranked g on g.id = f.id", "in view content.ranked"),
        ("first_ones", "content.first_ones g on g.id = f.id", "in view content.first_ones"),
    ] {
        let found = advised(name, from).await;
        assert!(warned(&found, words), "{name}: {found:?}");
        assert_eq!(warned(&found, twice), !matches!(name, "genre" | "stored"), "{name}: {found:?}");
    }
}
