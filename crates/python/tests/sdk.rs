//! The SDK's own tests, as whoever works on it runs them: `python -m pytest python/tests`; and the wheel that it is
//! installed from.
#![allow(clippy::unwrap_used)] // the verbs of a test may panic as the test itself may

use std::path::{Path, PathBuf};
use std::process::Command;

fn sdk() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../python")
}

/// What a Python program prints; it must succeed.
fn printed(arguments: &[&str], path: &Path, folder: &Path) -> String {
    let ran = Command::new(vitrina_testbed::python())
        .args(arguments)
        .env("PYTHONDONTWRITEBYTECODE", "1")
        .env("PYTHONPATH", path)
        .current_dir(folder)
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&ran.stdout).into_owned();
    assert!(ran.status.success(), "{said}\n{}", String::from_utf8_lossy(&ran.stderr));
    said
}

#[test]
fn the_tests_of_the_sdk_pass() {
    let tests = ["-m", "pytest", "-q", "-p", "no:cacheprovider", "tests"];
    printed(&tests, Path::new(""), &sdk());
}

/// Without a network: what builds it is installed already.
#[test]
fn a_wheel_of_the_sdk_is_built_and_needs_nothing_else_to_be_imported() {
    let built = tempfile::tempdir().unwrap();
    let (folder, python) = (built.path(), sdk());
    let out = folder.to_str().unwrap();
    let wheel = ["-m", "pip", "wheel", "--quiet", "--no-index", "--no-deps", "--no-build-isolation"];
    printed(&[&wheel[..], &["--wheel-dir", out, python.to_str().unwrap()]].concat(), Path::new(""), folder);
    let name = std::fs::read_dir(folder).unwrap().next().unwrap().unwrap().path();
    assert!(name.to_str().unwrap().ends_with("-py3-none-any.whl"), "{name:?}");
    let tried = "
import sys, vitrina
from vitrina import Context, Reject, Retry, source, transform
from vitrina.testing import run

@transform
def slug(row: dict) -> dict:
    return row | {'slug': row['title'].lower()}

print(vitrina.__file__, slug({'title': 'A'}), [name for name in ('pyarrow', 'polars', 'pandas') if name in sys.modules])
";
    let said = printed(&["-c", tried], &name, folder);
    assert!(said.contains(".whl/vitrina/") && said.contains("'slug': 'a'") && said.contains("[]"), "{said}");
}
