//! Configuration as code: what files would change, then exactly that.

use std::collections::{BTreeMap, BTreeSet};

use futures_util::{StreamExt, TryStreamExt, stream};
use serde_json::{Map, Value, json};
use sha2::{Digest, Sha256};
use uuid::Uuid;
use vitrina_core::{Pipeline, PipelineId, Target, TargetName, TargetPart, taken_aliases};
use vitrina_store::{
    Actor, Change, Error as StoreError, OUTSIDE, PipelineChoice, PipelineRecord, Scope, TargetRecord, Writers,
};

use crate::app::App;
use crate::documents::{
    Action, Check, Configuration, ConfigurationPart, Effect, FieldChange, NamedTarget, PipelineConfig, Plan,
    PlannedChange, Severity,
};
use crate::error::{Error, Result};
use crate::problem::Fault;

mod effects;

use super::checks::Examined;
use super::sessions::{AT_A_TIME, Sessions};
use super::{checks, targets};

/// A plan, and the changes that carry it out.
#[derive(Debug, Default)]
struct Draft {
    planned: Vec<PlannedChange>,
    changes: Vec<Change>,
    checks: Vec<Check>,
}

/// What is there.
#[derive(Default)]
struct Present {
    /// Those that the caller sees.
    pipelines: BTreeMap<String, PipelineRecord>,
    targets: BTreeMap<String, TargetRecord>,
    others: Others,
}

/// What is outside of the caller's scope. Rules that hold between pipelines ask it too, and nothing else: a plan neither shows
/// nor changes any of it.
#[derive(Default)]
struct Others {
    /// Without their names.
    pipelines: Vec<Pipeline>,
    names: BTreeSet<String>,
    targets: BTreeMap<String, Target>,
}

impl Present {
    /// Who writes, and where.
    fn configured(&self) -> Configured<'_> {
        let seen = self.pipelines.values().map(|record| &record.config);
        let described = self.targets.values().map(|record| &record.target);
        let pipelines = seen.chain(&self.others.pipelines).map(|pipeline| (pipeline.id, pipeline));
        let targets = described.chain(self.others.targets.values());
        let targets = targets.map(|target| (target.name.as_str(), target));
        Configured { pipelines: pipelines.collect(), targets: targets.collect() }
    }

    /// Pipelines that the caller does not see write to this target.
    fn is_shared_with_others(&self, target: &str) -> bool {
        self.others.pipelines.iter().any(|pipeline| pipeline.effective_target() == target)
    }

    /// Only others write to it, and nobody within the scope joins them.
    fn is_of_others(&self, target: &str, scope: &Scope) -> bool {
        let own = self.pipelines.values().any(|record| record.config.effective_target() == target);
        !scope.is_everything() && !own && self.is_shared_with_others(target)
    }

    /// As the store decides when the plan is carried out; `written` are targets of the pipelines in the files.
    fn may_describe(&self, target: &str, written: &BTreeSet<String>, scope: &Scope) -> bool {
        let own = self.pipelines.values().any(|record| record.config.effective_target() == target);
        scope.is_everything() || (!self.is_shared_with_others(target) && (own || written.contains(target)))
    }
}

/// Pipelines and described targets, as they are or as a plan would leave them.
struct Configured<'a> {
    pipelines: BTreeMap<PipelineId, &'a Pipeline>,
    targets: BTreeMap<&'a str, &'a Target>,
}

impl Configured<'_> {
    /// Each with the target that it writes to. A name that is none has no target.
    fn written(&self) -> impl Iterator<Item = (&Pipeline, Target)> {
        self.pipelines.values().filter_map(|pipeline| {
            let name = pipeline.effective_target();
            let described = self.targets.get(name).map(|target| (*target).clone());
            let target = described.or_else(|| Some(Target::undescribed(&name.parse().ok()?)))?;
            Some((*pipeline, target))
        })
    }

    fn writers(&self) -> BTreeMap<TargetPart, Writers> {
        let mut found: BTreeMap<TargetPart, Writers> = BTreeMap::new();
        for (pipeline, target) in self.written() {
            let writers = found.entry(pipeline.part_of(&target)).or_default();
            writers.shared = target.is_shared_by_columns();
            writers.names.insert(pipeline.id, pipeline.name.clone());
        }
        found
    }
}

