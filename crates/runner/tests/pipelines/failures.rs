use rstest::rstest;
use serde_json::{Value, json};
use vitrina_core::{RunStatus, Status};

use crate::stage::{QUERY, Stage, until};

#[rstest]
#[case::a_table_that_is_not_there(
    "select id from content.nothing",
    "sql.refused_by_source",
    "does not exist"
)]
#[case::a_column_the_mart_lacks(
    "select id, title, 1 as extra from content.film",
    "sink.extra_column",
    "its columns: id, title"
)]
#[case::no_key_column("select title from content.film", "sink.missing_key", "returns no column \"id\"")]
#[case::a_type_that_would_be_rounded_in_silence(
    "select id + 0.5 as id, title from content.film",
    "sink.type_mismatch",
    "rounded or changed in silence"
)]
#[case::a_type_the_mart_cannot_take(
    "select id, title, modified as rating from content.film",
    "sink.type_mismatch",
    "cast the column in the query"
)]
#[case::a_division_by_zero(
    "select id, (1 / (id - 2))::text as title from content.film",
    "source.refused",
    "22012"
)]
#[case::a_hidden_delete(
    "with d as (delete from content.film returning id) select id from d",
    "sql.data_modifying",
    "line 1"
)]
#[case::a_forbidden_schema(
    "select lease_token::int as id from etl.etl_pipelines",
    "sql.schema_not_allowed",
    "etl"
)]
#[tokio::test]
async fn what_cannot_pass_fails_at_once_with_the_reason(
    #[case] query: &str,
    #[case] code: &str,
    #[case] says: &str,
) {
    let stage = Stage::with_films(5).await;
    let id = stage.pipeline(json!({"source_query": query})).await;
    let (given, message) = stage.fail(id).await;
    assert_eq!(given, code, "{message}");
    assert!(message.contains(says), "{message}");
    assert_eq!((stage.count("content.film").await, stage.count("analytics.film").await), (5, 0));
    let attempts: i64 = stage.db.value("select count(*) from etl.etl_attempts").await;
    assert_eq!(attempts, 1, "no retries");
}

#[rstest]
#[case::a_mart_that_is_not_there(json!({"target_table": "analytics.nothing", "source_query": "select a.id from content.film a, content.film b"}), "sink.create_key")]
#[case::a_target_that_is_not_allowed(json!({"target_table": "public.film"}), "target.not_allowed")]
#[case::an_index_on_a_connection_that_leads_to_none(json!({"target_table": "es:film"}), "connection.url")]
#[tokio::test]
async fn a_target_that_cannot_be_written_fails_the_run(#[case] changes: Value, #[case] code: &str) {
    let stage = Stage::with_films(5).await;
    let id = stage.pipeline(changes).await;
    let run = stage.request(id).await;
    let mut settings = stage.settings("tester");
    let marts = settings.connections.0["marts"].clone();
    settings.connections.0.insert("search".into(), marts);
    vitrina_runner::Runner::new(settings, stage.store.clone()).work_off().await.unwrap();
    assert_eq!(stage.run_record(run).await.error_code.as_deref(), Some(code));
}

