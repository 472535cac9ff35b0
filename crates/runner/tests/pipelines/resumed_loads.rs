//! Which run continues a load that was left open, and which one begins it anew.

use std::time::Duration;

use rstest::rstest;
use serde_json::json;
use tracing_subscriber::layer::SubscriberExt;
use vitrina_core::{Mode, OnActive, PipelineId, RunStatus};
use vitrina_runner::{RunLog, Runner, RunnerSettings};
use vitrina_store::RunRequest;

use crate::loads::pause_behind_the_first_batch;
use crate::stage::Stage;

/// A load of 30 films in batches of 10 that fails in its third batch, and a source that changes then.
async fn fail_in_the_third_batch(stage: &Stage, id: PipelineId) {
    stage.db.execute("update content.film set title = 'refused' where id = 25").await;
    assert_eq!(stage.fail(id).await.0, "rejects.limit");
    assert_eq!(stage.checkpoint().await["position"]["pass"]["position"], json!(["20"]));
    stage
        .db
        .execute(
            "update content.film set title = 'New ' || id where id in (3, 25); delete from content.film where id = 5;
             insert into content.film values (0, 'Early', 1.0, now())",
        )
        .await;
}

const NO_REFUSED: &str = "alter table analytics.film add check (title <> 'refused')";

#[rstest]
#[case::into_an_empty_mart(false)]
#[case::through_staging(true)]
#[tokio::test]
async fn a_load_that_failed_begins_anew_with_the_next_run(#[case] staged: bool) {
    let stage = Stage::with_films(30).await;
    stage.db.execute(NO_REFUSED).await;
    let id = stage.full(10).await;
    if staged {
        stage.succeed(id).await;
    }
    fail_in_the_third_batch(&stage, id).await;
    let again = stage.succeed(id).await;
    assert_eq!((again.rows_read, again.resume), (30, false));
    assert_eq!(stage.differences().await, 0);
}

#[tokio::test]
async fn a_load_that_failed_is_continued_by_a_run_that_resumes_it_and_is_as_old_as_its_first_page() {
    let stage = Stage::with_films(30).await;
    stage.db.execute(NO_REFUSED).await;
    let id = stage.full(10).await;
    fail_in_the_third_batch(&stage, id).await;
    let opened: String = stage.db.value("select checkpoint ->> 'opened_at' from etl.etl_state").await;
    let run = stage.request_resume(id).await;
    stage.runner().work_off().await.unwrap();
    let resumed = stage.run_record(run).await;
    assert_eq!((resumed.status, resumed.rows_read, resumed.resume), (RunStatus::Success, 10, true));
    let as_of: String = stage.db.value("select checkpoint ->> 'as_of' from etl.etl_state").await;
    assert_eq!(as_of, opened, "what changed behind its position since then is not in the mart");
    let request = RunRequest { resume: true, ..RunRequest::default() };
    let nothing = stage.store.request_run(id, OnActive::Reject, &request).await.unwrap_err();
    assert!(nothing.to_string().contains("nothing to resume"), "{nothing}");
}

#[tokio::test]
async fn a_paused_load_that_is_older_than_its_limit_begins_anew_and_says_so() {
    let stage = Stage::with_films(30).await;
    let id = stage.full(10).await;
    pause_behind_the_first_batch(&stage, id).await;
    stage.db.execute("update content.film set title = 'New' where id = 3").await;
    let run = stage.request(id).await;
    let log = RunLog::new();
    let _capture = vitrina_testbed::capture_logs(tracing_subscriber::registry().with(log.layer()));
    let settings = RunnerSettings { load_max_age: Duration::ZERO, ..stage.settings("late") };
    let runner = Runner::new(settings, stage.store.clone()).with_run_log(log);
    runner.work_off().await.unwrap();
    let anew = stage.run_record(run).await;
    assert_eq!((anew.status, anew.rows_read, anew.resume), (RunStatus::Success, 30, true));
    assert_eq!(stage.differences().await, 0);
    let logs = stage.store.logs(run, None, 100).await.unwrap();
    assert!(logs.iter().any(|line| line.message.contains("opened too long ago")), "{logs:#?}");
}

#[tokio::test]
async fn an_incremental_run_does_not_continue_a_load_that_failed() {
    let stage = Stage::with_films(30).await;
    stage.db.execute(NO_REFUSED).await;
    let id = stage.incremental(10).await;
    let load = stage.request_mode(id, Mode::Full).await;
    stage.db.execute("update content.film set title = 'refused' where id = 25").await;
    stage.runner().work_off().await.unwrap();
    assert_eq!(stage.run_record(load).await.error_code.as_deref(), Some("rejects.limit"));
    stage
        .db
        .execute("update content.film set title = 'New', modified = '2024-01-01' where id in (3, 25)")
        .await;
    assert_eq!(stage.succeed(id).await.rows_read, 30);
    assert_eq!(stage.differences().await, 0);
}
