//! What is told of a run, as the meta-store keeps it (R-OPS-1).

use serde_json::{Value, json};
use tracing::subscriber::DefaultGuard;
use tracing_subscriber::layer::SubscriberExt;
use vitrina_core::{PipelineId, RunId, RunStatus, Status};
use vitrina_runner::{RunLog, Runner};
use vitrina_store::LogRecord;

use crate::stage::Stage;

/// A runner whose runs are heard, and the ear: tests have one thread each.
fn listening(stage: &Stage) -> (Runner, DefaultGuard) {
    let log = RunLog::new();
    let ear = vitrina_testbed::capture_logs(tracing_subscriber::registry().with(log.layer()));
    (stage.runner().with_run_log(log), ear)
}

async fn lines(stage: &Stage, run: RunId) -> Vec<LogRecord> {
    stage.store.logs(run, None, 1000).await.unwrap()
}

fn messages(lines: &[LogRecord]) -> Vec<&str> {
    lines.iter().map(|line| line.message.as_str()).collect()
}

fn one<'a>(lines: &'a [LogRecord], message: &str) -> &'a LogRecord {
    lines.iter().find(|line| line.message == message).unwrap_or_else(|| panic!("{message}: {lines:#?}"))
}

#[track_caller]
fn has_numbers(line: &LogRecord, names: &[&str]) {
    for name in names {
        assert!(line.fields.get(*name).is_some_and(Value::is_u64), "{name}: {line:?}");
    }
}

async fn run(stage: &Stage, id: PipelineId) -> Vec<LogRecord> {
    let run = stage.request(id).await;
    let (runner, _ear) = listening(stage);
    runner.work_off().await.unwrap();
    lines(stage, run).await
}

#[tokio::test]
async fn the_log_of_a_run_marks_the_pipeline_that_has_its_mart() {
    let stage = Stage::with_films(3).await;
    let first = stage.incremental(10).await;
    stage.succeed(first).await;
    let second = super::owners::second_pipeline(&stage).await;
    let lines = run(&stage, second).await;
    let failed = one(&lines, "the run failed");
    assert_eq!(failed.fields["error_code"], "sink.owned");
    let error = failed.fields["error"].as_str().unwrap();
    let marked = error.starts_with('\u{fdd2}') && error.ends_with('\u{fdd3}');
    assert!(marked && error.contains("is written by pipeline film"), "{error:?}");
}

#[tokio::test]
async fn a_backfill_warns_of_keys_that_can_be_of_no_row() {
    let stage = Stage::with_films(3).await;
    let id = stage.incremental(10).await;
    stage.succeed(id).await;
    let run = stage.request_keys(id, json!([["1"], ["abc"], ["3.5"]])).await;
    let (runner, _ear) = listening(&stage);
    runner.work_off().await.unwrap();
    let lines = lines(&stage, run).await;
    let warning = one(&lines, "2 of the keys can be of no row: they are no values of id");
    assert_eq!((warning.level.as_str(), &warning.fields["keys"]), ("warn", &json!(2)));
}

#[tokio::test]
async fn a_run_leaves_its_start_its_batches_and_its_end_in_its_log() {
    let stage = Stage::with_films(25).await;
    let id = stage.full(10).await;
    let lines = run(&stage, id).await;
    let told = ["run started", "batch done", "batch done", "batch done", "status changed", "run ended"];
    assert_eq!(messages(&lines), told, "{lines:#?}");
    assert!(lines.iter().all(|line| line.level == "info" && line.pipeline_id == id));
    for (number, batch) in lines[1..4].iter().enumerate() {
        assert_eq!(batch.fields["batch"], number as u64 + 1);
        has_numbers(
            batch,
            &["rows_read", "rows_written", "read_ms", "transform_ms", "write_ms", "batch_ms", "run_ms"],
        );
    }
    let ended = &lines[5].fields;
    assert_eq!(
        (&ended["result"], &ended["was"], &ended["status"]),
        (&"SUCCESS".into(), &"RUNNING".into(), &"IDLE".into())
    );
    assert_eq!(
        (&ended["batches"], &ended["rows_read"], &ended["rows_written"]),
        (&3.into(), &25.into(), &25.into())
    );
    let behind = stage.store.logs(lines[0].run_id, Some(lines[3].id), 1).await.unwrap();
    assert_eq!(messages(&behind), ["status changed"], "page by page");
}

