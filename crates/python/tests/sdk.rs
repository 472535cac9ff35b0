//! The SDK's own tests, as whoever works on it runs them: `python -m pytest python/tests`.

use std::path::Path;
use std::process::Command;

#[test]
fn the_tests_of_the_sdk_pass() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../python");
    let tested = Command::new(vitrina_testbed::python())
        .args(["-m", "pytest", "-q", "-p", "no:cacheprovider", "tests"])
        .env("PYTHONDONTWRITEBYTECODE", "1")
        .current_dir(folder)
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&tested.stdout);
    assert!(tested.status.success(), "{said}\n{}", String::from_utf8_lossy(&tested.stderr));
}
