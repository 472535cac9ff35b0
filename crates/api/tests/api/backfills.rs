//! Runs over a list of keys: what a key may look like, and what such a run is never taken for (DESIGN §5).

use reqwest::Method;
use rstest::rstest;
use serde_json::{Value, json};
use vitrina_core::{Backfill, CursorRange};

use crate::app::{Answer, App, QUERY, send};

async fn started() -> App {
    let app = App::start().await;
    app.create_pipeline("films").await;
    app
}

async fn run_with(app: &App, body: &Value) -> Answer {
    app.post_json("/pipelines/films/run", body).await
}

async fn run_keyed(app: &App, key: &str, body: &Value) -> Answer {
    let call = app.request(Method::POST, "/pipelines/films/run").header("idempotency-key", key);
    send(call.json(body)).await
}

#[tokio::test]
async fn a_backfill_reads_each_of_its_keys_once_and_is_shown_by_their_number() {
    let app = started().await;
    let keys = json!([7, ["8"], "9", [7], -5, [9_223_372_036_854_775_807_u64]]);
    let run = run_with(&app, &json!({"keys": keys})).await.assert(202).body["run_id"].clone();
    let claimed = app.claimed_keys().await;
    assert_eq!(json!(claimed), json!([["-5"], ["7"], ["8"], ["9"], ["9223372036854775807"]]));
    let shown = app.get(&format!("/runs/{}", run.as_str().unwrap())).await.assert(200).body;
    assert_eq!((&shown["backfill_keys"], &shown["keys"]), (&json!(5), &Value::Null));
    let status = app.get("/pipelines/films/status").await.body;
    assert_eq!(status["active_run"]["backfill_keys"], 5);
    let audited = app.database.texts("select after ->> 'backfill_keys' from etl.etl_audit order by id").await;
    assert_eq!(audited[1][0].as_deref(), Some("5"));
}

#[tokio::test]
async fn a_run_without_keys_is_no_backfill() {
    let app = started().await;
    run_with(&app, &json!({"keys": null})).await.assert(202);
    let status = app.get("/pipelines/films/status").await.body;
    assert_eq!(status["active_run"]["backfill_keys"], Value::Null);
    assert_eq!(app.claim().await.backfill, None);
}

#[rstest]
#[case::no_list(json!("7"), "/keys")]
#[case::empty(json!([]), "/keys")]
#[case::too_many((0..10_001).collect(), "/keys")]
#[case::fraction(json!([1, 1.5]), "/keys/1")]
#[case::more_digits_than_a_number_keeps(json!([1e20]), "/keys/0")]
#[case::boolean(json!([true]), "/keys/0")]
#[case::null(json!([null]), "/keys/0")]
#[case::object(json!([{"id": 7}]), "/keys/0")]
#[case::empty_key(json!([["1"], []]), "/keys/1")]
#[case::list_in_a_key(json!([["1", ["2"]]]), "/keys/0/1")]
#[case::fraction_in_a_key(json!([["1", 2], ["1", 2.5]]), "/keys/1/1")]
#[tokio::test]
async fn keys_of_another_shape_are_pointed_at(#[case] keys: Value, #[case] pointer: &str) {
    let app = started().await;
    let answer = run_with(&app, &json!({"keys": keys})).await.assert_problem(422, "request.invalid");
    assert_eq!(answer.faults(), [(pointer, "body.field")], "{}", answer.body);
    assert_eq!(app.status("films").await, "IDLE");
}

#[tokio::test]
async fn ten_thousand_keys_are_not_too_many() {
    let app = started().await;
    run_with(&app, &json!({"keys": (0..10_000).collect::<Vec<_>>()})).await.assert(202);
}

#[tokio::test]
async fn a_key_has_a_value_for_each_column_of_the_targets_key() {
    let app = started().await;
    let keys = json!({"keys": [["1", null], "2"]});
    let answer = run_with(&app, &keys).await.assert_problem(422, "request.invalid");
    assert_eq!(answer.faults(), [("/keys/0", "backfill.key")], "the query proves (id)");
    let describe = "insert into etl.etl_targets (name, key) values ('analytics.film_dim', '{film_id,lang}')";
    app.database.execute(describe).await;
    let answer = run_with(&app, &json!({"keys": ["1"]})).await.assert_problem(422, "request.invalid");
    assert_eq!(answer.faults(), [("/keys/0", "backfill.key")]);
    assert!(answer.body["errors"][0]["detail"].as_str().unwrap().contains("(film_id, lang)"));
    run_with(&app, &json!({"keys": [["1", null]]})).await.assert(202);
    assert_eq!(app.claimed_keys().await, vec![json!(["1", null])]);
}

