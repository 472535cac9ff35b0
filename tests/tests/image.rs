//! What `deploy/Dockerfile.dockerignore` admits, against what the build of the image reads.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

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

/// Whatever else a list of names would miss: cargo notes each file that the compiler or a build script has read.
#[test]
fn every_file_that_the_binary_was_made_of_is_admitted_to_the_image() {
    let noted = workspace().target_directory.into_std_path_buf().join("debug/vitrina.d");
    let noted = fs::read_to_string(&noted).unwrap_or_else(|error| panic!("{}: {error}", noted.display()));
    let (_, files) = noted.split_once(": ").expect("what it is made of");
    let files: Vec<PathBuf> =
        files.split_whitespace().filter_map(|file| Path::new(file).canonicalize().ok()).collect();
    assert!(
        files.iter().any(|file| file.ends_with("python/src/vitrina/worker.py")),
        "the SDK, which it carries"
    );
    // The image makes its own from what is in `ui`, and lints nothing.
    let (made, lints) = (root().join("ui/dist"), root().join("clippy.toml"));
    for file in
        files.iter().filter(|file| file.starts_with(root()) && !file.starts_with(&made) && **file != lints)
    {
        assert_admitted(file);
    }
}

/// The binary compiles in a folder that holds the context and nothing else. `check` runs build scripts and embeds files as a
/// build does.
#[test]
#[ignore = "takes minutes: make test-image"]
fn the_binary_compiles_in_exactly_the_context_of_the_image() {
    let target = workspace().target_directory.into_std_path_buf();
    let context = target.join("image-context");
    let admitted = lay_out(&context);
    assert!(
        admitted.contains(Path::new("python/src/vitrina/worker.py")),
        "the SDK, which the binary carries"
    );
    let mut cargo = Command::new(env!("CARGO"));
    cargo.args(["check", "--offline", "--locked", "--quiet", "--package", "vitrina-cli", "--bin", "vitrina"]);
    // Else a dependency that carries a toolchain file of its own would choose its compiler.
    cargo.env("RUSTUP_TOOLCHAIN", toolchain());
    cargo.env("CARGO_TARGET_DIR", target).env_remove("RUSTC_WORKSPACE_WRAPPER");
    let checked = cargo.current_dir(&context).output().expect("cargo can be run");
    assert!(checked.status.success(), "{}", String::from_utf8_lossy(&checked.stderr));
}

/// Makes a folder what Docker's context is, and leaves alone what is so already: cargo then compiles what has changed.
fn lay_out(context: &Path) -> BTreeSet<PathBuf> {
    let patterns = read("deploy/Dockerfile.dockerignore");
    let admitted: BTreeSet<PathBuf> =
        files(&root()).into_iter().filter(|path| is_admitted(path, &patterns)).collect();
    for stale in files(context).iter().filter(|path| !admitted.contains(*path)) {
        fs::remove_file(context.join(stale)).expect("a file of ours");
    }
    for path in &admitted {
        let (from, to) = (root().join(path), context.join(path));
        let bytes = fs::read(&from).expect("a readable file");
        if fs::read(&to).is_ok_and(|there| there == bytes) {
            continue;
        }
        fs::create_dir_all(to.parent().expect("a folder")).expect("a folder of ours");
        fs::write(&to, bytes).expect("a file of ours");
    }
    admitted
}

/// Every file below a folder by its path from there, but for those that no pattern could admit and that are many.
fn files(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut folders = vec![PathBuf::new()];
    while let Some(inner) = folders.pop() {
        for entry in fs::read_dir(folder.join(&inner)).into_iter().flatten().flatten() {
            let path = inner.join(entry.file_name());
            let kind = entry.file_type().expect("a kind of file");
            let is_left = [".git", "target", "node_modules"].iter().any(|name| path.ends_with(name));
            match kind.is_dir() {
                true if !is_left => folders.push(path),
                false if kind.is_file() => found.push(path),
                _ => {}
            }
        }
    }
    found
}

