//! Rows that were refused: seen, acknowledged, discarded and read again (INTERFACES, rejects).

use reqwest::Method;
use rstest::rstest;
use serde_json::{Value, json};
use vitrina_core::{Backfill, Ledger, Outcome, Reject};

use crate::app::{App, send};

/// A pipeline whose last run has failed over these rows, each refused alone, the last one last.
async fn started_with(rejects: &[(&str, &str)]) -> App {
    let app = App::start().await;
    app.create_pipeline("films").await;
    app.run("films").await;
    let claim = app.claim().await;
    for (key, code) in rejects {
        let message = format!("{key} has no place");
        let row = json!({"id": key, "title": "Nebula"});
        let reject = Reject { key: json!([key]), code: (*code).to_owned(), message, row };
        let outcome = Outcome { rejects: vec![reject], ..Outcome::default() };
        app.store.keep_rejects(&claim.lease, &outcome).await.unwrap();
    }
    app.store.fail(&claim.lease, "rejects.limit", "too many rejects", false).await.unwrap();
    app
}

const THREE: [(&str, &str); 3] = [("1", "row.odd"), ("2", "row.bad"), ("3", "row.bad")];

async fn listed(app: &App, query: &str) -> Value {
    app.get(&format!("/pipelines/films/rejects{query}")).await.assert(200).body
}

/// The first columns of their keys, in the order of the answer.
fn keys(page: &Value) -> String {
    let items = page["items"].as_array().unwrap().iter();
    items.map(|item| item["key"][0].as_str().unwrap()).collect::<Vec<_>>().join(" ")
}

/// What a person chooses the reject of a key by.
async fn id_of(app: &App, key: &str) -> String {
    let page = listed(app, "").await;
    let found = page["items"].as_array().unwrap().iter().find(|item| item["key"] == json!([key])).unwrap();
    found["id"].as_str().unwrap().to_owned()
}

async fn change(app: &App, what: &str, body: &Value) -> u64 {
    let answer = app.post_json(&format!("/pipelines/films/rejects/{what}"), body).await.assert(200);
    answer.body["rejects"].as_u64().unwrap()
}

#[tokio::test]
async fn rejects_are_shown_with_their_reason_their_row_and_how_often_each_reason_occurs() {
    let app = started_with(&THREE).await;
    let page = listed(&app, "").await;
    assert_eq!((keys(&page).as_str(), &page["next_cursor"]), ("3 2 1", &Value::Null));
    let item = &page["items"][0];
    assert_eq!(item["row"], json!({"id": "3", "title": "Nebula"}));
    assert_eq!((&item["code"], &item["message"]), (&json!("row.bad"), &json!("3 has no place")));
    assert_eq!(item["acknowledged_at"], Value::Null);
    let run = app.get("/pipelines/films/status").await.body["last_run"]["id"].clone();
    assert_eq!(item["run_id"], run);
    let [bad, odd] = page["groups"].as_array().unwrap().as_slice() else { panic!("two reasons") };
    assert_eq!(
        (&bad["code"], &bad["rejects"], &bad["acknowledged"]),
        (&json!("row.bad"), &json!(2), &json!(0))
    );
    assert_eq!((&odd["code"], &odd["rejects"]), (&json!("row.odd"), &json!(1)));
    assert_eq!(bad["last_rejected_at"], item["rejected_at"]);
    assert_eq!(bad["first_rejected_at"], page["items"][1]["rejected_at"]);
}

#[tokio::test]
async fn a_pipeline_without_rejects_shows_none() {
    let app = App::start().await;
    app.create_pipeline("films").await;
    assert_eq!(listed(&app, "").await, json!({"items": [], "next_cursor": null, "groups": []}));
}

#[tokio::test]
async fn rejects_come_in_pages_that_hold_when_one_is_gone_and_by_reason() {
    let app = started_with(&THREE).await;
    let first = listed(&app, "?limit=1").await;
    assert_eq!(keys(&first), "3");
    let chosen = json!({"ids": [id_of(&app, "3").await]});
    assert_eq!(change(&app, "discard", &chosen).await, 1);
    let cursor = first["next_cursor"].as_str().unwrap();
    let second = listed(&app, &format!("?limit=2&cursor={cursor}")).await;
    assert_eq!((keys(&second).as_str(), &second["next_cursor"]), ("2 1", &Value::Null));
    let odd = listed(&app, "?code=row.odd").await;
    assert_eq!((keys(&odd).as_str(), odd["groups"].as_array().unwrap().len()), ("1", 2));
}

