//! Who writes to a mart: a row beside it, for pipelines of any installation. A mart has one writer, as a full load of a
//! second one would delete and revert what the first has written; or several that share it, each with a part of its own.

use serde::Deserialize;
use serde_json::json;
use tokio_postgres::{Row, SimpleQueryMessage};
use uuid::Uuid;
use vitrina_core::values::other_pipeline;
use vitrina_core::{Error, Ledger, Pipeline, PipelineId, Result, Shared, TargetName};

use super::{fence, schema};
use crate::connection::Session;
use crate::sinks::Order;
use crate::sql::{array, literal};

const OTHER_COLUMNS: &str = "pipelines that share a mart by columns write different ones: leave them out of one of the queries, \
    and run the pipeline that gives them up first";

/// The pipeline that wants to write to a mart.
#[derive(Debug)]
pub(super) struct Writer {
    pub(super) mart: TargetName,
    pub(super) installation: Uuid,
    pipeline: PipelineId,
    name: String,
    shared: Option<Shared>,
    shared_value: Option<String>,
    /// The mart is not there.
    is_missing: bool,
    /// A person has decided that this meta-store is the rightful one: this run takes what its other copies have acquired.
    pub(super) adopts: bool,
}

/// What a pipeline has of a mart.
#[derive(Debug, Default, Deserialize)]
pub(super) struct Acquired {
    others: Vec<Owner>,
    /// Its own, where the mart is shared by columns.
    pub(super) columns: Vec<String>,
    /// Another pipeline has created the mart anew since this one has written to it.
    pub(super) emptied: bool,
}

/// Another pipeline that keeps this one from the mart.
#[derive(Debug, Deserialize)]
struct Owner {
    installation: Uuid,
    pipeline: PipelineId,
    name: String,
    shared: Option<String>,
    shared_value: Option<String>,
    /// That both write.
    columns: Vec<String>,
}

impl Writer {
    pub(super) fn new(mart: &TargetName, order: &Order<'_>, is_missing: bool) -> Self {
        Self {
            mart: mart.clone(),
            installation: order.installation,
            pipeline: order.lease.pipeline,
            name: order.pipeline.name.clone(),
            shared: order.target.shared.clone(),
            shared_value: order.pipeline.shared_value.clone(),
            is_missing,
            adopts: order.issued.adopts,
        }
    }

    /// Makes what Vitrina keeps beside the marts where it is missing, and the mart this pipeline's own, or its part of one
    /// that is shared: one message in the common case. A pipeline of this installation that was deleted, writes elsewhere
    /// or has another part by now does not count.
    pub(super) async fn acquire(
        &self,
        session: &Session,
        ledger: &dyn Ledger,
        columns: Option<&[String]>,
    ) -> Result<Acquired> {
        let acquired = self.ask(session, &[], columns).await?;
        if acquired.others.is_empty() {
            return Ok(acquired);
        }
        let gone = self.gone(ledger, &acquired.others).await?;
        fence::refuse_copied(session, ledger, self, &gone).await?;
        let acquired = if gone.is_empty() { acquired } else { self.ask(session, &gone, columns).await? };
        match acquired.others.first() {
            Some(owner) => Err(self.refusal(owner)),
            None => Ok(acquired),
        }
    }

    /// Those of its own installation that do not count any more. What a pipeline has acquired when the target was shared in
    /// another way, or not at all, counts while it runs: its next run acquires what the target says now.
    async fn gone(&self, ledger: &dyn Ledger, others: &[Owner]) -> Result<Vec<PipelineId>> {
        let own = others.iter().filter(|owner| owner.installation == self.installation);
        let (older, same): (Vec<&Owner>, Vec<&Owner>) = own.partition(|owner| self.is_older(owner));
        let ids = |owners: Vec<&Owner>| owners.iter().map(|owner| owner.pipeline).collect::<Vec<_>>();
        let (mut older, mut same) = (ids(older), ids(same));
        if !older.is_empty() {
            let running = ledger.running(&older).await?;
            older.retain(|pipeline| !running.contains(pipeline));
        }
        if !same.is_empty() {
            let by_rows = self.shared_value.as_deref();
            let present = ledger.writing(&same, &self.mart.to_string(), by_rows).await?;
            same.retain(|pipeline| !present.contains(pipeline));
        }
        older.extend(same);
        Ok(older)
    }

