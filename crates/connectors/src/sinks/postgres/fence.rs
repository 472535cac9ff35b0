//! Where a batch becomes true. A mart beside the meta-store commits rows, rejects and checkpoint in one
//! transaction. Elsewhere a row beside the mart is fence and truth, and the meta-store keeps a copy.

use std::sync::Arc;

use serde_json::json;
use tokio_postgres::SimpleQueryMessage;
use uuid::Uuid;
use vitrina_core::{
    Checkpoint, Commit, Committed, Entry, Error, Lease, Ledger, Outcome, PipelineId, Result, State,
};

use crate::connection::Session;
use crate::sql::literal;

pub(super) struct Fence {
    ledger: Arc<dyn Ledger>,
    installation: Uuid,
    /// The mart lives in another database than the meta-store.
    beside: bool,
}

/// What a database of marts keeps for Vitrina: staging of loads, and the fence where the meta-store is
/// elsewhere. `create schema if not exists` would need the right to create schemas even where it is there.
const SCHEMA: &str = "
    do $$ begin if to_regnamespace('vitrina') is null then create schema vitrina; end if; end $$;
    create unlogged table if not exists vitrina.loads (
        load uuid primary key, pipeline uuid not null, position jsonb not null, rows bigint not null);
    create table if not exists vitrina.checkpoints (
        installation uuid, pipeline uuid, token bigint not null, version bigint not null, checkpoint jsonb not null,
        outcome jsonb not null default '{}', updated_at timestamptz not null default clock_timestamp(),
        primary key (installation, pipeline))";
/// The checkpoint moves by compare-and-set under the newest token, or the whole transaction is refused.
const COMMIT: &str = "
    create or replace function vitrina.commit_batch(
        p_installation uuid, p_pipeline uuid, p_token bigint, p_from_version bigint, p_checkpoint jsonb, p_outcome jsonb)
    returns bigint language plpgsql set search_path = pg_catalog, pg_temp as $$
    declare
        v_row vitrina.checkpoints;
    begin
        select * into v_row from vitrina.checkpoints
         where installation = p_installation and pipeline = p_pipeline for no key update;
        if v_row.token is distinct from p_token then
            raise exception 'lease lost' using errcode = 'VT001';
        elsif v_row.version <> p_from_version then
            raise exception 'checkpoint moved' using errcode = 'VT002';
        end if;
        update vitrina.checkpoints set version = version + 1, checkpoint = p_checkpoint, outcome = p_outcome,
               updated_at = clock_timestamp()
         where installation = p_installation and pipeline = p_pipeline;
        return p_from_version + 1;
    end $$";

impl Fence {
    pub(super) async fn new(session: &Session, ledger: Arc<dyn Ledger>, installation: Uuid) -> Result<Self> {
        let beside = !is_meta_store(session, installation).await?;
        prepare(session).await?;
        Ok(Self { ledger, installation, beside })
    }

    pub(super) fn ledger(&self) -> &dyn Ledger {
        self.ledger.as_ref()
    }

    /// Raises the token beside the mart, even if no batch follows, and answers what the mart vouches for.
    pub(super) async fn seal(&self, session: &Session, lease: &Lease, state: State) -> Result<State> {
        if !self.beside {
            return Ok(state);
        }
        let Some((truth, outcome)) = self.raise(session, lease, &state).await? else {
            return Err(Error::lease_lost());
        };
        if state.checkpoint.edited {
            return self.take_edit(session, lease, &truth, state).await;
        }
        if truth == state {
            return Ok(state);
        }
        if truth.version == state.version + 1 {
            // The answer to this batch, or the copy of it, was lost on the way. It has been judged already.
            let outcome = Outcome { reject_limit: i64::MAX, ..outcome };
            let entry = Entry {
                lease,
                from_version: state.version,
                checkpoint: &truth.checkpoint,
                outcome: &outcome,
            };
            self.ledger.commit(&entry).await?;
            return Ok(truth);
        }
        let truth = agree(truth, &state);
        tracing::warn!(pipeline_id = %lease.pipeline, version = truth.version, "the checkpoint beside the mart counts, not the meta-store's");
        self.overwrite(session, lease, &truth).await?;
        self.ledger.adopt(lease, &truth).await?;
        Ok(truth)
    }

