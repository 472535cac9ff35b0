//! The contract of sources and of the feeds that tell what has changed there. A new kind brings a `Feed` of its own and
//! one line in `of_every_feed`.

/// Tests of these behaviours, for every kind.
macro_rules! of_every_feed {
    ($($behaviour:ident),* $(,)?) => {
        of_feed!(postgres_cursor, $crate::feeds::postgres::Cursor, $($behaviour),*);
        of_feed!(postgres_changelog, $crate::feeds::postgres::Changelog, $($behaviour),*);
        of_feed!(python, $crate::feeds::python::Function, $($behaviour),*);
        of_feed!(toy, $crate::feeds::memory::Memory, $($behaviour),*);
    };
}

macro_rules! of_feed {
    ($module:ident, $feed:ty, $($behaviour:ident),*) => {
        mod $module {
            $(
                #[tokio::test]
                async fn $behaviour() {
                    super::$behaviour($crate::feeds::FeedPlay::<$feed>::new().await).await;
                }
            )*
        }
    };
}

mod arrivals;
mod interruptions;
mod memory;
mod postgres;
mod python;
mod schema;

use std::collections::BTreeMap;

use async_trait::async_trait;
use serde_json::Value;
use vitrina_core::{Mode, PipelineId, RunId, RunStatus};
use vitrina_runner::RunnerSettings;
use vitrina_store::RunRecord;
use vitrina_testbed::Fault;

use crate::stage::Stage;

/// Or the reason why not.
type Can = Result<(), &'static str>;

/// What a kind of feed can do.
#[derive(Debug, Clone, Copy)]
pub(crate) struct FeedAbilities {
    /// Increments delete what has left the source.
    pub(crate) sees_deletes: Can,
    /// Rows can be committed late, behind rows that are newer.
    pub(crate) has_transactions: Can,
    /// Its columns are those of a table, which others may change.
    pub(crate) has_table: Can,
    /// Requests that can fail.
    pub(crate) has_requests: Can,
    /// One of so many does: all of them where that is quick.
    pub(crate) every: usize,
}

/// Films at a source of one kind.
#[async_trait(?Send)]
pub(crate) trait Feed {
    const ABILITIES: FeedAbilities;

    /// A source without films.
    async fn create(stage: &Stage) -> Self
    where
        Self: Sized;

    /// Fields of a pipeline that reads it.
    fn config(&self) -> Value;

    /// Lets a runner reach it, through whatever fails on demand.
    fn connect(&self, settings: &mut RunnerSettings);

    /// Adds films, or gives them another title, all at the same moment.
    async fn put(&self, stage: &Stage, ids: &[i32], title: &str);

    async fn delete(&self, stage: &Stage, id: i32);

    /// What is there, by id.
    async fn titles(&self, stage: &Stage) -> BTreeMap<String, String>;

    /// The `nth` request of runners from now on meets this fault.
    fn play_at(&self, nth: usize, fault: Fault);

    /// How many requests have come since then.
    fn requests(&self) -> usize;
}

/// Films at a source, a mart, and a pipeline between them.
pub(crate) struct FeedPlay<F> {
    stage: Stage,
    feed: F,
    id: PipelineId,
}

const MART: &str = "create schema if not exists analytics;
    create table analytics.film (id int primary key, title text, modified timestamptz)";

impl<F: Feed> FeedPlay<F> {
    pub(crate) async fn new() -> Self {
        let stage = Stage::empty().await;
        stage.db.execute(MART).await;
        let feed = F::create(&stage).await;
        let mut config = feed.config();
        config["target_table"] = "analytics.film".into();
        config["mode"] = "incremental".into();
        config["batch_size"] = 3.into();
        config["delete_limit"] = 1.0.into();
        let id = stage.pipeline(config).await;
        Self { stage, feed, id }
    }

    fn settings(&self, name: &str) -> RunnerSettings {
        let mut settings = self.stage.settings(name);
        self.feed.connect(&mut settings);
        settings
    }

    async fn put(&self, ids: impl IntoIterator<Item = i32>, title: &str) {
        self.feed.put(&self.stage, &ids.into_iter().collect::<Vec<_>>(), title).await;
    }

    async fn work_off(&self, name: &str) {
        self.stage.work_off(self.settings(name)).await;
    }

    async fn request(&self, mode: Mode) -> RunId {
        self.stage.request_mode(self.id, mode).await
    }

    async fn run(&self, mode: Mode) -> RunRecord {
        let run = self.request(mode).await;
        self.work_off("tester").await;
        self.stage.run_record(run).await
    }

    async fn succeed(&self, mode: Mode) -> RunRecord {
        let run = self.run(mode).await;
        assert_eq!(run.status, RunStatus::Success, "{:?} {:?}", run.error_code, run.error);
        run
    }

    /// The same, and the mart is equal to the source then.
    async fn equal_after(&self, mode: Mode) -> RunRecord {
        let run = self.succeed(mode).await;
        self.require_equal("").await;
        run
    }

    async fn require_equal(&self, when: &str) {
        assert_eq!(self.mart().await, self.feed.titles(&self.stage).await, "{when}");
    }

    async fn mart(&self) -> BTreeMap<String, String> {
        let rows = self.stage.db.texts("select id::text, title from analytics.film").await;
        rows.into_iter().map(|row| (row[0].clone().unwrap(), row[1].clone().unwrap())).collect()
    }
}
