//! Targets that somebody has described.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use sqlx::PgConnection;
use vitrina_core::{Target, TargetName};

use crate::pipelines::EFFECTIVE_TARGET;
use crate::{Result, Store};

#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct TargetRecord {
    #[serde(flatten)]
    pub target: Target,
    pub version: i64,
    pub created_at: Timestamp,
    pub updated_at: Timestamp,
    /// Names of the pipelines that write to it.
    pub pipelines: Vec<String>,
}

/// A target `t` as one JSON document.
fn as_document() -> String {
    format!(
        "to_jsonb(t) || jsonb_build_object('pipelines', coalesce((
            select jsonb_agg(p.name order by p.name) from etl.etl_pipelines p where {EFFECTIVE_TARGET} = t.name), '[]'))"
    )
}

impl Store {
    /// The target as a run sees it: what stands for one where nobody has described it.
    pub async fn target(&self, name: &TargetName) -> Result<Target> {
        let mut connection = self.pool.acquire().await?;
        target(&mut connection, name).await
    }

    /// All that somebody has described, by name.
    pub async fn targets(&self) -> Result<Vec<TargetRecord>> {
        let sql = format!("select {} from etl.etl_targets t order by t.name collate \"C\"", as_document());
        let documents: Vec<Value> =
            sqlx::query_scalar(sqlx::AssertSqlSafe(sql)).fetch_all(&self.pool).await?;
        documents.into_iter().map(|document| Ok(serde_json::from_value(document)?)).collect()
    }

    /// Describes a target as a run has found it, unless somebody has meanwhile.
    pub async fn describe_target(&self, target: &Target) -> Result<()> {
        let sql = "insert into etl.etl_targets (name, connection, key, create_if_missing) values ($1, $2, $3, $4) on conflict (name) do nothing";
        let described = sqlx::query(sql).bind(&target.name).bind(&target.connection).bind(&target.key);
        described.bind(target.create_if_missing).execute(&self.pool).await?;
        Ok(())
    }

    pub async fn described_target(&self, name: &str) -> Result<Option<TargetRecord>> {
        let mut connection = self.pool.acquire().await?;
        described(&mut connection, name).await
    }
}

pub(crate) async fn described(connection: &mut PgConnection, name: &str) -> Result<Option<TargetRecord>> {
    let sql = format!("select {} from etl.etl_targets t where t.name = $1", as_document());
    let document: Option<Value> =
        sqlx::query_scalar(sqlx::AssertSqlSafe(sql)).bind(name).fetch_optional(connection).await?;
    Ok(document.map(serde_json::from_value).transpose()?)
}

pub(crate) async fn target(connection: &mut PgConnection, name: &TargetName) -> Result<Target> {
    let record = described(connection, &name.to_string()).await?;
    Ok(record.map_or_else(|| Target::undescribed(name), |record| record.target))
}
