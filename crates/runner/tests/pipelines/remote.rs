//! Marts in another database than the meta-store: a row beside the mart is fence and truth.

use serde_json::json;
use vitrina_core::{Decision, PipelineId, RunStatus, Status};
use vitrina_runner::RunnerSettings;
use vitrina_store::StateChange;
use vitrina_testbed::Database;

use crate::stage::{Stage, until};

const MART: &str = "create schema analytics;
    create table analytics.film (id int primary key, title text, rating numeric(3,1), modified timestamptz, updated_at timestamptz)";

/// A stage whose mart lives elsewhere.
struct Remote {
    stage: Stage,
    marts: Database,
}

impl Remote {
    async fn with_films(films: i32) -> Self {
        let stage = Stage::with_films(films).await;
        stage.db.execute("drop table analytics.film").await;
        let marts = Database::fresh().await;
        marts.execute(MART).await;
        Self { stage, marts }
    }

    fn settings(&self) -> RunnerSettings {
        let mut settings = self.stage.settings("remote");
        settings.connections.0.get_mut("marts").unwrap().url = self.marts.url().into();
        settings
    }

    async fn succeed(&self, id: PipelineId) -> vitrina_store::RunRecord {
        let run = self.stage.request(id).await;
        self.stage.work_off(self.settings()).await;
        let run = self.stage.run_record(run).await;
        assert_eq!(run.status, RunStatus::Success, "{:?}", run.error);
        run
    }

    async fn films(&self) -> i64 {
        self.marts.value("select count(*) from analytics.film").await
    }

    async fn versions(&self) -> (i64, i64) {
        let there = self.marts.value("select version from vitrina.checkpoints").await;
        (self.stage.db.value("select version from etl.etl_state").await, there)
    }
}

#[tokio::test]
async fn loads_and_passes_into_another_database_keep_both_checkpoints_equal() {
    let remote = Remote::with_films(35).await;
    let id = remote.stage.incremental(10).await;
    assert_eq!(remote.succeed(id).await.rows_written, 35);
    remote.stage.add_films(100, 105).await;
    remote.stage.db.execute("update content.film set modified = now() where id >= 100").await;
    assert_eq!(remote.succeed(id).await.rows_written, 6);
    let run = remote.stage.request_mode(id, vitrina_core::Mode::Full).await;
    remote.stage.work_off(remote.settings()).await;
    assert_eq!(remote.stage.run_record(run).await.rows_unchanged, 41);
    assert_eq!(remote.films().await, 41);
    let (here, there) = remote.versions().await;
    assert_eq!(here, there);
    let (here, there): (String, String) = (
        remote.stage.db.value("select checkpoint::text from etl.etl_state").await,
        remote.marts.value("select checkpoint::text from vitrina.checkpoints").await,
    );
    assert_eq!(here, there);
}

#[tokio::test]
async fn a_batch_whose_copy_was_lost_is_entered_again_with_its_figures_and_not_written_twice() {
    let remote = Remote::with_films(20).await;
    let id = remote.stage.full(10).await;
    // The meta-store refuses the copy of the last batch: what the mart has committed is all that is left of it.
    remote
        .stage
        .db
        .execute(
            "create function etl.refuse() returns trigger language plpgsql as $$ begin
                 if (select count(*) from etl.etl_batches) = 1 and not exists (select from pg_class where relname = 'passed') then
                     raise 'gone' using errcode = '57P01'; end if; return new; end $$;
             create trigger refuse before insert on etl.etl_batches for each row execute function etl.refuse()",
        )
        .await;
    let run = remote.stage.request(id).await;
    remote.stage.work_off(remote.settings()).await;
    assert_eq!(remote.stage.status(id).await, Status::RunRequested, "given back");
    assert_eq!(remote.versions().await, (1, 2));
    remote
        .stage
        .db
        .execute("create table etl.passed (); update etl.etl_pipelines set retry_at = now()")
        .await;
    remote.stage.work_off(remote.settings()).await;
    let run = remote.stage.run_record(run).await;
    assert_eq!((run.status, run.rows_read, run.batches), (RunStatus::Success, 20, 2), "{:?}", run.error);
    assert_eq!(remote.films().await, 20);
}

