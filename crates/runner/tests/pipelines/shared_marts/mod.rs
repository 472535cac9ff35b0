//! Marts that several pipelines share: by rows, where each writes those of its own value, and by columns, where each writes
//! the columns of its own query. Whatever one of them does, the others' part stays as it is.

mod by_columns;
mod by_rows;
mod storm;

use serde_json::{Value, json};
use vitrina_core::{Level, PipelineId, RunStatus, Verdict};
use vitrina_runner::RunnerSettings;
use vitrina_store::PipelineRef;
use vitrina_testbed::Database;

use crate::requests::request;
use crate::stage::Stage;

/// Two pipelines that share `analytics.mart`, in the database of the meta-store or in another one.
struct Pair {
    stage: Stage,
    marts: Option<Database>,
    first: PipelineId,
    second: PipelineId,
}

impl Pair {
    fn db(&self) -> &Database {
        self.marts.as_ref().unwrap_or(&self.stage.db)
    }

    fn settings(&self) -> RunnerSettings {
        let mut settings = self.stage.settings("tester");
        settings.connections.0.get_mut("marts").unwrap().url = self.db().url().into();
        settings
    }

    /// Runs of both at the same time.
    async fn run_both(&self) {
        let runs = [self.stage.request(self.first).await, self.stage.request(self.second).await];
        self.stage.work_off(self.settings()).await;
        for run in runs {
            let run = self.stage.run_record(run).await;
            assert_eq!(run.status, RunStatus::Success, "{:?}", run.error);
        }
    }

    async fn run(&self, id: PipelineId) -> vitrina_store::RunRecord {
        let run = self.stage.request(id).await;
        self.stage.work_off(self.settings()).await;
        self.stage.run_record(run).await
    }

    async fn succeed(&self, id: PipelineId) -> vitrina_store::RunRecord {
        let run = self.run(id).await;
        assert_eq!(run.status, RunStatus::Success, "{:?}", run.error);
        run
    }

    async fn fail(&self, id: PipelineId) -> (String, String) {
        let run = self.run(id).await;
        assert_eq!(run.status, RunStatus::Failed);
        (run.error_code.unwrap(), run.error.unwrap())
    }

    /// At every level, with what the strictest one has counted: missing, extra, different.
    async fn verdicts(&self, id: PipelineId) -> ([Verdict; 3], (u64, u64, u64)) {
        let mut found = Vec::new();
        for level in [Level::Count, Level::Hash, Level::Rows] {
            found.push(self.stage.reconcile_with(self.settings(), id, level).await);
        }
        ([0, 1, 2].map(|place| found[place].verdict()), found[2].counts())
    }

    async fn is_equal(&self, id: PipelineId) {
        assert_eq!(self.verdicts(id).await.0, [Verdict::Equal; 3]);
    }

    /// What a runner says of the mart, beside the rows of one pipeline.
    async fn standing(&self, id: PipelineId) -> Value {
        let pipeline = self.stage.store.pipeline(&PipelineRef::Id(id)).await.unwrap().config;
        let target = self.stage.store.target(&"analytics.mart".parse().unwrap()).await.unwrap();
        let (runner, stop) = self.stage.start(self.settings());
        let asked = request("standing", json!({"target": target, "pipeline": pipeline}));
        let answer = self.stage.answered(&asked).await.answer.expect("an answer");
        stop.cancel();
        runner.join_all().await;
        answer
    }

    /// Compares the rows of one pipeline, and has what differs read again.
    async fn repair(&self, id: PipelineId) {
        let found = self.stage.reconcile_with(self.settings(), id, Level::Rows).await;
        let plan = self.stage.store.repair_plan(found.record.id).await.unwrap();
        let keys = Value::Array(plan.keys);
        let run = self.stage.request_keys(id, keys).await;
        self.stage.work_off(self.settings()).await;
        let run = self.stage.run_record(run).await;
        assert_eq!(run.status, RunStatus::Success, "{:?}", run.error);
    }
}

/// A pipeline on the shared mart.
async fn pipeline(stage: &Stage, name: &str, query: &str, batch_size: i32, more: Value) -> PipelineId {
    let mut config = json!({"name": name, "source_query": query, "target_table": "analytics.mart", "batch_size": batch_size});
    for (field, value) in more.as_object().unwrap() {
        config[field] = value.clone();
    }
    stage.pipeline(config).await
}

/// The same by its cursor.
fn incremental() -> Value {
    json!({"mode": "incremental", "incremental_key": "modified", "incremental_id_key": "id"})
}
