//! Is the target equal to its source? Asked through the API, answered by a runner, and repaired (R-REC-1, R-API-5).

use std::collections::BTreeMap;
use std::time::Duration;

use reqwest::Method;
use rstest::rstest;
use serde_json::{Value, json};
use vitrina_core::{
    Backfill, Cells, Difference, DifferenceKind, Figures, Findings, Level, ReconcileProgress, ReconcileStage,
};
use vitrina_store::{RunnerAbilities, TakenReconcile};

use crate::app::{Answer, App, QUERY, runner, send};

const LEASE: Duration = Duration::from_secs(60);

impl App {
    /// What a runner does first.
    async fn take(&self) -> TakenReconcile {
        self.store.take_reconcile(&runner(), LEASE).await.unwrap().expect("a reconcile to take")
    }

    async fn ask(&self, pipeline: &str, level: Level) -> Answer {
        let path = format!("/pipelines/{pipeline}/reconcile");
        self.post_json(&path, &json!({"level": level})).await.assert(202)
    }

    /// Asks for a reconcile, and plays the runner that finds this; answers its id.
    pub(crate) async fn compare(&self, pipeline: &str, level: Level, findings: &Findings) -> String {
        let asked = self.ask(pipeline, level).await;
        let taken = self.take().await;
        self.store.finish_reconcile(&taken, findings).await.unwrap();
        asked.body["id"].as_str().unwrap().to_owned()
    }

    async fn repair(&self, id: &str, query: &str) -> Answer {
        self.post(&format!("/reconciles/{id}/repair{query}")).await
    }
}

fn difference(kind: DifferenceKind, key: &str) -> Difference {
    let cells = Cells { source: Some("Nebula, \"II\"".to_owned()), target: None };
    let columns = match kind {
        DifferenceKind::Different => BTreeMap::from([("title".to_owned(), cells)]),
        _ => BTreeMap::new(),
    };
    Difference { kind, key: json!([key]), columns }
}

/// Of these rows each differs in another way.
pub(crate) fn three() -> Findings {
    let kinds = [DifferenceKind::Missing, DifferenceKind::Different, DifferenceKind::Extra];
    found(kinds.into_iter().zip(["1", "2", "3"]).map(|(kind, key)| difference(kind, key)).collect())
}

/// In a target of ten rows.
pub(crate) fn found(differences: Vec<Difference>) -> Findings {
    let mut figures = Figures::default();
    (figures.source.rows, figures.target.rows) = (10, 10);
    differences.iter().for_each(|difference| figures.count(difference.kind));
    Findings { verdict: figures.verdict(), figures, differences }
}

async fn started() -> App {
    let app = App::start().await;
    app.create_pipeline("films").await;
    app
}

#[tokio::test]
async fn a_reconcile_is_asked_for_followed_and_kept_with_its_verdict() {
    let app = started().await;
    let asked = app.post("/pipelines/films/reconcile").await.assert(202);
    let location = asked.header("location").to_owned();
    assert_eq!(location, format!("/api/v1/reconciles/{}", asked.body["id"].as_str().unwrap()));
    assert_eq!((&asked.body["level"], &asked.body["limit"]), (&json!("hash"), &json!(10_000)));
    assert_eq!((&asked.body["status"], &asked.body["trigger"]), (&json!("REQUESTED"), &json!("manual")));
    assert_eq!((&asked.body["pipeline"], &asked.body["verdict"]), (&json!("films"), &Value::Null));
    let again = app.post("/pipelines/films/reconcile").await.assert(202);
    assert_eq!(again.body["id"], asked.body["id"], "one that is open is joined");

    let taken = app.take().await;
    let progress = ReconcileProgress { stage: ReconcileStage::Scan, done: 3, total: 10 };
    app.store.keep_reconcile(&taken, LEASE, Some(&progress)).await.unwrap();
    let running = app.get(&location).await.assert(200).body;
    assert_eq!(running["progress"], json!({"stage": "scan", "done": 3, "total": 10}));
    assert_eq!((&running["status"], &running["runner"]), (&json!("RUNNING"), &json!("r1")));

    let waited = format!("{location}?wait=30");
    let waiting = app.get(&waited);
    let finishing = async { app.store.finish_reconcile(&taken, &found(vec![])).await.unwrap() };
    let (done, ()) = tokio::join!(waiting, finishing);
    let done = done.assert(200).body;
    assert_eq!((&done["status"], &done["verdict"]), (&json!("DONE"), &json!("equal")));
    assert_eq!((&done["figures"]["source"]["rows"], &done["whole"]), (&json!(10), &json!(true)));
    assert!(done["duration_ms"].is_i64() && done["finished_at"].is_string(), "{done}");
}

