//! The Python of the tests, with what functions like to use.

use std::path::{Path, PathBuf};
use std::process::Command;

/// Its interpreter. `make test` sets it up.
pub fn python() -> PathBuf {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scripts/python");
    let asked = Command::new(script).arg("path").output().expect("scripts/python can be run");
    assert!(asked.status.success(), "the Python of the tests is missing\nhint: scripts/python install");
    let folder = String::from_utf8(asked.stdout).expect("a path");
    Path::new(folder.trim()).join("python")
}
