//! Batches entered by sinks that cannot enter them in a transaction of their own.

use async_trait::async_trait;
use serde_json::{Value, json};
use sqlx::Row;
use uuid::Uuid;
use vitrina_core::{
    Committed, Entry, Holder, Issued, Lease, Ledger, OpenReject, Outcome, Owner, PipelineId, Quote,
    Recognized, Result, State,
};

use crate::lease_owners;
use crate::pipelines::EFFECTIVE_TARGET;
use crate::steps::hold;
use crate::{Error, Store};

#[async_trait]
impl Ledger for Store {
    async fn commit(&self, entry: &Entry<'_>) -> Result<Committed> {
        Ok(commit(self, entry).await?)
    }

    fn commit_statement(&self, entry: &Entry<'_>, quote: Quote) -> String {
        let (checkpoint, outcome) = (json!(entry.checkpoint).to_string(), json!(entry.outcome).to_string());
        format!(
            "select new_version, interrupted from etl.commit_batch('{}', '{}', {}, {}, {}, {})",
            entry.lease.pipeline,
            entry.lease.owner.0,
            entry.lease.token,
            entry.from_version,
            quote(&checkpoint),
            quote(&outcome),
        )
    }

    fn presence_statement(&self) -> &'static str {
        "select to_regprocedure('etl.installation_id()') is not null,
                to_regprocedure('etl.holds_lease(uuid, uuid)') is not null"
    }

    fn identity_statement(&self, knows_holders: bool, id: Uuid, owner: Owner) -> String {
        match knows_holders {
            true => format!("select etl.installation_id(), etl.holds_lease('{id}', '{}')", owner.0),
            false => "select etl.installation_id(), false".to_owned(),
        }
    }

    async fn adopt(&self, lease: &Lease, state: &State) -> Result<()> {
        Ok(adopt(self, lease, state).await?)
    }

    async fn keep_rejects(&self, lease: &Lease, outcome: &Outcome) -> Result<u64> {
        Ok(keep_rejects(self, lease, outcome).await?)
    }

    async fn open_rejects(&self, lease: &Lease) -> Result<Vec<OpenReject>> {
        Ok(open_rejects(self, lease).await?)
    }

    async fn hold(&self, lease: &Lease) -> Result<()> {
        let mut connection = self.pool.acquire().await.map_err(Error::from)?;
        Ok(hold(&mut connection, lease).await?)
    }

    async fn recognize(&self, lease: &Lease, holder: Option<Holder>) -> Result<Recognized> {
        match lease_owners::recognize(self, lease, holder).await? {
            (Recognized::Adopted, false) => Err(vitrina_core::Error::release(
                "lease.behind",
                "the target was written under a newer lease than this one: the next is newer than that",
            )),
            (recognized, _) => Ok(recognized),
        }
    }

    async fn accept(&self, lease: &Lease, holder: Holder) -> Result<()> {
        Ok(lease_owners::accept(self, lease, holder).await?)
    }

    async fn issued(&self, pipelines: &[PipelineId]) -> Result<Issued> {
        let mut connection = self.pool.acquire().await.map_err(Error::from)?;
        Ok(lease_owners::issued(&mut connection, pipelines).await?)
    }

    async fn writing(
        &self,
        pipelines: &[PipelineId],
        target: &str,
        shared_value: Option<&str>,
    ) -> Result<Vec<PipelineId>> {
        Ok(writing(self, pipelines, target, shared_value).await?)
    }

    async fn running(&self, pipelines: &[PipelineId]) -> Result<Vec<PipelineId>> {
        Ok(running(self, pipelines).await?)
    }
}

async fn commit(store: &Store, entry: &Entry<'_>) -> crate::Result<Committed> {
    let row = sqlx::query("select new_version, interrupted from etl.commit_batch($1, $2, $3, $4, $5, $6)")
        .bind(entry.lease.pipeline.0)
        .bind(entry.lease.owner.0)
        .bind(entry.lease.token.0)
        .bind(entry.from_version)
        .bind(json!(entry.checkpoint))
        .bind(json!(entry.outcome))
        .fetch_one(&store.pool)
        .await?;
    Ok(Committed { version: row.try_get("new_version")?, interrupted: row.try_get("interrupted")? })
}

