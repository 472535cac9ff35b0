//! What follows from a change beyond the configuration: for checkpoints, indexes and runs.

use std::collections::{BTreeMap, BTreeSet};

use vitrina_core::{Decision, DocumentRules, Mode, Pipeline, PipelineId, Status, Target};
use vitrina_store::{Change, PipelineRecord, TargetRecord};

use crate::app::App;
use crate::documents::{Action, Check, ConfigurationPart, Effect, PlannedChange, Severity};
use crate::error::Result;

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

    /// Checkpoints that are of another configuration once this is carried out, and what becomes of them. Those of
    /// pipelines and targets that the files name, whether anything else of them changes or was changed earlier.
    pub(super) async fn note_decisions(
        &mut self,
        app: &App,
        present: &Present,
        named: &Named<'_>,
        decision: Option<Decision>,
    ) -> Result<()> {
        let put: BTreeSet<&str> = self.changes.iter().filter_map(put_target).collect();
        let edited: BTreeSet<PipelineId> = self.changes.iter().filter_map(saved_pipeline).collect();
        let after = self.configured(present);
        let named_ones: Vec<(&Pipeline, Target)> = after
            .written()
            .filter(|(pipeline, target)| {
                named.pipelines.contains_key(&pipeline.name) || named.targets.contains_key(&target.name)
            })
            .filter(|(pipeline, _)| {
                pipeline.mode == Mode::Incremental && app.store.scope().includes(&pipeline.tags)
            })
            .collect();
        let ids: Vec<PipelineId> = named_ones.iter().map(|(pipeline, _)| pipeline.id).collect();
        let checkpoints = app.store.checkpoints_of(&ids).await?;
        let (mut found, mut refused) = (Vec::new(), Vec::new());
        for (pipeline, target) in named_ones {
            let Some(checkpoint) = checkpoints.get(&pipeline.id) else { continue };
            if !checkpoint.is_of_another(&pipeline.config_hash(&target), &[]) {
                continue;
            }
            let changed = match (edited.contains(&pipeline.id), put.contains(target.name.as_str())) {
                (true, _) => Some((ConfigurationPart::Pipeline, pipeline.name.clone())),
                (false, true) => Some((ConfigurationPart::Target, target.name.clone())),
                (false, false) => None,
            };
            let place = named.place(&pipeline.name, &target.name);
            if let Some(refusal) = checkpoint.refuse_to_keep(decision, &target.key) {
                refused.push(Check::new(Severity::Error, refusal.code, &place, &refusal.to_string()));
                continue;
            }
            found.push(OpenDecision { changed, place, pipeline: pipeline.clone() });
        }
        self.checks.extend(refused);
        for open in found {
            self.note_decision(open, present, decision);
        }
        Ok(())
    }

    fn note_decision(&mut self, open: OpenDecision, present: &Present, decision: Option<Decision>) {
        let OpenDecision { pipeline, changed, place } = open;
        let effect = decision_effect(&pipeline, decision.or_else(|| pipeline.on_change.decision()));
        let record = present.pipelines.get(&pipeline.name);
        match (&changed, decision) {
            (Some((kind, name)), _) => {
                let planned =
                    self.planned.iter_mut().find(|planned| (planned.kind, &planned.name) == (*kind, name));
                planned.into_iter().for_each(|planned| planned.effects.push(effect.clone()));
            }
            (None, Some(_)) => self.add_decision(&pipeline.name, record, &place, effect),
            // Its next run does what `on_change` says.
            (None, None) if pipeline.on_change.decision().is_some() => {}
            (None, None) => {
                self.checks.push(Check::new(Severity::Warning, &effect.code, &place, &effect.detail));
            }
        }
        if decision.is_some() && record.is_some_and(|record| record.status == Status::Failed) {
            let name = &pipeline.name;
            let message = format!(
                "{name} has failed, and no schedule runs it\nhint: `vitrina run {name}` does after this"
            );
            self.checks.push(Check::new(Severity::Warning, "pipeline.failed", &place, &message));
        }
        // A configuration that these changes leave as it is must be the one that was seen.
        let version = record.filter(|_| changed.is_none()).map(|record| record.version);
        self.changes.extend(decision.map(|decision| Change::Decide {
            pipeline: pipeline.id,
            decision,
            version,
        }));
    }

    /// All that changes is the checkpoint.
    fn add_decision(&mut self, name: &str, record: Option<&PipelineRecord>, place: &str, effect: Effect) {
        if record.is_some_and(|record| record.status.is_active()) {
            let message = format!(
                "a run of {name} is active, and its checkpoint can be decided about only at its end\nhint: `vitrina apply --wait` applies this as soon as the run has ended"
            );
            self.checks.push(Check::new(Severity::Warning, "pipeline.active", place, &message));
        }
        self.planned.push(PlannedChange {
            action: Action::Decide,
            kind: ConfigurationPart::Pipeline,
            name: name.to_owned(),
            version: record.map(|record| record.version),
            fields: Vec::new(),
            effects: vec![effect],
        });
    }
}

/// A pipeline whose checkpoint is of another configuration.
struct OpenDecision {
    pipeline: Pipeline,
    /// Kind and name of the planned change that leads to it; none where an earlier one did.
    changed: Option<(ConfigurationPart, String)>,
    /// In the files.
    place: String,
}

/// What the files name, each with its place there.
pub(super) struct Named<'a> {
    pub(super) pipelines: &'a BTreeMap<String, usize>,
    pub(super) targets: &'a BTreeMap<String, usize>,
}

impl Named<'_> {
    fn place(&self, pipeline: &str, target: &str) -> String {
        let of = |kind: &str, place: &usize| format!("/{kind}/{place}");
        let by_target = || self.targets.get(target).map(|place| of("targets", place));
        self.pipelines
            .get(pipeline)
            .map(|place| of("pipelines", place))
            .or_else(by_target)
            .unwrap_or_default()
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