#[tokio::test]
async fn a_mart_that_was_restored_from_a_backup_is_filled_from_where_it_stands() {
    let remote = Remote::with_films(20).await;
    let id = remote.stage.incremental(100).await;
    remote.succeed(id).await;
    remote.marts.execute("truncate analytics.film; delete from vitrina.checkpoints").await;
    remote.succeed(id).await;
    assert_eq!(remote.films().await, 20, "the meta-store's newer checkpoint is not believed");
}

#[tokio::test]
async fn a_reset_leaves_no_row_of_others_in_a_mart_in_another_database_than_before() {
    let before = Remote::with_films(20).await;
    let id = before.stage.incremental(10).await;
    before.succeed(id).await;
    let remote = Remote { stage: before.stage, marts: Database::fresh().await };
    remote.marts.execute(MART).await;
    remote.marts.execute("insert into analytics.film (id, title) values (3, 'Old'), (900, 'Gone')").await;
    remote.stage.db.execute("update etl.etl_pipelines set delete_limit = 1").await;
    let run = remote.stage.request_decision(id, Decision::Reset).await;
    remote.stage.work_off(remote.settings()).await;
    let run = remote.stage.run_record(run).await;
    assert_eq!((run.status, run.rows_deleted), (RunStatus::Success, 1), "{:?}", run.error);
    assert_eq!(remote.films().await, 20);
}

/// As while it is restored.
#[tokio::test]
async fn a_database_that_takes_no_connections_gives_the_pipeline_back() {
    let remote = Remote::with_films(20).await;
    let id = remote.stage.full(10).await;
    let allow = |allows: bool| format!("alter database {} allow_connections {allows}", remote.marts.name());
    remote.stage.db.execute(&allow(false)).await;
    let run = remote.stage.request(id).await;
    remote.stage.work_off(remote.settings()).await;
    assert_eq!(remote.stage.status(id).await, Status::RunRequested);
    remote.stage.db.execute(&allow(true)).await;
    remote.stage.db.execute("update etl.etl_pipelines set retry_at = now()").await;
    remote.stage.work_off(remote.settings()).await;
    assert_eq!(remote.stage.run_record(run).await.status, RunStatus::Success);
    assert_eq!(remote.films().await, 20);
}

#[tokio::test]
async fn a_zombie_is_fenced_by_the_token_beside_the_mart() {
    let remote = Remote::with_films(20).await;
    let id = remote.stage.full(10).await;
    remote.succeed(id).await;
    remote.stage.db.execute("update content.film set title = 'New'").await;
    let blocker = remote.marts.client().await;
    blocker.batch_execute("begin; update analytics.film set title = 'held' where id = 3").await.unwrap();
    let run = remote.stage.request(id).await;
    let mut zombie = tokio::task::JoinSet::new();
    let runner = vitrina_runner::Runner::new(remote.settings(), remote.stage.store.clone());
    zombie.spawn(async move { runner.work_off().await });
    let waits = "select exists (select from pg_locks l join pg_stat_activity a using (pid)
                                 where not l.granted and a.datname = current_database())";
    until(|| remote.marts.value::<bool>(waits)).await;
    // Another owner seals the mart while the zombie's merge waits.
    remote.marts.execute("update vitrina.checkpoints set token = token + 1").await;
    blocker.batch_execute("rollback").await.unwrap();
    zombie.join_next().await.unwrap().unwrap().unwrap();
    let stale: i64 = remote.marts.value("select count(*) from analytics.film where title = 'New'").await;
    assert_eq!(stale, 0, "nothing of the zombie's batch is there");
    assert_eq!(remote.stage.run_record(run).await.status, RunStatus::Running, "left to its new owner");
}

