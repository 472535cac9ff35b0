//! Values arrive as they are or not at all: nothing is rounded, cut or left out without a word.

use rstest::rstest;
use serde_json::json;

use crate::stage::Stage;

async fn with_columns(source: &str, mart: &str) -> Stage {
    let stage = Stage::empty().await;
    stage
        .db
        .execute(&format!(
            "create schema content; create schema analytics;
             create table content.thing (id int primary key, v {source}); create table analytics.thing (id int primary key, v {mart});
             insert into etl.etl_targets (name, key) values ('analytics.thing', '{{id}}')"
        ))
        .await;
    stage
}

#[rstest]
#[case::a_numeric("numeric", "numeric(6,2)", "1.239")]
#[case::a_wider_numeric("numeric(8,3)", "numeric(6,2)", "1.239")]
#[case::a_timestamp("timestamp", "timestamp(0)", "2024-12-31 23:59:59.7")]
#[case::a_timestamp_with_zone("timestamptz(6)", "timestamptz(3)", "2024-12-31 23:59:59.99999Z")]
#[case::a_time("time", "time(0)", "23:59:59.9")]
#[case::an_interval("interval", "interval(0)", "1.5 s")]
#[case::fields_of_an_interval("interval", "interval hour to minute", "90 s")]
#[case::an_array("numeric[]", "numeric(6,2)[]", "{1.239}")]
#[case::a_text("text", "numeric(6,2)", "1.239")]
#[case::a_large_integer("bigint", "double precision", "9007199254740993")]
#[case::an_address("inet", "cidr", "10.0.0.1/8")]
#[case::a_number_in_a_text("text", "double precision", "0.1234567890123456789")]
#[case::a_day_in_a_text("text", "date", "2026-01-01 10:00")]
#[case::a_document("json", "jsonb", "{\"a\": 1, \"a\": 2}")]
#[case::what_pads_a_text("char(5)", "text", "ab")]
#[case::texts("text[]", "varchar(3)[]", "{\"abc  \"}")]
#[case::a_truth("boolean", "int", "true")]
#[tokio::test]
async fn a_mart_that_would_round_is_refused_until_the_query_says_so(
    #[case] source: &str,
    #[case] mart: &str,
    #[case] value: &str,
) {
    let stage = with_columns(source, mart).await;
    stage.db.execute(&format!("insert into content.thing values (1, '{value}')")).await;
    let pipeline = async |name: &str, query: String| {
        stage.pipeline(json!({"name": name, "source_query": query, "target_table": "analytics.thing"})).await
    };
    let id = pipeline("silent", "select id, v from content.thing".to_owned()).await;
    let (code, message) = stage.fail(id).await;
    assert!(
        code == "sink.type_mismatch" && message.contains("hint: cast the column in the query"),
        "{code} {message}"
    );
    assert_eq!(stage.count("analytics.thing").await, 0);
    stage.delete(id).await;
    let id = pipeline("said", format!("select id, v::{mart} as v from content.thing")).await;
    stage.succeed(id).await;
    let same =
        format!("select (select v from analytics.thing)::text = (select v::{mart} from content.thing)::text");
    assert!(stage.db.value::<bool>(&same).await);
}

#[tokio::test]
async fn a_domain_of_the_mart_rounds_no_less_than_its_type() {
    let stage = Stage::empty().await;
    stage
        .db
        .execute(
            "create schema content; create schema analytics; create domain analytics.money2 as numeric(6,2); create domain analytics.price as analytics.money2;
             create table content.thing (id int primary key, v numeric); create table analytics.thing (id int primary key, v analytics.price)",
        )
        .await;
    let id = stage
        .pipeline(
            json!({"source_query": "select id, v from content.thing", "target_table": "analytics.thing"}),
        )
        .await;
    assert_eq!(stage.fail(id).await.0, "sink.type_mismatch");
}

#[tokio::test]
async fn a_source_that_is_widened_later_is_refused_at_the_next_run() {
    let stage = with_columns("numeric(6,2)", "numeric(6,2)").await;
    stage.db.execute("insert into content.thing values (1, 1.23)").await;
    let id = stage
        .pipeline(
            json!({"source_query": "select id, v from content.thing", "target_table": "analytics.thing"}),
        )
        .await;
    stage.succeed(id).await;
    stage
        .db
        .execute("alter table content.thing alter v type numeric(8,4); update content.thing set v = 1.2345")
        .await;
    assert_eq!(stage.fail(id).await.0, "sink.type_mismatch");
}