#[rstest]
#[case("limit=0", "limit")]
#[case("limit=501", "limit")]
#[case("cursor=films", "cursor")]
#[case("cursor=2026-01-01T00:00:00Z~%00", "cursor")]
#[case("cursor=-009999-01-02T00:00:00Z~0123456789abcdef0123456789abcdef", "cursor")]
#[case("code=%00", "code")]
#[case("acknowledged=true", "acknowledged")]
#[tokio::test]
async fn a_list_of_rejects_that_cannot_be_made_is_an_error(#[case] query: &str, #[case] name: &str) {
    let app = App::start().await;
    app.create_pipeline("films").await;
    let answer = app.get(&format!("/pipelines/films/rejects?{query}")).await;
    assert_eq!(answer.assert_problem(422, "request.invalid").faults(), [(name, "query.parameter")]);
}

#[tokio::test]
async fn an_acknowledged_reject_stays_in_sight() {
    let app = started_with(&THREE).await;
    assert_eq!(change(&app, "acknowledge", &json!({"code": "row.bad"})).await, 2);
    let page = listed(&app, "").await;
    assert_eq!(keys(&page), "3 2 1");
    assert_eq!(
        (&page["groups"][0]["acknowledged"], &page["groups"][1]["acknowledged"]),
        (&json!(2), &json!(0))
    );
    assert!(page["items"][0]["acknowledged_at"].is_string());
    assert_eq!(page["items"][2]["acknowledged_at"], Value::Null);
    assert_eq!(change(&app, "acknowledge", &json!({})).await, 3);
}

#[tokio::test]
async fn what_is_chosen_is_discarded_and_nothing_else() {
    let app = started_with(&THREE).await;
    let one = id_of(&app, "1").await;
    assert_eq!(change(&app, "discard", &json!({"ids": [one], "code": "row.bad"})).await, 0);
    assert_eq!(change(&app, "discard", &json!({"ids": [one, "no such id"]})).await, 1);
    assert_eq!(keys(&listed(&app, "").await), "3 2");
    let all = app.post("/pipelines/films/rejects/discard").await.assert(200);
    assert_eq!(all.body, json!({"rejects": 2}));
    assert_eq!(listed(&app, "").await["groups"], json!([]));
}

#[tokio::test]
async fn a_retry_is_a_run_over_the_keys_of_the_chosen_rejects() {
    let app = started_with(&THREE).await;
    let answer =
        app.post_json("/pipelines/films/rejects/retry", &json!({"code": "row.bad"})).await.assert(202);
    assert_eq!((&answer.body["status"], &answer.body["pending"]), (&json!("REQUESTED"), &json!(false)));
    assert_eq!((&answer.body["rejects"], &answer.body["more"]), (&json!(2), &json!(false)));
    let location = answer.header("location").to_owned();
    assert_eq!(location, format!("/api/v1/runs/{}", answer.body["run_id"].as_str().unwrap()));
    assert_eq!(app.get(&location).await.assert(200).body["backfill_keys"], 2);
    let claim = app.claim().await;
    assert_eq!(claim.backfill, Some(Backfill::Keys(vec![json!(["2"]), json!(["3"])])));
    app.store.finish(&claim.lease).await.unwrap();
    assert_eq!(keys(&listed(&app, "").await), "3 2 1", "they close with the batch that succeeds");
}

#[tokio::test]
async fn a_retry_waits_for_the_active_run_and_may_be_repeated() {
    let app = started_with(&THREE).await;
    let active = app.run("films").await;
    for _ in 0..2 {
        let answer = app.post("/pipelines/films/rejects/retry").await.assert(202);
        assert_eq!((&answer.body["run_id"], &answer.body["pending"]), (&json!(active), &json!(true)));
    }
    let one = json!({"ids": [id_of(&app, "1").await]});
    app.post_json("/pipelines/films/rejects/retry", &one).await.assert_problem(409, "pipeline.pending");
    let claim = app.claim().await;
    app.store.finish(&claim.lease).await.unwrap();
    assert_eq!(app.claimed_keys().await.len(), 3);
}

