//! Copied, moved and restored meta-stores: only one of several that know the same installation writes to a mart, and which
//! one is decided by a person.

use std::time::Duration;

use serde_json::json;
use vitrina_core::{PipelineId, RunStatus, Status};
use vitrina_runner::RunnerSettings;
use vitrina_store::{Actor, RunRecord, RunnerAbilities, Terms};
use vitrina_testbed::Database;

use crate::stage::{Stage, until};

const MART: &str = "create schema analytics;
    create table analytics.film (id int primary key, title text, rating numeric(3,1), modified timestamptz, updated_at timestamptz)";

/// Marts in a database of their own.
struct Marts(Database);

impl Marts {
    async fn new() -> Self {
        let marts = Database::fresh().await;
        marts.execute(MART).await;
        Self(marts)
    }

    /// Of a runner of this meta-store that writes here.
    fn settings(&self, stage: &Stage) -> RunnerSettings {
        let mut settings = stage.settings("copied");
        settings.connections.0.get_mut("marts").unwrap().url = self.0.url().into();
        settings
    }

    /// What the database remembers of a pipeline: the lease, and the mart that it owns.
    async fn remembers(&self, id: PipelineId) -> Vec<Vec<Option<String>>> {
        let sql = format!(
            "select owner, token, version, (select string_agg(mart, ',') from vitrina.marts m where m.pipeline = c.pipeline)
               from vitrina.checkpoints c where pipeline = '{id}'"
        );
        self.0.texts(&sql).await
    }

    async fn run(&self, stage: &Stage, id: PipelineId) -> RunRecord {
        let run = stage.request(id).await;
        stage.work_off(self.settings(stage)).await;
        stage.run_record(run).await
    }

    async fn succeed(&self, stage: &Stage, id: PipelineId) -> RunRecord {
        let run = self.run(stage, id).await;
        assert_eq!(run.status, RunStatus::Success, "{:?}", run.error);
        run
    }

    async fn fails(&self, stage: &Stage, id: PipelineId) -> (String, String) {
        let run = self.run(stage, id).await;
        let (code, message) = (run.error_code.unwrap_or_default(), run.error.unwrap_or_default());
        assert_eq!((run.status, stage.status(id).await), (RunStatus::Failed, Status::Failed), "{message}");
        (code, message)
    }

    /// Stopped for good, by an error that names the two commands which decide.
    async fn stops(&self, stage: &Stage, id: PipelineId) -> String {
        let (code, message) = self.fails(stage, id).await;
        assert_eq!(code, "installation.copied", "{message}");
        let named = ["vitrina installation adopt", "vitrina installation new"];
        assert!(named.iter().all(|command| message.contains(command)), "{message}");
        message
    }

    async fn titles(&self) -> String {
        self.0.value("select string_agg(distinct title, ', ') from analytics.film").await
    }
}

fn actor() -> Actor {
    Actor { name: "tester".to_owned(), request_id: "1".to_owned() }
}

async fn name_films(stage: &Stage, title: &str) {
    stage
        .db
        .execute(&format!("update content.film set title = '{title}', modified = clock_timestamp()"))
        .await;
}

#[tokio::test]
async fn a_copied_meta_store_does_not_overwrite_the_marts_of_the_original() {
    let (mut original, marts) = (Stage::with_films(20).await, Marts::new().await);
    let id = original.incremental(10).await;
    marts.succeed(&original, id).await;
    let copy = original.copy().await;
    name_films(&original, "of the original").await;
    marts.succeed(&original, id).await;
    name_films(&copy, "of the copy").await;
    let before = marts.remembers(id).await;
    let message = marts.stops(&copy, id).await;
    assert!(message.contains("analytics.film"), "{message}");
    assert_eq!(marts.titles().await, "of the original");
    assert_eq!(marts.remembers(id).await, before);
    assert_eq!(marts.succeed(&original, id).await.rows_written, 0, "it continues");
}

#[tokio::test]
async fn of_two_copies_the_first_to_write_keeps_the_mart() {
    let (mut original, marts) = (Stage::with_films(20).await, Marts::new().await);
    let id = original.full(10).await;
    marts.succeed(&original, id).await;
    let copy = original.copy().await;
    name_films(&copy, "of the copy").await;
    marts.succeed(&copy, id).await;
    name_films(&original, "of the original").await;
    marts.stops(&original, id).await;
    marts.stops(&original, id).await;
    assert_eq!(marts.titles().await, "of the copy", "nothing tells which one is the original");
    marts.succeed(&copy, id).await;
}

