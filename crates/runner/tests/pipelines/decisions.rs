//! Pipelines that were changed since their checkpoint was made: they ask, and do what they are told.

use rstest::rstest;
use serde_json::{Value, json};
use vitrina_core::{Decision, Event, Mode, OnActive, PipelineId, Position, RunId, RunStatus, Status};
use vitrina_store::{Actor, Change, Error, PipelineRef, RunRecord, RunRequest, StateChange};

use crate::changelog;
use crate::stage::{Stage, until};

const SHOUTING: &str = "update etl.etl_pipelines set source_query = 'select id, upper(title) as title, rating, modified from content.film'";

impl Stage {
    pub(crate) async fn request_decision(&self, id: PipelineId, decision: Decision) -> RunId {
        let request = RunRequest { checkpoint: Some(decision), ..RunRequest::default() };
        self.store.request_run(id, OnActive::Reject, &request).await.unwrap().run.unwrap()
    }

    pub(crate) async fn decide(&self, id: PipelineId, decision: Decision) -> RunRecord {
        let run = self.request_decision(id, decision).await;
        self.runner().work_off().await.unwrap();
        let run = self.run_record(run).await;
        assert_eq!(run.status, RunStatus::Success, "{:?}", run.error);
        run
    }

    async fn shouted(&self) -> i64 {
        self.count("analytics.film where title = upper(title)").await
    }
}

/// Ten films in the mart, and a query that was changed since.
async fn changed() -> (Stage, PipelineId) {
    let stage = Stage::with_films(10).await;
    let id = stage.incremental(100).await;
    stage.succeed(id).await;
    stage.db.execute(SHOUTING).await;
    (stage, id)
}

async fn is_refused(stage: &Stage, id: PipelineId) -> bool {
    let asked = stage.store.request_run(id, OnActive::Join, &RunRequest::default()).await;
    matches!(asked, Err(Error::ConfigChanged))
}

#[tokio::test]
async fn a_changed_query_does_not_go_on_from_the_old_querys_checkpoint() {
    let (stage, id) = changed().await;
    assert!(is_refused(&stage, id).await);
    assert_eq!(stage.status(id).await, Status::Idle, "nothing was opened");
    assert_eq!(stage.decide(id, Decision::Reset).await.rows_written, 10);
    assert_eq!(stage.shouted().await, 10);
    stage.succeed(id).await;
}

#[tokio::test]
async fn a_kept_checkpoint_goes_on_under_the_new_configuration_and_is_asked_about_once() {
    let (stage, id) = changed().await;
    assert_eq!(stage.decide(id, Decision::Keep).await.rows_read, 0, "a pass that finds nothing");
    stage.db.execute("update content.film set modified = now() where id = 3").await;
    assert_eq!(stage.succeed(id).await.rows_read, 1);
    assert_eq!(stage.shouted().await, 1);
}

#[rstest]
#[case::kept("keep", 0)]
#[case::reset("reset", 10)]
#[tokio::test]
async fn what_a_pipeline_says_about_changes_is_done_without_asking(#[case] says: &str, #[case] shouted: i64) {
    let (stage, id) = changed().await;
    stage.db.execute(&format!("update etl.etl_pipelines set on_change = '{says}'")).await;
    stage.succeed(id).await;
    assert_eq!(stage.shouted().await, shouted);
    let history = stage.store.checkpoints(id, 10).await.unwrap();
    assert!(history.iter().any(|kept| kept.reason == says), "{history:?}");
    stage.db.execute("update content.film set modified = now() where id = 3").await;
    assert_eq!(stage.succeed(id).await.rows_read, 1, "the checkpoint is of this configuration now");
    assert_eq!(stage.shouted().await, shouted.max(1));
}

/// Films that are found by their titles from now on, one of which has got another title meanwhile.
async fn keyed_otherwise(capture: &str) -> (Stage, PipelineId) {
    let stage = Stage::with_films(10).await;
    if capture == "changelog" {
        changelog::install(&stage, "content.film", &["id"]).await;
    }
    let id = stage
        .pipeline(json!({"mode": "incremental", "incremental_key": "modified", "incremental_id_key": "id", "capture": capture}))
        .await;
    stage.succeed(id).await;
    stage
        .db
        .execute(
            "alter table analytics.film drop constraint film_pkey, add primary key (title);
             update etl.etl_targets set key = '{title}';
             update content.film set title = 'Another', modified = now() where id = 4",
        )
        .await;
    if capture == "changelog" {
        changelog::install(&stage, "content.film", &["title"]).await;
    }
    (stage, id)
}