pub(crate) async fn plan(app: &App, configuration: Configuration) -> Result<Plan> {
    Ok(draft(app, configuration).await?.plan())
}

/// Carries out the plan of this hash, all of it or nothing.
pub(crate) async fn apply(
    app: &App,
    actor: &Actor,
    configuration: Configuration,
    hash: &str,
) -> Result<Vec<PlannedChange>> {
    let draft = draft(app, configuration).await?;
    let is_error = |check: &&Check| check.severity == Severity::Error;
    let faults: Vec<Fault> = draft.checks.iter().filter(is_error).cloned().map(Fault::from).collect();
    if !faults.is_empty() {
        return Err(Error::InvalidConfiguration(faults));
    }
    let (plan, changes) = (draft.plan(), draft.changes);
    if plan.hash != hash {
        return Err(Error::PlanMoved { hash: plan.hash });
    }
    app.configure(actor, &changes).await?;
    Ok(plan.changes)
}

/// All that is configured, as files would say it: without what is as by default.
pub(crate) async fn export(app: &App) -> Result<Value> {
    let present = present(app, &BTreeSet::new()).await?;
    let targets = present.targets.into_values().map(|record| {
        let config = without_defaults(
            &targets::written(record.target.clone()),
            &targets::written(undescribed(&record)),
        );
        named(&record.target.name, &config)
    });
    let blank = written(&blank_pipeline());
    let pipelines = present
        .pipelines
        .into_values()
        .map(|record| without_defaults(&written(&PipelineConfig::from(record.config)), &blank));
    Ok(json!({"targets": targets.collect::<Vec<_>>(), "pipelines": pipelines.collect::<Vec<_>>()}))
}

/// `written` are targets of the pipelines in the files: one that nobody writes to yet is seen by who is about to.
async fn present(app: &App, written: &BTreeSet<String>) -> Result<Present> {
    let everything = PipelineChoice::default();
    let written: Vec<String> = written.iter().cloned().collect();
    let pipelines = app.store.pipelines(&everything).await?;
    let targets = app.store.targets_for(&written).await?;
    let mut present = Present {
        pipelines: pipelines.into_iter().map(|record| (record.config.name.clone(), record)).collect(),
        targets: targets.into_iter().map(|record| (record.target.name.clone(), record)).collect(),
        others: Others::default(),
    };
    if !app.store.scope().is_everything() {
        let all = app.store.within(Scope::EVERYTHING);
        let (pipelines, targets) = (all.pipelines(&everything).await?, all.targets().await?);
        present.others = others(&present, app.store.scope(), pipelines, targets);
    }
    Ok(present)
}

fn others(
    present: &Present,
    scope: &Scope,
    pipelines: Vec<PipelineRecord>,
    targets: Vec<TargetRecord>,
) -> Others {
    let unseen: Vec<Pipeline> = pipelines
        .into_iter()
        .map(|record| record.config)
        .filter(|config| !scope.includes(&config.tags))
        .collect();
    let targets = targets.into_iter().map(|record| record.target);
    let undescribed = targets.filter(|target| !present.targets.contains_key(&target.name));
    Others {
        names: unseen.iter().map(|pipeline| pipeline.name.clone()).collect(),
        pipelines: unseen
            .into_iter()
            .map(|pipeline| Pipeline { name: OUTSIDE.to_owned(), ..pipeline })
            .collect(),
        targets: undescribed.map(|target| (target.name.clone(), target)).collect(),
    }
}

/// Where the pipelines of files write to.
fn written_targets(app: &App, configuration: &Configuration) -> BTreeSet<String> {
    let pipelines = configuration.pipelines.iter().cloned();
    let settled = pipelines.map(|config| config.into_pipeline(PipelineId(Uuid::nil()), &app.rules));
    settled.map(|pipeline| pipeline.effective_target().to_owned()).collect()
}