#[tokio::test]
async fn a_meta_store_that_left_its_schema_beside_the_marts_is_stopped_and_says_what_to_drop() {
    let mut before = Stage::with_films(20).await;
    let id = before.full(10).await;
    before.succeed(id).await;
    // Moved: the marts stay where they were, and so does a schema that nobody needs any more.
    let moved = before.copy().await;
    let marts = Marts(before.db);
    name_films(&moved, "moved").await;
    let (code, message) = marts.fails(&moved, id).await;
    assert_eq!(code, "installation.copied", "{message}");
    assert!(message.contains("schema etl") && message.contains(marts.0.name()), "{message}");
    assert!(!marts.titles().await.contains("moved"));
    marts.0.execute("alter schema etl rename to etl_before").await;
    marts.succeed(&moved, id).await;
    assert_eq!(marts.titles().await, "moved");
}

#[tokio::test]
async fn runs_that_never_reach_the_mart_raise_no_false_alarm() {
    let (stage, marts) = (Stage::with_films(5).await, Marts::new().await);
    let id = stage.full(10).await;
    marts.succeed(&stage, id).await;
    stage.request(id).await;
    let connections = vec!["content".to_owned(), "marts".to_owned()];
    let runner =
        RunnerAbilities { name: "never there".to_owned(), connections, ..RunnerAbilities::default() };
    for _ in 0..150 {
        let claim = stage.store.claim(&runner, &Terms::idle(Duration::from_secs(30))).await.unwrap().unwrap();
        let released = stage.store.release(&claim.lease, "sink.connection_lost", "gone", Duration::ZERO);
        released.await.unwrap();
    }
    stage.work_off(marts.settings(&stage)).await;
    assert_eq!(stage.status(id).await, Status::Idle);
    let kept: i32 = stage.db.value("select cardinality(owners) from etl.etl_lease_owners").await;
    assert_eq!(kept, 51, "the one at the mart, and the newest");
    marts.succeed(&stage, id).await;
}

#[tokio::test]
async fn a_list_of_leases_that_never_reach_the_mart_is_bounded_and_keeps_the_one_that_is_there() {
    let (stage, marts) = (Stage::with_films(5).await, Marts::new().await);
    let id = stage.full(10).await;
    marts.succeed(&stage, id).await;
    stage
        .db
        .execute(
            "do $$ begin for n in 1..2000 loop
                 update etl.etl_lease_owners set owners = etl.with_lease_owner(owners, gen_random_uuid()); end loop; end $$",
        )
        .await;
    let kept: i32 = stage.db.value("select cardinality(owners) from etl.etl_lease_owners").await;
    assert!(kept <= 500, "{kept}");
    marts.succeed(&stage, id).await;
}

#[tokio::test]
async fn a_runner_that_dies_between_acquiring_the_mart_and_its_first_batch_raises_no_false_alarm() {
    let (stage, marts) = (Stage::with_films(20).await, Marts::new().await);
    let id = stage.full(10).await;
    marts.succeed(&stage, id).await;
    let before = marts.remembers(id).await;
    name_films(&stage, "new").await;
    let blocker = marts.0.client().await;
    blocker.batch_execute("begin; update analytics.film set title = 'held' where id = 3").await.unwrap();
    stage.request(id).await;
    let (mut runner, _) = stage.start(marts.settings(&stage));
    until(async || marts.remembers(id).await != before).await;
    runner.abort_all();
    while runner.join_next().await.is_some() {}
    blocker.batch_execute("rollback").await.unwrap();
    stage.expire_leases().await;
    stage.work_off(marts.settings(&stage)).await;
    assert_eq!(stage.status(id).await, Status::Idle);
    assert_eq!(marts.titles().await, "new");
}

#[tokio::test]
async fn a_mart_that_an_older_release_has_written_to_continues() {
    let (stage, marts) = (Stage::with_films(20).await, Marts::new().await);
    let id = stage.incremental(10).await;
    marts.succeed(&stage, id).await;
    marts.0.execute("alter table vitrina.checkpoints drop column owner").await;
    stage.db.execute("delete from etl.etl_lease_owners").await;
    assert_eq!(marts.succeed(&stage, id).await.rows_written, 0);
    let owned: bool = marts.0.value("select owner is not null from vitrina.checkpoints").await;
    assert!(owned, "from now on it is known who wrote there");
    marts.succeed(&stage, id).await;
}

#[tokio::test]
async fn a_meta_store_that_is_adopted_takes_its_marts_back_and_stops_the_other_copy() {
    let (mut original, marts) = (Stage::with_films(20).await, Marts::new().await);
    let id = original.incremental(10).await;
    marts.succeed(&original, id).await;
    let copy = original.copy().await;
    // Far ahead, as after many claims.
    original.db.execute("update etl.etl_pipelines set lease_token = lease_token + 1000000").await;
    name_films(&original, "of the original").await;
    marts.succeed(&original, id).await;
    name_films(&copy, "of the copy").await;
    marts.stops(&copy, id).await;
    copy.store.adopt_targets(&actor()).await.unwrap();
    marts.succeed(&copy, id).await;
    assert_eq!(marts.titles().await, "of the copy");
    name_films(&original, "of the original again").await;
    marts.stops(&original, id).await;
    assert_eq!(marts.titles().await, "of the copy");
    assert_eq!(marts.succeed(&copy, id).await.rows_written, 0, "once is enough");
}

