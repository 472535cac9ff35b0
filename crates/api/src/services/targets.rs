//! Targets that somebody describes: a key, a connection, a touch column, a mapping.

use std::collections::BTreeSet;

use serde_json::{Map, Value, json};
use vitrina_core::{Shared, Target, TargetName, is_alias_name, is_allowed_target, taken_aliases};
use vitrina_store::{Actor, Change, Error as StoreError, PipelineRef, Scope, TargetRecord};

use crate::app::{App, Rules};
use crate::documents::{Document, TargetConfig, TargetStanding};
use crate::error::{Error, Result};
use crate::extract::IfMatch;
use crate::problem::Fault;

use super::asking::Question;

pub(crate) async fn list(app: &App) -> Result<Vec<TargetRecord>> {
    Ok(app.store.targets().await?)
}

pub(crate) async fn find(app: &App, name: &str) -> Result<TargetRecord> {
    app.store.described_target(name).await?.ok_or_else(|| Error::NoSuchTarget(name.to_owned()))
}

/// Creates or replaces. Whoever names a version, or any, means a target that is there (RFC 9110, 13.1.1).
pub(crate) async fn put(
    app: &App,
    actor: &Actor,
    name: &str,
    config: TargetConfig,
    version: IfMatch,
) -> Result<(TargetRecord, bool)> {
    let target = sound(&app.rules, name, config).map_err(Error::InvalidTarget)?;
    app.store.check_describable(name).await?;
    refuse_taken_aliases(app, &target).await?;
    let before = app.store.described_target(name).await?;
    let current = before.as_ref().map(|record| record.version);
    match (version, current) {
        (IfMatch::Any | IfMatch::Version(_), None) => return Err(Error::TargetMissing(name.to_owned())),
        (IfMatch::Version(seen), Some(current)) if seen != current => {
            return Err(StoreError::VersionMoved { current }.into());
        }
        _ => {}
    }
    app.configure(actor, &[Change::PutTarget { target, version: current }]).await?;
    Ok((find(app, name).await?, before.is_none()))
}

pub(crate) async fn delete(app: &App, actor: &Actor, name: &str, version: Option<i64>) -> Result<()> {
    app.configure(actor, &[Change::DeleteTarget { name: name.to_owned(), version }]).await
}

/// What a runner finds wrong with a target or its pipeline is theirs to mend; an outage is nobody's here.
fn unusable(error: Error) -> Error {
    match error {
        Error::Unanswered { code, error } if !is_outage(&code) => Error::TargetUnusable { code, error },
        other => other,
    }
}

fn is_outage(code: &str) -> bool {
    ["unavailable", "busy", "unreachable", "lost"].iter().any(|word| code.ends_with(word))
}

/// A runner looks at the target, and at what the rows of a pipeline would make of it: the first one's where none is named.
pub(crate) async fn standing(
    app: &App,
    actor: &Actor,
    name: &str,
    pipeline: Option<&str>,
) -> Result<TargetStanding> {
    let TargetRecord { target, pipelines, .. } = find(app, name).await?;
    let chosen = match pipeline {
        Some(wanted) => {
            Some(pipelines.iter().find(|writer| *writer == wanted).ok_or_else(|| no_writer(name))?)
        }
        None => pipelines.first(),
    };
    let chosen = match chosen {
        Some(chosen) => Some(app.store.pipeline(&PipelineRef::Name(chosen.clone())).await?.config),
        None => None,
    };
    let source = chosen.as_ref().map(|pipeline| pipeline.source_connection.clone());
    let tasks = chosen.as_ref().map(|pipeline| pipeline.python_tasks()).unwrap_or_default();
    let question = Question {
        kind: "standing",
        pipeline: None,
        connections: [target.connection.clone()].into_iter().chain(source).collect(),
        python_tasks: tasks.into_iter().map(str::to_owned).collect(),
        payload: json!({"target": target, "pipeline": chosen}),
    };
    let answer = app.ask(actor, question).await.map_err(unusable)?;
    let mut standing: TargetStanding =
        serde_json::from_value(answer).map_err(|_| Error::Internal("how a target stands cannot be read"))?;
    standing.pipeline = chosen.map(|pipeline| pipeline.name);
    Ok(standing)
}

fn no_writer(target: &str) -> Error {
    let rule = format!("a pipeline that writes to {target}: GET /targets/{{t}} lists them");
    Error::InvalidQuery(Fault::new("pipeline", "query.parameter", &rule))
}