async fn adopt(store: &Store, lease: &Lease, state: &State) -> crate::Result<()> {
    let mut tx = store.pool.begin().await?;
    hold(&mut tx, lease).await?;
    sqlx::query(
        "with before as (select checkpoint #> '{position,done}' as done from etl.etl_state where pipeline_id = $1),
              changed as (update etl.etl_state set checkpoint = $2, version = $3, updated_at = clock_timestamp()
                           where pipeline_id = $1)
         select etl.keep_checkpoint($1, $3, $2, (select run_id from etl.etl_pipelines where id = $1), 'mart')
           from before where done is distinct from $2 #> '{position,done}'",
    )
    .bind(lease.pipeline.0)
    .bind(json!(state.checkpoint))
    .bind(state.version)
    .execute(&mut *tx)
    .await?;
    Ok(tx.commit().await?)
}

/// Closes none: that is the commit's.
async fn keep_rejects(store: &Store, lease: &Lease, outcome: &Outcome) -> crate::Result<u64> {
    let rejects = Outcome { closed: Vec::new(), close_others: false, ..outcome.clone() };
    let mut tx = store.pool.begin().await?;
    hold(&mut tx, lease).await?;
    let open: i64 =
        sqlx::query_scalar("select etl.keep_rejects(id, run_id, $2) from etl.etl_pipelines where id = $1")
            .bind(lease.pipeline.0)
            .bind(json!(rejects))
            .fetch_one(&mut *tx)
            .await?;
    tx.commit().await?;
    Ok(open.unsigned_abs())
}

async fn open_rejects(store: &Store, lease: &Lease) -> crate::Result<Vec<OpenReject>> {
    let rows: Vec<(Value, bool, Option<Uuid>)> = sqlx::query_as(
        "select key, acknowledged_at is not null, load_id from etl.etl_rejects where pipeline_id = $1 order by key_hash",
    )
    .bind(lease.pipeline.0)
    .fetch_all(&store.pool)
    .await?;
    let reject = |(key, acknowledged, load)| OpenReject { key, acknowledged, load };
    Ok(rows.into_iter().map(reject).collect())
}

async fn writing(
    store: &Store,
    pipelines: &[PipelineId],
    target: &str,
    shared_value: Option<&str>,
) -> crate::Result<Vec<PipelineId>> {
    let sql = format!(
        "select p.id from etl.etl_pipelines p
          where p.id = any($1) and {EFFECTIVE_TARGET} = $2 and ($3::text is null or p.shared_value is null or p.shared_value = $3)"
    );
    let ids: Vec<Uuid> = sqlx::query_scalar(sqlx::AssertSqlSafe(sql))
        .bind(pipelines.iter().map(|pipeline| pipeline.0).collect::<Vec<_>>())
        .bind(target)
        .bind(shared_value)
        .fetch_all(&store.pool)
        .await?;
    Ok(ids.into_iter().map(PipelineId).collect())
}

async fn running(store: &Store, pipelines: &[PipelineId]) -> crate::Result<Vec<PipelineId>> {
    let ids: Vec<Uuid> = sqlx::query_scalar(
        "select id from etl.etl_pipelines
          where id = any($1) and status in ('RUNNING', 'PAUSE_REQUESTED')",
    )
    .bind(pipelines.iter().map(|pipeline| pipeline.0).collect::<Vec<_>>())
    .fetch_all(&store.pool)
    .await?;
    Ok(ids.into_iter().map(PipelineId).collect())
}

impl From<Error> for vitrina_core::Error {
    fn from(error: Error) -> Self {
        let raised = match &error {
            Error::Database(sqlx::Error::Database(refusal)) => refusal.code().map(|code| code.into_owned()),
            _ => None,
        };
        match (raised.as_deref(), error) {
            (Some("VT001"), _) | (_, Error::LeaseLost) => Self::lease_lost(),
            (Some("VT002"), _) => Self::checkpoint_moved(),
            (Some("VT004"), _) => Self::reject_limit("the run has more rejects than its reject_limit allows")
                .hint("look at the rejects: acknowledge them, or repair the rows and retry"),
            (_, error) if error.is_connection() => {
                Self::release("meta_store.connection_lost", error.to_string()).caused_by(error)
            }
            (_, error) if error.is_busy() => {
                Self::retry("meta_store.busy", error.to_string()).caused_by(error)
            }
            (_, error) => Self::fix("meta_store.refused", error.to_string()).caused_by(error),
        }
    }
}
