//! Which leases this meta-store has issued, and which of several copies of it is the rightful one. A copy knows all that the
//! original has issued until then, and nothing that either has issued since.

use serde::Serialize;
use serde_json::json;
use sqlx::PgConnection;
use uuid::Uuid;
use vitrina_core::{Holder, Issued, Lease, Owner, PipelineId, Recognized};

use crate::access::{Actor, write_audit};
use crate::pipelines::EFFECTIVE_TARGET;
use crate::steps::hold;
use crate::{Error, Result, Store};

/// Why runs were stopped whose target another copy of the meta-store has written to.
const COPIED: &str = "installation.copied";

/// A pipeline, and whether its last run was stopped because another copy of the meta-store writes to its target.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, sqlx::FromRow)]
pub struct InstalledPipeline {
    pub id: Uuid,
    pub name: String,
    pub target: String,
    pub stopped: bool,
}

/// The id that this installation had, and the one that it has from now on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct RenewedInstallation {
    pub before: Uuid,
    pub after: Uuid,
}

/// A lock that is held in this meta-store's database alone, as long as this lives: whoever sees it there is in the same one.
#[derive(Debug)]
pub struct Presence {
    pub key: i64,
    _held: sqlx::Transaction<'static, sqlx::Postgres>,
}

impl Store {
    /// For callers that hold no lease, for some seconds.
    pub async fn presence(&self) -> Result<Presence> {
        let mut tx = self.pool.begin().await?;
        let key = Uuid::new_v4().as_u64_pair().1.cast_signed();
        sqlx::query("select pg_advisory_xact_lock($1)").bind(key).execute(&mut *tx).await?;
        Ok(Presence { key, _held: tx })
    }

    /// All pipelines by name.
    pub async fn installed_pipelines(&self) -> Result<Vec<InstalledPipeline>> {
        let sql = format!(
            "select p.id, p.name, {EFFECTIVE_TARGET} as target,
                    p.status = 'FAILED' and coalesce((select r.error_code = $1 from etl.etl_runs r where r.pipeline_id = p.id
                                                       order by r.requested_at desc limit 1), false) as stopped
               from etl.etl_pipelines p order by p.name"
        );
        Ok(sqlx::query_as(sqlx::AssertSqlSafe(sql)).bind(COPIED).fetch_all(&self.pool).await?)
    }

    /// This meta-store is the rightful one: the next run of each pipeline accepts whoever wrote to its target last. What
    /// deleted pipelines have left is removed whoever wrote there since.
    pub async fn adopt_targets(&self, actor: &Actor) -> Result<()> {
        let mut tx = self.pool.begin().await?;
        sqlx::query(
            "insert into etl.etl_lease_owners (pipeline_id, adopts) select id, true from etl.etl_pipelines
             on conflict (pipeline_id) do update set adopts = true",
        )
        .execute(&mut *tx)
        .await?;
        sqlx::query(
            "update etl.etl_requests set payload = jsonb_set(payload, '{issued,adopts}', 'true')
              where kind = 'forget' and finished_at is null and payload ? 'issued'",
        )
        .execute(&mut *tx)
        .await?;
        let subject = format!("installation {}", installation(&mut tx).await?);
        write_audit(&mut tx, actor, "installation.adopt", &subject, None, None).await?;
        Ok(tx.commit().await?)
    }

    /// This is a copy that lives on its own from now on: it owns nothing that it has not acquired since.
    pub async fn renew_installation(&self, actor: &Actor) -> Result<RenewedInstallation> {
        let mut tx = self.pool.begin().await?;
        // No claim comes between.
        sqlx::query("lock table etl.etl_pipelines in share row exclusive mode").execute(&mut *tx).await?;
        let active = "select exists (select from etl.etl_pipelines where owner is not null)";
        if sqlx::query_scalar(active).fetch_one(&mut *tx).await? {
            return Err(Error::RunOpen);
        }
        let before = installation(&mut tx).await?;
        let after = Uuid::new_v4();
        sqlx::query("update etl.etl_installation set id = $1").bind(after).execute(&mut *tx).await?;
        sqlx::query("delete from etl.etl_lease_owners").execute(&mut *tx).await?;
        // What deleted pipelines have left is the original's.
        sqlx::query("delete from etl.etl_requests where kind = 'forget' and finished_at is null")
            .execute(&mut *tx)
            .await?;
        let (old, new) = (json!({"id": before}), json!({"id": after}));
        let subject = format!("installation {before}");
        write_audit(&mut tx, actor, "installation.new", &subject, Some(old), Some(new)).await?;
        tx.commit().await?;
        Ok(RenewedInstallation { before, after })
    }
}