async fn draft(app: &App, configuration: Configuration) -> Result<Draft> {
    let written = written_targets(app, &configuration);
    let present = present(app, &written).await?;
    let mut draft = Draft::default();
    draft.note_doubles(&configuration);
    let named: BTreeSet<String> =
        configuration.pipelines.iter().map(|pipeline| pipeline.name.clone()).collect();
    let described: BTreeSet<String> =
        configuration.targets.iter().map(|target| target.name.clone()).collect();
    let places: BTreeMap<String, usize> = configuration
        .pipelines
        .iter()
        .enumerate()
        .map(|(at, pipeline)| (pipeline.name.clone(), at))
        .collect();
    let target_places: BTreeMap<String, usize> =
        configuration.targets.iter().enumerate().map(|(at, target)| (target.name.clone(), at)).collect();
    for (place, target) in configuration.targets.into_iter().enumerate() {
        draft.target(app, place, target, &present, &written);
    }
    let changed = configuration.pipelines.into_iter().enumerate();
    let changed: Vec<ChangedPipeline> =
        changed.filter_map(|(place, config)| ChangedPipeline::of(app, place, config, &present)).collect();
    for (changed, examined) in examine_all(app, changed).await? {
        draft.pipeline(app, changed, examined, &present);
    }
    if configuration.prune {
        draft.prune(&present, &named, &described);
    }
    let names = effects::Named { pipelines: &places, targets: &target_places };
    draft.note_decisions(app, &present, &names, configuration.checkpoint).await?;
    draft.note_owners(&places, &present, app.store.scope());
    draft.note_aliases(&target_places, &present);
    if draft.checks.iter().all(|check| check.severity != Severity::Error) {
        draft.note_untakeable(app, &places, &present).await?;
    }
    Ok(draft)
}

/// A pipeline of the files that is not there as they say it.
struct ChangedPipeline {
    /// In the files.
    place: usize,
    id: PipelineId,
    config: PipelineConfig,
    source: String,
    fields: Vec<FieldChange>,
}

impl ChangedPipeline {
    fn of(app: &App, place: usize, mut config: PipelineConfig, present: &Present) -> Option<Self> {
        let before = present.pipelines.get(&config.name);
        // An operator's decision, unless the file makes it.
        config.enabled = config.enabled.or(Some(before.is_none_or(|record| record.config.enabled)));
        let id = before.map_or_else(|| PipelineId(Uuid::now_v7()), |record| record.config.id);
        let old = before.map(|record| written(&PipelineConfig::from(record.config.clone())));
        // In the order of its steps, however the file lists them.
        let settled = config.clone().into_pipeline(id, &app.rules);
        let source = settled.source_connection.clone();
        let fields = differences(old.as_ref(), &written(&PipelineConfig::from(settled)));
        let is_new = before.is_none();
        (is_new || !fields.is_empty()).then_some(Self { place, id, config, source, fields })
    }
}

/// Several at a time, and each in its place.
async fn examine_all(app: &App, changed: Vec<ChangedPipeline>) -> Result<Vec<(ChangedPipeline, Examined)>> {
    let sessions = Sessions::at(changed.iter().map(|changed| changed.source.as_str()));
    let examine = async |changed: ChangedPipeline| {
        let examined = checks::examine_with(app, &sessions, changed.config.clone(), changed.id).await?;
        Ok((changed, examined))
    };
    stream::iter(changed).map(examine).buffered(AT_A_TIME).try_collect().await
}

impl Draft {
    fn plan(&self) -> Plan {
        let hash = Sha256::digest(json!(self.planned).to_string().as_bytes());
        Plan {
            hash: hash.iter().map(|byte| format!("{byte:02x}")).collect(),
            ok: self.checks.iter().all(|check| check.severity != Severity::Error),
            changes: self.planned.clone(),
            checks: self.checks.clone(),
        }
    }