#[tokio::test]
async fn a_backfill_has_no_mode() {
    let app = started().await;
    let answer = run_with(&app, &json!({"mode": "full", "keys": ["1"]})).await;
    assert_eq!(answer.assert_problem(422, "request.invalid").faults(), [("/mode", "backfill.mode")]);
}

#[tokio::test]
async fn a_backfill_never_joins_a_run_that_does_something_else() {
    let app = started().await;
    app.run("films").await;
    run_with(&app, &json!({"keys": ["1"]})).await.assert_problem(409, "pipeline.active");
    app.claim().await;
    run_with(&app, &json!({"keys": ["1"]})).await.assert_problem(409, "pipeline.active");
}

#[tokio::test]
async fn only_an_empty_or_equal_request_joins_a_backfill() {
    let app = started().await;
    let run = run_with(&app, &json!({"keys": ["1", 2]})).await.assert(202).body["run_id"].clone();
    for same in [json!({"keys": [["2"], "1", "1"]}), json!({})] {
        let joined = run_with(&app, &same).await.assert(202);
        assert_eq!((&joined.body["run_id"], &joined.body["pending"]), (&run, &json!(false)), "{same}");
    }
    for other in [json!({"keys": ["1"]}), json!({"keys": ["1", "3"]}), json!({"mode": "full"})] {
        run_with(&app, &other).await.assert_problem(409, "pipeline.active");
    }
}

#[tokio::test]
async fn a_request_is_not_lost_behind_a_backfill_that_waits() {
    let app = started().await;
    app.run("films").await;
    let claim = app.claim().await;
    for keys in [["1", "2"], ["2", "1"]] {
        let waiting = run_with(&app, &json!({"on_active": "after", "keys": keys})).await.assert(202);
        assert_eq!(waiting.body["pending"], true);
    }
    for other in [json!({}), json!({"mode": "full"}), json!({"keys": ["1"]})] {
        let mut after = other.clone();
        after["on_active"] = json!("after");
        run_with(&app, &after).await.assert_problem(409, "pipeline.pending");
    }
    app.store.finish(&claim.lease).await.unwrap();
    assert_eq!(app.claimed_keys().await, vec![json!(["1"]), json!(["2"])]);
}

#[tokio::test]
async fn a_backfill_is_not_lost_behind_a_run_that_waits() {
    let app = started().await;
    app.run("films").await;
    app.claim().await;
    run_with(&app, &json!({"on_active": "after"})).await.assert(202);
    let backfill = json!({"on_active": "after", "keys": ["1"]});
    run_with(&app, &backfill).await.assert_problem(409, "pipeline.pending");
}

#[tokio::test]
async fn an_idempotency_key_stands_for_one_list_of_keys() {
    let app = started().await;
    let first = run_keyed(&app, "k", &json!({"keys": ["1", "2"]})).await.assert(202);
    let again = run_keyed(&app, "k", &json!({"keys": ["2", "1"]})).await.assert(202);
    assert_eq!(again.body["run_id"], first.body["run_id"]);
    for other in [json!({"keys": ["1"]}), json!({"mode": "full"})] {
        run_keyed(&app, "k", &other).await.assert_problem(409, "idempotency_key.reused");
    }
    let claim = app.claim().await;
    let waiting = |keys: &[&str]| json!({"keys": keys, "on_active": "after"});
    run_keyed(&app, "k2", &waiting(&["3"])).await.assert(202);
    run_keyed(&app, "k2", &waiting(&["4"])).await.assert_problem(409, "idempotency_key.reused");
    app.store.finish(&claim.lease).await.unwrap();
    run_keyed(&app, "k", &json!({"keys": ["1"]})).await.assert_problem(409, "idempotency_key.reused");
}

async fn started_with_a_cursor() -> App {
    let app = App::start().await;
    let body = json!({"name": "films", "target_table": "analytics.film_dim", "source_query": QUERY,
                      "incremental_key": "modified", "incremental_id_key": "id"});
    app.post_json("/pipelines", &body).await.assert(201);
    app
}

