//! What `scripts/check` does where a machine lacks its tools.

use std::path::Path;
use std::process::{Command, Output};

/// Of a machine with neither the tools of `scripts/tools` nor cargo's own programs.
fn check(part: &str, ci: Option<&str>) -> Output {
    let cache = tempfile::tempdir().expect("a folder");
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("the workspace");
    let mut check = Command::new(root.join("scripts/check"));
    check.arg(part).env("PATH", "/usr/bin:/bin").env("XDG_CACHE_HOME", cache.path()).env_remove("CI");
    check.envs(ci.map(|ci| ("CI", ci))).output().expect("the script can be run")
}

#[test]
fn a_check_of_dependencies_that_cannot_be_made_fails_in_ci() {
    let checked = check("dependencies", Some("true"));
    let words = String::from_utf8_lossy(&checked.stderr);
    assert!(!checked.status.success(), "{words}");
    assert!(
        words.contains("cargo-deny is missing") && words.contains("hint: scripts/tools install"),
        "{words}"
    );
}

#[test]
fn a_check_of_dependencies_that_cannot_be_made_is_named_and_passed_over_elsewhere() {
    let checked = check("dependencies", None);
    let words = String::from_utf8_lossy(&checked.stderr);
    assert!(checked.status.success(), "{words}");
    assert!(words.contains("skipped cargo-deny: install it with: scripts/tools install"), "{words}");
}

#[test]
fn a_part_that_is_not_there_is_refused_with_the_known_ones() {
    let checked = check("licences", None);
    assert_eq!(checked.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&checked.stderr).contains("dependencies or deployment, not licences"));
}