#[rstest]
#[case::a_composite_type("analytics.pair", "a numeric, b numeric")]
#[case::an_array_of_domains("analytics.money2[]", "a numeric")]
#[tokio::test]
async fn a_type_whose_parts_are_not_seen_is_refused(#[case] mart: &str, #[case] fields: &str) {
    let stage = Stage::empty().await;
    stage
        .db
        .execute(&format!(
            "create schema content; create schema analytics; create domain analytics.money2 as numeric(6,2);
             create type analytics.pair as ({fields});
             create table content.thing (id int primary key, v {mart}); create table analytics.thing (id int primary key, v {mart})"
        ))
        .await;
    let config =
        json!({"source_query": "select id, v from content.thing", "target_table": "analytics.thing"});
    let id = stage.pipeline(config).await;
    assert_eq!(stage.fail(id).await.0, "sink.type_mismatch");
}

#[rstest]
#[case::directly(json!({}), false)]
#[case::through_staging(json!({"batch_size": 1}), true)]
#[case::in_one_batch(json!({}), true)]
#[tokio::test]
async fn a_text_whose_last_spaces_do_not_fit_is_a_reject(
    #[case] changes: serde_json::Value,
    #[case] is_filled: bool,
) {
    let stage = with_columns("text", "varchar(3)").await;
    stage
        .db
        .execute("insert into content.thing values (1, 'abc'), (2, 'abc '), (3, 'äöü'), (4, 'ab ')")
        .await;
    if is_filled {
        stage.db.execute("insert into analytics.thing values (2, 'old')").await;
    }
    let mut config = json!({"source_query": "select id, v from content.thing", "target_table": "analytics.thing", "reject_limit": 1});
    config.as_object_mut().unwrap().extend(changes.as_object().unwrap().clone());
    let id = stage.pipeline(config).await;
    stage.succeed(id).await;
    assert_eq!(stage.rejects().await, [("row.too_long".to_owned(), "[\"2\"]".to_owned())]);
    let kept: String =
        stage.db.value("select string_agg(id || v, ',' order by id) from analytics.thing").await;
    assert_eq!(kept, if is_filled { "1abc,2old,3äöü,4ab " } else { "1abc,3äöü,4ab " });
}

#[rstest]
#[case::directly(json!({"batch_size": 10}), false)]
#[case::through_staging(json!({"batch_size": 10, "first_load": "staged"}), false)]
#[case::into_a_filled_mart(json!({}), true)]
#[tokio::test]
async fn rows_that_a_trigger_of_the_mart_leaves_out_are_not_counted_as_written(
    #[case] changes: serde_json::Value,
    #[case] is_filled: bool,
) {
    let stage = Stage::with_films(35).await;
    stage
        .db
        .execute(
            "create function analytics.leave_out() returns trigger language plpgsql as $$ begin if new.id % 5 = 0 then return null; end if; return new; end $$;
             create trigger leave_out before insert on analytics.film for each row execute function analytics.leave_out()",
        )
        .await;
    if is_filled {
        stage.db.execute("insert into analytics.film (id, title) values (1, 'old')").await;
    }
    let id = stage.pipeline(changes).await;
    let run = stage.succeed(id).await;
    assert_eq!((run.rows_read, run.rows_written, run.rows_unchanged), (35, 28, 0));
    assert_eq!(stage.count("analytics.film").await, 28);
}

#[tokio::test]
async fn after_a_crash_that_empties_an_unlogged_mart_its_checkpoint_does_not_count() {
    let stage = Stage::on_a_server_of_its_own(50).await;
    stage.db.execute("alter table analytics.film set unlogged").await;
    let id = stage.incremental(10).await;
    stage.succeed(id).await;
    stage.db.execute("update content.film set title = 'New', modified = now() where id = 7").await;
    assert_eq!(stage.succeed(id).await.rows_written, 1, "its checkpoint counts until then");
    let stage = stage.crash().await;
    assert_eq!(stage.count("analytics.film").await, 0, "the crash took the rows");
    assert_eq!(stage.succeed(id).await.rows_written, 50);
    assert_eq!(stage.differences().await, 0);
    let stage = stage.crash().await;
    stage.db.execute("alter table analytics.film set logged").await;
    assert_eq!(stage.succeed(id).await.rows_written, 50, "nor where it is unlogged no more");
    let stage = stage.crash().await;
    assert_eq!((stage.succeed(id).await.rows_written, stage.differences().await), (0, 0));
}
