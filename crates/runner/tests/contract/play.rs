//! Films at a source, a target of one kind, and a pipeline between them.

use std::collections::BTreeMap;

use serde_json::{Value, json};
use tokio::task::JoinSet;
use vitrina_core::{Mode, PipelineId, RunId, RunStatus, Status};
use vitrina_runner::{Runner, RunnerSettings};
use vitrina_store::RunRecord;

use crate::stage::{Stage, until};
use crate::targets::Target;

pub(crate) struct Play<T> {
    pub(crate) stage: Stage,
    pub(crate) target: T,
}

/// What a run is asked to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Work {
    Load,
    Increment,
    /// Of all films, by their keys.
    Backfill,
}

const SOURCE: &str = "create schema content;
    create table content.film (id int primary key, title text not null, note text not null default '1', modified timestamptz not null default now());
    create index on content.film (modified, id)";
/// Films that are hidden have left it.
pub(crate) const QUERY: &str = "select id, title, note, modified from content.film where title <> 'hidden'";

impl<T: Target> Play<T> {
    pub(crate) async fn new() -> Self {
        let stage = Stage::empty().await;
        stage.db.execute(SOURCE).await;
        let target = T::create(&stage).await;
        Self { stage, target }
    }

    pub(crate) async fn add_films(&self, from: i32, to: i32) {
        let add = format!(
            "insert into content.film (id, title) select n, 'Film ' || n from generate_series({from}, {to}) n"
        );
        self.stage.db.execute(&add).await;
    }

    /// Sets columns of films, which a cursor sees.
    pub(crate) async fn change(&self, set: &str, condition: &str) {
        let change = format!("update content.film set {set}, modified = clock_timestamp() where {condition}");
        self.stage.db.execute(&change).await;
    }

    pub(crate) async fn pipeline(&self, changes: Value) -> PipelineId {
        let mut config = json!({"target_table": self.target.name(), "source_query": QUERY, "mode": "incremental",
            "batch_size": 4, "incremental_key": "modified", "incremental_id_key": "id"});
        config.as_object_mut().unwrap().extend(changes.as_object().unwrap().clone());
        self.stage.pipeline(config).await
    }

    /// With this many films in its target.
    pub(crate) async fn loaded(&self, films: i32, changes: Value) -> PipelineId {
        self.add_films(1, films).await;
        let id = self.pipeline(changes).await;
        self.succeed(id, Work::Load).await;
        id
    }

    pub(crate) fn settings(&self, name: &str) -> RunnerSettings {
        let mut settings = self.stage.settings(name);
        self.target.connect(&mut settings);
        settings
    }

    pub(crate) async fn request(&self, id: PipelineId, work: Work) -> RunId {
        match work {
            Work::Load => self.stage.request_mode(id, Mode::Full).await,
            Work::Increment => self.stage.request_mode(id, Mode::Incremental).await,
            Work::Backfill => {
                let keys: String = self
                    .stage
                    .db
                    .value(
                        "select jsonb_agg(jsonb_build_array(id::text) order by id)::text from content.film",
                    )
                    .await;
                self.stage.request_keys(id, serde_json::from_str(&keys).unwrap()).await
            }
        }
    }

    pub(crate) async fn work_off(&self, name: &str) {
        self.stage.work_off(self.settings(name)).await;
    }

    /// A set of one.
    pub(crate) fn start(&self, name: &str) -> JoinSet<()> {
        let runner = Runner::new(self.settings(name), self.stage.store.clone());
        let mut started = JoinSet::new();
        started.spawn(async move { runner.work_off().await.unwrap() });
        started
    }

    pub(crate) async fn run(&self, id: PipelineId, work: Work) -> RunRecord {
        let run = self.request(id, work).await;
        self.work_off("tester").await;
        self.stage.run_record(run).await
    }

    /// The run ends in SUCCESS, and the target is equal to its source.
    pub(crate) async fn succeed(&self, id: PipelineId, work: Work) -> RunRecord {
        let run = self.run(id, work).await;
        self.require_success(&run).await;
        run
    }

    pub(crate) async fn require_success(&self, run: &RunRecord) {
        assert_eq!(run.status, RunStatus::Success, "{:?} {:?}", run.error_code, run.error);
        assert_eq!(self.titles().await, self.source_titles().await);
    }

    /// The code of the error with which a run fails. A backfill leaves the pipeline in the status it had.
    pub(crate) async fn fail(&self, id: PipelineId, work: Work) -> String {
        let before = self.stage.status(id).await;
        let expected = if matches!(work, Work::Backfill) { before } else { Status::Failed };
        let run = self.run(id, work).await;
        assert_eq!((run.status, self.stage.status(id).await), (RunStatus::Failed, expected));
        run.error_code.unwrap()
    }

    pub(crate) async fn configure(&self, set: &str) {
        self.stage.db.execute(&format!("update etl.etl_pipelines set {set}")).await;
    }

    pub(crate) async fn titles(&self) -> BTreeMap<String, String> {
        self.target.titles(&self.stage).await
    }

    /// Those that the target should have.
    pub(crate) async fn source_titles(&self) -> BTreeMap<String, String> {
        let rows = self.stage.db.texts(&format!("select id::text, title from ({QUERY}) q")).await;
        rows.into_iter().map(|row| (row[0].clone().unwrap(), row[1].clone().unwrap())).collect()
    }
}

/// Written, unchanged, deleted.
pub(crate) fn figures(run: &RunRecord) -> (u64, u64, u64) {
    (run.rows_written, run.rows_unchanged, run.rows_deleted)
}

impl Stage {
    /// Another runner takes a run over and ends it. Whoever was stopped may still hold the pipeline for a moment, by a
    /// statement that was on its way.
    pub(crate) async fn take_over(&self, run: RunId, settings: &RunnerSettings) {
        until(async || {
            self.expire_leases().await;
            self.work_off(settings.clone()).await;
            self.run_record(run).await.status != RunStatus::Running
        })
        .await;
    }
}
