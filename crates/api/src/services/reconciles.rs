//! Comparisons of targets with their sources: requested here, made by a runner, and repaired by a backfill.

use std::time::Duration;

use serde_json::json;
use uuid::Uuid;
use vitrina_core::{DifferenceKind, Figures, Level, OnActive, ReconcileStatus, ReconcileTrigger};
use vitrina_store::{
    Actor, PipelineRecord, PipelineRef, ReconcileOrder, ReconcileRecord, RepairPlan, RunRequest,
};

use crate::app::App;
use crate::documents::{self, DeleteLimit, Difference, Repair, RepairAccepted, Standing};
use crate::error::{Error, Result};

use super::requests;
use super::runs::cut;

/// Asks for a comparison, or joins the one that is open.
pub(crate) async fn request(
    app: &App,
    actor: &Actor,
    reference: &PipelineRef,
    order: &documents::ReconcileOrder,
) -> Result<ReconcileRecord> {
    let pipeline = app.store.pipeline(reference).await?.config.id;
    let wanted = ReconcileOrder {
        level: order.level,
        keep: order.limit,
        trigger: ReconcileTrigger::Manual,
        requested_by: Some(actor.name.clone()),
    };
    let id = app.store.request_reconcile(pipeline, &wanted).await?;
    let after = json!({"reconcile": id, "level": order.level, "limit": order.limit});
    app.audit(actor, "reconcile.request", pipeline, None, Some(after)).await;
    find(app, id).await
}

/// How the target stands.
pub(crate) async fn standing(app: &App, reference: &PipelineRef) -> Result<Standing> {
    let pipeline = app.lookups.pipeline(app.store.scope(), reference).await?.id;
    Ok(Standing::new(pipeline.0, app.store.last_verdict(pipeline).await?))
}

/// Newest first, of one pipeline or of all, and where the next page begins.
pub(crate) async fn list(
    app: &App,
    reference: Option<&PipelineRef>,
    before: Option<Uuid>,
    rows: i64,
) -> Result<(Vec<ReconcileRecord>, Option<Uuid>)> {
    let pipeline = match reference {
        Some(reference) => Some(app.lookups.pipeline(app.store.scope(), reference).await?.id),
        None => None,
    };
    let mut records = app.store.reconciles(pipeline, before, rows + 1).await?;
    let more = cut(&mut records, rows);
    let next = records.last().filter(|_| more).map(|record| record.id);
    Ok((records, next))
}

/// The reconcile as it is, or as soon as it has ended.
pub(crate) async fn follow(app: &App, id: Uuid, wait: Duration) -> Result<ReconcileRecord> {
    let mut watch = app.watch(wait);
    loop {
        let record = find(app, id).await?;
        if !record.is_open() || !watch.next().await {
            return Ok(record);
        }
    }
}

pub(crate) async fn cancel(app: &App, actor: &Actor, id: Uuid) -> Result<ReconcileRecord> {
    let before = find(app, id).await?;
    if !before.is_open() {
        return Err(Error::ReconcileEnded);
    }
    let after = app.store.cancel_reconcile(id).await?.ok_or_else(|| none(id))?;
    if !after.cancel_requested {
        return Err(Error::ReconcileEnded);
    }
    let (was, is) = (json!({"status": before.status}), json!({"reconcile": id, "status": after.status}));
    app.audit(actor, "reconcile.cancel", after.pipeline_id, Some(was), Some(is)).await;
    Ok(after)
}

/// In the order of their keys, and the last one's number where more follow.
pub(crate) async fn differences(
    app: &App,
    id: Uuid,
    kind: Option<DifferenceKind>,
    after: i32,
    rows: i64,
) -> Result<(Vec<Difference>, Option<i32>)> {
    find(app, id).await?;
    let mut found = app.store.differences(id, kind, after, rows + 1).await?;
    let more = cut(&mut found, rows);
    let next = found.last().filter(|_| more).map(|(number, _)| *number);
    Ok((found.into_iter().map(|(_, difference)| difference.into()).collect(), next))
}

/// What a repair would do.
pub(crate) async fn forecast(app: &App, id: Uuid) -> Result<Repair> {
    Ok(plan(app, id).await?.repair)
}

/// A backfill over exactly the rows that differ, after the run that may be active, and a proof when it has ended.
pub(crate) async fn repair(app: &App, actor: &Actor, id: Uuid) -> Result<RepairAccepted> {
    let Planned { record, pipeline, plan, repair } = plan(app, id).await?;
    let DeleteLimit { ok, target_rows, limit, .. } = repair.delete_limit;
    if !ok {
        return Err(Error::OverDeleteLimit { deletes: repair.deletes, target_rows, limit });
    }
    let pipeline = pipeline.config.id;
    let request = RunRequest { keys: Some(plan.keys), ..RunRequest::default() };
    let submitted = requests::submit(app, pipeline, OnActive::After, request).await?;
    let run = vitrina_core::RunId(submitted.run.run_id);
    let proof_id = app.store.request_proof(&record, run, Some(actor.name.clone())).await?;
    let mut after = submitted.after;
    after["repaired"] =
        json!({"reconcile": id, "proof": proof_id, "upserts": repair.upserts, "deletes": repair.deletes});
    app.audit(actor, "reconcile.repair", pipeline, Some(submitted.before), Some(after)).await;
    Ok(RepairAccepted { run: submitted.run, proof_id, repair })
}

/// A repair that could be asked for.
struct Planned {
    record: ReconcileRecord,
    pipeline: PipelineRecord,
    plan: RepairPlan,
    repair: Repair,
}

async fn plan(app: &App, id: Uuid) -> Result<Planned> {
    let record = find(app, id).await?;
    let figures = repairable(&record)?;
    let pipeline = app.store.pipeline(&PipelineRef::Id(record.pipeline_id)).await?;
    if pipeline.config.python_source().is_some() {
        return Err(Error::CannotBackfill);
    }
    let plan = app.store.repair_plan(id).await?;
    if plan.keys.is_empty() {
        return Err(Error::DifferencesNotKept);
    }
    let repair = Repair {
        upserts: plan.upserts,
        deletes: plan.deletes,
        more: figures.capped || figures.differences() > plan.keys.len() as u64,
        delete_limit: held(plan.deletes, figures.target.rows, pipeline.config.delete_limit),
    };
    Ok(Planned { record, pipeline, plan, repair })
}

/// What it has found, where that can be repaired.
fn repairable(record: &ReconcileRecord) -> Result<Figures> {
    let figures = match (record.status, &record.figures) {
        (ReconcileStatus::Done, Some(figures)) => figures.clone(),
        (status, _) => return Err(Error::ReconcileNotDone(status)),
    };
    match record.level {
        _ if figures.differences() == 0 => Err(Error::NothingToRepair),
        Level::Rows => Ok(figures),
        Level::Count | Level::Hash => Err(Error::DifferencesNotKept),
    }
}

/// As the sink holds the limit.
fn held(deletes: u64, target_rows: u64, limit: f64) -> DeleteLimit {
    let share = if deletes == 0 { 0.0 } else { deletes as f64 / target_rows.max(1) as f64 };
    let ok = deletes == 0 || deletes as f64 <= limit * target_rows as f64;
    DeleteLimit { limit, share, target_rows, ok }
}

pub(crate) async fn find(app: &App, id: Uuid) -> Result<ReconcileRecord> {
    app.store.reconcile(id).await?.ok_or_else(|| none(id))
}

fn none(id: Uuid) -> Error {
    Error::NoSuchReconcile(id.to_string())
}