#[tokio::test]
async fn an_adopted_meta_store_gets_above_a_lease_that_it_has_not_met_before() {
    let (mut original, marts) = (Stage::with_films(20).await, Marts::new().await);
    let id = original.full(10).await;
    marts.succeed(&original, id).await;
    let copy = original.copy().await;
    original.db.execute("update etl.etl_pipelines set lease_token = lease_token + 1000000").await;
    marts.succeed(&original, id).await;
    copy.store.adopt_targets(&actor()).await.unwrap();
    let run = marts.run(&copy, id).await;
    assert_eq!(
        (run.status, copy.status(id).await),
        (RunStatus::Running, Status::RunRequested),
        "given back once"
    );
    copy.db.execute("update etl.etl_pipelines set retry_at = null").await;
    copy.work_off(marts.settings(&copy)).await;
    assert_eq!(copy.status(id).await, Status::Idle);
    marts.stops(&original, id).await;
}

#[tokio::test]
async fn what_an_adopted_meta_store_accepts_it_accepts_once() {
    let (mut original, marts) = (Stage::with_films(20).await, Marts::new().await);
    let id = original.full(10).await;
    marts.succeed(&original, id).await;
    original.store.adopt_targets(&actor()).await.unwrap();
    marts.succeed(&original, id).await;
    let copy = original.copy().await;
    marts.succeed(&copy, id).await;
    marts.stops(&original, id).await;
}

#[tokio::test]
async fn a_restored_meta_store_asks_and_loses_nothing_once_it_is_adopted() {
    let (mut before, marts) = (Stage::with_films(20).await, Marts::new().await);
    let id = before.incremental(10).await;
    marts.succeed(&before, id).await;
    let restored = before.copy().await;
    before.add_films(21, 30).await;
    before.db.execute("update content.film set modified = clock_timestamp() where id > 20").await;
    marts.succeed(&before, id).await;
    marts.stops(&restored, id).await;
    restored.store.adopt_targets(&actor()).await.unwrap();
    let mut settings = marts.settings(&restored);
    settings.connections.0.get_mut("content").unwrap().url = before.db.url().into();
    let run = restored.request(id).await;
    restored.work_off(settings).await;
    let run = restored.run_record(run).await;
    assert_eq!((run.status, run.rows_written), (RunStatus::Success, 0), "the mart's own checkpoint counts");
    let films: i64 = marts.0.value("select count(*) from analytics.film").await;
    assert_eq!(films, 30);
}

#[tokio::test]
async fn a_copy_with_an_installation_of_its_own_is_refused_what_the_original_owns() {
    let (mut original, marts) = (Stage::with_films(20).await, Marts::new().await);
    let id = original.full(10).await;
    marts.succeed(&original, id).await;
    let copy = original.copy().await;
    let renewed = copy.store.renew_installation(&actor()).await.unwrap();
    assert_eq!(renewed.before, original.store.installation().await.unwrap());
    assert_eq!(renewed.after, copy.store.installation().await.unwrap());
    name_films(&copy, "of the copy").await;
    let (code, message) = marts.fails(&copy, id).await;
    assert!(code == "sink.owned" && message.contains(&renewed.before.to_string()), "{code} {message}");
    marts.succeed(&original, id).await;
    assert!(!marts.titles().await.contains("copy"));
}

#[tokio::test]
async fn an_installation_is_not_renewed_under_a_run() {
    let stage = Stage::with_films(5).await;
    let id = stage.full(10).await;
    let blocker = stage.block_mart().await;
    stage.request(id).await;
    let (_runner, _stop) = stage.start_runner("busy");
    stage.someone_waits_for_the_mart().await;
    let refused = stage.store.renew_installation(&actor()).await;
    assert!(matches!(refused, Err(vitrina_store::Error::RunOpen)), "{refused:?}");
    blocker.batch_execute("rollback").await.unwrap();
    stage.reaches(id, Status::Idle).await;
}

/// A runner has tried to remove what a deleted pipeline has left, and puts it off.
async fn is_put_off(stage: &Stage, settings: RunnerSettings) {
    let (mut runner, stop) = stage.start(settings);
    let put_off = "select bool_and(lease_until > clock_timestamp() + interval '1 minute') from etl.etl_requests where kind = 'forget'";
    until(async || stage.db.value::<Option<bool>>(put_off).await == Some(true)).await;
    stop.cancel();
    while runner.join_next().await.is_some() {}
}

