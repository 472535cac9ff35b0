//! Python functions, registered with a runner.

use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};
use tempfile::TempDir;
use vitrina_core::{PipelineId, RunStatus};
use vitrina_python::{Python, PythonSettings};
use vitrina_runner::RunnerSettings;
use vitrina_store::RunRecord;

use super::stage::{QUERY, Stage};

pub(crate) struct Functions {
    pub(crate) python: Arc<Python>,
    module: TempDir,
}

impl Functions {
    pub(crate) async fn of(code: &str) -> Self {
        Self::changed(code, |_| ()).await
    }

    pub(crate) async fn changed(code: &str, change: impl FnOnce(&mut PythonSettings)) -> Self {
        let module = tempfile::tempdir().unwrap();
        std::fs::write(module.path().join("functions.py"), code).unwrap();
        let mut settings = PythonSettings {
            interpreter: vitrina_testbed::python(),
            modules: vec!["functions".to_owned()],
            path: vec![module.path().to_owned()],
            variables: Vec::new(),
            user: None,
            warm: 1,
            workers_a_run: 1,
            deadline: Duration::from_secs(60),
            memory_limit: 1 << 30,
            batches_a_worker: 1000,
        };
        change(&mut settings);
        Self { python: Python::start(settings).await.unwrap(), module }
    }

    /// The file is another from now on; workers that run already have the old one.
    pub(crate) fn rewrite(&self, code: &str) {
        std::fs::write(self.module.path().join("functions.py"), code).unwrap();
    }

    /// Functions that ask find a file beside their module from now on.
    pub(crate) fn allow(&self) {
        std::fs::write(self.module.path().join("allowed"), "").unwrap();
    }

    pub(crate) fn forbid(&self) {
        std::fs::remove_file(self.module.path().join("allowed")).ok();
    }

    pub(crate) fn settings(&self, stage: &Stage) -> RunnerSettings {
        RunnerSettings { python: Some(Arc::clone(&self.python)), ..stage.settings("pythonic") }
    }

    pub(crate) async fn run(&self, stage: &Stage, id: PipelineId) -> RunRecord {
        let run = stage.request(id).await;
        stage.work_off(self.settings(stage)).await;
        stage.run_record(run).await
    }

    pub(crate) async fn succeed(&self, stage: &Stage, id: PipelineId) -> RunRecord {
        let run = self.run(stage, id).await;
        assert_eq!(run.status, RunStatus::Success, "{:?}", run.error);
        run
    }
}

/// The query, then these functions.
pub(crate) fn plan(functions: &[&str]) -> Value {
    let reader = json!({"order_index": 1, "task_type": "SQL", "body": QUERY});
    let step = |(place, name): (usize, &&str)| json!({"order_index": place + 2, "task_type": "PYTHON", "body": name});
    let steps: Vec<Value> = [reader].into_iter().chain(functions.iter().enumerate().map(step)).collect();
    json!({"plan": steps, "source_query": "select nothing from nowhere"})
}