async fn refuse_taken_aliases(app: &App, target: &Target) -> Result<()> {
    // Whoever sees them: readers do not ask for a scope.
    let all = app.store.within(Scope::EVERYTHING).targets().await?;
    let described: Vec<Target> = all.into_iter().map(|record| record.target).collect();
    let visible: BTreeSet<String> = list(app).await?.into_iter().map(|record| record.target.name).collect();
    let named = |other: &Target| {
        if visible.contains(&other.name) { other.name.clone() } else { ELSEWHERE.to_owned() }
    };
    let own = taken_aliases(target, &described).into_values();
    let mut faults: Vec<Fault> = own
        .map(|other| Fault::new("/document/aliases", ALIAS_TAKEN, &alias_taken(&target.name, other)))
        .collect();
    let of_others = described.iter().filter(|other| !taken_aliases(other, [target]).is_empty());
    faults.extend(
        of_others.map(|other| Fault::new("/name", ALIAS_TAKEN, &alias_taken(&named(other), &target.name))),
    );
    if faults.is_empty() { Ok(()) } else { Err(Error::InvalidTarget(faults)) }
}

/// One target declares an alias that another one is called.
pub(super) const ALIAS_TAKEN: &str = "target.alias_taken";

/// How a target is called that the caller does not see.
pub(super) const ELSEWHERE: &str = "a target outside of the scope of this token";

pub(super) fn alias_taken(target: &str, other: &str) -> String {
    format!(
        "{target} declares an alias with the name of {other}: its readers would find the documents of both\nhint: choose another name in document.aliases"
    )
}

fn document_faults(target: &TargetName, config: &TargetConfig, say: &mut impl FnMut(&str, &str)) {
    let Document { rename, omit, aliases, .. } = &config.document;
    if let TargetName::Named { name, .. } = target
        && aliases.keys().any(|alias| !is_alias_name(alias, name))
    {
        say(
            "/document/aliases",
            "an alias is named as an index may be: lower case, digits, _ - and ., not `vitrina-…` and not the index itself",
        );
    }
    if aliases.values().any(|alias| alias.filter.as_ref().is_some_and(|filter| !filter.is_object())) {
        say("/document/aliases", "the filter of an alias is a query, as the server takes it");
    }
    let fields: BTreeSet<&String> = rename.values().collect();
    if rename.values().any(|field| field.trim().is_empty()) || fields.len() < rename.len() {
        say("/document/rename", "every column becomes a field of its own, with a name");
    }
    if omit.iter().any(|column| rename.contains_key(column)) {
        say("/document/omit", "a column is renamed or omitted, not both");
    }
}

fn shared_faults(index: bool, config: &TargetConfig, say: &mut impl FnMut(&str, &str)) {
    let Some(shared) = &config.shared else { return };
    let in_key = |column: &String| config.key.is_empty() || config.key.contains(column);
    match shared.clone().rules() {
        _ if index => {
            say(
                "/shared",
                "only a mart is shared so: an index that several pipelines fill has document: {partial: true}",
            );
        }
        None => say("/shared/column", "shared by rows it names a column of the key, shared by columns none"),
        Some(Shared::Rows { column }) if !in_key(&column) => {
            say("/shared/column", "the column is in the key, so that two pipelines never meet in one row");
        }
        Some(_) => {}
    }
}

/// A target as a file would say it.
pub(super) fn written(target: Target) -> Map<String, Value> {
    object(&TargetConfig::from(target))
}

/// A configuration is a struct of plain values.
pub(super) fn object(config: &impl serde::Serialize) -> Map<String, Value> {
    match serde_json::to_value(config) {
        Ok(Value::Object(fields)) => fields,
        _ => Map::new(),
    }
}

/// The target, or all that speaks against it.
pub(super) fn sound(rules: &Rules, name: &str, config: TargetConfig) -> Result<Target, Vec<Fault>> {
    let allowed = is_allowed_target(name, &rules.allowed_targets)
        .map_err(|error| vec![Fault::new("/name", error.code, &error.to_string())])?;
    let mut faults = Vec::new();
    let mut say = |pointer: &str, rule: &str| faults.push(Fault::new(pointer, "target.field", rule));
    if config.connection.as_ref().is_some_and(|name| name.trim().is_empty()) {
        say("/connection", "a connection has a name: leave it out for the usual one");
    }
    if config.key.iter().any(|column| column.trim().is_empty()) {
        say("/key", "a column of the key has a name");
    }
    let repeated = config.key.iter().enumerate().any(|(at, column)| config.key[..at].contains(column));
    if repeated {
        say("/key", "a column stands in the key once");
    }
    let index = matches!(allowed, TargetName::Named { .. });
    if !index && (config.mapping.is_some() || config.settings.is_some()) {
        say("/mapping", "only an index has a mapping and settings");
    }
    if !index && !config.document.is_plain() {
        say("/document", "only an index has documents");
    }
    if index && config.key.is_empty() {
        say("/key", "an index needs a key: the columns that a document's id is made of");
    }
    document_faults(&allowed, &config, &mut say);
    shared_faults(index, &config, &mut say);
    if index && config.touch_column.is_some() {
        say("/touch_column", "only a table has a touch column");
    }
    if faults.is_empty() { Ok(config.into_target(&allowed)) } else { Err(faults) }
}