    /// What a person has written since then counts, whatever the mart knows. The mark goes when both sides have
    /// it, before the first batch: afterwards the mart is believed again.
    async fn take_edit(
        &self,
        session: &Session,
        lease: &Lease,
        truth: &State,
        state: State,
    ) -> Result<State> {
        let checkpoint = Checkpoint { edited: false, ..state.checkpoint };
        let edit = State { checkpoint, version: truth.version.max(state.version) };
        self.overwrite(session, lease, &edit).await?;
        self.ledger.adopt(lease, &edit).await?;
        Ok(edit)
    }

    /// A mart that does not know this pipeline yet starts with what the meta-store knows only if that is
    /// nothing: a checkpoint without its rows would skip them.
    async fn raise(
        &self,
        session: &Session,
        lease: &Lease,
        state: &State,
    ) -> Result<Option<(State, Outcome)>> {
        let fresh = if state.version == 0 { state.checkpoint.clone() } else { Checkpoint::default() };
        let sql = format!(
            "insert into vitrina.checkpoints as c (installation, pipeline, token, version, checkpoint)
             values ({}, {}, {}, {}, {})
             on conflict (installation, pipeline) do update set token = excluded.token where c.token <= excluded.token
             returning version, checkpoint::text, outcome::text",
            literal(&self.installation.to_string()),
            literal(&lease.pipeline.to_string()),
            lease.token,
            state.version,
            literal(&json!(fresh).to_string()),
        );
        let rows = session.client.query(&sql, &[]).await.map_err(|error| session.explain(error))?;
        let Some(row) = rows.first() else { return Ok(None) };
        let unreadable = |error: serde_json::Error| Error::bug("sink.checkpoint", error.to_string());
        let checkpoint = serde_json::from_str(row.get(1)).map_err(unreadable)?;
        let outcome = serde_json::from_str(row.get(2)).unwrap_or_default();
        Ok(Some((State { checkpoint, version: row.get(0) }, outcome)))
    }

    async fn overwrite(&self, session: &Session, lease: &Lease, state: &State) -> Result<()> {
        let sql = format!(
            "update vitrina.checkpoints set version = {}, checkpoint = {} where installation = {} and pipeline = {} and token = {}",
            state.version,
            literal(&json!(state.checkpoint).to_string()),
            literal(&self.installation.to_string()),
            literal(&lease.pipeline.to_string()),
            lease.token,
        );
        session.run(&sql).await
    }

    /// The last statements of a transaction and its COMMIT travel as one message: a runner stopped between
    /// them would hide the pipeline's row from every claim.
    pub(super) async fn commit(
        &self,
        session: &Session,
        last: &str,
        commit: &Commit,
        checkpoint: &Checkpoint,
        outcome: &Outcome,
    ) -> Result<Committed> {
        let (lease, from_version) = (&commit.lease, commit.from_version);
        if !self.beside {
            return enter_here(session, last, commit, checkpoint, outcome).await;
        }
        if !outcome.rejects.is_empty() {
            // Before the mart's commit, which the limit could not undo.
            let open = self.ledger.keep_rejects(lease, outcome).await?;
            if i64::try_from(open).unwrap_or(i64::MAX) > outcome.reject_limit {
                return Err(Error::fix("rejects.limit", "too many rejects"));
            }
        }
        let sql = format!(
            "{last}select vitrina.commit_batch({}, {}, {}, {from_version}, {}, {}); commit",
            literal(&self.installation.to_string()),
            literal(&lease.pipeline.to_string()),
            lease.token,
            literal(&json!(checkpoint).to_string()),
            literal(&json!(outcome).to_string()),
        );
        session.run(&sql).await?;
        self.ledger.commit(&Entry { lease, from_version, checkpoint, outcome }).await
    }
}