#[tokio::test]
async fn a_reconcile_that_no_living_runner_can_take_says_why() {
    let app = started().await;
    let asked = app.post("/pipelines/films/reconcile").await.assert(202).body;
    assert_eq!(asked["waiting"]["code"], "runner.none");
    let path = format!("/reconciles/{}", asked["id"].as_str().unwrap());
    app.store.announce(&runner(), 1).await.unwrap();
    assert_eq!(app.get(&path).await.assert(200).body["waiting"], Value::Null);
    app.store.announce(&RunnerAbilities { connections: vec!["marts".into()], ..runner() }, 1).await.unwrap();
    let waiting = app.get(&path).await.assert(200).body["waiting"].clone();
    assert_eq!(waiting["code"], "runner.no_connection");
    assert!(waiting["message"].as_str().unwrap().contains("\"source\""), "{waiting}");
    app.take().await;
    assert_eq!(app.get(&path).await.assert(200).body["waiting"], Value::Null, "somebody has it");
}

#[tokio::test]
async fn the_last_verdict_stands_beside_every_pipeline() {
    let app = started().await;
    let none = app.get("/pipelines/films/reconcile").await.assert(200).body;
    assert_eq!((&none["verdict"], &none["reconcile"]), (&Value::Null, &Value::Null));
    let request = none["links"]["request"].as_str().unwrap().to_owned();
    let known = app.get("/pipelines/films/status").await.assert(200);
    assert_eq!(known.body["last_reconcile"], Value::Null);

    app.post(&request).await.assert(202);
    let taken = app.take().await;
    app.store.finish_reconcile(&taken, &three()).await.unwrap();
    let standing = app.get("/pipelines/films/reconcile").await.assert(200).body;
    assert_eq!(
        (&standing["verdict"], &standing["reconcile"]["figures"]["extra"]),
        (&json!("differs"), &json!(1))
    );
    let listed = app.get("/pipelines").await.assert(200).body["items"][0].clone();
    let alone = app.get("/pipelines/films").await.assert(200).body;
    let status = app.get("/pipelines/films/status").await.assert(200);
    assert_ne!(status.header("etag"), known.header("etag"), "a poller hears of a verdict");
    for place in [&listed, &alone, &status.body] {
        let last = &place["last_reconcile"];
        assert_eq!((&last["verdict"], &last["level"]), (&json!("differs"), &json!("hash")), "{place}");
        assert_eq!((&last["differences"], &last["missing"]), (&json!(3), &json!(1)), "{place}");
        assert_eq!((&last["id"], last["finished_at"].is_string()), (&json!(taken.id), true), "{place}");
    }
}

