//! Python tasks as runners publish them: names, and what people need to tell them apart. Never code.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::{Result, Store, from_documents};

/// What a runner says of a task.
#[derive(Debug, Clone, Serialize)]
pub struct PublishedTask {
    pub name: String,
    pub kind: &'static str,
    /// Changes with the code.
    pub version_hash: String,
    pub doc: String,
}

/// A task with the runner that has it.
#[derive(Debug, Clone, Deserialize)]
pub struct PythonTaskRecord {
    pub name: String,
    pub runner: String,
    pub kind: String,
    pub version_hash: String,
    pub doc: String,
    pub published_at: Timestamp,
    /// The runner has been heard of lately.
    pub alive: bool,
}

impl Store {
    /// In place of what this runner has published before.
    pub async fn publish_tasks(&self, runner: &str, tasks: &[PublishedTask]) -> Result<()> {
        let mut tx = self.pool.begin().await?;
        sqlx::query("delete from etl.etl_python_tasks where runner = $1")
            .bind(runner)
            .execute(&mut *tx)
            .await?;
        sqlx::query(
            "insert into etl.etl_python_tasks (name, runner, kind, version_hash, doc)
             select t.name, $1, t.kind, t.version_hash, t.doc
               from jsonb_to_recordset($2) as t (name text, kind text, version_hash text, doc text)",
        )
        .bind(runner)
        .bind(serde_json::to_value(tasks)?)
        .execute(&mut *tx)
        .await?;
        tx.commit().await?;
        Ok(())
    }

    /// By name; one that several runners have comes once for each.
    pub async fn python_tasks(&self) -> Result<Vec<PythonTaskRecord>> {
        let documents: Vec<Value> = sqlx::query_scalar(
            "select to_jsonb(t) || jsonb_build_object('alive',
                        r.status <> 'STOPPED' and r.heartbeat_at > clock_timestamp() - interval '30 seconds')
               from etl.etl_python_tasks t join etl.etl_runners r on r.name = t.runner
              order by t.name, t.runner",
        )
        .fetch_all(&self.pool)
        .await?;
        from_documents(documents)
    }
}