/// What is there would stay under its old key.
#[rstest]
#[tokio::test]
async fn a_checkpoint_is_not_kept_for_a_mart_with_another_key(#[values(true, false)] by_the_run: bool) {
    let (stage, id) = keyed_otherwise("cursor").await;
    let run = match by_the_run {
        true => stage.request_decision(id, Decision::Keep).await,
        false => {
            stage.db.execute("update etl.etl_pipelines set on_change = 'keep'").await;
            stage.request(id).await
        }
    };
    stage.runner().work_off().await.unwrap();
    let run = stage.run_record(run).await;
    assert_eq!(run.error_code.as_deref(), Some("checkpoint.key_changed"), "{:?}", run.error);
    assert_eq!(stage.count("analytics.film").await, 10);
    stage.db.execute("update etl.etl_pipelines set on_change = 'ask'").await;
    stage.decide(id, Decision::Reset).await;
    assert_eq!(stage.differences().await, 0, "the remedy that the error names");
}

#[rstest]
#[tokio::test]
async fn rows_under_the_old_key_of_a_mart_are_gone_after_a_reset(
    #[values("cursor", "changelog")] capture: &str,
    #[values("by the run", "by the pipeline", "by a person", "with the change")] reset: &str,
) {
    let (stage, id) = keyed_otherwise(capture).await;
    let stored = stage.store.state(id).await.unwrap();
    match reset {
        "by the run" => drop(stage.decide(id, Decision::Reset).await),
        "by the pipeline" => {
            stage.db.execute("update etl.etl_pipelines set on_change = 'reset'").await;
            stage.succeed(id).await;
        }
        "by a person" => {
            let change = StateChange::Reset;
            stage.store.change_state(id, stored.version, change, &stored.checkpoint.reset()).await.unwrap();
            stage.succeed(id).await;
        }
        _ => {
            let change = Change::Decide { pipeline: id, decision: Decision::Reset, version: None };
            let somebody = Actor { name: "somebody".to_owned(), request_id: String::new() };
            stage.store.configure(&[change], &somebody).await.unwrap();
            stage.succeed(id).await;
        }
    }
    assert_eq!(stage.differences().await, 0);
    assert_eq!(stage.succeed(id).await.rows_written, 0);
}

#[tokio::test]
async fn rows_under_the_old_key_are_gone_after_a_second_reset_where_the_first_one_has_failed() {
    let (stage, id) = keyed_otherwise("cursor").await;
    stage.db.execute("update etl.etl_pipelines set delete_limit = 0").await;
    let failed = stage.request_decision(id, Decision::Reset).await;
    stage.runner().work_off().await.unwrap();
    let failed = stage.run_record(failed).await;
    assert_eq!(failed.error_code.as_deref(), Some("sink.delete_limit"), "{:?}", failed.error);
    stage.db.execute("update etl.etl_pipelines set delete_limit = 0.2").await;
    stage.decide(id, Decision::Reset).await;
    assert_eq!(stage.differences().await, 0);
}

/// As `vitrina mart --apply` adds it, or somebody before.
#[rstest]
#[case::by_cursor(json!({"incremental_key": "modified", "incremental_id_key": "id"}))]
#[case::by_the_change_log(json!({"capture": "changelog"}))]
#[tokio::test]
async fn a_column_that_a_query_brings_from_now_on_is_not_left_empty_in_rows_that_were_read(
    #[case] by: Value,
) {
    let stage = Stage::with_films(10).await;
    changelog::install(&stage, "content.film", &["id"]).await;
    let mut config = json!({"source_query": "select * from content.film", "mode": "incremental"});
    config.as_object_mut().unwrap().extend(by.as_object().unwrap().clone());
    let id = stage.pipeline(config).await;
    stage.succeed(id).await;
    stage.db.execute("alter table content.film add column year int default 1979; alter table analytics.film add column year int").await;
    let (code, message) = stage.fail(id).await;
    assert!(code == "checkpoint.columns_added" && message.contains("year"), "{code} {message}");
    stage.decide(id, Decision::Reset).await;
    assert_eq!(stage.count("analytics.film where year = 1979").await, 10);
    stage.db.execute("alter table content.film drop column year").await;
    stage.succeed(id).await;
}