    /// Two files that speak of one thing would undo each other.
    fn note_doubles(&mut self, configuration: &Configuration) {
        let pipelines = configuration.pipelines.iter().map(|pipeline| ("pipelines", &pipeline.name));
        let targets = configuration.targets.iter().map(|target| ("targets", &target.name));
        let mut seen = BTreeSet::new();
        for (place, (kind, name)) in pipelines.enumerate().chain(targets.enumerate()) {
            if !name.is_empty() && !seen.insert((kind, name)) {
                let message = format!("{name} is named twice\nhint: keep one of them");
                self.checks.push(Check::new(
                    Severity::Error,
                    "config.twice",
                    &format!("/{kind}/{place}/name"),
                    &message,
                ));
            }
        }
    }

    /// A target has one writer. A pair that was there before keeps nobody from applying: its runs are refused.
    fn note_owners(&mut self, places: &BTreeMap<String, usize>, present: &Present, scope: &Scope) {
        let (before, after) = (present.configured().writers(), self.configured(present));
        let mut checks = Vec::new();
        for (pipeline, target) in after.written() {
            let place = places.get(&pipeline.name).map(|place| format!("/pipelines/{place}"));
            let violation = place.zip(pipeline.shared_violation(&target));
            checks.extend(violation.map(|(place, violation)| checks::shared_value(&place, &violation)));
        }
        for (pipeline, _) in after.written() {
            let Some(place) = places.get(&pipeline.name) else { continue };
            if present.is_of_others(pipeline.effective_target(), scope) {
                let field = format!("/pipelines/{place}/target_table");
                checks.push(checks::owned(&field, &checks::of_others(pipeline), Severity::Error));
            }
        }
        for (part, writers) in after.writers().iter().filter(|(_, writers)| writers.contested()) {
            let was = before.get(part).cloned().unwrap_or_default();
            let is_old = was.contested() && writers.names.keys().all(|id| was.names.contains_key(id));
            let severity = if is_old { Severity::Warning } else { Severity::Error };
            for (id, name) in &writers.names {
                let Some(place) = places.get(name) else { continue };
                let field = format!("/pipelines/{place}/target_table");
                checks.push(checks::owned(&field, &writers.refusal(part, Some(*id)), severity));
            }
        }
        self.checks.extend(checks);
    }

    /// What changes and no runner that is alive could execute. That there is none at all is said once.
    async fn note_untakeable(
        &mut self,
        app: &App,
        places: &BTreeMap<String, usize>,
        present: &Present,
    ) -> Result<()> {
        let changed: BTreeSet<PipelineId> = self.changes.iter().filter_map(saved_pipeline).collect();
        let after = self.configured(present);
        let mut needs: BTreeMap<([String; 2], Vec<&str>), Vec<usize>> = BTreeMap::new();
        for (pipeline, target) in after.written().filter(|(pipeline, _)| pipeline.enabled) {
            let Some(place) = places.get(&pipeline.name).filter(|_| changed.contains(&pipeline.id)) else {
                continue;
            };
            let connections = [pipeline.source_connection.clone(), target.connection];
            needs.entry((connections, pipeline.python_tasks())).or_default().push(*place);
        }
        let mut checks = Vec::new();
        for ((connections, functions), places) in needs {
            let Some(found) = app.store.untakeable(&connections, &functions).await? else { continue };
            if found.code == "runner.none" {
                checks.push(checks::would_wait("", &found));
                break;
            }
            checks.extend(
                places.iter().map(|place| checks::would_wait(&format!("/pipelines/{place}"), &found)),
            );
        }
        self.checks.extend(checks);
        Ok(())
    }