    /// These columns are its own from now on, and no others.
    pub(super) async fn claim(
        &self,
        session: &Session,
        ledger: &dyn Ledger,
        columns: &[String],
    ) -> Result<()> {
        self.acquire(session, ledger, Some(columns)).await.map(drop)
    }

    /// It reads everything again, since the mart was emptied.
    pub(super) async fn refill(&self, session: &Session) -> Result<()> {
        let row = row(&self.mart, self.installation, self.pipeline);
        session.run(&format!("update vitrina.marts set emptied = false where {row}")).await
    }

    async fn ask(
        &self,
        session: &Session,
        gone: &[PipelineId],
        columns: Option<&[String]>,
    ) -> Result<Acquired> {
        if let Some(acquired) = self.try_ask(session, gone, columns).await? {
            return Ok(acquired);
        }
        schema::prepare(session).await?;
        let acquired = self.try_ask(session, gone, columns).await?;
        acquired.ok_or_else(|| Error::bug("sink.no_schema", "schema vitrina lacks what was just made"))
    }

    /// `None` where something of schema `vitrina` is missing.
    async fn try_ask(
        &self,
        session: &Session,
        gone: &[PipelineId],
        columns: Option<&[String]>,
    ) -> Result<Option<Acquired>> {
        let request = json!({
            "mart": self.mart.to_string(), "installation": self.installation, "pipeline": self.pipeline, "name": self.name,
            "gone": gone, "shared": self.shared.as_ref().map(ToString::to_string), "shared_value": self.shared_value,
            "columns": columns, "missing": self.is_missing,
        });
        let sql = format!(
            "begin isolation level read committed;
             select {};
             select vitrina.acquire_mart({}); commit",
            schema::is_current(),
            literal(&request.to_string()),
        );
        match session.client.simple_query(&sql).await {
            Ok(answer) => read(&answer),
            Err(error) => {
                let missing =
                    error.code().is_some_and(|state| matches!(state.code(), "42883" | "3F000" | "42P01"));
                let explained = session.explain(error);
                // The session may be gone; then so is its transaction.
                session.run("rollback").await.ok();
                if missing { Ok(None) } else { Err(explained) }
            }
        }
    }

    fn refusal(&self, owner: &Owner) -> Error {
        let (mart, Owner { installation, name, .. }) = (&self.mart, owner);
        let name = other_pipeline(name);
        let is_own = owner.installation == self.installation;
        let of = if is_own { String::new() } else { format!(" of installation {installation}") };
        let what = match &owner.shared {
            Some(shared) if shared == "columns" && !owner.columns.is_empty() => {
                format!("mart {mart}, columns {},", owner.columns.join(", "))
            }
            Some(_) if owner.shared_value.is_some() && owner.shared_value == self.shared_value => {
                format!("mart {mart}, rows of {},", self.shared_value.as_deref().unwrap_or_default())
            }
            _ => format!("mart {mart}"),
        };
        if is_own && self.is_older(owner) {
            let message =
                format!("pipeline {name} is running, and to its run mart {mart} is not shared as it is now");
            return Error::release("sink.owned", message);
        }
        let hint = self.hint(owner);
        let hint = match is_own {
            true => hint.to_owned(),
            false => format!(
                "{hint}; if that installation is gone for good, release what it wrote to: \
                 delete from vitrina.marts where installation = '{installation}'"
            ),
        };
        Error::fix("sink.owned", format!("{what} is written by pipeline {name}{of}")).hint(hint)
    }