/// What the source or the mart says about a row that holds a secret, in whatever way it is provoked.
#[rstest]
#[case::a_cast(
    "",
    "select id, title, title::int::numeric(3,1) as rating from content.film",
    "source.refused",
    "invalid input syntax for type integer"
)]
#[case::a_date("", "select id, title::date::text as title from content.film", "source.refused", "22007")]
#[case::a_document(
    "",
    "select id, (title::jsonb)::text as title from content.film",
    "source.refused",
    "invalid input syntax for type json"
)]
#[case::a_pattern(
    "",
    "select id, regexp_replace('x', '(' || title, '') as title from content.film",
    "source.refused",
    "2201B"
)]
#[case::an_encoding(
    "",
    "select id, convert_from(decode('d03f', 'hex') || title::bytea, 'UTF8') as title from content.film",
    "source.refused",
    "22021"
)]
#[case::a_query(
    "",
    "select id, to_tsquery('english', '(' || title)::text as title from content.film",
    "source.refused",
    "42601"
)]
#[case::a_long_word(
    "",
    "select id, (title || repeat('x', 3000))::tsquery::text as title from content.film",
    "source.refused",
    "54000"
)]
#[case::a_unique_title(
    "create unique index on analytics.film (title)",
    QUERY,
    "rejects.limit",
    "film_title_idx"
)]
#[case::a_checked_title(
    "alter table analytics.film add constraint no_cards check (title !~ '4111')",
    QUERY,
    "rejects.limit",
    "no_cards"
)]
#[case::a_short_title(
    "alter table analytics.film alter title type varchar(5)",
    QUERY,
    "rejects.limit",
    "character varying(5)"
)]
#[case::a_trigger(TELLTALE, QUERY, "rejects.limit", "23514")]
#[tokio::test]
async fn messages_of_failed_runs_hold_no_row_values(
    #[case] mart: &str,
    #[case] query: &str,
    #[case] code: &str,
    #[case] says: &str,
) {
    let stage = Stage::with_films(3).await;
    stage.db.execute(&format!("update content.film set title = '4111-1111-secret'; {mart}")).await;
    let id = stage.pipeline(json!({"source_query": query})).await;
    let (given, message) = stage.fail(id).await;
    assert_eq!(given, code, "{message}");
    assert!(message.contains(says), "{message}");
    let texts = "select concat(r.error, r.error_code, (select string_agg(a::text, '') from etl.etl_attempts a), (select string_agg(message, '') from etl.etl_rejects)) from etl.etl_runs r";
    let told: String = stage.db.value(texts).await;
    let masked = vitrina_core::values::masked(&told);
    assert!(!masked.contains("4111") && !masked.contains("secret"), "{masked}");
}

/// Raises an error of its own, in a state that Postgres itself uses for constraints.
const TELLTALE: &str = "create function analytics.tell() returns trigger language plpgsql
      as 'begin raise exception using errcode = ''23514'', message = ''card '' || new.title || '' is bad''; end';
    create trigger tell before insert on analytics.film for each row execute function analytics.tell()";

#[tokio::test]
async fn one_pipelines_failure_leaves_its_neighbours_alone() {
    let stage = Stage::with_films(50).await;
    stage.db.execute("create table analytics.bad (like analytics.film including all)").await;
    let good = stage.full(10).await;
    let bad = stage
        .pipeline(
            json!({"name": "bad", "source_query": "select 1 / (id - 40) as id, title from content.film",
                   "target_table": "analytics.bad"}),
        )
        .await;
    let (good_run, bad_run) = (stage.request(good).await, stage.request(bad).await);
    stage.runner().work_off().await.unwrap();
    assert_eq!(stage.run_record(bad_run).await.status, RunStatus::Failed);
    assert_eq!(stage.run_record(good_run).await.status, RunStatus::Success);
    assert_eq!(stage.differences().await, 0);
}

#[rstest]
#[case::source("content", "source.connection_lost")]
#[case::mart("marts", "sink.connection_lost")]
#[tokio::test]
async fn a_lost_connection_gives_the_pipeline_back_instead_of_failing_it(
    #[case] connection: &str,
    #[case] code: &str,
) {
    let stage = Stage::with_films(5).await;
    let id = stage.full(10).await;
    let run = stage.request(id).await;
    let mut settings = stage.settings("cut off");
    let lost = settings.connections.0.get_mut(connection).unwrap();
    lost.url = "postgres://someone:secret@127.0.0.1:1/content".into();
    vitrina_runner::Runner::new(settings, stage.store.clone()).work_off().await.unwrap();
    assert_eq!(
        (stage.status(id).await, stage.run_record(run).await.status),
        (Status::RunRequested, RunStatus::Running)
    );
    let attempts = stage.store.attempts(run).await.unwrap();
    assert_eq!(attempts[0].error_code.as_deref(), Some(code));
    assert!(!attempts[0].error.as_ref().unwrap().contains("secret"));
    stage.db.execute("update etl.etl_pipelines set retry_at = now()").await;
    stage.runner().work_off().await.unwrap();
    assert_eq!(stage.run_record(run).await.status, RunStatus::Success);
}

#[tokio::test]
async fn what_may_pass_is_retried_and_each_try_is_recorded() {
    let stage = Stage::with_films(5).await;
    let id = stage.full(10).await;
    // A serialization failure raised twice by the mart, then no more: sequences survive a rollback.
    stage
        .db
        .execute(
            "create sequence analytics.tries;
             create function analytics.refuse() returns trigger language plpgsql as $$ begin
                 if nextval('analytics.tries') <= 2 then raise 'not now' using errcode = '40001'; end if; return null; end $$;
             create trigger refuse before insert on analytics.film for each statement execute function analytics.refuse()",
        )
        .await;
    let run = stage.succeed(id).await;
    let attempts = stage.store.attempts(run.id).await.unwrap();
    let codes: Vec<_> = attempts.iter().map(|attempt| attempt.error_code.as_deref()).collect();
    assert_eq!(codes, [Some("sink.busy"), Some("sink.busy"), None]);
    assert_eq!(stage.differences().await, 0);
}

