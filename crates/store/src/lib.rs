//! The meta-store: migrations, and every SQL statement against schema `etl`. SQL without business
//! rules: what may follow what is decided by `vitrina_core::Lifecycle`, applied here under a row lock.

mod access;
mod checkpoints;
mod claims;
mod configuration;
mod direct;
mod error;
mod gauges;
mod lease_owners;
mod ledger;
mod listings;
mod logs;
mod migrations;
mod pipelines;
mod python_tasks;
mod reconciles;
mod rejects;
mod requests;
mod retention;
mod rows;
mod runners;
mod runs;
mod schedules;
mod scope;
mod squashed;
mod steps;
mod taken_reconciles;
mod targets;
mod terms;
mod waiting;
mod wakeups;
mod writers;

use std::time::Duration;

use serde::de::DeserializeOwned;
use serde_json::Value;
use sqlx::Connection;
use sqlx::postgres::{PgConnectOptions, PgPool, PgPoolOptions};
use uuid::Uuid;

pub use access::{ADMIN, Actor, AuditRecord, NewToken, Offered, Role, TokenInfo, TokenRecord, digest};
pub use checkpoints::{CheckpointRecord, StateChange};
pub use claims::{Claim, Pulse, RunnerAbilities};
pub use configuration::Change;
pub use direct::{connect_directly, is_of_pooler};
pub use error::{Error, Result};
pub use gauges::{Gauges, PipelineGauges, RunnerGauges};
pub use lease_owners::{InstalledPipeline, Presence, RenewedInstallation};
pub use listings::{PipelineChoice, PipelineListing, PipelineOrder};
pub use logs::{LogLine, LogRecord};
pub use migrations::SchemaState;
pub use pipelines::{PipelineRecord, PipelineRef};
pub use python_tasks::{PublishedTask, PythonTaskRecord};
pub use reconciles::{KEPT, LastVerdict, MOST_DIFFERENCES, ReconcileOrder, ReconcileRecord, RepairPlan};
pub use rejects::{RejectChoice, RejectCursor, RejectGroup, RejectRecord};
pub use requests::{Request, RequestRecord, TakenRequest};
pub use retention::{Retention, RetentionStep};
pub use rows::{RowBackfill, Writing};
pub use runners::RunnerRecord;
pub use runs::{AttemptRecord, BatchRecord, RunChoice, RunCursor, RunFigures, RunRecord, StateRecord};
pub use scope::{OUTSIDE, Scope};
pub use steps::{RunRequest, StepDone, Trigger};
pub use taken_reconciles::TakenReconcile;
pub use targets::TargetRecord;
pub use terms::{Silent, Suspects, Terms};
pub use waiting::{Untakeable, UntakenRun, Waiting};
pub use wakeups::{Wakeup, Wakeups};
pub use writers::Writers;

/// A handle on the meta-store. Clones share one pool.
#[derive(Debug, Clone)]
pub struct Store {
    pool: PgPool,
    /// The pipelines that are found by it.
    scope: Scope,
}

/// Records out of what `to_jsonb` made of their rows.
fn from_documents<T: DeserializeOwned>(documents: Vec<Value>) -> Result<Vec<T>> {
    Ok(documents.into_iter().map(serde_json::from_value).collect::<Result<_, _>>()?)
}

/// How long a change may wait for a row that a runner is just committing.
const LOCK_TIMEOUT: &str = "set local lock_timeout = '5s'";

/// How long to wait for a connection.
const PATIENCE: Duration = Duration::from_secs(5);

fn settled(options: PgConnectOptions, application: &str) -> PgConnectOptions {
    // A process that is stopped inside a transaction must not keep a pipeline from being taken over.
    direct::recognisable(options).application_name(application).options([
        ("search_path", "pg_catalog"),
        ("TimeZone", "UTC"),
        ("idle_in_transaction_session_timeout", "5s"),
    ])
}

/// For how long a session is taken to be there without asking.
const TRUSTED: Duration = Duration::from_secs(1);

impl Store {
    /// Connects, or says in one error why that is impossible. `application` names the sessions.
    pub async fn connect(url: &str, application: &str, max_connections: u32) -> Result<Self> {
        let options: PgConnectOptions = url.parse().map_err(|_| Error::BadUrl)?;
        let options = settled(options, application);
        // Once and without the pool, which would ask a closed port again and again until its time is over.
        let first = tokio::time::timeout(PATIENCE, direct::open(&options)).await;
        let first = first.unwrap_or(Err(sqlx::Error::PoolTimedOut));
        first.map_err(|error| Error::connecting(error, &options))?.close().await?;
        let pool = PgPoolOptions::new()
            .max_connections(max_connections)
            .acquire_timeout(PATIENCE)
            // A session that has just answered need not be asked whether it is there.
            .test_before_acquire(false)
            .after_connect(|session, _| Box::pin(direct::recognise(session)))
            .before_acquire(|session, last| {
                Box::pin(async move {
                    if last.idle_for > TRUSTED {
                        session.ping().await?;
                    }
                    Ok(true)
                })
            })
            .connect_lazy_with(options);
        Ok(Self { pool, scope: Scope::EVERYTHING })
    }

    /// For sessions that are opened from now on.
    pub fn set_login(&self, url: &str) -> Result<()> {
        let new: PgConnectOptions = url.parse().map_err(|_| Error::BadUrl)?;
        let known = self.pool.connect_options();
        let application = known.get_application_name().unwrap_or_default();
        self.pool.set_connect_options(settled(new, application));
        Ok(())
    }

    /// Asks the database for an answer: what `/health` reports is never assumed.
    pub async fn ping(&self) -> Result<()> {
        sqlx::query("select 1").execute(&self.pool).await?;
        Ok(())
    }

    /// What tells this meta-store from others.
    pub async fn installation(&self) -> Result<Uuid> {
        Ok(sqlx::query_scalar("select etl.installation_id()").fetch_one(&self.pool).await?)
    }

    pub async fn close(&self) {
        self.pool.close().await;
    }
}