    /// An alias is not the name of another target. A pair that was there before keeps nobody from applying: its loads are
    /// refused.
    fn note_aliases(&mut self, places: &BTreeMap<String, usize>, present: &Present) {
        let (before, after) = (present.configured(), self.configured(present));
        let mut checks = Vec::new();
        for target in after.targets.values() {
            for (alias, other) in taken_aliases(target, after.targets.values().copied()) {
                let was = before.targets.get(target.name.as_str());
                let is_old = before.targets.contains_key(other)
                    && was.is_some_and(|was| was.document.aliases.contains_key(alias));
                let severity = if is_old { Severity::Warning } else { Severity::Error };
                let field = match (places.get(&target.name), places.get(other)) {
                    (Some(place), _) => format!("/targets/{place}/document/aliases"),
                    (None, Some(place)) => format!("/targets/{place}/name"),
                    (None, None) => continue,
                };
                let is_seen =
                    |name: &str| !present.others.targets.contains_key(name) || places.contains_key(name);
                let name = if is_seen(&target.name) { &target.name } else { targets::ELSEWHERE };
                let message = targets::alias_taken(name, other);
                checks.push(Check::new(severity, targets::ALIAS_TAKEN, &field, &message));
            }
        }
        self.checks.extend(checks);
    }

    /// Who will write where once this is carried out.
    fn configured<'a>(&'a self, present: &'a Present) -> Configured<'a> {
        let mut after = present.configured();
        let Configured { pipelines, targets } = &mut after;
        for change in &self.changes {
            match change {
                Change::CreatePipeline(pipeline) | Change::EditPipeline { after: pipeline, .. } => {
                    pipelines.insert(pipeline.id, pipeline);
                }
                Change::DeletePipeline { id, .. } => {
                    pipelines.remove(id);
                }
                Change::PutTarget { target, .. } => {
                    targets.insert(&target.name, target);
                }
                Change::DeleteTarget { name, .. } => {
                    targets.remove(name.as_str());
                }
                Change::Decide { .. } => {}
            }
        }
        after
    }

    fn target(
        &mut self,
        app: &App,
        place: usize,
        named: NamedTarget,
        present: &Present,
        written: &BTreeSet<String>,
    ) {
        let name = named.name.clone();
        let target = match targets::sound(&app.rules, &name, named.into_config()) {
            Ok(target) => target,
            Err(faults) => return self.fault(&format!("/targets/{place}"), faults),
        };
        let before = present.targets.get(&name);
        let old = before.map(|record| targets::written(record.target.clone()));
        let fields = differences(old.as_ref(), &targets::written(target.clone()));
        if before.is_some() && fields.is_empty() {
            return;
        }
        if !present.may_describe(&name, written, app.store.scope()) {
            let error = StoreError::TargetOutOfScope(name);
            let fault = Fault::new("", checks::SCOPE, &error.to_string());
            return self.fault(&format!("/targets/{place}"), vec![fault]);
        }
        let version = before.map(|record| record.version);
        let effects = before.map(|record| effects::target_effects(record, &target)).unwrap_or_default();
        self.add(ConfigurationPart::Target, &name, version, fields, effects);
        self.changes.push(Change::PutTarget { target, version });
    }

    fn pipeline(&mut self, app: &App, changed: ChangedPipeline, examined: Examined, present: &Present) {
        let ChangedPipeline { place, config, fields, .. } = changed;
        let (name, before) = (config.name.clone(), present.pipelines.get(&config.name));
        let spoken = examined.checks.into_iter().filter(|check| check.severity != Severity::Ok);
        self.checks.extend(
            spoken.map(|check| Check { field: format!("/pipelines/{place}{}", check.field), ..check }),
        );
        self.checks.extend(checks::outside(app, &format!("/pipelines/{place}"), &examined.pipeline));
        if present.others.names.contains(&name) {
            self.checks.push(checks::name_taken(&format!("/pipelines/{place}"), &name));
        }
        let effects = before.map(|record| self.pipeline_effects(place, record, &examined.pipeline));
        self.add(
            ConfigurationPart::Pipeline,
            &name,
            before.map(|record| record.version),
            fields,
            effects.unwrap_or_default(),
        );
        self.changes.push(match before {
            Some(record) => Change::EditPipeline { after: examined.pipeline, version: record.version },
            None => Change::CreatePipeline(examined.pipeline),
        });
    }