#[tokio::test]
async fn rejects_of_a_remote_mart_are_kept_in_the_meta_store() {
    let remote = Remote::with_films(20).await;
    remote.marts.execute("alter table analytics.film add check (id <> 5)").await;
    let id = remote.stage.pipeline(json!({"batch_size": 7})).await;
    let run = remote.stage.request(id).await;
    remote.stage.work_off(remote.settings()).await;
    assert_eq!(remote.stage.run_record(run).await.error_code.as_deref(), Some("rejects.limit"));
    assert_eq!(remote.films().await, 0);
    remote.stage.db.execute("update etl.etl_pipelines set reject_limit = 1").await;
    assert_eq!(remote.succeed(id).await.rows_rejected, 1);
    assert_eq!(remote.stage.rejects().await, [("row.check".to_owned(), "[\"5\"]".to_owned())]);
}

#[tokio::test]
async fn a_cancelled_load_into_another_database_starts_over() {
    let remote = Remote::with_films(30).await;
    let id = remote.stage.full(10).await;
    let shutdown = tokio_util::sync::CancellationToken::new();
    let runner = vitrina_runner::Runner::new(remote.settings(), remote.stage.store.clone());
    let mut tasks = tokio::task::JoinSet::new();
    let token = shutdown.clone();
    tasks.spawn(async move { runner.run(token).await.unwrap() });
    let blocker = remote.marts.client().await;
    blocker.batch_execute("begin; insert into analytics.film (id) values (5)").await.unwrap();
    remote.stage.request(id).await;
    let waits = "select exists (select from pg_locks l join pg_stat_activity a using (pid)
                                 where not l.granted and a.datname = current_database())";
    until(|| remote.marts.value::<bool>(waits)).await;
    remote.stage.change(id, vitrina_core::Event::Cancel).await;
    blocker.batch_execute("rollback").await.unwrap();
    remote.stage.reaches(id, Status::Idle).await;
    shutdown.cancel();
    tasks.join_next().await.unwrap().unwrap();
    assert_eq!(remote.films().await, 10);
    assert_eq!(remote.succeed(id).await.rows_read, 30);
    assert_eq!(remote.films().await, 30);
}

#[tokio::test]
async fn a_decision_about_a_mart_elsewhere_counts_there_as_well() {
    let remote = Remote::with_films(20).await;
    let id = remote.stage.incremental(100).await;
    remote.succeed(id).await;
    let run = remote.stage.request_decision(id, Decision::Reset).await;
    remote.stage.work_off(remote.settings()).await;
    assert_eq!(remote.stage.run_record(run).await.rows_read, 20);
    let run = remote.stage.request_decision(id, Decision::Keep).await;
    remote.stage.work_off(remote.settings()).await;
    assert_eq!(remote.stage.run_record(run).await.rows_read, 0);
    let (here, there) = remote.versions().await;
    assert_eq!(here, there);
    remote.marts.execute("truncate analytics.film; delete from vitrina.checkpoints").await;
    remote.succeed(id).await;
    assert_eq!(remote.films().await, 20, "afterwards the mart is believed again");
}

#[tokio::test]
async fn a_checkpoint_that_a_person_has_changed_counts_beside_the_mart_as_well() {
    let remote = Remote::with_films(20).await;
    let id = remote.stage.incremental(100).await;
    remote.succeed(id).await;
    let state = remote.stage.store.state(id).await.unwrap();
    let anew = state.checkpoint.reset();
    remote.stage.store.change_state(id, state.version, StateChange::Reset, &anew).await.unwrap();
    assert_eq!(remote.succeed(id).await.rows_read, 20, "the mart's own checkpoint is overruled");
    let (here, there) = remote.versions().await;
    assert_eq!(here, there);
    assert_eq!(remote.succeed(id).await.rows_read, 0, "once");
}