    fn hint(&self, owner: &Owner) -> &'static str {
        match &self.shared {
            Some(_) if self.is_older(owner) => "let that pipeline run once with the target as it is now",
            Some(Shared::Columns) => OTHER_COLUMNS,
            Some(Shared::Rows { .. }) => "pipelines that share a mart by rows have different shared_values",
            None if owner.installation == self.installation => {
                "a mart has one writer: for full loads beside increments give one pipeline a full_schedule and delete the other; \
                 to let several write to it give its target `shared`; else let one of them write to a mart of its own"
            }
            None => {
                "a mart has one writer: write to another mart, or give the target `shared` in both installations"
            }
        }
    }

    /// It was acquired when the target was shared in another way, or not at all.
    fn is_older(&self, owner: &Owner) -> bool {
        self.shared.as_ref().is_some_and(|shared| owner.shared != Some(shared.to_string()))
    }
}

fn read(answer: &[SimpleQueryMessage]) -> Result<Option<Acquired>> {
    let mut rows = answer.iter().filter_map(|message| match message {
        SimpleQueryMessage::Row(row) => row.get(0),
        _ => None,
    });
    let (Some("t"), Some(acquired)) = (rows.next(), rows.next()) else { return Ok(None) };
    let unreadable = |error: serde_json::Error| Error::defect("sink.owners", &error);
    serde_json::from_str(acquired).map(Some).map_err(unreadable)
}

/// The columns that the pipeline has acquired; none where it never ran.
pub(super) async fn own_columns(
    session: &Session,
    mart: &TargetName,
    installation: Uuid,
    pipeline: PipelineId,
) -> Result<Vec<String>> {
    let sql = format!("select columns from vitrina.marts where {}", row(mart, installation, pipeline));
    Ok(known(session, &sql).await?.first().map(|row| row.get(0)).unwrap_or_default())
}

/// Columns that another pipeline has acquired. A configuration that is not saved yet has the name of the saved one.
pub(super) async fn refuse_overlap(
    session: &Session,
    mart: &TargetName,
    pipeline: &Pipeline,
    columns: &[String],
) -> Result<()> {
    let sql = format!(
        "select pipeline_name, array(select unnest(columns) intersect select unnest({}::text[]) order by 1) as both_write
           from vitrina.marts where mart = {} and pipeline <> {} and pipeline_name <> {} and columns && {0}::text[] limit 1",
        literal(&array(columns.iter().map(String::as_str))),
        literal(&mart.to_string()),
        literal(&pipeline.id.to_string()),
        literal(&pipeline.name),
    );
    match known(session, &sql).await?.first() {
        Some(row) => {
            let (name, columns): (String, Vec<String>) = (row.get(0), row.get(1));
            let message = format!(
                "mart {mart}, columns {}, is written by pipeline {}",
                columns.join(", "),
                other_pipeline(&name)
            );
            Err(Error::fix("sink.owned", message).hint(OTHER_COLUMNS))
        }
        None => Ok(()),
    }
}

/// Nothing where no pipeline of this release has acquired a mart here.
async fn known(session: &Session, sql: &str) -> Result<Vec<Row>> {
    let present = "select exists (select from pg_attribute where attrelid = to_regclass('vitrina.marts') and attname = 'columns')";
    let ask = async |sql: &str| session.client.query(sql, &[]).await.map_err(|error| session.explain(error));
    match ask(present).await?.first().is_some_and(|row| row.get(0)) {
        true => ask(sql).await,
        false => Ok(Vec::new()),
    }
}

fn row(mart: &dyn std::fmt::Display, installation: Uuid, pipeline: PipelineId) -> String {
    format!(
        "mart = {} and installation = {} and pipeline = {}",
        literal(&mart.to_string()),
        literal(&installation.to_string()),
        literal(&pipeline.to_string())
    )
}