#[tokio::test]
async fn a_backfill_over_a_range_is_shown_with_its_ends() {
    let app = started_with_a_cursor().await;
    let run = run_with(&app, &json!({"from": "2026-01-01", "to": 20270101})).await.assert(202).body["run_id"]
        .clone();
    let shown = app.get(&format!("/runs/{}", run.as_str().unwrap())).await.assert(200).body;
    assert_eq!(shown["backfill_range"], json!({"from": "2026-01-01", "to": "20270101", "at": null}));
    let range = CursorRange { from: Some("2026-01-01".into()), to: Some("20270101".into()), at: None };
    assert_eq!(app.claim().await.backfill, Some(Backfill::Range(range)));
    run_with(&app, &json!({"from": "2026-01-01", "to": "20270101"})).await.assert(202);
    run_with(&app, &json!({"from": "2026-01-02", "to": "20270101"})).await.assert(409);
    run_with(&app, &json!({"mode": "full"})).await.assert(409);
}

#[rstest]
#[case::with_keys(json!({"from": "1", "keys": [1]}), 422, "backfill.both")]
#[case::with_a_mode(json!({"from": "1", "mode": "full"}), 422, "backfill.mode")]
#[case::with_a_decision(json!({"to": "1", "checkpoint": "reset"}), 422, "backfill.checkpoint")]
#[tokio::test]
async fn a_range_stands_alone(#[case] body: Value, #[case] status: u16, #[case] code: &str) {
    let app = started_with_a_cursor().await;
    let answer = run_with(&app, &body).await.assert(status);
    assert_eq!(answer.body["errors"][0]["code"], code, "{}", answer.body);
}

#[rstest]
#[case::empty(json!({"from": " "}), "/from")]
#[case::fraction(json!({"to": 1.5}), "/to")]
#[case::with_a_nul(json!({"to": "7\u{0}"}), "/to")]
#[tokio::test]
async fn an_end_of_a_range_that_is_no_value_is_pointed_at(#[case] body: Value, #[case] pointer: &str) {
    let app = started_with_a_cursor().await;
    let answer = run_with(&app, &body).await.assert(422);
    assert_eq!(answer.body["errors"][0]["pointer"], pointer, "{}", answer.body);
}

#[tokio::test]
async fn a_range_needs_a_cursor() {
    let app = started().await;
    let answer = run_with(&app, &json!({"from": "1"})).await.assert(422);
    assert_eq!(answer.body["errors"][0]["pointer"], "/from", "{}", answer.body);
}

#[rstest]
#[case::of_a_table(json!({"rollback": true}), "rollback.no_index")]
#[case::with_a_mode(json!({"rollback": true, "mode": "full"}), "rollback.alone")]
#[case::with_keys(json!({"rollback": true, "keys": [1]}), "rollback.alone")]
#[tokio::test]
async fn only_an_index_goes_back_and_that_alone(#[case] body: Value, #[case] code: &str) {
    let app = started().await;
    let answer = run_with(&app, &body).await.assert(422);
    assert_eq!(
        (&answer.body["errors"][0]["code"], &answer.body["errors"][0]["pointer"]),
        (&json!(code), &json!("/rollback"))
    );
}

#[tokio::test]
async fn a_value_that_no_key_can_have_is_pointed_at_before_a_run_is_requested() {
    let app = started().await;
    app.database
        .execute("insert into etl.etl_targets (name, key) values ('analytics.film_dim', '{id}')")
        .await;
    let mistyped = json!({"keys": [1, 2, "3", "4x", 5, "six"]});
    let answer = run_with(&app, &mistyped).await.assert_problem(422, "request.invalid");
    assert_eq!(answer.faults(), [("/keys/3", "backfill.key")]);
    assert!(answer.body["errors"][0]["detail"].as_str().unwrap().contains("id is not of type bigint"));
    assert_eq!(app.status("films").await, "IDLE");
    run_with(&app, &json!({"keys": [" 7 ", "8"]})).await.assert(202);
}

