//! Sources that are standbys: what can be read there, and what a failover leaves of a checkpoint.

use rstest::rstest;
use serde_json::json;
use tokio_postgres::{Client, NoTls};
use vitrina_connectors::sources::changelog::Desk;
use vitrina_core::{PipelineId, RunStatus};
use vitrina_runner::RunnerSettings;
use vitrina_store::RunRecord;
use vitrina_testbed::Database;

use crate::stage::{FILMS, FILTERED, QUERY, Stage, until};

/// Films on a server with a standby; marts and meta-store are elsewhere.
struct Pair {
    stage: Stage,
    primary: Database,
    standby_url: String,
    standby: Client,
    _driver: tokio::task::JoinSet<()>,
}

impl Pair {
    async fn with_films(films: i32) -> Self {
        let stage = Stage::with_films(0).await;
        let primary = Database::on_a_server_of_its_own().await;
        primary
            .execute(
                "create schema etl; create table etl.etl_targets (name text, key text[], touch_column text)",
            )
            .await;
        primary.execute(FILMS).await;
        primary.execute(&format!("insert into content.film (id, title) select n, 'Film ' || n from generate_series(1, {films}) n")).await;
        let standby_url = primary.standby().await;
        let (standby, connection) = tokio_postgres::connect(&standby_url, NoTls).await.unwrap();
        let mut driver = tokio::task::JoinSet::new();
        driver.spawn(async move { drop(connection.await) });
        Self { stage, primary, standby_url, standby, _driver: driver }
    }

    fn reading_from(&self, url: &str) -> RunnerSettings {
        let mut settings = self.stage.settings("tester");
        settings.connections.0.get_mut("content").unwrap().url = url.into();
        settings
    }

    async fn run(&self, id: PipelineId, url: &str) -> RunRecord {
        let run = self.stage.request(id).await;
        self.stage.work_off(self.reading_from(url)).await;
        self.stage.run_record(run).await
    }

    async fn succeed(&self, id: PipelineId, url: &str) -> RunRecord {
        let run = self.run(id, url).await;
        assert_eq!(run.status, RunStatus::Success, "{:?}", run.error);
        run
    }

    /// Returns when the standby shows all that the primary has.
    async fn catch_up(&self) {
        let lsn: String = self.primary.value("select pg_current_wal_lsn()::text").await;
        let shown = format!("select pg_last_wal_replay_lsn() >= '{lsn}'");
        until(async || self.standby.query_one(&shown, &[]).await.unwrap().get(0)).await;
    }

    /// From now on the standby gets nothing of what the primary commits.
    async fn cut_off(&self) {
        self.catch_up().await;
        self.standby.batch_execute("alter system set primary_conninfo = ''").await.unwrap();
        self.standby.batch_execute("select pg_reload_conf()").await.unwrap();
        let cut = "select not exists (select from pg_stat_wal_receiver)";
        until(async || self.standby.query_one(cut, &[]).await.unwrap().get(0)).await;
    }

    async fn promote(&self) {
        self.standby.query("select pg_promote()", &[]).await.unwrap();
        self.standby.batch_execute("checkpoint").await.unwrap();
    }

    async fn install_log(&self) {
        let settings = self.reading_from(self.primary.url());
        let desk = Desk::open(settings.connections.get("content").unwrap()).await.unwrap();
        let logged = desk.logged("content.film", &["id".to_owned()]).await.unwrap();
        desk.apply(&desk.install(&logged, "postgres").await.unwrap()).await.unwrap();
    }

    async fn same(&self) {
        let films = "select string_agg(id || title, ',' order by id) from ";
        let there: String = self.primary.value(&format!("{films} content.film")).await;
        let here: String = self.stage.db.value(&format!("{films} analytics.film")).await;
        assert_eq!(here, there);
    }
}

#[rstest]
#[tokio::test]
async fn a_cursor_reads_from_a_hot_standby_and_goes_on_after_its_promotion(
    #[values(QUERY, FILTERED)] query: &str,
) {
    let pair = Pair::with_films(30).await;
    let id = pair.stage.incremental_of(query, 10).await;
    pair.catch_up().await;
    assert_eq!(pair.succeed(id, &pair.standby_url).await.rows_written, 30);
    pair.primary.execute("update content.film set title = 'new', modified = now() where id in (4, 5)").await;
    pair.catch_up().await;
    let run = pair.succeed(id, &pair.standby_url).await;
    assert_eq!(run.rows_written, 2);
    pair.same().await;
    pair.promote().await;
    pair.standby
        .batch_execute("update content.film set title = 'after', modified = now() where id = 6")
        .await
        .unwrap();
    let run = pair.succeed(id, &pair.standby_url).await;
    assert_eq!((run.rows_read, run.rows_written), (30, 1), "another history: its whole window is read again");
}

/// What the primary committed last is lost: the target holds it, and the source does not.
#[rstest]
#[tokio::test]
async fn a_cursor_loads_anew_when_a_standby_is_promoted_that_lacks_changes(
    #[values(QUERY, FILTERED)] query: &str,
    #[values(true, false)] with_checkpoint: bool,
) {
    let pair = Pair::with_films(30).await;
    let id = pair.stage.incremental_of(query, 10).await;
    pair.succeed(id, pair.primary.url()).await;
    pair.cut_off().await;
    pair.primary.execute("update content.film set title = 'lost', modified = now() where id in (4, 5); insert into content.film (id, title) values (31, 'lost')").await;
    assert_eq!(pair.succeed(id, pair.primary.url()).await.rows_written, 3);
    pair.standby.query("select pg_promote()", &[]).await.unwrap();
    if with_checkpoint {
        pair.standby.batch_execute("checkpoint").await.unwrap();
    }
    let run = pair.succeed(id, &pair.standby_url).await;
    assert_eq!((run.rows_read, run.rows_written, run.rows_deleted), (30, 2, 1));
    assert_eq!(pair.stage.count("analytics.film where title = 'lost'").await, 0);
    assert_eq!(pair.succeed(id, &pair.standby_url).await.rows_written, 0);
}

#[tokio::test]
async fn the_change_log_is_refused_on_a_standby_and_loaded_anew_after_a_failover() {
    let pair = Pair::with_films(30).await;
    pair.install_log().await;
    let id =
        pair.stage.pipeline(json!({"mode": "incremental", "capture": "changelog", "batch_size": 10})).await;
    pair.succeed(id, pair.primary.url()).await;
    pair.primary.execute("update content.film set title = 'new' where id = 4").await;
    assert_eq!(pair.succeed(id, pair.primary.url()).await.rows_read, 1);
    pair.catch_up().await;
    let refused = pair.run(id, &pair.standby_url).await;
    assert_eq!(refused.error_code.as_deref(), Some("changelog.standby"));
    pair.promote().await;
    assert_eq!(pair.succeed(id, &pair.standby_url).await.rows_read, 30);
    pair.standby.batch_execute("delete from content.film where id = 7").await.unwrap();
    assert_eq!(pair.succeed(id, &pair.standby_url).await.rows_deleted, 1);
}
