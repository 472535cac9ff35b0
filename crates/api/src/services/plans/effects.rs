//! What follows from a change beyond the configuration: for checkpoints, indexes and runs.

use std::collections::BTreeSet;

use vitrina_core::{Decision, DocumentRules, Mode, Pipeline, PipelineId, Target};
use vitrina_store::{Change, PipelineRecord, TargetRecord};

use crate::app::App;
use crate::error::Result;
use crate::models::{Check, Effect, Severity};

use super::{Draft, Present, saved_pipeline};

impl Draft {
    /// What an edit means for runs; that it has to wait for one is a warning.
    pub(super) fn pipeline_effects(
        &mut self,
        place: usize,
        before: &PipelineRecord,
        after: &Pipeline,
    ) -> Vec<Effect> {
        if let Err(locked) = before.config.edit(after, before.status) {
            let message =
                format!("{locked}\nhint: `vitrina apply --wait` applies this as soon as the run has ended");
            let field = format!("/pipelines/{place}");
            self.checks.push(Check::new(Severity::Warning, "pipeline.locked", &field, &message));
        }
        let mut effects = Vec::new();
        if before.config.effective_target() != after.effective_target() {
            let old = before.config.effective_target();
            let detail = format!("{old} is written to no more, and stays as it is");
            effects.push(Effect::new("target.left", detail));
        }
        effects
    }

    /// Checkpoints that are of another configuration once this is carried out, and what becomes of them.
    pub(super) async fn note_decisions(
        &mut self,
        app: &App,
        present: &Present,
        decision: Option<Decision>,
    ) -> Result<()> {
        let put: BTreeSet<&str> = self.changes.iter().filter_map(put_target).collect();
        let edited: BTreeSet<PipelineId> = self.changes.iter().filter_map(saved_pipeline).collect();
        let after = self.configured(present);
        let touched: Vec<(&Pipeline, Target)> = after
            .written()
            .filter(|(pipeline, target)| edited.contains(&pipeline.id) || put.contains(target.name.as_str()))
            .filter(|(pipeline, _)| pipeline.mode == Mode::Incremental)
            .collect();
        let ids: Vec<PipelineId> = touched.iter().map(|(pipeline, _)| pipeline.id).collect();
        let checkpoints = app.store.checkpoints_of(&ids).await?;
        let (mut effects, mut changes) = (Vec::new(), Vec::new());
        for (pipeline, target) in touched {
            let Some(checkpoint) = checkpoints.get(&pipeline.id) else { continue };
            if !checkpoint.is_of_another(&pipeline.config_hash(&target), &[]) {
                continue;
            }
            let told = decision.or_else(|| pipeline.on_change.decision());
            let subject = match edited.contains(&pipeline.id) {
                true => ("pipeline", pipeline.name.clone()),
                false => ("target", target.name),
            };
            effects.push((subject, decision_effect(pipeline, told)));
            changes.extend(decision.map(|decision| Change::Decide { pipeline: pipeline.id, decision }));
        }
        for ((kind, name), effect) in effects {
            let planned =
                self.planned.iter_mut().find(|planned| (planned.kind, &planned.name) == (kind, &name));
            planned.into_iter().for_each(|planned| planned.effects.push(effect.clone()));
        }
        self.changes.extend(changes);
        Ok(())
    }
}

fn put_target(change: &Change) -> Option<&str> {
    match change {
        Change::PutTarget { target, .. } => Some(&target.name),
        _ => None,
    }
}

pub(super) fn target_effects(before: &TargetRecord, after: &Target) -> Vec<Effect> {
    if before.pipelines.is_empty() {
        return Vec::new();
    }
    let pipelines = before.pipelines.join(", ");
    let shape = |target: &Target| {
        let DocumentRules { rename, omit, partial, .. } = target.document.clone();
        (target.mapping.clone(), target.settings.clone(), rename, omit, partial)
    };
    if shape(&before.target) != shape(after) && after.document.partial {
        let kept = format!(
            "the next run of {pipelines} adds fields that are new; those that are there stay as they are until the index is deleted and all its pipelines load it again"
        );
        return vec![Effect::new("index.fields", kept)];
    }
    if shape(&before.target) != shape(after) {
        let rebuild = format!(
            "the index is rebuilt: the next full run of {pipelines} loads a new one and swaps it in; an incremental run asks first"
        );
        return vec![Effect::new("index.rebuild", rebuild)];
    }
    Vec::new()
}

/// What becomes of the checkpoint of a pipeline that means something else from now on.
fn decision_effect(pipeline: &Pipeline, decision: Option<Decision>) -> Effect {
    let name = &pipeline.name;
    match decision {
        Some(Decision::Keep) => Effect::new(
            "checkpoint.keep",
            format!("{name} goes on from its checkpoint: rows that do not change are not read again"),
        ),
        Some(Decision::Reset) => {
            Effect::new("checkpoint.reset", format!("{name} begins anew: its next run reads everything"))
        }
        None => Effect::new(
            "checkpoint.decision",
            format!(
                "the next incremental run of {name} asks what becomes of its checkpoint: --checkpoint keep or reset answers here, on_change in the file for every change"
            ),
        ),
    }
}
