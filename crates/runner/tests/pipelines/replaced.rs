//! What takes the name of something else: a mart that somebody has made anew, and a connection that leads to another database.

use rstest::rstest;
use serde_json::json;
use vitrina_connectors::Connection;
use vitrina_core::{Checkpoint, Decision, PipelineId, RunStatus, Status};
use vitrina_store::StateChange;

use crate::changelog::install;
use crate::stage::{FILTERED, QUERY, Stage};

/// Sixty films in their mart, all of them read.
async fn read(capture: &str, query: &str) -> (Stage, PipelineId) {
    let stage = Stage::with_films(60).await;
    if capture == "changelog" {
        install(&stage, "content.film", &["id"]).await;
    }
    let id = stage
        .pipeline(
            json!({"mode": "incremental", "incremental_key": "modified", "incremental_id_key": "id", "batch_size": 10,
                          "capture": capture, "source_query": query, "delete_limit": 1.0}),
        )
        .await;
    stage.succeed(id).await;
    assert_eq!(stage.differences().await, 0);
    (stage, id)
}

const ANOTHER: &str = "drop table analytics.film;
    create table analytics.film (id int primary key, title text, rating numeric(3,1), modified timestamptz, updated_at timestamptz)";

const WITH_OTHER_ROWS: &str = "create table analytics.film_old (like analytics.film including all);
    insert into analytics.film_old (id, title) values (3, 'Old'), (900, 'Gone');
    alter table analytics.film rename to film_of_yesterday; alter table analytics.film_old rename to film";

#[rstest]
#[tokio::test]
async fn a_mart_that_somebody_has_made_anew_is_loaded_anew(
    #[values("cursor", "changelog")] capture: &str,
    #[values(QUERY, FILTERED)] query: &str,
) {
    let (stage, id) = read(capture, query).await;
    stage.db.execute(ANOTHER).await;
    assert_eq!(stage.succeed(id).await.rows_written, 60);
    assert_eq!(stage.differences().await, 0);
    assert_eq!(stage.succeed(id).await.rows_read, 0, "once is enough");
}

#[rstest]
#[tokio::test]
async fn a_mart_that_has_taken_the_place_of_another_loses_what_the_source_does_not_have(
    #[values("cursor", "changelog")] capture: &str,
    #[values(QUERY, FILTERED)] query: &str,
) {
    let (stage, id) = read(capture, query).await;
    stage.db.execute(WITH_OTHER_ROWS).await;
    stage.succeed(id).await;
    assert_eq!(stage.differences().await, 0);
    assert_eq!(stage.succeed(id).await.rows_read, 0, "once is enough");
}

#[rstest]
#[tokio::test]
async fn rows_that_left_the_source_before_a_reset_leave_the_mart_with_it(
    #[values("cursor", "changelog")] capture: &str,
    #[values(QUERY, FILTERED)] query: &str,
    #[values(true, false)] with_the_run: bool,
) {
    let (stage, id) = read(capture, query).await;
    stage
        .db
        .execute(
            "create table content.film_new (like content.film including all);
             insert into content.film_new select * from content.film where id not in (5, 50, 60);
             drop table content.film cascade; alter table content.film_new rename to film",
        )
        .await;
    if capture == "changelog" {
        install(&stage, "content.film", &["id"]).await;
    }
    let run = match with_the_run {
        true => stage.request_decision(id, Decision::Reset).await,
        false => {
            edit(&stage, id, StateChange::Reset, &Checkpoint::default()).await;
            stage.request(id).await
        }
    };
    stage.work_off(stage.settings("tester")).await;
    let run = stage.run_record(run).await;
    assert_eq!(run.status, RunStatus::Success, "{:?}", run.error);
    assert_eq!(stage.differences().await, 0);
}

/// Whoever writes a position or takes one back says nothing of the mart.
#[rstest]
#[tokio::test]
async fn a_mart_that_was_emptied_or_replaced_is_noticed_after_its_checkpoint_was_edited_too(
    #[values("cursor", "changelog")] capture: &str,
    #[values("truncate analytics.film", WITH_OTHER_ROWS)] how: &str,
    #[values(StateChange::Edit, StateChange::Restore, StateChange::Reset)] change: StateChange,
    #[values(true, false)] edited_first: bool,
) {
    let (stage, id) = read(capture, QUERY).await;
    let earlier = stage.store.state(id).await.unwrap().checkpoint;
    if edited_first {
        edit(&stage, id, change, &earlier).await;
    }
    stage.db.execute(how).await;
    if !edited_first {
        edit(&stage, id, change, &earlier).await;
    }
    assert_eq!(stage.succeed(id).await.rows_written, 60);
    assert_eq!(stage.differences().await, 0);
}

async fn edit(stage: &Stage, id: PipelineId, change: StateChange, earlier: &Checkpoint) {
    let stored = stage.store.state(id).await.unwrap();
    let edited = match change {
        StateChange::Restore => stored.checkpoint.restore(earlier),
        StateChange::Reset => stored.checkpoint.reset(),
        StateChange::Edit => stored.checkpoint.edit(earlier.position.clone()),
    };
    stage.store.change_state(id, stored.version, change, &edited).await.unwrap();
}