    fn prune(&mut self, present: &Present, named: &BTreeSet<String>, described: &BTreeSet<String>) {
        for (name, record) in present.pipelines.iter().filter(|(name, _)| !named.contains(*name)) {
            let effects =
                vec![Effect::new("history.gone", "its history goes too; its target stays as it is")];
            self.add_deletion(ConfigurationPart::Pipeline, name, record.version, effects);
            self.changes.push(Change::DeletePipeline { id: record.config.id, version: Some(record.version) });
        }
        // What others write to as well is not this caller's to forget.
        let own = present.targets.iter().filter(|(name, _)| !present.is_shared_with_others(name));
        for (name, record) in own.filter(|(name, _)| !described.contains(*name)) {
            self.add_deletion(ConfigurationPart::Target, name, record.version, Vec::new());
            self.changes.push(Change::DeleteTarget { name: name.clone(), version: Some(record.version) });
        }
    }

    fn add(
        &mut self,
        kind: ConfigurationPart,
        name: &str,
        version: Option<i64>,
        fields: Vec<FieldChange>,
        effects: Vec<Effect>,
    ) {
        let action = if version.is_some() { Action::Edit } else { Action::Create };
        self.planned.push(PlannedChange { action, kind, name: name.to_owned(), version, fields, effects });
    }

    fn add_deletion(&mut self, kind: ConfigurationPart, name: &str, version: i64, effects: Vec<Effect>) {
        let (name, version, fields) = (name.to_owned(), Some(version), Vec::new());
        self.planned.push(PlannedChange { action: Action::Delete, kind, name, version, fields, effects });
    }

    fn fault(&mut self, place: &str, faults: Vec<Fault>) {
        let placed = |fault: Fault| Fault { pointer: format!("{place}{}", fault.pointer), ..fault };
        self.checks.extend(faults.into_iter().map(placed).map(Check::from));
    }
}

fn saved_pipeline(change: &Change) -> Option<PipelineId> {
    match change {
        Change::CreatePipeline(pipeline) | Change::EditPipeline { after: pipeline, .. } => Some(pipeline.id),
        _ => None,
    }
}

/// Fields in which two written configurations differ, those that only one of them writes included: what a file leaves out is
/// set back to its default.
fn differences(before: Option<&Map<String, Value>>, after: &Map<String, Value>) -> Vec<FieldChange> {
    let nothing = Map::new();
    let before = before.unwrap_or(&nothing);
    let written =
        |fields: &Map<String, Value>, field: &String| fields.get(field).cloned().unwrap_or(Value::Null);
    let fields: BTreeSet<&String> = before.keys().chain(after.keys()).collect();
    let change = |field: &String| FieldChange {
        field: field.clone(),
        before: written(before, field),
        after: written(after, field),
    };
    fields.into_iter().map(change).filter(|change| change.before != change.after).collect()
}

fn written(config: &PipelineConfig) -> Map<String, Value> {
    targets::object(config)
}

fn blank_pipeline() -> PipelineConfig {
    serde_json::from_value(json!({"enabled": true})).expect("all fields have defaults")
}

/// What a file says that describes the target by its name alone: it creates nothing.
fn undescribed(record: &TargetRecord) -> Target {
    let name: Result<TargetName, _> = record.target.name.parse();
    let named = |name| Target { create_if_missing: false, ..Target::undescribed(&name) };
    name.map_or_else(|_| record.target.clone(), named)
}

fn without_defaults(config: &Map<String, Value>, blank: &Map<String, Value>) -> Value {
    let differs = |(field, value): &(&String, &Value)| blank.get(*field) != Some(*value);
    Value::Object(
        config.iter().filter(differs).map(|(field, value)| (field.clone(), value.clone())).collect(),
    )
}

fn named(name: &str, config: &Value) -> Value {
    let mut fields = Map::from_iter([("name".to_owned(), json!(name))]);
    fields.extend(config.as_object().cloned().unwrap_or_default());
    Value::Object(fields)
}