#[tokio::test]
async fn a_change_made_while_a_copy_was_lost_counts_over_what_the_mart_has_committed() {
    let remote = Remote::with_films(20).await;
    let id = remote.stage.incremental(100).await;
    remote.succeed(id).await;
    remote.marts.execute("update vitrina.checkpoints set version = version + 1").await;
    let state = remote.stage.store.state(id).await.unwrap();
    let anew = state.checkpoint.reset();
    remote.stage.store.change_state(id, state.version, StateChange::Reset, &anew).await.unwrap();
    assert_eq!(remote.succeed(id).await.rows_read, 20);
    let (here, there) = remote.versions().await;
    assert_eq!(here, there);
}

/// As a release before this one may have left it.
const OUTDATED: &str =
    "create or replace function vitrina.commit_batch(p_installation uuid, p_pipeline uuid, p_token bigint,
        p_from_version bigint, p_checkpoint jsonb, p_outcome jsonb)
    returns bigint language plpgsql as $$ begin raise 'outdated'; end $$";

const FUNCTIONS: &str = "select string_agg(prosrc, '' order by proname) from pg_proc where pronamespace = 'vitrina'::regnamespace";

#[tokio::test]
async fn functions_beside_marts_are_brought_up_to_date_and_those_of_a_newer_release_stay() {
    let remote = Remote::with_films(5).await;
    remote.marts.execute("create table analytics.second (like analytics.film including all)").await;
    let first = remote.stage.full(10).await;
    let second = json!({"name": "second", "target_table": "analytics.second"});
    let second = remote.stage.pipeline(second).await;
    remote.succeed(first).await;
    let functions: String = remote.marts.value(FUNCTIONS).await;
    remote.marts.execute(OUTDATED).await;

    let runs = [remote.stage.request(first).await, remote.stage.request(second).await];
    let work = || remote.stage.work_off(remote.settings());
    tokio::join!(work(), work());
    for run in runs {
        let run = remote.stage.run_record(run).await;
        assert_eq!(run.status, RunStatus::Success, "{:?}", run.error);
    }
    assert_eq!(remote.marts.value::<String>(FUNCTIONS).await, functions);

    let newer = "do $do$ begin execute replace(pg_get_functiondef('vitrina.commit_batch'::regproc),
        E'\n    declare', E'\n    -- revision 1000\n    declare'); end $do$";
    remote.marts.execute(newer).await;
    remote.succeed(first).await;
    assert!(remote.marts.value::<String>(FUNCTIONS).await.contains("-- revision 1000"));
}

#[tokio::test]
async fn a_login_that_may_not_replace_functions_works_with_those_of_its_release() {
    let remote = Remote::with_films(5).await;
    let id = remote.stage.full(10).await;
    remote.succeed(id).await;
    let role = format!("writer_{}", &remote.marts.name()[remote.marts.name().len() - 20..]);
    let rights = format!(
        "create role {role} login password 'x'; grant usage on schema vitrina, analytics to {role};
         grant all on all tables in schema vitrina, analytics to {role}"
    );
    remote.marts.execute(&rights).await;
    let run = async || {
        let mut settings = remote.settings();
        settings.connections.0.get_mut("marts").unwrap().url = remote.marts.url_as(&role, "x").into();
        let run = remote.stage.request(id).await;
        remote.stage.work_off(settings).await;
        remote.stage.run_record(run).await
    };
    let succeeded = run().await;
    assert_eq!(succeeded.status, RunStatus::Success, "{:?}", succeeded.error);
    remote.marts.execute(OUTDATED).await;
    let failed = run().await;
    assert_eq!(failed.error_code.as_deref(), Some("sink.no_schema"), "{:?}", failed.error);
    assert!(failed.error.unwrap().contains("vitrina roles"));
    remote.marts.execute(&format!("drop owned by {role}; drop role {role}")).await;
}
