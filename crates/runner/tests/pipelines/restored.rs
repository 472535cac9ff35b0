//! Sources whose files are put back to an earlier moment, as a restored volume or a cold backup does: the same server, the same
//! timeline, and a log that may be longer by the next run than it was.

use rstest::rstest;
use serde_json::{Value, json};
use vitrina_connectors::sources::changelog::Desk;
use vitrina_core::{PipelineId, RunStatus, Status};
use vitrina_runner::RunnerSettings;
use vitrina_testbed::Database;

use crate::stage::{FILMS, FILTERED, QUERY, Stage};

/// Films on a server of their own; marts and meta-store are elsewhere.
struct Place {
    stage: Stage,
    source: Database,
}

impl Place {
    async fn with_films(films: i32) -> Self {
        let stage = Stage::with_films(0).await;
        let source = Database::on_a_server_of_its_own().await;
        let targets =
            "create schema etl; create table etl.etl_targets (name text, key text[], touch_column text)";
        source.execute(targets).await;
        source.execute(FILMS).await;
        let films = format!(
            "insert into content.film (id, title) select n, 'Film ' || n from generate_series(1, {films}) n"
        );
        source.execute(&films).await;
        Self { stage, source }
    }

    fn settings(&self) -> RunnerSettings {
        let mut settings = self.stage.settings("tester");
        settings.connections.0.get_mut("content").unwrap().url = self.source.url().into();
        settings
    }

    /// Answers how many rows were read.
    async fn succeed(&self, id: PipelineId) -> u64 {
        let run = self.stage.request(id).await;
        self.stage.work_off(self.settings()).await;
        let run = self.stage.run_record(run).await;
        assert_eq!((run.status, run.error), (RunStatus::Success, None));
        run.rows_read
    }

    async fn back_up(self) -> Self {
        Self { source: self.source.back_up().await, ..self }
    }

    /// And the server works on until its log and its transactions are further than they were.
    async fn restore_and_go_on(self) -> Self {
        let [log, next]: [String; 2] = self.progress().await;
        let place = Self { source: self.source.restore().await, ..self };
        let further =
            format!("select pg_current_wal_flush_lsn() > '{log}' and pg_current_xact_id() > '{next}'::xid8");
        while !place.source.value::<bool>(&further).await {
            place
                .source
                .execute("create table elsewhere as select generate_series(1, 2000); drop table elsewhere")
                .await;
        }
        place
    }

    async fn progress(&self) -> [String; 2] {
        [
            self.source.value("select pg_current_wal_flush_lsn()::text").await,
            self.source.value("select pg_current_xact_id()::text").await,
        ]
    }

    async fn install_log(&self) {
        let settings = self.settings();
        let desk = Desk::open(settings.connections.get("content").unwrap()).await.unwrap();
        let logged = desk.logged("content.film", &["id".to_owned()]).await.unwrap();
        desk.apply(&desk.install(&logged, "postgres").await.unwrap()).await.unwrap();
    }

    async fn same(&self) {
        let films = "select string_agg(id || title, ',' order by id) from ";
        let there: String = self.source.value(&format!("{films} content.film")).await;
        let here: String = self.stage.db.value(&format!("{films} analytics.film")).await;
        assert_eq!(here, there);
    }
}

const LOST: &str =
    "update content.film set title = 'lost', modified = now() + interval '1 second' where id in (4, 25);
    insert into content.film (id, title) values (31, 'lost')";

#[rstest]
#[tokio::test]
async fn a_cursor_loads_anew_when_its_source_is_put_back_however_long_its_log_is(
    #[values(QUERY, FILTERED)] query: &str,
) {
    let place = Place::with_films(30).await;
    let id = place.stage.incremental_of(query, 10).await;
    place.succeed(id).await;
    let place = place.back_up().await;
    place.source.execute(LOST).await;
    place.succeed(id).await;
    assert_eq!(place.stage.count("analytics.film where title = 'lost'").await, 3);
    let place = place.restore_and_go_on().await;
    place
        .source
        .execute(
            "update content.film set title = 'after', modified = now() + interval '1 minute' where id = 1",
        )
        .await;
    place.succeed(id).await;
    place.same().await;
    place
        .source
        .execute(
            "update content.film set title = 'and on', modified = now() + interval '2 minutes' where id = 2",
        )
        .await;
    assert!(place.succeed(id).await < 30, "a pass again, and no load");
    place.same().await;
}

fn by_log() -> Value {
    json!({"mode": "incremental", "capture": "changelog", "batch_size": 10, "read": "keyset"})
}

/// The load is held behind its first batch, the source copied and changed there, and the load ended.
#[tokio::test]
async fn a_source_that_was_copied_in_the_middle_of_a_load_and_is_put_back_later_is_loaded_anew() {
    let place = Place::with_films(30).await;
    place.install_log().await;
    let id = place.stage.pipeline(by_log()).await;
    let held = "create function analytics.held() returns trigger language plpgsql as
                    $$ begin raise sqlstate '55P03' using message = 'canceling statement due to lock timeout'; end $$;
                create trigger held before insert on analytics.film for each row when (new.id = 15) execute function analytics.held()";
    place.stage.db.execute(held).await;
    place.stage.request(id).await;
    place.stage.work_off(place.settings()).await;
    assert_eq!(
        (place.stage.status(id).await, place.stage.count("analytics.film").await),
        (Status::RunRequested, 10)
    );

    let place = place.back_up().await;
    place.source.execute(LOST).await;
    place
        .stage
        .db
        .execute("drop trigger held on analytics.film; update etl.etl_pipelines set retry_at = null")
        .await;
    place.stage.work_off(place.settings()).await;
    assert_eq!(place.stage.status(id).await, Status::Idle);
    assert_eq!(place.stage.count("analytics.film where title = 'lost'").await, 2, "rows of later pages");
    let place = Place { source: place.source.restore().await, ..place };
    place.succeed(id).await;
    place.same().await;
}

#[tokio::test]
async fn the_change_log_is_not_followed_from_a_source_that_was_put_back_into_the_middle_of_a_pass() {
    let place = Place::with_films(30).await;
    place.install_log().await;
    let id = place.stage.pipeline(by_log()).await;
    place.succeed(id).await;
    place.source.execute("update content.film set title = 'new' where id = 1").await;
    assert_eq!(place.succeed(id).await, 1, "a window, and no load");
    place.source.execute("update content.film set title = 'all'").await;
    let held = "create function analytics.held() returns trigger language plpgsql as
                    $$ begin raise sqlstate '55P03' using message = 'canceling statement due to lock timeout'; end $$;
                create trigger held before update on analytics.film for each row when (new.id = 15) execute function analytics.held()";
    place.stage.db.execute(held).await;
    place.stage.request(id).await;
    place.stage.work_off(place.settings()).await;
    assert_eq!(place.stage.status(id).await, Status::RunRequested);
    let place = place.back_up().await;
    place.source.execute("update content.film set title = 'lost' where id in (25, 26); delete from content.film where id = 27").await;
    place
        .stage
        .db
        .execute("drop trigger held on analytics.film; update etl.etl_pipelines set retry_at = null")
        .await;
    place.stage.work_off(place.settings()).await;
    assert_eq!(place.stage.status(id).await, Status::Idle);
    let place = Place { source: place.source.restore().await, ..place };
    place.succeed(id).await;
    place.same().await;
}
