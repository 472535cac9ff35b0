//! The documents against the code they speak of.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("the workspace").to_owned()
}

/// Every Rust file of the workspace.
fn sources(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).expect("a readable folder").flatten() {
        let path = entry.path();
        if path.is_dir() && !["target", ".git", "node_modules"].iter().any(|name| path.ends_with(name)) {
            sources(&path, found);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            found.push(path);
        }
    }
}

/// The names of all tests: functions and the cases of tables.
fn test_names() -> BTreeSet<String> {
    let mut files = Vec::new();
    sources(&root(), &mut files);
    let mut names = BTreeSet::new();
    for file in files {
        let text = fs::read_to_string(&file).expect("a readable file");
        for line in text.lines().map(str::trim_start) {
            for mark in ["fn ", "async fn ", "#[case::"] {
                if let Some(rest) = line.strip_prefix(mark) {
                    let name =
                        rest.split(|c: char| !(c.is_alphanumeric() || c == '_')).next().unwrap_or_default();
                    names.insert(name.to_owned());
                }
            }
        }
    }
    names
}

/// `code` spans of a line.
fn spans(line: &str) -> Vec<&str> {
    line.split('`').skip(1).step_by(2).collect()
}

#[test]
fn every_test_that_the_requirements_name_exists() {
    let text = fs::read_to_string(root().join("docs/requirements.md")).expect("docs/requirements.md");
    let known = test_names();
    let mut rows = 0;
    for line in text.lines().filter(|line| line.starts_with("| R-")) {
        rows += 1;
        let held_by = line.rsplit('|').nth(1).expect("a last column");
        for name in
            spans(held_by).into_iter().filter(|name| name.contains('_') && !name.contains(['/', '.', ' ']))
        {
            assert!(known.contains(name), "docs/requirements.md names {name}, which is no test");
        }
        let planned = held_by.contains("planned");
        assert!(planned || !spans(held_by).is_empty(), "no test and no plan: {line}");
    }
    assert!(rows >= 60, "only {rows} requirements are listed");
}

#[test]
fn every_link_between_documents_leads_somewhere() {
    let mut pages = vec![
        root().join("README.md"),
        root().join("CONTRIBUTING.md"),
        root().join("examples/airflow/README.md"),
        root().join("examples/cinema/README.md"),
    ];
    for folder in ["docs", "docs/decisions"] {
        let entries = fs::read_dir(root().join(folder)).expect("a readable folder").flatten();
        pages.extend(
            entries.map(|entry| entry.path()).filter(|path| path.extension().is_some_and(|end| end == "md")),
        );
    }
    for page in pages {
        let text = fs::read_to_string(&page).unwrap_or_else(|error| panic!("{}: {error}", page.display()));
        for link in text.split("](").skip(1).filter_map(|rest| rest.split(')').next()) {
            if link.starts_with("http") || link.starts_with('#') {
                continue;
            }
            let file = link.split('#').next().unwrap_or(link);
            let target = page.parent().expect("a folder").join(file);
            assert!(target.exists(), "{} links to {link}", page.display());
        }
    }
}

#[test]
fn the_drawing_of_states_names_every_status() {
    let text = fs::read_to_string(root().join("docs/architecture.md")).expect("docs/architecture.md");
    for status in ["IDLE", "RUN_REQUESTED", "RUNNING", "PAUSE_REQUESTED", "PAUSED", "FAILED"] {
        assert!(text.contains(status), "{status}");
    }
}

#[test]
fn the_api_page_lists_exactly_the_calls_of_the_openapi_document() {
    let text = fs::read_to_string(root().join("crates/api/openapi.json")).expect("the golden file");
    let document: serde_json::Value = serde_json::from_str(&text).expect("JSON");
    let paths = document["paths"].as_object().expect("paths");
    let described: BTreeSet<String> = paths
        .iter()
        .flat_map(|(path, calls)| {
            let methods = calls.as_object().expect("calls").keys();
            methods.map(move |method| {
                format!("{} {}", method.to_uppercase(), path.trim_start_matches("/api/v1"))
            })
        })
        .collect();
    let page = fs::read_to_string(root().join("docs/api.md")).expect("docs/api.md");
    let methods = ["| GET", "| POST", "| PUT", "| PATCH", "| DELETE"];
    let rows = page.lines().filter(|line| methods.iter().any(|method| line.starts_with(method)));
    let listed: BTreeSet<String> =
        rows.map(|row| row.split('|').nth(1).expect("a call").replace('`', "").trim().to_owned()).collect();
    assert_eq!(listed, described);
}

#[test]
fn the_configuration_page_holds_the_reference_that_the_binary_prints() {
    let binary = std::env::current_exe()
        .expect("this test")
        .parent()
        .and_then(Path::parent)
        .expect("a folder")
        .join("vitrina");
    let output = std::process::Command::new(&binary).args(["config", "reference"]).output();
    let reference =
        String::from_utf8(output.expect("build the binary first: make build").stdout).expect("text");
    assert!(reference.contains("database_url"));
    let page = fs::read_to_string(root().join("docs/configuration.md")).expect("docs/configuration.md");
    assert!(
        page.contains(reference.trim()),
        "docs/configuration.md differs from `vitrina config reference`:\n{reference}"
    );
}
