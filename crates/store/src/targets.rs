//! Targets that somebody has described.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use sqlx::PgConnection;
use vitrina_core::{Target, TargetName};

use crate::pipelines::EFFECTIVE_TARGET;
use crate::scope::within;
use crate::{Result, Scope, Store, from_documents};

#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct TargetRecord {
    #[serde(flatten)]
    pub target: Target,
    pub version: i64,
    pub created_at: Timestamp,
    pub updated_at: Timestamp,
    /// Names of the pipelines that write to it, within the scope.
    pub pipelines: Vec<String>,
}

/// A target `t` as one JSON document; the scope is parameter `scope`.
fn as_document(scope: usize) -> String {
    format!(
        "to_jsonb(t) || jsonb_build_object('pipelines', coalesce((
            select jsonb_agg(p.name order by p.name) from etl.etl_pipelines p where {EFFECTIVE_TARGET} = t.name and {}), '[]'))",
        within("p", scope),
    )
}

impl Store {
    /// The target as a run sees it: what stands for one where nobody has described it.
    pub async fn target(&self, name: &TargetName) -> Result<Target> {
        let mut connection = self.pool.acquire().await?;
        target(&mut connection, name).await
    }

    /// All that somebody has described, by name. Within a scope: those that one of its pipelines writes to.
    pub async fn targets(&self) -> Result<Vec<TargetRecord>> {
        self.targets_for(&[]).await
    }

    /// The same, and of these those that no pipeline writes to.
    pub async fn targets_for(&self, unused: &[String]) -> Result<Vec<TargetRecord>> {
        // Pipelines are looked through once, not once for each target.
        let sql = format!(
            "with writers as materialized (
                 select {EFFECTIVE_TARGET} as target, jsonb_agg(p.name order by p.name) filter (where {within}) as names
                   from etl.etl_pipelines p group by 1)
             select to_jsonb(t) || jsonb_build_object('pipelines', coalesce(w.names, '[]'))
               from etl.etl_targets t left join writers w on w.target = t.name
              where $1::text[] is null or w.names is not null or (t.name = any($2) and w.target is null)
              order by t.name collate \"C\"",
            within = within("p", 1),
        );
        let documents: Vec<Value> = sqlx::query_scalar(sqlx::AssertSqlSafe(sql))
            .bind(self.scope.tags())
            .bind(unused)
            .fetch_all(&self.pool)
            .await?;
        from_documents(documents)
    }

    /// Describes a target as a run has found it, unless somebody has meanwhile.
    pub async fn describe_target(&self, target: &Target) -> Result<()> {
        let sql = "insert into etl.etl_targets (name, connection, key, create_if_missing) values ($1, $2, $3, $4) on conflict (name) do nothing";
        let described = sqlx::query(sql).bind(&target.name).bind(&target.connection).bind(&target.key);
        described.bind(target.create_if_missing).execute(&self.pool).await?;
        Ok(())
    }

    /// Within a scope: only where one of its pipelines writes to it.
    pub async fn described_target(&self, name: &str) -> Result<Option<TargetRecord>> {
        let mut connection = self.pool.acquire().await?;
        find(&mut connection, name, &self.scope).await
    }
}

/// Whether a pipeline of the scope writes to the target `t`.
fn is_used(scope: usize) -> String {
    format!(
        "exists (select from etl.etl_pipelines p where {EFFECTIVE_TARGET} = t.name and {})",
        within("p", scope)
    )
}

async fn find(connection: &mut PgConnection, name: &str, scope: &Scope) -> Result<Option<TargetRecord>> {
    let sql = format!(
        "select {} from etl.etl_targets t where t.name = $1 and ($2::text[] is null or {})",
        as_document(2),
        is_used(2)
    );
    let found = sqlx::query_scalar(sqlx::AssertSqlSafe(sql)).bind(name).bind(scope.tags());
    let document: Option<Value> = found.fetch_optional(connection).await?;
    Ok(document.map(serde_json::from_value).transpose()?)
}

/// Whoever writes to it.
pub(crate) async fn described(connection: &mut PgConnection, name: &str) -> Result<Option<TargetRecord>> {
    find(connection, name, &Scope::EVERYTHING).await
}

pub(crate) async fn target(connection: &mut PgConnection, name: &TargetName) -> Result<Target> {
    let record = described(connection, &name.to_string()).await?;
    Ok(record.map_or_else(|| Target::undescribed(name), |record| record.target))
}