#[tokio::test]
async fn a_failed_run_says_why_in_its_log_without_values_of_rows() {
    let stage = Stage::with_films(5).await;
    stage.db.execute("update content.film set title = '4111-1111-secret'").await;
    let query = "select id, title, title::int::numeric(3,1) as rating from content.film";
    let id = stage.pipeline(serde_json::json!({"source_query": query})).await;
    let lines = run(&stage, id).await;
    let failed = one(&lines, "the run failed");
    assert_eq!((failed.level.as_str(), &failed.fields["error_code"]), ("error", &"source.refused".into()));
    has_numbers(failed, &["rows_read", "rows_written", "run_ms"]);
    let ended = &one(&lines, "run ended").fields;
    assert_eq!((&ended["result"], &ended["error_code"]), (&"FAILED".into(), &"source.refused".into()));
    assert!(!format!("{lines:?}").contains("4111"));
}

#[tokio::test]
async fn a_retry_is_in_the_log_with_its_reason() {
    let stage = Stage::with_films(5).await;
    let id = stage.full(10).await;
    stage
        .db
        .execute(
            "create sequence analytics.tries;
             create function analytics.refuse() returns trigger language plpgsql as $$ begin
                 if nextval('analytics.tries') = 1 then raise exception 'busy' using errcode = '40001'; end if;
                 return null; end $$;
             create trigger refuse before insert on analytics.film for each statement execute function analytics.refuse()",
        )
        .await;
    let lines = run(&stage, id).await;
    let failed = one(&lines, "an attempt failed and will be repeated");
    assert_eq!((failed.level.as_str(), &failed.fields["attempt"]), ("warn", &1.into()));
    assert!(failed.fields["error_code"].is_string());
    assert_eq!(one(&lines, "attempt started").fields["attempt"], 2);
    assert_eq!(one(&lines, "run ended").fields["result"], "SUCCESS");
}

#[tokio::test]
async fn a_pause_and_a_lost_connection_are_in_the_log() {
    let stage = Stage::with_films(50).await;
    let id = stage.full(10).await;
    let log = RunLog::new();
    let _ear = vitrina_testbed::capture_logs(tracing_subscriber::registry().with(log.layer()));
    let blocker = stage.block_mart().await;
    let first = stage.request(id).await;
    let mut running = tokio::task::JoinSet::new();
    let runner = stage.runner().with_run_log(log.clone());
    running.spawn(async move { runner.work_off().await.unwrap() });
    stage.someone_waits_for_the_mart().await;
    stage.pause_unheard(id).await;
    blocker.batch_execute("commit").await.unwrap();
    running.join_next().await.unwrap().unwrap();
    let paused = lines(&stage, first).await;
    let ended = &one(&paused, "run ended").fields;
    assert_eq!((&ended["result"], &ended["was"]), (&"PAUSED".into(), &"PAUSE_REQUESTED".into()));

    let second = stage.request(id).await;
    let mut settings = stage.settings("cut off");
    settings.connections.0.get_mut("content").unwrap().url =
        "postgres://someone:secret@127.0.0.1:1/content".into();
    Runner::new(settings, stage.store.clone()).with_run_log(log).work_off().await.unwrap();
    assert_eq!(stage.status(id).await, Status::RunRequested);
    let released = lines(&stage, second).await;
    let given_back = one(&released, "the pipeline is given back");
    assert_eq!(
        (given_back.level.as_str(), &given_back.fields["error_code"]),
        ("warn", &"source.connection_lost".into())
    );
    assert!(one(&released, "run ended").fields.get("result").is_none(), "the run goes on elsewhere");
    assert!(!format!("{released:?}").contains("secret"));
}

#[tokio::test]
async fn a_log_that_cannot_be_written_costs_no_run_and_says_what_it_lacks() {
    let stage = Stage::with_films(5).await;
    let id = stage.full(10).await;
    let log = RunLog::new();
    let _ear = vitrina_testbed::capture_logs(tracing_subscriber::registry().with(log.layer()));
    let runner = stage.runner().with_run_log(log);
    stage.db.execute("alter table etl.etl_logs rename to gone").await;
    let unheard = stage.request(id).await;
    runner.work_off().await.unwrap();
    assert_eq!(stage.run_record(unheard).await.status, RunStatus::Success);
    stage.db.execute("alter table etl.gone rename to etl_logs").await;
    let heard = stage.request(id).await;
    runner.work_off().await.unwrap();
    assert_eq!(lines(&stage, heard).await.len(), 4);
    let unheard = lines(&stage, unheard).await;
    assert_eq!(messages(&unheard), ["lines are missing here; the log of the runner has them"]);
    assert_eq!((&unheard[0].fields["lines"], unheard[0].level.as_str()), (&4.into(), "warn"));
}