#[tokio::test]
async fn a_pipeline_that_is_deleted_in_a_copy_leaves_what_the_original_has_written() {
    let (mut original, marts) = (Stage::with_films(20).await, Marts::new().await);
    let id = original.full(10).await;
    marts.succeed(&original, id).await;
    let copy = original.copy().await;
    marts.succeed(&original, id).await;
    let before = marts.remembers(id).await;
    copy.delete(id).await;
    // Nor does another pipeline of the copy get its mart.
    let query = "select id, title, rating, modified from content.film where id < 3";
    let other = copy.pipeline(json!({"name": "other", "source_query": query})).await;
    marts.stops(&copy, other).await;
    is_put_off(&copy, marts.settings(&copy)).await;
    assert_eq!(marts.remembers(id).await, before);
    marts.succeed(&original, id).await;
    let films: i64 = marts.0.value("select count(*) from analytics.film").await;
    assert_eq!(films, 20);
}

#[tokio::test]
async fn a_pipeline_that_is_deleted_in_a_copy_leaves_what_the_original_has_beside_its_meta_store() {
    let mut original = Stage::with_films(20).await;
    let id = original.full(10).await;
    original.succeed(id).await;
    let copy = original.copy().await;
    let marts = Marts(original.db);
    copy.delete(id).await;
    is_put_off(&copy, marts.settings(&copy)).await;
    let owned: i64 = marts.0.value("select count(*) from vitrina.marts").await;
    assert_eq!(owned, 1);
}

#[tokio::test]
async fn a_mart_of_a_pipeline_that_was_created_after_the_backup_is_taken_back_once_that_is_decided() {
    let (mut before, marts) = (Stage::with_films(20).await, Marts::new().await);
    let restored = before.copy().await;
    let id = before.incremental(10).await;
    marts.succeed(&before, id).await;
    // The same files are applied again: the same name, and another id.
    let again = restored.incremental(10).await;
    name_films(&restored, "restored").await;
    let kept = marts.remembers(id).await;
    marts.stops(&restored, again).await;
    marts.stops(&restored, again).await;
    assert_eq!(marts.remembers(id).await, kept, "never without the decision");
    restored.store.adopt_targets(&actor()).await.unwrap();
    marts.succeed(&restored, again).await;
    assert_eq!(marts.titles().await, "restored");
    marts.stops(&before, id).await;
    assert_eq!(marts.succeed(&restored, again).await.rows_written, 0);
}

#[tokio::test]
async fn a_run_that_is_under_way_in_the_other_copy_commits_nothing_to_a_mart_that_was_taken_back() {
    let (mut before, marts) = (Stage::with_films(20).await, Marts::new().await);
    let restored = before.copy().await;
    let id = before.full(10).await;
    marts.succeed(&before, id).await;
    let again = restored.full(10).await;
    restored.store.adopt_targets(&actor()).await.unwrap();
    name_films(&before, "too late").await;
    name_films(&restored, "restored").await;
    let blocker = marts.0.client().await;
    blocker.batch_execute("begin; update analytics.film set title = 'held' where id = 3").await.unwrap();
    let late = before.request(id).await;
    let (mut other, _) = before.start(marts.settings(&before));
    let waits = "select count(*) from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock'";
    until(async || marts.0.value::<i64>(waits).await == 1).await;
    let run = restored.request(again).await;
    let (mut runner, stop) = restored.start(marts.settings(&restored));
    until(async || marts.remembers(id).await.is_empty()).await;
    blocker.batch_execute("rollback").await.unwrap();
    restored.reaches(again, Status::Idle).await;
    assert_eq!(restored.run_record(run).await.status, RunStatus::Success);
    assert_eq!(marts.titles().await, "restored");
    assert_ne!(before.run_record(late).await.status, RunStatus::Success);
    stop.cancel();
    while runner.join_next().await.is_some() {}
    other.abort_all();
}

#[tokio::test]
async fn a_mart_beside_a_meta_store_that_was_restored_in_place_is_written_again() {
    let stage = Stage::with_films(20).await;
    let id = stage.full(10).await;
    stage.succeed(id).await;
    // As the backup has it, which was made before the pipeline: no other meta-store writes here.
    stage.db.execute("set session_replication_role = replica; delete from etl.etl_pipelines; delete from etl.etl_state; delete from etl.etl_lease_owners; delete from etl.etl_runs").await;
    let again = stage.full(10).await;
    stage.succeed(again).await;
    let writers: i64 = stage.db.value("select count(*) from vitrina.marts").await;
    assert_eq!(writers, 1);
}
