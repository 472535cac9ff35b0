//! The direction of dependencies, read from `cargo metadata`: the two planes meet only in the database.

use std::collections::{BTreeMap, BTreeSet};

use cargo_metadata::{DependencyKind, MetadataCommand};

/// What each crate of the workspace depends on inside the workspace; tests may use anything.
fn dependencies() -> BTreeMap<String, BTreeSet<String>> {
    let metadata = MetadataCommand::new().no_deps().exec().expect("cargo describes the workspace");
    let members: BTreeSet<String> =
        metadata.packages.iter().map(|package| package.name.to_string()).collect();
    let inside = |package: &cargo_metadata::Package| {
        let normal =
            package.dependencies.iter().filter(|dependency| dependency.kind == DependencyKind::Normal);
        normal.map(|dependency| dependency.name.clone()).filter(|name| members.contains(name)).collect()
    };
    metadata.packages.iter().map(|package| (package.name.to_string(), inside(package))).collect()
}

fn reaches(from: &str, graph: &BTreeMap<String, BTreeSet<String>>) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    let mut open = vec![from.to_owned()];
    while let Some(next) = open.pop() {
        for dependency in &graph[&next] {
            if found.insert(dependency.clone()) {
                open.push(dependency.clone());
            }
        }
    }
    found
}

#[test]
fn the_api_has_no_path_to_the_runner_or_the_connectors() {
    let reached = reaches("vitrina-api", &dependencies());
    assert!(reached.contains("vitrina-store"), "the graph was read: {reached:?}");
    for forbidden in ["vitrina-runner", "vitrina-connectors", "vitrina-pgcopy", "vitrina-python"] {
        assert!(!reached.contains(forbidden), "api reaches {forbidden}");
    }
}

#[test]
fn the_runner_has_no_path_to_the_api() {
    let reached = reaches("vitrina-runner", &dependencies());
    assert!(reached.contains("vitrina-connectors"));
    assert!(!reached.contains("vitrina-api"));
}

#[test]
fn core_knows_nothing_and_the_layers_above_it_know_only_what_is_below() {
    let graph = dependencies();
    let allowed: [(&str, &[&str]); 10] = [
        ("vitrina-core", &[]),
        ("vitrina-pgcopy", &[]),
        ("vitrina-cluster", &[]),
        ("vitrina-telemetry", &[]),
        ("vitrina-guard", &["vitrina-core"]),
        ("vitrina-store", &["vitrina-core"]),
        ("vitrina-python", &["vitrina-core", "vitrina-pgcopy"]),
        ("vitrina-connectors", &["vitrina-core", "vitrina-guard", "vitrina-pgcopy", "vitrina-python"]),
        (
            "vitrina-runner",
            &["vitrina-core", "vitrina-python", "vitrina-store", "vitrina-connectors", "vitrina-telemetry"],
        ),
        ("vitrina-api", &["vitrina-core", "vitrina-guard", "vitrina-store", "vitrina-telemetry"]),
    ];
    for (name, below) in allowed {
        let strangers: Vec<_> =
            graph[name].iter().filter(|dependency| !below.contains(&dependency.as_str())).collect();
        assert!(strangers.is_empty(), "{name} depends on {strangers:?}");
    }
}

#[test]
fn core_does_no_input_or_output() {
    let metadata = MetadataCommand::new().no_deps().exec().expect("cargo describes the workspace");
    let core = metadata
        .packages
        .iter()
        .find(|package| package.name.as_str() == "vitrina-core")
        .expect("core is there");
    let normal = core.dependencies.iter().filter(|dependency| dependency.kind == DependencyKind::Normal);
    for dependency in normal {
        let does_io = ["tokio", "sqlx", "tokio-postgres", "reqwest", "axum", "hyper"]
            .contains(&dependency.name.as_str());
        assert!(!does_io, "core depends on {}", dependency.name);
    }
}
