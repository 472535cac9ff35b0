//! Checkpoints that people change: under the lease of the run that was asked to.

use serde_json::json;
use vitrina_core::{Checkpoint, Lease};

use crate::steps::hold;
use crate::{Error, Result, Store};

impl Store {
    /// Carries out what a run was asked to do about its checkpoint.
    pub async fn decide(&self, lease: &Lease, from_version: i64, checkpoint: &Checkpoint) -> Result<i64> {
        let mut tx = self.pool.begin().await?;
        hold(&mut tx, lease).await?;
        let version: Option<i64> = sqlx::query_scalar(
            "update etl.etl_state set checkpoint = $3, version = version + 1, updated_at = clock_timestamp()
              where pipeline_id = $1 and version = $2 returning version",
        )
        .bind(lease.pipeline.0)
        .bind(from_version)
        .bind(json!(checkpoint))
        .fetch_optional(&mut *tx)
        .await?;
        // Only another owner of the pipeline could have moved it.
        let version = version.ok_or(Error::LeaseLost)?;
        tx.commit().await?;
        Ok(version)
    }
}