#[tokio::test]
async fn a_retry_of_more_than_a_run_takes_begins_with_the_oldest() {
    let app = started_with(&THREE).await;
    app.database
        .execute(
            "insert into etl.etl_rejects (pipeline_id, key, run_id, code, message, row)
             select id, jsonb_build_array('n' || n), id, 'row.many', '', '{}'
               from etl.etl_pipelines, generate_series(1, 9998) n",
        )
        .await;
    let answer = app.post("/pipelines/films/rejects/retry").await.assert(202);
    assert_eq!((&answer.body["rejects"], &answer.body["more"]), (&json!(10_000), &json!(true)));
    let keys = app.claimed_keys().await;
    assert!(keys.len() == 10_000 && THREE.iter().all(|(key, _)| keys.contains(&json!([key]))));
}

#[tokio::test]
async fn there_is_nothing_to_retry_without_an_open_reject() {
    let app = started_with(&THREE[..1]).await;
    let nothing = json!({"code": "row.bad"});
    let answer = app.post_json("/pipelines/films/rejects/retry", &nothing).await;
    let answer = answer.assert_problem(409, "rejects.none");
    assert!(answer.body["hint"].as_str().unwrap().contains("rejects"), "{}", answer.body);
    assert_eq!(app.status("films").await, "FAILED", "no run was opened");
    app.post("/pipelines/films/disable").await.assert(200);
    app.post("/pipelines/films/rejects/retry").await.assert_problem(409, "pipeline.disabled");
}

#[rstest]
#[case(json!({"ids": []}), "/ids")]
#[case(json!({"ids": "all"}), "/ids")]
#[case(json!({"ids": [7]}), "/ids/0")]
#[case(json!({"code": 7}), "/code")]
#[case(json!({"keys": []}), "/keys")]
#[tokio::test]
async fn a_choice_that_says_nothing_clear_changes_nothing(#[case] body: Value, #[case] pointer: &str) {
    let app = started_with(&THREE[..1]).await;
    for what in ["acknowledge", "discard", "retry"] {
        let answer = app.post_json(&format!("/pipelines/films/rejects/{what}"), &body).await;
        let answer = answer.assert_problem(422, "request.invalid");
        assert_eq!(answer.faults(), [(pointer, "body.field")], "{what}: {}", answer.body);
    }
    assert_eq!(listed(&app, "").await["groups"][0]["acknowledged"], 0);
}

#[tokio::test]
async fn every_change_of_rejects_is_audited() {
    let app = started_with(&THREE).await;
    for what in ["acknowledge", "retry", "discard"] {
        let path = format!("/pipelines/films/rejects/{what}");
        let call = app.request(Method::POST, &path).header("x-request-id", what);
        send(call.json(&json!({"code": "row.bad"}))).await;
    }
    let audit = "select action, request_id, coalesce(after -> 'chosen', after) ->> 'rejects',
                        coalesce(after -> 'chosen', after) ->> 'code', after ->> 'backfill_keys'
                   from etl.etl_audit where action like 'rejects.%' order by id";
    let rows = app.database.texts(audit).await;
    let said = |what: &str, keys: Option<&str>| -> Vec<Option<String>> {
        let action = format!("rejects.{what}");
        [Some(action.as_str()), Some(what), Some("2"), Some("row.bad"), keys]
            .map(|text| text.map(str::to_owned))
            .into()
    };
    assert_eq!(rows, [said("acknowledge", None), said("retry", Some("2")), said("discard", None)]);
}

#[tokio::test]
async fn rejects_of_a_pipeline_that_is_not_there_are_404() {
    let app = App::start().await;
    app.get("/pipelines/nowhere/rejects").await.assert_problem(404, "pipeline.not_found");
    for what in ["acknowledge", "discard", "retry"] {
        let path = format!("/pipelines/nowhere/rejects/{what}");
        app.post(&path).await.assert_problem(404, "pipeline.not_found");
    }
}
