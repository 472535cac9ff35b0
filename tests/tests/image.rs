//! What `deploy/Dockerfile.dockerignore` admits, against what the build of the image reads.

use std::fs;
use std::path::{Path, PathBuf};

use cargo_metadata::{Metadata, MetadataCommand};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("the workspace").to_owned()
}

fn read(path: &str) -> String {
    fs::read_to_string(root().join(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
}

fn workspace() -> Metadata {
    MetadataCommand::new().no_deps().exec().expect("cargo describes the workspace")
}

/// The last pattern that matches a path, or a folder above it, decides; without any it is admitted.
fn is_admitted(path: &Path, patterns: &str) -> bool {
    let patterns = patterns.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#'));
    patterns.fold(true, |admitted, pattern| {
        let (verdict, pattern) = pattern.strip_prefix('!').map_or((false, pattern), |rest| (true, rest));
        if matches(path, pattern) { verdict } else { admitted }
    })
}

/// As much of Docker's patterns as the file uses: `*`, `**/name` and plain paths.
fn matches(path: &Path, pattern: &str) -> bool {
    if pattern == "*" {
        return true;
    }
    let (anywhere, name) = pattern.strip_prefix("**/").map_or((false, pattern), |name| (true, name));
    assert!(!name.contains(['*', '?', '[']), "this test cannot read the pattern {pattern}");
    if anywhere { path.iter().any(|part| part == name) } else { path.starts_with(name) }
}

#[track_caller]
fn assert_admitted(path: &Path) {
    let path = path.strip_prefix(root()).unwrap_or(path);
    assert!(root().join(path).exists(), "there is no {}", path.display());
    let patterns = read("deploy/Dockerfile.dockerignore");
    assert!(is_admitted(path, &patterns), "deploy/Dockerfile.dockerignore keeps {} out", path.display());
}

/// Every Rust file below a folder.
fn sources(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).expect("a readable folder").flatten() {
        let path = entry.path();
        if path.is_dir() && !path.ends_with("target") {
            sources(&path, found);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            found.push(path);
        }
    }
}

/// The files that a source embeds, with their folders resolved.
fn embedded(source: &Path) -> Vec<PathBuf> {
    let text = fs::read_to_string(source).expect("a readable file");
    let folder = source.parent().expect("a folder");
    let calls =
        ["include_str!(\"", "include_bytes!(\""].into_iter().flat_map(|call| text.split(call).skip(1));
    let names = calls.filter_map(|rest| rest.split_once("\")").map(|(name, _)| name));
    names.map(|name| folder.join(name).canonicalize().unwrap_or_else(|_| folder.join(name))).collect()
}

#[test]
fn every_workspace_member_is_admitted_to_the_image() {
    let workspace = workspace();
    assert!(workspace.packages.len() > 10, "the members were read");
    for package in &workspace.packages {
        assert_admitted(package.manifest_path.as_std_path());
        for target in &package.targets {
            assert_admitted(target.src_path.as_std_path());
        }
    }
}

#[test]
fn files_that_the_build_reads_besides_sources_are_admitted_to_the_image() {
    for path in [
        "Cargo.toml",
        "Cargo.lock",
        "crates/store/migrations",
        "examples/cinema/migrations",
        "ui/src",
        "ui/.npmrc",
    ] {
        assert_admitted(Path::new(path));
    }
    let mut files = Vec::new();
    for package in &workspace().packages {
        sources(package.manifest_path.parent().expect("a folder").as_std_path(), &mut files);
    }
    // This file names the macros without calling them.
    files.retain(|file| !file.ends_with(file!()));
    let embedded: Vec<PathBuf> = files.iter().flat_map(|file| embedded(file)).collect();
    assert!(!embedded.is_empty(), "the demo's seed is embedded");
    for file in embedded {
        assert_admitted(&file);
    }
}

#[test]
fn secrets_history_and_build_output_are_kept_out_of_the_image() {
    let patterns = read("deploy/Dockerfile.dockerignore");
    for path in [
        ".env",
        ".git/config",
        "target/debug/vitrina",
        "examples/cinema/target/debug/x",
        "ui/dist/index.html",
        "ui/node_modules/x",
    ] {
        assert!(!is_admitted(Path::new(path), &patterns), "{path}");
    }
}

/// rust-toolchain.toml stays outside, so nothing else would notice that the two have come apart.
#[test]
fn the_image_builds_with_the_toolchain_of_the_workspace() {
    let toolchain = read("rust-toolchain.toml");
    let channel = toolchain.split("channel = \"").nth(1).and_then(|rest| rest.split('"').next());
    let dockerfile = read("deploy/Dockerfile");
    let image = dockerfile.split("FROM rust:").nth(1).and_then(|rest| rest.split('-').next());
    let (channel, image) = (channel.expect("a channel"), image.expect("an image of Rust"));
    assert!(channel == image || channel.starts_with(&format!("{image}.")), "{channel} here, {image} there");
}
