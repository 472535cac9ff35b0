//! `deploy/compose.yaml` as data: services in the order of `depends_on`, with their commands and environment.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde_norway::Value;

pub(crate) fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap().to_owned()
}

pub(crate) struct Service {
    pub(crate) name: String,
    pub(crate) command: Vec<String>,
    pub(crate) environment: BTreeMap<String, String>,
    pub(crate) healthcheck: Vec<String>,
    /// Another service waits until this one has ended well.
    pub(crate) runs_once: bool,
}

/// One service as it is written, with what it takes over from others.
pub(crate) fn service(name: &str) -> Value {
    let text = std::fs::read_to_string(root().join("deploy/compose.yaml")).unwrap();
    let mut document: Value = serde_norway::from_str(&text).unwrap();
    document.apply_merge().unwrap();
    document["services"][name].clone()
}

/// The services that run our own image, each after those it depends on.
pub(crate) fn services(variables: &BTreeMap<String, String>) -> Vec<Service> {
    let text = std::fs::read_to_string(root().join("deploy/compose.yaml")).unwrap();
    let mut document: Value = serde_norway::from_str(&substitute(&text, variables)).unwrap();
    document.apply_merge().unwrap();
    let all = document["services"].as_mapping().unwrap();
    let ours = |service: &Value| service.get("image").and_then(Value::as_str) == Some("vitrina");
    let mut ordered: Vec<Service> = Vec::new();
    while let Some((name, service)) = all.iter().find(|(name, service)| {
        let known = |wanted: &str| ordered.iter().any(|service| service.name == wanted);
        ours(service)
            && !known(name.as_str().unwrap())
            && depends_on(service).iter().all(|(other, _)| !ours(&all[other.as_str()]) || known(other))
    }) {
        let runs_once = all.values().flat_map(depends_on).any(|(other, condition)| {
            other == name.as_str().unwrap() && condition == "service_completed_successfully"
        });
        ordered.push(Service {
            name: name.as_str().unwrap().to_owned(),
            command: [entrypoint(service), strings(service.get("command"))].concat(),
            environment: environment(service),
            healthcheck: service
                .get("healthcheck")
                .map(|check| strings(check.get("test")))
                .unwrap_or_default(),
            runs_once,
        });
    }
    ordered
}

fn depends_on(service: &Value) -> Vec<(String, String)> {
    let Some(others) = service.get("depends_on").and_then(Value::as_mapping) else { return Vec::new() };
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    others.iter().map(|(name, how)| (text(name), text(&how["condition"]))).collect()
}

/// The service's own, else the image's.
fn entrypoint(service: &Value) -> Vec<String> {
    if service.get("entrypoint").is_some() {
        return strings(service.get("entrypoint"));
    }
    let dockerfile = std::fs::read_to_string(root().join("deploy/Dockerfile")).unwrap();
    let line = dockerfile
        .lines()
        .find_map(|line| line.strip_prefix("ENTRYPOINT "))
        .expect("the image has an entrypoint");
    serde_norway::from_str(line).unwrap()
}

fn strings(list: Option<&Value>) -> Vec<String> {
    let list = list.and_then(Value::as_sequence).cloned().unwrap_or_default();
    list.iter().map(|item| item.as_str().unwrap().to_owned()).collect()
}

fn environment(service: &Value) -> BTreeMap<String, String> {
    let Some(environment) = service.get("environment").and_then(Value::as_mapping) else {
        return BTreeMap::new();
    };
    environment
        .iter()
        .map(|(name, value)| (name.as_str().unwrap().to_owned(), value.as_str().unwrap().to_owned()))
        .collect()
}

/// `${NAME}`, `${NAME:-default}` and `${NAME:?message}`, as compose reads them.
fn substitute(text: &str, variables: &BTreeMap<String, String>) -> String {
    let mut parts = text.split("${");
    let mut out = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let (inside, rest) = part.split_once('}').expect("a closed reference");
        let (name, default) = match inside.split_once(':') {
            Some((name, operator)) => (name, operator.strip_prefix('-')),
            None => (inside, None),
        };
        let value = variables.get(name).map(String::as_str).or(default);
        out += value.unwrap_or_else(|| panic!("compose.yaml needs {name}"));
        out += rest;
    }
    out
}
