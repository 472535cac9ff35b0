//! Where a batch becomes true. A mart beside the meta-store commits rows, rejects and checkpoint in one
//! transaction. Elsewhere a row beside the mart is fence and truth, and the meta-store keeps a copy.

use std::sync::Arc;

use serde_json::json;
use tokio_postgres::SimpleQueryMessage;
use uuid::Uuid;
use vitrina_core::{
    Checkpoint, Commit, Committed, Entry, Error, Holder, Issued, Lease, LeaseToken, Ledger, Outcome, Owner,
    PipelineId, Recognized, Result, State,
};

use super::owners::{Acquired, Writer};
use super::schema;
use crate::connection::Session;
use crate::delivery::check_reject_limit;
use crate::sinks::Left;
use crate::sql::literal;

pub(super) struct Fence {
    ledger: Arc<dyn Ledger>,
    installation: Uuid,
    /// The leases that may be met beside the mart.
    issued: Issued,
    mart: String,
    /// The mart lives in another database than the meta-store.
    beside: bool,
}

/// Times that others may acquire the mart meanwhile.
const ACQUIRES: usize = 4;

impl Fence {
    /// For the writer that acquires the mart with it.
    pub(super) async fn new(
        session: &Session,
        ledger: Arc<dyn Ledger>,
        lease: &Lease,
        issued: &Issued,
        writer: &Writer,
    ) -> Result<(Self, Acquired)> {
        let beside =
            match MetaStore::of(session, ledger.as_ref(), writer.installation, lease.pipeline.0, lease.owner)
                .await?
            {
                MetaStore::Here => false,
                MetaStore::Elsewhere => true,
                copy @ MetaStore::Copy { .. } => {
                    // Asked later than the copy: whoever still holds the lease now held it then.
                    ledger.hold(lease).await?;
                    return Err(copy.refusal());
                }
            };
        let acquired = writer.acquire(session, ledger.as_ref(), None).await?;
        let (mart, issued) = (writer.mart.to_string(), issued.clone());
        Ok((Self { ledger, installation: writer.installation, issued, mart, beside }, acquired))
    }

    pub(super) fn ledger(&self) -> &dyn Ledger {
        self.ledger.as_ref()
    }