/// The runs before it know that it has to be made, and nobody else does.
#[rstest]
#[tokio::test]
async fn a_load_that_has_failed_is_still_to_be_made_whatever_becomes_of_the_checkpoint(
    #[values("cursor", "changelog")] capture: &str,
    #[values(None, Some(StateChange::Edit), Some(StateChange::Restore), Some(StateChange::Reset))]
    change: Option<StateChange>,
    #[values(None, Some(Decision::Reset))] decision: Option<Decision>,
) {
    let (stage, id) = read(capture, QUERY).await;
    let earlier = stage.store.state(id).await.unwrap().checkpoint;
    stage.db.execute(WITH_OTHER_ROWS).await;
    stage.db.execute("update etl.etl_pipelines set delete_limit = 0").await;
    assert_eq!(stage.fail(id).await.0, "sink.delete_limit");
    if let Some(change) = change {
        edit(&stage, id, change, &earlier).await;
    }
    stage.db.execute("update etl.etl_pipelines set delete_limit = 1").await;
    match decision {
        Some(decision) => drop(stage.decide(id, decision).await),
        None => drop(stage.succeed(id).await),
    }
    assert_eq!(stage.differences().await, 0);
    assert_eq!(stage.succeed(id).await.rows_read, 0, "once is enough");
}

/// A backfill finds the mart empty and fills a row of it.
#[rstest]
#[tokio::test]
async fn a_load_that_a_backfill_has_found_necessary_is_made_by_the_next_run(
    #[values("cursor", "changelog")] capture: &str,
    #[values("truncate analytics.film", WITH_OTHER_ROWS)] how: &str,
    #[values(StateChange::Restore, StateChange::Reset)] change: StateChange,
) {
    let (stage, id) = read(capture, QUERY).await;
    let earlier = stage.store.state(id).await.unwrap().checkpoint;
    stage.db.execute(how).await;
    let run = stage.request_keys(id, json!([["7"]])).await;
    stage.runner().work_off().await.unwrap();
    let run = stage.run_record(run).await;
    assert_eq!(run.status, RunStatus::Success, "{:?}", run.error);
    edit(&stage, id, change, &earlier).await;
    stage.succeed(id).await;
    assert_eq!(stage.differences().await, 0);
}

/// Its rows would be taken for all there is.
#[tokio::test]
async fn a_source_without_rows_does_not_make_another_mart_its_own() {
    let (stage, id) = read("cursor", QUERY).await;
    stage.db.execute(WITH_OTHER_ROWS).await;
    stage.db.execute("delete from content.film").await;
    assert_eq!(stage.fail(id).await.0, "sink.source_empty");
    stage.add_films(1, 3).await;
    stage.succeed(id).await;
    assert_eq!(stage.differences().await, 0);
}

#[rstest]
#[tokio::test]
async fn a_mart_that_somebody_has_emptied_is_loaded_anew(
    #[values("cursor", "changelog")] capture: &str,
    #[values("truncate analytics.film", "delete from analytics.film")] how: &str,
) {
    let (stage, id) = read(capture, QUERY).await;
    stage.db.execute(how).await;
    assert_eq!(stage.succeed(id).await.rows_written, 60);
    assert_eq!(stage.differences().await, 0);
    assert_eq!(stage.succeed(id).await.rows_read, 0, "once is enough");
}

/// A source without rows would refuse a load.
#[tokio::test]
async fn a_mart_that_its_own_pipeline_has_emptied_is_not_loaded_anew() {
    let (stage, id) = read("changelog", QUERY).await;
    stage.db.execute("delete from content.film where id < 60").await;
    assert_eq!(stage.succeed(id).await.rows_deleted, 59);
    stage.db.execute("delete from content.film").await;
    assert_eq!(stage.succeed(id).await.rows_deleted, 1);
    assert_eq!(stage.succeed(id).await.rows_read, 0);
    stage.add_films(1, 2).await;
    stage.succeed(id).await;
    assert_eq!(stage.differences().await, 0);
}

/// What alters a mart in place leaves it the table that it was.
#[rstest]
#[case::emptied_of_dead_rows("vacuum full analytics.film")]
#[case::named_otherwise_and_back(
    "alter schema analytics rename to old; alter schema old rename to analytics"
)]
#[case::with_another_column("alter table analytics.film add column extra text")]
#[case::with_a_rebuilt_key("reindex table analytics.film")]
#[tokio::test]
async fn a_mart_that_is_altered_is_not_loaded_anew(#[case] change: &str) {
    let (stage, id) = read("cursor", QUERY).await;
    stage.db.execute(change).await;
    assert_eq!(stage.succeed(id).await.rows_read, 0);
}