async fn installation(connection: &mut PgConnection) -> Result<Uuid> {
    Ok(sqlx::query_scalar("select id from etl.etl_installation").fetch_one(connection).await?)
}

/// Of deleted pipelines too, as long as what they have left has not been removed.
pub(crate) async fn issued(connection: &mut PgConnection, pipelines: &[PipelineId]) -> Result<Issued> {
    let found: Vec<(Vec<Uuid>, bool)> = sqlx::query_as(
        "select owners, adopts from etl.etl_lease_owners where pipeline_id = any($1)
          union all
         select array(select jsonb_array_elements_text(payload #> '{issued,owners}')::uuid), (payload #> '{issued,adopts}')::boolean
           from etl.etl_requests
          where kind = 'forget' and finished_at is null and payload ? 'issued' and (payload ->> 'pipeline')::uuid = any($1)",
    )
    .bind(pipelines.iter().map(|pipeline| pipeline.0).collect::<Vec<_>>())
    .fetch_all(connection)
    .await?;
    let mut issued = Issued::default();
    for (owners, adopts) in found {
        issued.owners.extend(owners.into_iter().map(Owner));
        issued.adopts |= adopts;
    }
    Ok(issued)
}

/// Of the pipeline as it is.
async fn present(connection: &mut PgConnection, pipeline: PipelineId) -> Result<Issued> {
    let found: Option<(Vec<Uuid>, bool)> =
        sqlx::query_as("select owners, adopts from etl.etl_lease_owners where pipeline_id = $1")
            .bind(pipeline.0)
            .fetch_optional(connection)
            .await?;
    let (owners, adopts) = found.unwrap_or_default();
    Ok(Issued { owners: owners.into_iter().map(Owner).collect(), adopts })
}

/// While the lease is held, no lease that this meta-store has issued can be newer than it: a target that is ahead of it was
/// acquired by another copy.
pub(crate) async fn recognize(
    store: &Store,
    lease: &Lease,
    holder: Option<Holder>,
) -> Result<(Recognized, bool)> {
    let mut tx = store.pool.begin().await?;
    hold(&mut tx, lease).await?;
    let issued = present(&mut tx, lease.pipeline).await?;
    let known = holder.is_none_or(|holder| issued.knows(holder));
    let yields = holder.is_none_or(|holder| holder.yields_to(lease));
    let recognized = match (known, yields) {
        (true, true) => Recognized::Issued,
        _ if issued.adopts => Recognized::Adopted,
        _ => Recognized::Unknown,
    };
    match holder.filter(|_| recognized != Recognized::Issued) {
        None => put(&mut tx, lease.pipeline, &issued.cut_down(holder)).await?,
        Some(holder) => note_token(&mut tx, lease.pipeline, holder).await?,
    }
    tx.commit().await?;
    Ok((recognized, yields))
}

pub(crate) async fn accept(store: &Store, lease: &Lease, holder: Holder) -> Result<()> {
    let mut tx = store.pool.begin().await?;
    hold(&mut tx, lease).await?;
    let issued = present(&mut tx, lease.pipeline).await?;
    put(&mut tx, lease.pipeline, &issued.cut_down(Some(holder))).await?;
    Ok(tx.commit().await?)
}

async fn put(tx: &mut PgConnection, pipeline: PipelineId, issued: &Issued) -> Result<()> {
    let owners: Vec<Uuid> = issued.owners.iter().map(|owner| owner.0).collect();
    sqlx::query("update etl.etl_lease_owners set owners = $2, adopts = $3 where pipeline_id = $1")
        .bind(pipeline.0)
        .bind(owners)
        .bind(issued.adopts)
        .execute(tx)
        .await?;
    Ok(())
}

/// The next claim goes above it.
async fn note_token(tx: &mut PgConnection, pipeline: PipelineId, holder: Holder) -> Result<()> {
    sqlx::query(
        "update etl.etl_lease_owners set target_token = greatest(target_token, $2) where pipeline_id = $1",
    )
    .bind(pipeline.0)
    .bind(holder.token.0)
    .execute(tx)
    .await?;
    Ok(())
}