async fn enter_here(
    session: &Session,
    last: &str,
    commit: &Commit,
    checkpoint: &Checkpoint,
    outcome: &Outcome,
) -> Result<Committed> {
    let sql = format!(
        "{last}select new_version, interrupted from etl.commit_batch({}, {}, {}, {}, {}, {}); commit",
        literal(&commit.lease.pipeline.to_string()),
        literal(&commit.lease.owner.0.to_string()),
        commit.lease.token,
        commit.from_version,
        literal(&json!(checkpoint).to_string()),
        literal(&json!(outcome).to_string()),
    );
    let answer = session.client.simple_query(&sql).await.map_err(|error| session.explain(error))?;
    let row = answer.iter().find_map(|message| match message {
        SimpleQueryMessage::Row(row) => Some(row),
        _ => None,
    });
    let row = row.ok_or_else(|| Error::bug("sink.commit", "etl.commit_batch returned no row"))?;
    let version = row.get(0).and_then(|text| text.parse().ok());
    let version = version.ok_or_else(|| Error::bug("sink.commit", "etl.commit_batch returned no version"))?;
    Ok(Committed { version, interrupted: row.get(1) == Some("t") })
}

/// The mart's own checkpoint, without the pass that was dropped in the meta-store meanwhile, under a number
/// that both sides have not passed yet.
fn agree(truth: State, state: &State) -> State {
    let dropped = state.version >= truth.version && state.checkpoint.position.pass.is_none();
    let checkpoint = if dropped { truth.checkpoint.without_pass() } else { truth.checkpoint };
    State { checkpoint, version: truth.version.max(state.version) }
}

/// Data and checkpoint commit together only where the mart lives beside the meta-store.
pub(super) async fn is_meta_store(session: &Session, installation: Uuid) -> Result<bool> {
    let present = "select to_regprocedure('etl.installation_id()') is not null";
    let row = session.client.query_one(present, &[]).await.map_err(|error| session.explain(error))?;
    if !row.get::<_, bool>(0) {
        return Ok(false);
    }
    let asked = session.client.query_one("select etl.installation_id()", &[]).await;
    let row = asked.map_err(|error| session.explain(error))?;
    Ok(row.get::<_, Uuid>(0) == installation)
}

/// Makes what is missing; two runners may do so at once.
async fn prepare(session: &Session) -> Result<()> {
    let known =
        "select to_regclass('vitrina.loads') is not null and to_regclass('vitrina.checkpoints') is not null
                    and to_regproc('vitrina.commit_batch') is not null";
    let row = session.client.query_one(known, &[]).await.map_err(|error| session.explain(error))?;
    if row.get(0) {
        return Ok(());
    }
    let once = "select pg_advisory_xact_lock(hashtextextended('vitrina.schema', 0))";
    let made = session.run(&format!("begin; {once}; {SCHEMA}; {COMMIT}; commit")).await;
    made.map_err(|error| match error.code {
        "sink.refused" => Error::fix(
            "sink.no_schema",
            format!("schema vitrina cannot be made beside the marts: {error}"),
        )
        .hint(
            "`vitrina roles` prints the statements for an administrator; staging and fences are kept there",
        ),
        _ => error,
    })
}

/// The checkpoint beside the mart of a pipeline that is no more. Whoever still holds its token is shut out all the same.
pub(super) async fn forget(session: &Session, installation: Uuid, pipeline: PipelineId) -> Result<()> {
    prepare(session).await?;
    let (installation, pipeline) = (literal(&installation.to_string()), literal(&pipeline.to_string()));
    let sql = format!(
        "delete from vitrina.checkpoints where installation = {installation} and pipeline = {pipeline}"
    );
    session.run(&sql).await
}