/// Such a backfill ended in SUCCESS and had read nothing.
#[rstest]
#[case::text("abc")]
#[case::fraction("3.5")]
#[case::nothing("")]
#[case::the_word_null("null")]
#[case::out_of_range("99999999999999999999")]
#[tokio::test]
async fn a_value_that_no_key_can_have_is_pointed_at_where_nobody_has_described_the_target(#[case] key: &str) {
    let app = started().await;
    let keys = json!({"keys": ["1", key]});
    let answer = run_with(&app, &keys).await.assert_problem(422, "request.invalid");
    let error = &answer.body["errors"][0];
    assert_eq!((&error["pointer"], &error["code"]), (&json!("/keys/1"), &json!("backfill.key")), "{error}");
    assert!(error["hint"].as_str().unwrap().contains("describe the target"), "{error}");

    // A run has found the mart, and its key is another.
    let found = r#"{"position": {"done": {"bound": ["2026-01-01 00:00:00+00", "1"]}}, "config_hash": "h", "key": ["title"]}"#;
    app.database.execute(&format!("update etl.etl_state set checkpoint = '{found}'")).await;
    run_with(&app, &keys).await.assert(202);
}

#[tokio::test]
async fn keys_are_of_the_type_of_the_key_that_the_last_run_has_found() {
    let app = started().await;
    let found = r#"{"position": {"done": {"bound": ["2026-01-01 00:00:00+00", "1"]}}, "config_hash": "h", "key": ["modified"]}"#;
    app.database.execute(&format!("update etl.etl_state set checkpoint = '{found}'")).await;
    let answer = run_with(&app, &json!({"keys": ["n"]})).await.assert_problem(422, "request.invalid");
    assert!(
        answer.body["errors"][0]["detail"].as_str().unwrap().contains("its value for modified"),
        "{}",
        answer.body
    );
    let unknown = found.replace(r#", "key": ["modified"]"#, "");
    app.database.execute(&format!("update etl.etl_state set checkpoint = '{unknown}'")).await;
    run_with(&app, &json!({"keys": ["n"]})).await.assert(202);
}

/// The server's own style took it for another day than the run, or for one where the run finds none.
#[tokio::test]
async fn keys_and_ends_of_ranges_are_read_in_the_style_that_runs_read_them_in() {
    let app = started_with_a_cursor().await;
    let found = r#"{"position": {"done": {"bound": ["2026-01-01 00:00:00+00", "1"]}}, "config_hash": "h", "key": ["modified"]}"#;
    app.database.execute(&format!("update etl.etl_state set checkpoint = '{found}'")).await;
    for (body, fault) in [
        (json!({"keys": ["3/14/2026"]}), ("/keys/0", "backfill.key")),
        (json!({"from": "3/14/2026"}), ("/from", "backfill.range")),
    ] {
        let answer = run_with(&app, &body).await.assert_problem(422, "request.invalid");
        assert_eq!(answer.faults(), [fault], "{}", answer.body);
    }
    run_with(&app, &json!({"keys": ["2026-03-14"]})).await.assert(202);
}

#[tokio::test]
async fn a_range_that_ends_before_it_begins_is_refused() {
    let app = started_with_a_cursor().await;
    let reversed = json!({"from": "2026-02-01", "to": "2026-01-31 23:59:59.999"});
    let answer = run_with(&app, &reversed).await.assert_problem(422, "request.invalid");
    assert_eq!(answer.faults(), [("/from", "backfill.range")], "{}", answer.body);
    assert!(answer.body["errors"][0]["detail"].as_str().unwrap().contains("from is greater than to"));
    run_with(&app, &json!({"from": "2026-01-31", "to": "2026-01-31"})).await.assert(202);
}

#[rstest]
#[case::the_beginning(json!({"from": "yesterdey"}), "/from")]
#[case::the_end(json!({"from": "2026-01-01", "to": "2026-02-30"}), "/to")]
#[tokio::test]
async fn an_end_of_a_range_that_is_no_value_of_the_cursor_is_pointed_at(
    #[case] range: Value,
    #[case] pointer: &str,
) {
    let app = App::start().await;
    let pipeline = json!({
        "name": "films", "target_table": "analytics.film_dim", "source_query": QUERY, "mode": "incremental",
        "incremental_key": "modified", "incremental_id_key": "id",
    });
    app.post_json("/pipelines", &pipeline).await.assert(201);
    let answer = run_with(&app, &range).await.assert_problem(422, "request.invalid");
    assert_eq!(answer.faults(), [(pointer, "backfill.range")], "{}", answer.body);
    assert_eq!(app.status("films").await, "IDLE");
}

#[tokio::test]
async fn keys_are_taken_as_they_are_while_their_source_is_away() {
    let app = App::start_away().await;
    app.create_pipeline("films").await;
    app.database
        .execute("insert into etl.etl_targets (name, key) values ('analytics.film_dim', '{id}')")
        .await;
    run_with(&app, &json!({"keys": ["4x"]})).await.assert(202);
}