#[test]
fn what_the_dockerfile_copies_is_admitted_to_the_image() {
    let dockerfile = read("deploy/Dockerfile");
    let copies = dockerfile.lines().filter_map(|line| line.strip_prefix("COPY "));
    let mut sources: Vec<&str> = Vec::new();
    for copy in copies.filter(|copy| !copy.starts_with("--from")) {
        let words: Vec<&str> = copy.split_whitespace().collect();
        sources.extend(words.split_last().expect("a destination").1.iter().filter(|source| **source != "."));
    }
    assert!(sources.contains(&"ui/package.json"), "{sources:?}");
    for source in sources {
        assert_admitted(Path::new(source));
    }
}

#[test]
fn the_image_has_a_python_for_functions_and_the_stand_a_folder_for_its_sdk() {
    let dockerfile = read("deploy/Dockerfile");
    let last = dockerfile.rsplit("\nFROM ").next().expect("a stage");
    assert!(
        last.contains("apt-get install") && last.split_whitespace().any(|word| word == "python3"),
        "{last}"
    );
    let mut compose: serde_norway::Value =
        serde_norway::from_str(&read("deploy/compose.yaml")).expect("YAML");
    compose.apply_merge().expect("anchors that are there");
    let service = &compose["services"]["etl_runner"];
    assert_eq!(service["tmpfs"][0], "/tmp", "{service:?}");
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
        "python/src/vitrina/__pycache__/worker.cpython-311.pyc",
    ] {
        assert!(!is_admitted(Path::new(path), &patterns), "{path}");
    }
}

fn toolchain() -> String {
    let file = read("rust-toolchain.toml");
    let channel = file.split("channel = \"").nth(1).and_then(|rest| rest.split('"').next());
    channel.expect("a channel").to_owned()
}

/// rust-toolchain.toml stays outside, so nothing else would notice that the two have come apart.
#[test]
fn the_image_builds_with_the_toolchain_of_the_workspace() {
    let channel = toolchain();
    let dockerfile = read("deploy/Dockerfile");
    let image = dockerfile.split("ARG RUST_IMAGE=rust:").nth(1).and_then(|rest| rest.split('-').next());
    let image = image.expect("an image of Rust");
    assert!(channel == image || channel.starts_with(&format!("{image}.")), "{channel} here, {image} there");
}

/// Where a stage named an image by itself, a release would pin the others and leave it out.
#[test]
fn every_stage_of_the_image_stands_on_a_base_image_that_a_release_can_pin() {
    let dockerfile = read("deploy/Dockerfile");
    let stages: Vec<&str> = dockerfile.lines().filter_map(|line| line.strip_prefix("FROM ")).collect();
    assert_eq!(stages.len(), 3, "{stages:?}");
    for stage in stages {
        let name = stage.strip_prefix("${").and_then(|rest| rest.split('}').next());
        let name = name.unwrap_or_else(|| panic!("FROM {stage} names no ARG"));
        assert!(dockerfile.contains(&format!("\nARG {name}=")), "{name}");
    }
}

/// `docker` answers what the registry would.
#[cfg(unix)]
#[test]
fn base_images_are_pinned_to_the_digests_that_the_registry_names() {
    let folder = tempfile::tempdir().expect("a folder");
    let docker = folder.path().join("docker");
    let digest = format!("sha256:{}", "ab".repeat(32));
    fs::write(&docker, format!("#!/bin/sh\necho {digest}\n")).expect("a program");
    fs::set_permissions(&docker, std::os::unix::fs::PermissionsExt::from_mode(0o755)).expect("a program");
    let dockerfile = folder.path().join("Dockerfile");
    fs::copy(root().join("deploy/Dockerfile"), &dockerfile).expect("a copy");
    let run = |verb: &str| {
        let path = format!("{}:{}", folder.path().display(), std::env::var("PATH").expect("a path"));
        let mut script = Command::new(root().join("scripts/base-images"));
        script.arg(verb).env("PATH", path).env("DOCKERFILE", &dockerfile);
        script.output().expect("the script can be run")
    };

    let before = run("check");
    assert!(!before.status.success());
    assert!(String::from_utf8_lossy(&before.stderr).contains("hint: scripts/base-images pin"), "{before:?}");
    for _ in 0..2 {
        assert!(run("pin").status.success());
        let pinned = fs::read_to_string(&dockerfile).expect("a file");
        assert!(pinned.contains(&format!("ARG DEBIAN_IMAGE=debian:bookworm-slim@{digest}\n")), "{pinned}");
        assert_eq!(pinned.matches(&digest).count(), 3, "{pinned}");
    }
    assert!(run("check").status.success());
}