#[tokio::test]
async fn what_a_run_says_wins_over_what_its_pipeline_says() {
    let (stage, id) = changed().await;
    stage.db.execute("update etl.etl_pipelines set on_change = 'keep'").await;
    assert_eq!(stage.decide(id, Decision::Reset).await.rows_written, 10);
    assert_eq!(stage.shouted().await, 10);
}

#[tokio::test]
async fn a_mart_whose_key_was_changed_by_hand_is_read_anew_where_its_pipeline_says_so() {
    let stage = Stage::with_films(10).await;
    stage.db.execute("delete from etl.etl_targets").await;
    let id = stage.incremental(100).await;
    stage.succeed(id).await;
    stage.db.execute("alter table analytics.film drop constraint film_pkey; alter table analytics.film add primary key (title);
                      update etl.etl_pipelines set on_change = 'reset'").await;
    assert_eq!(stage.succeed(id).await.rows_read, 10);
    assert_eq!(stage.succeed(id).await.rows_read, 0);
}

#[tokio::test]
async fn a_decision_that_comes_with_an_edit_is_carried_out_with_it() {
    for (decision, shouted) in [(Decision::Keep, 0), (Decision::Reset, 10)] {
        let stage = Stage::with_films(10).await;
        let id = stage.incremental(100).await;
        stage.succeed(id).await;
        let before = stage.store.pipeline(&PipelineRef::Id(id)).await.unwrap();
        let mut after = before.config;
        after.source_query =
            Some("select id, upper(title) as title, rating, modified from content.film".to_owned());
        let edit = Change::EditPipeline { after, version: before.version };
        let changes = [Change::Decide { pipeline: id, decision, version: None }, edit];
        let somebody = Actor { name: "somebody".to_owned(), request_id: String::new() };
        stage.store.configure(&changes, &somebody).await.unwrap();
        stage.succeed(id).await;
        assert_eq!(stage.shouted().await, shouted, "{decision}");
        stage.db.execute("update content.film set modified = now() where id = 3").await;
        assert_eq!(stage.succeed(id).await.rows_read, 1);
    }
}

#[tokio::test]
async fn a_full_run_of_a_changed_pipeline_never_asks() {
    let (stage, id) = changed().await;
    let run = stage.request_mode(id, Mode::Full).await;
    stage.runner().work_off().await.unwrap();
    assert_eq!(stage.run_record(run).await.status, RunStatus::Success);
    assert_eq!(stage.shouted().await, 10);
    stage.db.execute("update content.film set modified = now() where id = 3").await;
    assert_eq!(stage.succeed(id).await.rows_read, 1, "the cursor goes on from the load");
}

#[tokio::test]
async fn a_full_run_of_a_changed_pipeline_drops_the_load_that_was_open() {
    let stage = Stage::with_films(100).await;
    let id = stage.full(10).await;
    let (mut tasks, shutdown) = stage.start_runner("first");
    let blocker = stage.block_film(25).await;
    stage.request(id).await;
    stage.someone_waits_for_a_row().await;
    stage.change(id, Event::Pause).await;
    blocker.batch_execute("rollback").await.unwrap();
    stage.reaches(id, Status::Paused).await;
    shutdown.cancel();
    tasks.join_next().await.unwrap().unwrap();
    stage.db.execute(SHOUTING).await;
    assert_eq!(stage.succeed(id).await.rows_read, 100);
    assert_eq!(stage.shouted().await, 100);
}

#[tokio::test]
async fn a_mart_whose_key_was_changed_by_hand_is_noticed_by_the_runner() {
    let stage = Stage::with_films(10).await;
    stage.db.execute("delete from etl.etl_targets").await;
    let id = stage.incremental(100).await;
    stage.succeed(id).await;
    stage.db.execute("alter table analytics.film drop constraint film_pkey; alter table analytics.film add primary key (title)").await;
    let (code, message) = stage.fail(id).await;
    assert_eq!(code, "checkpoint.key_changed");
    assert!(["(id)", "(title)", "reset", "full"].iter().all(|part| message.contains(part)), "{message}");
    stage.decide(id, Decision::Reset).await;
    stage.succeed(id).await;
}

#[tokio::test]
async fn a_checkpoint_that_knows_no_key_is_not_asked_about() {
    let stage = Stage::with_films(10).await;
    let id = stage.incremental(100).await;
    stage.succeed(id).await;
    stage.db.execute("update etl.etl_state set checkpoint = checkpoint - 'key'").await;
    stage.succeed(id).await;
}

#[tokio::test]
async fn a_run_that_begins_by_itself_cannot_be_refused_and_fails_instead() {
    let (stage, id) = changed().await;
    stage.request_decision(id, Decision::Keep).await;
    stage.store.request_run(id, OnActive::After, &RunRequest::default()).await.unwrap();
    stage.db.execute("update etl.etl_pipelines set source_query = source_query || ' where true'").await;
    stage.runner().work_off().await.unwrap();
    let runs = stage
        .store
        .runs(vitrina_store::RunChoice { pipeline: Some(id), status: None }, None, 2)
        .await
        .unwrap();
    assert_eq!(runs[0].error_code.as_deref(), Some("checkpoint.config_changed"));
    assert_eq!(runs[1].status, RunStatus::Success, "it keeps the configuration it was requested with");
}

#[tokio::test]
async fn a_reset_of_an_unchanged_pipeline_starts_over() {
    let stage = Stage::with_films(10).await;
    let id = stage.incremental(100).await;
    stage.succeed(id).await;
    assert_eq!(stage.decide(id, Decision::Reset).await.rows_read, 10);
    assert_eq!(stage.differences().await, 0);
}

#[tokio::test]
async fn a_reset_is_carried_out_once_however_often_its_run_is_taken_over() {
    let stage = Stage::with_films(30).await;
    let id = stage.incremental(10).await;
    stage.succeed(id).await;
    stage.db.execute("update content.film set title = upper(title)").await;
    let (mut doomed, _shutdown) = stage.start_runner("doomed");
    let blocker = stage.db.client().await;
    blocker.batch_execute("begin; update analytics.film set title = title where id = 15").await.unwrap();
    let run = stage.request_decision(id, Decision::Reset).await;
    stage.someone_waits_for_a_row().await;
    doomed.abort_all();
    while doomed.join_next().await.is_some() {}
    blocker.batch_execute("rollback").await.unwrap();
    stage.expire_leases().await;
    stage.runner().work_off().await.unwrap();
    let run = stage.run_record(run).await;
    assert_eq!((run.status, run.rows_read), (RunStatus::Success, 30), "no batch was read twice");
    assert_eq!(stage.shouted().await, 30);
}

#[tokio::test]
async fn a_decision_that_was_paused_before_it_was_carried_out_is_not_forgotten() {
    let (stage, id) = changed().await;
    stage.request_decision(id, Decision::Reset).await;
    stage.change(id, Event::Pause).await;
    assert_eq!(stage.succeed(id).await.rows_read, 10);
    assert_eq!(stage.shouted().await, 10);
}

#[tokio::test]
async fn a_decision_that_waits_for_the_run_before_it_comes_with_its_request() {
    let (stage, id) = changed().await;
    stage.request_mode(id, Mode::Full).await;
    let waits = RunRequest { checkpoint: Some(Decision::Reset), ..RunRequest::default() };
    let (mut tasks, shutdown) = stage.start_runner("first");
    let blocker = stage.block_mart().await;
    stage.someone_waits_for_the_mart().await;
    stage.store.request_run(id, OnActive::After, &waits).await.unwrap();
    blocker.batch_execute("rollback").await.unwrap();
    until(async || stage.count("etl.etl_runs where status = 'SUCCESS'").await == 3).await;
    shutdown.cancel();
    tasks.join_next().await.unwrap().unwrap();
    let run = stage
        .store
        .runs(vitrina_store::RunChoice { pipeline: Some(id), status: None }, None, 1)
        .await
        .unwrap()
        .remove(0);
    assert_eq!((run.checkpoint, run.rows_read), (Some(Decision::Reset), 10));
}

#[tokio::test]
async fn a_run_goes_on_from_where_a_person_has_set_the_checkpoint() {
    let stage = Stage::with_films(100).await;
    let id = stage.incremental(1000).await;
    stage.succeed(id).await;
    let state = stage.store.state(id).await.unwrap();
    let done = json!({"opened_at": "2024-01-01T01:30:00Z", "bound": ["2024-01-01 01:30:00+00", "90"]});
    let edited = state.checkpoint.edit(Position { done, ..Position::default() });
    stage.store.change_state(id, state.version, StateChange::Edit, &edited).await.unwrap();
    assert_eq!(stage.succeed(id).await.rows_read, 21, "ten behind the bound, and the late window before it");
}