    /// Raises the token beside the mart, even if no batch follows, and answers what the mart vouches for.
    pub(super) async fn seal(&self, session: &Session, lease: &Lease, state: State) -> Result<State> {
        if !self.beside {
            if self.issued.is_due() {
                self.ledger.recognize(lease, None).await?;
            }
            return Ok(state);
        }
        let (truth, outcome) = self.acquire(session, lease, &state).await?;
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

    /// What the meta-store has from now on, beside the mart too.
    pub(super) async fn believe(&self, session: &Session, lease: &Lease, state: State) -> Result<State> {
        if !self.beside {
            return Ok(state);
        }
        self.take_edit(session, lease, &state.clone(), state).await
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

    /// One statement in the common case. What it has found otherwise the meta-store has to recognize.
    async fn acquire(&self, session: &Session, lease: &Lease, state: &State) -> Result<(State, Outcome)> {
        let (mut owners, mut asks) = (self.issued.owners.clone(), self.issued.is_due());
        for _ in 0..ACQUIRES {
            if !std::mem::take(&mut asks)
                && let Some(raised) = self.raise(session, lease, state, &owners).await?
            {
                return Ok(raised);
            }
            let holder = self.holder(session, lease.pipeline).await?;
            self.recognize(lease, holder).await?;
            owners.extend(holder.and_then(|holder| holder.owner));
        }
        Err(Error::retry("sink.contended", "somebody else has acquired the mart meanwhile"))
    }

    async fn recognize(&self, lease: &Lease, holder: Option<Holder>) -> Result<()> {
        match (self.ledger.recognize(lease, holder).await?, holder) {
            (Recognized::Issued, _) => Ok(()),
            // The checkpoint beside the mart counts, whoever has written it.
            (Recognized::Adopted, Some(holder)) => self.ledger.accept(lease, holder).await,
            _ => Err(Error::installation_copied(&format!("mart {}", self.mart))),
        }
    }

    async fn holder(&self, session: &Session, pipeline: PipelineId) -> Result<Option<Holder>> {
        let sql = format!(
            "select owner, token from vitrina.checkpoints where {}",
            whose(self.installation, pipeline)
        );
        let row = session.client.query_opt(&sql, &[]).await.map_err(|error| session.explain(error))?;
        Ok(row.map(|row| Holder {
            owner: row.get::<_, Option<Uuid>>(0).map(Owner),
            token: LeaseToken(row.get(1)),
        }))
    }

    /// `None` where the mart was acquired by none of these owners, or by a newer one.
    ///
    /// A mart that does not know this pipeline yet starts with what the meta-store knows only if that is
    /// nothing: a checkpoint without its rows would skip them.
    async fn raise(
        &self,
        session: &Session,
        lease: &Lease,
        state: &State,
        owners: &[Owner],
    ) -> Result<Option<(State, Outcome)>> {
        let fresh = if state.version == 0 { state.checkpoint.clone() } else { state.checkpoint.start() };
        let sql = format!(
            "insert into vitrina.checkpoints as c (installation, pipeline, token, version, checkpoint, owner)
             values ({}, {}, {}, {}, {}, {})
             on conflict (installation, pipeline) do update set token = excluded.token, owner = excluded.owner
              where c.owner = excluded.owner or (c.owner is null and c.token <= excluded.token)
                 or (c.owner = any ({}) and c.token < excluded.token)
             returning version, checkpoint::text, outcome::text",
            literal(&self.installation.to_string()),
            literal(&lease.pipeline.to_string()),
            lease.token,
            state.version,
            literal(&json!(fresh).to_string()),
            literal(&lease.owner.0.to_string()),
            uuids(owners),
        );
        let rows = session.client.query(&sql, &[]).await.map_err(|error| session.explain(error))?;
        let Some(row) = rows.first() else { return Ok(None) };
        let unreadable = |error: serde_json::Error| Error::defect("sink.checkpoint", &error);
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
        let entry = Entry { lease, from_version, checkpoint, outcome };
        if !self.beside {
            let sql = format!("{last}{}; commit", self.ledger.commit_statement(&entry, literal));
            let answer = session.client.simple_query(&sql).await.map_err(|error| session.explain(error))?;
            return read_committed(&answer);
        }
        check_reject_limit(self.ledger.as_ref(), lease, outcome).await?;
        let sql = format!(
            "{last}select vitrina.commit_batch({}, {}, {}, {from_version}, {}, {}); commit",
            literal(&self.installation.to_string()),
            literal(&lease.pipeline.to_string()),
            lease.token,
            literal(&json!(checkpoint).to_string()),
            literal(&json!(outcome).to_string()),
        );
        session.run(&sql).await?;
        self.ledger.commit(&entry).await
    }
}

fn read_committed(answer: &[SimpleQueryMessage]) -> Result<Committed> {
    let row = answer.iter().find_map(|message| match message {
        SimpleQueryMessage::Row(row) => Some(row),
        _ => None,
    });
    let row = row.ok_or_else(|| Error::bug("sink.commit", "the commit of a batch returned no row"))?;
    let version = row.get(0).and_then(|text| text.parse().ok());
    let version =
        version.ok_or_else(|| Error::bug("sink.commit", "the commit of a batch returned no version"))?;
    Ok(Committed { version, interrupted: row.get(1) == Some("t") })
}

/// The mart's own checkpoint, without the pass that was dropped in the meta-store meanwhile, under a number
/// that both sides have not passed yet.
fn agree(truth: State, state: &State) -> State {
    let dropped = state.version >= truth.version && state.checkpoint.position.pass.is_none();
    let checkpoint = if dropped { truth.checkpoint.without_pass() } else { truth.checkpoint };
    State { checkpoint, version: truth.version.max(state.version) }
}

/// What the database of a mart has to do with the meta-store. The installation alone proves nothing: a copy has the same.
pub(super) enum MetaStore {
    /// Data and checkpoint commit together.
    Here,
    Elsewhere,
    /// Of the same installation, and not the one that has issued the lease: another copy of it, or what it left when it moved.
    Copy {
        database: String,
    },
}

impl MetaStore {
    /// As proved by whoever holds a pipeline, a request or a comparison of this id.
    pub(super) async fn of(
        session: &Session,
        ledger: &dyn Ledger,
        installation: Uuid,
        id: Uuid,
        owner: Owner,
    ) -> Result<Self> {
        let ask = async |sql: &str| {
            session.client.query_one(sql, &[]).await.map_err(|error| session.explain(error))
        };
        let row = ask(ledger.presence_statement()).await?;
        let (is_there, is_current): (bool, bool) = (row.get(0), row.get(1));
        if !is_there {
            return Ok(Self::Elsewhere);
        }
        let row = ask(&ledger.identity_statement(is_current, id, owner)).await?;
        Ok(match (row.get::<_, Uuid>(0) == installation, row.get(1)) {
            (false, _) => Self::Elsewhere,
            (true, true) => Self::Here,
            (true, false) => Self::Copy { database: ask("select current_database()::text").await?.get(0) },
        })
    }

    pub(super) fn refusal(&self) -> Error {
        let database = if let Self::Copy { database } = self { database.as_str() } else { "" };
        let message = format!(
            "database {database} of the marts holds a schema etl of this installation that is not the meta-store of this runner: a copy of it, or one that was left behind; nothing was written"
        );
        Error::fix("installation.copied", message).hint(format!(
            "if the meta-store was moved, drop or rename schema etl in {database} once it is certain that nobody uses it; if that one is in use, this meta-store is the copy: `vitrina installation new` gives it an installation of its own"
        ))
    }
}

/// Pipelines that are gone here may well be at work in another copy of the meta-store: what they own is not taken then, unless a
/// person has decided so. Then those that this meta-store does not know write no more: their checkpoint is what they commit by.
pub(super) async fn refuse_copied(
    session: &Session,
    ledger: &dyn Ledger,
    writer: &Writer,
    gone: &[PipelineId],
) -> Result<()> {
    for pipeline in gone {
        let issued = ledger.issued(&[*pipeline]).await?;
        let whose = whose(writer.installation, *pipeline);
        let is_copied = format!(
            "select from vitrina.checkpoints where {whose} and owner <> all ({})",
            uuids(&issued.owners)
        );
        let found = session.client.query_opt(&is_copied, &[]).await;
        if found.map_err(|error| session.explain(error))?.is_none() || issued.adopts {
            continue;
        }
        if !writer.adopts {
            return Err(Error::installation_copied(&format!("mart {}", writer.mart)));
        }
        // One that writes elsewhere here raises the token of its checkpoint itself.
        if issued.owners.is_empty() {
            session.run(&format!("delete from vitrina.checkpoints where {whose}")).await?;
        }
    }
    Ok(())
}

/// The row of a pipeline beside its marts.
fn whose(installation: Uuid, pipeline: PipelineId) -> String {
    let (installation, pipeline) = (literal(&installation.to_string()), literal(&pipeline.to_string()));
    format!("installation = {installation} and pipeline = {pipeline}")
}

fn uuids(owners: &[Owner]) -> String {
    let owners = owners.iter().map(|owner| owner.0.to_string()).collect::<Vec<_>>().join(",");
    format!("'{{{owners}}}'::uuid[]")
}

/// What a pipeline that is no more, or writes elsewhere, keeps beside its marts. Nothing is left of what another copy of the
/// meta-store has written to since. Answers whether the pipeline is this installation's alone.
pub(super) async fn forget(session: &Session, left: &Left<'_>) -> Result<bool> {
    let copy = MetaStore::of(session, left.ledger, left.installation, left.request.0, left.request.1).await?;
    if matches!(copy, MetaStore::Copy { .. }) {
        return Err(copy.refusal());
    }
    schema::prepare(session).await?;
    let (mart, whose) = (literal(&left.target.name), whose(left.installation, left.pipeline));
    let known = match left.issued.adopts {
        true => "true".to_owned(),
        false => format!("owner = any ({})", uuids(&left.issued.owners)),
    };
    // Locked: whoever acquires the mart meanwhile comes before this, or after it.
    let held =
        format!("begin; select coalesce({known}, true) from vitrina.checkpoints where {whose} for update");
    if first(session, &held).await?.as_deref() == Some("f") {
        session.run("rollback").await?;
        return Err(Error::installation_copied(&format!("mart {}", left.target.name)));
    }
    let removal = match left.deleted {
        true => format!("delete from vitrina.checkpoints where {whose}; delete from vitrina.marts where {whose}"),
        // Where it has no mart any more, the lease that wrote there may be long forgotten when it comes back.
        false => format!(
            "delete from vitrina.marts where mart = {mart} and {whose};
             update vitrina.checkpoints set owner = null where {whose} and not exists (select from vitrina.marts where {whose})"
        ),
    };
    session.run(&format!("{removal}; commit")).await?;
    let others = format!(
        "select exists (select from vitrina.marts where pipeline = {pipeline} and installation <> {installation})
             or exists (select from vitrina.checkpoints where pipeline = {pipeline} and installation <> {installation})",
        pipeline = literal(&left.pipeline.to_string()),
        installation = literal(&left.installation.to_string()),
    );
    Ok(first(session, &others).await?.as_deref() == Some("f"))
}

/// The first value of the first row.
async fn first(session: &Session, sql: &str) -> Result<Option<String>> {
    let answer = session.client.simple_query(sql).await.map_err(|error| session.explain(error))?;
    Ok(answer.iter().find_map(|message| match message {
        SimpleQueryMessage::Row(row) => row.get(0).map(str::to_owned),
        _ => None,
    }))
}