#[tokio::test]
async fn what_does_not_pass_fails_after_three_retries_one_two_and_four_seconds_apart() {
    let stage = Stage::with_films(5).await;
    let id = stage.full(10).await;
    stage
        .db
        .execute(
            "create function analytics.refuse() returns trigger language plpgsql as $$ begin
                 raise 'not now' using errcode = '40001'; end $$;
             create trigger refuse before insert on analytics.film for each statement execute function analytics.refuse()",
        )
        .await;
    let run = stage.run(id).await;
    assert_eq!((run.status, run.error_code.as_deref()), (RunStatus::Failed, Some("sink.busy")));
    let waited = "select (extract(epoch from ended_at - started_at) >= w)::text
                    from (select *, row_number() over (order by id) - 2 as n from etl.etl_attempts) a
                    left join unnest(array[1, 2, 4]) with ordinality as w(w, n1) on n1 = n + 1 order by id";
    let waited = stage.db.texts(waited).await.concat();
    assert_eq!(waited, [None, Some("true".into()), Some("true".into()), Some("true".into())]);
}

#[tokio::test]
async fn a_row_that_a_policy_hides_is_an_error_and_not_a_delete() {
    let stage = Stage::with_films(5).await;
    let id = stage.full(10).await;
    stage.succeed(id).await;
    let role = format!("reader_{}", stage.db.name());
    stage
        .db
        .execute(&format!(
            "create role {role} login password 'secret'; grant usage on schema content to {role}; grant select on content.film to {role};
             alter table content.film enable row level security; create policy few on content.film using (id < 3)"
        ))
        .await;
    let mut settings = stage.settings("reader");
    settings.connections.0.get_mut("content").unwrap().url = stage.db.url_as(&role, "secret").into();
    let run = stage.request(id).await;
    vitrina_runner::Runner::new(settings, stage.store.clone()).work_off().await.unwrap();
    let failed = stage.run_record(run).await;
    assert_eq!(failed.error_code.as_deref(), Some("sql.refused_by_source"));
    assert!(failed.error.unwrap().contains("row-level security"));
    assert_eq!(stage.count("analytics.film").await, 5);
    stage.db.execute(&format!("drop owned by {role}; drop role {role}")).await;
}

#[tokio::test]
async fn a_runner_tells_at_its_start_which_connections_do_not_work() {
    let stage = Stage::with_films(1).await;
    let mut settings = stage.settings("looker");
    settings.connections.0.get_mut("content").unwrap().url =
        "postgres://someone:secret@127.0.0.1:1/content".into();
    let shutdown = tokio_util::sync::CancellationToken::new();
    let runner = vitrina_runner::Runner::new(settings, stage.store.clone());
    let mut tasks = tokio::task::JoinSet::new();
    let token = shutdown.clone();
    tasks.spawn(async move { runner.run(token).await.unwrap() });
    let found = "select health::text from etl.etl_runners where health <> '{}'";
    until(async || !stage.db.texts(found).await.is_empty()).await;
    let health: Value = serde_json::from_str(stage.db.texts(found).await[0][0].as_ref().unwrap()).unwrap();
    assert_eq!(health, json!({"content": "unreachable", "marts": null}));
    shutdown.cancel();
    tasks.join_next().await.unwrap().unwrap();
}

#[tokio::test]
async fn a_plan_that_breaks_its_contract_never_begins() {
    let stage = Stage::with_films(5).await;
    let id = stage.full(10).await;
    stage
        .db
        .execute(&format!(
            "insert into etl.etl_pipeline_tasks (pipeline_id, order_index, task_type, body, target_table)
             values ('{id}', 1, 'SQL', 'select id, title from content.film', 'analytics.film'),
                    ('{id}', 2, 'SQL', 'select 1', null)"
        ))
        .await;
    let (code, message) = stage.fail(id).await;
    assert_eq!(code, "plan.later_not_python", "{message}");
    assert!(
        message.contains("only the last step may name a target_table"),
        "all violations at once: {message}"
    );
}