/// A verdict was shown beside a query that it says nothing about.
#[tokio::test]
async fn a_verdict_is_outdated_as_soon_as_its_configuration_is_changed() {
    let app = started().await;
    app.put_json("/targets/analytics.film_dim", &json!({"key": ["id"]})).await.assert(201);
    let equal = app.compare("films", Level::Hash, &found(Vec::new())).await;
    let outdated = async || {
        let status = app.get("/pipelines/films/status").await.assert(200);
        let places = [
            status.body["last_reconcile"]["outdated"].clone(),
            app.get("/pipelines").await.body["items"][0]["last_reconcile"]["outdated"].clone(),
            app.get("/pipelines/films").await.body["last_reconcile"]["outdated"].clone(),
            app.get("/pipelines/films/reconcile").await.body["outdated"].clone(),
            app.get(&format!("/reconciles/{equal}")).await.body["outdated"].clone(),
        ];
        assert!(places.iter().all(|place| *place == places[0]), "{places:?}");
        places[0] == true
    };
    let edit = async |edit: Value| app.patch("/pipelines/films", "*", &edit).await.assert(200);
    assert!(!outdated().await);
    edit(json!({"batch_size": 7, "description": "new", "schedule_interval": "1h", "tags": ["a"]})).await;
    assert!(!outdated().await, "the same rows, at another pace");
    let before = app.get("/pipelines/films/status").await;
    edit(json!({"source_query": format!("{QUERY} where id > 5")})).await;
    assert!(outdated().await, "another query");
    assert_ne!(app.get("/pipelines/films/status").await.header("etag"), before.header("etag"));
    let metrics = app.request(Method::GET, "/metrics").send().await.unwrap().text().await.unwrap();
    assert!(metrics.contains(r#"vitrina_reconcile_outdated{pipeline="films"} 1"#), "{metrics}");
    edit(json!({"source_query": QUERY})).await;
    assert!(!outdated().await, "what was compared is what is configured again");
    app.put_json("/targets/analytics.film_dim", &json!({"key": ["title"]})).await.assert(200);
    assert!(outdated().await, "another key");
    app.compare("films", Level::Hash, &found(Vec::new())).await;
    let last = app.get("/pipelines/films/status").await.body["last_reconcile"].clone();
    assert_eq!((&last["verdict"], &last["outdated"]), (&json!("equal"), &json!(false)));
}

#[tokio::test]
async fn a_comparison_whose_configuration_is_changed_while_it_runs_is_outdated() {
    let app = started().await;
    app.ask("films", Level::Hash).await;
    let taken = app.take().await;
    let edit = json!({"source_query": format!("{QUERY} where id > 5")});
    app.patch("/pipelines/films", "*", &edit).await.assert(200);
    app.store.finish_reconcile(&taken, &found(Vec::new())).await.unwrap();
    let last = app.get("/pipelines/films/status").await.body["last_reconcile"].clone();
    assert_eq!((&last["verdict"], &last["outdated"]), (&json!("equal"), &json!(true)));
}

#[tokio::test]
async fn reconciles_are_listed_newest_first_in_pages() {
    let app = started().await;
    app.create_pipeline("genres").await;
    let mut ids = Vec::new();
    for pipeline in ["films", "genres", "films"] {
        ids.insert(0, app.compare(pipeline, Level::Count, &found(vec![])).await);
    }
    let shown = |page: &Value| -> Vec<String> {
        let items = page["items"].as_array().unwrap().iter();
        items.map(|item| item["id"].as_str().unwrap().to_owned()).collect()
    };
    let first = app.get("/reconciles?limit=2").await.assert(200).body;
    assert_eq!(shown(&first), ids[..2]);
    let cursor = first["next_cursor"].as_str().unwrap();
    let rest = app.get(&format!("/reconciles?limit=2&cursor={cursor}")).await.assert(200).body;
    assert_eq!((shown(&rest), &rest["next_cursor"]), (ids[2..].to_vec(), &Value::Null));
    let own = app.get("/pipelines/films/reconciles").await.assert(200).body;
    assert_eq!(shown(&own), [ids[0].clone(), ids[2].clone()]);
}

#[rstest]
#[case("/reconciles?limit=0", "limit")]
#[case("/reconciles?cursor=films", "cursor")]
#[case("/reconciles?status=DONE", "status")]
#[case("/pipelines/films/reconciles?limit=501", "limit")]
#[case("/reconciles/00000000-0000-0000-0000-000000000000/differences?kind=odd", "kind")]
#[case("/reconciles/00000000-0000-0000-0000-000000000000/differences?format=xml", "format")]
#[case("/reconciles/00000000-0000-0000-0000-000000000000/differences?cursor=-1", "cursor")]
#[case("/reconciles/00000000-0000-0000-0000-000000000000/differences?cursor=999999999999", "cursor")]
#[case("/reconciles/00000000-0000-0000-0000-000000000000/differences?format=csv&limit=5", "limit")]
#[case("/reconciles/00000000-0000-0000-0000-000000000000?wait=61", "wait")]
#[tokio::test]
async fn a_look_at_reconciles_that_cannot_be_had_is_an_error(#[case] path: &str, #[case] name: &str) {
    let app = started().await;
    let answer = app.get(path).await.assert_problem(422, "request.invalid");
    assert_eq!(answer.faults(), [(name, "query.parameter")]);
}

#[rstest]
#[case(json!({"level": "all"}), "/level")]
#[case(json!({"limit": -1}), "/limit")]
#[case(json!({"limit": 100_001}), "/limit")]
#[case(json!({"keys": ["7"]}), "/keys")]
#[tokio::test]
async fn a_reconcile_that_nobody_can_make_is_an_error(#[case] body: Value, #[case] pointer: &str) {
    let app = started().await;
    let answer =
        app.post_json("/pipelines/films/reconcile", &body).await.assert_problem(422, "request.invalid");
    assert_eq!(answer.faults(), [(pointer, "body.field")]);
}

#[tokio::test]
async fn what_is_not_there_is_404() {
    let app = App::start().await;
    for path in ["/pipelines/nowhere/reconcile", "/pipelines/nowhere/reconciles"] {
        app.get(path).await.assert_problem(404, "pipeline.not_found");
    }
    app.post("/pipelines/nowhere/reconcile").await.assert_problem(404, "pipeline.not_found");
    for id in ["00000000-0000-0000-0000-000000000000", "films"] {
        for path in ["", "/differences", "/differences?format=csv"] {
            app.get(&format!("/reconciles/{id}{path}")).await.assert_problem(404, "reconcile.not_found");
        }
        for verb in ["cancel", "repair", "repair?dry_run=true"] {
            app.post(&format!("/reconciles/{id}/{verb}")).await.assert_problem(404, "reconcile.not_found");
        }
    }
}

#[tokio::test]
async fn a_reconcile_that_waits_is_cancelled_at_once_and_one_that_runs_is_told_to_stop() {
    let app = started().await;
    let waiting = app.ask("films", Level::Hash).await.body["id"].clone();
    let cancel = |id: &Value| format!("/reconciles/{}/cancel", id.as_str().unwrap());
    let answer = app.post(&cancel(&waiting)).await.assert(202);
    assert_eq!(answer.body["status"], "CANCELLED");
    app.post(&cancel(&waiting)).await.assert_problem(409, "reconcile.ended");
    let running = app.ask("films", Level::Hash).await.body["id"].clone();
    let taken = app.take().await;
    let answer = app.post(&cancel(&running)).await.assert(202);
    assert_eq!((&answer.body["status"], &answer.body["cancel_requested"]), (&json!("RUNNING"), &json!(true)));
    assert!(app.store.keep_reconcile(&taken, LEASE, None).await.unwrap(), "its runner hears of it");
    app.store.stop_reconcile(&taken).await.unwrap();
    let path = format!("/reconciles/{}", running.as_str().unwrap());
    assert_eq!(app.get(&path).await.assert(200).body["status"], "CANCELLED");
}

#[tokio::test]
async fn rows_that_differ_are_shown_by_kind_and_page() {
    let app = started().await;
    let id = app.compare("films", Level::Rows, &three()).await;
    let page = |query: &'static str| {
        let path = format!("/reconciles/{id}/differences{query}");
        let app = &app;
        async move { app.get(&path).await.assert(200).body }
    };
    let all = page("").await;
    assert_eq!(all["next_cursor"], Value::Null);
    assert_eq!(
        all["items"],
        json!([
            {"kind": "missing", "key": ["1"], "columns": {}},
            {"kind": "different", "key": ["2"], "columns": {"title": {"source": "Nebula, \"II\"", "target": null}}},
            {"kind": "extra", "key": ["3"], "columns": {}},
        ])
    );
    let first = page("?limit=2").await;
    assert_eq!((first["items"].as_array().unwrap().len(), &first["next_cursor"]), (2, &json!("2")));
    assert_eq!(page("?limit=2&cursor=2").await["items"][0]["key"], json!(["3"]));
    assert_eq!(page("?kind=extra").await["items"].as_array().unwrap().len(), 1);
}

async fn downloaded(app: &App, path: &str, accept: &str) -> (String, String, String) {
    let answer = app.request(Method::GET, path).header("accept", accept).send().await.unwrap();
    assert_eq!(answer.status(), 200);
    let header = |name: &str| answer.headers()[name].to_str().unwrap().to_owned();
    let (media, name) = (header("content-type"), header("content-disposition"));
    (media, name, answer.text().await.unwrap())
}

#[tokio::test]
async fn all_rows_that_differ_are_downloaded_as_ndjson_or_csv() {
    let app = started().await;
    let id = app.compare("films", Level::Rows, &three()).await;
    let path = format!("/reconciles/{id}/differences");
    let csv = "kind,key,column,source,target\n\
               missing,\"[\"\"1\"\"]\",,,\n\
               different,\"[\"\"2\"\"]\",title,\"Nebula, \"\"II\"\"\",\n\
               extra,\"[\"\"3\"\"]\",,,\n";
    for (query, accept) in [("?format=csv", "*/*"), ("", "text/csv;q=0.9, */*")] {
        let (media, name, text) = downloaded(&app, &format!("{path}{query}"), accept).await;
        assert_eq!((media.as_str(), text.as_str()), ("text/csv; charset=utf-8", csv));
        assert_eq!(name, format!("attachment; filename=\"differences-{id}.csv\""));
    }
    let (media, _, text) = downloaded(&app, &format!("{path}?format=ndjson&kind=extra"), "*/*").await;
    assert_eq!(
        (media.as_str(), text.as_str()),
        ("application/x-ndjson", "{\"kind\":\"extra\",\"key\":[\"3\"],\"columns\":{}}\n")
    );
    let (_, _, text) = downloaded(&app, &path, "application/x-ndjson").await;
    assert_eq!(text.lines().count(), 3);
}

#[tokio::test]
async fn a_download_of_many_pages_is_whole_and_in_order() {
    let app = started().await;
    let many = (0..1_234).map(|n| difference(DifferenceKind::Missing, &n.to_string())).collect();
    let id = app.compare("films", Level::Rows, &found(many)).await;
    let (_, _, text) = downloaded(&app, &format!("/reconciles/{id}/differences?format=ndjson"), "*/*").await;
    let keys: Vec<Value> =
        text.lines().map(|line| serde_json::from_str::<Value>(line).unwrap()["key"][0].clone()).collect();
    assert_eq!(keys, (0..1_234).map(|n| json!(n.to_string())).collect::<Vec<_>>());
}

#[tokio::test]
async fn a_repair_is_a_backfill_of_exactly_the_rows_that_differ_and_is_proved() {
    let app = started().await;
    let id = app.compare("films", Level::Rows, &three()).await;
    let forecast = app.repair(&id, "?dry_run=true").await.assert(200).body;
    assert_eq!(
        forecast,
        json!({"upserts": 2, "deletes": 1, "more": false,
               "delete_limit": {"limit": 0.2, "share": 0.1, "target_rows": 10, "ok": true}})
    );
    assert_eq!(app.status("films").await, "IDLE", "a dry run asks for nothing");

    let repair = app.repair(&id, "").await.assert(202);
    assert_eq!(
        repair.header("location"),
        format!("/api/v1/runs/{}", repair.body["run_id"].as_str().unwrap())
    );
    assert_eq!((&repair.body["pending"], &repair.body["deletes"]), (&json!(false), &json!(1)));
    let claim = app.claim().await;
    let keys = ["1", "2", "3"].map(|key| json!([key])).to_vec();
    assert_eq!(claim.backfill, Some(Backfill::Keys(keys.clone())));
    app.store.finish(&claim.lease).await.unwrap();

    let proof = app.take().await;
    assert_eq!((json!(proof.id), proof.keys.clone()), (repair.body["proof_id"].clone(), Some(keys)));
    app.store.finish_reconcile(&proof, &found(vec![])).await.unwrap();
    let proved = app.get(&format!("/reconciles/{}", proof.id)).await.assert(200).body;
    assert_eq!((&proved["repair_of"], &proved["trigger"]), (&json!(id), &json!("repair")));
    assert_eq!((&proved["verdict"], &proved["repair_run_id"]), (&json!("equal"), &repair.body["run_id"]));
    assert_eq!(app.get(&format!("/reconciles/{id}")).await.body["proved_by"], json!(proof.id));
    assert_eq!(app.get("/pipelines/films/status").await.body["last_reconcile"]["verdict"], "equal");
}

#[tokio::test]
async fn a_repair_stands_in_line_behind_the_active_run() {
    let app = started().await;
    let id = app.compare("films", Level::Rows, &three()).await;
    let active = app.run("films").await;
    let repair = app.repair(&id, "").await.assert(202).body;
    assert_eq!((&repair["run_id"], &repair["pending"]), (&json!(active), &json!(true)));
    let claim = app.claim().await;
    app.store.finish(&claim.lease).await.unwrap();
    assert!(app.store.take_reconcile(&runner(), LEASE).await.unwrap().is_none(), "the proof waits");
    assert_eq!(app.claimed_keys().await.len(), 3);
}

#[tokio::test]
async fn a_repair_of_what_was_kept_says_that_there_is_more() {
    let app = started().await;
    let mut findings = three();
    findings.figures.different = 70;
    let id = app.compare("films", Level::Rows, &findings).await;
    let forecast = app.repair(&id, "?dry_run=true").await.assert(200).body;
    assert_eq!((&forecast["upserts"], &forecast["more"]), (&json!(2), &json!(true)));
}

#[tokio::test]
async fn a_repair_reads_all_rows_that_were_kept_in_one_run() {
    let app = started().await;
    let many = (0..12_345).map(|n| difference(DifferenceKind::Missing, &n.to_string())).collect();
    let id = app.compare("films", Level::Rows, &found(many)).await;
    let repair = app.repair(&id, "").await.assert(202).body;
    assert_eq!((&repair["upserts"], &repair["more"]), (&json!(12_345), &json!(false)));
    assert_eq!(app.claimed_keys().await.len(), 12_345);
}

#[tokio::test]
async fn a_repair_over_the_delete_limit_is_refused_and_its_dry_run_says_so() {
    let app = started().await;
    let extra = |n: i32| difference(DifferenceKind::Extra, &n.to_string());
    let id = app.compare("films", Level::Rows, &found((1..=3).map(extra).collect())).await;
    let forecast = app.repair(&id, "?dry_run=true").await.assert(200).body;
    assert_eq!(forecast["delete_limit"], json!({"limit": 0.2, "share": 0.3, "target_rows": 10, "ok": false}));
    let refused = app.repair(&id, "").await.assert_problem(409, "reconcile.delete_limit");
    assert!(refused.body["detail"].as_str().unwrap().contains("3 of 10 rows, over the limit of 20 %"));
    app.patch("/pipelines/films", "*", &json!({"delete_limit": 0.3})).await.assert(200);
    app.repair(&id, "").await.assert(202);
}

#[tokio::test]
async fn what_cannot_be_repaired_is_refused_with_what_to_do_instead() {
    let app = started().await;
    let open = app.ask("films", Level::Rows).await.body["id"].as_str().unwrap().to_owned();
    app.repair(&open, "").await.assert_problem(409, "reconcile.not_done");
    app.post(&format!("/reconciles/{open}/cancel")).await.assert(202);
    app.repair(&open, "?dry_run=true").await.assert_problem(409, "reconcile.not_done");
    let equal = app.compare("films", Level::Rows, &found(vec![])).await;
    app.repair(&equal, "").await.assert_problem(409, "reconcile.equal");
    let counted = Findings { differences: vec![], ..three() };
    for level in [Level::Count, Level::Hash, Level::Rows] {
        let id = app.compare("films", level, &counted).await;
        let refused = app.repair(&id, "").await.assert_problem(409, "reconcile.not_kept");
        assert!(refused.body["hint"].as_str().unwrap().contains("level rows"), "{}", refused.body);
    }
    let id = app.compare("films", Level::Rows, &three()).await;
    app.post("/pipelines/films/disable").await.assert(200);
    app.repair(&id, "").await.assert_problem(409, "pipeline.disabled");
    app.database.execute("update etl.etl_pipelines set source_type = 'python', python_task = 'films'").await;
    let refused = app.repair(&id, "?dry_run=true").await.assert_problem(409, "backfill.python");
    assert!(refused.body["hint"].as_str().unwrap().contains("mode full"), "{}", refused.body);
}

#[tokio::test]
async fn whoever_asks_cancels_or_repairs_is_kept_in_the_audit() {
    let app = started().await;
    let call = |path: String| {
        let name = path.rsplit('/').next().unwrap().to_owned();
        send(app.request(Method::POST, &path).header("x-request-id", name))
    };
    let asked = call("/pipelines/films/reconcile".to_owned()).await.assert(202).body["id"].clone();
    call(format!("/reconciles/{}/cancel", asked.as_str().unwrap())).await.assert(202);
    let id = app.compare("films", Level::Rows, &three()).await;
    call(format!("/reconciles/{id}/repair")).await.assert(202);
    let audit =
        "select action, request_id, coalesce(after -> 'repaired' ->> 'reconcile', after ->> 'reconcile')
                   from etl.etl_audit where request_id in ('reconcile', 'cancel', 'repair') order by id";
    let said = |action: &str, request: &str, id: &str| {
        [action, request, id].map(|text| Some(text.to_owned())).to_vec()
    };
    let asked = asked.as_str().unwrap();
    assert_eq!(
        app.database.texts(audit).await,
        [
            said("reconcile.request", "reconcile", asked),
            said("reconcile.cancel", "cancel", asked),
            said("reconcile.repair", "repair", &id)
        ]
    );
}

#[tokio::test]
async fn a_pipeline_says_when_its_target_is_compared_by_itself() {
    let app = started().await;
    let patch = json!({"reconcile_schedule": "0 3 * * *"});
    let edited = app.patch("/pipelines/films", "*", &patch).await.assert(200);
    assert_eq!(edited.body["reconcile_schedule"], "0 3 * * *");
    app.store.request_due().await.unwrap();
    let shown = app.get("/pipelines/films").await.assert(200).body;
    assert!(shown["next_reconcile_at"].as_str().unwrap().ends_with("T03:00:00Z"), "{shown}");
    let wrong = json!({"reconcile_schedule": "often"});
    let refused = app.patch("/pipelines/films", "*", &wrong).await.assert_problem(422, "pipeline.invalid");
    assert_eq!(refused.faults(), [("/reconcile_schedule", "pipeline.reconcile_schedule")]);
    let cleared = app.patch("/pipelines/films", "*", &json!({"reconcile_schedule": null})).await.assert(200);
    assert_eq!(
        (&cleared.body["reconcile_schedule"], &cleared.body["next_reconcile_at"]),
        (&Value::Null, &Value::Null)
    );

    app.run("films").await;
    app.claim().await;
    app.patch("/pipelines/films", "*", &json!({"reconcile_schedule": "1d"})).await.assert(200);
}