/// Between two batches of one pass: those before are in the table that is gone.
#[rstest]
#[case::of_a_load("load")]
#[case::of_a_cursor("cursor")]
#[case::of_a_change_log("changelog")]
#[tokio::test(flavor = "multi_thread")]
async fn a_mart_that_is_made_anew_in_the_middle_of_a_pass_is_loaded_anew(#[case] feed: &str) {
    let (stage, id, first) = match feed {
        "load" => {
            let stage = Stage::with_films(60).await;
            let id = stage.full(10).await;
            (stage, id, 25)
        }
        _ => {
            let (stage, id) = read(feed, QUERY).await;
            let change = "update content.film set title = 'New', modified = now() - interval '1 hour' + id * interval '1 second'";
            stage.db.execute(change).await;
            let first_logged =
                "select key ->> 0 from vitrina_log.change_log where op <> 'T' order by kid limit 1";
            let first = match feed {
                "changelog" => stage.db.value::<String>(first_logged).await.parse().unwrap(),
                _ => 25,
            };
            stage.db.execute(&format!("delete from analytics.film where id = {first}")).await;
            (stage, id, first)
        }
    };
    let held = stage.block_film(first).await;
    let run = stage.request(id).await;
    let (_runner, _stop) = stage.start_runner("r1");
    stage.someone_waits_for_a_row().await;
    // Behind the batch that waits, and before the next one.
    let operator = stage.db.client().await;
    let release = async {
        stage.someone_waits_for_the_mart().await;
        drop(held);
    };
    let (replaced, ()) = tokio::join!(operator.batch_execute(ANOTHER), release);
    replaced.unwrap();
    stage.reaches(id, Status::Idle).await;
    let done = stage.run_record(run).await;
    assert_eq!(done.status, RunStatus::Success, "{:?}", done.error);
    assert_eq!(stage.differences().await, 0);
}

/// No row tells that it has changed.
#[rstest]
#[tokio::test]
async fn columns_and_tables_that_take_the_names_of_others_are_read_anew(
    #[values("cursor", "changelog")] capture: &str,
    #[values(
        "alter table content.film rename title to other; alter table content.film rename subtitle to title;
         alter table content.film rename other to subtitle",
        "alter table content.film drop title; alter table content.film add title text default 'none'"
    )]
    change: &str,
) {
    let stage = Stage::with_films(30).await;
    stage.db.execute("alter table content.film add subtitle text default 'more'").await;
    if capture == "changelog" {
        install(&stage, "content.film", &["id"]).await;
    }
    let id = stage
        .pipeline(json!({"mode": "incremental", "incremental_key": "modified", "incremental_id_key": "id", "capture": capture}))
        .await;
    stage.succeed(id).await;
    stage.db.execute(change).await;
    stage.succeed(id).await;
    assert_eq!(stage.differences().await, 0);
    assert_eq!(stage.succeed(id).await.rows_read, 0, "once is enough");
}

#[tokio::test]
async fn a_source_table_that_is_put_in_place_of_another_is_read_anew() {
    let (stage, id) = read("cursor", QUERY).await;
    stage
        .db
        .execute(
            "create table content.film_new (like content.film including all);
             insert into content.film_new select id, 'Other', rating, modified from content.film where id > 3;
             alter table content.film rename to film_old; alter table content.film_new rename to film",
        )
        .await;
    stage.succeed(id).await;
    assert_eq!(stage.differences().await, 0);
}

/// The same rows, by other names or in another file.
#[rstest]
#[case::another_type("alter table content.film alter title type varchar(200)")]
#[case::another_column("alter table content.film add extra text default 'x'")]
#[case::a_rewrite("cluster content.film using film_pkey")]
#[case::a_name_and_back("alter table content.film rename to other; alter table content.other rename to film")]
#[tokio::test]
async fn a_source_table_that_is_altered_is_not_read_anew(#[case] change: &str) {
    let (stage, id) = read("cursor", QUERY).await;
    stage.db.execute(change).await;
    let run = stage.succeed(id).await;
    assert!(
        run.rows_read < 60 && run.rows_written == 0,
        "{} rows read, but those of the late window",
        run.rows_read
    );
}

#[rstest]
#[tokio::test]
async fn a_connection_that_leads_to_another_database_of_the_server_is_read_anew(
    #[values("cursor", "changelog")] capture: &str,
) {
    let (mut stage, id) = read(capture, QUERY).await;
    let copy = stage.copy().await;
    stage
        .db
        .execute("update content.film set title = 'Only here', modified = now() where id in (3, 4)")
        .await;
    stage.succeed(id).await;
    copy.db.execute("update content.film set title = 'There' where id = 5").await;
    let mut settings = stage.settings("moved");
    let moved = Connection::new("content", copy.db.url().into(), vec!["content".to_owned()]);
    settings.connections.0.insert("content".to_owned(), moved);
    let run = stage.request(id).await;
    stage.work_off(settings).await;
    let run = stage.run_record(run).await;
    assert_eq!(run.rows_read, 60, "{:?}", run.error);
    let titles = "select id::text, title from";
    assert_eq!(
        stage.db.texts(&format!("{titles} analytics.film order by id")).await,
        copy.db.texts(&format!("{titles} content.film order by id")).await
    );
}
